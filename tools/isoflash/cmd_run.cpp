// isoflash run: a batch through the library, verified against the oracle, timed.
#include <filesystem>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "option_values.h"
#include "run_batch.h"
#include "terminal.h"
#include "usage_error.h"
#include "verify.h"

namespace iso::tool {
namespace {

constexpr const char* kFooter =
    "BATCH is a safetensors file as `isoflash pack` writes it, or any other with tensors q, k, v (docs/formats.md).\n"
    "Useful FLOPs count visible pairs only: forward 2 * (head_dim + head_dim_v) * query heads * pairs, backward 2.5 times "
    "that.\n"
    "Example: isoflash run batch.safetensors --backward -o out.safetensors\n"
    "Exit codes: 0 verified (or --verify off); 1 a result is outside its tolerance; 2 the batch could not be run.";

struct Arguments {
  std::string batch, output, verify = "sample";
  RunOptions options;
};

void print_speed(const char* what, double seconds, double gflops, std::size_t workspace, int repeat) {
  fmt::print("{:<9} {:.2f} ms (median of {}), {:.1f} useful GFLOP/s, workspace {} bytes\n", what, seconds * 1e3, repeat,
             gflops, workspace);
}

int print_findings(const std::vector<Verified>& findings) {
  for (const Verified& v : findings) {
    fmt::print("{:<9} {} rows, largest error {:.2e}, allowed {:.2e}: {}\n", v.output, v.rows, v.error, v.allowed,
               v.finding.empty() ? "ok" : "WRONG");
    if (!v.finding.empty()) fmt::print(stderr, "isoflash: {}\n", v.finding);
  }
  return all_well(findings) ? kExitOk : kExitCheckFailed;
}

void save(const std::string& path, const RunResult& run, bool backward) {
  std::vector<NamedTensor> tensors{{"out", &run.out}, {"lse", &run.lse}};
  if (backward) {
    const Gradients& g = run.gradients;
    tensors.insert(tensors.end(), {{"dq", &g.dq}, {"dk", &g.dk}, {"dv", &g.dv}});
    if (run.call.sink.rank != 0) tensors.push_back({"dsink", &g.dsink});
    if (run.call.bias.rank != 0) tensors.push_back({"dbias", &g.dbias});
  }
  value_or_usage_error(write_safetensors(path, tensors, {{"format", "isoflash-result"}, {"kernel", run.kernel}}));
}

int run(const Arguments& args) {
  std::error_code unknown;
  if (!args.output.empty() && std::filesystem::equivalent(args.batch, args.output, unknown))
    throw UsageError("--output is the batch itself, which it would overwrite", "give another file");
  const Batch batch = value_or_usage_error(read_batch(args.batch));
  const RunResult result = run_batch(args.batch, batch, args.options);
  const bool backward = args.options.backward;
  fmt::print("kernel    {}, {} visible pairs per head\n", result.kernel, result.visible_pairs);
  print_speed("forward", result.forward_seconds, result.forward_gflops(), result.forward_workspace, args.options.repeat);
  if (backward)
    print_speed("backward", result.backward_seconds, result.backward_gflops(), result.backward_workspace,
                args.options.repeat);
  if (!args.output.empty()) save(args.output, result, backward);

  const VerifyMode mode = args.verify == "full"  ? VerifyMode::full
                          : args.verify == "off" ? VerifyMode::off
                                                 : VerifyMode::sample;
  const std::vector<Verified> findings = [&] {
    Progress progress("verifying");
    return verify(result.call, result.tensors, mode,
                  [&](i64 done, i64 total) { progress.show(fmt::format("sequence {} of {}", done + 1, total)); });
  }();
  return print_findings(findings);
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto* const command = app.add_subcommand("run", "Run a batch: attention, and gradients, verified and timed");
  auto args = std::make_shared<Arguments>();
  command->add_option("BATCH", args->batch, "the batch (.safetensors)")->required();
  command->add_flag("--backward", args->options.backward,
                    "also the gradients, from the batch's dout; not of paged or cached keys, which have none");
  command->add_option("-o,--output", args->output,
                      "write out, lse (and dq, dk, dv, dsink, dbias) to this .safetensors file");
  command->add_option("--backend", args->options.backend, "auto, or one that `isoflash list` names")->capture_default_str();
  command->add_option("--threads", args->options.threads, "0: one per core; results do not depend on it")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  command
      ->add_option("--num-splits", args->options.splits,
                   "parts that the keys are cut into and merged, forward; 0: the backend chooses")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  command->add_option("--verify", args->verify, "compare with the float64 oracle: sampled rows, every row (slow), or not")
      ->check(CLI::IsMember({"sample", "full", "off"}))
      ->capture_default_str();
  command->add_option("--repeat", args->options.repeat, "timed calls, after one that warms up")
      ->transform(whole_number(1, 10000))
      ->capture_default_str();
  command->footer(kFooter);
  command->callback([args, &exit_code] { exit_code = run(*args); });
}

}  // namespace iso::tool
