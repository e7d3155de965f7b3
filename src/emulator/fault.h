// A fault ends the launch: it travels as an exception from the check that found it to the fiber's or engine's outermost
// function, never further.
#pragma once

#include <utility>

#include "errors/error.h"

namespace iso::emu {

struct Fault {
  Error error;
};

template <class E>
[[noreturn]] void fail(const E& error) {
  throw Fault{make_error(error)};
}

}  // namespace iso::emu
