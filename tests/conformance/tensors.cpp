#include "conformance/tensors.h"

#include <cmath>
#include <limits>

#include "core/reference.h"

namespace iso::conformance {
namespace {

// Which tensor a number belongs to: part of the random stream's key.
enum class Name : u64 { q = 1, k, v, dout, dlse };

// Logical shape; packed tensors have batch 1 and drop that axis.
struct Shape {
  i64 batch, rows, heads, dim;
};

// A place in a memory of `elements`, in elements.
struct Place {
  i64 batch, row, head, dim;  // strides
  i64 offset, elements;
};

Place place_in(Strides strides, const Shape& s, bool input) {
  const i64 row = s.heads * s.dim;
  switch (strides) {
    case Strides::padded: {
      const i64 head = s.dim + 8, padded = s.heads * head + 16;
      return {s.rows * padded + 32, padded, head, 1, 0, s.batch * (s.rows * padded + 32)};
    }
    case Strides::unaligned: {
      const i64 odd = row + 1 + row % 2;
      return {s.rows * odd, odd, s.dim, 1, 1, s.batch * s.rows * odd + 1};
    }
    case Strides::transposed: return {s.heads * s.rows * s.dim, s.dim, s.rows * s.dim, 1, 0, s.batch * s.rows * row};
    case Strides::negative:
      if (!input || s.rows == 0) break;
      return {s.rows * row, -row, -s.dim, 1, (s.rows - 1) * row + (s.heads - 1) * s.dim, s.batch * s.rows * row};
    case Strides::contiguous:
    case Strides::fused:
    case Strides::expanded: break;
  }
  return {s.rows * row, row, s.dim, 1, 0, s.batch * s.rows * row};
}

Tensor place(Memory& memory, const Case& c, const Shape& s, const Place& p) {
  if (c.packed) return memory.place({s.rows, s.heads, s.dim}, {p.row, p.head, p.dim}, p.offset);
  return memory.place({s.batch, s.rows, s.heads, s.dim}, {p.batch, p.row, p.head, p.dim}, p.offset);
}

// Three tensors side by side in the rows of one memory: q, k, v or their gradients.
void place_fused(Memory& memory, const Case& c, const Shape (&shapes)[3], Tensor* (&tensors)[3]) {
  i64 width = 0, offset = 0;
  for (const Shape& s : shapes) width += s.heads * s.dim;
  for (int n = 0; n < 3; ++n) {
    const Shape& s = shapes[n];
    *tensors[n] = place(memory, c, s, {s.rows * width, width, s.dim, 1, offset, 0});
    offset += s.heads * s.dim;
  }
}

// A well-mixed number from its key (the finaliser of splitmix64), uniform in (0, 1).
double uniform(u64 seed, Name name, u64 index) {
  u64 x = seed * 0x9e3779b97f4a7c15ull + static_cast<u64>(name) * 0xd1b54a32d192ed03ull + index * 0x8cb92ba72f3d8dd7ull;
  for (const int shift : {30, 27}) x = (x ^ (x >> shift)) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 31;
  return (static_cast<double>(x >> 11) + 0.5) * 0x1p-53;
}

double normal(u64 seed, Name name, u64 index) {
  constexpr double kTwoPi = 6.283185307179586;
  return std::sqrt(-2 * std::log(uniform(seed, name, 2 * index))) * std::cos(kTwoPi * uniform(seed, name, 2 * index + 1));
}

// The value of element `index` (logical, contiguous) of a tensor; `row` and `d` are its row and its place in head_dim.
double value(const Case& c, double scale, u64 seed, Name name, i64 index, i64 row, i64 d) {
  const double random = normal(seed, name, static_cast<u64>(index));
  const double dim = static_cast<double>(c.head_dim);
  const bool is_q = name == Name::q, is_qk = is_q || name == Name::k;
  // Entries a and b of q and k everywhere give the score scale * dim * a * b.
  const auto constant = [&](double score) { return std::sqrt(score / (scale * dim)); };
  switch (c.data) {
    case Data::normal: break;
    case Data::minus128:
      if (is_qk) return is_q ? constant(128) : -constant(128);
      break;
    case Data::plus80:
      if (is_qk) return constant(80);
      break;
    case Data::near70:
      // The last channel of k counts up to 64 in steps that its rounding keeps; the others add up to 64.
      if (is_qk && d + 1 < c.head_dim) return std::sqrt(64 / (scale * (dim - 1)));
      if (is_qk) return is_q ? 1 / (8 * scale) : static_cast<double>(row * 37 % 128);
      break;
    case Data::mean10:
      if (is_qk) return 10 + 0.05 * random;
      if (name == Name::dout) return 1 + 0.01 * random;
      break;
    case Data::constant1000:
      if (is_qk) return 1000;
      break;
    case Data::equal:
      if (is_q) return 0;
      break;
    case Data::onehot:
      if (name == Name::v) return d == row % c.head_dim_v ? 1 : 0;
      break;
    case Data::ones:
      if (name == Name::v) return 1;
      break;
    case Data::outlier:
      if (is_qk && d == c.head_dim / 2) return 30 * random;
      break;
    case Data::infinite:
      if (name == Name::k && row == 1 && d == 0) return std::numeric_limits<double>::infinity();
      break;
  }
  return random;
}

void fill(const Tensor& t, const Case& c, u64 seed, Name name) {
  const bool row_last = name == Name::dlse;
  const i64 dim = row_last ? 1 : t.shape[t.rank - 1];
  const i64 heads = row_last ? 1 : t.shape[t.rank - 2];
  const i64 rows = row_last ? t.shape[t.rank - 1] : t.shape[t.rank - 3];
  const double scale = std::abs(problem_of(c).scale);
  i64 index = 0;
  for_each_element(t, [&](i64 offset) {
    const i64 row = rows == 0 ? 0 : index / (dim * heads) % rows;
    store(t, offset, static_cast<float>(value(c, scale, seed, name, index, row, index % dim)));
    ++index;
  });
}

}  // namespace

void store(const Tensor& t, i64 offset, float x) {
  if (t.dtype == DType::bf16) static_cast<bf16*>(t.data)[offset] = to_bf16(x);
  else if (t.dtype == DType::f16) static_cast<f16*>(t.data)[offset] = to_f16(x);
  else static_cast<float*>(t.data)[offset] = x;
}

float element(const Tensor& t, i64 offset) { return reference::load(t, offset); }

std::vector<float> values(const Tensor& t) {
  std::vector<float> out;
  for_each_element(t, [&](i64 offset) { out.push_back(reference::load(t, offset)); });
  return out;
}

std::vector<u32> element_bits(const Tensor& t) {
  std::vector<u32> out;
  for_each_element(t, [&](i64 offset) {
    out.push_back(dtype_size(t.dtype) == 2 ? static_cast<const u16*>(t.data)[offset]
                                           : static_cast<const u32*>(t.data)[offset]);
  });
  return out;
}

CaseTensors make_tensors(const Case& c, u64 seed) {
  const Problem p = problem_of(c);
  const i64 batch = c.packed ? 1 : c.batch;
  const Shape q{batch, p.rows_q, p.num_heads_q, p.head_dim}, k{batch, p.rows_kv, p.num_heads_kv, p.head_dim};
  const Shape v{batch, p.rows_kv, p.num_heads_kv, p.head_dim_v}, out{batch, p.rows_q, p.num_heads_q, p.head_dim_v};
  CaseTensors tensors;
  BackwardTensors& at = tensors.at;

  const auto own = [&](Tensor& t, DType dtype, const Shape& s, const Place& where, bool input) {
    auto& memories = input ? tensors.inputs : tensors.outputs;
    memories.emplace_back(dtype, where.elements, !input);
    t = place(memories.back(), c, s, where);
  };
  const auto input = [&](Tensor& t, const Shape& s) { own(t, c.dtype, s, place_in(c.strides, s, true), true); };
  const auto output = [&](Tensor& t, const Shape& s) { own(t, c.dtype, s, place_in(c.strides, s, false), false); };
  const auto lse_like = [&](Tensor& t, bool is_input) {
    const i64 gap = c.strides == Strides::padded ? 5 : 0, row = p.rows_q + gap;
    auto& memories = is_input ? tensors.inputs : tensors.outputs;
    memories.emplace_back(DType::f32, batch * p.num_heads_q * row, !is_input);
    t = c.packed ? memories.back().place({p.num_heads_q, p.rows_q}, {row, 1}, 0)
                 : memories.back().place({batch, p.num_heads_q, p.rows_q}, {p.num_heads_q * row, row, 1}, 0);
  };

  if (c.strides == Strides::fused) {
    const i64 elements = batch * p.rows_q * (q.heads * q.dim + k.heads * k.dim + v.heads * v.dim);
    Tensor *in[3] = {&at.q, &at.k, &at.v}, *gradients[3] = {&at.dq, &at.dk, &at.dv};
    tensors.inputs.emplace_back(c.dtype, elements, false);
    place_fused(tensors.inputs.back(), c, {q, k, v}, in);
    if (c.backward) {
      tensors.outputs.emplace_back(c.dtype, elements, true);
      place_fused(tensors.outputs.back(), c, {q, k, v}, gradients);
    }
  } else {
    input(at.q, q);
    if (c.strides == Strides::expanded) {
      own(at.k, c.dtype, k, {k.rows * k.dim, k.dim, 0, 1, 0, k.batch * k.rows * k.dim}, true);
      own(at.v, c.dtype, v, {v.rows * v.dim, v.dim, 0, 1, 0, v.batch * v.rows * v.dim}, true);
    } else {
      input(at.k, k);
      input(at.v, v);
    }
    if (c.backward) {
      output(at.dq, q);
      output(at.dk, k);
      output(at.dv, v);
    }
  }
  output(at.out, out);
  lse_like(at.lse, false);
  if (c.backward) {
    if (c.strides == Strides::expanded) own(at.dout, c.dtype, out, {0, 0, 0, 0, 0, 1}, true);
    else input(at.dout, out);
    fill(at.dout, c, seed, Name::dout);
    if (c.dlse) {
      lse_like(at.dlse, true);
      fill(at.dlse, c, seed, Name::dlse);
    }
  }
  fill(at.q, c, seed, Name::q);
  fill(at.k, c, seed, Name::k);
  fill(at.v, c, seed, Name::v);
  return tensors;
}

}  // namespace iso::conformance
