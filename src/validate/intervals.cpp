#include "validate/intervals.h"

#include <span>

#include "validate/broadcast.h"
#include "validate/mask.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {
namespace {

// row_intervals as (batch, head, row, number), packed ones as a batch of 1; strides are 0 where an axis is shared.
struct Source {
  const i32* data;         // null if there is nothing to read
  i64 batch, heads, rows;  // extents; 1 where shared
  i32 numbers;             // of a row
  i64 strides[4];

  i32 at(i64 b, i64 head, i64 row, i32 n) const {
    return data[b * strides[0] + head * strides[1] + row * strides[2] + n * strides[3]];
  }
};

Expected<Source> read_source(const isoflash_problem& d, const Problem& p) {
  const auto shape = read_tensor(d.row_intervals, "row_intervals");
  if (!shape) return tl::unexpected(shape.error());
  const BroadcastAxis axes[] = {{"batch", p.batch, true},
                                {"num_heads_q", p.num_heads_q, true},
                                {p.packed ? "total_q" : "seqlen_q", p.rows_q, false},
                                {"2, 4 or 6", kAnyExtent, false}};
  const auto expected = std::span(axes).subspan(p.packed ? 1 : 0);
  const i64 last = shape->shape[shape->rank - 1];
  if (!fits(*shape, expected) || (last != 2 && last != 4 && last != 6))
    return raise(errors::RowIntervalsShape{.got = shape_text(*shape), .expected = axes_text(expected)});
  auto t = read_index_tensor(d.row_intervals, "row_intervals");
  if (!t) return tl::unexpected(t.error());

  Source source{nullptr, 1, 1, p.rows_q, static_cast<i32>(last), {0, 0, 0, 0}};
  if (!has_elements(*t)) return source;
  source.data = static_cast<const i32*>(t->data);
  // An expanded axis (stride 0) is as shared as one of extent 1.
  for (i32 n = 0; n < t->rank; ++n) source.strides[n + 4 - t->rank] = t->shape[n] == 1 ? 0 : t->strides[n];
  if (source.strides[0] != 0) source.batch = p.batch;
  if (source.strides[1] != 0) source.heads = p.num_heads_q;
  return source;
}

// Checks one row and writes it with its empty intervals at the end.
Expected<void> copy_row(const Source& from, const Sequence& s, std::size_t b, i64 head, i32 row, i32* to) {
  i32 previous_end = 0, written = 0;
  for (i32 n = 0; n < from.numbers; n += 2) {
    const i64 source_row = s.q_row_begin + row;
    const i32 begin = from.at(s.q_batch, head, source_row, n), end = from.at(s.q_batch, head, source_row, n + 1);
    if (begin > end)
      return raise(errors::RowIntervalReversed{
          .batch_index = b, .head = head, .row = row, .interval = n / 2, .begin = begin, .end = end});
    if (begin < 0 || end > s.seqlen_kv)
      return raise(errors::RowIntervalRange{.batch_index = b,
                                            .head = head,
                                            .row = row,
                                            .interval = n / 2,
                                            .begin = begin,
                                            .end = end,
                                            .seqlen_kv = s.seqlen_kv});
    if (begin == end) continue;
    if (begin < previous_end)
      return raise(errors::RowIntervalOrder{.batch_index = b,
                                            .head = head,
                                            .row = row,
                                            .interval = n / 2,
                                            .begin = begin,
                                            .end = end,
                                            .previous_end = previous_end});
    to[written++] = begin;
    to[written++] = previous_end = end;
  }
  while (written < from.numbers) to[written++] = previous_end;
  return {};
}

}  // namespace

Expected<void> read_row_intervals(const isoflash_problem& d, const Problem& p, std::vector<Sequence>& sequences,
                                  MaskArrays& arrays) {
  if (d.row_intervals.rank == 0) return {};
  if (const char* field = first_given(d.mask)) return raise(errors::RowIntervalsWithMask{.field = field});
  const auto source = read_source(d, p);
  if (!source) return tl::unexpected(source.error());

  const i64 head_size = source->rows * source->numbers, batch_size = source->heads * head_size;
  arrays.intervals.assign(static_cast<std::size_t>(source->batch * batch_size + 1), 0);  // + 1: never without address
  const Sequence* previous = nullptr;
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    Sequence& s = sequences[b];
    i32* to = arrays.intervals.data() + (source->batch == 1 ? 0 : s.q_batch) * batch_size + s.q_row_begin * source->numbers;
    s.intervals = {to, source->heads == 1 ? 0 : head_size, source->numbers, source->numbers / 2};
    // What the batch shares is looked at once per shape of sequence.
    const bool done = !p.packed && source->batch == 1 && previous != nullptr && previous->seqlen_q == s.seqlen_q &&
                      previous->seqlen_kv == s.seqlen_kv;
    previous = &s;
    if (done || source->data == nullptr) continue;
    for (i64 head = 0; head < source->heads; ++head)
      for (i32 row = 0; row < s.seqlen_q; ++row)
        ISO_RETURN_IF_ERROR(copy_row(*source, s, b, head, row, to + head * head_size + row * i64{source->numbers}));
  }
  return {};
}

}  // namespace iso
