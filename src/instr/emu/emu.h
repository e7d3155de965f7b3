// The emulator's side of the instruction layer.
#pragma once

#include "emulator/location.h"
#include "emulator/machine.h"
#include "instr/types.h"

#define ISO_DEVICE inline
#define ISO_UNROLL

namespace iso::instr {

using emu::Location;

// What signatures.inc compares with.
template <class Function>
struct WithLocation;
template <class R, class... Arguments>
struct WithLocation<R(Arguments...)> {
  using type = R(Arguments..., Location);
};
#define ISO_INSTRUCTION(result, arguments, ...) \
  static_assert(sizeof(static_cast<WithLocation<result arguments>::type*>(&__VA_ARGS__)) > 0, #__VA_ARGS__);
#define ISO_FUNCTION(result, arguments, ...) \
  static_assert(sizeof(static_cast<result(*) arguments>(&__VA_ARGS__)) > 0, #__VA_ARGS__);

}  // namespace iso::instr

#include "instr/emu/barrier.h"
#include "instr/emu/bulk_copy.h"
#include "instr/emu/control.h"
#include "instr/emu/cp_async.h"
#include "instr/emu/fence.h"
#include "instr/emu/math.h"
#include "instr/emu/mbarrier.h"
#include "instr/emu/memory.h"
#include "instr/emu/registers.h"
#include "instr/emu/warp.h"
#include "instr/emu/wgmma.h"
