// `isoflash list`: backends and kernels, which one serves a problem, and why another does not.
#include <memory>
#include <optional>

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "isoflash/isoflash.h"
#include "option_values.h"
#include "terminal.h"

namespace iso::tool {
namespace {

using ErrorPtr = std::unique_ptr<isoflash_error, decltype(&isoflash_error_destroy)>;

struct ListOptions {
  bool why = false, as_json = false, deterministic = false;
  std::string dtype = "bf16", device = "cpu";
  std::int64_t batch = 1, seqlen_kv = 1024, heads = 4, kv_heads = 2, head_dim = 128;
  std::optional<std::int64_t> seqlen_q, head_dim_v;
};

isoflash_dtype dtype_of(const std::string& name) {
  return name == "f32" ? ISOFLASH_F32 : name == "f16" ? ISOFLASH_F16 : name == "f64" ? ISOFLASH_F64 : ISOFLASH_BF16;
}

isoflash_problem problem_of(const ListOptions& o) {
  isoflash_problem problem;
  isoflash_problem_init(&problem);
  const std::int64_t seqlen_q = o.seqlen_q.value_or(o.seqlen_kv), dim_v = o.head_dim_v.value_or(o.head_dim);
  const auto tensor = [&](isoflash_tensor& t, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
    const std::int64_t shape[] = {o.batch, rows, heads, dim};
    isoflash_tensor_contiguous(&t, nullptr, dtype_of(o.dtype), 4, shape);
    t.device_type = o.device == "cuda" ? ISOFLASH_CUDA : ISOFLASH_CPU;
  };
  tensor(problem.q, seqlen_q, o.heads, o.head_dim);
  tensor(problem.k, o.seqlen_kv, o.kv_heads, o.head_dim);
  tensor(problem.v, o.seqlen_kv, o.kv_heads, dim_v);
  tensor(problem.out, seqlen_q, o.heads, dim_v);
  problem.deterministic = o.deterministic;
  return problem;
}

struct BackendLine {
  std::string name, kernel, why_not;  // kernel is empty where why_not is not
};

std::vector<BackendLine> backends_for(const isoflash_problem& problem) {
  const ErrorPtr error(isoflash_error_create(), isoflash_error_destroy);
  std::vector<BackendLine> lines;
  for (int n = 0; n < isoflash_backend_count(); ++n) {
    BackendLine line{isoflash_backend_name(n), {}, isoflash_backend_why_not(n, &problem, error.get())};
    if (line.why_not.empty()) {
      isoflash_plan_options options;
      isoflash_plan_options_init(&options);
      options.backend = isoflash_backend_name(n);
      isoflash_plan* plan = nullptr;
      if (isoflash_plan_create(&problem, &options, &plan, error.get()) == ISOFLASH_OK)
        line.kernel = isoflash_plan_kernel(plan);
      else
        line.why_not = isoflash_error_message(error.get());
      isoflash_plan_destroy(plan);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void print_levels() {
  const std::string in_use = isoflash_cpu_level_in_use();
  fmt::print("\nCPU levels, lowest first (ISOFLASH_CPU_LEVEL=NAME forces one):\n");
  for (int n = 0; n < isoflash_cpu_level_count(); ++n) {
    const char* name = isoflash_cpu_level_name(n);
    fmt::print("  {:<14} {}\n", name,
               name == in_use                    ? "in use"
               : isoflash_cpu_level_available(n) ? "available"
                                                 : "not on this processor");
  }
}

void list(const ListOptions& o, int& exit_code) {
  const isoflash_problem problem = problem_of(o);
  const std::vector<BackendLine> lines = backends_for(problem);
  bool served = false;
  for (const BackendLine& line : lines) served = served || line.why_not.empty();
  if (!served) exit_code = kExitCheckFailed;

  if (o.as_json) {
    nlohmann::json out{{"backends", nlohmann::json::array()}, {"cpu_level_in_use", isoflash_cpu_level_in_use()}};
    for (const BackendLine& line : lines)
      out["backends"].push_back(
          {{"name", line.name}, {"serves", line.why_not.empty()}, {"kernel", line.kernel}, {"why_not", line.why_not}});
    for (int n = 0; n < isoflash_cpu_level_count(); ++n)
      out["cpu_levels"].push_back(
          {{"name", isoflash_cpu_level_name(n)}, {"available", isoflash_cpu_level_available(n) != 0}});
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print(
      "problem: {} {}, batch {}, {} query rows, {} keys, {} query heads, {} KV heads, head_dim {}, head_dim_v {}\n\n",
      o.device, o.dtype, o.batch, problem.q.shape[1], o.seqlen_kv, o.heads, o.kv_heads, o.head_dim, problem.v.shape[3]);
  fmt::print("Backends in order of priority:\n");
  for (const BackendLine& line : lines) {
    fmt::print("  {:<14} {}\n", line.name, line.why_not.empty() ? "serves it with " + line.kernel : "does not serve it");
    if (!o.why || line.why_not.empty()) continue;
    for (const std::string& text : wrap(line.why_not, std::min(terminal_of(stdout).columns, 100), std::string(17, ' ')))
      fmt::print("{}\n", text);
  }
  if (!served && !o.why) fmt::print("  (--why says why)\n");
  fmt::print("GPU backends are not in this version.\n");
  print_levels();
}

}  // namespace

void add_list(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ListOptions>();
  CLI::App& c =
      *app.add_subcommand("list", "List backends and kernels; which one serves a problem, and why another does not.");
  c.add_flag("--why", o->why, "for each backend that does not serve the problem: the reason and the fix");
  c.add_flag("--json", o->as_json, "as JSON");
  c.add_option("--dtype", o->dtype, "element type")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "f64"}))
      ->capture_default_str();
  c.add_option("--device", o->device, "where the tensors live")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  const auto size = [&](const char* name, auto& value, const char* help) {
    return c.add_option(name, value, help)->transform(whole_number<std::int64_t>(0, INT64_MAX));  // the library judges them
  };
  size("--batch", o->batch, "sequences")->capture_default_str();
  size("--heads", o->heads, "query heads")->capture_default_str();
  size("--kv-heads", o->kv_heads, "key and value heads")->capture_default_str();
  size("--head-dim", o->head_dim, "of q and k")->capture_default_str();
  size("--head-dim-v", o->head_dim_v, "of v and out [--head-dim]");
  size("--seqlen,--seqlen-kv", o->seqlen_kv, "keys a sequence")->capture_default_str();
  size("--seqlen-q", o->seqlen_q, "query rows a sequence [--seqlen-kv]");
  c.add_flag("--deterministic", o->deterministic, "ask for bitwise repeatable results");
  c.footer(
      "Exit code 1 if no backend serves the problem.\n\n"
      "Examples:\n  isoflash list\n  isoflash list --why --dtype f16 --heads 20 --kv-heads 4 --head-dim 512");
  c.callback([o, &exit_code] { list(*o, exit_code); });
}

}  // namespace iso::tool
