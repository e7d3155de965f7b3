// Random choices that are the same on every platform; std::uniform_int_distribution differs between libraries.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "base/compile.h"

namespace iso::conformance {

// Ranges include both ends.
class Dice {
 public:
  explicit Dice(u64 seed) : random_(seed) {}
  i64 between(i64 low, i64 high) { return low + static_cast<i64>(random_() % static_cast<u64>(high - low + 1)); }
  bool one_in(i64 n) { return between(1, n) == 1; }
  template <class T, std::size_t kCount>
  T any_of(const T (&choices)[kCount]) {
    return choices[between(0, kCount - 1)];
  }
  template <class T>
  void shuffle(std::vector<T>& x) {
    for (std::size_t n = x.size(); n > 1; --n) std::swap(x[n - 1], x[between(0, static_cast<i64>(n) - 1)]);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace iso::conformance
