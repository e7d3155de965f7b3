/* q, k and v as slices of the buffer that one fused projection wrote, and the gradients as slices of a buffer of the same
 * form: no copy, only strides. */
#include <isoflash/isoflash.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 100, kHeadsQ = 4, kHeadsKv = 2, kHeadDim = 32, kHeadsAll = kHeadsQ + 2 * kHeadsKv };

/* Heads [first_head, first_head + num_heads) of a (kRows, kHeadsAll, kHeadDim) buffer. */
static isoflash_tensor heads_of(float *buffer, int64_t first_head, int64_t num_heads) {
  const int64_t whole[] = {1, kRows, kHeadsAll, kHeadDim};
  isoflash_tensor tensor;
  isoflash_tensor_contiguous(&tensor, buffer, ISOFLASH_F32, 4, whole);
  tensor.data = buffer + first_head * kHeadDim;
  tensor.shape[2] = num_heads;
  return tensor;
}

static isoflash_status train_step(isoflash_error *error, float *qkv, float *dqkv, float *out, float *lse, float *dout) {
  const int64_t shape[] = {1, kRows, kHeadsQ, kHeadDim}, shape_lse[] = {1, kHeadsQ, kRows};
  isoflash_problem problem;
  isoflash_problem_init(&problem);
  problem.q = heads_of(qkv, 0, kHeadsQ);
  problem.k = heads_of(qkv, kHeadsQ, kHeadsKv);
  problem.v = heads_of(qkv, kHeadsQ + kHeadsKv, kHeadsKv);
  isoflash_tensor_contiguous(&problem.out, out, ISOFLASH_F32, 4, shape);
  isoflash_tensor_contiguous(&problem.lse, lse, ISOFLASH_F32, 3, shape_lse);
  isoflash_plan *plan = NULL;
  isoflash_status status = isoflash_plan_create(&problem, NULL, &plan, error);
  if (status != ISOFLASH_OK) return status;

  isoflash_forward_args forward;
  isoflash_forward_args_init(&forward);
  forward.q = problem.q;
  forward.k = problem.k;
  forward.v = problem.v;
  forward.out = problem.out;
  forward.lse = problem.lse;
  forward.workspace_size = (isoflash_forward_workspace_size(plan) + 63) / 64 * 64;
  forward.workspace = aligned_alloc(64, forward.workspace_size);
  status = isoflash_forward(plan, &forward, error);
  free(forward.workspace);

  isoflash_backward_args backward;
  isoflash_backward_args_init(&backward);
  backward.q = problem.q;
  backward.k = problem.k;
  backward.v = problem.v;
  backward.out = problem.out;
  backward.lse = problem.lse;
  isoflash_tensor_contiguous(&backward.dout, dout, ISOFLASH_F32, 4, shape);
  backward.dq = heads_of(dqkv, 0, kHeadsQ);
  backward.dk = heads_of(dqkv, kHeadsQ, kHeadsKv);
  backward.dv = heads_of(dqkv, kHeadsQ + kHeadsKv, kHeadsKv);
  backward.workspace_size = (isoflash_backward_workspace_size(plan) + 63) / 64 * 64;
  backward.workspace = aligned_alloc(64, backward.workspace_size);
  if (status == ISOFLASH_OK) status = isoflash_backward(plan, &backward, error);
  free(backward.workspace);
  isoflash_plan_destroy(plan);
  return status;
}

int main(void) {
  static float qkv[kRows * kHeadsAll * kHeadDim], dqkv[kRows * kHeadsAll * kHeadDim];
  static float out[kRows * kHeadsQ * kHeadDim], dout[kRows * kHeadsQ * kHeadDim], lse[kHeadsQ * kRows];
  for (int n = 0; n < kRows * kHeadsAll * kHeadDim; ++n) qkv[n] = sinf((float)n), dqkv[n] = NAN;
  for (int n = 0; n < kRows * kHeadsQ * kHeadDim; ++n) dout[n] = 1.0f;

  isoflash_error *error = isoflash_error_create();
  const isoflash_status status = train_step(error, qkv, dqkv, out, lse, dout);
  if (status != ISOFLASH_OK) fprintf(stderr, "%s\n", isoflash_error_message(error));
  isoflash_error_destroy(error);
  if (status != ISOFLASH_OK) return 1;

  double sum = 0;
  for (int n = 0; n < kRows * kHeadsAll * kHeadDim; ++n) sum += dqkv[n];
  printf("every element of the fused gradient is written: %s\n", isfinite(sum) ? "yes" : "no");
  return isfinite(sum) ? 0 : 1;
}
