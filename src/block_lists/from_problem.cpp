// Lists from a mask: every row says in a few intervals which keys it sees, and a block is what its counts make it. The cost
// is that of the rows plus that of the lists themselves, not of rows times keys.
#include <numeric>

#include "block_lists/built_lists.h"
#include "validate/block_lists.h"
#include "validate/propagate.h"
#include "validate/validate.h"

namespace iso {
namespace {

// The keys that a row sees, by the mask or in its place the explicit intervals.
RowIntervals keys_seen(const Sequence& s, i64 head, i32 row) {
  return s.intervals.data != nullptr ? explicit_intervals(s, head, row) : row_intervals(s.mask, row + s.mask.query_offset);
}

// The blocks of keys that one block of query rows sees, and how.
class QueryBlock {
 public:
  QueryBlock(i32 seqlen_kv, i32 block_n)
      : seqlen_kv_(seqlen_kv),
        block_n_(block_n),
        first_(ceil_div(seqlen_kv, block_n)),
        pairs_(static_cast<std::size_t>(first_)),
        whole_(pairs_.size()),
        own_(pairs_.size()),
        own_seen_(pairs_.size()) {}

  // Adds a row that sees `keys` and stands at position p.
  void add(const RowIntervals& keys, i32 p) {
    ++num_rows_;
    for (int n = 0; n < keys.count; ++n) add(keys.at[n]);
    if (p < 0 || p >= seqlen_kv_) return;
    const i32 own = p / block_n_;
    touch(own, own);
    ++own_[own];
    if (keys.contains(p)) ++own_seen_[own];
  }

  // The row of entries; ready for the next block of query rows.
  void finish(BlockRows& rows) {
    i64 whole = 0;
    for (i32 n = first_; n <= last_; ++n) {
      whole += whole_[n];
      const i64 keys = min_of(block_n_, seqlen_kv_ - n * block_n_), pairs = pairs_[n] + whole * keys;
      if (pairs > 0) rows.add(n, kind(pairs, keys, n));
      pairs_[n] = whole_[n] = own_[n] = own_seen_[n] = 0;
    }
    num_rows_ = 0;
    first_ = static_cast<i32>(pairs_.size());
    last_ = -1;
    rows.end_row();
  }

 private:
  void add(Interval keys) {
    const i32 first = keys.begin / block_n_, last = (keys.end - 1) / block_n_;
    touch(first, last);
    if (first == last) {
      pairs_[first] += keys.size();
      return;
    }
    pairs_[first] += (first + 1) * block_n_ - keys.begin;
    pairs_[last] += keys.end - last * block_n_;
    ++whole_[first + 1];
    --whole_[last];
  }

  void touch(i32 first, i32 last) {
    first_ = min_of(first_, first);
    last_ = max_of(last_, last);
  }

  BlockKind kind(i64 pairs, i64 keys, i32 n) const {
    if (pairs == num_rows_ * keys) return BlockKind::full;
    return pairs == own_seen_[n] && own_seen_[n] == own_[n] ? BlockKind::diag : BlockKind::mask;
  }

  i32 seqlen_kv_, block_n_;
  i32 first_, last_ = -1;  // blocks of keys with counts other than 0 lie between these
  i64 num_rows_ = 0;
  std::vector<i64> pairs_;           // visible (row, key) pairs in each block of keys, without ...
  std::vector<i64> whole_;           // ... rows that see a block whole: the sum up to a block counts them
  std::vector<i64> own_, own_seen_;  // rows whose own position is a key of the block, and those of them that see it
};

BlockRows rows_of(const Sequence& s, i64 head, i32 block_m, i32 block_n) {
  BlockRows rows;
  QueryBlock block(s.seqlen_kv, block_n);
  for (i64 first = 0; first < s.slot_q; first += block_m) {
    for (i64 row = first; row < min_of<i64>(first + block_m, s.seqlen_q); ++row) {
      const i32 i = static_cast<i32>(row);
      block.add(keys_seen(s, head, i), i + s.mask.query_offset);
    }
    block.finish(rows);
  }
  return rows;
}

// Blocks of each sequence's slot on one side, and the extent of their axis.
struct SlotBlocks {
  std::vector<i64> num_blocks;
  i64 extent;
};
SlotBlocks slot_blocks(const std::vector<Sequence>& sequences, i32 Sequence::*slot, i64 block, bool packed,
                       i64 dense_rows) {
  SlotBlocks out;
  for (const Sequence& s : sequences) out.num_blocks.push_back(ceil_div<i64>(s.*slot, block));
  out.extent =
      packed ? std::accumulate(out.num_blocks.begin(), out.num_blocks.end(), i64{0}) : ceil_div<i64>(dense_rows, block);
  return out;
}

}  // namespace

Expected<BuiltLists> lists_from_problem(const isoflash_problem& d, i64 block_m, i64 block_n) {
  if (d.blocks.block_m != 0 || d.blocks.block_n != 0) return raise(errors::BuilderHasLists{.got = d.blocks.block_m});
  ISO_RETURN_IF_ERROR(check_block_size("block_m", block_m));
  ISO_RETURN_IF_ERROR(check_block_size("block_n", block_n));
  const auto valid = validate_problem(d);
  if (!valid) return tl::unexpected(valid.error());
  const Problem& p = valid->problem;
  const std::vector<Sequence>& sequences = valid->sequences;

  bool per_head = false;
  for (const Sequence& s : sequences) per_head |= s.intervals.data != nullptr && s.intervals.stride_head != 0;
  BlockTable table(p.packed, p.batch, per_head ? p.num_heads_q : 1);
  for (i64 b = 0; b < table.batch; ++b)
    for (i64 head = 0; head < table.heads; ++head)
      table.at(b, head) = rows_of(sequences[b], head, static_cast<i32>(block_m), static_cast<i32>(block_n));
  table = shared(table);

  BuiltLists lists(block_m, block_n);
  const SlotBlocks rows = slot_blocks(sequences, &Sequence::slot_q, block_m, p.packed, p.rows_q);
  lists.set_forward(table, rows.extent);
  const bool has_backward = p.kv_layout != KvLayout::paged && !p.new_keys;
  if (!has_backward) return lists;
  const SlotBlocks keys = slot_blocks(sequences, &Sequence::slot_kv, block_n, p.packed, p.rows_kv);
  lists.set_backward(transpose(table, keys.num_blocks), keys.extent);
  return lists;
}

}  // namespace iso
