/* What a wrong call looks like: an error value with an id to branch on, a message to read and a record to log. */
#include <isoflash/error_codes.h>
#include <isoflash/isoflash.h>

#include <stdio.h>

int main(void) {
  const int64_t shape_q[] = {1, 8, 5, 64}, shape_kv[] = {1, 8, 2, 64}; /* 5 query heads cannot share 2 KV heads */
  isoflash_problem problem;
  isoflash_problem_init(&problem);
  isoflash_tensor_contiguous(&problem.q, NULL, ISOFLASH_BF16, 4, shape_q); /* a plan needs no data */
  isoflash_tensor_contiguous(&problem.k, NULL, ISOFLASH_BF16, 4, shape_kv);
  isoflash_tensor_contiguous(&problem.v, NULL, ISOFLASH_BF16, 4, shape_kv);
  isoflash_tensor_contiguous(&problem.out, NULL, ISOFLASH_BF16, 4, shape_q);

  isoflash_error *error = isoflash_error_create();
  isoflash_plan *plan = NULL;
  const isoflash_status status = isoflash_plan_create(&problem, NULL, &plan, error);
  printf("id      %d\nname    %s\nmessage %s\njson    %s\n", (int)status, isoflash_error_name(error),
         isoflash_error_message(error), isoflash_error_json(error));
  isoflash_error_destroy(error);
  isoflash_plan_destroy(plan);
  return status == ISOFLASH_ERROR_HEAD_RATIO ? 0 : 1;
}
