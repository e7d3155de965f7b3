// A batch of ranker sequences in a safetensors file (docs/formats.md), and the call of the library that it describes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "isoflash/isoflash.hpp"
#include "safetensors.h"

namespace iso::tool {

// Names in the file, those of isoflash_problem where there is one; block lists: block_list_name(). q, k, v are needed, the
// rest is optional.
namespace batch_name {
inline constexpr const char* kQ = "q";
inline constexpr const char* kK = "k";
inline constexpr const char* kV = "v";
inline constexpr const char* kDout = "dout";
inline constexpr const char* kCuSeqlens = "cu_seqlens";  // of queries and keys alike
inline constexpr const char* kCuSeqlensQ = "cu_seqlens_q";
inline constexpr const char* kCuSeqlensKv = "cu_seqlens_kv";
inline constexpr const char* kSequsedQ = "seqused_q";
inline constexpr const char* kSequsedKv = "seqused_kv";
inline constexpr const char* kNumContext = "num_context";
inline constexpr const char* kHistoryLen = "history_len";
inline constexpr const char* kNumCandidates = "num_candidates";
inline constexpr const char* kHistoryBegin = "history_begin";
inline constexpr const char* kHistoryEnd = "history_end";
inline constexpr const char* kCandidateBegin = "candidate_begin";
inline constexpr const char* kQueryOffset = "query_offset";
inline constexpr const char* kRowIntervals = "row_intervals";
inline constexpr const char* kValidUpper = "blocks.valid_upper";
inline constexpr const char* kValidLower = "blocks.valid_lower";
inline constexpr const char* kBlockTable = "block_table";
inline constexpr const char* kKNew = "k_new";
inline constexpr const char* kVNew = "v_new";
inline constexpr const char* kSink = "sink";
inline constexpr const char* kBias = "bias";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kItemIds = "item_ids";
inline constexpr const char* kUserIds = "user_ids";
}  // namespace batch_name

// "blocks.forward.mask.counts": form forward or backward, kind mask, full or diag, part counts or indices.
std::string block_list_name(const char* form, const char* kind, const char* part);

struct Batch {
  std::map<std::string, TensorData> tensors;
  std::map<std::string, std::string> metadata;

  // Null if the batch has no such tensor.
  const TensorData* find(const std::string& name) const;
  // "a, b, c", for messages.
  std::string names() const;
  bool packed() const { return find(batch_name::kCuSeqlens) != nullptr || find(batch_name::kCuSeqlensQ) != nullptr; }
  bool paged() const { return find(batch_name::kBlockTable) != nullptr; }
  bool has_new_keys() const { return find(batch_name::kKNew) != nullptr; }
};

// Reads the tensors named above; a needed one that is missing, or one that cannot be what its name says, is an error.
// What the library checks itself (shapes against each other, lengths, the mask) is left to it.
Expected<Batch> read_batch(const std::string& path);
Expected<void> write_batch(const std::string& path, const Batch& batch);

// A tensor of a call, over the memory of `t`; absent if null.
isoflash::Tensor view(const TensorData* t);

// The batch as a call of the library: all its inputs, and out and lse without memory. The tensors point into `batch`.
Expected<isoflash::Problem> library_problem(const std::string& path, const Batch& batch);

// Memory for a tensor of a call, zeros.
TensorData memory_for(const isoflash::Tensor& t);

}  // namespace iso::tool
