#include "conformance/case.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace iso::conformance {
namespace {

struct ListField {
  const char* key;
  std::vector<i64> Case::*list;
};
constexpr ListField kLists[] = {
    {"q", &Case::seqlen_q},           {"k", &Case::seqlen_kv},           {"usedq", &Case::seqused_q},
    {"usedk", &Case::seqused_kv},     {"context", &Case::num_context},   {"history", &Case::history_len},
    {"hbegin", &Case::history_begin}, {"hend", &Case::history_end},      {"candidates", &Case::num_candidates},
    {"cbegin", &Case::candidate_begin}, {"offset", &Case::query_offset}};

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
  if (kind == "tanh") c.softcap_kind = SoftcapKind::tanh;
  else if (kind == "softsign") c.softcap_kind = SoftcapKind::soft_sign;
  else return false;
  return parse_real(text, c.softcap) && c.softcap > 0;
}

bool parse_word(std::string_view word, Case& c) {
  if (word == "fwd" || word == "bwd") return c.backward = word == "bwd", true;
  if (word == "f32") return c.dtype = DType::f32, true;
  if (word == "bf16") return c.dtype = DType::bf16, true;
  if (word == "f16") return c.dtype = DType::f16, true;
  if (word == "dense" || word == "packed") return c.packed = word == "packed", true;
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
  if (key == "cap") return parse_cap(value, c);
  if (key == "scale") return parse_real(value, c.scale.emplace());
  if (key == "strides") return parse_name(value, kStridesNames, c.strides);
  if (key == "data") return parse_name(value, kDataNames, c.data);
  return false;
}

// What makes a case unusable although every token is right; empty if nothing.
std::string contradiction(const Case& c) {
  const std::size_t batch = static_cast<std::size_t>(c.batch);
  if (c.seqlen_q.size() != c.seqlen_kv.size()) return "q= and k= must list equally many lengths";
  if (!c.packed && c.seqlen_q.size() != 1) return "a dense case has one q= and one k= (see usedq=, usedk=)";
  for (const ListField& field : kLists) {
    const std::vector<i64>& list = c.*field.list;
    const bool rows = field.list == &Case::seqlen_q || field.list == &Case::seqlen_kv;
    const bool used = field.list == &Case::seqused_q || field.list == &Case::seqused_kv;
    if (!rows && !list.empty() && list.size() != batch && (used || list.size() != 1))
      return fmt::format("{}= needs one number per sequence ({})", field.key, batch);
  }
  if (c.num_heads_kv < 1 || c.num_heads_q % c.num_heads_kv != 0)
    return "h= needs a whole number of query heads per kv head";
  if (c.head_dim < 1 || c.head_dim_v < 1) return "d= must be at least 1";
  if (c.strides == Strides::fused && c.seqlen_q != c.seqlen_kv) return "strides=fused needs q= and k= to be equal";
  return {};
}

std::string print_list(const std::vector<i64>& list) { return fmt::format("{}", fmt::join(list, ",")); }
std::string print_pair(i64 first, i64 second) {
  return first == second ? fmt::format("{}", first) : fmt::format("{}/{}", first, second);
}
std::string print_reach(i64 reach) { return reach < 0 ? "*" : fmt::format("{}", reach); }

i64 value_of(const std::vector<i64>& list, i64 sequence, i64 otherwise) {
  return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[sequence];
}

MaskSpec mask_of(const Case& c, i64 sequence, i64 seqlen_q, i64 seqlen_kv) {
  const i64 context = value_of(c.num_context, sequence, 0);
  const bool slot_given = !c.history_len.empty() || !c.candidate_begin.empty();
  const i64 last_candidates = seqlen_kv - value_of(c.num_candidates, sequence, 0);
  const i64 history = value_of(c.history_len, sequence, value_of(c.candidate_begin, sequence, last_candidates) - context);
  const i64 begin = value_of(c.candidate_begin, sequence, context + history);
  const i64 candidates = value_of(c.num_candidates, sequence, slot_given ? seqlen_kv - begin : 0);
  MaskSpec m;
  m.seqlen_kv = static_cast<i32>(seqlen_kv);
  m.context_end = static_cast<i32>(context);
  m.history_end_slot = static_cast<i32>(context + history);
  m.history_begin = static_cast<i32>(value_of(c.history_begin, sequence, context));
  m.history_end = static_cast<i32>(value_of(c.history_end, sequence, context + history));
  m.candidate_begin = static_cast<i32>(begin);
  m.candidate_end = static_cast<i32>(begin + candidates);
  m.candidate_group_size = static_cast<i32>(c.candidate_group_size);
  m.history_kind = c.history_kind;
  m.window_left = c.window_left < 0 ? kUnlimited : static_cast<i32>(c.window_left);
  m.window_right = c.window_right < 0 ? kUnlimited : static_cast<i32>(c.window_right);
  m.query_offset = static_cast<i32>(value_of(c.query_offset, sequence, seqlen_kv - seqlen_q));
  return m;
}

i64 sum(const std::vector<i64>& list) {
  i64 total = 0;
  for (const i64 x : list) total += x;
  return total;
}

}  // namespace

tl::expected<Case, std::string> parse_case(std::string_view text) {
  Case c;
  bool batch_given = false;
  while (!text.empty()) {
    const std::string_view token = cut(text, ' ');
    if (token.empty()) continue;
    std::string_view value = token;
    const std::string_view key = cut(value, '=');
    batch_given = batch_given || key == "b";
    if (!(key.size() == token.size() ? parse_word(token, c) : parse_field(key, value, c)))
      return tl::unexpected(fmt::format("'{}' is not part of a case", token));
  }
  if (c.seqlen_q.empty() || c.seqlen_kv.empty()) return tl::unexpected(std::string("a case needs q= and k="));
  if (c.packed && batch_given) return tl::unexpected(std::string("b= is for dense cases; packed ones list lengths"));
  if (c.packed) c.batch = static_cast<i64>(c.seqlen_q.size());
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
  add("h", print_pair(c.num_heads_q, c.num_heads_kv));
  add("d", print_pair(c.head_dim, c.head_dim_v));
  if (c.history_kind == HistoryKind::causal) add("kind", "causal");
  if (c.history_kind == HistoryKind::window)
    add("kind", fmt::format("window:{}:{}", print_reach(c.window_left), print_reach(c.window_right)));
  for (const char* key : {"context", "history", "hbegin", "hend", "candidates", "cbegin", "offset"})
    for (const ListField& field : kLists)
      if (std::string_view(field.key) == key && !(c.*field.list).empty()) add(key, print_list(c.*field.list));
  if (c.candidate_group_size != 1) add("group", fmt::format("{}", c.candidate_group_size));
  if (c.scale) add("scale", fmt::format("{}", *c.scale));
  if (c.softcap_kind != SoftcapKind::none)
    add("cap", fmt::format("{}:{}", c.softcap_kind == SoftcapKind::tanh ? "tanh" : "softsign", c.softcap));
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
  p.rows_q = sum(c.seqlen_q);
  p.rows_kv = sum(c.seqlen_kv);
  p.dtype = c.dtype;
  p.scale = c.scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim)));
  p.softcap_kind = c.softcap_kind;
  p.softcap = c.softcap;
  return p;
}

std::vector<Sequence> sequences_of(const Case& c) {
  std::vector<Sequence> out;
  i64 q_begin = 0, kv_begin = 0;
  for (i64 b = 0; b < c.batch; ++b) {
    Sequence s;
    s.slot_q = static_cast<i32>(value_of(c.seqlen_q, b, 0));
    s.slot_kv = static_cast<i32>(value_of(c.seqlen_kv, b, 0));
    s.seqlen_q = static_cast<i32>(value_of(c.seqused_q, b, s.slot_q));
    s.seqlen_kv = static_cast<i32>(value_of(c.seqused_kv, b, s.slot_kv));
    if (c.packed) {
      s.q_row_begin = q_begin;
      s.kv_row_begin = kv_begin;
      q_begin += s.slot_q;
      kv_begin += s.slot_kv;
    } else {
      s.q_batch = s.kv_batch = b;
    }
    s.mask = mask_of(c, b, s.seqlen_q, s.seqlen_kv);
    out.push_back(s);
  }
  return out;
}

}  // namespace iso::conformance
