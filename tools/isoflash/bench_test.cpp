// A benchmark in small: checked, timed in turns, reported, and compared with itself.
#include "bench_run.h"

#include <gtest/gtest.h>

#include "bench_case.h"
#include "bench_report.h"

namespace iso::tool {
namespace {

std::array<Batch, kInputSets> inputs_of(const BenchCase& c, DType dtype) {
  return {make_bench_batch(c, dtype, 1), make_bench_batch(c, dtype, 2), make_bench_batch(c, dtype, 3)};
}

std::array<Batch, kInputSets> tiny_inputs(DType dtype) {
  const BenchCase tiny{"tiny", "", 4, 2, 16, 2, 2, 20, 6, 2, HistoryKind::causal};
  return inputs_of(tiny, dtype);
}

TEST(Bench, ChecksTimesAndReports) {
  Subject subject("tiny", "", tiny_inputs(DType::bf16), {.num_threads = 1});
  ASSERT_EQ(subject.check(true, [](i64, i64) {}), "");
  // Rows: 2 context rows see 2 + 20; history row r sees 2 + (r + 1); 6 candidate rows see 2 + 20 + their group of 2.
  const std::int64_t pairs = 2 * (2 * 22 + (20 * 2 + 210) + 6 * 24);
  EXPECT_EQ(subject.visible_pairs(), pairs);
  EXPECT_EQ(subject.useful_flops(Direction::forward), 2.0 * (16 + 16) * 4 * pairs);

  BenchReport report;
  report.measurements = {{&subject, Direction::forward, {}}, {&subject, Direction::backward, {}}};
  measure(report.measurements, {.min_runs = 4, .min_seconds = 0}, [](const std::string&) {});
  report.peaks[true] = {"made up", 1000.0};
  const nlohmann::json json = bench_json(report);
  ASSERT_EQ(json.at("results").size(), 2u);
  for (const auto& result : json.at("results")) {
    EXPECT_EQ(result.at("runs"), 4);
    EXPECT_LE(result.at("min_s"), result.at("median_s"));
    EXPECT_LE(result.at("median_s"), result.at("max_s"));
    EXPECT_NEAR(result.at("peak_share").get<double>() * 1000, result.at("gflops").get<double>(), 1e-9);
  }
  EXPECT_EQ(report.speedup(report.measurements[0]), 0) << "there is no baseline yet";
  report.baseline = json;
  EXPECT_DOUBLE_EQ(report.speedup(report.measurements[0]), 1.0);
  EXPECT_NE(bench_table(report).find("x baseline"), std::string::npos);
}

TEST(Bench, OtherFormsAreRightAndComparedWithThePlainOne) {
  const BenchCase tiny{"tiny", "", 4, 2, 16, 2, 2, 20, 6, 2, HistoryKind::causal};
  Subject plain("tiny", "", inputs_of(tiny, DType::f32), {.num_threads = 1});
  BenchCase blocks = tiny, paged = tiny;
  blocks.form.mask = MaskForm::blocks;
  paged.form.page_size = 5;
  Subject as_blocks("tiny-blocks", "tiny", inputs_of(blocks, DType::f32), {.num_threads = 1});
  Subject in_pages("tiny-paged", "tiny", inputs_of(paged, DType::f32), {.num_threads = 1});
  EXPECT_EQ(as_blocks.check(true, [](i64, i64) {}), "");
  EXPECT_FALSE(in_pages.has_backward());
  EXPECT_EQ(in_pages.check(false, [](i64, i64) {}), "");
  EXPECT_EQ(in_pages.visible_pairs(), plain.visible_pairs());

  BenchReport report;
  report.measurements = {{&plain, Direction::forward, {1, 2, 3, 8}}, {&in_pages, Direction::forward, {1, 3, 6}}};
  report.peaks[false] = {"made up", 1000.0};
  EXPECT_DOUBLE_EQ(report.times_plain(report.measurements[1]), 1.5);
  EXPECT_EQ(report.times_plain(report.measurements[0]), 0);
  EXPECT_NE(bench_table(report).find("x plain"), std::string::npos);
  EXPECT_EQ(bench_json(report).at("results").at(1).at("plain_case"), "tiny");
}

TEST(Bench, MedianOfEvenAndOdd) {
  EXPECT_DOUBLE_EQ((Measurement{nullptr, Direction::forward, {3, 1, 2}}.median()), 2.0);
  EXPECT_DOUBLE_EQ((Measurement{nullptr, Direction::forward, {4, 1, 2, 3}}.median()), 2.5);
}

TEST(Bench, PeakLoopsOfAvailableLevelsRun) {
  for (int n = 0; n < isoflash_cpu_level_count(); ++n) {
    if (!isoflash_cpu_level_available(n)) continue;
    for (const bool bf16 : {false, true}) EXPECT_GT(measure_peak(isoflash_cpu_level_name(n), bf16, 1).gflops, 0);
  }
}

}  // namespace
}  // namespace iso::tool
