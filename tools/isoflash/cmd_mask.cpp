// `isoflash mask`: draws what each query row sees and the class of each tile, of a mask in numbers or of a batch file, in the
// terminal, as SVG and as PNG.
#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "batch.h"
#include "commands.h"
#include "isoflash/isoflash.h"
#include "mask_picture.h"
#include "option_values.h"
#include "oracle_problem.h"
#include "usage_error.h"
#include "write_file.h"

namespace iso::tool {
namespace {

struct MaskOptions {
  std::optional<i64> context, history, candidates, candidate_begin, seqlen_q, seqlen_kv, query_offset;
  i64 group_size = 1;
  std::string history_kind = "bidirectional", window, history_valid, tile, svg, png;
  std::string batch;  // in place of all of the above but tile, svg and png
  i64 sequence = 0, head = 0;
};

// "10:20", "-1,0" or "64x128" as two whole numbers.
std::array<i64, 2> two_numbers(const std::string& text, char separator, const char* option, const char* example) {
  std::array<i64, 2> out{};
  const char *at = text.data(), *const end = text.data() + text.size();
  const auto first = std::from_chars(at, end, out[0]);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == separator) {
    const auto second = std::from_chars(first.ptr + 1, end, out[1]);
    if (second.ec == std::errc{} && second.ptr == end) return out;
  }
  throw UsageError(fmt::format("{} got '{}', expected two whole numbers", option, text),
                   fmt::format("for example {} {}", option, example));
}

// The library itself checks the mask: the same rules and the same errors as for a real problem.
void check_with_library(const isoflash_mask& mask, i64 seqlen_q, i64 seqlen_kv) {
  isoflash_problem problem;
  isoflash_problem_init(&problem);
  const std::int64_t q_shape[] = {1, seqlen_q, 1, 8}, kv_shape[] = {1, seqlen_kv, 1, 8};
  isoflash_tensor_contiguous(&problem.q, nullptr, ISOFLASH_F32, 4, q_shape);
  isoflash_tensor_contiguous(&problem.k, nullptr, ISOFLASH_F32, 4, kv_shape);
  isoflash_tensor_contiguous(&problem.v, nullptr, ISOFLASH_F32, 4, kv_shape);
  isoflash_tensor_contiguous(&problem.out, nullptr, ISOFLASH_F32, 4, q_shape);
  problem.mask = mask;
  const std::unique_ptr<isoflash_error, decltype(&isoflash_error_destroy)> error(isoflash_error_create(),
                                                                                 isoflash_error_destroy);
  isoflash_plan* plan = nullptr;
  const isoflash_status status = isoflash_plan_create(&problem, nullptr, &plan, error.get());
  isoflash_plan_destroy(plan);
  if (status != ISOFLASH_OK)
    throw UsageError(fmt::format("[{}] {}", status, isoflash_error_message(error.get())),
                     fmt::format("isoflash explain {}", status));
}

void check_size(i64 seqlen_q, i64 seqlen_kv) {
  if (seqlen_q * seqlen_kv > (i64{1} << 26))
    throw UsageError(fmt::format("{} x {} pairs are too many for a picture (limit 2^26)", seqlen_q, seqlen_kv),
                     "draw a smaller mask of the same form");
}

MaskView view_of_options(const MaskOptions& o) {
  isoflash_problem defaults;
  isoflash_problem_init(&defaults);
  isoflash_mask mask = defaults.mask;
  const i64 context = o.context.value_or(0), candidates = o.candidates.value_or(0);
  const i64 history = o.history.value_or(o.seqlen_kv.value_or(context + candidates) - context - candidates);
  const i64 candidate_begin = o.candidate_begin.value_or(context + history);
  const i64 seqlen_kv = o.seqlen_kv.value_or(std::max(candidate_begin + candidates, context + history));
  const i64 seqlen_q = o.seqlen_q.value_or(seqlen_kv);
  if (seqlen_kv < 1 || seqlen_q < 1)
    throw UsageError("there is nothing to draw: no query or no key",
                     "give --context, --history, --candidates or --seqlen-kv");
  check_size(seqlen_q, seqlen_kv);

  mask.num_context.value = context;
  mask.history_len.value = history;
  mask.num_candidates.value = candidates;
  mask.candidate_begin.value = candidate_begin;
  mask.candidate_group_size = o.group_size;
  if (o.query_offset) mask.query_offset.value = *o.query_offset;
  if (o.history_kind == "causal") mask.history_kind = ISOFLASH_HISTORY_CAUSAL;
  if (o.history_kind == "window") mask.history_kind = ISOFLASH_HISTORY_WINDOW;
  if ((o.history_kind == "window") == o.window.empty())
    throw UsageError("--history-kind window and --window L,R belong together",
                     "for example --history-kind window --window 4,0");
  if (!o.window.empty()) {
    const auto [left, right] = two_numbers(o.window, ',', "--window", "4,0 (-1: no limit)");
    mask.window_left = left;
    mask.window_right = right;
  }
  if (!o.history_valid.empty()) {
    const auto [begin, end] = two_numbers(o.history_valid, ':', "--history-valid", "3:8");
    mask.history_begin.value = begin;
    mask.history_end.value = end;
  }
  check_with_library(mask, seqlen_q, seqlen_kv);

  const auto position = [](i64 value, i64 otherwise) {
    return static_cast<i32>(value == ISOFLASH_DEFAULT ? otherwise : value);
  };
  const auto reach = [](i64 value) { return value < 0 || value > kUnlimited ? kUnlimited : static_cast<i32>(value); };
  MaskSpec spec;
  spec.seqlen_kv = static_cast<i32>(seqlen_kv);
  spec.context_end = static_cast<i32>(context);
  spec.history_end_slot = static_cast<i32>(context + history);
  spec.history_begin = position(mask.history_begin.value, context);
  spec.history_end = position(mask.history_end.value, context + history);
  spec.candidate_begin = static_cast<i32>(candidate_begin);
  spec.candidate_end = static_cast<i32>(candidate_begin + candidates);
  spec.candidate_group_size = static_cast<i32>(o.group_size);
  spec.history_kind = static_cast<HistoryKind>(mask.history_kind);
  spec.window_left = reach(mask.window_left);
  spec.window_right = reach(mask.window_right);
  spec.query_offset = position(mask.query_offset.value, seqlen_kv - seqlen_q);
  return view_of(spec, static_cast<i32>(seqlen_q), 0, 0);
}

// Without --tile: the power of two that gives at most 16 tiles a side, at most the CPU kernels' order of size.
int default_tile(i32 length) {
  int tile = 4;
  while (tile < 128 && ceil_div(length, tile) > 16) tile *= 2;
  return tile;
}

// One sequence of a batch file. The arrays that its views point into live as long as this.
class BatchView {
 public:
  explicit BatchView(const MaskOptions& o) : batch_(value_or_usage_error(read_batch(o.batch))) {
    const isoflash::Problem call = value_or_usage_error(library_problem(o.batch, batch_));
    if (const auto plan = isoflash::Plan::create(call); !plan) throw_usage_error(plan.error().id(), plan.error().message());
    oracle_ = oracle_problem(call);
    const auto in_range = [&](const char* option, i64 got, i64 count) {
      if (got >= count)
        throw UsageError(fmt::format("{} {}: {} has {}", option, got, o.batch, count), "they are counted from 0");
    };
    in_range("--sequence", o.sequence, oracle_.problem.batch);
    in_range("--head", o.head, oracle_.problem.num_heads_q);
    view_.sequence = oracle_.sequences[static_cast<std::size_t>(o.sequence)];
    view_.head = o.head;
    const Sequence& s = view_.sequence;
    if (s.seqlen_q == 0 || s.seqlen_kv == 0)
      throw UsageError(fmt::format("sequence {} has {} query rows and {} keys: there is nothing to draw", o.sequence,
                                   s.seqlen_q, s.seqlen_kv),
                       "choose another one by --sequence");
    check_size(s.seqlen_q, s.seqlen_kv);
  }
  const MaskView& view() const { return view_; }

  // What is drawn, in words.
  std::string title(const MaskOptions& o) const {
    const Sequence& s = view_.sequence;
    std::string out = fmt::format("sequence {} of {}, query head {}: {} query rows from position {}, {} keys", o.sequence,
                                  oracle_.problem.batch, o.head, s.seqlen_q, s.mask.query_offset, s.seqlen_kv);
    if (s.block_table != nullptr)
      out += fmt::format(", {} in pages of {}", s.seqlen_cached, s.page_size);
    else if (oracle_.problem.new_keys)
      out += fmt::format(", {} in the cache", s.seqlen_cached);
    if (s.intervals.data != nullptr) out += "; by row_intervals";
    if (given(s.blocks)) out += fmt::format("; by block lists of {}x{}", s.blocks.block_m, s.blocks.block_n);
    return out + "\n";
  }

 private:
  Batch batch_;
  OracleProblem oracle_;
  MaskView view_;
};

// The blocks of block lists, else tiles by size; --tile overrides.
void choose_tiles(const MaskOptions& o, MaskView& view) {
  const Sequence& s = view.sequence;
  view.tile_m = view.tile_n = default_tile(std::max(s.seqlen_q, s.seqlen_kv));
  if (given(s.blocks)) {
    view.tile_m = s.blocks.block_m;
    view.tile_n = s.blocks.block_n;
  }
  if (o.tile.empty()) return;
  const auto [m, n] = two_numbers(o.tile, 'x', "--tile", "64x128");
  if (m < 1 || n < 1 || m > kMaxSeqlen || n > kMaxSeqlen)
    throw UsageError(fmt::format("--tile got '{}', expected sizes from 1 to {}", o.tile, kMaxSeqlen),
                     "for example --tile 64x128");
  view.tile_m = static_cast<i32>(m);
  view.tile_n = static_cast<i32>(n);
}

void draw(const MaskOptions& o) {
  const auto batch = o.batch.empty() ? nullptr : std::make_unique<BatchView>(o);
  MaskView view = batch ? batch->view() : view_of_options(o);
  choose_tiles(o, view);
  if (!o.svg.empty()) {
    write_file(o.svg, mask_svg(view));
    fmt::print(stderr, "wrote {}\n", o.svg);
  }
  if (!o.png.empty()) {
    write_png(o.png, mask_image(view));
    fmt::print(stderr, "wrote {}\n", o.png);
  }
  if (!o.svg.empty() || !o.png.empty()) return;
  if (batch) fmt::print("{}", batch->title(o));
  fmt::print("{}", mask_text(view, terminal_of(stdout)));
}

}  // namespace

void add_mask(CLI::App& app, int&) {
  auto o = std::make_shared<MaskOptions>();
  CLI::App& c = *app.add_subcommand("mask", "Draw what each query row sees and the tile classes: terminal, SVG, PNG.");
  const CLI::Validator size = whole_number<i64>(0, kMaxSeqlen - 1), near_zero = whole_number<i64>(-kMaxSeqlen, kMaxSeqlen);
  c.add_option("--context", o->context, "context tokens, seen by every query [0]")->transform(size);
  c.add_option("--history", o->history, "history tokens [what --seqlen-kv leaves]")->transform(size);
  c.add_option("--history-kind", o->history_kind, "what a history query sees of the history")
      ->check(CLI::IsMember({"bidirectional", "causal", "window"}))
      ->capture_default_str();
  c.add_option("--window", o->window, "L,R: keys p-L to p+R, for --history-kind window; -1: no limit");
  c.add_option("--history-valid", o->history_valid, "B:E: positions of the history that are valid, the rest is padding");
  c.add_option("--candidates", o->candidates, "candidate tokens [0]")->transform(size);
  c.add_option("--group-size", o->group_size, "candidates that see each other")
      ->transform(near_zero)
      ->capture_default_str();
  c.add_option("--candidate-begin", o->candidate_begin, "position of the first candidate [context + history]")
      ->transform(size);
  c.add_option("--seqlen-kv", o->seqlen_kv, "keys [what the parts need]")->transform(size);
  c.add_option("--seqlen-q", o->seqlen_q, "query rows [--seqlen-kv]")->transform(size);
  c.add_option("--query-offset", o->query_offset, "position of query row 0 [seqlen-kv - seqlen-q]")->transform(near_zero);
  const std::vector<CLI::Option*> numbers = c.get_options([&](CLI::Option* option) { return option != c.get_help_ptr(); });
  auto* const batch = c.add_option("--batch", o->batch, "draw a sequence of this batch file instead (.safetensors)");
  for (CLI::Option* const option : numbers) batch->excludes(option);
  c.add_option("--sequence", o->sequence, "which sequence of the batch, from 0 [0]")
      ->transform(whole_number<i64>(0, INT64_MAX))
      ->needs(batch);
  c.add_option("--head", o->head, "as which query head sees it, from 0 [0]")
      ->transform(whole_number<i64>(0, INT64_MAX))
      ->needs(batch);
  c.add_option("--tile", o->tile, "MxN: tiles of M query rows and N keys [by size, or those of block lists]");
  c.add_option("--svg", o->svg, "write an SVG instead of drawing in the terminal");
  c.add_option("--png", o->png, "write a PNG (both may be given)");
  c.footer(
      "Examples:\n"
      "  isoflash mask --context 2 --history 10 --candidates 6\n"
      "  isoflash mask --history 1024 --candidates 64 --history-kind causal --tile 64x64\n"
      "  isoflash mask --history 1024 --candidates 64 --seqlen-q 64 --svg candidates-only.svg\n"
      "  isoflash mask --batch batch.safetensors --sequence 3");
  c.callback([o] { draw(*o); });
}

}  // namespace iso::tool
