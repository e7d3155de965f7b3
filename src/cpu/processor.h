// What the processor at hand can run. One source per architecture; the build picks it.
#pragma once

namespace iso::cpu {

// Can it run the kernels of this level?
bool processor_runs(const char* level);

}  // namespace iso::cpu
