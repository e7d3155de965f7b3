// The test kernels: right results and no false report under many schedules; every synchronisation call matters.
#include "kernel_runs.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace iso::test {
namespace {

using emu::LaunchConfig;
using emu::SyncSite;

// `make test-full` asks for more.
u64 num_schedules() {
  const char* wanted = std::getenv("ISOFLASH_EMULATOR_SEEDS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : kSeeds;
}

// One test per kernel, so that they can run side by side.
class Kernels : public testing::TestWithParam<std::size_t> {
 protected:
  const KernelRun& kernel() const {
    static const std::vector<KernelRun> runs = all_small_runs();
    return runs[GetParam()];
  }
};

TEST_P(Kernels, AgreeWithFloat64UnderEverySchedule) {
  for (u64 seed = 1; seed <= num_schedules(); seed++) {
    const KernelResult result = kernel().run({.seed = seed});
    ASSERT_TRUE(result.launch) << kernel().name << ", " << with_seed(seed) << ": " << result.launch.error().message();
    EXPECT_LE(result.error, kernel().tolerance) << kernel().name << ", " << with_seed(seed);
  }
}

// Calls whose removal changes nothing that matters, as "kernel: instruction, the nth call of it in the source": why.
const std::map<std::string, const char*> kAcceptedSurvivors = {
    {"attention_backward: wgmma.commit_group #2", "dV and dK join the group of dQ, which is waited for as a whole"},
};

struct Mutation {
  std::string name;
  SyncSite site;
};

// Every synchronisation call that the kernel executes, in the order of the source.
std::vector<Mutation> mutations(const KernelRun& kernel) {
  std::vector<SyncSite> sites;
  const KernelResult result = kernel.run({.record_sites = &sites});
  EXPECT_TRUE(result.launch);
  std::sort(sites.begin(), sites.end(), [](const SyncSite& a, const SyncSite& b) {
    return std::pair(std::string_view(a.at.file), a.at.line) < std::pair(std::string_view(b.at.file), b.at.line);
  });
  std::map<std::string, int> count;
  std::vector<Mutation> out;
  for (const SyncSite& site : sites)
    out.push_back({kernel.name + ": " + site.instruction + " #" + std::to_string(++count[site.instruction]), site});
  return out;
}

TEST_P(Kernels, EveryRemovedSynchronisationIsReported) {
  const std::vector<Mutation> all = mutations(kernel());
  EXPECT_GE(all.size(), 2u);
  for (const Mutation& mutation : all)
    for (u64 seed = 1; seed <= 3; seed++) {
      const KernelResult result = kernel().run({.seed = seed, .remove_site = &mutation.site});
      const bool reported = !result.launch.has_value();
      const auto accepted = kAcceptedSurvivors.find(mutation.name);
      if (accepted == kAcceptedSurvivors.end())
        EXPECT_TRUE(reported) << mutation.name << " at " << emu::name(mutation.site.at) << " can be removed unnoticed, "
                              << with_seed(seed) << ": add a rule, or accept it with a reason";
      else
        EXPECT_FALSE(reported) << mutation.name << " is reported now: take it off the list of accepted survivors";
      if (testing::Test::HasFailure()) break;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Range<std::size_t>(0, all_small_runs().size()),
                         [](const testing::TestParamInfo<std::size_t>& info) { return all_small_runs()[info.param].name; });

TEST(Emulator, TheSeedDecidesEverything) {
  const KernelRun kernel = ordered_sum_run();
  const auto switches = [&](u64 seed) { return kernel.run({.seed = seed}).launch.value().switches; };
  EXPECT_EQ(switches(5), switches(5));
  EXPECT_NE(switches(5), switches(6));
}

}  // namespace
}  // namespace iso::test
