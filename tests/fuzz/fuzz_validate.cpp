// Any bytes as an isoflash_problem: making a plan must give a plan or an error, and neither crash nor hang. The input
// starts a valid problem, then says which of its numbers to overwrite with what; data pointers and the extent of the length
// arrays stay, since a caller has to get those right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

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
constexpr int kArrays = 11;

isoflash_tensor contiguous(isoflash_dtype dtype, std::int32_t rank, std::int64_t a, std::int64_t b, std::int64_t c,
                           std::int64_t d) {
  const std::int64_t shape[] = {a, b, c, d};
  isoflash_tensor t;
  isoflash_tensor_contiguous(&t, nullptr, dtype, rank, shape + (4 - rank));
  return t;
}

isoflash_tensor array(std::int32_t* values, std::int64_t count) {
  isoflash_tensor t;
  isoflash_tensor_contiguous(&t, values, ISOFLASH_I32, 1, &count);
  return t;
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

  isoflash_tensor kept[kArrays];
  for (int n = 0; n < kArrays; ++n) kept[n] = *arrays[n];
  for (int writes = 0; writes < 8 && !in.empty(); ++writes) {
    const std::size_t word = in.take<std::uint16_t>() % (sizeof p / 4);
    const auto value = in.up_to(1) ? in.take<std::int32_t>() : static_cast<std::int32_t>(in.take<std::int8_t>());
    std::memcpy(reinterpret_cast<char*>(&p) + 4 * word, &value, 4);
  }
  for (int n = 0; n < kArrays; ++n) {
    const isoflash_tensor written = *arrays[n];
    *arrays[n] = kept[n];
    // These may be anything without a read outside the array.
    arrays[n]->rank = kept[n].rank == 0 ? 0 : written.rank;
    arrays[n]->dtype = written.dtype;
    arrays[n]->device_type = written.device_type;
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
