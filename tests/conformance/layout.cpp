#include "conformance/layout.h"

#include <algorithm>

#include "conformance/dice.h"

namespace iso::conformance {
namespace {

// What stands where nothing may be read: a page far away, a block far away.
constexpr i32 kNeverRead = 1 << 30;

MaskSpec mask_of(const Case& c, i64 sequence, i64 seqlen_q, i64 seqlen_kv) {
  const i64 context = value_of(c.num_context, sequence, 0);
  const bool slot_given = !c.history_len.empty() || !c.candidate_begin.empty();
  const i64 last_candidates = seqlen_kv - value_of(c.num_candidates, sequence, 0);
  const i64 history = value_of(c.history_len, sequence, value_of(c.candidate_begin, sequence, last_candidates) - context);
  const i64 begin = value_of(c.candidate_begin, sequence, context + history);
  const i64 candidates = value_of(c.num_candidates, sequence, slot_given ? seqlen_kv - begin : 0);
  MaskSpec m;
  m.seqlen_kv = static_cast<i32>(seqlen_kv);
  m.context_end = static_cast<i32>(context);
  m.history_end_slot = static_cast<i32>(context + history);
  m.history_begin = static_cast<i32>(value_of(c.history_begin, sequence, context));
  m.history_end = static_cast<i32>(value_of(c.history_end, sequence, context + history));
  m.candidate_begin = static_cast<i32>(begin);
  m.candidate_end = static_cast<i32>(begin + candidates);
  m.candidate_group_size = static_cast<i32>(c.candidate_group_size);
  m.history_kind = c.history_kind;
  m.window_left = c.window_left < 0 ? kUnlimited : static_cast<i32>(c.window_left);
  m.window_right = c.window_right < 0 ? kUnlimited : static_cast<i32>(c.window_right);
  m.query_offset = static_cast<i32>(value_of(c.query_offset, sequence, seqlen_kv - seqlen_q));
  return m;
}

std::vector<Sequence> plain_sequences(const Case& c) {
  std::vector<Sequence> out;
  i64 q_begin = 0, kv_begin = 0;
  for (i64 b = 0; b < c.batch; ++b) {
    Sequence s;
    s.slot_q = static_cast<i32>(value_of(c.seqlen_q, b, 0));
    s.slot_kv = static_cast<i32>(value_of(c.seqlen_kv, b, 0));
    s.seqlen_q = static_cast<i32>(value_of(c.seqused_q, b, s.slot_q));
    s.seqlen_cached = static_cast<i32>(value_of(c.seqused_kv, b, s.slot_kv));
    s.seqlen_kv = s.seqlen_cached + (c.new_keys ? s.seqlen_q : 0);
    if (c.packed)
      s.q_row_begin = q_begin;
    else
      s.q_batch = b;
    if (c.kv_layout == KvLayout::packed)
      s.kv_row_begin = kv_begin;
    else
      s.kv_batch = b;
    q_begin += s.slot_q;
    kv_begin += s.slot_kv;
    s.mask = mask_of(c, b, s.seqlen_q, s.seqlen_kv);
    out.push_back(s);
  }
  return out;
}

// Pages in any order; behind each sequence's last page, and in pages that belong to nobody, nothing may be read.
void add_pages(const Case& c, Layout& layout) {
  CaseArrays& arrays = layout.arrays;
  i64 total = 3, most = 0;
  for (const Sequence& s : layout.sequences) {
    const i64 pages = ceil_div<i64>(s.seqlen_cached, c.page_size);
    total += pages;
    most = std::max(most, pages);
  }
  std::vector<i32> ids;
  for (i64 n = 0; n < total; ++n) ids.push_back(static_cast<i32>(n));
  Dice(7919).shuffle(ids);
  arrays.num_pages = total;
  arrays.block_table.shape = {c.batch, most + 1};
  arrays.block_table.values.assign(c.batch * (most + 1), kNeverRead);
  for (i64 b = 0, next = 0; b < c.batch; ++b) {
    Sequence& s = layout.sequences[b];
    i32* row = arrays.block_table.values.data() + b * (most + 1);
    for (i64 n = 0; n < ceil_div<i64>(s.seqlen_cached, c.page_size); ++n) row[n] = ids[next++];
    s.block_table = row;
    s.page_size = static_cast<i32>(c.page_size);
  }
}

// `count` ascending intervals within [0, keys): 2 * count sorted positions, so that some are empty and some touch.
void draw_intervals(Dice& dice, i64 count, i64 keys, i32* at) {
  if (dice.one_in(6)) keys = 0;
  if (dice.one_in(6)) {  // one that has it all
    std::fill(at, at + 2 * count, static_cast<i32>(keys));
    at[0] = 0;
    return;
  }
  for (i64 n = 0; n < 2 * count; ++n) at[n] = static_cast<i32>(dice.between(0, keys));
  std::sort(at, at + 2 * count);
}

// Rows in bands of 1 to 40 that see the same, so that whole tiles are seen too.
void add_intervals(const Case& c, Layout& layout) {
  const RandomIntervals& x = c.intervals;
  Dice dice(static_cast<u64>(x.seed));
  const i64 heads = x.shared_heads ? 1 : c.num_heads_q, width = 2 * x.count;
  const i64 rows = c.packed ? problem_of(c).rows_q : c.seqlen_q[0];
  const i64 slots = c.packed || x.shared_batch ? 1 : c.batch;
  IntArray& array = layout.arrays.row_intervals;
  array.shape = c.packed ? std::vector<i64>{heads, rows, width} : std::vector<i64>{slots, heads, rows, width};
  array.values.assign(slots * heads * rows * width, 0);
  // Shared rows must suit every sequence.
  i64 shared_keys = c.batch == 0 ? 0 : layout.sequences[0].seqlen_kv, shared_rows = 0;
  for (const Sequence& s : layout.sequences) {
    shared_keys = std::min<i64>(shared_keys, s.seqlen_kv);
    shared_rows = std::max<i64>(shared_rows, s.seqlen_q);
  }
  for (i64 b = 0; b < c.batch; ++b) {
    Sequence& s = layout.sequences[b];
    i32* data = array.values.data() + (x.shared_batch ? 0 : s.q_batch * heads * rows * width) + s.q_row_begin * width;
    s.intervals = {data, x.shared_heads ? 0 : rows * width, width, static_cast<i32>(x.count)};
    if (x.shared_batch && b > 0) continue;
    const i64 keys = x.shared_batch ? shared_keys : s.seqlen_kv, used = x.shared_batch ? shared_rows : s.seqlen_q;
    for (i64 head = 0; head < heads; ++head) {
      i64 band_end = 0;
      for (i64 i = 0; i < used; ++i) {
        i32* at = data + head * rows * width + i * width;
        if (i < band_end) {
          std::copy(at - width, at, at);
          continue;
        }
        band_end = i + (dice.one_in(2) ? 1 : dice.between(2, 40));
        draw_intervals(dice, x.count, keys, at);
      }
    }
  }
}

// Which lists there are.
bool has_list(const RandomBlocks& x, BlockKind kind) {
  if (!x.mask && !x.full && !x.diag) return true;
  return kind == BlockKind::mask ? x.mask : kind == BlockKind::full ? x.full : x.diag;
}

// The kind of one block; blocks on the diagonal are often diag.
BlockKind draw_kind(Dice& dice, const RandomBlocks& x, bool diagonal) {
  const BlockKind kinds[] = {BlockKind::none, BlockKind::mask, BlockKind::full, BlockKind::diag};
  for (;;) {
    BlockKind kind = kinds[dice.between(0, diagonal ? 3 : 2)];
    if (!diagonal && dice.one_in(20)) kind = BlockKind::diag;
    if (kind == BlockKind::none || has_list(x, kind)) return kind;
  }
}

// The blocks of one sequence and head, [m_block][n_block].
using BlockTable = std::vector<std::vector<BlockKind>>;

BlockTable draw_blocks(Dice& dice, const RandomBlocks& x, const Sequence& s, i64 m_blocks, i64 n_blocks) {
  BlockTable table(m_blocks, std::vector<BlockKind>(n_blocks));
  for (i64 m = 0; m < m_blocks; ++m) {
    const bool nothing = dice.one_in(6);
    for (i64 n = 0; n < n_blocks && !nothing; ++n) {
      const Interval rows{static_cast<i32>(m * x.block_m + s.mask.query_offset),
                          static_cast<i32>((m + 1) * x.block_m + s.mask.query_offset)};
      const Interval keys{static_cast<i32>(n * x.block_n), static_cast<i32>((n + 1) * x.block_n)};
      table[m][n] = draw_kind(dice, x, !intersect(rows, keys).empty());
    }
  }
  return table;
}

// One row of lists for each entry of `rows`: the positions of `kind` in it, in any order.
struct ListRow {
  i64 at;  // which row of the arrays
  std::vector<BlockKind> kinds;
};

ListArrays make_list(BlockKind kind, const std::vector<ListRow>& rows, std::vector<i64> shape, Dice& dice) {
  i64 width = 1;
  for (const ListRow& row : rows) width = std::max<i64>(width, std::count(row.kinds.begin(), row.kinds.end(), kind) + 1);
  ListArrays list;
  i64 size = 1;
  for (const i64 extent : shape) size *= extent;
  list.counts = {shape, std::vector<i32>(size, 0)};
  shape.push_back(width);
  list.indices = {shape, std::vector<i32>(size * width, kNeverRead)};
  for (const ListRow& row : rows) {
    std::vector<i32> found;
    for (std::size_t n = 0; n < row.kinds.size(); ++n)
      if (row.kinds[n] == kind) found.push_back(static_cast<i32>(n));
    dice.shuffle(found);
    list.counts.values[row.at] = static_cast<i32>(found.size());
    std::copy(found.begin(), found.end(), list.indices.values.begin() + row.at * width);
  }
  return list;
}

std::vector<BlockKind> column(const BlockTable& table, std::size_t n) {
  std::vector<BlockKind> kinds;
  for (const auto& row : table) kinds.push_back(row[n]);
  return kinds;
}

// Valid bounds of blocks of `block` positions: all valid, none, or a part at either end.
void draw_bounds(Dice& dice, i64 block, i32& upper, i32& lower) {
  upper = lower = 0;
  if (dice.one_in(3)) return;
  if (dice.one_in(6)) lower = static_cast<i32>(block);
  if (lower != 0) return;
  upper = static_cast<i32>(dice.between(0, block));
  lower = static_cast<i32>(dice.between(upper, block));
}

// Fills the lists, and the views of the oracle from the same tables.
class BlockBuilder {
 public:
  BlockBuilder(const Case& c, Layout& layout)
      : c_(c),
        x_(c.blocks),
        layout_(layout),
        dice_(static_cast<u64>(x_.seed)),
        heads_(x_.shared_heads ? 1 : c.num_heads_q),
        slots_(c.packed || x_.shared_batch ? 1 : c.batch) {}

  void build() {
    count_blocks();
    std::vector<ListRow> forward, backward;
    std::vector<i64> first(c_.batch);
    for (i64 b = 0; b < c_.batch; ++b) {
      if (x_.shared_batch && b > 0) {
        first[b] = first[0];
        continue;
      }
      first[b] = static_cast<i64>(layout_.block_begin.size());
      for (i64 head = 0; head < heads_; ++head) {
        const BlockTable table = draw_blocks(dice_, x_, layout_.sequences[b], m_count(b), n_drawn(b));
        add_view(table);
        for (i64 m = 0; m < m_count(b); ++m) forward.push_back({row_at(b, head, m_total_, m_first_[b]) + m, table[m]});
        for (i64 n = 0; n < n_drawn(b); ++n)
          backward.push_back({row_at(b, head, n_total_, n_first_[b]) + n, column(table, n)});
      }
    }
    for (const BlockKind kind : {BlockKind::mask, BlockKind::full, BlockKind::diag}) {
      if (!has_list(x_, kind)) continue;
      const int at = static_cast<int>(kind) - 1;
      layout_.arrays.forward[at] = make_list(kind, forward, shape(m_total_), dice_);
      if (x_.both_forms) layout_.arrays.backward[at] = make_list(kind, backward, shape(n_total_), dice_);
    }
    if (x_.valid_bounds) add_bounds();
    for (i64 b = 0; b < c_.batch; ++b) set_view(b, first[b]);
  }

 private:
  // Dense arrays have as many blocks as the axis needs; packed ones, each sequence after the other, as its slot does.
  void count_blocks() {
    for (const Sequence& s : layout_.sequences) {
      m_first_.push_back(m_total_);
      n_first_.push_back(n_total_);
      m_total_ += ceil_div<i64>(s.slot_q, x_.block_m);
      n_total_ += ceil_div<i64>(s.slot_kv, x_.block_n);
    }
    if (c_.packed) return;
    m_total_ = ceil_div<i64>(c_.seqlen_q[0], x_.block_m);
    n_total_ = ceil_div<i64>(c_.seqlen_kv[0], x_.block_n);
  }
  i64 m_count(i64 b) const { return ceil_div<i64>(layout_.sequences[b].slot_q, x_.block_m); }
  // Key blocks that lists speak of: those of the keys in use, of the shortest sequence where the batch shares the lists.
  i64 n_drawn(i64 b) const {
    i64 keys = layout_.sequences[b].seqlen_kv;
    for (const Sequence& s : layout_.sequences)
      if (x_.shared_batch) keys = std::min<i64>(keys, s.seqlen_kv);
    return ceil_div<i64>(keys, x_.block_n);
  }
  i64 row_at(i64 b, i64 head, i64 total, i64 first) const {
    return c_.packed ? head * total + first : ((x_.shared_batch ? 0 : b) * heads_ + head) * total;
  }
  std::vector<i64> shape(i64 total) const {
    return c_.packed ? std::vector<i64>{heads_, total} : std::vector<i64>{slots_, heads_, total};
  }

  void add_view(const BlockTable& table) {
    layout_.block_begin.push_back(static_cast<i64>(layout_.block_entries.size()));
    for (const auto& row : table) {
      for (std::size_t n = 0; n < row.size(); ++n)
        if (row[n] != BlockKind::none) layout_.block_entries.push_back({static_cast<i32>(n), row[n]});
      layout_.block_begin.push_back(static_cast<i64>(layout_.block_entries.size()));
    }
  }
  void add_bounds() {
    CaseArrays& arrays = layout_.arrays;
    const i64 size = slots_ * heads_ * m_total_;
    arrays.valid_upper = {shape(m_total_), std::vector<i32>(size)};
    arrays.valid_lower = arrays.valid_upper;
    for (i64 n = 0; n < size; ++n)
      draw_bounds(dice_, x_.block_m, arrays.valid_upper.values[n], arrays.valid_lower.values[n]);
  }
  void set_view(i64 b, i64 first) {
    BlockLists& view = layout_.sequences[b].blocks;
    view.block_m = static_cast<i32>(x_.block_m);
    view.block_n = static_cast<i32>(x_.block_n);
    view.begin = layout_.block_begin.data() + first;
    view.entries = layout_.block_entries.data();
    view.stride_head = x_.shared_heads ? 0 : m_count(b) + 1;
    if (!x_.valid_bounds) return;
    const i64 at = row_at(b, 0, m_total_, m_first_[b]);
    view.valid_upper = layout_.arrays.valid_upper.values.data() + at;
    view.valid_lower = layout_.arrays.valid_lower.values.data() + at;
    view.valid_stride_head = x_.shared_heads ? 0 : m_total_;
  }

  const Case& c_;
  const RandomBlocks& x_;
  Layout& layout_;
  Dice dice_;
  i64 heads_, slots_;
  i64 m_total_ = 0, n_total_ = 0;
  std::vector<i64> m_first_, n_first_;
};

}  // namespace

Layout layout_of(const Case& c) {
  Layout layout;
  layout.sequences = plain_sequences(c);
  if (c.kv_layout == KvLayout::paged) add_pages(c, layout);
  if (c.intervals.count > 0) add_intervals(c, layout);
  if (c.blocks.block_m > 0) BlockBuilder(c, layout).build();
  return layout;
}

i64 most_keys(const Layout& layout) {
  i64 most = 0;
  for (const Sequence& s : layout.sequences) most = std::max<i64>(most, s.seqlen_kv);
  return most;
}

}  // namespace iso::conformance
