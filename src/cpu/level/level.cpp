// The table of one level.
#include "cpu/level/backward.h"
#include "cpu/level/forward.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

extern const Kernels kKernels;
constinit const Kernels kKernels = {forward_scratch, backward_scratch, partial_size, forward, backward};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
