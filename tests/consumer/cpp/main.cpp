// The case of ../c/main.c through the C++ face, forward and backward. And one wrong call.
#include <isoflash/error_codes.h>

#include <cmath>
#include <cstdio>
#include <isoflash/isoflash.hpp>
#include <vector>

namespace {

int fail(const char* what, const char* why) {
  std::fprintf(stderr, "consumer (C++): %s: %s\n", what, why);
  return 1;
}

bool near(float got, double expected) { return std::fabs(got - expected) < 1e-6; }

}  // namespace

int main() {
  const std::vector<float> q(8, 0.0f), k(8, 0.0f), v = {1, 2, 3, 4, 5, 6, 7, 8}, dout(8, 1.0f);
  std::vector<float> out(8), lse(2), dv(8);
  const isoflash::Extents shape = {1, 2, 1, 4};

  isoflash::Problem problem{
      .q = {q.data(), shape}, .k = {k.data(), shape}, .v = {v.data(), shape}, .out = {out.data(), shape}};
  problem.lse = {lse.data(), {1, 1, 2}};
  problem.mask = isoflash::Mask::causal();

  const auto plan = isoflash::Plan::create(problem);
  if (!plan) return fail("plan", plan.error().message().c_str());
  if (const auto done = plan->forward(problem); !done) return fail("forward", done.error().message().c_str());

  isoflash::Backward gradients{problem.q, problem.k, problem.v, problem.out, problem.lse};
  gradients.dout = {dout.data(), shape};
  gradients.dv = {dv.data(), shape};
  if (const auto done = plan->backward(gradients); !done) return fail("backward", done.error().message().c_str());

  std::printf("consumer (C++): %s: out = %g, %g  lse = %g, %g  dv = %g, %g\n", plan->kernel().c_str(), out[0], out[4],
              lse[0], lse[1], dv[0], dv[4]);
  if (!near(out[0], 1) || !near(out[4], 3) || !near(lse[0], 0) || !near(lse[1], std::log(2.0)) || !near(dv[0], 1.5) ||
      !near(dv[4], 0.5))
    return fail("wrong numbers", "expected out = 1, 3; lse = 0, 0.693147; dv = 1.5, 0.5");

  problem.k = {k.data(), {1, 2, 1, 3}};
  const auto refused = isoflash::Plan::create(problem);
  if (refused || refused.error().id() != ISOFLASH_ERROR_SHAPE_MISMATCH)
    return fail("shape mismatch", refused ? "accepted" : refused.error().message().c_str());
  return 0;
}
