#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "conformance/case.h"
#include "conformance/dice.h"

namespace iso::conformance {
namespace {

struct Line {
  bool quick;
  const char* name;
  const char* text;
};

constexpr bool kQuick = true, kFull = false;
constexpr Line kLines[] = {
#define ISO_CASE(subset, name, text) {subset, name, text},
#include "conformance/cases.inc"
#undef ISO_CASE
};

// A mask for keys of these lengths, with every part of it now and then absent.
void add_mask(Case& c, const std::vector<i64>& seqlen_q, const std::vector<i64>& seqlen_kv, Dice& dice) {
  c.history_kind = static_cast<HistoryKind>(dice.between(0, 2));
  if (c.history_kind == HistoryKind::window) {
    c.window_left = dice.one_in(4) ? -1 : dice.between(0, 40);
    c.window_right = dice.one_in(4) ? -1 : dice.between(0, 40);
  }
  if (dice.one_in(3)) return;  // plain
  const bool holes = dice.one_in(2);
  for (std::size_t b = 0; b < seqlen_kv.size(); ++b) {
    const i64 length = seqlen_kv[b];
    const i64 context = dice.between(0, std::min<i64>(3, length)), candidates = dice.between(0, (length - context) / 2);
    const i64 history = length - context - candidates;
    const i64 begin = context + (holes ? dice.between(0, history) : 0);
    c.num_context.push_back(context);
    c.num_candidates.push_back(candidates);
    c.history_len.push_back(history);
    c.history_begin.push_back(begin);
    c.history_end.push_back(holes ? dice.between(begin, context + history) : context + history);
    // Only plain attention has queries outside the keys.
    c.query_offset.push_back(dice.between(0, length - seqlen_q[b]));
  }
  c.candidate_group_size = dice.one_in(2) ? 1 : dice.one_in(2) ? dice.between(2, 5) : dice.between(30, 70);
}

void add_intervals(Case& c, Dice& dice) {
  c.intervals = {dice.between(1, 3), dice.between(0, 1000), !c.packed && dice.one_in(3), dice.one_in(2)};
}

void add_blocks(Case& c, Dice& dice) {
  RandomBlocks& x = c.blocks;
  x.block_m = dice.any_of<i64>({64, 64, 128, 192, 256});
  x.block_n = dice.one_in(2) ? x.block_m : dice.any_of<i64>({64, 64, 128, 192, 256});
  x.seed = dice.between(0, 1000);
  x.shared_batch = !c.packed && dice.one_in(3);
  x.shared_heads = dice.one_in(2);
  const bool cache = c.new_keys || c.kv_layout == KvLayout::paged;
  x.valid_bounds = !cache && x.block_m == x.block_n && c.seqlen_q == c.seqlen_kv && dice.one_in(2);
  x.both_forms = !cache && dice.one_in(2);
  if (dice.one_in(2)) return;
  x.mask = dice.one_in(2);
  x.full = dice.one_in(2);
  x.diag = dice.one_in(3);
}

// Where the rows lie, given how many each sequence has in use. With new keys, those of the query rows come from k_new.
void add_lengths(Case& c, const std::vector<i64>& seqlen_q, const std::vector<i64>& seqlen_kv, i64 longest, bool equal,
                 Dice& dice) {
  c.kv_layout = c.packed ? KvLayout::packed : KvLayout::dense;
  std::vector<i64> cached = seqlen_kv;
  if (dice.one_in(3)) {
    c.backward = false;
    c.new_keys = dice.one_in(2);
    c.kv_layout = KvLayout::paged;
    if (c.new_keys) c.kv_layout = dice.any_of({KvLayout::dense, KvLayout::packed, KvLayout::paged});
    if (c.kv_layout == KvLayout::paged) c.page_size = dice.any_of<i64>({1, 3, 16, 64, 100, 128, 256});
    for (i64 b = 0; b < c.batch && c.new_keys; ++b) cached[b] -= seqlen_q[b];
  }
  if (c.packed) {
    c.seqlen_q = seqlen_q;
  } else {
    c.seqlen_q = {equal ? longest : dice.between(*std::max_element(seqlen_q.begin(), seqlen_q.end()), longest)};
    c.seqused_q = seqlen_q;
  }
  c.seqlen_kv = cached;
  if (c.kv_layout != KvLayout::dense) return;
  c.seqlen_kv = {longest};
  c.seqused_kv = cached;
}

}  // namespace

Case random_case(u64 seed) {
  Dice dice(seed);
  Case c;
  c.dtype = dice.any_of({DType::f32, DType::bf16, DType::f16});
  c.packed = dice.one_in(2);
  c.batch = dice.between(1, 4);
  c.num_heads_kv = dice.between(1, 2);
  c.num_heads_q = c.num_heads_kv * dice.any_of<i64>({1, 1, 2, 3, 5});
  c.head_dim = dice.one_in(3) ? dice.between(1, 100) : dice.any_of<i64>({8, 16, 32, 64, 128});
  c.head_dim_v = dice.one_in(3) ? dice.between(1, 100) : c.head_dim;
  const i64 longest = dice.any_of<i64>({3, 20, 70, 150});
  const bool equal = dice.one_in(2);
  std::vector<i64> seqlen_q, seqlen_kv;
  for (i64 b = 0; b < c.batch; ++b) {
    seqlen_kv.push_back(dice.between(0, longest));
    seqlen_q.push_back(equal ? seqlen_kv[b] : dice.between(0, seqlen_kv[b]));
  }
  if (dice.one_in(4))
    add_intervals(c, dice);
  else
    add_mask(c, seqlen_q, seqlen_kv, dice);
  add_lengths(c, seqlen_q, seqlen_kv, longest, equal, dice);
  if (dice.one_in(4)) add_blocks(c, dice);
  if (dice.one_in(4)) {
    c.softcap_kind = dice.one_in(2) ? SoftcapKind::tanh : SoftcapKind::soft_sign;
    c.softcap = 1 + static_cast<double>(dice.between(0, 20));
  }
  if (dice.one_in(4)) c.scale = 0.25 * static_cast<double>(dice.between(-3, 3));
  if (dice.one_in(4)) c.sink = dice.any_of({Sink::normal, Sink::minusinf, Sink::large});
  if (dice.one_in(4)) c.bias = {true, !c.packed && dice.one_in(2), dice.one_in(2), dice.one_in(2), dice.one_in(2)};
  if (dice.one_in(4)) c.num_splits = dice.any_of<i64>({1, 2, 3, 7});
  c.strides = static_cast<Strides>(dice.between(0, 6));
  const bool fusable = c.new_keys || (c.kv_layout != KvLayout::paged && c.seqlen_q == c.seqlen_kv);
  if (c.strides == Strides::fused && !fusable) c.strides = Strides::padded;
  if (dice.one_in(6)) c.data = dice.any_of({Data::equal, Data::onehot, Data::ones, Data::outlier});
  c.dlse = c.backward && dice.one_in(3);
  return c;
}

std::vector<NamedCase> all_cases(u64 seed, int random_cases) {
  std::vector<NamedCase> cases;
  for (const Line& line : kLines) {
    const auto c = parse_case(line.text);
    if (!c) throw std::logic_error(fmt::format("cases.inc, {}: {}", line.name, c.error()));
    cases.push_back({line.name, line.quick, *c});
  }
  for (int n = 0; n < random_cases; ++n)
    cases.push_back({fmt::format("random-{}", n), n % 8 == 0, random_case(seed * 1000003 + static_cast<u64>(n))});
  return cases;
}

}  // namespace iso::conformance
