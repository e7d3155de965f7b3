// Known faults: variable lengths, cu_seqlens, max_seqlen, empty sequences, zero-size tensors.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R59_zero_length_query_with_max_seqlen_1) {
  Attention a(ISOFLASH_BF16, {1, 0, 1}, {3, 0, 5}, {.num_heads_q = 9, .num_heads_kv = 3, .head_dim = 64});
  a.causal();
  a.problem.max_seqlen_q = 1, a.problem.max_seqlen_kv = 5;
  a.fill_noise();
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R61_zero_length_queries_in_the_backward) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE("head_dim " + std::to_string(head_dim));
    Attention a(ISOFLASH_BF16, {0, 5, 4, 0}, {7, 2, 3, 8}, {.num_heads_q = 4, .num_heads_kv = 1, .head_dim = head_dim});
    a.fill_noise();
    a.run();
    expect_right(a);  // dk and dv of sequences 0 and 3 exactly 0
  }
}

TEST(KnownFaults, R62_hang_in_the_backward_of_empty_queries) {
  Attention a(ISOFLASH_BF16, {0, 0, 1023}, {0, 1, 2044}, {.head_dim = 128});
  a.causal();
  a.fill_noise();
  a.run();
  for (int64_t d = 0; d < 128; ++d) EXPECT_EQ(a.dv.get({0, 0, d}), 0.0);
  EXPECT_NEAR(a.out_of(2, 1022, 0, 0), 0.0, 0.2) << "the mean of 2044 numbers in [-1, 1)";
  a.problem.cu_seqlens_kv = a.int_array({0, 0, 1, 2046});  // one past the buffer
  EXPECT_EQ(a.refusal().name, "CU_SEQLENS_END");
}

TEST(KnownFaults, R26_rows_past_the_last_offset) {
  Attention a(ISOFLASH_BF16, {50, 50, 60}, {50, 50, 60}, {.head_dim = 16});
  for (isoflash_tensor* cu : {&a.problem.cu_seqlens_q, &a.problem.cu_seqlens_kv}) *cu = a.int_array({0, 50, 100});
  const Refusal refusal = a.refusal();
  EXPECT_EQ(refusal.name, "CU_SEQLENS_END") << "60 rows that no sequence owns must be refused, not left unwritten";
  EXPECT_NE(refusal.message.find("100"), std::string::npos) << refusal.message;
  EXPECT_NE(refusal.message.find("160"), std::string::npos) << refusal.message;
  // As a sequence of its own with no row in use, the tail is written as zeros.
  Attention tail(ISOFLASH_BF16, {50, 50, 60}, {50, 50, 60}, {.head_dim = 16});
  tail.use_rows({50, 50, 0}, {50, 50, 0});
  tail.fill_noise();
  tail.dout.fill(1.0);
  tail.run();
  expect_right(tail);
}

TEST(KnownFaults, R64_malformed_cu_seqlens) {
  struct Wrong {
    std::vector<int32_t> cu;
    const char* name;
  };
  for (const Wrong& wrong : {Wrong{{1, 5, 10}, "CU_SEQLENS_START"},
                             {{0, 6, 4, 10}, "CU_SEQLENS_DECREASE"},
                             {{0, 5, 9}, "CU_SEQLENS_END"},
                             {{0, 5, 12}, "CU_SEQLENS_END"}}) {
    for (const bool of_queries : {true, false}) {
      const size_t batch = wrong.cu.size() - 1;
      std::vector<int32_t> lengths(batch, 0);
      lengths[0] = 10;
      Attention a(ISOFLASH_F32, lengths, lengths, {});
      (of_queries ? a.problem.cu_seqlens_q : a.problem.cu_seqlens_kv) = a.int_array(wrong.cu);
      const Refusal refusal = a.refusal();
      EXPECT_EQ(refusal.name, wrong.name) << refusal.message;
      EXPECT_NE(refusal.message.find(of_queries ? "cu_seqlens_q" : "cu_seqlens_kv"), std::string::npos) << refusal.message;
    }
  }
  for (const bool of_queries : {true, false}) {
    Attention a(ISOFLASH_F32, {5, 5}, {5, 5}, {});
    (of_queries ? a.problem.max_seqlen_q : a.problem.max_seqlen_kv) = 4;
    EXPECT_EQ(a.refusal().name, "MAX_SEQLEN_EXCEEDED");
  }
}

TEST(KnownFaults, R68_lengths_that_promise_more_keys_than_there_are) {
  for (const int32_t keys : {1, 2, 10, 17, 20}) {
    Attention a(ISOFLASH_F32, {10}, {keys}, {});
    a.problem.cu_seqlens_kv = a.int_array({0, 20});
    EXPECT_EQ(a.refusal().name, keys == 20 ? "" : "CU_SEQLENS_END") << keys << " keys";
  }
  Attention dense(ISOFLASH_F32, {.seqlen_q = 10, .seqlen_kv = 10});
  dense.use_rows({}, {20});
  EXPECT_EQ(dense.refusal().name, "SEQUSED_RANGE");
}

TEST(KnownFaults, R70_lengths_and_padded_offsets_apart) {
  Attention a(ISOFLASH_BF16, {16, 16}, {16, 16}, {.num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
  a.use_rows({3, 5}, {3, 5});
  a.causal();
  a.fill_noise();
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R71_cu_seqlens_of_the_wrong_kind) {
  const auto refused = [](const std::function<void(Attention&, isoflash_tensor&)>& spoil) {
    Attention a(ISOFLASH_F32, {4, 6}, {4, 6}, {});
    spoil(a, a.problem.cu_seqlens_kv);
    const Refusal refusal = a.refusal();
    EXPECT_NE(refusal.id, 0) << "accepted";
    EXPECT_NE(refusal.message.find("cu_seqlens"), std::string::npos) << "which tensor? " << refusal.message;
    return refusal;
  };
  const Refusal int64 = refused([](Attention&, isoflash_tensor& cu) { cu.dtype = ISOFLASH_I64; });
  EXPECT_NE(int64.message.find("int32"), std::string::npos) << int64.message;
  refused([](Attention&, isoflash_tensor& cu) { cu.dtype = ISOFLASH_F32; });
  refused([](Attention&, isoflash_tensor& cu) { cu.device_type = ISOFLASH_CUDA; });
  refused([](Attention&, isoflash_tensor& cu) { cu.shape[0] = 2; });
  refused([](Attention&, isoflash_tensor& cu) { cu.rank = 2, cu.shape[1] = 1, cu.strides[1] = 1; });
  refused([](Attention&, isoflash_tensor& cu) { cu.data = nullptr; });
  refused([](Attention&, isoflash_tensor& cu) { cu.rank = 0; });  // one of the two only
  // Every second element of a larger array is an array like any other.
  Attention strided(ISOFLASH_F32, {4, 6}, {4, 6}, {});
  strided.problem.cu_seqlens_kv = strided.int_array({0, -9, 4, -9, 10});
  strided.problem.cu_seqlens_kv.shape[0] = 3, strided.problem.cu_seqlens_kv.strides[0] = 2;
  strided.fill_noise();
  strided.run();
  expect_right(strided);
}

TEST(KnownFaults, R92_segments_in_one_row_stay_apart) {
  const auto run = [](Attention& a, double first_segment) {
    a.fill_noise();
    for (int64_t j = 0; j < 5; ++j)
      for (int64_t d = 0; d < 8; ++d) a.v.set({j, 0, d}, first_segment), a.k.set({j, 0, d}, first_segment);
    a.run();
  };
  Attention quiet(ISOFLASH_F32, {5, 7}, {5, 7}, {.head_dim = 8}), loud(ISOFLASH_F32, {5, 7}, {5, 7}, {.head_dim = 8});
  run(quiet, 1.0);
  expect_right(quiet);
  run(loud, 1e4);
  for (int64_t i = 5; i < 12; ++i)
    for (int64_t d = 0; d < 8; ++d)
      for (const auto x : {&Attention::out, &Attention::dq, &Attention::dk, &Attention::dv})
        EXPECT_EQ((quiet.*x).get({i, 0, d}), (loud.*x).get({i, 0, d})) << "segment 0 reached row " << i << " of segment 1";
}

TEST(KnownFaults, R172_zero_sizes) {
  for (const bool causal : {false, true}) {
    for (const Sizes sizes :
         {Sizes{.batch = 2, .seqlen_q = 0, .seqlen_kv = 4096}, Sizes{.batch = 0, .seqlen_q = 64, .seqlen_kv = 4096},
          Sizes{.batch = 2, .seqlen_q = 5, .seqlen_kv = 0}}) {
      Attention a(ISOFLASH_BF16, sizes);
      if (causal) a.causal();
      a.fill_noise();
      a.run();
      expect_right(a);  // dk and dv are zeros of full size, out zeros, lse -inf
    }
    Attention packed(ISOFLASH_BF16, {0, 0}, {4000, 96}, {});
    if (causal) packed.causal();
    packed.fill_noise();
    packed.run();
    expect_right(packed);
  }
}

}  // namespace
}  // namespace iso::known_faults
