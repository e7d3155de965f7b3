#include "validate/lengths.h"

#include <fmt/format.h>

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

// An int32 tensor with one axis, in host memory.
Expected<Tensor> read_index_tensor(const isoflash_tensor& descriptor, const char* name) {
  auto t = read_tensor(descriptor, name);
  if (!t) return t;
  if (t->dtype != DType::i32) return raise(errors::IndexDtype{.tensor = name, .got = dtype_name(t->dtype)});
  if (t->device.type != DeviceType::cpu)
    return raise(errors::IndexDevice{.tensor = name, .got = device_text(t->device)});
  ISO_RETURN_IF_ERROR(check_memory(*t, name));
  return t;
}

std::vector<i32> copy_values(const Tensor& t) {
  std::vector<i32> values(static_cast<std::size_t>(t.shape[0]));
  for (std::size_t n = 0; n < values.size(); ++n)
    values[n] = static_cast<const i32*>(t.data)[static_cast<i64>(n) * t.strides[0]];
  return values;
}

Expected<void> check_cu_seqlens_shape(const isoflash_tensor& descriptor, const char* name) {
  const auto t = read_tensor(descriptor, name);
  if (!t) return tl::unexpected(t.error());
  if (t->rank != 1 || t->shape[0] == 0) return raise(errors::CuSeqlensShape{.tensor = name, .got = shape_text(*t)});
  return {};
}

Expected<void> read_cu_seqlens(Side& side) {
  const auto t = read_index_tensor(side.cu_seqlens, side.cu_name);
  if (!t) return tl::unexpected(t.error());
  const std::vector<i32> cu = copy_values(*t);
  if (cu.front() != 0) return raise(errors::CuSeqlensStart{.tensor = side.cu_name, .got = cu.front()});
  for (std::size_t b = 0; b + 1 < cu.size(); ++b) {
    if (cu[b + 1] < cu[b])
      return raise(errors::CuSeqlensDecrease{
          .tensor = side.cu_name, .index = b + 1, .previous = cu[b], .got = cu[b + 1]});
    side.row_begin[b] = cu[b];
    side.slot[b] = cu[b + 1] - cu[b];
  }
  if (cu.back() != side.rows)
    return raise(errors::CuSeqlensEnd{
        .tensor = side.cu_name, .got = cu.back(), .data_tensor = side.tensor, .rows = side.rows});
  return {};
}

Expected<void> read_side(Side& side, bool packed, i64 batch) {
  if (!packed && side.rows >= kMaxSeqlen)
    return raise(errors::SeqlenTooLong{
        .length = fmt::format("seqlen_{}", side.letter), .got = side.rows, .max = kMaxSeqlen - 1});
  side.row_begin.assign(static_cast<std::size_t>(batch), 0);
  side.slot.assign(static_cast<std::size_t>(batch), packed ? 0 : static_cast<i32>(side.rows));
  if (packed) ISO_RETURN_IF_ERROR(read_cu_seqlens(side));
  side.used = side.slot;
  if (side.seqused.rank != 0) {
    auto used = read_per_sequence(side.seqused, side.used_name, batch);
    if (!used) return tl::unexpected(std::move(used).error());
    side.used = std::move(*used);
  }

  const bool limited = side.max_seqlen != ISOFLASH_DEFAULT;
  if (limited && side.max_seqlen < 0)
    return raise(errors::MaxSeqlenNegative{.argument = side.max_name, .got = side.max_seqlen});
  for (std::size_t b = 0; b < side.slot.size(); ++b) {
    if (side.slot[b] >= kMaxSeqlen)
      return raise(errors::SeqlenTooLong{.length = fmt::format("seqlen_{} of sequence {}", side.letter, b),
                                         .got = side.slot[b],
                                         .max = kMaxSeqlen - 1});
    if (side.used[b] < 0 || side.used[b] > side.slot[b])
      return raise(errors::SequsedRange{
          .tensor = side.used_name, .batch_index = b, .got = side.used[b], .rows = side.slot[b]});
    if (limited && side.used[b] > side.max_seqlen)
      return raise(errors::MaxSeqlenExceeded{.argument = side.max_name,
                                             .max_seqlen = side.max_seqlen,
                                             .batch_index = b,
                                             .seqlen = side.used[b]});
  }
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

Expected<i64> packed_batch(const isoflash_problem& d) {
  ISO_RETURN_IF_ERROR(check_cu_seqlens_shape(d.cu_seqlens_q, "cu_seqlens_q"));
  ISO_RETURN_IF_ERROR(check_cu_seqlens_shape(d.cu_seqlens_kv, "cu_seqlens_kv"));
  const i64 batch_q = d.cu_seqlens_q.shape[0] - 1, batch_kv = d.cu_seqlens_kv.shape[0] - 1;
  if (batch_q != batch_kv) return raise(errors::CuSeqlensBatch{.batch_q = batch_q, .batch_kv = batch_kv});
  return batch_q;
}

Expected<std::vector<Sequence>> read_sequences(const isoflash_problem& d, const Problem& p) {
  Side q{"q", "q", "cu_seqlens_q", "seqused_q", "max_seqlen_q", d.cu_seqlens_q, d.seqused_q, d.max_seqlen_q, p.rows_q,
         {}, {}, {}};
  Side kv{"kv", "k", "cu_seqlens_kv", "seqused_kv", "max_seqlen_kv", d.cu_seqlens_kv, d.seqused_kv, d.max_seqlen_kv,
          p.rows_kv, {}, {}, {}};
  ISO_RETURN_IF_ERROR(read_side(q, p.packed, p.batch));
  ISO_RETURN_IF_ERROR(read_side(kv, p.packed, p.batch));

  std::vector<Sequence> sequences(static_cast<std::size_t>(p.batch));
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    Sequence& s = sequences[b];
    s.q_batch = s.kv_batch = p.packed ? 0 : static_cast<i64>(b);
    s.q_row_begin = q.row_begin[b];
    s.kv_row_begin = kv.row_begin[b];
    s.seqlen_q = q.used[b];
    s.seqlen_kv = kv.used[b];
    s.slot_q = q.slot[b];
    s.slot_kv = kv.slot[b];
  }
  return sequences;
}

}  // namespace iso
