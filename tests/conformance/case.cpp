#include "conformance/case.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

namespace iso::conformance {
namespace {

struct ListField {
  const char* key;
  std::vector<i64> Case::*list;
};
constexpr ListField kLists[] = {{"q", &Case::seqlen_q},
                                {"k", &Case::seqlen_kv},
                                {"usedq", &Case::seqused_q},
                                {"usedk", &Case::seqused_kv},
                                {"context", &Case::num_context},
                                {"history", &Case::history_len},
                                {"hbegin", &Case::history_begin},
                                {"hend", &Case::history_end},
                                {"candidates", &Case::num_candidates},
                                {"cbegin", &Case::candidate_begin},
                                {"offset", &Case::query_offset}};

template <class Enum, std::size_t kCount>
bool parse_name(std::string_view text, const char* const (&names)[kCount], Enum& value) {
  for (std::size_t n = 0; n < kCount; ++n) {
    if (text != names[n]) continue;
    value = static_cast<Enum>(n);
    return true;
  }
  return false;
}

bool parse_int(std::string_view text, i64& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_real(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Cuts the part before `separator` off `text`; all of it if there is none.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}

bool parse_list(std::string_view text, std::vector<i64>& list) {
  list.clear();
  while (!text.empty()) {
    i64 value;
    if (!parse_int(cut(text, ','), value)) return false;
    list.push_back(value);
  }
  return !list.empty();
}

// "8/2", or "8" for both.
bool parse_pair(std::string_view text, i64& first, i64& second) {
  if (!parse_int(cut(text, '/'), first)) return false;
  if (text.empty()) return second = first, true;
  return parse_int(text, second);
}

bool parse_reach(std::string_view text, i64& reach) {
  if (text == "*") return reach = -1, true;
  return parse_int(text, reach) && reach >= 0;
}

bool parse_kind(std::string_view text, Case& c) {
  if (text == "bidirectional") return c.history_kind = HistoryKind::bidirectional, true;
  if (text == "causal") return c.history_kind = HistoryKind::causal, true;
  if (cut(text, ':') != "window") return false;
  c.history_kind = HistoryKind::window;
  return parse_reach(cut(text, ':'), c.window_left) && parse_reach(text, c.window_right);
}

bool parse_cap(std::string_view text, Case& c) {
  const std::string_view kind = cut(text, ':');
  if (kind == "tanh")
    c.softcap_kind = SoftcapKind::tanh;
  else if (kind == "softsign")
    c.softcap_kind = SoftcapKind::soft_sign;
  else
    return false;
  return parse_real(text, c.softcap) && c.softcap > 0;
}

bool parse_kv(std::string_view text, Case& c) {
  if (text == "dense") return c.kv_layout = KvLayout::dense, true;
  if (text == "packed") return c.kv_layout = KvLayout::packed, true;
  if (cut(text, ':') != "paged") return false;
  c.kv_layout = KvLayout::paged;
  return parse_int(text, c.page_size) && c.page_size > 0;
}

// A letter of a case's text that sets a flag.
struct Letter {
  char letter;
  bool* flag;
};

bool parse_letters(std::string_view text, std::initializer_list<Letter> letters) {
  for (const char x : text) {
    const auto found = std::find_if(letters.begin(), letters.end(), [x](const Letter& l) { return l.letter == x; });
    if (found == letters.end()) return false;
    *found->flag = true;
  }
  return true;
}
std::string print_letters(std::initializer_list<std::pair<char, bool>> letters, const char* before) {
  std::string out;
  for (const auto& [letter, set] : letters)
    if (set) out += letter;
  return out.empty() ? out : before + out;
}

bool parse_intervals(std::string_view text, RandomIntervals& x) {
  return parse_int(cut(text, ':'), x.count) && x.count > 0 && x.count <= 3 && parse_int(cut(text, ':'), x.seed) &&
         parse_letters(text, {{'b', &x.shared_batch}, {'h', &x.shared_heads}});
}
std::string print_intervals(const RandomIntervals& x) {
  return fmt::format("{}:{}{}", x.count, x.seed, print_letters({{'b', x.shared_batch}, {'h', x.shared_heads}}, ":"));
}

bool parse_blocks(std::string_view text, RandomBlocks& x) {
  return parse_int(cut(text, '/'), x.block_m) && parse_int(cut(text, ':'), x.block_n) && x.block_m > 0 && x.block_n > 0 &&
         x.block_m % 64 == 0 && x.block_n % 64 == 0 && parse_int(cut(text, ':'), x.seed) &&
         parse_letters(text, {{'b', &x.shared_batch},
                              {'h', &x.shared_heads},
                              {'v', &x.valid_bounds},
                              {'t', &x.both_forms},
                              {'m', &x.mask},
                              {'f', &x.full},
                              {'d', &x.diag}});
}
std::string print_blocks(const RandomBlocks& x) {
  return fmt::format("{}/{}:{}{}", x.block_m, x.block_n, x.seed,
                     print_letters({{'b', x.shared_batch},
                                    {'h', x.shared_heads},
                                    {'v', x.valid_bounds},
                                    {'t', x.both_forms},
                                    {'m', x.mask},
                                    {'f', x.full},
                                    {'d', x.diag}},
                                   ":"));
}

bool parse_bias(std::string_view text, Bias& x) {
  x.given = true;
  const std::string_view axes = cut(text, ':');
  if (!text.empty() && text != "inf") return false;
  x.infinite = !text.empty();
  return axes == "keys" || (!axes.empty() && parse_letters(axes, {{'b', &x.batch}, {'h', &x.heads}, {'q', &x.rows}}));
}
std::string print_bias(const Bias& x) {
  const std::string axes = print_letters({{'b', x.batch}, {'h', x.heads}, {'q', x.rows}}, "");
  return (axes.empty() ? "keys" : axes) + (x.infinite ? ":inf" : "");
}

bool parse_word(std::string_view word, Case& c) {
  if (word == "fwd" || word == "bwd") return c.backward = word == "bwd", true;
  if (word == "f32") return c.dtype = DType::f32, true;
  if (word == "bf16") return c.dtype = DType::bf16, true;
  if (word == "f16") return c.dtype = DType::f16, true;
  if (word == "dense" || word == "packed") return c.packed = word == "packed", true;
  if (word == "new") return c.new_keys = true;
  if (word == "dlse") return c.dlse = true;
  return false;
}

bool parse_field(std::string_view key, std::string_view value, Case& c) {
  for (const ListField& field : kLists)
    if (key == field.key) return parse_list(value, c.*field.list);
  if (key == "b") return parse_int(value, c.batch) && c.batch >= 0;
  if (key == "h") return parse_pair(value, c.num_heads_q, c.num_heads_kv);
  if (key == "d") return parse_pair(value, c.head_dim, c.head_dim_v);
  if (key == "group") return parse_int(value, c.candidate_group_size) && c.candidate_group_size > 0;
  if (key == "kind") return parse_kind(value, c);
  if (key == "kv") return parse_kv(value, c);
  if (key == "intervals") return parse_intervals(value, c.intervals);
  if (key == "blocks") return parse_blocks(value, c.blocks);
  if (key == "sink") return parse_name(value, kSinkNames, c.sink);
  if (key == "bias") return parse_bias(value, c.bias);
  if (key == "splits") return parse_int(value, c.num_splits) && c.num_splits > 0;
  if (key == "cap") return parse_cap(value, c);
  if (key == "scale") return parse_real(value, c.scale.emplace());
  if (key == "strides") return parse_name(value, kStridesNames, c.strides);
  if (key == "data") return parse_name(value, kDataNames, c.data);
  return false;
}

bool has_mask(const Case& c) {
  for (const auto list : {&Case::num_context, &Case::history_len, &Case::history_begin, &Case::history_end,
                          &Case::num_candidates, &Case::candidate_begin})
    if (!(c.*list).empty()) return true;
  return c.history_kind != HistoryKind::bidirectional || c.candidate_group_size != 1;
}

// What the lengths contradict; empty if nothing.
std::string length_contradiction(const Case& c) {
  const std::size_t batch = static_cast<std::size_t>(c.batch);
  if (c.packed && c.kv_layout == KvLayout::packed && c.seqlen_q.size() != c.seqlen_kv.size())
    return "q= and k= must list equally many lengths";
  if (!c.packed && c.seqlen_q.size() != 1) return "a dense case has one q= and one k= (see usedq=, usedk=)";
  if (c.kv_layout == KvLayout::dense && c.seqlen_kv.size() != 1) return "dense keys have one k= (see usedk=)";
  if (c.kv_layout == KvLayout::packed && c.seqlen_kv.size() != batch) return "packed keys have one k= per sequence";
  if (c.kv_layout == KvLayout::paged && c.seqlen_kv.size() != batch && c.seqlen_kv.size() != 1)
    return "pages have one k= for all sequences or one for each";
  if (c.kv_layout == KvLayout::paged && !c.seqused_kv.empty()) return "usedk= is for dense and packed keys";
  for (const ListField& field : kLists) {
    const std::vector<i64>& list = c.*field.list;
    const bool rows = field.list == &Case::seqlen_q || field.list == &Case::seqlen_kv;
    const bool used = field.list == &Case::seqused_q || field.list == &Case::seqused_kv;
    if (!rows && !list.empty() && list.size() != batch && (used || list.size() != 1))
      return fmt::format("{}= needs one number per sequence ({})", field.key, batch);
  }
  return {};
}

// What makes a case unusable although every token is right; empty if nothing.
std::string contradiction(const Case& c) {
  if (std::string what = length_contradiction(c); !what.empty()) return what;
  if (c.num_heads_kv < 1 || c.num_heads_q % c.num_heads_kv != 0)
    return "h= needs a whole number of query heads per kv head";
  if (c.head_dim < 1 || c.head_dim_v < 1) return "d= must be at least 1";
  const bool cache = c.new_keys || c.kv_layout == KvLayout::paged;
  if (cache && c.backward) return "kv=paged and new are forward only: fwd";
  if (!cache && c.packed != (c.kv_layout == KvLayout::packed)) return "keys laid out otherwise than q need new";
  if (c.strides == Strides::fused && !c.new_keys && (c.kv_layout == KvLayout::paged || c.seqlen_q != c.seqlen_kv))
    return "strides=fused needs q= and k= to be equal, or new";
  if (c.intervals.count > 0 && has_mask(c)) return "intervals= stand in place of the mask: only offset= may be given";
  if (c.packed && (c.intervals.shared_batch || c.blocks.shared_batch || c.bias.batch))
    return "packed tensors have no batch axis: the letter b is for dense cases";
  if (c.blocks.valid_bounds && (cache || c.blocks.block_m != c.blocks.block_n || c.seqlen_q != c.seqlen_kv))
    return "valid bounds (v) need block_m = block_n and equal q= and k=";
  if (c.blocks.both_forms && cache) return "backward lists (t) need keys in k and v";
  return {};
}

std::string print_list(const std::vector<i64>& list) { return fmt::format("{}", fmt::join(list, ",")); }
std::string print_pair(i64 first, i64 second) {
  return first == second ? fmt::format("{}", first) : fmt::format("{}/{}", first, second);
}
std::string print_reach(i64 reach) { return reach < 0 ? "*" : fmt::format("{}", reach); }

i64 sum(const std::vector<i64>& list) {
  i64 total = 0;
  for (const i64 x : list) total += x;
  return total;
}

}  // namespace

i64 value_of(const std::vector<i64>& list, i64 sequence, i64 otherwise) {
  return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[sequence];
}

tl::expected<Case, std::string> parse_case(std::string_view text) {
  Case c;
  bool batch_given = false, layout_given = false;
  while (!text.empty()) {
    const std::string_view token = cut(text, ' ');
    if (token.empty()) continue;
    std::string_view value = token;
    const std::string_view key = cut(value, '=');
    batch_given = batch_given || key == "b";
    layout_given = layout_given || key == "kv";
    if (!(key.size() == token.size() ? parse_word(token, c) : parse_field(key, value, c)))
      return tl::unexpected(fmt::format("'{}' is not part of a case", token));
  }
  if (c.seqlen_q.empty() || c.seqlen_kv.empty()) return tl::unexpected(std::string("a case needs q= and k="));
  if (c.packed && batch_given) return tl::unexpected(std::string("b= is for dense cases; packed ones list lengths"));
  if (c.packed) c.batch = static_cast<i64>(c.seqlen_q.size());
  if (c.packed && !layout_given) c.kv_layout = KvLayout::packed;
  if (std::string what = contradiction(c); !what.empty()) return tl::unexpected(what);
  return c;
}

std::string print_case(const Case& c) {
  const char* dtype = c.dtype == DType::f32 ? "f32" : c.dtype == DType::bf16 ? "bf16" : "f16";
  std::string out = fmt::format("{} {} {}", c.backward ? "bwd" : "fwd", dtype, c.packed ? "packed" : "dense");
  const auto add = [&](std::string_view key, const std::string& value) { out += fmt::format(" {}={}", key, value); };
  if (!c.packed) add("b", fmt::format("{}", c.batch));
  for (const char* key : {"q", "k", "usedq", "usedk"})
    for (const ListField& field : kLists)
      if (std::string_view(field.key) == key && !(c.*field.list).empty()) add(key, print_list(c.*field.list));
  if (c.kv_layout == KvLayout::paged)
    add("kv", fmt::format("paged:{}", c.page_size));
  else if (c.packed != (c.kv_layout == KvLayout::packed))
    add("kv", c.packed ? "dense" : "packed");
  if (c.new_keys) out += " new";
  add("h", print_pair(c.num_heads_q, c.num_heads_kv));
  add("d", print_pair(c.head_dim, c.head_dim_v));
  if (c.history_kind == HistoryKind::causal) add("kind", "causal");
  if (c.history_kind == HistoryKind::window)
    add("kind", fmt::format("window:{}:{}", print_reach(c.window_left), print_reach(c.window_right)));
  for (const char* key : {"context", "history", "hbegin", "hend", "candidates", "cbegin", "offset"})
    for (const ListField& field : kLists)
      if (std::string_view(field.key) == key && !(c.*field.list).empty()) add(key, print_list(c.*field.list));
  if (c.candidate_group_size != 1) add("group", fmt::format("{}", c.candidate_group_size));
  if (c.intervals.count > 0) add("intervals", print_intervals(c.intervals));
  if (c.blocks.block_m > 0) add("blocks", print_blocks(c.blocks));
  if (c.scale) add("scale", fmt::format("{}", *c.scale));
  if (c.softcap_kind != SoftcapKind::none)
    add("cap", fmt::format("{}:{}", c.softcap_kind == SoftcapKind::tanh ? "tanh" : "softsign", c.softcap));
  if (c.sink != Sink::none) add("sink", kSinkNames[static_cast<int>(c.sink)]);
  if (c.bias.given) add("bias", print_bias(c.bias));
  if (c.num_splits > 0) add("splits", fmt::format("{}", c.num_splits));
  if (c.strides != Strides::contiguous) add("strides", kStridesNames[static_cast<int>(c.strides)]);
  if (c.data != Data::normal) add("data", kDataNames[static_cast<int>(c.data)]);
  if (c.dlse) out += " dlse";
  return out;
}

Problem problem_of(const Case& c) {
  Problem p;
  p.batch = c.batch;
  p.num_heads_q = c.num_heads_q;
  p.num_heads_kv = c.num_heads_kv;
  p.head_dim = c.head_dim;
  p.head_dim_v = c.head_dim_v;
  p.packed = c.packed;
  p.kv_layout = c.kv_layout;
  p.new_keys = c.new_keys;
  p.sink = c.sink != Sink::none;
  p.bias = c.bias.given;
  p.rows_q = sum(c.seqlen_q);
  p.rows_kv = c.kv_layout == KvLayout::paged ? c.page_size : sum(c.seqlen_kv);
  p.dtype = c.dtype;
  p.scale = c.scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim)));
  p.softcap_kind = c.softcap_kind;
  p.softcap = c.softcap;
  return p;
}

}  // namespace iso::conformance
