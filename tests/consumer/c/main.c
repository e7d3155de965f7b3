/* Two query rows, causal, all scores 0: row 0 sees key 0, row 1 the mean of both. And one wrong call. */
#include <isoflash/error_codes.h>
#include <isoflash/isoflash.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, isoflash_error *error) {
  fprintf(stderr, "consumer (C): %s: %s\n", what, isoflash_error_message(error));
  return 1;
}

int main(void) {
  float q[2 * 4] = {0}, k[2 * 4] = {0}, v[2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8}, out[2 * 4], lse[2];
  const int64_t shape[4] = {1, 2, 1, 4}, lse_shape[3] = {1, 1, 2};
  isoflash_error *error = isoflash_error_create();

  isoflash_problem problem;
  isoflash_problem_init(&problem);
  isoflash_tensor_contiguous(&problem.q, q, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.k, k, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.v, v, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.out, out, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.lse, lse, ISOFLASH_F32, 3, lse_shape);
  problem.mask.history_kind = ISOFLASH_HISTORY_CAUSAL;

  isoflash_plan *plan = NULL;
  if (isoflash_plan_create(&problem, NULL, &plan, error) != ISOFLASH_OK) return fail("plan", error);

  isoflash_forward_args args;
  isoflash_forward_args_init(&args);
  args.q = problem.q;
  args.k = problem.k;
  args.v = problem.v;
  args.out = problem.out;
  args.lse = problem.lse;
  args.workspace_size = isoflash_forward_workspace_size(plan);
  args.workspace = aligned_alloc(64, (args.workspace_size + 63) / 64 * 64);
  if (isoflash_forward(plan, &args, error) != ISOFLASH_OK) return fail("forward", error);
  printf("consumer (C): isoflash %s, %s: out = %g, %g  lse = %g, %g\n", isoflash_version(), isoflash_plan_kernel(plan),
         out[0], out[4], lse[0], lse[1]);
  if (fabs(out[0] - 1) > 1e-6 || fabs(out[4] - 3) > 1e-6 || fabs(lse[0]) > 1e-6 || fabs(lse[1] - log(2)) > 1e-6) {
    fprintf(stderr, "consumer (C): wrong numbers: expected out = 1, 3 and lse = 0, 0.693147\n");
    return 1;
  }
  isoflash_plan_destroy(plan);
  free(args.workspace);

  problem.dropout = 0.1;
  if (isoflash_plan_create(&problem, NULL, &plan, error) != ISOFLASH_ERROR_DROPOUT_UNSUPPORTED)
    return fail("dropout", error);
  isoflash_error_destroy(error);
  return 0;
}
