#include "validate/lengths.h"

#include <fmt/format.h>

#include "base/math.h"
#include "validate/paging.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {
namespace {

// One side of the sequences: what its fields are called, what the caller gave, and what comes of it.
struct Side {
  const char *letter, *tensor, *cu_name, *used_name, *max_name;
  const isoflash_tensor &cu_seqlens, &seqused;
  i64 max_seqlen;
  i64 rows;  // dense: of every slot; packed: of all

  std::vector<i64> row_begin;
  std::vector<i32> slot, used;
};

std::vector<i32> copy_values(const Tensor& t) {
  std::vector<i32> values(static_cast<std::size_t>(t.shape[0]));
  for (std::size_t n = 0; n < values.size(); ++n)
    values[n] = static_cast<const i32*>(t.data)[static_cast<i64>(n) * t.strides[0]];
  return values;
}

Expected<i64> sequences_in(const isoflash_tensor& cu_seqlens, const char* name) {
  const auto t = read_tensor(cu_seqlens, name);
  if (!t) return tl::unexpected(t.error());
  if (t->rank != 1 || t->shape[0] == 0) return raise(errors::CuSeqlensShape{.tensor = name, .got = shape_text(*t)});
  return t->shape[0] - 1;
}

Expected<void> read_cu_seqlens(Side& side) {
  const auto t = read_index_tensor(side.cu_seqlens, side.cu_name);
  if (!t) return tl::unexpected(t.error());
  const std::vector<i32> cu = copy_values(*t);
  if (cu.front() != 0) return raise(errors::CuSeqlensStart{.tensor = side.cu_name, .got = cu.front()});
  for (std::size_t b = 0; b + 1 < cu.size(); ++b) {
    if (cu[b + 1] < cu[b])
      return raise(errors::CuSeqlensDecrease{.tensor = side.cu_name, .index = b + 1, .previous = cu[b], .got = cu[b + 1]});
    side.row_begin[b] = cu[b];
    side.slot[b] = cu[b + 1] - cu[b];
  }
  if (cu.back() != side.rows)
    return raise(
        errors::CuSeqlensEnd{.tensor = side.cu_name, .got = cu.back(), .data_tensor = side.tensor, .rows = side.rows});
  return {};
}

tl::unexpected<Error> too_long(const std::string& name, i64 length) {
  return raise(errors::SeqlenTooLong{.length = name, .got = length, .max = kMaxSeqlen - 1});
}

Expected<void> check_max_seqlen(const Side& side, std::size_t b, i32 seqlen) {
  if (side.max_seqlen == ISOFLASH_DEFAULT || seqlen <= side.max_seqlen) return {};
  return raise(errors::MaxSeqlenExceeded{
      .argument = side.max_name, .max_seqlen = side.max_seqlen, .batch_index = b, .seqlen = seqlen});
}

Expected<void> read_used(Side& side, i64 batch) {
  if (side.seqused.rank == 0) {
    side.used = side.slot;
    return {};
  }
  auto used = read_per_sequence(side.seqused, side.used_name, batch);
  if (!used) return tl::unexpected(std::move(used).error());
  side.used = std::move(*used);
  return {};
}

// Rows of a dense or packed tensor.
Expected<void> read_rows(Side& side, i64 batch) {
  const bool packed = side.cu_seqlens.rank != 0;
  if (!packed && side.rows >= kMaxSeqlen) return too_long(fmt::format("seqlen_{}", side.letter), side.rows);
  side.row_begin.assign(static_cast<std::size_t>(batch), 0);
  side.slot.assign(static_cast<std::size_t>(batch), packed ? 0 : static_cast<i32>(side.rows));
  if (packed) ISO_RETURN_IF_ERROR(read_cu_seqlens(side));
  ISO_RETURN_IF_ERROR(read_used(side, batch));
  for (std::size_t b = 0; b < side.slot.size(); ++b) {
    if (side.slot[b] >= kMaxSeqlen) return too_long(fmt::format("seqlen_{} of sequence {}", side.letter, b), side.slot[b]);
    if (side.used[b] < 0 || side.used[b] > side.slot[b])
      return raise(
          errors::SequsedRange{.tensor = side.used_name, .batch_index = b, .got = side.used[b], .rows = side.slot[b]});
  }
  return {};
}

// Keys of a paged tensor.
Expected<void> read_paged_rows(const isoflash_problem& d, const Problem& p, Side& side) {
  const auto capacity = read_page_capacity(d, p);
  if (!capacity) return tl::unexpected(capacity.error());
  side.row_begin.assign(static_cast<std::size_t>(p.batch), 0);
  side.slot.assign(static_cast<std::size_t>(p.batch), *capacity);
  ISO_RETURN_IF_ERROR(read_used(side, p.batch));
  for (std::size_t b = 0; b < side.used.size(); ++b)
    if (side.used[b] < 0 || side.used[b] > *capacity)
      return raise(errors::SequsedBeyondPages{.batch_index = b,
                                              .got = side.used[b],
                                              .max_pages = d.block_table.shape[1],
                                              .page_size = p.rows_kv,
                                              .capacity = *capacity});
  return {};
}

Expected<void> check_limits(const Side& side) {
  if (side.max_seqlen != ISOFLASH_DEFAULT && side.max_seqlen < 0)
    return raise(errors::MaxSeqlenNegative{.argument = side.max_name, .got = side.max_seqlen});
  return {};
}

}  // namespace

Expected<std::vector<i32>> read_per_sequence(const isoflash_tensor& descriptor, const char* name, i64 batch) {
  const auto shape = read_tensor(descriptor, name);
  if (!shape) return tl::unexpected(shape.error());
  if (shape->rank != 1 || shape->shape[0] != batch)
    return raise(errors::PerSequenceShape{.tensor = name, .got = shape_text(*shape), .batch = batch});
  const auto t = read_index_tensor(descriptor, name);
  if (!t) return tl::unexpected(t.error());
  return copy_values(*t);
}

Expected<i64> read_batch(const isoflash_problem& d, const Tensor& q) {
  const bool packed = d.cu_seqlens_q.rank != 0;
  i64 batch = q.shape[0];
  if (packed) {
    const auto count = sequences_in(d.cu_seqlens_q, "cu_seqlens_q");
    if (!count) return count;
    batch = *count;
  }
  if (d.cu_seqlens_kv.rank != 0) {
    const auto batch_kv = sequences_in(d.cu_seqlens_kv, "cu_seqlens_kv");
    if (!batch_kv) return batch_kv;
    if (*batch_kv != batch)
      return raise(
          errors::CuSeqlensBatch{.queries = packed ? "cu_seqlens_q" : "q", .batch_q = batch, .batch_kv = *batch_kv});
  }
  return batch;
}

Expected<std::vector<Sequence>> read_sequences(const isoflash_problem& d, const Problem& p, MaskArrays& arrays) {
  Side q{"q", "q", "cu_seqlens_q", "seqused_q", "max_seqlen_q", d.cu_seqlens_q, d.seqused_q, d.max_seqlen_q, p.rows_q, {},
         {},  {}};
  Side kv{"kv",
          "k",
          "cu_seqlens_kv",
          "seqused_kv",
          "max_seqlen_kv",
          d.cu_seqlens_kv,
          d.seqused_kv,
          d.max_seqlen_kv,
          p.rows_kv,
          {},
          {},
          {}};
  const bool paged = p.kv_layout == KvLayout::paged;
  ISO_RETURN_IF_ERROR(read_rows(q, p.batch));
  ISO_RETURN_IF_ERROR(paged ? read_paged_rows(d, p, kv) : read_rows(kv, p.batch));
  ISO_RETURN_IF_ERROR(check_limits(q));
  ISO_RETURN_IF_ERROR(check_limits(kv));

  std::vector<Sequence> sequences(static_cast<std::size_t>(p.batch));
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    Sequence& s = sequences[b];
    s.q_batch = p.packed ? 0 : static_cast<i64>(b);
    s.kv_batch = p.kv_layout == KvLayout::dense ? static_cast<i64>(b) : 0;
    s.q_row_begin = q.row_begin[b];
    s.kv_row_begin = kv.row_begin[b];
    s.seqlen_q = q.used[b];
    s.seqlen_cached = kv.used[b];
    s.seqlen_kv = s.seqlen_cached + (p.new_keys ? s.seqlen_q : 0);
    s.slot_q = q.slot[b];
    s.slot_kv = min_of(kv.slot[b] + (p.new_keys ? s.slot_q : 0), kMaxSeqlen - 1);
    if (s.seqlen_kv >= kMaxSeqlen)
      return too_long(fmt::format("seqlen_kv of sequence {}, new keys included,", b), s.seqlen_kv);
    ISO_RETURN_IF_ERROR(check_max_seqlen(q, b, s.seqlen_q));
    ISO_RETURN_IF_ERROR(check_max_seqlen(kv, b, s.seqlen_kv));
  }
  if (paged) ISO_RETURN_IF_ERROR(read_pages(d, p, sequences, arrays));
  return sequences;
}

}  // namespace iso
