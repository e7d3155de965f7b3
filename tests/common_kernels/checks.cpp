#include "common_kernels/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "instances/row_schedule.h"

namespace iso::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The case's sequences and what they need of tensors.
struct Batch {
  std::vector<Sequence> sequences;
  i64 entries, rows;  // of the tensors
};

Batch make_batch(const Case& c) {
  Batch batch{std::vector<Sequence>(c.lengths.size()), c.packed ? 1 : static_cast<i64>(c.lengths.size()), 0};
  std::vector<i32> slots = c.slots.empty() ? c.lengths : c.slots;
  if (!c.packed && c.slots.empty()) slots.assign(slots.size(), *std::max_element(slots.begin(), slots.end()));
  for (std::size_t b = 0; b < slots.size(); ++b) {
    Sequence& s = batch.sequences[b];
    s.seqlen_q = c.lengths[b];
    s.slot_q = slots[b];
    s.q_batch = c.packed ? 0 : static_cast<i64>(b);
    s.q_row_begin = c.packed ? batch.rows : 0;
    batch.rows = c.packed ? batch.rows + slots[b] : std::max<i64>(batch.rows, slots[b]);
  }
  return batch;
}

class Values {
 public:
  float operator()() { return normal_(engine_); }
  bool one_in(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_) == 0; }

 private:
  std::mt19937 engine_{7};
  std::normal_distribution<float> normal_;
};

RowSchedule upload_schedule(Machine& machine, const RowScheduleTables& tables, i64 num_heads) {
  const auto copy = [&](const auto& table, const char* name) {
    return machine.upload(table.data(), table.size() * sizeof table[0], name);
  };
  return {static_cast<const RowBlock*>(copy(tables.blocks, "blocks")),
          static_cast<const SequenceRows*>(copy(tables.sequences, "sequences")), tables.positions_per_block,
          static_cast<i32>(num_heads)};
}

// Calls visit(sequence index, row of the slot, head).
template <class Visit>
void for_each_row(const Batch& batch, i64 num_heads, const Visit& visit) {
  for (std::size_t b = 0; b < batch.sequences.size(); ++b)
    for (i32 i = 0; i < batch.sequences[b].slot_q; ++i)
      for (i64 h = 0; h < num_heads; ++h) visit(b, i, h);
}

// First element of a row in the arrays in tile order, counted in rows.
i64 tile_row_index(const RowScheduleTables& tables, const TileOrder& order, std::size_t b, i32 i, i64 h) {
  const SequenceRows& s = tables.sequences[b];
  const i64 tile = s.first_tile + h / order.heads_per_tile * s.num_tiles + i / order.positions_per_tile;
  return tile * order.tile_rows + i % order.positions_per_tile * order.heads_per_tile + h % order.heads_per_tile;
}

// Equal bit for bit, every NaN alike.
bool same(float a, float b) { return (a != a && b != b) || float_bits(a) == float_bits(b); }
template <class T>
bool same(T a, T b) {
  return same(to_float(a), to_float(b));
}

template <class T>
std::string compare_exactly(const char* what, std::vector<T> got, const std::vector<T>& expected) {
  for (std::size_t n = 0; n < got.size(); ++n)
    if (!same(got[n], expected[n]) && std::memcmp(&got[n], &expected[n], sizeof(T)) != 0)
      return fmt::format("{}: element {} of {} is {}, expected {}", what, n, got.size(), to_float(got[n]),
                         to_float(expected[n]));
  return "";
}

// Inputs of a row: NaN where the row is not in use, so that reading it shows.
template <class T>
void poison_unused(const Batch& batch, const Case& c, HostTensor<T>& t, i64 dim) {
  if (c.inputs == Strides::expanded) return;
  for_each_row(batch, c.num_heads, [&](std::size_t b, i32 i, i64 h) {
    const Sequence& s = batch.sequences[b];
    if (i >= s.seqlen_q)
      for (i64 d = 0; d < dim; ++d) t.at(s.q_batch, s.q_row_begin + i, h, d) = from_float<T>(kNaN);
  });
}

template <class T>
std::string preprocess(Machine& machine, const Case& c, const std::string& variant) {
  const Batch batch = make_batch(c);
  const RowScheduleTables tables = make_row_schedule(batch.sequences, c.num_heads, c.order);
  Values values;
  HostTensor<T> out(batch.entries, batch.rows, c.num_heads, c.head_dim_v,
                    c.inputs == Strides::expanded ? Strides::odd : c.inputs);
  HostTensor<T> dout(batch.entries, batch.rows, c.num_heads, c.head_dim_v, c.inputs);
  HostLse lse(batch.entries, c.num_heads, batch.rows), dlse(batch.entries, c.num_heads, batch.rows);
  out.fill(values);
  dout.fill(values);
  poison_unused(batch, c, out, c.head_dim_v);
  poison_unused(batch, c, dout, c.head_dim_v);

  // Rows in tile order; what stands for no query keeps +inf and 0.
  const i64 rows = tables.num_tiles * c.order.tile_rows;
  std::vector<float> lse_log2(rows, kInfinity);
  std::vector<double> delta(rows, 0.0), bound(rows, 0.0);
  for_each_row(batch, c.num_heads, [&](std::size_t b, i32 i, i64 h) {
    const Sequence& s = batch.sequences[b];
    const i64 row = s.q_row_begin + i;
    const bool blind = values.one_in(7);
    float& l = lse.at(s.q_batch, h, row) = i >= s.seqlen_q ? kNaN : blind ? -kInfinity : values() * 10;
    const float g = dlse.at(s.q_batch, h, row) = values();
    // What such a row's gradient holds must not matter.
    if (blind && i < s.seqlen_q && c.inputs != Strides::expanded) dout.at(s.q_batch, row, h, 0) = from_float<T>(kNaN);
    if (i >= s.seqlen_q || blind) return;
    const i64 n = tile_row_index(tables, c.order, b, i, h);
    lse_log2[n] = l * static_cast<float>(1.4426950408889634);
    for (i64 d = 0; d < c.head_dim_v; ++d) {
      const double product =
          static_cast<double>(to_float(out.at(s.q_batch, row, h, d))) * to_float(dout.at(s.q_batch, row, h, d));
      delta[n] += product;
      bound[n] += std::fabs(product);
    }
    if (c.dlse) delta[n] -= g, bound[n] += std::fabs(g);
  });

  machine.clear();
  BwdPreprocessParams p{};
  p.schedule = upload_schedule(machine, tables, c.num_heads);
  p.order = c.order;
  p.out = out.upload(machine, "out");
  p.dout = dout.upload(machine, "dout");
  p.lse = lse.upload(machine, "lse");
  if (c.dlse) p.dlse = dlse.upload(machine, "dlse");
  p.stats = static_cast<float*>(machine.upload(nullptr, 2 * rows * sizeof(float), "stats"));
  std::vector<float> accum(rows * c.head_dim, kNaN);
  if (c.zero_accum) p.dq_accum = static_cast<float*>(machine.upload(nullptr, accum.size() * sizeof(float), "dq_accum"));
  p.head_dim = c.head_dim;
  p.head_dim_v = c.head_dim_v;
  if (std::string fault = machine.run("bwd_preprocess", variant, tables.blocks.size(), &p); !fault.empty()) return fault;

  std::vector<float> stats(2 * rows);
  machine.download(stats.data(), p.stats, stats.size() * sizeof(float));
  for (i64 n = 0; n < rows; ++n) {
    const i64 tile = n / c.order.tile_rows, row = n % c.order.tile_rows, at = 2 * tile * c.order.tile_rows + row;
    if (!same(stats[at], lse_log2[n]))
      return fmt::format("stats: lse of tile {} row {} is {}, expected {}", tile, row, stats[at], lse_log2[n]);
    const float got = stats[at + c.order.tile_rows];
    // Sums of head_dim_v products in float32, in any order.
    if (!(std::fabs(got - delta[n]) <= 1e-6 * bound[n]))
      return fmt::format("stats: D of tile {} row {} is {}, expected {} +- {}", tile, row, got, delta[n], 1e-6 * bound[n]);
  }
  if (!c.zero_accum) return "";
  machine.download(accum.data(), p.dq_accum, accum.size() * sizeof(float));
  return compare_exactly("dq_accum", accum, std::vector<float>(accum.size(), 0.0f));
}

template <class T>
std::string convert(Machine& machine, const Case& c, const std::string& variant) {
  const Batch batch = make_batch(c);
  const RowScheduleTables tables = make_row_schedule(batch.sequences, c.num_heads, c.order);
  Values values;
  const float scale = 0.125f * 1.1f;
  std::vector<float> accum(tables.num_tiles * c.order.tile_rows * c.head_dim);
  // The second factor reaches overflow and subnormal numbers of float16.
  for (float& x : accum) x = values() * (values.one_in(5) ? 1e6f : values.one_in(5) ? 1e-6f : 1.0f);
  if (!accum.empty()) accum[0] = kNaN;
  HostTensor<T> dq(batch.entries, batch.rows, c.num_heads, c.head_dim, c.outputs), expected = dq;
  for_each_row(batch, c.num_heads, [&](std::size_t b, i32 i, i64 h) {
    const Sequence& s = batch.sequences[b];
    const i64 from = i < s.seqlen_q ? tile_row_index(tables, c.order, b, i, h) * c.head_dim : 0;
    for (i64 d = 0; d < c.head_dim; ++d)
      expected.at(s.q_batch, s.q_row_begin + i, h, d) = from_float<T>(i < s.seqlen_q ? accum[from + d] * scale : 0.0f);
  });

  machine.clear();
  DqConvertParams p{};
  p.schedule = upload_schedule(machine, tables, c.num_heads);
  p.order = c.order;
  p.dq_accum = static_cast<const float*>(machine.upload(accum.data(), accum.size() * sizeof(float), "dq_accum"));
  p.dq = dq.upload(machine, "dq");
  p.head_dim = c.head_dim;
  p.scale = scale;
  if (std::string fault = machine.run("dq_convert", variant, tables.blocks.size(), &p); !fault.empty()) return fault;
  return compare_exactly("dq", dq.download(machine), expected.memory());
}

template <class Part, class Out>
std::string combine(Machine& machine, const Case& c, const std::string& variant) {
  const Batch batch = make_batch(c);
  const RowScheduleTables tables = make_row_schedule(batch.sequences, c.num_heads, {1, 1, 1});
  Values values;
  // The parts stand one after another on the batch axis.
  HostTensor<Part> parts(c.num_parts * batch.entries, batch.rows, c.num_heads, c.head_dim_v,
                         c.inputs == Strides::expanded ? Strides::odd : c.inputs);
  HostLse part_lse(c.num_parts * batch.entries, c.num_heads, batch.rows);
  HostTensor<Out> out(batch.entries, batch.rows, c.num_heads, c.head_dim_v, c.outputs), expected = out;
  HostLse lse(batch.entries, c.num_heads, batch.rows), expected_lse = lse;
  parts.fill(values);
  std::vector<double> exact(out.memory().size(), 0.0), tolerance = exact;
  for_each_row(batch, c.num_heads, [&](std::size_t b, i32 i, i64 h) {
    const Sequence& s = batch.sequences[b];
    const i64 row = s.q_row_begin + i;
    const bool all_blind = values.one_in(9), faulty = values.one_in(11), large = values.one_in(5);
    double max = -kInfinity, sum = 0.0;
    for (i32 n = 0; n < c.num_parts; ++n) {
      const i64 entry = n * batch.entries + s.q_batch;
      float& l = part_lse.at(entry, h, row) = i >= s.seqlen_q                 ? kNaN
                                              : all_blind || values.one_in(4) ? -kInfinity
                                                                              : values() * 3 + (large ? 3e4f : 0.0f);
      if (l == -kInfinity || i >= s.seqlen_q)
        for (i64 d = 0; d < c.head_dim_v; ++d) parts.at(entry, row, h, d) = from_float<Part>(kNaN);
      if (l != -kInfinity && faulty && i < s.seqlen_q) l = kNaN;
      if (l != l || l > max) max = l;  // NaN stays
    }
    for (i32 n = 0; n < c.num_parts; ++n)
      if (max != -kInfinity) sum += std::exp(part_lse.at(n * batch.entries + s.q_batch, h, row) - max);
    const bool used = i < s.seqlen_q && max != -kInfinity;
    expected_lse.at(s.q_batch, h, row) = used ? static_cast<float>(max + std::log(sum)) : -kInfinity;
    for (i64 d = 0; d < c.head_dim_v; ++d) {
      double x = 0.0, size = 0.0;
      for (i32 n = 0; n < c.num_parts && used; ++n) {
        const i64 entry = n * batch.entries + s.q_batch;
        const float l = part_lse.at(entry, h, row);
        if (l == -kInfinity) continue;
        const double term = std::exp(l - max) / sum * to_float(parts.at(entry, row, h, d));
        x += term, size += std::fabs(term);
      }
      Out& e = expected.at(s.q_batch, row, h, d) = from_float<Out>(static_cast<float>(x));
      const std::size_t n = &e - expected.memory().data();
      exact[n] = x;
      // Powers of two and logarithms of the hardware (2^-22), sums in float32, one rounding to the type of out.
      tolerance[n] = 2e-6 * size;
    }
  });

  machine.clear();
  SplitCombineParams p{};
  p.schedule = upload_schedule(machine, tables, c.num_heads);
  p.part_out = parts.upload(machine, "part_out");
  p.part_lse = part_lse.upload(machine, "part_lse");
  p.stride_part_out = batch.entries * p.part_out.stride_batch;
  p.stride_part_lse = batch.entries * p.part_lse.stride_batch;
  p.out = out.upload(machine, "out");
  if (c.write_lse) p.lse = lse.upload(machine, "lse");
  p.num_parts = c.num_parts;
  p.head_dim_v = c.head_dim_v;
  if (std::string fault = machine.run("split_combine", variant, tables.blocks.size(), &p); !fault.empty()) return fault;

  const std::vector<Out> got = out.download(machine);
  const float unit = sizeof(Out) == 4 ? 0.0f : std::is_same_v<Out, bf16> ? 0x1p-8f : 0x1p-11f;
  for (std::size_t n = 0; n < got.size(); ++n) {
    if (std::memcmp(&got[n], &expected.memory()[n], sizeof(Out)) == 0) continue;
    const double x = to_float(got[n]);
    if (x != x && exact[n] != exact[n]) continue;
    if (!(std::fabs(x - exact[n]) <= tolerance[n] + unit * std::fabs(exact[n]) + 0x1p-25))
      return fmt::format("out: element {} of {} is {}, expected {}", n, got.size(), x, exact[n]);
  }
  if (!c.write_lse) return "";
  const std::vector<float> got_lse = lse.download(machine);
  for (std::size_t n = 0; n < got_lse.size(); ++n) {
    const float x = got_lse[n], e = expected_lse.memory()[n];
    if (!same(x, e) && !(std::fabs(x - e) <= 1e-6f * (1.0f + std::fabs(e))))
      return fmt::format("lse: element {} of {} is {}, expected {}", n, got_lse.size(), x, e);
  }
  return "";
}

}  // namespace

std::vector<Case> small_cases() {
  std::vector<Case> cases = {
      {.name = "dense", .lengths = {70, 70}},
      {.name = "dense_seqused", .lengths = {70, 0, 33}, .slots = {70, 70, 70}, .dlse = true},
      {.name = "packed", .packed = true, .lengths = {5, 130, 0, 64, 1}, .dlse = true},
      {.name = "packed_seqused", .packed = true, .lengths = {5, 60}, .slots = {80, 61}},
      {.name = "head_groups", .lengths = {41, 7}, .slots = {41, 41}, .num_heads = 10, .order = {80, 16, 5}},
      {.name = "idle_rows", .packed = true, .lengths = {50, 21}, .num_heads = 6, .order = {64, 21, 3}},
      {.name = "many_heads", .lengths = {3}, .num_heads = 300, .head_dim = 8, .head_dim_v = 8, .order = {4, 4, 1}},
      {.name = "one_row", .lengths = {1}, .num_heads = 1},
      {.name = "empty", .lengths = {0, 0}, .slots = {4, 2}},
      {.name = "d8", .lengths = {37}, .head_dim = 8, .head_dim_v = 16},
      {.name = "d80", .lengths = {37}, .head_dim = 80, .head_dim_v = 80},
      {.name = "d128", .lengths = {37, 12}, .head_dim = 128, .head_dim_v = 128, .dlse = true},
      {.name = "d192_128", .lengths = {37}, .head_dim = 192, .head_dim_v = 128},
      {.name = "d64_256", .lengths = {19}, .head_dim = 64, .head_dim_v = 256, .zero_accum = false},
      {.name = "d256", .lengths = {19}, .head_dim = 256, .head_dim_v = 248, .write_lse = false},
      {.name = "padded", .lengths = {37, 5}, .inputs = Strides::padded, .outputs = Strides::padded},
      {.name = "odd",
       .lengths = {37, 5},
       .head_dim = 72,
       .head_dim_v = 72,
       .inputs = Strides::odd,
       .outputs = Strides::odd},
      {.name = "reversed", .lengths = {37, 5}, .inputs = Strides::reversed},
      {.name = "expanded", .lengths = {37, 5}, .inputs = Strides::expanded, .dlse = true},
      {.name = "one_part", .lengths = {37}, .num_parts = 1},
      {.name = "many_parts", .lengths = {9}, .num_parts = 33},
  };
  return cases;
}

std::vector<Case> large_cases() {
  std::vector<i32> ragged;
  for (i32 b = 0; b < 200; ++b) ragged.push_back(b * 37 % 301);
  return {
      {.name = "large_dense",
       .lengths = std::vector<i32>(8, 1152),
       .num_heads = 20,
       .head_dim = 128,
       .head_dim_v = 128,
       .order = {80, 16, 5},
       .dlse = true},
      {.name = "large_packed",
       .packed = true,
       .lengths = ragged,
       .num_heads = 8,
       .head_dim = 64,
       .head_dim_v = 64,
       .order = {128, 128, 1}},
  };
}

std::string check_bwd_preprocess(Machine& machine, const Case& c, const std::string& variant) {
  return variant == "bf16" ? preprocess<bf16>(machine, c, variant) : preprocess<f16>(machine, c, variant);
}

std::string check_dq_convert(Machine& machine, const Case& c, const std::string& variant) {
  return variant == "bf16" ? convert<bf16>(machine, c, variant) : convert<f16>(machine, c, variant);
}

std::string check_split_combine(Machine& machine, const Case& c, const std::string& variant) {
  if (variant == "f32_bf16") return combine<float, bf16>(machine, c, variant);
  if (variant == "f32_f16") return combine<float, f16>(machine, c, variant);
  return variant == "bf16" ? combine<bf16, bf16>(machine, c, variant) : combine<f16, f16>(machine, c, variant);
}

}  // namespace iso::test
