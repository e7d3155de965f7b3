// A batch of ranker sequences in a safetensors file (docs/formats.md), and what the library and the oracle need of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/problem.h"
#include "isoflash/isoflash.hpp"
#include "safetensors.h"

namespace iso::tool {

// Names in the file. q, k, v are needed, the rest is optional.
namespace batch_name {
inline constexpr const char* kQ = "q";
inline constexpr const char* kK = "k";
inline constexpr const char* kV = "v";
inline constexpr const char* kDout = "dout";
inline constexpr const char* kCuSeqlens = "cu_seqlens";
inline constexpr const char* kNumContext = "num_context";
inline constexpr const char* kHistoryLen = "history_len";
inline constexpr const char* kNumCandidates = "num_candidates";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kItemIds = "item_ids";
inline constexpr const char* kUserIds = "user_ids";
}  // namespace batch_name

struct Batch {
  std::map<std::string, TensorData> tensors;
  std::map<std::string, std::string> metadata;

  // Null if the batch has no such tensor.
  const TensorData* find(const std::string& name) const;
  bool packed() const { return find(batch_name::kCuSeqlens) != nullptr; }
};

// Reads the tensors named above; a needed one that is missing, or one that cannot be what its name says, is an error.
// What the library checks itself (shapes against each other, lengths, the mask) is left to it.
Expected<Batch> read_batch(const std::string& path);
Expected<void> write_batch(const std::string& path, const Batch& batch);

// A tensor of a call, over the memory of `t`; absent if null.
isoflash::Tensor view(const TensorData* t);

// The batch as a call of the library: q, k, v and, once given memory, out and lse. The tensors point into `batch`.
Expected<isoflash::Problem> library_problem(const std::string& path, const Batch& batch);

// The same for the oracle, worked out here and not taken from the library. Call after a plan of library_problem() was
// made, which proves that the lengths and the mask fit together.
struct OracleProblem {
  Problem problem;
  std::vector<Sequence> sequences;
};
// A tensor of the ABI as core/ knows it.
Tensor core_tensor(const isoflash_tensor& t);
OracleProblem oracle_problem(const isoflash::Problem& call);

}  // namespace iso::tool
