// A conformance case: one attention problem with its data, written as one line of text. The text is all there is to a
// case; `isoflash check --case "<text>"` runs it again.
//
//   bwd bf16 packed q=17,0,33 k=17,5,33 h=8/2 d=64 kind=causal strides=fused data=minus128
//
//   fwd | bwd            forward only, or forward and backward
//   f32 | bf16 | f16
//   dense | packed
//   b=N                  dense: sequences (packed: one per length)
//   q=N[,N...] k=...     rows: dense the seqlen axis, packed each sequence; k= of pages: the keys of each (or one for all)
//   usedq=... usedk=...  seqused, one per sequence
//   kv=L                 where k and v lie: dense, packed or paged:PAGE_SIZE; absent: as q does
//   new                  k_new and v_new: the query rows bring their own keys, which follow those of k
//   h=HQ/HKV d=D[/DV]    heads; head_dim and head_dim_v
//   kind=K               bidirectional (default), causal, or window:LEFT:RIGHT (* is no limit)
//   context= history= hbegin= hend= candidates= cbegin= offset=
//                        the mask's values of the same names, one for all or one per sequence; absent is the default
//   group=N              candidate_group_size
//   intervals=N:SEED[:bh]
//                        N random row intervals in place of the mask; b: shared by the batch, h: by the heads
//   blocks=M/N:SEED[:bhvtmfd]
//                        random block lists; b, h as above, v: with valid bounds, t: the backward lists too; of mask, full
//                        and diag lists only those named by m, f, d, if any is
//   scale=X cap=tanh:X | cap=softsign:X
//   sink=S               normal, minusinf or large, see Sink
//   bias=AXES[:inf]      axes of the bias that are not 1 before the keys: letters of bhq, or `keys` if there is none; inf:
//                        with entries of -inf, rows of nothing else among them
//   splits=N             num_splits of the plan
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
inline constexpr const char* kStridesNames[] = {"contiguous", "padded",   "unaligned", "transposed",
                                                "fused",      "negative", "expanded"};

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
inline constexpr const char* kDataNames[] = {"normal", "minus128", "plus80", "near70",  "mean10",  "constant1000",
                                             "equal",  "onehot",   "ones",   "outlier", "infinite"};

enum class Sink {
  none,
  normal,
  minusinf,  // -inf for every other head
  large,     // takes nearly all the weight of every other head
};
inline constexpr const char* kSinkNames[] = {"none", "normal", "minusinf", "large"};

// Row intervals or block lists, drawn from `seed`.
struct RandomIntervals {
  i64 count = 0;  // 0: none
  i64 seed = 0;
  bool shared_batch = false, shared_heads = false;
  bool operator==(const RandomIntervals&) const = default;
};
struct RandomBlocks {
  i64 block_m = 0, block_n = 0;  // 0: none
  i64 seed = 0;
  bool shared_batch = false, shared_heads = false, valid_bounds = false, both_forms = false;
  bool mask = false, full = false, diag = false;  // the lists there are; none named: all
  bool operator==(const RandomBlocks&) const = default;
};

struct Bias {
  bool given = false;
  bool batch = false, heads = false, rows = false;  // axes that are not 1
  bool infinite = false;
  bool operator==(const Bias&) const = default;
};

struct Case {
  bool backward = true;
  DType dtype = DType::f32;
  bool packed = false;  // q
  KvLayout kv_layout = KvLayout::dense;
  i64 page_size = 0;
  bool new_keys = false;
  i64 batch = 1;
  std::vector<i64> seqlen_q, seqlen_kv;    // dense: one number; paged: one or one per sequence
  std::vector<i64> seqused_q, seqused_kv;  // empty or one per sequence
  i64 num_heads_q = 1, num_heads_kv = 1, head_dim = 8, head_dim_v = 8;
  HistoryKind history_kind = HistoryKind::bidirectional;
  i64 window_left = -1, window_right = -1;  // -1: no limit
  i64 candidate_group_size = 1;
  // Empty: the default; one number: for all sequences; else one per sequence.
  std::vector<i64> num_context, history_len, history_begin, history_end, num_candidates, candidate_begin, query_offset;
  RandomIntervals intervals;
  RandomBlocks blocks;
  std::optional<double> scale;
  SoftcapKind softcap_kind = SoftcapKind::none;
  double softcap = 0;
  Sink sink = Sink::none;
  Bias bias;
  i64 num_splits = 0;
  Strides strides = Strides::contiguous;
  Data data = Data::normal;
  bool dlse = false;

  bool operator==(const Case&) const = default;
};

// The case a line describes, or what is wrong with the line.
tl::expected<Case, std::string> parse_case(std::string_view text);
// The one way to write a case; parse_case gives it back.
std::string print_case(const Case& c);

// The number of sequence b in a list that has one number for all or one per sequence, or `otherwise` if it has none.
i64 value_of(const std::vector<i64>& list, i64 sequence, i64 otherwise);

// The problem of a case, defaults resolved here and not by the library, for the oracle. Its sequences: layout.h.
Problem problem_of(const Case& c);

struct NamedCase {
  std::string name;
  bool quick = false;  // part of the quick subset
  Case spec;
};
// cases.inc, and `random_cases` more from `seed`.
std::vector<NamedCase> all_cases(u64 seed, int random_cases);
Case random_case(u64 seed);

}  // namespace iso::conformance
