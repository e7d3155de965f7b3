#include <fmt/format.h>

#include <cmath>

#include "validate/lengths.h"
#include "validate/mask.h"
#include "validate/propagate.h"
#include "validate/shapes.h"
#include "validate/tensor.h"
#include "validate/validate.h"

namespace iso {
namespace {

constexpr i64 kMaxHeadDim = 256;
// Scale and cap meet the scores in float32; up to here their products with numbers of any use stay finite.
constexpr double kMaxScale = 1e30;

Expected<void> read_scores(const isoflash_problem& d, Problem& p) {
  if (std::abs(d.scale) > kMaxScale) return raise(errors::ScaleNotFinite{.got = d.scale});
  p.scale = std::isnan(d.scale) ? 1.0 / std::sqrt(static_cast<double>(p.head_dim)) : d.scale;
  if (d.softcap_kind < ISOFLASH_SOFTCAP_NONE || d.softcap_kind > ISOFLASH_SOFTCAP_SOFT_SIGN)
    return raise(errors::SoftcapKindUnknown{.got = d.softcap_kind});
  p.softcap_kind = static_cast<SoftcapKind>(d.softcap_kind);
  p.softcap = d.softcap;
  // Compared so that NaN is refused too.
  if (p.softcap_kind == SoftcapKind::none) {
    if (!(d.softcap == 0)) return raise(errors::SoftcapWithoutKind{.got = d.softcap});
  } else if (!(d.softcap > 0 && d.softcap <= kMaxScale)) {
    return raise(errors::SoftcapValue{.got = d.softcap,
                                      .softcap_kind = p.softcap_kind == SoftcapKind::tanh ? "TANH" : "SOFT_SIGN"});
  }
  if (!(d.dropout == 0)) return raise(errors::DropoutUnsupported{.got = d.dropout});
  if (d.reserved0 != 0) return raise(errors::ReservedField{.field = "problem.reserved0", .got = d.reserved0});
  return {};
}

// The dimensions, from the tensors that define them: q, then k, then v.
Expected<void> read_dimensions(const isoflash_problem& d, const ForwardTensors& t, Problem& p) {
  const bool cu_q = d.cu_seqlens_q.rank != 0, cu_kv = d.cu_seqlens_kv.rank != 0;
  if (cu_q != cu_kv)
    return raise(errors::CuSeqlensUnpaired{.given = cu_q ? "cu_seqlens_q" : "cu_seqlens_kv",
                                           .missing = cu_q ? "cu_seqlens_kv" : "cu_seqlens_q"});
  p.packed = cu_q;
  const i32 rank = p.packed ? 3 : 4;
  const struct {
    const char* name;
    const Tensor& tensor;
  } inputs[] = {{"q", t.q}, {"k", t.k}, {"v", t.v}};
  for (const auto& [name, tensor] : inputs) {
    if (tensor.rank == rank) continue;
    if (p.packed) return raise(errors::PackedRank{.tensor = name, .got = tensor.rank});
    return raise(errors::RankMismatch{.tensor = name,
                                      .got = tensor.rank,
                                      .expected = "4 (batch, seqlen, num_heads, head_dim); rank 3 is for packed "
                                                  "sequences, which come with cu_seqlens_q and cu_seqlens_kv"});
  }
  if (p.packed) {
    const auto batch = packed_batch(d);
    if (!batch) return tl::unexpected(batch.error());
    p.batch = *batch;
  } else {
    p.batch = t.q.shape[0];
  }
  if (p.batch > kMaxBatch) return raise(errors::BatchTooLarge{.got = p.batch, .max = kMaxBatch});
  p.rows_q = t.q.shape[rank - 3];
  p.num_heads_q = t.q.shape[rank - 2];
  p.head_dim = t.q.shape[rank - 1];
  p.rows_kv = t.k.shape[rank - 3];
  p.num_heads_kv = t.k.shape[rank - 2];
  p.head_dim_v = t.v.shape[rank - 1];
  p.dtype = t.q.dtype;
  p.device = t.q.device;
  p.deterministic = d.deterministic != 0;
  return {};
}

Expected<void> check_dimensions(const Problem& p) {
  if (p.dtype != DType::f32 && p.dtype != DType::bf16 && p.dtype != DType::f16)
    return raise(errors::DtypeUnsupported{
        .tensor = "q", .got = dtype_name(p.dtype), .accepted = "float32, bfloat16, float16"});
  const struct {
    const char *dim, *tensor;
    i64 got;
  } head_dims[] = {{"head_dim", "q", p.head_dim}, {"head_dim_v", "v", p.head_dim_v}};
  for (const auto& [dim, tensor, got] : head_dims)
    if (got < 1 || got > kMaxHeadDim)
      return raise(errors::HeadDimRange{.dim = dim, .tensor = tensor, .got = got, .max = kMaxHeadDim});
  // No query heads make an empty output; no key heads under query heads make no sense.
  if (p.num_heads_q > 0 && (p.num_heads_kv == 0 || p.num_heads_q % p.num_heads_kv != 0))
    return raise(errors::HeadRatio{.num_heads_q = p.num_heads_q, .num_heads_kv = p.num_heads_kv});
  return {};
}

}  // namespace

Expected<Validated> validate_problem(const isoflash_problem& d) {
  Validated out;
  ForwardTensors& t = out.layout;
  Problem& p = out.problem;
  const struct {
    TensorId id;
    const isoflash_tensor& from;
    Tensor& to;
  } tensors[] = {{TensorId::q, d.q, t.q},
                 {TensorId::k, d.k, t.k},
                 {TensorId::v, d.v, t.v},
                 {TensorId::out, d.out, t.out},
                 {TensorId::lse, d.lse, t.lse}};
  for (const auto& tensor : tensors) {
    const auto read = read_tensor(tensor.from, tensor_name(tensor.id));
    if (!read) return tl::unexpected(read.error());
    tensor.to = *read;
    tensor.to.data = nullptr;
    if (!given(*read) && tensor.id != TensorId::lse)
      return raise(errors::TensorMissing{.tensor = tensor_name(tensor.id), .needed_by = "every plan"});
  }

  ISO_RETURN_IF_ERROR(read_dimensions(d, t, p));
  ISO_RETURN_IF_ERROR(check_dimensions(p));
  for (const auto& tensor : tensors) {
    if (!given(tensor.to)) continue;
    ISO_RETURN_IF_ERROR(check_problem_tensor(p, tensor.id, tensor.to));
    if (tensor.id == TensorId::out || tensor.id == TensorId::lse)
      ISO_RETURN_IF_ERROR(check_written_layout(p, tensor.id, tensor.to));
  }
  ISO_RETURN_IF_ERROR(read_scores(d, p));

  auto sequences = read_sequences(d, p);
  if (!sequences) return tl::unexpected(std::move(sequences).error());
  out.sequences = std::move(*sequences);
  ISO_RETURN_IF_ERROR(resolve_masks(d.mask, out.sequences));
  return out;
}

}  // namespace iso
