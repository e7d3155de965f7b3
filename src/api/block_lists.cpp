// The builders of block lists, as isoflash.h has them.
#include "api/boundary.h"
#include "block_lists/built_lists.h"

struct isoflash_block_lists_handle {
  iso::BuiltLists lists;
};

namespace iso {
namespace {

// Runs `build`, an Expected<BuiltLists>(), and hands its result out.
template <class Build>
isoflash_status build_lists(const char* function, isoflash_block_lists_handle** lists, isoflash_error* error,
                            const Build& build) noexcept {
  if (lists != nullptr) *lists = nullptr;
  return guarded(error, function, [&]() -> Expected<void> {
    if (lists == nullptr) return raise(errors::NullArgument{.function = function, .argument = "lists"});
    auto built = build();
    if (!built) return tl::unexpected(std::move(built).error());
    *lists = new isoflash_block_lists_handle{std::move(*built)};
    return {};
  });
}

}  // namespace
}  // namespace iso

using namespace iso;

extern "C" {

isoflash_status isoflash_block_lists_from_problem(const isoflash_problem* problem, int64_t block_m, int64_t block_n,
                                                  isoflash_block_lists_handle** lists, isoflash_error* error) {
  static const char kFunction[] = "isoflash_block_lists_from_problem";
  return build_lists(kFunction, lists, error, [&]() -> Expected<BuiltLists> {
    if (problem == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "problem"});
    const auto descriptor = read_problem(problem);
    if (!descriptor) return tl::unexpected(descriptor.error());
    return lists_from_problem(*descriptor, block_m, block_n);
  });
}

isoflash_status isoflash_block_lists_from_sessions(const isoflash_tensor* cu_seqlens, const isoflash_tensor* candidate_slot,
                                                   const isoflash_tensor* padding, int64_t seqlen, int64_t prefix,
                                                   int64_t block, isoflash_block_lists_handle** lists,
                                                   isoflash_error* error) {
  static const char kFunction[] = "isoflash_block_lists_from_sessions";
  return build_lists(kFunction, lists, error, [&]() -> Expected<BuiltLists> {
    if (cu_seqlens == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "cu_seqlens"});
    if (candidate_slot == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "candidate_slot"});
    return lists_from_sessions({*cu_seqlens, *candidate_slot, padding, seqlen, prefix, block});
  });
}

isoflash_status isoflash_block_lists_transpose(const isoflash_block_sparsity* from, int64_t num_blocks,
                                               isoflash_block_lists_handle** lists, isoflash_error* error) {
  static const char kFunction[] = "isoflash_block_lists_transpose";
  return build_lists(kFunction, lists, error, [&]() -> Expected<BuiltLists> {
    if (from == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "from"});
    return transposed_lists(*from, num_blocks);
  });
}

const isoflash_block_sparsity* isoflash_block_lists_view(const isoflash_block_lists_handle* lists) {
  return lists == nullptr ? nullptr : &lists->lists.view();
}

void isoflash_block_lists_destroy(isoflash_block_lists_handle* lists) { delete lists; }

}  // extern "C"
