#include "validate/mask.h"

#include <fmt/format.h>

#include "base/math.h"
#include "validate/lengths.h"
#include "validate/propagate.h"

namespace iso {
namespace {

// A number of isoflash_mask as the caller gave it: nothing, one for all sequences, or one each.
struct Part {
  bool given = false;
  i64 value = 0;
  std::vector<i32> values;

  i64 at(std::size_t b) const { return values.empty() ? value : values[b]; }
  i64 at_or(std::size_t b, i64 otherwise) const { return given ? at(b) : otherwise; }
};

struct Parts {
  Part num_context, history_len, num_candidates, history_begin, history_end, candidate_begin, query_offset;
};

bool is_given(const isoflash_per_sequence& d) { return d.values.rank != 0 || d.value != ISOFLASH_DEFAULT; }

Expected<void> read_part(const isoflash_per_sequence& d, const char* name, i64 batch, Part& part) {
  part.given = is_given(d);
  part.value = d.value;
  if (d.values.rank == 0) return {};
  auto values = read_per_sequence(d.values, name, batch);
  if (!values) return tl::unexpected(std::move(values).error());
  part.values = std::move(*values);
  return {};
}

Expected<Parts> read_parts(const isoflash_mask& d, i64 batch) {
  Parts parts;
  const struct {
    const isoflash_per_sequence& from;
    const char* name;
    Part& to;
  } fields[] = {{d.num_context, "mask.num_context", parts.num_context},
                {d.history_len, "mask.history_len", parts.history_len},
                {d.num_candidates, "mask.num_candidates", parts.num_candidates},
                {d.history_begin, "mask.history_begin", parts.history_begin},
                {d.history_end, "mask.history_end", parts.history_end},
                {d.candidate_begin, "mask.candidate_begin", parts.candidate_begin},
                {d.query_offset, "mask.query_offset", parts.query_offset}};
  for (const auto& field : fields) ISO_RETURN_IF_ERROR(read_part(field.from, field.name, batch, field.to));
  return parts;
}

// What all sequences share: kind, window and group size, in `m`.
Expected<void> read_kind(const isoflash_mask& d, MaskSpec& m) {
  if (d.history_kind < ISOFLASH_HISTORY_BIDIRECTIONAL || d.history_kind > ISOFLASH_HISTORY_WINDOW)
    return raise(errors::HistoryKindUnknown{.got = d.history_kind});
  if (d.reserved0 != 0) return raise(errors::ReservedField{.field = "mask.reserved0", .got = d.reserved0});
  m.history_kind = static_cast<HistoryKind>(d.history_kind);
  const struct {
    const char* name;
    i64 from;
    i32& to;
  } windows[] = {{"window_left", d.window_left, m.window_left}, {"window_right", d.window_right, m.window_right}};
  for (const auto& window : windows) {
    if (window.from == ISOFLASH_UNLIMITED) continue;
    if (m.history_kind != HistoryKind::window)
      return raise(
          errors::WindowWithoutKind{.argument = window.name,
                                    .got = window.from,
                                    .history_kind = m.history_kind == HistoryKind::causal ? "CAUSAL" : "BIDIRECTIONAL"});
    if (window.from < 0) return raise(errors::NegativeWindow{.argument = window.name, .got = window.from});
    window.to = static_cast<i32>(min_of<i64>(window.from, kUnlimited));
  }
  if (d.candidate_group_size < 1) return raise(errors::CandidateGroupSize{.got = d.candidate_group_size});
  m.candidate_group_size = static_cast<i32>(min_of<i64>(d.candidate_group_size, kMaxSeqlen));
  return {};
}

// Positions are compared as int64; what the checks let through fits MaskSpec's int32.
Expected<void> resolve(const Parts& parts, std::size_t b, Sequence& s) {
  MaskSpec& m = s.mask;
  const i64 seqlen = s.seqlen_kv;
  const struct {
    const char* name;
    const Part& part;
  } nonnegative[] = {{"num_context", parts.num_context},       {"history_len", parts.history_len},
                     {"num_candidates", parts.num_candidates}, {"history_begin", parts.history_begin},
                     {"history_end", parts.history_end},       {"candidate_begin", parts.candidate_begin}};
  for (const auto& field : nonnegative)
    if (field.part.at_or(b, 0) < 0)
      return raise(errors::NegativePart{.batch_index = b, .part = field.name, .got = field.part.at(b)});

  // Clamped far above every length, so that sums cannot overflow and what was too large stays so.
  const auto clamped = [&](const Part& part, i64 otherwise) { return min_of(part.at_or(b, otherwise), i64{1} << 40); };
  const bool slot_known = parts.history_len.given || parts.candidate_begin.given;
  const i64 context = clamped(parts.num_context, 0);
  const i64 candidates_if_given = clamped(parts.num_candidates, 0);
  const i64 candidates_start = clamped(parts.candidate_begin, seqlen - candidates_if_given);
  const i64 history = clamped(parts.history_len, candidates_start - context);
  const i64 begin = clamped(parts.candidate_begin, context + history);
  const i64 candidates = clamped(parts.num_candidates, slot_known ? seqlen - begin : 0);

  const bool covers = parts.candidate_begin.given ? begin + candidates <= seqlen : begin + candidates == seqlen;
  if (history < 0 || candidates < 0 || !covers)
    return raise(errors::CandidateSpanMismatch{.batch_index = b,
                                               .num_context = parts.num_context.at_or(b, context),
                                               .history_len = parts.history_len.at_or(b, history),
                                               .candidate_begin = parts.candidate_begin.at_or(b, begin),
                                               .num_candidates = parts.num_candidates.at_or(b, candidates),
                                               .seqlen_kv = seqlen});
  if (begin < context + history)
    return raise(errors::PartOverlap{.batch_index = b, .candidate_begin = begin, .history_slot_end = context + history});

  const i64 valid_begin = parts.history_begin.at_or(b, context);
  const i64 valid_end = parts.history_end.at_or(b, context + history);
  if (valid_begin < context || valid_begin > valid_end || valid_end > context + history)
    return raise(errors::HistoryRange{.batch_index = b,
                                      .history_begin = valid_begin,
                                      .history_end = valid_end,
                                      .slot_begin = context,
                                      .slot_end = context + history});

  m.seqlen_kv = s.seqlen_kv;
  m.context_end = static_cast<i32>(context);
  m.history_end_slot = static_cast<i32>(context + history);
  m.history_begin = static_cast<i32>(valid_begin);
  m.history_end = static_cast<i32>(valid_end);
  m.candidate_begin = static_cast<i32>(begin);
  m.candidate_end = static_cast<i32>(begin + candidates);

  // Every query has a role; where all positions are history, queries before and after the keys have it too, as far as a
  // window of kUnlimited reaches every key from there.
  const i64 offset = parts.query_offset.at_or(b, seqlen - s.seqlen_q);
  const i64 lowest = is_plain(m) ? seqlen - kMaxSeqlen : 0;
  const i64 highest = (is_plain(m) ? i64{kMaxSeqlen} : seqlen) - 1;
  if (s.seqlen_q > 0 && (offset < lowest || offset > highest - (s.seqlen_q - 1)))
    return raise(errors::QueryOffsetRange{.batch_index = b,
                                          .query_offset = offset,
                                          .seqlen_q = s.seqlen_q,
                                          .seqlen_kv = seqlen,
                                          .lowest = lowest,
                                          .highest = highest});
  m.query_offset = s.seqlen_q > 0 ? static_cast<i32>(offset) : 0;
  return {};
}

}  // namespace

const char* first_given(const isoflash_mask& d) {
  const struct {
    const char* name;
    bool given;
  } fields[] = {{"history_kind", d.history_kind != ISOFLASH_HISTORY_BIDIRECTIONAL},
                {"window_left", d.window_left != ISOFLASH_UNLIMITED},
                {"window_right", d.window_right != ISOFLASH_UNLIMITED},
                {"candidate_group_size", d.candidate_group_size != 1},
                {"num_context", is_given(d.num_context)},
                {"history_len", is_given(d.history_len)},
                {"num_candidates", is_given(d.num_candidates)},
                {"history_begin", is_given(d.history_begin)},
                {"history_end", is_given(d.history_end)},
                {"candidate_begin", is_given(d.candidate_begin)}};
  for (const auto& field : fields)
    if (field.given) return field.name;
  return nullptr;
}

Expected<void> resolve_masks(const isoflash_mask& descriptor, std::vector<Sequence>& sequences) {
  MaskSpec shared;
  ISO_RETURN_IF_ERROR(read_kind(descriptor, shared));
  const auto parts = read_parts(descriptor, static_cast<i64>(sequences.size()));
  if (!parts) return tl::unexpected(parts.error());
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    sequences[b].mask = shared;
    ISO_RETURN_IF_ERROR(resolve(*parts, b, sequences[b]));
  }
  return {};
}

}  // namespace iso
