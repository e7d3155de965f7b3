/* One user's session in C: 2 context tokens, 5 events of history and 3 candidates that must not see each other. */
#include <isoflash/isoflash.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSeqlen = 10, kHeadsQ = 4, kHeadsKv = 2, kHeadDim = 16 };

int main(void) {
  static float q[kSeqlen * kHeadsQ * kHeadDim], k[kSeqlen * kHeadsKv * kHeadDim], v[kSeqlen * kHeadsKv * kHeadDim];
  static float out[kSeqlen * kHeadsQ * kHeadDim], lse[kHeadsQ * kSeqlen];
  for (int n = 0; n < kSeqlen * kHeadsQ * kHeadDim; ++n) q[n] = sinf((float)n);
  for (int n = 0; n < kSeqlen * kHeadsKv * kHeadDim; ++n) k[n] = cosf((float)n), v[n] = sinf(0.5f * (float)n);

  /* 1. Describe the problem. */
  const int64_t shape_q[] = {1, kSeqlen, kHeadsQ, kHeadDim};
  const int64_t shape_kv[] = {1, kSeqlen, kHeadsKv, kHeadDim};
  const int64_t shape_lse[] = {1, kHeadsQ, kSeqlen};
  isoflash_problem problem;
  isoflash_problem_init(&problem);
  isoflash_tensor_contiguous(&problem.q, q, ISOFLASH_F32, 4, shape_q);
  isoflash_tensor_contiguous(&problem.k, k, ISOFLASH_F32, 4, shape_kv);
  isoflash_tensor_contiguous(&problem.v, v, ISOFLASH_F32, 4, shape_kv);
  isoflash_tensor_contiguous(&problem.out, out, ISOFLASH_F32, 4, shape_q);
  isoflash_tensor_contiguous(&problem.lse, lse, ISOFLASH_F32, 3, shape_lse);
  problem.mask.num_context.value = 2;
  problem.mask.history_len.value = 5;
  problem.mask.num_candidates.value = 3;

  /* 2. Plan once: everything is checked here. */
  isoflash_error *error = isoflash_error_create();
  isoflash_plan *plan = NULL;
  if (isoflash_plan_create(&problem, NULL, &plan, error) != ISOFLASH_OK) {
    fprintf(stderr, "%s\n", isoflash_error_message(error));
    isoflash_error_destroy(error);
    return 1;
  }

  /* 3. Run as often as you like. The workspace is yours, 64-byte aligned. */
  const size_t workspace_size = (isoflash_forward_workspace_size(plan) + 63) / 64 * 64;
  isoflash_forward_args args;
  isoflash_forward_args_init(&args);
  args.q = problem.q;
  args.k = problem.k;
  args.v = problem.v;
  args.out = problem.out;
  args.lse = problem.lse;
  args.workspace = aligned_alloc(64, workspace_size);
  args.workspace_size = workspace_size;
  const isoflash_status status = isoflash_forward(plan, &args, error);
  if (status == ISOFLASH_OK) {
    printf("kernel %s, %lld visible pairs\n", isoflash_plan_kernel(plan), (long long)isoflash_plan_visible_pairs(plan));
    for (int i = kSeqlen - 3; i < kSeqlen; ++i)
      printf("candidate in row %d: out[0] = %+.6f, lse = %.6f\n", i, out[i * kHeadsQ * kHeadDim], lse[i]);
  } else {
    fprintf(stderr, "%s\n", isoflash_error_message(error));
  }

  free(args.workspace);
  isoflash_plan_destroy(plan);
  isoflash_error_destroy(error);
  return status == ISOFLASH_OK ? 0 : 1;
}
