#include "oracle_problem.h"

#include <algorithm>
#include <cmath>

namespace iso::tool {
namespace {

i64 entry(const isoflash_tensor& t, i64 n) { return static_cast<const i32*>(t.data)[n * t.strides[0]]; }

// The value for sequence b; `fallback` where none is given.
i64 value_for(const isoflash_per_sequence& x, i64 b, i64 fallback) {
  if (x.values.rank != 0) return entry(x.values, b);
  return x.value == ISOFLASH_DEFAULT ? fallback : x.value;
}
bool is_given(const isoflash_per_sequence& x) { return x.values.rank != 0 || x.value != ISOFLASH_DEFAULT; }

i32 reach(i64 window) { return static_cast<i32>(window < 0 || window > kUnlimited ? kUnlimited : window); }

MaskSpec mask_of(const isoflash::Mask& mask, i64 b, i32 seqlen_q, i32 seqlen_kv) {
  const i64 context = value_for(mask.num_context, b, 0), last = seqlen_kv - value_for(mask.num_candidates, b, 0);
  const i64 history = value_for(mask.history_len, b, value_for(mask.candidate_begin, b, last) - context);
  const i64 begin = value_for(mask.candidate_begin, b, context + history);
  const bool placed = is_given(mask.history_len) || is_given(mask.candidate_begin);
  MaskSpec m;
  m.seqlen_kv = seqlen_kv;
  m.context_end = static_cast<i32>(context);
  m.history_end_slot = static_cast<i32>(context + history);
  m.history_begin = static_cast<i32>(value_for(mask.history_begin, b, context));
  m.history_end = static_cast<i32>(value_for(mask.history_end, b, context + history));
  m.candidate_begin = static_cast<i32>(begin);
  m.candidate_end = static_cast<i32>(begin + value_for(mask.num_candidates, b, placed ? seqlen_kv - begin : 0));
  m.candidate_group_size = static_cast<i32>(mask.candidate_group_size);
  m.history_kind = static_cast<HistoryKind>(mask.history_kind);
  m.window_left = reach(mask.window_left);
  m.window_right = reach(mask.window_right);
  m.query_offset = static_cast<i32>(value_for(mask.query_offset, b, seqlen_kv - seqlen_q));
  return m;
}

Problem problem_of(const isoflash::Problem& call) {
  Problem p;
  p.packed = call.cu_seqlens_q.rank != 0;
  p.kv_layout = call.block_table.rank != 0     ? KvLayout::paged
                : call.cu_seqlens_kv.rank != 0 ? KvLayout::packed
                                               : KvLayout::dense;
  const int q_rows = p.packed ? 0 : 1, kv_rows = p.kv_layout == KvLayout::packed ? 0 : 1;
  p.batch = p.packed ? call.cu_seqlens_q.shape[0] - 1 : call.q.shape[0];
  p.rows_q = call.q.shape[q_rows];
  p.rows_kv = call.k.shape[kv_rows];
  p.num_pages = p.kv_layout == KvLayout::paged ? call.k.shape[0] : 0;
  p.num_heads_q = call.q.shape[q_rows + 1];
  p.num_heads_kv = call.k.shape[kv_rows + 1];
  p.head_dim = call.q.shape[q_rows + 2];
  p.head_dim_v = call.v.shape[kv_rows + 2];
  p.new_keys = call.k_new.rank != 0;
  p.sink = call.sink.rank != 0;
  p.bias = call.bias.rank != 0;
  p.dtype = static_cast<DType>(call.q.dtype);
  p.scale = std::isnan(call.scale) ? 1.0 / std::sqrt(static_cast<double>(p.head_dim)) : call.scale;
  p.softcap_kind = static_cast<SoftcapKind>(call.softcap_kind);
  p.softcap = call.softcap;
  return p;
}

Sequence sequence_of(const isoflash::Problem& call, const Problem& p, i64 b) {
  Sequence s;
  i64 slot_q = p.rows_q, slot_kv = p.rows_kv;
  s.q_batch = s.kv_batch = b;
  if (p.packed) {
    s.q_batch = 0;
    s.q_row_begin = entry(call.cu_seqlens_q, b);
    slot_q = entry(call.cu_seqlens_q, b + 1) - s.q_row_begin;
  }
  if (p.kv_layout == KvLayout::packed) {
    s.kv_batch = 0;
    s.kv_row_begin = entry(call.cu_seqlens_kv, b);
    slot_kv = entry(call.cu_seqlens_kv, b + 1) - s.kv_row_begin;
  }
  if (p.kv_layout == KvLayout::paged) {
    s.block_table = static_cast<const i32*>(call.block_table.data) + b * call.block_table.strides[0];
    s.page_size = static_cast<i32>(p.rows_kv);
    slot_kv = call.block_table.shape[1] * p.rows_kv;
  }
  s.slot_q = static_cast<i32>(slot_q);
  s.slot_kv = static_cast<i32>(min_of<i64>(slot_kv + (p.new_keys ? slot_q : 0), kMaxSeqlen - 1));
  s.seqlen_q = static_cast<i32>(call.seqused_q.rank != 0 ? entry(call.seqused_q, b) : slot_q);
  s.seqlen_cached = static_cast<i32>(call.seqused_kv.rank != 0 ? entry(call.seqused_kv, b) : slot_kv);
  s.seqlen_kv = s.seqlen_cached + (p.new_keys ? s.seqlen_q : 0);
  s.mask = mask_of(call.mask, b, s.seqlen_q, s.seqlen_kv);
  return s;
}

// An array over sequences, heads and a third axis, which packed problems have without the first. Extents of 1 are shared.
struct HeadArray {
  const i32* data = nullptr;
  i64 stride_batch = 0, stride_head = 0, stride_third = 0;

  HeadArray(const isoflash_tensor& t, bool packed) : data(static_cast<const i32*>(t.data)) {
    const int head = packed ? 0 : 1;
    if (!packed && t.shape[0] != 1) stride_batch = t.strides[0];
    if (t.shape[head] != 1) stride_head = t.strides[head];
    stride_third = t.strides[head + 1];
  }
  const i32* at(i64 b, i64 head, i64 third) const {
    return data + b * stride_batch + head * stride_head + third * stride_third;
  }
};

void add_intervals(const isoflash::Problem& call, OracleProblem& oracle) {
  if (call.row_intervals.rank == 0) return;
  const HeadArray array(call.row_intervals, oracle.problem.packed);
  const i32 count = static_cast<i32>(call.row_intervals.shape[call.row_intervals.rank - 1] / 2);
  for (i64 b = 0; b < oracle.problem.batch; ++b) {
    Sequence& s = oracle.sequences[b];
    s.intervals = {array.at(b, 0, s.q_row_begin), array.stride_head, array.stride_third, count};
  }
}

// Appends what the lists hold for one block of query rows, ascending.
void add_block_row(const isoflash::BlockLists& lists, bool packed, i64 b, i64 head, i64 block, OracleProblem& oracle) {
  const auto first = static_cast<std::ptrdiff_t>(oracle.block_entries.size());
  const std::pair<const isoflash::BlockList*, BlockKind> kinds[] = {
      {&lists.mask, BlockKind::mask}, {&lists.full, BlockKind::full}, {&lists.diag, BlockKind::diag}};
  for (const auto& [list, kind] : kinds) {
    if (list->counts.rank == 0) continue;
    const i32 count = *HeadArray(list->counts, packed).at(b, head, block);
    const i32* const indices = HeadArray(list->indices, packed).at(b, head, block);
    const i64 step = list->indices.strides[list->indices.rank - 1];
    for (i32 n = 0; n < count; ++n) oracle.block_entries.push_back({indices[n * step], kind});
  }
  std::sort(oracle.block_entries.begin() + first, oracle.block_entries.end(),
            [](const BlockEntry& x, const BlockEntry& y) { return x.block < y.block; });
}

void add_lists(const isoflash::Problem& call, OracleProblem& oracle) {
  const isoflash::BlockSparsity& blocks = call.blocks;
  const Problem& p = oracle.problem;
  std::vector<std::size_t> first_begin;
  i64 first_block = 0;
  for (i64 b = 0; b < p.batch; ++b) {
    Sequence& s = oracle.sequences[b];
    const i64 count = ceil_div<i64>(p.packed ? s.slot_q : p.rows_q, blocks.block_m);
    first_begin.push_back(oracle.block_begin.size());
    for (i64 head = 0; head < p.num_heads_q; ++head) {
      for (i64 block = 0; block < count; ++block) {
        oracle.block_begin.push_back(static_cast<i64>(oracle.block_entries.size()));
        add_block_row(blocks.forward, p.packed, b, head, first_block + block, oracle);
      }
      oracle.block_begin.push_back(static_cast<i64>(oracle.block_entries.size()));
    }
    s.blocks.block_m = static_cast<i32>(blocks.block_m);
    s.blocks.block_n = static_cast<i32>(blocks.block_n);
    s.blocks.stride_head = count + 1;
    if (p.packed) first_block += count;
  }
  for (i64 b = 0; b < p.batch; ++b) {
    oracle.sequences[b].blocks.begin = oracle.block_begin.data() + first_begin[b];
    oracle.sequences[b].blocks.entries = oracle.block_entries.data();
  }
}

// Valid bounds of every head of every sequence: one of the two arrays may share heads where the other does not.
void add_valid_bounds(const isoflash::Problem& call, OracleProblem& oracle) {
  const isoflash::BlockSparsity& blocks = call.blocks;
  if (blocks.valid_upper.rank == 0) return;
  const Problem& p = oracle.problem;
  const HeadArray arrays[] = {{blocks.valid_upper, p.packed}, {blocks.valid_lower, p.packed}};
  std::vector<std::size_t> first[2];
  i64 first_block = 0;
  for (i64 b = 0; b < p.batch; ++b) {
    Sequence& s = oracle.sequences[b];
    const i64 count = p.packed ? ceil_div<i64>(max_of(s.slot_q, s.slot_kv), blocks.block_n)
                               : blocks.valid_upper.shape[blocks.valid_upper.rank - 1];
    for (int n = 0; n < 2; ++n) {
      first[n].push_back(oracle.valid_bounds.size());
      for (i64 head = 0; head < p.num_heads_q; ++head)
        for (i64 block = 0; block < count; ++block)
          oracle.valid_bounds.push_back(*arrays[n].at(b, head, first_block + block));
    }
    s.blocks.valid_stride_head = count;
    if (p.packed) first_block += count;
  }
  for (i64 b = 0; b < p.batch; ++b) {
    oracle.sequences[b].blocks.valid_upper = oracle.valid_bounds.data() + first[0][b];
    oracle.sequences[b].blocks.valid_lower = oracle.valid_bounds.data() + first[1][b];
  }
}

}  // namespace

Tensor core_tensor(const isoflash_tensor& t) {
  Tensor out;
  out.data = t.data;
  out.dtype = static_cast<DType>(t.dtype);
  out.rank = t.rank;
  std::copy(t.shape, t.shape + 4, out.shape);
  std::copy(t.strides, t.strides + 4, out.strides);
  return out;
}

OracleProblem oracle_problem(const isoflash::Problem& call) {
  OracleProblem oracle;
  oracle.problem = problem_of(call);
  for (i64 b = 0; b < oracle.problem.batch; ++b) oracle.sequences.push_back(sequence_of(call, oracle.problem, b));
  add_intervals(call, oracle);
  if (call.blocks.block_m == 0) return oracle;
  add_lists(call, oracle);
  add_valid_bounds(call, oracle);
  return oracle;
}

}  // namespace iso::tool
