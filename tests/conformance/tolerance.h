// How far a backend may be from the truth: the tolerance model of every output and type, in one place.
//
// The truth is float64 attention on the given inputs. The yardstick is the textbook implementation in the tensors' type
// with float32 sums and statistics (reference::MixedPrecision) on the same inputs. Over each output tensor,
//
//   max|got - truth| <= 2 max|yardstick - truth| + floor * max|truth| + max(unavoidable)
//
// and the same with the root mean square, so that data on which the type itself is poor is judged by what the type can do,
// and a systematic error that hides below a large maximum still shows. The floor is what one rounding of a result costs in
// the type, since a yardstick may be exact by luck; float32 results, lse among them, get 1e-5. `unavoidable`, for the
// gradients, is what rounding out, dP, S and lse does to them (Reference::unavoidable_error): their terms may cancel to
// nothing. Places of NaN, +Inf and -Inf must be the truth's, exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include <fmt/format.h>

#include "base/dtype.h"

namespace iso::conformance {

// Half a unit in the last place of a number just above a power of two.
inline double rounding_floor(DType output) {
  if (output == DType::bf16) return 0x1p-8;
  if (output == DType::f16) return 0x1p-11;
  return 1e-5;
}

// Max and root mean square of the differences to the truth where it is finite.
struct Distance {
  double maximum = 0, mean_square = 0;
  std::size_t worst = 0;
};

inline Distance distance(std::span<const double> truth, std::span<const float> numbers) {
  Distance d;
  for (std::size_t n = 0; n < truth.size(); ++n) {
    if (!std::isfinite(truth[n])) continue;
    const double error = std::abs(numbers[n] - truth[n]);
    if (error > d.maximum) d.maximum = error, d.worst = n;
    d.mean_square += error * error / static_cast<double>(truth.size());
  }
  return d;
}

// Empty if `got` is within tolerance, else one line that says where it is not. `name` is the output's; `unavoidable` may
// be empty.
inline std::string compare(const std::string& name, DType dtype, std::span<const double> truth,
                           std::span<const float> yardstick, std::span<const float> got,
                           std::span<const double> unavoidable = {}) {
  double largest = 0, square = 0, noise = 0, noise_square = 0;
  for (const double x : unavoidable) {
    noise = std::max(noise, x);
    noise_square += x * x / static_cast<double>(unavoidable.size());
  }
  for (std::size_t n = 0; n < truth.size(); ++n) {
    const bool same = std::isnan(truth[n])   ? std::isnan(got[n])
                      : std::isinf(truth[n]) ? got[n] == static_cast<float>(truth[n])
                                             : std::isfinite(got[n]);
    if (!same) return fmt::format("{}[{}] is {}, the truth is {}", name, n, got[n], truth[n]);
    if (!std::isfinite(truth[n])) continue;
    largest = std::max(largest, std::abs(truth[n]));
    square += truth[n] * truth[n] / static_cast<double>(truth.size());
  }
  const Distance ours = distance(truth, got), theirs = distance(truth, yardstick);
  const double floor = rounding_floor(dtype);
  const double allowed = 2 * theirs.maximum + floor * largest + noise;
  if (ours.maximum > allowed)
    return fmt::format("{}[{}] is {}, the truth is {}: off by {:.3g}, allowed {:.3g}", name, ours.worst, got[ours.worst],
                       truth[ours.worst], ours.maximum, allowed);
  const double rms = std::sqrt(ours.mean_square);
  const double allowed_rms = 2 * std::sqrt(theirs.mean_square) + floor * std::sqrt(square) + std::sqrt(noise_square);
  if (rms > allowed_rms) return fmt::format("{}: root mean square error {:.3g}, allowed {:.3g}", name, rms, allowed_rms);
  return {};
}

}  // namespace iso::conformance
