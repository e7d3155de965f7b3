// Vectors of this level, whatever they are: the names the kernels use.
#pragma once

#include <hwy/highway.h>

#include "base/compile.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using UintTag = hn::RebindToUnsigned<FloatTag>;
using Vec = hn::Vec<FloatTag>;

inline constexpr FloatTag kFloat;
inline constexpr IntTag kInt;

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));

// Register blocking of the products: kRows rows of A times kVecs vectors of B's columns stay in registers.
inline constexpr int kNumRegisters = kLanes >= 16 || HWY_ARCH_ARM_A64 ? 32 : 16;
inline constexpr int kVecs = 3;
inline constexpr int kRows = kNumRegisters == 32 ? 8 : 4;

}  // namespace ISO_TARGET
}  // namespace iso::cpu
