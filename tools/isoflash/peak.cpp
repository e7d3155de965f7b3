#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

// ISO_PEAK_LOOPS names the loops that this build holds: ISO_PEAK_LOOP(portable) ISO_PEAK_LOOP(avx2) ... (CMakeLists.txt).
#define ISO_PEAK_LOOP(name) extern const PeakLoop peak_##name;
namespace iso::tool {
ISO_PEAK_LOOPS
}
#undef ISO_PEAK_LOOP

namespace iso::tool {
namespace {

using Clock = std::chrono::steady_clock;

#define ISO_PEAK_LOOP(name) &peak_##name,
const PeakLoop* const kLoops[] = {ISO_PEAK_LOOPS};
#undef ISO_PEAK_LOOP

bool serves(const PeakLoop& loop, const std::string& level) {
  return (" " + std::string(loop.levels) + " ").find(" " + level + " ") != std::string::npos;
}

// A level without a bf16 instruction converts bf16 and multiplies float32.
const PeakLoop& loop_for(const std::string& level, bool bf16) {
  const PeakLoop* found = &peak_portable;
  for (const PeakLoop* loop : kLoops)
    if (serves(*loop, level) && (loop->bf16 ? bf16 : !found->bf16)) found = loop;
  return *found;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Keeps the loops' results alive, so that no compiler can drop a loop.
std::atomic<double> sink;

// Seconds until the last of `num_threads` has done `rounds` rounds.
double timed(const PeakLoop& loop, i64 rounds, int num_threads) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::jthread> threads;
  for (int n = 0; n < num_threads; ++n)
    threads.emplace_back([&] {
      ++ready;
      while (!go) std::this_thread::yield();
      sink = loop.run(rounds);
    });
  while (ready < num_threads) std::this_thread::yield();
  const auto start = Clock::now();
  go = true;
  threads.clear();  // joins
  return seconds_since(start);
}

}  // namespace

Peak measure_peak(const std::string& level, bool bf16, int num_threads) {
  const PeakLoop& loop = loop_for(level, bf16);
  constexpr double kSeconds = 0.04;
  i64 rounds = 100'000;
  const double first = timed(loop, rounds, num_threads);
  rounds = std::max<i64>(rounds, static_cast<i64>(rounds * kSeconds / first));
  double best = 0;
  for (int n = 0; n < 5; ++n)
    best = std::max(best, rounds * loop.flops_per_round * num_threads / timed(loop, rounds, num_threads));
  return {loop.instruction, best * 1e-9};
}

}  // namespace iso::tool
