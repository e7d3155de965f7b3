#include "pack_options.h"

#include <fmt/format.h>

#include "commands.h"
#include "option_values.h"

namespace iso::tool {

void PackFlags::add_to(CLI::App& command) {
  const auto number = [&](const char* name, i64& value, const char* help, i64 low, i64 high) {
    command.add_option(name, value, help)->transform(whole_number(low, high))->capture_default_str();
  };
  number("--users", values.users, "only the first so many users; 0: all", 0, 1'000'000'000);
  number("--heads", values.num_heads_q, "query heads", 1, 1024);
  number("--kv-heads", values.num_heads_kv, "key and value heads; must divide --heads", 1, 1024);
  number("--head-dim", values.head_dim, "width of a query and a key head", 1, 256);
  number("--head-dim-v", head_dim_v, "width of a value head; 0: as --head-dim", 0, 256);
  command.add_option("--dtype", dtype, "element type")->check(CLI::IsMember({"bf16", "f16", "f32"}))->capture_default_str();
  command.add_option("--seed", values.seed, "of the negatives, their order, and the projections")
      ->transform(whole_number<u64>(0, UINT64_MAX))
      ->capture_default_str();
  number("--max-history", values.max_history, "keep so many of the latest history items", 0, 1'000'000);
  number("--positives", values.positives,
         "positive candidates of a user with four times as many items or more; others: a quarter", 0, 1'000'000);
  command.add_option("--history", history, "what a history item sees of the history")
      ->check(CLI::IsMember({"bidirectional", "causal"}))
      ->capture_default_str();
}

PackOptions PackFlags::options() const {
  if (values.num_heads_q % values.num_heads_kv != 0)
    throw UsageError(fmt::format("--heads {} is not a multiple of --kv-heads {}", values.num_heads_q, values.num_heads_kv),
                     "give as many query heads as key and value heads, or a multiple");
  PackOptions out = values;
  out.head_dim_v = head_dim_v == 0 ? values.head_dim : head_dim_v;
  out.dtype = dtype == "bf16" ? DType::bf16 : dtype == "f16" ? DType::f16 : DType::f32;
  out.history_kind = history == "causal" ? HistoryKind::causal : HistoryKind::bidirectional;
  return out;
}

}  // namespace iso::tool
