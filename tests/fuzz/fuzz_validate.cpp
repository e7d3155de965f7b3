// Any bytes as an isoflash_problem: making a plan must give a plan or an error, and neither crash nor hang. The input
// starts a valid problem, perhaps with intervals, block lists, pages, new keys, sink and bias, then says which of its
// numbers to overwrite with what; data pointers, extents and strides of the int32 arrays stay, since a caller has to get
// those right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "isoflash/isoflash.h"

namespace {

// Reads the input front to back; zeros after its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  template <class T>
  T take() {
    T value{};
    const std::size_t n = sizeof(T) < size_ ? sizeof(T) : size_;
    if (n > 0) std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  // In [0, limit].
  std::int64_t up_to(int limit) { return take<std::uint8_t>() % (limit + 1); }
  bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

constexpr int kMaxBatch = 6;
constexpr int kArrays = 11;  // with a number per sequence

// An int32 tensor of the problem: what stays as it is while the problem is overwritten.
struct Fixed {
  isoflash_tensor* at;
  isoflash_tensor kept;
};

isoflash_tensor contiguous(isoflash_dtype dtype, std::int32_t rank, std::int64_t a, std::int64_t b, std::int64_t c,
                           std::int64_t d) {
  const std::int64_t shape[] = {a, b, c, d};
  isoflash_tensor t;
  isoflash_tensor_contiguous(&t, nullptr, dtype, rank, shape + (4 - rank));
  return t;
}

isoflash_mask default_mask() {
  isoflash_problem p;
  isoflash_problem_init(&p);
  return p.mask;
}

isoflash_tensor array(std::int32_t* values, std::int64_t count) {
  isoflash_tensor t;
  isoflash_tensor_contiguous(&t, values, ISOFLASH_I32, 1, &count);
  return t;
}

// Memory for int32 tensors. Their values are a few numbers of the input over and over; a tensor too large for it gets all
// its elements from one place.
constexpr std::size_t kPool = 1 << 16;
std::int32_t pool[kPool];
std::size_t pool_used;

isoflash_tensor filled(Bytes& in, int limit, std::int32_t rank, std::int64_t a, std::int64_t b, std::int64_t c,
                       std::int64_t d) {
  isoflash_tensor t = contiguous(ISOFLASH_I32, rank, a, b, c, d);
  std::int64_t elements = 1;
  for (std::int32_t axis = 0; axis < rank; ++axis) elements *= t.shape[axis];
  const std::size_t room = kPool - pool_used;
  if (elements > static_cast<std::int64_t>(room / 2)) {
    elements = 1;
    for (std::int64_t& stride : t.strides) stride = 0;
  }
  std::int32_t some[7];
  for (std::int32_t& value : some)
    value = in.up_to(31) == 31 ? in.take<std::int32_t>() : static_cast<std::int32_t>(in.up_to(limit));
  t.data = pool + pool_used;
  for (std::int64_t n = 0; n < elements; ++n) pool[pool_used++] = some[n % 7];
  return t;
}

// The first axes of a tensor that may be shared.
std::int64_t full_or_1(Bytes& in, std::int64_t extent) { return in.up_to(1) ? extent : 1; }

struct Sizes {
  bool packed;
  std::int64_t batch, heads, rows_q, rows_kv;
};

void add_intervals(Bytes& in, const Sizes& z, isoflash_problem& p) {
  const std::int64_t batch = full_or_1(in, z.batch), heads = full_or_1(in, z.heads), pairs = 1 + in.up_to(2);
  p.row_intervals = filled(in, 12, z.packed ? 3 : 4, batch, heads, z.rows_q, 2 * pairs);
}

void add_blocks(Bytes& in, const Sizes& z, isoflash_problem& p) {
  isoflash_block_sparsity& d = p.blocks;
  d.block_m = 64 * (1 + in.up_to(1));
  d.block_n = 64 * (1 + in.up_to(1));
  // As many blocks as there are sequences with rows; right for short sequences, often enough for packed ones.
  const auto blocks = [&](std::int64_t rows) { return z.packed ? in.up_to(static_cast<int>(z.batch)) : rows > 0 ? 1 : 0; };
  const std::int64_t rows[] = {blocks(z.rows_q), blocks(z.rows_kv)};
  const auto tensor = [&](int limit, std::int64_t num_blocks, std::int64_t width) {
    const std::int64_t batch = full_or_1(in, z.batch), heads = full_or_1(in, z.heads);
    if (width < 0) return filled(in, limit, z.packed ? 2 : 3, 0, batch, heads, num_blocks);
    return filled(in, limit, z.packed ? 3 : 4, batch, heads, num_blocks, width);
  };
  for (isoflash_block_lists* lists : {&d.forward, &d.backward})
    for (isoflash_block_list* list : {&lists->mask, &lists->full, &lists->diag}) {
      if (in.up_to(1)) continue;
      const std::int64_t num_blocks = rows[lists == &d.backward];
      list->counts = tensor(1, num_blocks, -1);
      list->indices = tensor(1, num_blocks, in.up_to(2));
    }
  if (in.up_to(3) != 3) return;
  d.valid_upper = tensor(64, rows[0] > rows[1] ? rows[0] : rows[1], -1);
  d.valid_lower = tensor(64, rows[0] > rows[1] ? rows[0] : rows[1], -1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes in(data, size);
  static std::int32_t values[kArrays][kMaxBatch + 1];

  isoflash_problem p;
  isoflash_problem_init(&p);
  const bool packed = in.up_to(1) != 0;
  const std::int64_t batch = in.up_to(kMaxBatch), heads_kv = 1 + in.up_to(3), heads = heads_kv * in.up_to(4);
  const std::int64_t rows_q = in.up_to(40), rows_kv = in.up_to(40), dim = 1 + in.up_to(255), dim_v = 1 + in.up_to(255);
  const auto dtype = static_cast<isoflash_dtype>(in.up_to(2));
  const std::int32_t rank = packed ? 3 : 4;
  p.q = contiguous(dtype, rank, batch, rows_q, heads, dim);
  p.k = contiguous(dtype, rank, batch, rows_kv, heads_kv, dim);
  p.v = contiguous(dtype, rank, batch, rows_kv, heads_kv, dim_v);
  p.out = contiguous(dtype, rank, batch, rows_q, heads, dim_v);
  p.lse = contiguous(ISOFLASH_F32, rank - 1, 0, batch, heads, rows_q);
  pool_used = 0;

  // Length arrays, each given or not; cu_seqlens often right.
  isoflash_tensor* arrays[kArrays] = {&p.cu_seqlens_q,
                                      &p.cu_seqlens_kv,
                                      &p.seqused_q,
                                      &p.seqused_kv,
                                      &p.mask.num_context.values,
                                      &p.mask.history_len.values,
                                      &p.mask.num_candidates.values,
                                      &p.mask.history_begin.values,
                                      &p.mask.history_end.values,
                                      &p.mask.candidate_begin.values,
                                      &p.mask.query_offset.values};
  for (int n = 0; n < kArrays; ++n) {
    const bool cumulative = n < 2;
    for (std::int64_t b = 0; b <= kMaxBatch; ++b)
      values[n][b] = in.up_to(15) == 15 ? in.take<std::int32_t>() : static_cast<std::int32_t>(in.up_to(12));
    if (cumulative && in.up_to(3) != 3) {
      values[n][0] = 0;
      for (std::int64_t b = 1; b <= batch; ++b) values[n][b] = values[n][b - 1] + static_cast<std::int32_t>(in.up_to(9));
      (n == 0 ? p.q : p.k).shape[0] = values[n][batch];
    }
    if (cumulative ? packed : in.up_to(3) == 3) *arrays[n] = array(values[n], cumulative ? batch + 1 : batch);
  }
  if (packed) {
    p.out.shape[0] = p.lse.shape[1] = p.q.shape[0];
    p.v.shape[0] = p.k.shape[0];
  }
  p.mask.history_kind = static_cast<std::int32_t>(in.up_to(2));

  const Sizes sizes{packed, batch, heads, packed ? p.q.shape[0] : rows_q, packed ? p.k.shape[0] : rows_kv};
  const auto extra = in.take<std::uint8_t>();
  if (extra & 1) p.mask = default_mask(), add_intervals(in, sizes, p);
  if (extra & 2) add_blocks(in, sizes, p);
  if (extra & 4) {
    const std::int64_t pages = in.up_to(5), page_size = in.up_to(7), max_pages = in.up_to(4);
    p.k = contiguous(dtype, 4, pages, page_size, heads_kv, dim);
    p.v = contiguous(dtype, 4, pages, page_size, heads_kv, dim_v);
    p.block_table = filled(in, 4, 2, 0, 0, batch, max_pages);
    p.cu_seqlens_kv.rank = in.up_to(7) == 7 ? p.cu_seqlens_kv.rank : 0;
    p.seqused_kv = array(values[3], batch);
  }
  if (extra & 8) {
    p.k_new = contiguous(dtype, rank, batch, sizes.rows_q, heads_kv, dim);
    p.v_new = contiguous(dtype, rank, batch, sizes.rows_q, heads_kv, dim_v);
  }
  if (extra & 16) p.sink = contiguous(ISOFLASH_F32, 1, 0, 0, 0, heads);
  if (extra & 32) {
    const std::int64_t shared_batch = full_or_1(in, batch), shared_heads = full_or_1(in, heads);
    p.bias = contiguous(ISOFLASH_F32, rank, shared_batch, shared_heads, full_or_1(in, sizes.rows_q), rows_kv);
  }

  std::vector<Fixed> fixed;
  for (isoflash_tensor* t : arrays) fixed.push_back({t, *t});
  for (isoflash_block_lists* lists : {&p.blocks.forward, &p.blocks.backward})
    for (isoflash_block_list* list : {&lists->mask, &lists->full, &lists->diag})
      for (isoflash_tensor* t : {&list->counts, &list->indices}) fixed.push_back({t, *t});
  for (isoflash_tensor* t : {&p.row_intervals, &p.blocks.valid_upper, &p.blocks.valid_lower, &p.block_table})
    fixed.push_back({t, *t});
  for (int writes = 0; writes < 8 && !in.empty(); ++writes) {
    const std::size_t word = in.take<std::uint16_t>() % (sizeof p / 4);
    const auto value = in.up_to(1) ? in.take<std::int32_t>() : static_cast<std::int32_t>(in.take<std::int8_t>());
    std::memcpy(reinterpret_cast<char*>(&p) + 4 * word, &value, 4);
  }
  for (const auto& [at, kept] : fixed) {
    const isoflash_tensor written = *at;
    *at = kept;
    // These may be anything without a read outside the array.
    at->rank = kept.rank == 0 ? 0 : written.rank;
    at->dtype = written.dtype;
    at->device_type = written.device_type;
  }
  // A struct_size between this version's size and far beyond promises memory that is not here.
  if (p.struct_size > sizeof p && p.struct_size < 2 * sizeof p + 4096) p.struct_size = sizeof p;
  // Planning takes time and memory per sequence, as it must; a batch of millions is for another test.
  if (p.q.rank == 4 && p.q.shape[0] > 4096) p.q.shape[0] = 4096;

  isoflash_error* error = isoflash_error_create();
  isoflash_plan* plan = nullptr;
  const isoflash_status status = isoflash_plan_create(&p, nullptr, &plan, error);
  const bool consistent = (status == ISOFLASH_OK) == (plan != nullptr) && isoflash_error_id(error) == status &&
                          (*isoflash_error_message(error) == '\0') == (status == ISOFLASH_OK);
  if (!consistent) std::abort();
  isoflash_plan_destroy(plan);
  isoflash_error_destroy(error);
  return 0;
}
