#include "kernel_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/cp_async.h"
#include "kernels/gemm.h"
#include "kernels/multicast.h"
#include "kernels/ordered_sum.h"

namespace iso::test {
namespace {

using emu::LaunchConfig;
using emu::Swizzle;
using emu::TensorType;

constexpr double kLog2E = 1.4426950408889634;
const float kNaN = std::numeric_limits<float>::quiet_NaN();

double worst_error(const std::vector<float>& got, const std::vector<double>& expected) {
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); i++) {
    largest = std::max(largest, std::fabs(expected[i]));
    const double difference = std::fabs(got[i] - expected[i]);
    error = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(error, difference);
  }
  return error / largest;
}

std::vector<double> doubles(const std::vector<bf16>& values) {
  std::vector<double> out;
  for (const bf16 x : values) out.push_back(to_float(x));
  return out;
}

// out[i][j] = sum over d of a[i][d] b[j][d]
std::vector<double> dots(const std::vector<double>& a, const std::vector<double>& b, u32 dim) {
  const std::size_t m = a.size() / dim, n = b.size() / dim;
  std::vector<double> out(m * n);
  for (std::size_t i = 0; i < m; i++)
    for (std::size_t j = 0; j < n; j++)
      for (u32 d = 0; d < dim; d++) out[i * n + j] += a[i * dim + d] * b[j * dim + d];
  return out;
}

struct Attention {
  std::vector<double> p;  // [queries][keys]
  std::vector<double> lse_log2;
};

Attention attention(const std::vector<double>& q, const std::vector<double>& k, u32 dim, double scale) {
  const std::size_t m = q.size() / dim, n = k.size() / dim;
  Attention a{dots(q, k, dim), {}};
  for (std::size_t i = 0; i < m; i++) {
    double *row = &a.p[i * n], maximum = *std::max_element(row, row + n), sum = 0;
    for (std::size_t j = 0; j < n; j++) sum += row[j] = std::exp(scale * (row[j] - maximum));
    for (std::size_t j = 0; j < n; j++) row[j] /= sum;
    a.lse_log2.push_back((scale * maximum + std::log(sum)) * kLog2E);
  }
  return a;
}

// out[i][d] = sum over j of w[i][j] x[j][d]; with `transposed`, w[j][i].
std::vector<double> weighted(const std::vector<double>& w, const std::vector<double>& x, u32 dim, bool transposed) {
  const std::size_t n = x.size() / dim, m = w.size() / n;
  std::vector<double> out(m * dim);
  for (std::size_t i = 0; i < m; i++)
    for (std::size_t j = 0; j < n; j++)
      for (u32 d = 0; d < dim; d++) out[i * dim + d] += (transposed ? w[j * m + i] : w[i * n + j]) * x[j * dim + d];
  return out;
}

instr::TensorMap vector_map(const std::vector<float>& values, u32 box) {
  emu::TensorMapFields f;
  f.address = reinterpret_cast<u64>(values.data());
  f.type = TensorType::f32;
  f.rank = 1;
  f.size[0] = values.size();
  f.stride[0] = 4;
  f.box[0] = box;
  f.element_stride[0] = 1;
  instr::TensorMap map;
  EXPECT_EQ(emu::encode(f, map.bits), "");
  return map;
}

instr::TensorMap rows_map(const std::vector<bf16>& values, u32 columns, u32 box_rows) {
  return tensor_map_2d(values.data(), TensorType::bf16, values.size() / columns, columns, box_rows, 64, Swizzle::b128);
}

}  // namespace

KernelRun gemm_run(u32 m, u32 n, u32 k) {
  const std::vector<bf16> a = random_bf16(m * k, 1), b = random_bf16(n * k, 2);
  const std::vector<double> expected = dots(doubles(a), doubles(b), k);
  return {"gemm",
          [=](LaunchConfig config) -> KernelResult {
            std::vector<float> c(m * n, kNaN);
            Memory memory;
            memory.add(a, "a");
            memory.add(b, "b");
            memory.add(c, "c", emu::Contents::uninitialised);
            const GemmParams params{rows_map(a, k, 64), rows_map(b, k, 64),
                                    tensor_map_2d(c.data(), TensorType::f32, m, n, 64, 64, Swizzle::none), k};
            config.grid = {n / 64, m / 64, 1};
            config.threads = GemmConfig::kThreads;
            config.shared_bytes = sizeof(GemmStorage<GemmConfig>);
            auto launch = emu::launch(config, memory.get(), [&] { gemm<GemmConfig>(params); });
            return {launch, worst_error(c, expected)};
          },
          1e-5};
}

KernelRun attention_forward_run(u32 num_queries, u32 num_keys) {
  using Config = AttentionForwardConfig;
  constexpr u32 kDim = Config::kHeadDim;
  const double scale = 0.125;
  const std::vector<bf16> q = random_bf16(num_queries * kDim, 3), k = random_bf16(num_keys * kDim, 4),
                          v = random_bf16(num_keys * kDim, 5);
  const Attention reference = attention(doubles(q), doubles(k), kDim, scale);
  const std::vector<double> expected = weighted(reference.p, doubles(v), kDim, false);
  return {"attention_forward",
          [=](LaunchConfig config) -> KernelResult {
            std::vector<float> out(num_queries * kDim, kNaN), lse(num_queries, kNaN);
            Memory memory;
            memory.add(q, "q");
            memory.add(k, "k");
            memory.add(v, "v");
            memory.add(out, "out", emu::Contents::uninitialised);
            memory.add(lse, "lse", emu::Contents::uninitialised);
            const AttentionForwardParams params{rows_map(q, kDim, 128),
                                                rows_map(k, kDim, 128),
                                                rows_map(v, kDim, 128),
                                                out.data(),
                                                lse.data(),
                                                num_keys,
                                                static_cast<float>(scale * kLog2E)};
            config.grid = {num_queries / Config::kTileM, 1, 1};
            config.threads = Config::kThreads;
            config.shared_bytes = sizeof(AttentionForwardStorage<Config>);
            auto launch = emu::launch(config, memory.get(), [&] { attention_forward<Config>(params); });
            return {launch, std::max(worst_error(out, expected), worst_error(lse, reference.lse_log2))};
          },
          8e-3};
}

KernelRun attention_backward_run(u32 num_queries, u32 num_keys) {
  using Config = AttentionBackwardConfig;
  constexpr u32 kDim = Config::kHeadDim;
  const double scale = 1 / std::sqrt(static_cast<double>(kDim));
  const std::vector<bf16> q = random_bf16(num_queries * kDim, 11), k = random_bf16(num_keys * kDim, 12),
                          v = random_bf16(num_keys * kDim, 13), dout = random_bf16(num_queries * kDim, 14);
  const Attention reference = attention(doubles(q), doubles(k), kDim, scale);
  std::vector<double> ds = dots(doubles(dout), doubles(v), kDim);  // dP until it becomes dS below
  std::vector<float> lse(reference.lse_log2.begin(), reference.lse_log2.end()), delta;
  for (u32 i = 0; i < num_queries; i++) {
    double sum = 0;
    for (u32 j = 0; j < num_keys; j++) sum += reference.p[i * num_keys + j] * ds[i * num_keys + j];
    for (u32 j = 0; j < num_keys; j++)
      ds[i * num_keys + j] = scale * reference.p[i * num_keys + j] * (ds[i * num_keys + j] - sum);
    delta.push_back(static_cast<float>(sum));
  }
  const std::vector<double> expected_dq = weighted(ds, doubles(k), kDim, false),
                            expected_dk = weighted(ds, doubles(q), kDim, true),
                            expected_dv = weighted(reference.p, doubles(dout), kDim, true);
  return {"attention_backward",
          [=](LaunchConfig config) -> KernelResult {
            std::vector<float> dq(num_queries * kDim, 0.0f), dk(num_keys * kDim, kNaN), dv(num_keys * kDim, kNaN);
            Memory memory;
            for (const auto& [tensor, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}, {&dout, "dout"}})
              memory.add(*tensor, name);
            memory.add(lse, "lse");
            memory.add(delta, "delta");
            memory.add(dq, "dq");
            memory.add(dk, "dk", emu::Contents::uninitialised);
            memory.add(dv, "dv", emu::Contents::uninitialised);
            const AttentionBackwardParams params{
                rows_map(k, kDim, 128),
                rows_map(v, kDim, 128),
                rows_map(q, kDim, 64),
                rows_map(dout, kDim, 64),
                vector_map(lse, 64),
                vector_map(delta, 64),
                tensor_map_2d(dq.data(), TensorType::f32, num_queries, kDim, 64, 64, Swizzle::none),
                dk.data(),
                dv.data(),
                num_queries,
                static_cast<float>(scale)};
            config.grid = {num_keys / Config::kTileN, 1, 1};
            config.threads = Config::kThreads;
            config.shared_bytes = sizeof(AttentionBackwardStorage<Config>);
            auto launch = emu::launch(config, memory.get(), [&] { attention_backward<Config>(params); });
            return {launch,
                    std::max({worst_error(dq, expected_dq), worst_error(dk, expected_dk), worst_error(dv, expected_dv)})};
          },
          1e-2};
}

KernelRun multicast_run() {
  using Config = MulticastConfig;
  constexpr u32 kTiles = 7, kElements = Config::kTile * Config::kTile;
  std::vector<float> in(kTiles * kElements);
  std::vector<double> expected(kElements);
  for (std::size_t i = 0; i < in.size(); i++) expected[i % kElements] += in[i] = static_cast<float>(i * 7919 % 101);
  return {"multicast",
          [=](LaunchConfig config) -> KernelResult {
            std::vector<float> out(kElements, kNaN);
            Memory memory;
            memory.add(in, "in");
            memory.add(out, "out", emu::Contents::uninitialised);
            const MulticastParams params{tensor_map_2d(in.data(), TensorType::f32, kTiles * Config::kTile, Config::kTile,
                                                       Config::kPartRows, Config::kTile, Swizzle::none),
                                         out.data(), kTiles};
            config.grid = config.cluster = {Config::kClusterSize, 1, 1};
            config.threads = Config::kThreads;
            config.shared_bytes = sizeof(MulticastStorage<Config>);
            auto launch = emu::launch(config, memory.get(), [&] { multicast<Config>(params); });
            return {launch, worst_error(out, expected)};
          },
          0};
}

KernelRun cp_async_run() {
  using Config = CpAsyncConfig;
  constexpr u32 kTiles = 8;
  std::vector<float> in(kTiles * Config::kTile);
  std::vector<double> expected(2 * Config::kTile);
  for (std::size_t i = 0; i < in.size(); i++) {
    in[i] = static_cast<float>(i * 31 % 17);
    expected[i % Config::kTile] += in[i];
    expected[Config::kTile + i % Config::kTile] += in[i];
  }
  return {"cp_async",
          [=](LaunchConfig config) -> KernelResult {
            std::vector<float> out(2 * Config::kTile, kNaN);
            Memory memory;
            memory.add(in, "in");
            memory.add(out, "out", emu::Contents::uninitialised);
            const CpAsyncParams params{in.data(), out.data(), kTiles};
            config.threads = Config::kThreads;
            config.shared_bytes = sizeof(CpAsyncStorage<Config>);
            auto launch = emu::launch(config, memory.get(), [&] { cp_async_kernel<Config>(params); });
            return {launch, worst_error(out, expected)};
          },
          0};
}

KernelRun ordered_sum_run() {
  constexpr u32 kItems = 9;
  std::vector<float> in(kItems * 32);
  std::vector<double> expected(32);
  for (std::size_t i = 0; i < in.size(); i++) expected[i % 32] += in[i] = static_cast<float>(i % 13);
  return {"ordered_sum",
          [=](LaunchConfig config) -> KernelResult {
            std::vector<float> sum(32, 0.0f);
            std::vector<u32> next(1, 0u), turn(1, 0u);
            Memory memory;
            memory.add(in, "in");
            memory.add(sum, "sum");
            memory.add(next, "next_item");
            memory.add(turn, "turn");
            const OrderedSumParams params{in.data(), sum.data(), next.data(), turn.data(), kItems};
            config.grid = {4, 1, 1};
            config.threads = 32;
            config.resident_ctas = 3;
            auto launch = emu::launch(config, memory.get(), [&] { ordered_sum(params); });
            return {launch, worst_error(sum, expected)};
          },
          0};
}

std::vector<KernelRun> all_small_runs() {
  return {gemm_run(128, 128, 320),
          attention_forward_run(256, 640),
          attention_backward_run(192, 256),
          multicast_run(),
          cp_async_run(),
          ordered_sum_run()};
}

}  // namespace iso::test
