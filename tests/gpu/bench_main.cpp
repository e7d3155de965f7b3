// Times the kernels of src/kernels/common on the first GPU: median milliseconds and GB/s of what must be read and written,
// beside a copy of the same size by the driver.
//   bench_common_kernels [times]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "gpu/gpu.h"
#include "instances/row_schedule.h"

namespace iso::test {
namespace {

struct Shape {
  const char* name;
  i64 batch, seqlen;
  i32 num_heads, head_dim;
  TileOrder order;
};

constexpr Shape kShapes[] = {
    {"home 64 x 1152, 20 heads, d 128", 64, 1152, 20, 128, {80, 16, 5}},
    {"home, one head a tile", 64, 1152, 20, 128, {128, 128, 1}},
    {"nano 128 x 1088, 4 heads, d 128", 128, 1088, 4, 128, {80, 40, 2}},
    {"64 x 1152, 20 heads, d 64", 64, 1152, 20, 64, {128, 128, 1}},
    {"16 x 4608, 20 heads, d 192", 16, 4608, 20, 192, {80, 16, 5}},
};
constexpr i32 kParts = 4;

float median(std::vector<float> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

class Bench {
 public:
  Bench(Gpu& gpu, const Shape& shape, int times) : gpu_(gpu), shape_(shape), times_(times) {
    std::vector<Sequence> sequences(shape.batch);
    for (i64 b = 0; b < shape.batch; ++b) {
      sequences[b].q_batch = b;
      sequences[b].seqlen_q = sequences[b].slot_q = static_cast<i32>(shape.seqlen);
    }
    tables_ = make_row_schedule(sequences, shape.num_heads, shape.order);
    schedule_ = {
        static_cast<const RowBlock*>(gpu.upload(tables_.blocks.data(), tables_.blocks.size() * sizeof(RowBlock), "")),
        static_cast<const SequenceRows*>(
            gpu.upload(tables_.sequences.data(), tables_.sequences.size() * sizeof(SequenceRows), "")),
        tables_.positions_per_block, shape.num_heads};
  }
  ~Bench() { gpu_.clear(); }

  void run() {
    const i64 rows = shape_.batch * shape_.seqlen * shape_.num_heads, elements = rows * shape_.head_dim;
    const i64 tile_rows = tables_.num_tiles * shape_.order.tile_rows, accum_bytes = tile_rows * shape_.head_dim * 4;
    const RowTensor out = tensor(2), dout = tensor(2), parts = tensor(4 * kParts);
    const LseTensor lse = {static_cast<float*>(memory(rows * 4)), shape_.num_heads * shape_.seqlen, shape_.seqlen, 1};
    const LseTensor part_lse = {static_cast<float*>(memory(kParts * rows * 4)), shape_.num_heads * shape_.seqlen,
                                shape_.seqlen, 1};
    float* stats = static_cast<float*>(memory(2 * tile_rows * 4));
    float* accum = static_cast<float*>(memory(accum_bytes));
    BwdPreprocessParams pre{schedule_, shape_.order, out, dout, lse, {}, stats, nullptr, shape_.head_dim, shape_.head_dim};
    BwdPreprocessParams zeroing = pre;
    zeroing.dq_accum = accum;
    const DqConvertParams convert{schedule_, shape_.order, accum, out, shape_.head_dim, 0.1f};
    const SplitCombineParams combine{schedule_, parts, part_lse, elements, rows, out, lse, kParts, shape_.head_dim};
    SplitCombineParams combine16 = combine;
    const i64 pre_bytes = elements * 4 + rows * 4 + tile_rows * 8;

    fmt::print("{}\n", shape_.name);
    for (const char* variant : {"bf16", "f16"}) {
      line("bwd_preprocess", variant, &pre, pre_bytes);
      line("bwd_preprocess", variant, &zeroing, pre_bytes + accum_bytes, "with zeroing");
      line("dq_convert", variant, &convert, elements * 6);
    }
    for (const char* variant : {"f32_bf16", "f32_f16"})
      line("split_combine", variant, &combine, elements * (4 * kParts + 2) + rows * (4 * kParts + 4));
    for (const char* variant : {"bf16", "f16"})
      line("split_combine", variant, &combine16, elements * (2 * kParts + 2) + rows * (4 * kParts + 4));
    const float ms = median(gpu_.time(times_, [&] { gpu_.copy(out.data, dout.data, elements * 2); }));
    print("copy by the driver", "", ms, elements * 4);
  }

 private:
  void* memory(i64 bytes) {
    void* address = gpu_.upload(nullptr, bytes, "");
    gpu_.fill(address, 0, bytes);
    return address;
  }
  RowTensor tensor(i64 bytes) {
    const i64 head = shape_.head_dim, row = head * shape_.num_heads;
    return {memory(shape_.batch * shape_.seqlen * row * bytes), shape_.seqlen * row, row, head, 1, 1};
  }
  void line(const char* kernel, const char* variant, const void* params, i64 bytes, const char* note = "") {
    std::string fault = gpu_.run(kernel, variant, tables_.blocks.size(), params);
    const float ms = median(gpu_.time(times_, [&] {
      if (fault.empty()) fault = gpu_.launch(kernel, variant, tables_.blocks.size(), params);
    }));
    if (!fault.empty()) throw std::runtime_error(fault);
    print(fmt::format("{} {}", kernel, variant), note, ms, bytes);
  }
  static void print(const std::string& what, const char* note, float ms, i64 bytes) {
    fmt::print("  {:<26} {:<13} {:8.3f} ms {:8.0f} GB/s\n", what, note, ms, bytes / ms * 1e-6);
  }

  Gpu& gpu_;
  const Shape& shape_;
  int times_;
  RowScheduleTables tables_;
  RowSchedule schedule_;
};

int run(int times) {
  const Expected<std::unique_ptr<Gpu>> gpu = Gpu::open();
  if (!gpu) {
    fmt::print("no GPU to measure: {}\n", gpu.error().message());
    return 77;
  }
  fmt::print("{}, driver for CUDA {}, kernels by nvcc {}, median of {}, L2 flushed before each\n", (*gpu)->device().text(),
             (*gpu)->driver().version(), cubin_compiler(), times);
  for (const Shape& shape : kShapes) Bench(**gpu, shape, times).run();
  return 0;
}

}  // namespace
}  // namespace iso::test

int main(int argc, char** argv) {
  try {
    return iso::test::run(argc > 1 ? std::atoi(argv[1]) : 20);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_common_kernels: {}\n", error.what());
    return 1;
  }
}
