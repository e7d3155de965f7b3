/* A dense batch of sessions of different lengths, padded to one size: seqused says how many rows of each are in use. Rows
 * past the end are never read, whatever they hold, and their outputs are written as zeros. */
#include <isoflash/isoflash.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBatch = 3, kSeqlen = 64, kHeads = 2, kHeadDim = 32, kRow = kHeads * kHeadDim };

int main(void) {
  static float q[kBatch * kSeqlen * kRow], k[kBatch * kSeqlen * kRow], v[kBatch * kSeqlen * kRow];
  static float out[kBatch * kSeqlen * kRow];
  int32_t used[kBatch] = {64, 17, 0};
  for (int b = 0; b < kBatch; ++b)
    for (int n = 0; n < kSeqlen * kRow; ++n) {
      const int at = b * kSeqlen * kRow + n;
      const int padding = n / kRow >= used[b];
      q[at] = padding ? NAN : sinf((float)at);
      k[at] = padding ? NAN : cosf((float)at);
      v[at] = padding ? NAN : sinf(0.5f * (float)at);
    }

  const int64_t shape[] = {kBatch, kSeqlen, kHeads, kHeadDim}, shape_used[] = {kBatch};
  isoflash_problem problem;
  isoflash_problem_init(&problem);
  isoflash_tensor_contiguous(&problem.q, q, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.k, k, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.v, v, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.out, out, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.seqused_q, used, ISOFLASH_I32, 1, shape_used);
  isoflash_tensor_contiguous(&problem.seqused_kv, used, ISOFLASH_I32, 1, shape_used);
  problem.mask.history_kind = ISOFLASH_HISTORY_CAUSAL;

  isoflash_error *error = isoflash_error_create();
  isoflash_plan *plan = NULL;
  isoflash_status status = isoflash_plan_create(&problem, NULL, &plan, error);
  if (status == ISOFLASH_OK) {
    const size_t workspace_size = (isoflash_forward_workspace_size(plan) + 63) / 64 * 64;
    isoflash_forward_args args;
    isoflash_forward_args_init(&args);
    args.q = problem.q;
    args.k = problem.k;
    args.v = problem.v;
    args.out = problem.out;
    args.workspace = aligned_alloc(64, workspace_size);
    args.workspace_size = workspace_size;
    status = isoflash_forward(plan, &args, error);
    free(args.workspace);
  }
  if (status != ISOFLASH_OK) fprintf(stderr, "%s\n", isoflash_error_message(error));
  isoflash_plan_destroy(plan);
  isoflash_error_destroy(error);
  if (status != ISOFLASH_OK) return 1;

  for (int b = 0; b < kBatch; ++b)
    for (int n = 0; n < kSeqlen * kRow; ++n) {
      const float x = out[b * kSeqlen * kRow + n];
      if (!isfinite(x) || (n / kRow >= used[b] && x != 0.0f)) {
        fprintf(stderr, "sequence %d, row %d: out is %f\n", b, n / kRow, x);
        return 1;
      }
    }
  printf("three sessions of 64, 17 and 0 rows: every output finite, padding exactly 0\n");
  return 0;
}
