#include <fmt/format.h>

#include <span>

#include "validate/broadcast.h"
#include "validate/overlap.h"
#include "validate/propagate.h"
#include "validate/shapes.h"
#include "validate/tensor.h"
#include "validate/validate.h"

namespace iso {
namespace {

enum class Use { read, written };
enum class Need { required, optional, refused };  // refused: the problem has none

struct CallTensor {
  TensorId id;
  Use use;
  Need need;
  const isoflash_tensor& from;
  Tensor& to;
};

// What the call is about.
struct CallPlan {
  const char* name;
  const Problem& problem;
  const ForwardTensors& layout;
};

struct CallWorkspace {
  void* data;
  std::size_t size, needed;
  void* stream;
};

Expected<void> check_tensors(const CallPlan& call, std::span<const CallTensor> tensors) {
  const Problem& p = call.problem;
  for (const CallTensor& t : tensors) {
    const char* name = tensor_name(t.id);
    const auto read = read_tensor(t.from, name);
    if (!read) return tl::unexpected(read.error());
    t.to = *read;
    if (!given(t.to)) {
      if (t.need != Need::required) continue;
      if (t.id == TensorId::lse) return raise(errors::BackwardWithoutLse{});
      return raise(errors::TensorMissing{.tensor = name, .needed_by = call.name});
    }
    if (t.need == Need::refused) return raise(errors::TensorUnexpected{.tensor = name, .call = call.name});
    ISO_RETURN_IF_ERROR(check_call_tensor(p, call.layout, t.id, t.to));
    ISO_RETURN_IF_ERROR(check_memory(t.to, name));
    if (t.use == Use::written) ISO_RETURN_IF_ERROR(check_written_layout(p, t.id, t.to));
    if (t.id == TensorId::bias || t.id == TensorId::dbias) stride_over_shared_axes(t.to);
  }
  return {};
}

// What is written shares no memory with anything else.
Expected<void> check_apart(std::span<const CallTensor> tensors) {
  for (std::size_t a = 0; a < tensors.size(); ++a) {
    if (tensors[a].use != Use::written) continue;
    for (std::size_t b = 0; b < tensors.size(); ++b) {
      // A pair of written tensors is compared once.
      if (b == a || (tensors[b].use == Use::written && b < a)) continue;
      if (overlap(tensors[a].to, tensors[b].to))
        return raise(errors::OutputAliases{.output = tensor_name(tensors[a].id), .other = tensor_name(tensors[b].id)});
    }
  }
  return {};
}

Expected<void> check_workspace(const CallPlan& plan, const CallWorkspace& workspace, std::span<const CallTensor> tensors) {
  const char* call = plan.name;
  if (plan.problem.device.type == DeviceType::cpu && workspace.stream != nullptr)
    return raise(errors::StreamOnCpu{.call = call});
  if (workspace.needed == 0) return {};
  if (workspace.data == nullptr) return raise(errors::WorkspaceMissing{.call = call, .needed = workspace.needed});
  if (workspace.size < workspace.needed)
    return raise(errors::WorkspaceTooSmall{.call = call, .got = workspace.size, .needed = workspace.needed});
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  if (address % kWorkspaceAlignment != 0)
    return raise(errors::WorkspaceMisaligned{
        .call = call, .address = fmt::format("{:#x}", address), .alignment = kWorkspaceAlignment});

  // As a tensor of 4-byte words; the needed size is a multiple of the alignment.
  Tensor words;
  words.rank = 1;
  words.data = workspace.data;
  words.shape[0] = static_cast<i64>(workspace.needed / 4);
  words.strides[0] = 1;
  for (const CallTensor& t : tensors)
    if (overlap(words, t.to)) return raise(errors::OutputAliases{.output = "workspace", .other = tensor_name(t.id)});
  return {};
}

Expected<void> check_call(const CallPlan& call, std::span<const CallTensor> tensors, const CallWorkspace& workspace) {
  ISO_RETURN_IF_ERROR(check_tensors(call, tensors));
  ISO_RETURN_IF_ERROR(check_apart(tensors));
  return check_workspace(call, workspace, tensors);
}

Need if_has(bool has, Need need) { return has ? need : Need::refused; }

}  // namespace

Expected<ForwardTensors> validate_forward(const Problem& p, const ForwardTensors& layout, const isoflash_forward_args& args,
                                          std::size_t needed) {
  if (args.reserved0 != 0) return raise(errors::ReservedField{.field = "forward_args.reserved0", .got = args.reserved0});
  ForwardTensors t;
  const Need new_keys = if_has(p.new_keys, Need::required);
  const CallTensor tensors[] = {{TensorId::q, Use::read, Need::required, args.q, t.q},
                                {TensorId::k, Use::read, Need::required, args.k, t.k},
                                {TensorId::v, Use::read, Need::required, args.v, t.v},
                                {TensorId::k_new, Use::read, new_keys, args.k_new, t.k_new},
                                {TensorId::v_new, Use::read, new_keys, args.v_new, t.v_new},
                                {TensorId::sink, Use::read, if_has(p.sink, Need::required), args.sink, t.sink},
                                {TensorId::bias, Use::read, if_has(p.bias, Need::required), args.bias, t.bias},
                                {TensorId::out, Use::written, Need::required, args.out, t.out},
                                {TensorId::lse, Use::written, Need::optional, args.lse, t.lse}};
  const CallWorkspace workspace{args.workspace, args.workspace_size, needed, args.stream};
  ISO_RETURN_IF_ERROR(check_call({"isoflash_forward", p, layout}, tensors, workspace));
  return t;
}

Expected<BackwardTensors> validate_backward(const Problem& p, const ForwardTensors& layout,
                                            const isoflash_backward_args& args, std::size_t needed) {
  if (args.reserved0 != 0) return raise(errors::ReservedField{.field = "backward_args.reserved0", .got = args.reserved0});
  if (p.kv_layout == KvLayout::paged) return raise(errors::BackwardOfPagedKeys{});
  if (p.new_keys) return raise(errors::BackwardOfNewKeys{});
  BackwardTensors t;
  const CallTensor tensors[] = {{TensorId::q, Use::read, Need::required, args.q, t.q},
                                {TensorId::k, Use::read, Need::required, args.k, t.k},
                                {TensorId::v, Use::read, Need::required, args.v, t.v},
                                {TensorId::sink, Use::read, if_has(p.sink, Need::required), args.sink, t.sink},
                                {TensorId::bias, Use::read, if_has(p.bias, Need::required), args.bias, t.bias},
                                {TensorId::out, Use::read, Need::required, args.out, t.out},
                                {TensorId::lse, Use::read, Need::required, args.lse, t.lse},
                                {TensorId::dout, Use::read, Need::required, args.dout, t.dout},
                                {TensorId::dlse, Use::read, Need::optional, args.dlse, t.dlse},
                                {TensorId::dq, Use::written, Need::optional, args.dq, t.dq},
                                {TensorId::dk, Use::written, Need::optional, args.dk, t.dk},
                                {TensorId::dv, Use::written, Need::optional, args.dv, t.dv},
                                {TensorId::dsink, Use::written, if_has(p.sink, Need::optional), args.dsink, t.dsink},
                                {TensorId::dbias, Use::written, if_has(p.bias, Need::optional), args.dbias, t.dbias}};
  const CallWorkspace workspace{args.workspace, args.workspace_size, needed, args.stream};
  ISO_RETURN_IF_ERROR(check_call({"isoflash_backward", p, layout}, tensors, workspace));
  return t;
}

}  // namespace iso
