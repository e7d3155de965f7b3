#include "conformance/tensors.h"

#include <cmath>
#include <limits>
#include <utility>

namespace iso::conformance {
namespace {

// Which tensor a number belongs to: part of the random stream's key.
enum class Name : u64 { q = 1, k, v, dout, dlse, k_new, v_new, sink, bias };

// Logical shape; packed tensors have batch 1 and drop that axis.
struct Shape {
  i64 batch, rows, heads, dim;
  bool packed;
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

Tensor place(Memory& memory, const Shape& s, const Place& p) {
  if (s.packed) return memory.place({s.rows, s.heads, s.dim}, {p.row, p.head, p.dim}, p.offset);
  return memory.place({s.batch, s.rows, s.heads, s.dim}, {p.batch, p.row, p.head, p.dim}, p.offset);
}

// Three tensors side by side in the rows of one memory: q, k, v or their gradients.
void place_fused(Memory& memory, const Shape (&shapes)[3], Tensor* (&tensors)[3]) {
  i64 width = 0, offset = 0;
  for (const Shape& s : shapes) width += s.heads * s.dim;
  for (int n = 0; n < 3; ++n) {
    const Shape& s = shapes[n];
    *tensors[n] = place(memory, s, {s.rows * width, width, s.dim, 1, offset, 0});
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
  const bool is_q = name == Name::q, is_k = name == Name::k || name == Name::k_new, is_qk = is_q || is_k;
  const bool is_v = name == Name::v || name == Name::v_new;
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
      if (is_v) return d == row % c.head_dim_v ? 1 : 0;
      break;
    case Data::ones:
      if (is_v) return 1;
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

// The keys of every sequence, where they lie in the pages; the rest of the pages keeps its NaN.
void fill_pages(const Tensor& t, const Case& c, const Layout& layout, u64 seed, Name name) {
  const double scale = std::abs(problem_of(c).scale);
  const i64 heads = t.shape[2], dim = t.shape[3];
  i64 index = 0;
  for (const Sequence& s : layout.sequences) {
    for (i32 j = 0; j < s.seqlen_cached; ++j) {
      const KvPlace at = kv_place(s, j);
      for (i64 head = 0; head < heads; ++head)
        for (i64 d = 0; d < dim; ++d, ++index)
          store(t, reference::row_offset(t, at.batch, at.row, head) + d * t.strides[3],
                static_cast<float>(value(c, scale, seed, name, index, j, d)));
    }
  }
}

void fill_sink(const Tensor& t, const Case& c, u64 seed) {
  for (i64 head = 0; head < t.shape[0]; ++head) {
    double x = 2 * normal(seed, Name::sink, static_cast<u64>(head));
    if (head % 2 == 0 && c.sink == Sink::minusinf) x = -std::numeric_limits<double>::infinity();
    if (head % 2 == 0 && c.sink == Sink::large) x = 30;
    store(t, head * t.strides[0], static_cast<float>(x));
  }
}

// Elements that stand for a query row in use and a key of its sequence; the others keep their NaN.
void fill_bias(const Tensor& t, const Case& c, const Layout& layout, u64 seed) {
  for (const Sequence& s : layout.sequences) {
    for (i64 head = 0; head < c.num_heads_q; ++head) {
      for (i64 i = 0; i < s.seqlen_q; ++i) {
        for (i64 j = 0; j < s.seqlen_kv; ++j) {
          const i64 at = reference::bias_offset(t, s.q_batch, head, s.q_row_begin + i, j);
          const double x = uniform(seed, Name::bias, static_cast<u64>(at));
          const bool nothing_there = c.bias.infinite && (x < 0.1 || (c.bias.rows && i % 7 == 3));
          store(t, at, nothing_there ? -std::numeric_limits<float>::infinity() : static_cast<float>(4 * x - 2));
        }
      }
    }
  }
}

// Makes the tensors of a case one after the other.
class Maker {
 public:
  Maker(const Case& c, const Layout& layout, u64 seed) : c_(c), layout_(layout), seed_(seed), p_(problem_of(c)) {}

  CaseTensors make() {
    BackwardTensors& at = tensors_.at;
    make_qkv();
    own(at.out, c_.dtype, out(), place_in(c_.strides, out(), false), false);
    own_rows(at.lse, false);
    if (c_.backward) {
      if (c_.strides == Strides::expanded)
        own(at.dout, c_.dtype, out(), {0, 0, 0, 0, 0, 1}, true);
      else
        own(at.dout, c_.dtype, out(), place_in(c_.strides, out(), true), true);
      fill(at.dout, c_, seed_, Name::dout);
      if (c_.dlse) {
        own_rows(at.dlse, true);
        fill(at.dlse, c_, seed_, Name::dlse);
      }
    }
    make_sink_and_bias();
    return std::move(tensors_);
  }

 private:
  i64 batch() const { return c_.packed ? 1 : c_.batch; }
  Shape q() const { return {batch(), p_.rows_q, p_.num_heads_q, p_.head_dim, c_.packed}; }
  Shape out() const { return {batch(), p_.rows_q, p_.num_heads_q, p_.head_dim_v, c_.packed}; }
  Shape new_key(i64 dim) const { return {batch(), p_.rows_q, p_.num_heads_kv, dim, c_.packed}; }
  Shape key(i64 dim) const {
    const bool packed = c_.kv_layout == KvLayout::packed;
    const i64 slots = c_.kv_layout == KvLayout::paged ? layout_.arrays.num_pages : packed ? 1 : c_.batch;
    return {slots, p_.rows_kv, p_.num_heads_kv, dim, packed};
  }

  Memory& memory(DType dtype, i64 elements, bool input) {
    return (input ? tensors_.inputs : tensors_.outputs).emplace_back(dtype, elements, !input);
  }
  void own(Tensor& t, DType dtype, const Shape& s, const Place& where, bool input) {
    t = place(memory(dtype, where.elements, input), s, where);
  }
  // lse or its gradient.
  void own_rows(Tensor& t, bool input) {
    const i64 row = p_.rows_q + (c_.strides == Strides::padded ? 5 : 0);
    Memory& m = memory(DType::f32, batch() * p_.num_heads_q * row, input);
    t = c_.packed ? m.place({p_.num_heads_q, p_.rows_q}, {row, 1}, 0)
                  : m.place({batch(), p_.num_heads_q, p_.rows_q}, {p_.num_heads_q * row, row, 1}, 0);
  }
  // Keys or values, or new ones; expanded over the heads they are one head with stride 0.
  void own_key(Tensor& t, const Shape& s) {
    if (c_.strides == Strides::expanded)
      return own(t, c_.dtype, s, {s.rows * s.dim, s.dim, 0, 1, 0, s.batch * s.rows * s.dim}, true);
    own(t, c_.dtype, s, place_in(c_.strides, s, true), true);
  }

  // q, k, v and their gradients, k_new and v_new. What lies fused with q is k and v or, if there are any, the new ones.
  void make_qkv() {
    BackwardTensors& at = tensors_.at;
    const bool fused = c_.strides == Strides::fused;
    if (fused) {
      const Shape shapes[3] = {q(), c_.new_keys ? new_key(p_.head_dim) : key(p_.head_dim),
                               c_.new_keys ? new_key(p_.head_dim_v) : key(p_.head_dim_v)};
      i64 elements = 0;
      for (const Shape& s : shapes) elements += s.batch * s.rows * s.heads * s.dim;
      Tensor* in[3] = {&at.q, c_.new_keys ? &tensors_.k_new : &at.k, c_.new_keys ? &tensors_.v_new : &at.v};
      place_fused(memory(c_.dtype, elements, true), shapes, in);
      Tensor* gradients[3] = {&at.dq, &at.dk, &at.dv};
      if (c_.backward) place_fused(memory(c_.dtype, elements, false), shapes, gradients);
    } else {
      own(at.q, c_.dtype, q(), place_in(c_.strides, q(), true), true);
      if (c_.backward) {
        own(at.dq, c_.dtype, q(), place_in(c_.strides, q(), false), false);
        own(at.dk, c_.dtype, key(p_.head_dim), place_in(c_.strides, key(p_.head_dim), false), false);
        own(at.dv, c_.dtype, key(p_.head_dim_v), place_in(c_.strides, key(p_.head_dim_v), false), false);
      }
    }
    if (!given(at.k)) own_key(at.k, key(p_.head_dim));
    if (!given(at.v)) own_key(at.v, key(p_.head_dim_v));
    if (c_.new_keys && !fused) {
      own_key(tensors_.k_new, new_key(p_.head_dim));
      own_key(tensors_.v_new, new_key(p_.head_dim_v));
    }
    fill(at.q, c_, seed_, Name::q);
    fill_keys(at.k, Name::k);
    fill_keys(at.v, Name::v);
    if (!c_.new_keys) return;
    fill(tensors_.k_new, c_, seed_, Name::k_new);
    fill(tensors_.v_new, c_, seed_, Name::v_new);
  }
  void fill_keys(const Tensor& t, Name name) {
    if (c_.kv_layout == KvLayout::paged)
      fill_pages(t, c_, layout_, seed_, name);
    else
      fill(t, c_, seed_, name);
  }

  void make_sink_and_bias() {
    BackwardTensors& at = tensors_.at;
    const i64 step = c_.strides == Strides::padded ? 2 : 1;
    if (p_.sink) {
      at.sink = memory(DType::f32, p_.num_heads_q * step, true).place({p_.num_heads_q}, {step}, 0);
      fill_sink(at.sink, c_, seed_);
      if (c_.backward) at.dsink = memory(DType::f32, p_.num_heads_q * step, false).place({p_.num_heads_q}, {step}, 0);
    }
    if (!p_.bias) return;
    own_bias(at.bias, true);
    fill_bias(at.bias, c_, layout_, seed_);
    if (c_.backward) own_bias(at.dbias, false);
  }
  void own_bias(Tensor& t, bool input) {
    const bool axis_is_keys = c_.kv_layout == KvLayout::dense && !c_.packed && !c_.new_keys;
    const i64 keys = axis_is_keys ? p_.rows_kv : most_keys(layout_) + (c_.packed ? 3 : 0);
    std::vector<i64> shape, strides;
    if (!c_.packed) shape.push_back(c_.bias.batch ? c_.batch : 1);
    shape.push_back(c_.bias.heads ? p_.num_heads_q : 1);
    shape.push_back(c_.bias.rows ? p_.rows_q : 1);
    shape.push_back(keys);
    i64 elements = keys + (c_.strides == Strides::padded ? 3 : 0);
    strides.assign(shape.size(), 1);
    for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
      strides[axis] = elements;
      elements *= shape[axis];
    }
    t = memory(DType::f32, elements, input).place(shape, strides, 0);
  }

  const Case& c_;
  const Layout& layout_;
  u64 seed_;
  Problem p_;
  CaseTensors tensors_;
};

}  // namespace

void store(const Tensor& t, i64 offset, float x) {
  if (t.dtype == DType::bf16)
    static_cast<bf16*>(t.data)[offset] = to_bf16(x);
  else if (t.dtype == DType::f16)
    static_cast<f16*>(t.data)[offset] = to_f16(x);
  else
    static_cast<float*>(t.data)[offset] = x;
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

CaseTensors make_tensors(const Case& c, const Layout& layout, u64 seed) { return Maker(c, layout, seed).make(); }

}  // namespace iso::conformance
