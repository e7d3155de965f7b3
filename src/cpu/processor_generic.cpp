// Architectures with the portable levels only: whatever was built for them runs.
#include "cpu/processor.h"

namespace iso::cpu {

bool processor_runs(const char*) { return true; }

}  // namespace iso::cpu
