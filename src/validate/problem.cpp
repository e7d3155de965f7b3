#include <fmt/format.h>

#include <cmath>

#include "base/math.h"
#include "validate/block_lists.h"
#include "validate/broadcast.h"
#include "validate/intervals.h"
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
    return raise(
        errors::SoftcapValue{.got = d.softcap, .softcap_kind = p.softcap_kind == SoftcapKind::tanh ? "TANH" : "SOFT_SIGN"});
  }
  if (!(d.dropout == 0)) return raise(errors::DropoutUnsupported{.got = d.dropout});
  if (d.reserved0 != 0) return raise(errors::ReservedField{.field = "problem.reserved0", .got = d.reserved0});
  return {};
}

// Where queries, keys and values lie, as the arrays beside them say.
Expected<void> read_layout(const isoflash_problem& d, Problem& p) {
  const bool cu_q = d.cu_seqlens_q.rank != 0, cu_kv = d.cu_seqlens_kv.rank != 0, paged = d.block_table.rank != 0;
  if (d.k_new.rank != 0 || d.v_new.rank != 0) {
    if (d.k_new.rank == 0 || d.v_new.rank == 0)
      return raise(errors::NewKeysUnpaired{.given = d.k_new.rank != 0 ? "k_new" : "v_new",
                                           .missing = d.k_new.rank != 0 ? "v_new" : "k_new"});
    p.new_keys = true;
  }
  if (paged && cu_kv) return raise(errors::BlockTableWithCuSeqlensKv{});
  if (cu_q != cu_kv && !paged && !p.new_keys)
    return raise(errors::CuSeqlensUnpaired{.given = cu_q ? "cu_seqlens_q" : "cu_seqlens_kv",
                                           .missing = cu_q ? "cu_seqlens_kv" : "cu_seqlens_q"});
  p.packed = cu_q;
  p.kv_layout = paged ? KvLayout::paged : cu_kv ? KvLayout::packed : KvLayout::dense;
  return {};
}

// Ranks of q, k and v, without which the dimensions cannot be read.
Expected<void> check_rank(const char* name, const Tensor& t, bool packed, bool paged) {
  if (t.rank == (packed ? 3 : 4)) return {};
  if (packed) return raise(errors::PackedRank{.tensor = name, .got = t.rank, .expected = "total, heads, head_dim"});
  return raise(errors::RankMismatch{
      .tensor = name,
      .got = t.rank,
      .expected = paged ? "4 (num_pages, page_size, num_heads_kv, head_dim), since block_table is given"
                        : "4 (batch, seqlen, num_heads, head_dim); rank 3 is for packed sequences, which come with "
                          "cu_seqlens_q and cu_seqlens_kv"});
}

// The dimensions, from the tensors that define them: q, then k, then v.
Expected<void> read_dimensions(const isoflash_problem& d, const ForwardTensors& t, Problem& p) {
  ISO_RETURN_IF_ERROR(read_layout(d, p));
  const bool packed_kv = p.kv_layout == KvLayout::packed, paged = p.kv_layout == KvLayout::paged;
  ISO_RETURN_IF_ERROR(check_rank("q", t.q, p.packed, false));
  ISO_RETURN_IF_ERROR(check_rank("k", t.k, packed_kv, paged));
  ISO_RETURN_IF_ERROR(check_rank("v", t.v, packed_kv, paged));
  const auto batch = read_batch(d, t.q);
  if (!batch) return tl::unexpected(batch.error());
  p.batch = *batch;
  if (p.batch > kMaxBatch) return raise(errors::BatchTooLarge{.got = p.batch, .max = kMaxBatch});
  p.rows_q = t.q.shape[t.q.rank - 3];
  p.num_heads_q = t.q.shape[t.q.rank - 2];
  p.head_dim = t.q.shape[t.q.rank - 1];
  p.num_pages = paged ? t.k.shape[0] : 0;
  p.rows_kv = t.k.shape[t.k.rank - 3];
  p.num_heads_kv = t.k.shape[t.k.rank - 2];
  p.head_dim_v = t.v.shape[t.v.rank - 1];
  p.dtype = t.q.dtype;
  p.device = t.q.device;
  p.deterministic = d.deterministic != 0;
  p.sink = given(t.sink);
  p.bias = given(t.bias);
  return {};
}

Expected<void> check_dimensions(const Problem& p) {
  if (p.dtype != DType::f32 && p.dtype != DType::bf16 && p.dtype != DType::f16)
    return raise(
        errors::DtypeUnsupported{.tensor = "q", .got = dtype_name(p.dtype), .accepted = "float32, bfloat16, float16"});
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
    bool required, written;
  } tensors[] = {{TensorId::q, d.q, t.q, true, false},
                 {TensorId::k, d.k, t.k, true, false},
                 {TensorId::v, d.v, t.v, true, false},
                 {TensorId::out, d.out, t.out, true, true},
                 {TensorId::lse, d.lse, t.lse, false, true},
                 {TensorId::k_new, d.k_new, t.k_new, false, false},
                 {TensorId::v_new, d.v_new, t.v_new, false, false},
                 {TensorId::sink, d.sink, t.sink, false, false},
                 {TensorId::bias, d.bias, t.bias, false, false}};
  for (const auto& tensor : tensors) {
    const auto read = read_tensor(tensor.from, tensor_name(tensor.id));
    if (!read) return tl::unexpected(read.error());
    tensor.to = *read;
    tensor.to.data = nullptr;
    if (!given(*read) && tensor.required)
      return raise(errors::TensorMissing{.tensor = tensor_name(tensor.id), .needed_by = "every plan"});
  }

  ISO_RETURN_IF_ERROR(read_dimensions(d, t, p));
  ISO_RETURN_IF_ERROR(check_dimensions(p));
  for (const auto& tensor : tensors) {
    if (!given(tensor.to) || tensor.id == TensorId::bias) continue;
    ISO_RETURN_IF_ERROR(check_problem_tensor(p, tensor.id, tensor.to));
    if (tensor.written) ISO_RETURN_IF_ERROR(check_written_layout(p, tensor.id, tensor.to));
  }
  ISO_RETURN_IF_ERROR(read_scores(d, p));

  auto sequences = read_sequences(d, p, out.mask_arrays);
  if (!sequences) return tl::unexpected(std::move(sequences).error());
  out.sequences = std::move(*sequences);
  if (p.bias) {
    i64 longest = 0;
    for (const Sequence& s : out.sequences) longest = max_of<i64>(longest, s.seqlen_kv);
    ISO_RETURN_IF_ERROR(check_problem_bias(p, t.bias, longest));
    stride_over_shared_axes(t.bias);
  }
  ISO_RETURN_IF_ERROR(resolve_masks(d.mask, out.sequences));
  ISO_RETURN_IF_ERROR(read_row_intervals(d, p, out.sequences, out.mask_arrays));
  ISO_RETURN_IF_ERROR(read_block_lists(d, p, out.sequences, out.mask_arrays));
  return out;
}

}  // namespace iso
