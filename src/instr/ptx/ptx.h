// The chip's side of the instruction layer: each function is one PTX instruction, its comment names the section of the PTX
// manual. Everything here needs sm_90a or later where nothing else is said.
#pragma once

#include "instr/types.h"

#define ISO_DEVICE __device__ __forceinline__
#define ISO_UNROLL _Pragma("unroll")

// What signatures.inc compares with.
#define ISO_INSTRUCTION(result, arguments, ...) \
  static_assert(sizeof(static_cast<result(*) arguments>(&__VA_ARGS__)) > 0, #__VA_ARGS__);
#define ISO_FUNCTION(result, arguments, ...) ISO_INSTRUCTION(result, arguments, __VA_ARGS__)

#include "instr/ptx/barrier.h"
#include "instr/ptx/bulk_copy.h"
#include "instr/ptx/control.h"
#include "instr/ptx/cp_async.h"
#include "instr/ptx/fence.h"
#include "instr/ptx/math.h"
#include "instr/ptx/mbarrier.h"
#include "instr/ptx/memory.h"
#include "instr/ptx/registers.h"
#include "instr/ptx/warp.h"
#include "instr/ptx/wgmma.h"
