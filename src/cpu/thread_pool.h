// Worker threads of the process, shared by all plans. A call never waits for a worker to start: the calling thread works on
// its own job until no item is left, so a call also finishes where workers are busy with others or gone (after fork).
#pragma once

#include "cpu/params.h"

namespace iso::cpu {

// Makes sure that at least `count` workers exist besides the calling thread. Called while planning; may allocate.
void ensure_workers(int count);

// A Parallel that spreads a job over the calling thread and up to num_workers - 1 others. Safe to use from many threads at
// once.
Parallel parallel_on_pool(int num_workers);

}  // namespace iso::cpu
