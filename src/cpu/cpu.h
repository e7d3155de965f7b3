// The CPU backend's face: the levels compiled in, and the calls a plan needs.
#pragma once

#include <cstddef>
#include <span>

#include "cpu/params.h"
#include "plan/plan.h"

namespace iso::cpu {

// Levels compiled into this library, lowest first.
std::span<const Level> levels();

// The level that ISOFLASH_CPU_LEVEL names if it is set and can run here, else the highest available one. If the variable
// names no usable level, *rejected (if given) is set to its value, and the pick is made as if it were unset.
const Level& level_in_use(const char** rejected = nullptr);

// Processors this process may run on.
int available_cores();

// Prepares plan.state, plan.kernel and the workspace sizes, and starts the worker threads.
void prepare(Plan& plan);

// Tensors are validated; the workspace has the plan's size and is 64-byte aligned.
void forward(const Plan& plan, const ForwardTensors& tensors, void* workspace);
void backward(const Plan& plan, const BackwardTensors& tensors, void* workspace);

}  // namespace iso::cpu
