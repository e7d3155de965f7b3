// Problem: one attention call with every default resolved and every rule of validate/ met. Backends see only this.
#pragma once

#include "base/dtype.h"
#include "core/sequence.h"

namespace iso {

// Values equal isoflash_device_type in the C ABI (DLPack's numbers).
enum class DeviceType : i32 { cpu = 1, cuda = 2 };
struct Device {
  DeviceType type = DeviceType::cpu;
  i32 index = 0;
};

// A strided tensor of up to 4 axes; rank 0 means "not given". Strides count elements, not bytes.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  i32 rank = 0;
  i64 shape[4] = {0, 0, 0, 0};
  i64 strides[4] = {0, 0, 0, 0};
  Device device;
};

// Soft cap of the scaled score s. Values equal isoflash_softcap_kind in the C ABI.
//   tanh:      cap * tanh(s / cap)          derivative 1 - (capped / cap)^2
//   soft_sign: s / (1 + |s| / cap)          derivative (1 / (1 + |s| / cap))^2
enum class SoftcapKind : i32 { none = 0, tanh = 1, soft_sign = 2 };

// Where keys and values of a sequence lie (core/sequence.h).
enum class KvLayout : i32 { dense = 0, packed = 1, paged = 2 };

struct Problem {
  i64 batch = 0;                          // number of sequences
  i64 num_heads_q = 0, num_heads_kv = 0;  // num_heads_q is a multiple of num_heads_kv
  i64 head_dim = 0, head_dim_v = 0;       // of q and k; of v and out
  i64 rows_q = 0, rows_kv = 0;            // dense: seqlen axis; packed: total rows; paged: page_size
  i64 num_pages = 0;                      // paged
  bool packed = false;                    // q, out and their like
  KvLayout kv_layout = KvLayout::dense;
  bool new_keys = false;  // k_new and v_new follow k and v: forward only, as is paged
  bool sink = false, bias = false;
  DType dtype = DType::f32;  // of q, k, v, out, dout, dq, dk, dv
  Device device;
  double scale = 1.0;  // S = softcap(scale * q.k)
  SoftcapKind softcap_kind = SoftcapKind::none;
  double softcap = 0.0;
  bool deterministic = false;
};

// The tensors of a forward call. Shapes, with (batch, seqlen) replaced by (total) when packed:
//   q (batch, seqlen_q, num_heads_q, head_dim)       k (batch, seqlen_kv, num_heads_kv, head_dim)
//   v (batch, seqlen_kv, num_heads_kv, head_dim_v)   out (batch, seqlen_q, num_heads_q, head_dim_v)
//   lse (batch, num_heads_q, seqlen_q), packed (num_heads_q, total_q); float32, natural log; may be absent
// k and v paged: (num_pages, page_size, num_heads_kv, dim). May be absent:
//   k_new, v_new (batch, seqlen_q, num_heads_kv, dim), packed like q
//   sink (num_heads_q) float32       bias (batch, num_heads_q, seqlen_q, keys), packed (num_heads_q, total_q, keys), float32,
//                                    where an axis before the last has stride 0 if the caller gave extent 1
struct ForwardTensors {
  Tensor q, k, v, out, lse, k_new, v_new, sink, bias;
};

// The tensors of a backward call: inputs of the forward, its results, the incoming gradients (dlse may be absent), and the
// gradients to write, each shaped like its tensor. An absent dq, dk, dv, dsink or dbias is not computed. dbias has the
// caller's extents: what an axis of extent 1 stood for is summed.
struct BackwardTensors {
  Tensor q, k, v, out, lse, dout, dlse, dq, dk, dv, sink, bias, dsink, dbias;
};

inline namespace ISO_TARGET {

ISO_HOST_DEVICE constexpr bool given(const Tensor& t) { return t.rank != 0; }

// Query heads per KV head.
ISO_HOST_DEVICE constexpr i64 group_size(const Problem& p) {
  return p.num_heads_kv == 0 ? 0 : p.num_heads_q / p.num_heads_kv;
}

}  // namespace ISO_TARGET
}  // namespace iso
