// The text of a case is all there is to it.
#include "conformance/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

namespace iso::conformance {
namespace {

constexpr struct {
  const char* name;
  const char* text;
} kLines[] = {
#define ISO_CASE(subset, name, text) {name, text},
#include "conformance/cases.inc"
#undef ISO_CASE
};

TEST(Case, EveryLineOfTheListIsWrittenTheCanonicalWay) {
  std::set<std::string> names;
  for (const auto& [name, text] : kLines) {
    const auto c = parse_case(text);
    ASSERT_TRUE(c) << name << ": " << c.error();
    EXPECT_EQ(print_case(*c), text) << "rewrite the line of case '" << name << "' in cases.inc like this";
    EXPECT_TRUE(names.insert(name).second) << "two cases are called '" << name << "': rename one in cases.inc";
  }
}

TEST(Case, PrintedCasesParseBack) {
  EXPECT_TRUE(rc::check("parse(print(c)) == c", [] {
    const Case c = random_case(*rc::gen::arbitrary<u64>());
    const auto back = parse_case(print_case(c));
    if (!back) RC_FAIL(back.error());
    RC_ASSERT(*back == c);
  }));
}

TEST(Case, SaysWhatIsWrong) {
  const struct {
    const char* text;
    const char* part;
  } lines[] = {
      {"bwd f32 dense", "needs q="},
      {"bwd f32 dense q=3 k=3 h=4/3", "h="},
      {"bwd f32 dense q=3 k=3 colour=red", "'colour=red'"},
      {"bwd f32 dense q=3 k=3 kind=window:x:1", "'kind=window:x:1'"},
      {"bwd f32 packed q=3,4 k=3", "equally many"},
      {"bwd f32 packed q=3,4 k=3,4 context=1,2,3", "context="},
      {"bwd f32 dense q=3,4 k=3,4", "usedq"},
      {"bwd f32 packed b=2 q=3 k=3", "b="},
      {"bwd f32 dense q=3 k=4 strides=fused", "fused"},
      {"bwd f32 dense b=2 q=3 k=4 kv=paged:16", "forward only"},
      {"fwd f32 packed q=3,4 k=5,6 kv=dense", "dense keys"},
      {"fwd f32 packed q=3,4 k=5 kv=dense", "need new"},
      {"fwd f32 dense b=2 q=3 k=4 kv=paged:0", "'kv=paged:0'"},
      {"fwd f32 dense b=2 q=3 k=4,5,6 kv=paged:16", "pages"},
      {"fwd f32 dense b=2 q=3 k=4 kind=causal intervals=2:1", "in place of the mask"},
      {"fwd f32 dense b=2 q=3 k=4 intervals=4:1", "'intervals=4:1'"},
      {"fwd f32 packed q=3,4 k=3,4 intervals=2:1:b", "letter b"},
      {"fwd f32 dense q=3 k=4 blocks=64/96:1", "'blocks=64/96:1'"},
      {"fwd f32 dense q=3 k=3 blocks=64/128:1:v", "valid bounds"},
      {"fwd f32 dense q=3 k=3 bias=x", "'bias=x'"},
  };
  for (const auto& [text, part] : lines) {
    const auto c = parse_case(text);
    ASSERT_FALSE(c) << text;
    EXPECT_NE(c.error().find(part), std::string::npos) << text << " gave: " << c.error();
  }
}

TEST(Case, ResolvesTheDefaultsOfTheMask) {
  const auto c = parse_case("fwd f32 dense b=2 q=4 k=20 context=2,3 candidates=5");
  ASSERT_TRUE(c);
  const Layout layout = layout_of(*c);
  const std::vector<Sequence>& s = layout.sequences;
  EXPECT_EQ(s[1].mask.context_end, 3);
  EXPECT_EQ(s[1].mask.history_begin, 3);
  EXPECT_EQ(s[1].mask.history_end, 15);
  EXPECT_EQ(s[1].mask.candidate_begin, 15);
  EXPECT_EQ(s[1].mask.candidate_end, 20);
  EXPECT_EQ(s[1].mask.query_offset, 16);
}

}  // namespace
}  // namespace iso::conformance
