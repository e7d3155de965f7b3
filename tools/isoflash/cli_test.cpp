// The command line as a user meets it: what commands print, and that docs/cli.md tells about each.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "batch.h"
#include "chart.h"
#include "commands.h"
#include "scratch_file.h"
#include "terminal.h"

namespace iso::tool {
namespace {

using testing::HasSubstr;

struct Outcome {
  std::string out, error;  // error: what() of a UsageError, and its hint
  int exit_code = kExitOk;
};

// The program without main(), which turns UsageError into exit code 2. One run each: options keep their values.
class Program {
 public:
  Program() {
    app_.require_subcommand(1);
    add_commands(app_, exit_code_);
  }
  CLI::App& app() { return app_; }

  // Arguments: one line, or what CLI11 takes a vector for, the last one first.
  template <class Arguments>
  Outcome run(Arguments arguments) {
    Outcome outcome;
    testing::internal::CaptureStdout();
    try {
      app_.parse(std::move(arguments));
      outcome.exit_code = exit_code_;
    } catch (const UsageError& error) {
      outcome.error = std::string(error.what()) + "\n" + error.hint;
      outcome.exit_code = kExitUsage;
    } catch (const CLI::ParseError& error) {
      outcome.error = error.what();
      outcome.exit_code = kExitUsage;
    }
    std::fflush(stdout);
    outcome.out = testing::internal::GetCapturedStdout();
    return outcome;
  }

 private:
  CLI::App app_{"isoflash"};
  int exit_code_ = kExitOk;
};

Outcome run(const std::string& arguments) { return Program().run(arguments); }

std::string cli_page() {
  std::ifstream file(ISOFLASH_SOURCE_DIR "/docs/cli.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Cli, PageListsEveryCommandAndOption) {
  Program program;
  const std::string page = cli_page();
  ASSERT_FALSE(page.empty()) << "docs/cli.md is missing";
  for (const CLI::App* command : program.app().get_subcommands([](CLI::App*) { return true; })) {
    const std::size_t section = page.find("\n## isoflash " + command->get_name() + "\n");
    ASSERT_NE(section, std::string::npos) << "docs/cli.md needs a section '## isoflash " << command->get_name() << "'";
    const std::string text = page.substr(section, page.find("\n## ", section + 1) - section);
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const bool told = name == "help" || text.find("`--" + name) != std::string::npos;
        EXPECT_TRUE(told) << "docs/cli.md: " << command->get_name() << " needs --" << name;
      }
    }
  }
}

TEST(Cli, EveryCommandHasExamplesInItsHelp) {
  Program program;
  for (const CLI::App* command : program.app().get_subcommands([](CLI::App*) { return true; })) {
    EXPECT_THAT(command->help(), HasSubstr("Example")) << command->get_name() << ": add a footer with examples";
    EXPECT_FALSE(command->get_description().empty());
  }
}

// What the program says to `value` for each option and argument of each command that takes one, of these types.
template <class Judge>
int for_each_option(const std::vector<std::string>& types, const std::string& value, const Judge& judge) {
  int seen = 0;
  Program program;
  for (const CLI::App* command : program.app().get_subcommands([](CLI::App*) { return true; }))
    for (const CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name().substr(0, option->get_type_name().find(':'));
      if (option->get_expected_min() == 0 || std::find(types.begin(), types.end(), type) == types.end()) continue;
      std::vector<std::string> arguments{value};
      if (!option->get_positional()) arguments.push_back("--" + option->get_lnames().at(0));
      arguments.push_back(command->get_name());
      judge(command->get_name() + " " + option->get_name(), Program().run(std::move(arguments)));
      ++seen;
    }
  return seen;
}

TEST(Options, RefuseEmptyValues) {
  const int seen =
      for_each_option({"TEXT", "INT", "UINT", "FLOAT"}, "", [](const std::string& option, const Outcome& outcome) {
        EXPECT_EQ(outcome.exit_code, kExitUsage) << option << " took an empty value; see option_values.h";
        EXPECT_THAT(outcome.error,
                    testing::MatchesRegex(".*('' is no value; what it takes: .+|'' is not a whole number).*|.*not in.*"))
            << option;
      });
  EXPECT_GT(seen, 50);
  EXPECT_THAT(Program().run(std::vector<std::string>{"", "--case", "check"}).error, HasSubstr("isoflash check --list"));
}

TEST(Options, RefuseNumbersThatDoNotFit) {
  for (const char* number : {"18446744073709551616", "-9223372036854775809", "4294967297x", "0x10", "1.5", "+1", " 1"}) {
    const int seen = for_each_option({"INT", "UINT"}, number, [&](const std::string& option, const Outcome& outcome) {
      EXPECT_THAT(outcome.error, HasSubstr(std::string("'") + number + "' is not a whole number from"))
          << option << " took " << number << "; give it ->transform(whole_number(low, high))";
      EXPECT_EQ(outcome.exit_code, kExitUsage) << option;
    });
    EXPECT_GT(seen, 30);
  }
}

TEST(Options, NothingIsMinusOneButAPlace) {
  for_each_option({"INT", "UINT"}, "-1", [](const std::string& option, const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, kExitUsage) << option;
    const bool judged_by_library = option == "mask --group-size" || option == "mask --query-offset";
    EXPECT_THAT(outcome.error, HasSubstr(judged_by_library ? "" : "'-1' is not a whole number from")) << option;
  });
}

TEST(Options, NumbersAreDecimal) {
  EXPECT_THAT(run("mask --history 010").out, HasSubstr("100 of 100 pairs visible"));
  EXPECT_EQ(run("check --list --seed 18446744073709551615").exit_code, kExitOk);
}

TEST(Explain, JsonOfOneAndOfAll) {
  const auto all = nlohmann::json::parse(run("explain --all --json").out);
  ASSERT_TRUE(all.is_array());
  ASSERT_GT(all.size(), 10u);
  for (const auto& entry : all) {
    const int id = entry.at("id");
    EXPECT_EQ(nlohmann::json::parse(run("explain --json " + std::to_string(id)).out), entry);
    EXPECT_EQ(nlohmann::json::parse(run("explain --json " + entry.at("name").get<std::string>()).out), entry);
  }
}

TEST(Explain, TextSaysWhatAndFitsEightyColumns) {
  setenv("COLUMNS", "80", 1);
  for (const auto& entry : nlohmann::json::parse(run("explain --all --json").out)) {
    const Outcome outcome = run("explain " + std::to_string(entry.at("id").get<int>()));
    EXPECT_EQ(outcome.exit_code, kExitOk);
    EXPECT_THAT(outcome.out, HasSubstr(entry.at("name").get<std::string>()));
    for (const char* heading : {"What it means", "Solutions", "When it happens"})
      EXPECT_THAT(outcome.out, HasSubstr(heading));
  }
  unsetenv("COLUMNS");
}

TEST(Explain, SpellingOfIdsAndNames) {
  const auto all = nlohmann::json::parse(run("explain --all --json").out);
  const int id = all[0].at("id");
  std::string name = all[0].at("name");
  const std::string plain = run("explain " + std::to_string(id)).out;
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  EXPECT_EQ(run("explain " + name).out, plain);
  EXPECT_EQ(run("explain E" + std::to_string(id)).out, plain);
}

TEST(Explain, UnknownErrorSuggestsNearest) {
  const auto all = nlohmann::json::parse(run("explain --all --json").out);
  std::string name = all[0].at("name");
  const std::string id_and_name = std::to_string(all[0].at("id").get<int>()) + " " + name;
  name.insert(2, "x");
  const Outcome outcome = run("explain " + name);
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_THAT(outcome.error, HasSubstr(id_and_name));
}

TEST(MaskCommand, DrawsAndCounts) {
  const Outcome outcome = run("mask --context 2 --history 10 --candidates 6 --tile 6x6");
  EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.error;
  // 18 rows see 12 keys each, and 6 of them their own.
  EXPECT_THAT(outcome.out, HasSubstr("222 of 324 pairs visible"));
  EXPECT_THAT(outcome.out, HasSubstr("tiles 6x6: 6 full, 1 partial, 2 skipped"));
}

TEST(MaskCommand, RefusesWithTheLibrarysError) {
  const Outcome outcome = run("mask --history 10 --candidates 6 --seqlen-kv 12");
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_THAT(outcome.error, HasSubstr("isoflash explain 3"));
}

TEST(MaskCommand, RefusesSizesThatAreNone) {
  for (const char* size : {"--context -1", "--history -5", "--candidates -3", "--candidate-begin -1", "--seqlen-kv -3",
                           "--seqlen-q -4", "--context 9223372036854775807"})
    EXPECT_THAT(run(std::string("mask --seqlen-kv 8 ") + size).error,
                HasSubstr("is not a whole number from 0 to 536870911"))
        << size;
}

TEST(BenchCommand, RefusesTimesThatNeverEnd) {
  for (const char* time : {"nan", "-1", "inf", "1e9", "soon"})
    EXPECT_THAT(run(std::string("bench --min-time ") + time).error, HasSubstr("not in range 0 to 3600")) << time;
}

TEST(MaskCommand, RefusesHalfAWindow) {
  EXPECT_EQ(run("mask --history 10 --history-kind window").exit_code, kExitUsage);
  EXPECT_EQ(run("mask --history 10 --window 2,2").exit_code, kExitUsage);
  EXPECT_EQ(run("mask --history 10 --history-kind window --window 2").exit_code, kExitUsage);
}

TEST(RunCommand, EmptyTensorsWithManyHeadsEnd) {
  constexpr i64 kMany = i64{1} << 40;
  for (const auto& [rows, heads] : {std::pair<i64, i64>{100, 0}, {0, kMany}}) {
    Batch batch;
    for (const char* name : {"q", "dout"}) batch.tensors.emplace(name, TensorData(DType::f32, {1, rows, heads, 8}));
    for (const char* name : {"k", "v"}) batch.tensors.emplace(name, TensorData(DType::f32, {1, 0, kMany, 8}));
    const ScratchFile file("many-heads.safetensors", "");
    ASSERT_TRUE(write_batch(file.path(), batch));
    const Outcome outcome = run("run --backward " + file.path());
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.error;
  }
}

TEST(ListCommand, NamesTheBackendAndTheReason) {
  const auto good = nlohmann::json::parse(run("list --json").out);
  EXPECT_EQ(good.at("backends").at(0).at("name"), "cpu");
  EXPECT_TRUE(good.at("backends").at(0).at("serves"));
  const Outcome bad = run("list --why --head-dim 512");
  EXPECT_EQ(bad.exit_code, kExitCheckFailed);
  EXPECT_THAT(bad.out, HasSubstr("512"));
}

TEST(DoctorCommand, SaysWhatWillBeUsed) {
  const auto found = nlohmann::json::parse(run("doctor --json").out);
  bool in_use_is_available = false;
  for (const auto& level : found.at("cpu_levels"))
    if (level.at("name") == found.at("cpu_level_in_use")) in_use_is_available = level.at("available");
  EXPECT_TRUE(in_use_is_available);
  EXPECT_THAT(run("doctor").out, HasSubstr("What will be used"));
}

TEST(Terminal, WrapsAtBlanksAndKeepsLines) {
  EXPECT_THAT(wrap("one two three", 9, "  "), testing::ElementsAre("  one two", "  three"));
  EXPECT_THAT(wrap("a\n  b c", 4), testing::ElementsAre("a", "  b", "  c"));
  EXPECT_THAT(wrap("unbreakable", 4), testing::ElementsAre("unbreakable"));
}

TEST(ChartSvg, EscapesAndShowsEveryBar) {
  const std::string svg =
      chart_svg({"a < b", "GFLOP/s", "peak", {"x"}, {{"one", 10, 20, "n & m", 0}, {"two", 5, 20, "", 0}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("n &amp; m"));
  EXPECT_THAT(svg, HasSubstr(">one<"));
  EXPECT_THAT(svg, HasSubstr(">two<"));
}

}  // namespace
}  // namespace iso::tool
