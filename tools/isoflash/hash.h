// Random numbers that are the same on every machine and with every compiler: integer hashing only.
#pragma once

#include <string_view>

#include "base/compile.h"

namespace iso::tool {

// A bijection of 64-bit words that scatters its input (the finaliser of SplitMix64).
constexpr u64 scatter(u64 x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr u64 hash_of(u64 a, u64 b) { return scatter(scatter(a) ^ b); }

// FNV-1a, scattered.
constexpr u64 hash_of(u64 seed, std::string_view text) {
  u64 h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash_of(seed, h);
}

// A stream of such numbers.
class HashStream {
 public:
  explicit constexpr HashStream(u64 seed) : seed_(seed) {}
  constexpr u64 next() { return hash_of(seed_, count_++); }
  // Whole number in [0, n), n > 0 and below 2^32; off from uniform by less than n / 2^32.
  constexpr u64 below(u64 n) { return ((next() >> 32) * n) >> 32; }

 private:
  u64 seed_, count_ = 0;
};

// Sum of four bytes of `h`, centred: a whole number close to normal, standard deviation kHashNormalDeviation.
constexpr i16 hash_normal(u64 h) {
  return static_cast<i16>(static_cast<int>((h & 0xff) + (h >> 8 & 0xff) + (h >> 16 & 0xff) + (h >> 24 & 0xff)) - 510);
}
inline constexpr float kHashNormalDeviation = 147.7995f;  // sqrt(4 * (256^2 - 1) / 12)

}  // namespace iso::tool
