#include "instances/instances.h"

#include <gmock/gmock.h>

#include <set>

#include "instances/cubins.h"

namespace iso {
namespace {

TEST(Instances, SymbolsAreUniqueAndSpeakForThemselves) {
  std::set<std::string_view> symbols;
  for (const Instance& instance : instances()) {
    EXPECT_TRUE(symbols.insert(instance.symbol).second) << instance.symbol << " is listed twice";
    EXPECT_EQ(std::string("isoflash_") + instance.kernel + "_" + architecture_name(instance.architecture) + "_" +
                  instance.variant,
              instance.symbol);
    EXPECT_EQ(instance.threads % 32, 0) << instance.symbol;
    EXPECT_LE(instance.threads, 1024) << instance.symbol;
    EXPECT_LE(instance.shared_bytes, 227 * 1024) << instance.symbol;
  }
}

TEST(Instances, AreFoundByName) {
  for (const Instance& instance : instances())
    EXPECT_EQ(find_instance(instance.architecture, instance.kernel, instance.variant), &instance);
  EXPECT_EQ(find_instance(Architecture::sm90, "no_such_kernel", "bf16"), nullptr);
}

TEST(Instances, ArchitectureOfACapability) {
  EXPECT_EQ(*architecture_of(9, 0), Architecture::sm90);
  EXPECT_EQ(*architecture_of(10, 0), Architecture::sm100);
  EXPECT_EQ(*architecture_of(10, 3), Architecture::sm100);
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 9}, {9, 1}, {11, 0}, {12, 0}})
    EXPECT_EQ(architecture_of(major, minor), nullptr) << major << '.' << minor;
}

// A build carries all kernels or none, each an ELF file.
TEST(Cubins, AllOrNone) {
  if (embedded_cubins().empty()) {
    EXPECT_STREQ(cubin_compiler(), "");
    EXPECT_EQ(find_cubin(instances()[0].symbol), nullptr);
    GTEST_SKIP() << "built without a CUDA compiler: no kernels embedded";
  }
  EXPECT_EQ(embedded_cubins().size(), instances().size());
  EXPECT_STRNE(cubin_compiler(), "");
  for (const Instance& instance : instances()) {
    const Cubin* cubin = find_cubin(instance.symbol);
    ASSERT_NE(cubin, nullptr) << instance.symbol << " is not embedded";
    EXPECT_EQ(cubin->architecture, instance.architecture);
    const std::string_view bytes(reinterpret_cast<const char*>(cubin->begin), cubin->end - cubin->begin);
    EXPECT_EQ(bytes.substr(0, 4), "\177ELF");
    EXPECT_NE(bytes.find(instance.symbol), std::string_view::npos);
  }
}

}  // namespace
}  // namespace iso
