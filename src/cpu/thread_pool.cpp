#include "cpu/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace iso::cpu {
namespace {

// One call's work; lives on the caller's stack, in a list of the pool while workers may join it.
struct Job {
  i64 count;
  void (*task)(void*, i64, int);
  void* context;
  int max_workers;
  std::atomic<i64> next_item{0};
  int joined = 0;  // worker numbers handed out (pool mutex)
  int active = 0;  // workers inside work() (pool mutex)
  Job* next = nullptr;

  void work(int worker) {
    for (i64 item; (item = next_item.fetch_add(1, std::memory_order_relaxed)) < count;) task(context, item, worker);
  }
};

class Pool {
 public:
  // Never destroyed: workers may outlive static destruction. A forked child has none of the workers, and locks that
  // remember them, so it gets a pool of its own.
  static Pool& instance() {
    static Pool* pool = [] {
      pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
      return new Pool;
    }();
    return *pool;
  }

  void ensure(int count) {
    const std::lock_guard lock(mutex_);
    try {
      for (; num_threads_ < count; ++num_threads_) std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {
      // No more threads to be had: those there are do the work.
    }
  }

  void run(Job& job) {
    job.joined = 1;
    {
      const std::lock_guard lock(mutex_);
      job.next = jobs_;
      jobs_ = &job;
    }
    wake_.notify_all();
    job.work(0);
    std::unique_lock lock(mutex_);
    for (Job** link = &jobs_; *link != nullptr; link = &(*link)->next)
      if (*link == &job) {
        *link = job.next;
        break;
      }
    done_.wait(lock, [&] { return job.active == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = jobs_;
      while (job != nullptr &&
             (job->joined >= job->max_workers || job->next_item.load(std::memory_order_relaxed) >= job->count))
        job = job->next;
      if (job == nullptr) {
        wake_.wait(lock);
        continue;
      }
      const int worker = job->joined++;
      ++job->active;
      lock.unlock();
      job->work(worker);
      lock.lock();
      if (--job->active == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* jobs_ = nullptr;
  int num_threads_ = 0;
};

void run_on_pool(void* num_workers, i64 count, void (*task)(void*, i64, int), void* context) {
  const int workers = static_cast<int>(reinterpret_cast<i64>(num_workers));
  if (workers <= 1 || count <= 1) {
    for (i64 item = 0; item < count; ++item) task(context, item, 0);
    return;
  }
  Job job{.count = count, .task = task, .context = context, .max_workers = workers};
  Pool::instance().run(job);
}

}  // namespace

void ensure_workers(int count) { Pool::instance().ensure(count); }

Parallel parallel_on_pool(int num_workers) {
  return {.num_workers = num_workers, .pool = reinterpret_cast<void*>(static_cast<i64>(num_workers)), .run = run_on_pool};
}

}  // namespace iso::cpu
