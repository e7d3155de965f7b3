// A conformance case: one attention problem with its data, written as one line of text. The text is all there is to a
// case; `isoflash check --case "<text>"` runs it again.
//
//   bwd bf16 packed q=17,0,33 k=17,5,33 h=8/2 d=64 kind=causal strides=fused data=minus128
//
//   fwd | bwd            forward only, or forward and backward
//   f32 | bf16 | f16
//   dense | packed
//   b=N                  dense: sequences (packed: one per length)
//   q=N[,N...] k=...     rows: dense the seqlen axis, packed each sequence
//   usedq=... usedk=...  seqused, one per sequence
//   h=HQ/HKV d=D[/DV]    heads; head_dim and head_dim_v
//   kind=K               bidirectional (default), causal, or window:LEFT:RIGHT (* is no limit)
//   context= history= hbegin= hend= candidates= cbegin= offset=
//                        the mask's values of the same names, one for all or one per sequence; absent is the default
//   group=N              candidate_group_size
//   scale=X cap=tanh:X | cap=softsign:X
//   strides=S            how the tensors lie in memory, see Strides
//   data=D               what stands in them, see Data
//   dlse                 the backward gets a gradient of lse
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "core/problem.h"

namespace iso::conformance {

enum class Strides {
  contiguous,
  padded,      // gaps after every head and every row
  unaligned,   // rows of an odd number of elements, starting at an odd element
  transposed,  // stored (batch, heads, seqlen, dim)
  fused,       // q, k, v side by side in the rows of one buffer; dq, dk, dv in another
  negative,    // inputs run backwards along rows and heads
  expanded,    // dout is one number with stride 0 everywhere; k and v are one head with stride 0
};
inline constexpr const char* kStridesNames[] = {"contiguous", "padded", "unaligned", "transposed",
                                                "fused", "negative", "expanded"};

enum class Data {
  normal,        // standard normal everything
  minus128,      // every score -128
  plus80,        // every score +80
  near70,        // scores between 60 and 80, neighbours 0.1 apart
  mean10,        // q and k with a common mean of 10 and a small spread; dout nearly constant
  constant1000,  // q and k 1000 everywhere
  equal,         // q zero: every visible key weighs the same
  onehot,        // v row j is the unit vector j mod head_dim_v: out shows the weights
  ones,          // v is 1 everywhere: out is 1
  outlier,       // one channel of q and k 30 times larger
  infinite,      // one key has an infinite channel: scores of +inf and -inf
};
inline constexpr const char* kDataNames[] = {"normal", "minus128", "plus80", "near70", "mean10", "constant1000",
                                             "equal", "onehot", "ones", "outlier", "infinite"};

struct Case {
  bool backward = true;
  DType dtype = DType::f32;
  bool packed = false;
  i64 batch = 1;
  std::vector<i64> seqlen_q, seqlen_kv;  // dense: one number
  std::vector<i64> seqused_q, seqused_kv;  // empty or one per sequence
  i64 num_heads_q = 1, num_heads_kv = 1, head_dim = 8, head_dim_v = 8;
  HistoryKind history_kind = HistoryKind::bidirectional;
  i64 window_left = -1, window_right = -1;  // -1: no limit
  i64 candidate_group_size = 1;
  // Empty: the default; one number: for all sequences; else one per sequence.
  std::vector<i64> num_context, history_len, history_begin, history_end, num_candidates, candidate_begin, query_offset;
  std::optional<double> scale;
  SoftcapKind softcap_kind = SoftcapKind::none;
  double softcap = 0;
  Strides strides = Strides::contiguous;
  Data data = Data::normal;
  bool dlse = false;

  bool operator==(const Case&) const = default;
};

// The case a line describes, or what is wrong with the line.
tl::expected<Case, std::string> parse_case(std::string_view text);
// The one way to write a case; parse_case gives it back.
std::string print_case(const Case& c);

// The problem and the sequences of a case, defaults resolved here and not by the library, for the oracle.
Problem problem_of(const Case& c);
std::vector<Sequence> sequences_of(const Case& c);

struct NamedCase {
  std::string name;
  bool quick = false;  // part of the quick subset
  Case spec;
};
// cases.inc, and `random_cases` more from `seed`.
std::vector<NamedCase> all_cases(u64 seed, int random_cases);
Case random_case(u64 seed);

}  // namespace iso::conformance
