#include <fmt/format.h>

#include <span>

#include "validate/overlap.h"
#include "validate/propagate.h"
#include "validate/shapes.h"
#include "validate/tensor.h"
#include "validate/validate.h"

namespace iso {
namespace {

enum class Use { read, written };
enum class Need { required, optional };

struct CallTensor {
  TensorId id;
  Use use;
  Need need;
  const isoflash_tensor& from;
  Tensor& to;
};

struct CallWorkspace {
  void* data;
  std::size_t size, needed;
  void* stream;
};

Expected<void> check_tensors(const Problem& p, const char* call, std::span<const CallTensor> tensors) {
  for (const CallTensor& t : tensors) {
    const auto read = read_tensor(t.from, tensor_name(t.id));
    if (!read) return tl::unexpected(read.error());
    t.to = *read;
    if (!given(t.to)) {
      if (t.need == Need::optional) continue;
      if (t.id == TensorId::lse) return raise(errors::BackwardWithoutLse{});
      return raise(errors::TensorMissing{.tensor = tensor_name(t.id), .needed_by = call});
    }
    ISO_RETURN_IF_ERROR(check_call_tensor(p, t.id, t.to));
    ISO_RETURN_IF_ERROR(check_memory(t.to, tensor_name(t.id)));
    if (t.use == Use::written) ISO_RETURN_IF_ERROR(check_written_layout(p, t.id, t.to));
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
        return raise(errors::OutputAliases{
            .output = tensor_name(tensors[a].id), .other = tensor_name(tensors[b].id)});
    }
  }
  return {};
}

Expected<void> check_workspace(const Problem& p, const char* call, const CallWorkspace& workspace,
                               std::span<const CallTensor> tensors) {
  if (p.device.type == DeviceType::cpu && workspace.stream != nullptr) return raise(errors::StreamOnCpu{.call = call});
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

Expected<void> check_call(const Problem& p, const char* call, std::span<const CallTensor> tensors,
                          const CallWorkspace& workspace) {
  ISO_RETURN_IF_ERROR(check_tensors(p, call, tensors));
  ISO_RETURN_IF_ERROR(check_apart(tensors));
  return check_workspace(p, call, workspace, tensors);
}

}  // namespace

Expected<ForwardTensors> validate_forward(const Problem& p, const isoflash_forward_args& args, std::size_t needed) {
  if (args.reserved0 != 0) return raise(errors::ReservedField{.field = "forward_args.reserved0", .got = args.reserved0});
  ForwardTensors t;
  const CallTensor tensors[] = {{TensorId::q, Use::read, Need::required, args.q, t.q},
                                {TensorId::k, Use::read, Need::required, args.k, t.k},
                                {TensorId::v, Use::read, Need::required, args.v, t.v},
                                {TensorId::out, Use::written, Need::required, args.out, t.out},
                                {TensorId::lse, Use::written, Need::optional, args.lse, t.lse}};
  const CallWorkspace workspace{args.workspace, args.workspace_size, needed, args.stream};
  ISO_RETURN_IF_ERROR(check_call(p, "isoflash_forward", tensors, workspace));
  return t;
}

Expected<BackwardTensors> validate_backward(const Problem& p, const isoflash_backward_args& args, std::size_t needed) {
  if (args.reserved0 != 0) return raise(errors::ReservedField{.field = "backward_args.reserved0", .got = args.reserved0});
  BackwardTensors t;
  const CallTensor tensors[] = {{TensorId::q, Use::read, Need::required, args.q, t.q},
                                {TensorId::k, Use::read, Need::required, args.k, t.k},
                                {TensorId::v, Use::read, Need::required, args.v, t.v},
                                {TensorId::out, Use::read, Need::required, args.out, t.out},
                                {TensorId::lse, Use::read, Need::required, args.lse, t.lse},
                                {TensorId::dout, Use::read, Need::required, args.dout, t.dout},
                                {TensorId::dlse, Use::read, Need::optional, args.dlse, t.dlse},
                                {TensorId::dq, Use::written, Need::optional, args.dq, t.dq},
                                {TensorId::dk, Use::written, Need::optional, args.dk, t.dk},
                                {TensorId::dv, Use::written, Need::optional, args.dv, t.dv}};
  const CallWorkspace workspace{args.workspace, args.workspace_size, needed, args.stream};
  ISO_RETURN_IF_ERROR(check_call(p, "isoflash_backward", tensors, workspace));
  return t;
}

}  // namespace iso
