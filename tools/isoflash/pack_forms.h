// The same batch in other forms: what each row sees said as intervals or block lists, keys and values in pages or in a cache
// beside the candidates' own, sinks, a bias. The attention of intervals, lists, pages and cache is that of the plain batch.
#pragma once

#include "batch.h"

namespace iso::tool {

enum class MaskForm { spec, intervals, blocks };

struct FormOptions {
  MaskForm mask = MaskForm::spec;
  i64 page_size = 0;   // 0: k and v stay as they are
  bool cache = false;  // only candidates are queries: k and v hold context and history, k_new and v_new the candidates
  bool sink = false, bias = false;
  i64 block = 128;  // of block lists: rows and keys
  u64 seed = 1;     // of the order of the pages, the sinks and the bias
};

// Most elements of a bias; the memory for more would be a surprise.
inline constexpr i64 kMaxBiasElements = i64{1} << 26;

// `batch`, packed or dense with a mask in numbers, in the form that the options say. Where keys lie in pages or a cache there
// is no backward, and dout is left out. Throws UsageError if the bias would be too large.
Batch in_form(Batch batch, const FormOptions& options);

}  // namespace iso::tool
