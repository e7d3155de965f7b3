// Every error of isoflash_merge and isoflash_merge_backward, met.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "errors/error.h"
#include "support/example_problem.h"

namespace iso {
namespace {

// Two parts, dense: batch 2, 6 rows, 4 heads, head_dim_v 8, with room for everything.
struct Example {
  test::Arena arena;
  isoflash_tensor outs[2], lses[2], douts[2], dlses[2];
  isoflash_merge_args merge;
  isoflash_merge_backward_args backward;

  Example() {
    const auto out = [&] { return arena.tensor(ISOFLASH_F32, {2, 6, 4, 8}); };
    const auto lse = [&] { return arena.tensor(ISOFLASH_F32, {2, 4, 6}); };
    for (int n = 0; n < 2; ++n) outs[n] = out(), lses[n] = lse(), douts[n] = out(), dlses[n] = lse();
    isoflash_merge_args_init(&merge);
    merge.num_parts = 2;
    merge.outs = outs;
    merge.lses = lses;
    merge.out = out();
    merge.lse = lse();
    isoflash_merge_backward_args_init(&backward);
    backward.num_parts = 2;
    backward.outs = outs;
    backward.lses = lses;
    backward.out = merge.out;
    backward.lse = merge.lse;
    backward.dout = out();
    backward.dlse = lse();
    backward.douts = douts;
    backward.dlses = dlses;
  }

  // What the call says; empty if it succeeds.
  std::string say(isoflash_status (*call)(Example&, isoflash_error*), int expected_id) {
    isoflash_error* error = isoflash_error_create();
    const isoflash_status status = call(*this, error);
    const std::string message = isoflash_error_message(error);
    EXPECT_EQ(status, expected_id) << isoflash_error_name(error) << ": " << message;
    isoflash_error_destroy(error);
    return message;
  }
  std::string merge_says(int expected_id) {
    return say([](Example& e, isoflash_error* error) { return isoflash_merge(&e.merge, error); }, expected_id);
  }
  std::string backward_says(int expected_id) {
    return say([](Example& e, isoflash_error* error) { return isoflash_merge_backward(&e.backward, error); }, expected_id);
  }
};

void expect_mentions(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), message.npos) << "no \"" << part << "\" in: " << message;
}

TEST(MergeErrors, NoneByTheExample) {
  Example e;
  e.merge_says(0);
  e.backward_says(0);
  EXPECT_EQ(isoflash_merge(&e.merge, nullptr), 0) << "error may be NULL";
}

TEST(MergeErrors, NullAndOldStructs) {
  Example e;
  expect_mentions(
      e.say([](Example&, isoflash_error* error) { return isoflash_merge(nullptr, error); }, errors::NullArgument::kId),
      {"isoflash_merge", "args"});
  expect_mentions(e.say([](Example&, isoflash_error* error) { return isoflash_merge_backward(nullptr, error); },
                        errors::NullArgument::kId),
                  {"isoflash_merge_backward", "args"});
  e.merge.struct_size = e.backward.struct_size = 8;
  expect_mentions(e.merge_says(errors::StructSize::kId), {"isoflash_merge_args"});
  expect_mentions(e.backward_says(errors::StructSize::kId), {"isoflash_merge_backward_args"});
}

TEST(ErrorsRaised, MergeNumParts) {
  for (const int count : {0, -3, 1025, std::numeric_limits<int>::max()}) {
    Example e;
    e.merge.num_parts = e.backward.num_parts = count;
    expect_mentions(e.merge_says(errors::MergeNumParts::kId), {"isoflash_merge:", std::to_string(count).c_str(), "1024"});
    expect_mentions(e.backward_says(errors::MergeNumParts::kId), {"isoflash_merge_backward:"});
  }
}

TEST(ErrorsRaised, MergeTensorMissing) {
  const struct {
    const char* name;
    void (*remove)(Example&);
    bool in_merge, in_backward;
  } cases[] = {{"outs[1]", [](Example& e) { e.outs[1].rank = 0; }, true, true},
               {"lses[0]", [](Example& e) { e.lses[0].rank = 0; }, true, true},
               {"outs", [](Example& e) { e.merge.outs = e.backward.outs = nullptr; }, true, true},
               {"lses", [](Example& e) { e.merge.lses = e.backward.lses = nullptr; }, true, true},
               {"out", [](Example& e) { e.merge.out.rank = e.backward.out.rank = 0; }, true, true},
               {"lse", [](Example& e) { e.merge.lse.rank = e.backward.lse.rank = 0; }, false, true},
               {"dout", [](Example& e) { e.backward.dout.rank = 0; }, false, true},
               {"dlse", [](Example& e) { e.backward.dlse.rank = 0; }, false, false},
               {"douts", [](Example& e) { e.backward.douts = nullptr; }, false, true},
               {"dlses", [](Example& e) { e.backward.dlses = nullptr; }, false, true},
               {"douts[0]", [](Example& e) { e.douts[0].rank = 0; }, false, true},
               {"dlses[1]", [](Example& e) { e.dlses[1].rank = 0; }, false, true}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Example e;
    c.remove(e);
    const std::string named = std::string(": ") + c.name + " is";
    const std::string merge = e.merge_says(c.in_merge ? errors::MergeTensorMissing::kId : 0);
    if (c.in_merge) expect_mentions(merge, {named.c_str()});
    const std::string backward = e.backward_says(c.in_backward ? errors::MergeTensorMissing::kId : 0);
    if (c.in_backward) expect_mentions(backward, {named.c_str()});
  }
}

TEST(ErrorsRaised, MergeRank) {
  Example e;
  e.outs[0] = e.arena.tensor(ISOFLASH_F32, {12, 32});
  expect_mentions(e.merge_says(errors::MergeRank::kId), {"outs[0]", "(12, 32)", "rank 4", "rank 3"});
  expect_mentions(e.backward_says(errors::MergeRank::kId), {"outs[0]"});
}

TEST(ErrorsRaised, MergeShape) {
  Example e;
  e.outs[1].shape[1] = 5;
  expect_mentions(e.merge_says(errors::MergeShape::kId), {"outs[1]", "(2, 5, 4, 8)", "(2, 6, 4, 8)", "outs[0]"});
  Example lse;
  lse.lses[1] = lse.arena.tensor(ISOFLASH_F32, {2, 6, 4});
  expect_mentions(lse.merge_says(errors::MergeShape::kId), {"lses[1]", "(2, 6, 4)", "(2, 4, 6)", "num_heads, seqlen"});
  Example result;
  result.merge.out.shape[3] = 4;
  expect_mentions(result.merge_says(errors::MergeShape::kId), {"out ", "(2, 6, 4, 4)"});
  Example packed;
  for (isoflash_tensor* t : {&packed.outs[0], &packed.outs[1], &packed.merge.out})
    *t = packed.arena.tensor(ISOFLASH_F32, {12, 4, 8});
  expect_mentions(packed.merge_says(errors::MergeShape::kId), {"lses[0]", "(4, 12)", "(num_heads, total)"});
  Example gradient;
  gradient.douts[1].shape[2] = 3;
  expect_mentions(gradient.backward_says(errors::MergeShape::kId), {"douts[1]", "(2, 6, 3, 8)"});
}

TEST(ErrorsRaised, MergeDtype) {
  Example e;
  e.outs[1].dtype = ISOFLASH_F64;
  expect_mentions(e.merge_says(errors::MergeDtype::kId), {"outs[1]", "float64", "bfloat16"});
  Example lse;
  lse.lses[0].dtype = ISOFLASH_BF16;
  expect_mentions(lse.merge_says(errors::MergeDtype::kId), {"lses[0]", "bfloat16", "accepted: float32"});
  Example gradient;
  gradient.backward.dlse.dtype = ISOFLASH_F16;
  expect_mentions(gradient.backward_says(errors::MergeDtype::kId), {"dlse", "float16"});
}

TEST(ErrorsRaised, MergeDevice) {
  Example e;
  e.outs[1].device_type = ISOFLASH_CUDA;
  e.outs[1].device_index = 3;
  expect_mentions(e.merge_says(errors::MergeDevice::kId), {"outs[1]", "cuda:3", "num_splits"});
}

TEST(ErrorsRaised, MergeAlias) {
  const auto float_after = [](const isoflash_tensor& t, int n) {
    return static_cast<void*>(static_cast<float*>(t.data) + n);
  };
  Example shifted;
  shifted.merge.out.data = float_after(shifted.outs[1], 1);
  expect_mentions(shifted.merge_says(errors::MergeAlias::kId), {"out ", "outs[1]"});
  Example other_strides;
  other_strides.merge.out.data = other_strides.outs[0].data;
  other_strides.merge.out.strides[1] = 8, other_strides.merge.out.strides[2] = 48;
  expect_mentions(other_strides.merge_says(errors::MergeAlias::kId), {"out ", "outs[0]"});
  Example other_type;
  other_type.merge.out.data = other_type.outs[0].data;
  other_type.merge.out.dtype = ISOFLASH_BF16;
  expect_mentions(other_type.merge_says(errors::MergeAlias::kId), {"out ", "outs[0]"});
  Example lse_on_out;
  lse_on_out.merge.lse.data = lse_on_out.merge.out.data;
  expect_mentions(lse_on_out.merge_says(errors::MergeAlias::kId), {"out ", "lse"});
  Example lse_on_outs;
  lse_on_outs.merge.lse.data = lse_on_outs.outs[0].data;
  expect_mentions(lse_on_outs.merge_says(errors::MergeAlias::kId), {"lse ", "outs[0]"});
  Example in_place;
  in_place.merge.out = in_place.outs[1];
  in_place.merge.lse = in_place.lses[0];
  in_place.merge_says(0);

  // Nothing of the backward may be in place.
  Example gradient;
  gradient.douts[1].data = gradient.backward.dout.data;
  expect_mentions(gradient.backward_says(errors::MergeAlias::kId), {"douts[1]", "dout"});
  Example twice;
  twice.dlses[0].data = twice.dlses[1].data;
  expect_mentions(twice.backward_says(errors::MergeAlias::kId), {"dlses[0]", "dlses[1]"});
}

// Errors that other calls have too, with the names of these tensors.
TEST(MergeErrors, LayoutAndMemory) {
  Example expanded;
  expanded.merge.out.strides[1] = 0;
  expect_mentions(expanded.merge_says(errors::OutputLayout::kId), {"out", "merged output", "axis 1", "axis 3"});
  Example folded;
  folded.douts[1].strides[1] = 8;
  expect_mentions(folded.backward_says(errors::OutputSelfOverlap::kId), {"douts[1]"});
  Example missing;
  missing.outs[1].data = nullptr;
  expect_mentions(missing.merge_says(errors::NullData::kId), {"outs[1]"});
  Example odd;
  odd.lses[0].data = static_cast<char*>(odd.lses[0].data) + 2;
  expect_mentions(odd.merge_says(errors::MisalignedPointer::kId), {"lses[0]"});
  Example unknown;
  unknown.outs[0].dtype = 77;
  expect_mentions(unknown.merge_says(errors::EnumUnknown::kId), {"outs[0].dtype", "77"});
}

}  // namespace
}  // namespace iso
