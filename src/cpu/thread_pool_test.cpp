#include "cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace iso::cpu {
namespace {

struct Counts {
  std::vector<std::atomic<int>> items;
  std::vector<std::atomic<int>> inside;  // tasks running with this worker number
  std::atomic<bool> shared_worker{false};

  Counts(i64 items, int workers) : items(static_cast<std::size_t>(items)), inside(static_cast<std::size_t>(workers)) {}

  static void task(void* context, i64 item, int worker) {
    Counts& counts = *static_cast<Counts*>(context);
    if (counts.inside.at(static_cast<std::size_t>(worker)).fetch_add(1) != 0) counts.shared_worker = true;
    counts.items.at(static_cast<std::size_t>(item)).fetch_add(1);
    counts.inside[static_cast<std::size_t>(worker)].fetch_sub(1);
  }
};

void expect_each_once(int workers, i64 items) {
  Counts counts(items, workers);
  const Parallel parallel = parallel_on_pool(workers);
  parallel.run(parallel.pool, items, Counts::task, &counts);
  for (i64 item = 0; item < items; ++item) EXPECT_EQ(counts.items[static_cast<std::size_t>(item)], 1) << "item " << item;
  EXPECT_FALSE(counts.shared_worker) << "two threads had the same worker number, so they would share scratch memory";
}

TEST(ThreadPool, RunsEveryItemOnce) {
  ensure_workers(3);
  for (const i64 items : {0, 1, 2, 7, 1000}) expect_each_once(4, items);
}

TEST(ThreadPool, WorksWithoutWorkers) { expect_each_once(64, 100); }

TEST(ThreadPool, ServesManyCallersAtOnce) {
  ensure_workers(3);
  std::vector<std::thread> callers;
  for (int n = 0; n < 8; ++n)
    callers.emplace_back([n] {
      for (int repeat = 0; repeat < 50; ++repeat) expect_each_once(1 + n % 4, 20 + n);
    });
  for (std::thread& caller : callers) caller.join();
}

// The workers of a forked child are gone; a call there must still finish.
TEST(ThreadPool, FinishesAfterFork) {
  ensure_workers(3);
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    alarm(20);
    Counts counts(100, 4);
    const Parallel parallel = parallel_on_pool(4);
    parallel.run(parallel.pool, 100, Counts::task, &counts);
    int done = 0;
    for (const auto& item : counts.items) done += item;
    _exit(done == 100 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace iso::cpu
