// isoflash demo: the main job on real sessions, from interactions to verified gradients, and a page that shows it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/core.h>

#include "commands.h"
#include "core/reference.h"
#include "demo_report.h"
#include "machine.h"
#include "mask_picture.h"
#include "option_values.h"
#include "oracle_problem.h"
#include "pack.h"
#include "pack_options.h"
#include "run_batch.h"
#include "terminal.h"
#include "usage_error.h"
#include "write_file.h"

namespace iso::tool {
namespace {

constexpr const char* kFooter =
    "Packs the interactions (as `isoflash pack`), runs attention and gradients, verifies sampled rows against the float64\n"
    "oracle (as `isoflash run --backward`), and writes OUTPUT/index.html and OUTPUT/batch.safetensors. Without\n"
    "--interactions it makes up users of realistic history lengths. `make demo` fetches real ones first.\n"
    "Example: isoflash demo --interactions ml-100k.inter -o demo --users 100\n"
    "Exit codes: 0 everything verified; 1 a result is wrong; 2 bad arguments or files.";

constexpr i64 kGeneratedUsers = 943;
constexpr int kTile = 64;

struct Arguments {
  std::string interactions, output = "isoflash-demo";
  PackFlags flags;
  RunOptions run{.backward = true};
};

void ignore_progress(i64, i64) {}

DemoReport::SessionRow session_row(const InteractionLog& log, const Session& s, const MaskSpec& mask) {
  DemoReport::SessionRow row{.user = log.users[s.user],
                             .history = static_cast<i64>(s.history.size()),
                             .candidates = static_cast<i64>(s.candidates.size()),
                             .rows = s.rows()};
  for (const Candidate& candidate : s.candidates) row.positives += candidate.positive;
  row.visible_pairs = visible_pairs(mask, {0, mask.seqlen_kv});
  return row;
}

// The sequences, the work they make, and the tiles.
void describe_sequences(const InteractionLog& log, const std::vector<Session>& sessions,
                        const std::vector<Sequence>& sequences, DemoReport& report) {
  i64 longest = 0;
  std::size_t drawn = 0;
  for (std::size_t b = 0; b < sessions.size(); ++b) {
    const MaskSpec& mask = sequences[b].mask;
    report.sessions.push_back(session_row(log, sessions[b], mask));
    const i64 rows = sessions[b].rows();
    longest = std::max(longest, rows);
    report.visible_pairs += report.sessions.back().visible_pairs;
    report.rectangle_pairs += rows * rows;
    const TileGrid tiles = tile_grid(view_of(mask, mask.seqlen_kv, kTile, kTile));
    report.tiles_full += tiles.count(Tile::full);
    report.tiles_partial += tiles.count(Tile::partial);
    report.tiles_skipped += tiles.count(Tile::skipped);
    // Draw the user whose sequence is nearest to 48 rows: small enough to see single pairs.
    if (std::abs(rows - 48) < std::abs(sessions[drawn].rows() - 48)) drawn = b;
  }
  report.tile = kTile;
  report.padded_pairs = static_cast<i64>(sessions.size()) * longest * longest;
  report.mask = sequences[drawn].mask;
  report.mask_user = report.sessions[drawn].user;
}

// Runs one user, exchanges one candidate for an item that is not in the sequence, runs again, and compares bit for bit.
DemoReport::Isolation check_isolation(const InteractionLog& log, const std::vector<Session>& sessions,
                                      const PackOptions& options, RunOptions run_options) {
  DemoReport::Isolation found;
  const auto chosen =
      std::find_if(sessions.begin(), sessions.end(), [](const Session& s) { return s.candidates.size() >= 8; });
  if (chosen == sessions.end()) return found;
  Session session = *chosen;
  const std::size_t changed = session.candidates.size() / 2;
  std::vector<bool> used(log.items.size(), false);
  for (const Interaction& event : session.history) used[event.item] = true;
  for (const Candidate& candidate : session.candidates) used[candidate.item] = true;
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return found;

  run_options.backward = false;
  run_options.repeat = 1;
  const Batch before = pack_batch(log, {session}, options, "", ignore_progress);
  session.candidates[changed].item = static_cast<u32>(unused - used.begin());
  const Batch after = pack_batch(log, {session}, options, "", ignore_progress);
  const RunResult first = run_batch("", before, run_options), second = run_batch("", after, run_options);

  found.user = log.users[session.user];
  found.first_candidate = kContextRows + static_cast<i64>(session.history.size());
  found.changed_row = found.first_candidate + static_cast<i64>(changed);
  const i64 width = options.num_heads_q * options.head_dim_v;
  const std::size_t row_bytes = static_cast<std::size_t>(width) * dtype_size(options.dtype);
  const Tensor a = core_tensor(first.call.out), b = core_tensor(second.call.out);
  for (i64 row = 0; row < session.rows(); ++row) {
    double change = 0;
    for (i64 n = row * width; n < (row + 1) * width; ++n)
      change = std::max(change, std::abs(static_cast<double>(reference::load(a, n)) - reference::load(b, n)));
    found.change.push_back(change);
    const auto bytes_of = [&](const TensorData& t) {
      return static_cast<const char*>(t.data()) + static_cast<std::size_t>(row) * row_bytes;
    };
    found.same_bits.push_back(std::memcmp(bytes_of(first.out), bytes_of(second.out), row_bytes) == 0);
  }
  return found;
}

void print_report(const DemoReport& r, const std::string& output) {
  fmt::print("sessions   {} users of {}, {} rows\n", r.sessions.size(), r.source, r.total_rows());
  fmt::print("attention  {} query heads on {} key heads, head_dim {}, {}\n", r.num_heads_q, r.num_heads_kv, r.head_dim,
             r.dtype);
  fmt::print("kernel     {} on {}\n", r.kernel, r.processor);
  fmt::print("forward    {:.0f} ms, {:.1f} useful GFLOP/s, workspace {} bytes\n", r.forward_seconds * 1e3, r.forward_gflops,
             r.forward_workspace);
  fmt::print("backward   {:.0f} ms, {:.1f} useful GFLOP/s, workspace {} bytes\n", r.backward_seconds * 1e3,
             r.backward_gflops, r.backward_workspace);
  const auto share = [&](i64 pairs) { return static_cast<double>(pairs) / static_cast<double>(r.visible_pairs); };
  fmt::print(
      "work       {} visible pairs per head; every sequence in full {:.2f} times that, padded to the longest {:.1f} "
      "times\n",
      r.visible_pairs, share(r.rectangle_pairs), share(r.padded_pairs));
  for (const Verified& v : r.findings)
    fmt::print("{:<10} {} rows against the float64 oracle: largest error {:.2e}, allowed {:.2e}: {}\n", v.output, v.rows,
               v.error, v.allowed, v.finding.empty() ? "ok" : "WRONG");
  const DemoReport::Isolation& isolation = r.isolation;
  if (isolation.change.empty())
    fmt::print("isolation  not shown: no user has eight candidates and an item to exchange\n");
  else
    fmt::print("isolation  user {}: one candidate exchanged, the other {} rows keep every bit: {}\n", isolation.user,
               isolation.change.size() - 1, isolation.holds() ? "ok" : "WRONG");
  fmt::print("page       {}\n", output);
}

int demo(const Arguments& args) {
  const PackOptions options = args.flags.options();
  DemoReport report;
  report.generated = args.interactions.empty();
  InteractionLog log;
  if (report.generated) {
    log = generate_interactions(static_cast<u32>(options.users > 0 ? options.users : kGeneratedUsers), options.seed);
    report.source = "made-up interactions";
  } else {
    log = value_or_usage_error(read_interactions(args.interactions));
    report.source = std::filesystem::path(args.interactions).filename().string();
  }
  std::error_code failed;
  std::filesystem::create_directories(args.output, failed);
  if (failed)
    value_or_usage_error(Expected<void>(raise(errors::FileWrite{.path = args.output, .reason = failed.message()})));

  const std::vector<Session> sessions = make_sessions(log, options);
  const Batch batch = pack_batch(log, sessions, options, report.source, ignore_progress);
  const std::string batch_path = args.output + "/batch.safetensors";
  value_or_usage_error(write_batch(batch_path, batch));

  const RunResult run = run_batch(batch_path, batch, args.run);
  describe_sequences(log, sessions, oracle_problem(run.call).sequences, report);
  {
    Progress progress("verifying");
    report.findings = verify(run.call, run.tensors, VerifyMode::sample, [&](i64 done, i64 total) {
      progress.show(fmt::format("sequence {} of {}", done + 1, total));
    });
  }
  report.isolation = check_isolation(log, sessions, options, args.run);
  report.num_heads_q = options.num_heads_q;
  report.num_heads_kv = options.num_heads_kv;
  report.head_dim = options.head_dim;
  report.dtype = dtype_name(options.dtype);
  report.kernel = run.kernel;
  report.processor = this_machine().cpu_model;
  report.forward_seconds = run.forward_seconds;
  report.forward_gflops = run.forward_gflops();
  report.forward_workspace = run.forward_workspace;
  report.backward_seconds = run.backward_seconds;
  report.backward_gflops = run.backward_gflops();
  report.backward_workspace = run.backward_workspace;

  const std::string page = args.output + "/index.html";
  write_file(page, demo_page(report));
  print_report(report, page);
  for (const Verified& v : report.findings)
    if (!v.finding.empty()) fmt::print(stderr, "isoflash: {}\n", v.finding);
  const bool isolated = report.isolation.change.empty() || report.isolation.holds();
  return all_well(report.findings) && isolated ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_demo(CLI::App& app, int& exit_code) {
  auto* const command = app.add_subcommand("demo", "The whole tour: pack, run, verify, draw");
  auto args = std::make_shared<Arguments>();
  command->add_option("--interactions", args->interactions, "a RecBole .inter file; without it, made-up users");
  command->add_option("-o,--output", args->output, "folder for the page and the batch")->capture_default_str();
  command->add_option("--threads", args->run.threads, "0: one per core")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  args->flags.add_to(*command);
  command->footer(kFooter);
  command->callback([args, &exit_code] { exit_code = demo(*args); });
}

}  // namespace iso::tool
