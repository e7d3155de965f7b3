// A small valid problem with memory of its own, for tests that change one thing and look at what the library says.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "isoflash/isoflash.h"

namespace iso::test {

// Memory for tensors, 64-byte aligned, zero at first.
class Arena {
 public:
  isoflash_tensor tensor(isoflash_dtype dtype, std::initializer_list<std::int64_t> shape) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    isoflash_tensor t;
    isoflash_tensor_contiguous(&t, bytes(static_cast<std::size_t>(elements) * 8), dtype,
                               static_cast<std::int32_t>(shape.size()), shape.begin());
    return t;
  }
  isoflash_tensor int32(const std::vector<std::int32_t>& values) {
    return int32({static_cast<std::int64_t>(values.size())}, values);
  }
  isoflash_tensor int32(std::initializer_list<std::int64_t> shape, const std::vector<std::int32_t>& values) {
    const isoflash_tensor t = tensor(ISOFLASH_I32, shape);
    for (std::size_t n = 0; n < values.size(); ++n) static_cast<std::int32_t*>(t.data)[n] = values[n];
    return t;
  }
  void* bytes(std::size_t size) {
    blocks_.push_back(std::vector<Block>(size / sizeof(Block) + 1));
    return blocks_.back().data();
  }

 private:
  struct alignas(64) Block {
    unsigned char bytes[64] = {};
  };
  std::vector<std::vector<Block>> blocks_;
};

struct ExampleProblem {
  Arena arena;
  isoflash_problem problem;

  // Dense: batch 2, seqlen_q 6, seqlen_kv 10, 4 heads on 2, head_dim 8, head_dim_v 4.
  ExampleProblem() : ExampleProblem(2, 6, 10) {}

  // The same with other lengths.
  ExampleProblem(std::int64_t batch, std::int64_t seqlen_q, std::int64_t seqlen_kv) {
    isoflash_problem_init(&problem);
    problem.q = arena.tensor(ISOFLASH_F32, {batch, seqlen_q, 4, 8});
    problem.k = arena.tensor(ISOFLASH_F32, {batch, seqlen_kv, 2, 8});
    problem.v = arena.tensor(ISOFLASH_F32, {batch, seqlen_kv, 2, 4});
    problem.out = arena.tensor(ISOFLASH_F32, {batch, seqlen_q, 4, 4});
    problem.lse = arena.tensor(ISOFLASH_F32, {batch, 4, seqlen_q});
  }

  // Packed, with 4 heads on 2, head_dim 8, head_dim_v 4; cu_seqlens as given.
  static ExampleProblem packed(const std::vector<std::int32_t>& cu_q, const std::vector<std::int32_t>& cu_kv) {
    ExampleProblem e;
    e.problem.q = e.arena.tensor(ISOFLASH_F32, {cu_q.back(), 4, 8});
    e.problem.k = e.arena.tensor(ISOFLASH_F32, {cu_kv.back(), 2, 8});
    e.problem.v = e.arena.tensor(ISOFLASH_F32, {cu_kv.back(), 2, 4});
    e.problem.out = e.arena.tensor(ISOFLASH_F32, {cu_q.back(), 4, 4});
    e.problem.lse = e.arena.tensor(ISOFLASH_F32, {4, cu_q.back()});
    e.problem.cu_seqlens_q = e.arena.int32(cu_q);
    e.problem.cu_seqlens_kv = e.arena.int32(cu_kv);
    return e;
  }

  // Turns k and v into `num_pages` pages of `page_size` rows.
  void page(std::int64_t num_pages, std::int64_t page_size) {
    problem.k = arena.tensor(ISOFLASH_F32, {num_pages, page_size, 2, 8});
    problem.v = arena.tensor(ISOFLASH_F32, {num_pages, page_size, 2, 4});
  }

  // Arguments of the calls, workspace included.
  isoflash_forward_args forward_args(const isoflash_plan* plan) {
    isoflash_forward_args args;
    isoflash_forward_args_init(&args);
    args.q = problem.q;
    args.k = problem.k;
    args.v = problem.v;
    args.out = problem.out;
    args.lse = problem.lse;
    args.k_new = problem.k_new;
    args.v_new = problem.v_new;
    args.sink = problem.sink;
    args.bias = problem.bias;
    args.workspace_size = isoflash_forward_workspace_size(plan);
    args.workspace = arena.bytes(args.workspace_size);
    return args;
  }
  isoflash_backward_args backward_args(const isoflash_plan* plan) {
    isoflash_backward_args args;
    isoflash_backward_args_init(&args);
    args.q = problem.q;
    args.k = problem.k;
    args.v = problem.v;
    args.out = problem.out;
    args.lse = problem.lse;
    args.dout = like(problem.out);
    args.dlse = like(problem.lse);
    args.dq = like(problem.q);
    args.dk = like(problem.k);
    args.dv = like(problem.v);
    args.sink = problem.sink;
    args.bias = problem.bias;
    args.dsink = like(problem.sink);
    args.dbias = like(problem.bias);
    args.workspace_size = isoflash_backward_workspace_size(plan);
    args.workspace = arena.bytes(args.workspace_size);
    return args;
  }

  // A tensor of the same shape and dtype in memory of its own; none for none.
  isoflash_tensor like(const isoflash_tensor& t) {
    isoflash_tensor copy = t;
    std::int64_t elements = 1;
    for (std::int32_t axis = 0; axis < t.rank; ++axis) elements *= t.shape[axis];
    isoflash_tensor_contiguous(&copy, arena.bytes(static_cast<std::size_t>(elements) * 8),
                               static_cast<isoflash_dtype>(t.dtype), t.rank, t.shape);
    return copy;
  }
};

}  // namespace iso::test
