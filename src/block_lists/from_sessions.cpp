// Lists for rows that several users share. Of each user's slot [prefix][history][candidates] the padding may lie anywhere
// in the history as one run, so that the valid positions are a beginning and an end of the slot: what valid bounds can say.
//
//   history block   sees the blocks of its user's history that are not all padding: `full` if both are wholly valid, else
//                   `mask`, which valid bounds refine; nothing if it is all padding itself
//   candidate block sees the same blocks, and of itself the diagonal
#include <fmt/format.h>

#include <algorithm>

#include "block_lists/built_lists.h"
#include "validate/block_lists.h"
#include "validate/lengths.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {
namespace {

// An int32 array (rows, columns).
struct Matrix {
  const i32* data = nullptr;
  i64 rows = 0, columns = 0, stride_row = 0, stride_column = 0;
  i32 at(i64 row, i64 column) const { return data[row * stride_row + column * stride_column]; }
};

// fits(t) says whether a tensor of rank 2 has the `expected` shape.
template <class Fits>
Expected<Matrix> read_matrix(const isoflash_tensor& descriptor, const char* name, const std::string& expected,
                             const Fits& fits) {
  const auto t = read_tensor(descriptor, name);
  if (!t) return tl::unexpected(t.error());
  if (t->rank != 2 || !fits(*t))
    return raise(errors::SessionArrayShape{.tensor = name, .got = shape_text(*t), .expected = expected});
  const auto indices = read_index_tensor(descriptor, name);
  if (!indices) return tl::unexpected(indices.error());
  return Matrix{static_cast<const i32*>(t->data), t->shape[0], t->shape[1], t->strides[0], t->strides[1]};
}

Expected<Matrix> read_matrix(const isoflash_tensor& descriptor, const char* name, i64 rows, i64 columns,
                             const char* per_what) {
  return read_matrix(descriptor, name, fmt::format("({}, {}), one for each {}", rows, columns, per_what),
                     [&](const Tensor& t) { return t.shape[0] == rows && t.shape[1] == columns; });
}

// One user's part of a row, in positions of the row: history (prefix and padding included), then candidates.
struct User {
  i64 row, index;
  i64 begin, candidates, end;
  i64 padding_begin = 0, padding_end = 0;  // the run of padding, counted from `begin`; empty at the end of the history
};

// Positions of a history block that are valid: those before `upper` and from `lower` on.
struct Bounds {
  i32 upper = 0, lower = 0;
  bool none(i64 block) const { return upper == 0 && lower == block; }
  bool all() const { return upper >= lower; }
};

class Builder {
 public:
  Builder(const Sessions& sessions, const Matrix& cu_seqlens, const Matrix& slots, const Matrix& padding)
      : block_(sessions.block),
        prefix_(sessions.prefix),
        seqlen_(sessions.seqlen),
        cu_seqlens_(cu_seqlens),
        slots_(slots),
        padding_(padding),
        num_blocks_(seqlen_ / block_),
        table_(false, cu_seqlens.rows, 1),
        upper_(cu_seqlens.rows * num_blocks_),
        lower_(upper_.size()) {}

  Expected<BuiltLists> build() {
    for (i64 row = 0; row < cu_seqlens_.rows; ++row) ISO_RETURN_IF_ERROR(add_row(row));
    BuiltLists lists(block_, block_);
    lists.set_forward(table_, num_blocks_);
    lists.set_backward(transpose(table_, std::vector<i64>(cu_seqlens_.rows, num_blocks_)), num_blocks_);
    lists.set_bounds(std::move(upper_), std::move(lower_), cu_seqlens_.rows, num_blocks_);
    return lists;
  }

 private:
  Expected<void> add_row(i64 row) {
    if (cu_seqlens_.at(row, 0) != 0) return start_error(row, 0, "the first user starts at 0");
    BlockRows& rows = table_.at(row, 0);
    for (i64 u = 0; u + 1 < cu_seqlens_.columns; ++u) {
      auto user = read_user(row, u);
      if (!user) return tl::unexpected(std::move(user).error());
      ISO_RETURN_IF_ERROR(find_padding(*user));
      add_user(*user, rows);
    }
    while (rows.size() < num_blocks_) rows.end_row();  // of nobody
    return {};
  }

  tl::unexpected<Error> start_error(i64 row, i64 index, std::string rule) const {
    return raise(
        errors::SessionStart{.row = row, .index = index, .got = cu_seqlens_.at(row, index), .rule = std::move(rule)});
  }

  Expected<User> read_user(i64 row, i64 u) const {
    User user{row, u, cu_seqlens_.at(row, u), 0, cu_seqlens_.at(row, u + 1)};
    if (user.end < user.begin)
      return start_error(row, u + 1, fmt::format("not less than the start before it, {}", user.begin));
    if (user.end > seqlen_) return start_error(row, u + 1, fmt::format("at most seqlen, {}", seqlen_));
    if (user.end % block_ != 0) return start_error(row, u + 1, fmt::format("a multiple of the block, {}", block_));
    const i64 slot = slots_.at(row, u);
    if (slot < 0 || slot % block_ != 0 || slot > user.end - user.begin)
      return raise(
          errors::CandidateSlot{.row = row, .user = u, .got = slot, .block = block_, .length = user.end - user.begin});
    user.candidates = user.end - slot;
    if (prefix_ < 0 || (prefix_ > user.candidates - user.begin && user.end > user.begin))
      return raise(errors::SessionPrefix{.row = row, .user = u, .got = prefix_, .history = user.candidates - user.begin});
    return user;
  }

  bool is_padding(const User& user, i64 position) const {
    return padding_.data != nullptr && position >= prefix_ && padding_.at(user.row, user.begin + position) != 0;
  }

  Expected<void> find_padding(User& user) const {
    const i64 history = user.candidates - user.begin;
    i64 at = 0;
    while (at < history && !is_padding(user, at)) ++at;
    user.padding_begin = at;
    while (at < history && is_padding(user, at)) ++at;
    user.padding_end = at;
    for (; at < history; ++at)
      if (is_padding(user, at))
        return raise(errors::SessionPadding{.row = user.row,
                                            .user = user.index,
                                            .position = user.begin + at,
                                            .run_begin = user.begin + user.padding_begin,
                                            .run_end = user.begin + user.padding_end});
    return {};
  }

  // Of the block that starts `start` positions after the user.
  Bounds bounds(const User& user, i64 start) const {
    const auto clip = [&](i64 x) { return static_cast<i32>(std::clamp<i64>(x - start, 0, block_)); };
    const Bounds b{clip(user.padding_begin), clip(user.padding_end)};
    return b.all() ? Bounds{} : b;
  }

  void add_user(const User& user, BlockRows& rows) {
    const i64 first = user.begin / block_, candidates = user.candidates / block_, last = user.end / block_;
    const auto bounds_of = [&](i64 m) { return m < candidates ? bounds(user, m * block_ - user.begin) : Bounds{}; };
    for (i64 m = first; m < last; ++m) {
      const Bounds query = bounds_of(m);
      upper_[user.row * num_blocks_ + m] = query.upper;
      lower_[user.row * num_blocks_ + m] = query.lower;
      for (i64 n = first; n < candidates && !query.none(block_); ++n) {
        const Bounds key = bounds_of(n);
        if (!key.none(block_)) rows.add(n, query.all() && key.all() ? BlockKind::full : BlockKind::mask);
      }
      if (m >= candidates) rows.add(m, BlockKind::diag);
      rows.end_row();
    }
  }

  i64 block_, prefix_, seqlen_;
  const Matrix &cu_seqlens_, &slots_, &padding_;
  i64 num_blocks_;
  BlockTable table_;
  std::vector<i32> upper_, lower_;  // [row][block]
};

}  // namespace

Expected<BuiltLists> lists_from_sessions(const Sessions& sessions) {
  ISO_RETURN_IF_ERROR(check_block_size("block", sessions.block));
  if (sessions.seqlen < 0 || sessions.seqlen >= kMaxSeqlen || sessions.seqlen % sessions.block != 0)
    return raise(errors::SessionSeqlen{.got = sessions.seqlen,
                                       .block = sessions.block,
                                       .next = align_up(max_of<i64>(sessions.seqlen, 0), sessions.block)});
  const auto cu_seqlens =
      read_matrix(sessions.cu_seqlens, "cu_seqlens", "(rows, users + 1)", [](const Tensor& t) { return t.shape[1] > 0; });
  if (!cu_seqlens) return tl::unexpected(cu_seqlens.error());
  if (cu_seqlens->rows > kMaxBatch) return raise(errors::BatchTooLarge{.got = cu_seqlens->rows, .max = kMaxBatch});
  const auto slots = read_matrix(sessions.candidate_slot, "candidate_slot", cu_seqlens->rows, cu_seqlens->columns - 1,
                                 "user of cu_seqlens");
  if (!slots) return tl::unexpected(slots.error());
  Expected<Matrix> padding = Matrix{};
  if (sessions.padding != nullptr && sessions.padding->rank != 0)
    padding = read_matrix(*sessions.padding, "padding", cu_seqlens->rows, sessions.seqlen, "position of each row");
  if (!padding) return tl::unexpected(padding.error());
  return Builder(sessions, *cu_seqlens, *slots, *padding).build();
}

}  // namespace iso
