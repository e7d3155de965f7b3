// isoflash pack: a log of user interactions becomes a batch of ranker sequences.
#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "commands.h"
#include "option_values.h"
#include "pack.h"
#include "pack_forms.h"
#include "pack_options.h"
#include "terminal.h"
#include "usage_error.h"

namespace iso::tool {
namespace {

constexpr const char* kFooter =
    "FILE is a RecBole .inter file: a header line, then one interaction a line, tab-separated, with user_id, item_id,\n"
    "timestamp and, if there is one, rating. The output is described in docs/formats.md.\n"
    "--mask-as, --page-size and --cache write the same users in another form, with the same attention.\n"
    "Examples:\n"
    "  isoflash pack ml-100k.inter -o batch.safetensors --users 64 --dtype bf16\n"
    "  isoflash pack ml-100k.inter -o cached.safetensors --cache --page-size 16\n"
    "Exit codes: 0 written; 2 bad arguments or files.";

std::string summary(const Batch& batch) {
  const auto cu_seqlens = batch.find(batch_name::kCuSeqlens)->as<i32>();
  const auto candidates = batch.find(batch_name::kNumCandidates)->as<i32>();
  std::vector<i32> lengths;
  for (std::size_t b = 0; b + 1 < cu_seqlens.size(); ++b) lengths.push_back(cu_seqlens[b + 1] - cu_seqlens[b]);
  std::sort(lengths.begin(), lengths.end());
  i64 all_candidates = 0;
  for (const i32 n : candidates) all_candidates += n;
  return fmt::format("{} users, {} rows (shortest {}, median {}, longest {}), {} candidates", lengths.size(),
                     cu_seqlens.back(), lengths.front(), lengths[lengths.size() / 2], lengths.back(), all_candidates);
}

double megabytes(const Batch& batch) {
  double bytes = 0;
  for (const auto& [name, tensor] : batch.tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes / 1e6;
}

struct Arguments {
  std::string file, output;
  i64 generate = 0;
  PackFlags flags;
  std::string mask = "spec";
  FormOptions form;

  FormOptions form_options() const {
    FormOptions out = form;
    out.mask = mask == "blocks" ? MaskForm::blocks : mask == "intervals" ? MaskForm::intervals : MaskForm::spec;
    out.seed = flags.values.seed;
    return out;
  }
};

void pack(const Arguments& args) {
  if (args.file.empty() == (args.generate == 0))
    throw UsageError("give FILE or --generate N, one of the two", "isoflash pack --help shows both");
  const PackOptions options = args.flags.options();
  InteractionLog log;
  std::string source = "generated";
  if (args.file.empty()) {
    log = generate_interactions(static_cast<u32>(args.generate), options.seed);
  } else {
    log = value_or_usage_error(read_interactions(args.file));
    source = std::filesystem::path(args.file).filename().string();
  }
  const std::vector<Session> sessions = make_sessions(log, options);
  Batch batch = [&] {
    Progress progress("packing");
    return pack_batch(log, sessions, options, source, [&](i64 done, i64 total) {
      progress.show(fmt::format("{} %", done * 100 / std::max<i64>(total, 1)));
    });
  }();
  const std::string content = summary(batch);
  batch = in_form(std::move(batch), args.form_options());
  value_or_usage_error(write_batch(args.output, batch));
  fmt::print("{}: {}, {:.1f} MB\n", args.output, content, megabytes(batch));
}

void add_form_options(CLI::App& command, Arguments& args) {
  command
      .add_option("--mask-as", args.mask, "how to say what each row sees: numbers, row_intervals, or block lists of 128")
      ->check(CLI::IsMember({"spec", "intervals", "blocks"}))
      ->capture_default_str();
  command.add_option("--page-size", args.form.page_size, "put k and v into shuffled pages of so many rows; 0: no pages")
      ->transform(whole_number<i64>(0, 1'000'000))
      ->capture_default_str();
  command.add_flag("--cache", args.form.cache,
                   "context and history as cached k and v, only the candidates as queries, with keys of their own");
  command.add_flag("--sink", args.form.sink, "add a sink logit for each query head");
  command.add_flag("--bias", args.form.bias, "add a bias for each head, row and key: for small batches only");
}

}  // namespace

void add_pack(CLI::App& app, int& exit_code) {
  auto* const command = app.add_subcommand("pack", "Pack user interactions into a batch of ranker sequences");
  auto args = std::make_shared<Arguments>();
  command->add_option("FILE", args->file, "interactions (.inter)");
  command->add_option("--generate", args->generate, "make up this many users instead of reading FILE")
      ->transform(whole_number(1, 1'000'000));
  command->add_option("-o,--output", args->output, "the batch to write (.safetensors)")->required();
  args->flags.add_to(*command);
  add_form_options(*command, *args);
  command->footer(kFooter);
  command->callback([args, &exit_code] {
    pack(*args);
    exit_code = kExitOk;
  });
}

}  // namespace iso::tool
