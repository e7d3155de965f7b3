// Known faults: merging attention over disjoint sets of keys.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// Partial results (out and lse) and what they merge into, all float32 of the shape of one part.
struct Merge {
  std::vector<Buffer> outs, lses, douts, dlses;
  Buffer out, lse, dout, dlse;

  Merge(int64_t rows, int64_t heads, int64_t dim, int parts) {
    out = dout = Buffer(ISOFLASH_F32, {1, rows, heads, dim}), lse = dlse = Buffer(ISOFLASH_F32, {1, heads, rows});
    outs.assign(parts, out), lses.assign(parts, lse), douts = outs, dlses = lses;
  }
  void run() {
    std::vector<isoflash_tensor> out_parts = tensors(outs), lse_parts = tensors(lses);
    isoflash_merge_args args;
    isoflash_merge_args_init(&args);
    args.num_parts = static_cast<int32_t>(outs.size()), args.outs = out_parts.data(), args.lses = lse_parts.data();
    args.out = out.tensor(), args.lse = lse.tensor();
    const ErrorHandle error(isoflash_error_create());
    ASSERT_EQ(isoflash_merge(&args, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
    out.expect_only_elements_written("out");
    lse.expect_only_elements_written("lse");
  }
  void backward() {
    std::vector<isoflash_tensor> out_parts = tensors(outs), lse_parts = tensors(lses), dout_parts = tensors(douts),
                                 dlse_parts = tensors(dlses);
    isoflash_merge_backward_args args;
    isoflash_merge_backward_args_init(&args);
    args.num_parts = static_cast<int32_t>(outs.size()), args.outs = out_parts.data(), args.lses = lse_parts.data();
    args.out = out.tensor(), args.lse = lse.tensor(), args.dout = dout.tensor(), args.dlse = dlse.tensor();
    args.douts = dout_parts.data(), args.dlses = dlse_parts.data();
    const ErrorHandle error(isoflash_error_create());
    ASSERT_EQ(isoflash_merge_backward(&args, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
  }

 private:
  static std::vector<isoflash_tensor> tensors(std::vector<Buffer>& buffers) {
    std::vector<isoflash_tensor> out;
    for (Buffer& buffer : buffers) out.push_back(buffer.tensor());
    return out;
  }
};

void expect_all(const Buffer& x, double value, const char* what) {
  x.for_each([&](Index i) { EXPECT_EQ(x.get(i), value) << what; });
}

TEST(KnownFaults, R10_merging_empty_parts) {
  for (const int parts : {1, 2, 5}) {
    Merge merge(3, 2, 64, parts);
    for (int n = 0; n < parts; ++n) merge.outs[n].fill(0.0), merge.lses[n].fill(-kInf);
    merge.run();
    expect_all(merge.out, 0.0, "out of nothing");
    expect_all(merge.lse, -kInf, "lse of nothing");
    merge.dout.fill_noise(1), merge.dlse.fill_noise(2);
    merge.backward();
    for (int n = 0; n < parts; ++n) {
      expect_all(merge.douts[n], 0.0, "gradient of an empty part");
      expect_all(merge.dlses[n], 0.0, "gradient of an empty part's lse");
    }
  }
}

// The empty part is the neutral element: the other comes out bit for bit.
TEST(KnownFaults, R10_an_empty_part_changes_nothing) {
  Merge merge(3, 2, 64, 3);
  merge.outs[1].fill_noise(1), merge.lses[1].fill_noise(2, 50.0);
  for (const int n : {0, 2}) merge.outs[n].fill(0.0), merge.lses[n].fill(-kInf);
  merge.run();
  expect_same_bits(merge.out, merge.outs[1], "out");
  expect_same_bits(merge.lse, merge.lses[1], "lse");
  merge.dout.fill_noise(3), merge.dlse.fill_noise(4);
  merge.backward();
  expect_same_bits(merge.douts[1], merge.dout, "dout");
  expect_same_bits(merge.dlses[1], merge.dlse, "dlse");
  expect_all(merge.douts[0], 0.0, "gradient of an empty part");
  expect_all(merge.dlses[2], 0.0, "gradient of an empty part's lse");
}

// A shard that holds no key of some rows, and one that holds none at all: the merged result and the gradients through the
// merge are those of the whole.
TEST(KnownFaults, R11_shards_merge_into_the_whole) {
  const int64_t rows = 64, dim = 16;
  Attention whole(ISOFLASH_F32, {.seqlen_q = rows, .seqlen_kv = rows, .head_dim = dim});
  whole.causal();
  whole.fill_noise();
  whole.dlse = Buffer(ISOFLASH_F32, whole.lse.shape());
  whole.dlse.fill_noise(6);
  whole.run();
  const std::pair<int64_t, int64_t> shards[] = {{0, 16}, {16, 40}, {40, 40}, {40, 64}};
  std::vector<std::unique_ptr<Attention>> parts;
  Merge merge(rows, 1, dim, 4);
  const auto slice = [](const Buffer& from, Buffer& to, int64_t begin) {
    to.for_each([&](Index i) { to.set(i, from.get({0, begin + i[1], 0, i[3]})); });
  };
  for (int n = 0; n < 4; ++n) {
    const auto [begin, end] = shards[n];
    parts.push_back(
        std::make_unique<Attention>(ISOFLASH_F32, Sizes{.seqlen_q = rows, .seqlen_kv = end - begin, .head_dim = dim}));
    Attention& part = *parts.back();
    part.causal();
    part.mask().query_offset.value = -begin;
    part.visible = [begin = begin](int64_t, int64_t i, int64_t j) { return j <= i - begin; };
    part.fill_noise();
    slice(whole.k, part.k, begin), slice(whole.v, part.v, begin);
    part.run();
    merge.outs[n] = part.out, merge.lses[n] = part.lse;
  }
  merge.run();
  for (int64_t i = 0; i < rows; ++i) {
    EXPECT_NEAR(merge.lse.get({0, 0, i}), whole.lse_of(0, 0, i), 1e-5) << "row " << i;
    for (int64_t d = 0; d < dim; ++d)
      EXPECT_NEAR(merge.out.get({0, i, 0, d}), whole.out_of(0, i, 0, d), 1e-5) << "row " << i;
  }
  merge.dout = whole.dout, merge.dlse = whole.dlse;
  merge.backward();
  std::vector<double> dq(rows * dim, 0.0);
  for (int n = 0; n < 4; ++n) {
    Attention& part = *parts[n];
    part.dout = merge.douts[n], part.dlse = merge.dlses[n];
    part.run();
    expect_right(part);
    part.dq.for_each([&](Index i) { dq[i[1] * dim + i[3]] += part.dq.get(i); });
    part.dk.for_each([&](Index i) {
      EXPECT_NEAR(part.dk.get(i), whole.dk.get({0, shards[n].first + i[1], 0, i[3]}), 1e-5) << "dk, shard " << n;
      EXPECT_NEAR(part.dv.get(i), whole.dv.get({0, shards[n].first + i[1], 0, i[3]}), 1e-5) << "dv, shard " << n;
    });
  }
  whole.dq.for_each([&](Index i) { EXPECT_NEAR(dq[i[1] * dim + i[3]], whole.dq.get(i), 1e-5) << "dq"; });
}

// An empty row of one part, as attention gives it, leaves what it is merged with unchanged.
TEST(KnownFaults, R08_empty_row_merged_with_another_part) {
  Attention empty(ISOFLASH_F32, {.seqlen_q = 5, .seqlen_kv = 3, .head_dim = 16});
  empty.causal();
  empty.fill_noise();
  empty.run();
  Merge merge(5, 1, 16, 2);
  merge.outs[0] = empty.out, merge.lses[0] = empty.lse;
  merge.outs[1].fill_noise(1), merge.lses[1].fill_noise(2);
  merge.run();
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(merge.lse.get({0, 0, i}), merge.lses[1].get({0, 0, i})) << "row " << i;
    for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(merge.out.get({0, i, 0, d}), merge.outs[1].get({0, i, 0, d}));
  }
}

}  // namespace
}  // namespace iso::known_faults
