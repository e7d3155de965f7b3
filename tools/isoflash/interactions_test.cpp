#include "interactions.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

namespace iso::tool {
namespace {

using testing::HasSubstr;

constexpr const char* kHeader = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n";

void expect_error(const std::string& text, int id, const std::string& words) {
  const auto log = parse_interactions("log.inter", text);
  ASSERT_FALSE(log.has_value()) << "accepted, but should say: " << words;
  EXPECT_EQ(log.error().id(), id);
  EXPECT_THAT(log.error().message(), HasSubstr("log.inter"));
  EXPECT_THAT(log.error().message(), HasSubstr(words));
}

TEST(ErrorsRaised, InteractionsLine) {
  constexpr int kId = errors::InteractionsLine::kId;
  const std::string header = kHeader;
  expect_error("user_id:token\trating:float\ttimestamp:float\n", kId, "no column item_id");
  expect_error("\n", kId, "no column user_id");
  expect_error(header + "1\t2\t3\t4\n1\t2\t3\n", kId, "line 3: 3 tab-separated fields, but the header has 4");
  expect_error(header + "1\t2\t3\tnever\n", kId, "line 2: timestamp is \"never\"");
  expect_error(header + "1\t2\tnan\t4\n", kId, "rating is \"nan\"");
  expect_error(header + "1\t2\t1e300\t4\n", kId, "rating is \"1e300\", expected a number from -1e6 to 1e6");
  expect_error(header + "1\t2\t3\t4x\n", kId, "timestamp is \"4x\"");
  expect_error(header + "\t2\t3\t4\n", kId, "user_id is \"\"");
  expect_error(header + "1\t" + std::string(70000, 'i') + "\t3\t4\n", kId, "more than the limit");
}

TEST(ErrorsRaised, InteractionsEmpty) {
  expect_error("", errors::InteractionsEmpty::kId, "the file is empty");
  expect_error(kHeader, errors::InteractionsEmpty::kId, "ends after its header");
  expect_error(std::string(kHeader) + "\n\r\n", errors::InteractionsEmpty::kId, "ends after its header");
}

TEST(Interactions, DevicesAndFoldersAreNotRead) {
  for (const char* path : {"/dev/zero", "/tmp"}) {
    const auto log = read_interactions(path);
    ASSERT_FALSE(log.has_value());
    EXPECT_EQ(log.error().id(), errors::FileOpen::kId);
    EXPECT_THAT(log.error().message(), HasSubstr("neither a regular file nor a pipe"));
  }
}

TEST(Interactions, ReadsColumnsInAnyOrder) {
  const auto log = parse_interactions("log.inter",
                                      "\xef\xbb\xbftimestamp:float\tgenre:token_seq\titem_id:token\tuser_id:"
                                      "token\r\n1e3\ta b\tX\tann\r\n\n7\tc\tY\tbob\n8\t\tX\tann");
  ASSERT_TRUE(log.has_value()) << log.error().message();
  EXPECT_THAT(log->users, testing::ElementsAre("ann", "bob"));
  EXPECT_THAT(log->items, testing::ElementsAre("X", "Y"));
  ASSERT_EQ(log->events.size(), 3u);
  EXPECT_EQ(log->events[0].time, 1000);
  EXPECT_EQ(log->events[0].rating, 0);
  EXPECT_EQ(log->events[2].user, 0u);
  EXPECT_EQ(log->events[2].item, 0u);
}

TEST(Interactions, MadeUpUsersLookLikeRealOnes) {
  const InteractionLog log = generate_interactions(300, 7);
  EXPECT_EQ(log.users.size(), 300u);
  std::map<u32, i64> lengths;
  std::map<u32, i64> popularity;
  std::set<std::pair<u32, u32>> met;
  for (const Interaction& e : log.events) {
    ++lengths[e.user];
    ++popularity[e.item];
    EXPECT_TRUE(met.insert({e.user, e.item}).second) << "user " << e.user << " meets item " << e.item << " twice";
    EXPECT_TRUE(e.rating >= 1 && e.rating <= 5);
  }
  ASSERT_EQ(lengths.size(), 300u);
  std::vector<i64> sorted;
  for (const auto& [user, length] : lengths) sorted.push_back(length);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_GE(sorted.front(), 20);
  EXPECT_LE(sorted.back(), 737);
  EXPECT_GT(sorted[150], 45);
  EXPECT_LT(sorted[150], 90);
  EXPECT_GT(sorted[285], 200);
  EXPECT_GT(popularity[0], 10 * std::max<i64>(1, popularity[1600]));
}

}  // namespace
}  // namespace iso::tool
