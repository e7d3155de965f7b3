#include "errors/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace iso {
namespace {

// Compile-time laws of raise sites; templates, so that a wrong initialiser is "no" and not a failed compilation.
template <class E>
constexpr bool kComplete = requires {
  E{.num_heads_q = 3, .num_heads_kv = 2};
};
template <class E>
constexpr bool kLacksLast = requires {
  E{.num_heads_q = 3};
};
template <class E>
constexpr bool kLacksFirst = requires {
  E{.num_heads_kv = 2};
};
template <class E>
constexpr bool kNothing = requires {
  E{};
};
template <class E>
constexpr bool kTextForNumber = requires {
  E{.num_heads_q = "3", .num_heads_kv = 2};
};
template <class E>
constexpr bool kBoolForNumber = requires {
  E{.num_heads_q = true, .num_heads_kv = 2};
};
template <class E>
constexpr bool kFloatForNumber = requires {
  E{.num_heads_q = 3.5, .num_heads_kv = 2};
};

static_assert(kComplete<errors::HeadRatio>);
static_assert(!kLacksLast<errors::HeadRatio>, "a raise site that forgets a field must not compile");
static_assert(!kLacksFirst<errors::HeadRatio>, "a raise site that forgets a field must not compile");
static_assert(!kNothing<errors::HeadRatio>, "a raise site that forgets all fields must not compile");
static_assert(!kTextForNumber<errors::HeadRatio>);
static_assert(!kBoolForNumber<errors::HeadRatio>);
static_assert(!kFloatForNumber<errors::HeadRatio>);
static_assert(kNothing<errors::BackwardWithoutLse>, "an error without fields is raised as {}");

Expected<int> halve(int x) {
  if (x % 2 != 0) return raise(errors::HeadRatio{.num_heads_q = x, .num_heads_kv = 2});
  return x / 2;
}

TEST(Error, IsAValue) {
  ASSERT_TRUE(halve(4));
  EXPECT_EQ(*halve(4), 2);
  const Expected<int> failed = halve(3);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().id(), 1004);
  EXPECT_EQ(failed.error().error_id(), ErrorId::kHeadRatio);
  EXPECT_EQ(failed.error().name(), "HEAD_RATIO");
}

TEST(Error, MessageHoldsTheValues) {
  const std::string message = halve(3).error().message();
  EXPECT_EQ(message.rfind("num_heads_q 3 (of q) is not a multiple of num_heads_kv 2", 0), 0u) << message;
  EXPECT_EQ(message.find_first_of("{}"), message.npos) << message;
}

TEST(Error, KeepsItsFieldsInOrder) {
  const Error error = make_error(errors::NullArgument{.function = std::string("f"), .argument = std::string_view("x")});
  ASSERT_EQ(error.fields().size(), 2u);
  EXPECT_EQ(error.fields()[0].name, "function");
  EXPECT_EQ(std::get<std::string>(error.fields()[1].value), "x");
}

TEST(Error, NumbersOfEveryWidthArrive) {
  const std::size_t large = std::size_t{1} << 40;
  const Error error = make_error(errors::WorkspaceTooSmall{.call = "f", .got = short{-1}, .needed = large});
  EXPECT_EQ(std::get<i64>(error.fields()[1].value), -1);
  EXPECT_EQ(std::get<i64>(error.fields()[2].value), i64{1} << 40);
}

TEST(Error, JsonHoldsTextAndValues) {
  const auto json = nlohmann::json::parse(halve(3).error().json());
  EXPECT_EQ(json.at("id"), 1004);
  EXPECT_EQ(json.at("exception"), "ValueError");
  EXPECT_EQ(json.at("message"), halve(3).error().message());
  EXPECT_EQ(json.at("fields"), (nlohmann::json{{"num_heads_q", 3}, {"num_heads_kv", 2}}));
  EXPECT_EQ(json.at("docs"), "docs/errors/1004.md");
}

TEST(Error, JsonWithoutFieldsHasAnEmptyObject) {
  const auto json = nlohmann::json::parse(make_error(errors::BackwardWithoutLse{}).json());
  EXPECT_TRUE(json.at("fields").is_object());
  EXPECT_TRUE(json.at("fields").empty());
}

// JSON has no word for them; a parser would see null.
TEST(Error, JsonNamesInfinityAndNaN) {
  const auto infinite = nlohmann::json::parse(make_error(errors::ScaleNotFinite{.got = -INFINITY}).json());
  EXPECT_EQ(infinite.at("fields").at("got"), "-inf");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto not_a_number = nlohmann::json::parse(make_error(errors::ScaleNotFinite{.got = nan}).json());
  EXPECT_EQ(not_a_number.at("fields").at("got"), "nan");
}

// What a file held must neither break the line nor the JSON.
TEST(Error, HostileTextStaysOneLineAndValidJson) {
  const Error error = make_error(errors::FileOpen{.path = "a\nb\x1b[31m\xff\"{reason}", .reason = "no\r"});
  EXPECT_EQ(error.message().find_first_of("\n\r\x1b"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("a\\x0ab"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("{reason}"), std::string::npos) << "text that looks like a field must not be filled in";
  EXPECT_TRUE(nlohmann::json::accept(error.json()));
}

TEST(Error, NullTextIsEmpty) {
  const char* none = nullptr;
  EXPECT_EQ(errors::Str(none).value, "");
}

}  // namespace
}  // namespace iso
