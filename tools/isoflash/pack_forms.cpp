#include "pack_forms.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "commands.h"
#include "hash.h"
#include "oracle_problem.h"
#include "usage_error.h"

namespace iso::tool {
namespace {

using namespace batch_name;

std::vector<Sequence> sequences_of(const Batch& batch) {
  return oracle_problem(value_or_usage_error(library_problem("the batch", batch))).sequences;
}

TensorData int_tensor(const std::vector<i32>& values) {
  TensorData t(DType::i32, {static_cast<i64>(values.size())});
  std::copy(values.begin(), values.end(), t.as<i32>().begin());
  return t;
}

// Rows of a packed tensor (first axis) or of a dense one (first two axes) are this many bytes.
std::size_t row_bytes(const TensorData& t, int row_axes) {
  i64 elements = 1;
  for (std::size_t axis = static_cast<std::size_t>(row_axes); axis < t.shape().size(); ++axis) elements *= t.shape()[axis];
  return static_cast<std::size_t>(elements) * static_cast<std::size_t>(dtype_size(t.dtype()));
}

// Copies rows [begin, end) of `from`, counted over all of it, to row `at` of `to`.
void copy_rows(const TensorData& from, i64 begin, i64 end, TensorData& to, i64 at, std::size_t bytes) {
  std::memcpy(static_cast<char*>(to.data()) + static_cast<std::size_t>(at) * bytes,
              static_cast<const char*>(from.data()) + static_cast<std::size_t>(begin) * bytes,
              static_cast<std::size_t>(end - begin) * bytes);
}

// A part of each sequence's rows: [begin, end), counted over the whole tensor.
struct Part {
  i64 begin, end;
};

TensorData take(const TensorData& from, int row_axes, const std::vector<Part>& parts) {
  i64 rows = 0;
  for (const Part& part : parts) rows += part.end - part.begin;
  std::vector<i64> shape{rows};
  shape.insert(shape.end(), from.shape().begin() + row_axes, from.shape().end());
  TensorData to(from.dtype(), shape);
  const std::size_t bytes = row_bytes(from, row_axes);
  i64 at = 0;
  for (const Part& part : parts) {
    copy_rows(from, part.begin, part.end, to, at, bytes);
    at += part.end - part.begin;
  }
  return to;
}

TensorData offsets_of(const std::vector<Part>& parts) {
  std::vector<i32> offsets{0};
  for (const Part& part : parts) offsets.push_back(offsets.back() + static_cast<i32>(part.end - part.begin));
  return int_tensor(offsets);
}

void put(Batch& batch, const std::string& name, TensorData data) { batch.tensors.insert_or_assign(name, std::move(data)); }

// Context and history become the cache, packed; candidates the queries, with keys of their own.
void to_cache(Batch& batch) {
  const int row_axes = batch.packed() ? 1 : 2;
  const i64 seqlen = batch.packed() ? 0 : batch.find(kQ)->shape()[1];
  std::vector<Part> cached, candidates;
  for (const Sequence& s : sequences_of(batch)) {
    const i64 first = s.q_batch * seqlen + s.q_row_begin, split = first + s.mask.candidate_begin;
    cached.push_back({first, split});
    candidates.push_back({split, first + s.seqlen_kv});
  }
  put(batch, kKNew, take(*batch.find(kK), row_axes, candidates));
  put(batch, kVNew, take(*batch.find(kV), row_axes, candidates));
  for (const char* name : {kK, kV}) put(batch, name, take(*batch.find(name), row_axes, cached));
  for (const char* name : {kQ, kLabels, kItemIds})
    if (batch.find(name)) put(batch, name, take(*batch.find(name), row_axes, candidates));
  put(batch, kCuSeqlensQ, offsets_of(candidates));
  put(batch, kCuSeqlensKv, offsets_of(cached));
  batch.tensors.erase(kCuSeqlens);
  batch.tensors.erase(kDout);
}

// What each row sees as intervals, in place of the mask's numbers.
void to_intervals(Batch& batch) {
  constexpr i64 kPairs = 3;
  const std::vector<Sequence> sequences = sequences_of(batch);
  const std::vector<i64>& q = batch.find(kQ)->shape();
  const i64 seqlen = batch.packed() ? 0 : q[1];
  TensorData intervals(
      DType::i32, batch.packed() ? std::vector<i64>{1, q[0], 2 * kPairs} : std::vector<i64>{q[0], 1, seqlen, 2 * kPairs});
  for (const Sequence& s : sequences)
    for (i32 i = 0; i < s.seqlen_q; ++i) {
      const RowIntervals seen = row_intervals(s.mask, i + s.mask.query_offset);
      i32* const row = intervals.as<i32>().data() + (s.q_batch * seqlen + s.q_row_begin + i) * 2 * kPairs;
      std::fill(row, row + 2 * kPairs, s.seqlen_kv);  // empty ones at the end
      for (int n = 0; n < seen.count; ++n) {
        row[2 * n] = seen.at[n].begin;
        row[2 * n + 1] = seen.at[n].end;
      }
    }
  put(batch, kRowIntervals, std::move(intervals));
  for (const char* name : {kNumContext, kHistoryLen, kNumCandidates}) batch.tensors.erase(name);
  for (const char* key : {"history_kind", "candidate_group_size"}) batch.metadata.erase(key);
}

// Block lists on top of the mask.
void to_blocks(Batch& batch, i64 block) {
  const isoflash::Problem call = value_or_usage_error(library_problem("the batch", batch));
  const auto built = isoflash::BlockListsHandle::from_problem(call, block, block);
  if (!built) throw_usage_error(built.error().id(), built.error().message());
  const isoflash::BlockSparsity lists = built->blocks();
  const auto copy = [&](const std::string& name, const isoflash::Tensor& t) {
    if (t.rank == 0) return;
    TensorData data = memory_for(t);
    std::memcpy(data.data(), t.data, data.bytes());
    put(batch, name, std::move(data));
  };
  for (const auto& [form, forms] : {std::pair{"forward", &lists.forward}, {"backward", &lists.backward}})
    for (const auto& [kind, list] : {std::pair{"mask", &forms->mask}, {"full", &forms->full}, {"diag", &forms->diag}}) {
      copy(block_list_name(form, kind, "counts"), list->counts);
      copy(block_list_name(form, kind, "indices"), list->indices);
    }
  batch.metadata["block_m"] = batch.metadata["block_n"] = std::to_string(block);
}

std::vector<i32> shuffled(i64 count, u64 seed) {
  std::vector<i32> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  HashStream random(hash_of(seed, "pages"));
  for (std::size_t n = ids.size(); n > 1; --n) std::swap(ids[n - 1], ids[random.below(n)]);
  return ids;
}

// k and v in pages, in no order.
void to_pages(Batch& batch, i64 page_size, u64 seed) {
  const std::vector<Sequence> sequences = sequences_of(batch);
  const bool packed = batch.find(kCuSeqlens) != nullptr || batch.find(kCuSeqlensKv) != nullptr;
  const i64 seqlen = packed ? 0 : batch.find(kK)->shape()[1];
  i64 pages = 0, most = 1;
  std::vector<i32> used;
  for (const Sequence& s : sequences) {
    used.push_back(s.seqlen_cached);
    pages += ceil_div<i64>(s.seqlen_cached, page_size);
    most = std::max(most, ceil_div<i64>(s.seqlen_cached, page_size));
  }
  TensorData table(DType::i32, {static_cast<i64>(sequences.size()), most});
  std::fill(table.as<i32>().begin(), table.as<i32>().end(), -1);  // no page: not read
  const std::vector<i32> ids = shuffled(pages, seed);
  for (const char* name : {kK, kV}) {
    const TensorData& from = *batch.find(name);
    const int row_axes = packed ? 1 : 2;
    const std::size_t axis = static_cast<std::size_t>(row_axes);
    TensorData to(from.dtype(), {pages, page_size, from.shape()[axis], from.shape()[axis + 1]});
    const std::size_t bytes = row_bytes(from, row_axes);
    std::size_t next = 0;
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      const Sequence& s = sequences[b];
      const i64 first = s.kv_batch * seqlen + s.kv_row_begin;
      for (i64 row = 0; row < s.seqlen_cached; row += page_size) {
        const i32 page = ids[next++];
        table.as<i32>()[b * static_cast<std::size_t>(most) + static_cast<std::size_t>(row / page_size)] = page;
        copy_rows(from, first + row, first + std::min<i64>(row + page_size, s.seqlen_cached), to, page * page_size, bytes);
      }
    }
    put(batch, name, std::move(to));
  }
  put(batch, kBlockTable, std::move(table));
  put(batch, kSequsedKv, int_tensor(used));
  if (const auto both = batch.tensors.extract(kCuSeqlens); !both.empty()) put(batch, kCuSeqlensQ, std::move(both.mapped()));
  batch.tensors.erase(kCuSeqlensKv);
  batch.tensors.erase(kDout);
}

// Normally distributed numbers of standard deviation 1.
void fill_normal(std::span<float> x, u64 seed) {
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = hash_normal(hash_of(seed, n)) / kHashNormalDeviation;
}

void add_bias(Batch& batch, u64 seed) {
  i64 longest = 0;
  for (const Sequence& s : sequences_of(batch)) longest = std::max<i64>(longest, s.seqlen_kv);
  std::vector<i64> shape = batch.find(kQ)->shape();  // (..., rows, heads, head_dim)
  std::swap(shape.end()[-3], shape.end()[-2]);
  shape.back() = longest;
  double elements = 1;
  for (const i64 extent : shape) elements *= static_cast<double>(extent);
  if (elements > static_cast<double>(kMaxBiasElements))
    throw UsageError(fmt::format("a bias of shape {} is {:.1f} MB, the limit is {:.1f} MB", shape_text(shape),
                                 elements * 4e-6, static_cast<double>(kMaxBiasElements) * 4e-6),
                     "take fewer --users or a shorter --max-history, or leave out --bias");
  TensorData bias(DType::f32, shape);
  fill_normal(bias.as<float>(), hash_of(seed, "bias"));
  put(batch, kBias, std::move(bias));
}

}  // namespace

Batch in_form(Batch batch, const FormOptions& options) {
  if (options.cache) to_cache(batch);
  if (options.sink) {
    TensorData sink(DType::f32, {batch.find(kQ)->shape().end()[-2]});
    fill_normal(sink.as<float>(), hash_of(options.seed, "sink"));
    put(batch, kSink, std::move(sink));
  }
  if (options.bias) add_bias(batch, options.seed);
  if (options.mask == MaskForm::intervals) to_intervals(batch);
  if (options.mask == MaskForm::blocks) to_blocks(batch, options.block);
  if (options.page_size > 0) {
    for (const char* kind : {"mask", "full", "diag"})
      for (const char* part : {"counts", "indices"}) batch.tensors.erase(block_list_name("backward", kind, part));
    to_pages(batch, options.page_size, options.seed);
  }
  return batch;
}

}  // namespace iso::tool
