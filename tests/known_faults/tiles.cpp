// Known faults: sequence and head-size tails, tile geometry.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R74_head_dim_padded_differently_in_two_places) {
  for (const int64_t head_dim : {8, 24, 40, 72, 88, 104, 120, 1, 33}) {
    SCOPED_TRACE("head_dim " + std::to_string(head_dim));
    Attention a(ISOFLASH_BF16, {97}, {97}, {.num_heads_q = 2, .num_heads_kv = 2, .head_dim = head_dim});
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R77_last_rows_left_by_a_floor_division) {
  for (const int64_t seqlen : {1, 128, 255, 257, 513, 913}) {
    SCOPED_TRACE("length " + std::to_string(seqlen));
    Attention a(ISOFLASH_F32, {.seqlen_q = seqlen, .seqlen_kv = seqlen, .head_dim = 16});
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R79_query_and_key_lengths_differ) {
  for (const int64_t seqlen_q : {1, 16, 100}) {
    for (const int64_t seqlen_kv : {16, 100, 333}) {
      SCOPED_TRACE(std::to_string(seqlen_q) + " queries, " + std::to_string(seqlen_kv) + " keys");
      Attention a(ISOFLASH_F16, {.batch = 2, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv, .head_dim = 32});
      a.fill_noise();
      a.run();
      expect_right(a);
    }
  }
}

}  // namespace
}  // namespace iso::known_faults
