// isoflash_error_examples: prints a C program that runs every C example of the error catalogue. A wrong example must raise
// its error, a right one must succeed; the program's exit code is 0 if all do.
#include <cstdio>
#include <string>

#include "errors/catalogue.h"

namespace {

// What docs/errors.md says about the examples' surroundings.
constexpr const char* kSurroundings = R"(#include <isoflash/isoflash.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBytes = 1 << 24 };
static void *data;
static char *next;

static void *memory(void) {
  next += 1 << 20;
  return next;
}

static isoflash_tensor tensor(isoflash_dtype dtype, int32_t rank, const int64_t *shape) {
  isoflash_tensor t;
  isoflash_tensor_contiguous(&t, memory(), dtype, rank, shape);
  return t;
}

static isoflash_tensor rows(int packed, int64_t heads) {
  return packed ? tensor(ISOFLASH_BF16, 3, (int64_t[]){256, heads, 64})
                : tensor(ISOFLASH_BF16, 4, (int64_t[]){2, 128, heads, 64});
}

static isoflash_tensor lse_rows(int packed) {
  return packed ? tensor(ISOFLASH_F32, 2, (int64_t[]){4, 256}) : tensor(ISOFLASH_F32, 3, (int64_t[]){2, 4, 128});
}

static void make_problem(int packed, isoflash_problem *problem, isoflash_plan_options *options) {
  static int32_t offsets[3] = {0, 100, 256};
  isoflash_problem_init(problem);
  isoflash_plan_options_init(options);
  options->num_threads = 1;
  problem->q = rows(packed, 4), problem->k = rows(packed, 2), problem->v = rows(packed, 2);
  problem->out = rows(packed, 4), problem->lse = lse_rows(packed);
  if (!packed) return;
  isoflash_tensor_contiguous(&problem->cu_seqlens_q, offsets, ISOFLASH_I32, 1, (int64_t[]){3});
  problem->cu_seqlens_kv = problem->cu_seqlens_q;
}

static void make_forward(const isoflash_problem *problem, const isoflash_plan *plan, isoflash_forward_args *args) {
  isoflash_forward_args_init(args);
  args->q = problem->q, args->k = problem->k, args->v = problem->v, args->out = problem->out, args->lse = problem->lse;
  args->workspace = memory(), args->workspace_size = isoflash_forward_workspace_size(plan);
}

static void make_backward(const isoflash_problem *problem, const isoflash_plan *plan, isoflash_backward_args *args) {
  isoflash_backward_args_init(args);
  args->q = problem->q, args->k = problem->k, args->v = problem->v, args->out = problem->out, args->lse = problem->lse;
  args->dout = rows(0, 4), args->dq = rows(0, 4), args->dk = rows(0, 2), args->dv = rows(0, 2);
  args->workspace = memory(), args->workspace_size = isoflash_backward_workspace_size(plan);
}

static isoflash_tensor outs[2], lses[2];

static void make_merge(isoflash_merge_args *args) {
  isoflash_merge_args_init(args);
  for (int n = 0; n < 2; ++n) outs[n] = rows(0, 4), lses[n] = lse_rows(0);
  args->num_parts = 2, args->outs = outs, args->lses = lses;
  args->out = rows(0, 4), args->lse = lse_rows(0);
}

static int failures;

static void expect(isoflash_status got, isoflash_status wanted, const char *example, const isoflash_error *error) {
  if (got == wanted) return;
  ++failures;
  printf("%s gives status %d, expected %d: correct the EXAMPLE in the catalogue, or the check%s%s\n", example, got, wanted,
         got == 0 ? "" : "; it says: ", got == 0 ? "" : isoflash_error_message(error));
}
)";

constexpr const char* kMainHead = R"(
int main(void) {
  isoflash_error *error = isoflash_error_create();
  data = aligned_alloc(64, kBytes);
  char *all = aligned_alloc(64, 2 * kBytes);
  if (error == NULL || data == NULL || all == NULL) return 1;
)";

constexpr const char* kMainTail = R"(  isoflash_error_destroy(error);
  free(data);
  free(all);
  if (failures == 0) printf("all examples do what they say\n");
  return failures != 0;
}
)";

std::string function_name(const iso::CatalogueEntry& entry, const char* which) {
  return "example_" + std::to_string(entry.id) + "_" + which;
}

void print_function(const iso::CatalogueEntry& entry, const char* which, std::string_view code) {
  using iso::ExampleCall;
  const ExampleCall call = entry.example.call;
  const bool run = call == ExampleCall::forward || call == ExampleCall::backward;
  const char* const direction = call == ExampleCall::forward ? "forward" : "backward";
  std::printf("\nstatic isoflash_status %s(isoflash_error *error) {\n", function_name(entry, which).c_str());
  if (call == ExampleCall::merge) {
    std::printf("  isoflash_merge_args args;\n  make_merge(&args);\n%.*s\n", static_cast<int>(code.size()), code.data());
    std::printf("  return isoflash_merge(&args, error);\n}\n");
    return;
  }
  std::printf("  isoflash_problem problem;\n  isoflash_plan_options options;\n  isoflash_plan *plan = NULL;\n");
  std::printf("  make_problem(%d, &problem, &options);\n", call == ExampleCall::packed);
  if (call == ExampleCall::lists) {
    std::printf("  isoflash_block_lists_handle *lists = NULL;\n  isoflash_status status = ISOFLASH_OK;\n");
    std::printf("%.*s\n  isoflash_block_lists_destroy(lists);\n", static_cast<int>(code.size()), code.data());
  } else if (run) {
    std::printf("  isoflash_status status = isoflash_plan_create(&problem, &options, &plan, error);\n");
    std::printf("  if (status != ISOFLASH_OK) return status;\n  isoflash_plan *const made = plan;\n");
    std::printf("  isoflash_%s_args args;\n  make_%s(&problem, plan, &args);\n", direction, direction);
    std::printf("%.*s\n", static_cast<int>(code.size()), code.data());
    std::printf("  status = isoflash_%s(plan, &args, error);\n", direction);
    std::printf("  if (plan != made) isoflash_plan_destroy(made);\n");
  } else {
    std::printf("%.*s\n", static_cast<int>(code.size()), code.data());
    std::printf("  const isoflash_status status = isoflash_plan_create(&problem, &options, &plan, error);\n");
  }
  std::printf("  isoflash_plan_destroy(plan);\n  return status;\n}\n");
}

void print_call(const iso::CatalogueEntry& entry, const char* which, int wanted) {
  const std::string name = function_name(entry, which);
  std::printf("  next = all;\n  expect(%s(error), %d, \"%s\", error);\n", name.c_str(), wanted, name.c_str());
}

}  // namespace

int main() {
  std::fputs(kSurroundings, stdout);
  for (const iso::CatalogueEntry& entry : iso::catalogue()) {
    if (!entry.example.in_c()) continue;
    print_function(entry, "wrong", entry.example.wrong);
    print_function(entry, "right", entry.example.right);
  }
  std::fputs(kMainHead, stdout);
  for (const iso::CatalogueEntry& entry : iso::catalogue()) {
    if (!entry.example.in_c()) continue;
    print_call(entry, "wrong", entry.id);
    print_call(entry, "right", 0);
  }
  std::fputs(kMainTail, stdout);
  return 0;
}
