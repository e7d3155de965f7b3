// The tensors of a case: where they lie (Strides) and what stands in them (Data). Equal case and seed give equal numbers,
// wherever they lie.
//
// NaN stands wherever nothing may be read: pages and rows of pages that hold no key, and elements of the bias that stand
// for no query row in use and key.
#pragma once

#include "conformance/layout.h"
#include "conformance/memory.h"
#include "core/reference.h"

namespace iso::conformance {

struct CaseTensors {
  std::vector<Memory> inputs;   // hold q, k, v, k_new, v_new, sink, bias, dout, dlse
  std::vector<Memory> outputs;  // hold out, lse, dq, dk, dv, dsink, dbias
  BackwardTensors at;           // what the case has; dout, dq, ... only if it has a backward
  Tensor k_new, v_new;

  // What the oracle reads.
  reference::Inputs oracle_inputs() const {
    reference::Inputs inputs = at;
    inputs.k_new = k_new;
    inputs.v_new = v_new;
    return inputs;
  }
};

CaseTensors make_tensors(const Case& c, const Layout& layout, u64 seed);

// Writes x, rounded to the tensor's type, to the element `offset` elements after t.data.
void store(const Tensor& t, i64 offset, float x);

// Calls change(float) -> float on every element of one row (all heads) of q, k, v, dout or an alike tensor.
template <class Change>
void change_row(const Tensor& t, i64 batch, i64 row, Change&& change);

// The elements in logical order, as float.
std::vector<float> values(const Tensor& t);
// The elements' bytes in logical order, to compare results bit by bit.
std::vector<u32> element_bits(const Tensor& t);

float element(const Tensor& t, i64 offset);

template <class Change>
void change_row(const Tensor& t, i64 batch, i64 row, Change&& change) {
  const i32 first = t.rank - 3;  // the row axis; a packed tensor has no batch axis
  for (i64 head = 0; head < t.shape[first + 1]; ++head) {
    for (i64 d = 0; d < t.shape[first + 2]; ++d) {
      const i64 offset = (t.rank == 4 ? batch * t.strides[0] : 0) + row * t.strides[first] + head * t.strides[first + 1] +
                         d * t.strides[first + 2];
      store(t, offset, change(element(t, offset)));
    }
  }
}

}  // namespace iso::conformance
