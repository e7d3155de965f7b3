/* isoflash: exact attention for recommendation rankers. The C ABI.
 *
 * One attention call per sequence b, query head h, row i, with kv head h / (num_heads_q / num_heads_kv):
 *
 *   S   = softcap(scale * q.k)              over the keys that row i may see (isoflash_mask)
 *   out = softmax(S) * V
 *   lse = ln(sum(exp(S)))                   natural logarithm
 *
 * A row that sees no key has out = 0, lse = -inf, dq = 0 and adds nothing to dk and dv.
 *
 * Use:  isoflash_problem_init -> fill in -> isoflash_plan_create -> isoflash_forward / isoflash_backward (any number of
 * times, from any number of threads with a workspace each) -> isoflash_plan_destroy.
 *
 * Every call that can fail returns an isoflash_status: 0, or the id of an error in the catalogue (docs/errors.md,
 * isoflash/error_codes.h), and fills `error` if it is not NULL. The library never prints, exits, aborts or throws.
 *
 * ABI: structs that may grow start with struct_size, which their init function sets; fields are only ever added at the end
 * of those (isoflash_tensor, isoflash_per_sequence, isoflash_mask and the structs of block lists never grow). Reserved fields
 * are 0. Symbols carry the version node ISOFLASH_0. See docs/abi.md.
 */
#ifndef ISOFLASH_ISOFLASH_H
#define ISOFLASH_ISOFLASH_H

#include <stddef.h>
#include <stdint.h>

#define ISOFLASH_VERSION_MAJOR 0
#define ISOFLASH_VERSION_MINOR 1
#define ISOFLASH_VERSION_PATCH 0

#if defined(__GNUC__)
#define ISOFLASH_API __attribute__((visibility("default")))
#else
#define ISOFLASH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 0 (ISOFLASH_OK) or an error id of isoflash/error_codes.h. */
typedef int32_t isoflash_status;
enum { ISOFLASH_OK = 0 };

typedef enum isoflash_dtype {
  ISOFLASH_F32 = 0,
  ISOFLASH_BF16 = 1,
  ISOFLASH_F16 = 2,
  ISOFLASH_F64 = 3, /* named so that a wrong tensor can be described; no call accepts it */
  ISOFLASH_I32 = 4,
  ISOFLASH_I64 = 5
} isoflash_dtype;

/* DLPack's numbers. */
typedef enum isoflash_device_type { ISOFLASH_CPU = 1, ISOFLASH_CUDA = 2 } isoflash_device_type;

/* A strided tensor. rank 0 means "not given". Strides count elements. Inputs may have zero and negative strides; tensors
 * that are written have positive strides under which no two elements share an address, and share no memory with other
 * tensors of the call (slices of one fused buffer are fine). */
typedef struct isoflash_tensor {
  void *data; /* element [0, 0, ...]; may be NULL in a plan, and where the tensor has no elements */
  int32_t dtype;
  int32_t rank;
  int64_t shape[4];
  int64_t strides[4];
  int32_t device_type;
  int32_t device_index;
} isoflash_tensor;

/* Fills `tensor` as contiguous (last axis fastest) on the CPU. rank 1 to 4. */
ISOFLASH_API void isoflash_tensor_contiguous(isoflash_tensor *tensor, void *data, isoflash_dtype dtype, int32_t rank,
                                             const int64_t *shape);

/* "Use the default" for the integers of isoflash_mask. */
#define ISOFLASH_DEFAULT INT64_MIN
/* No limit, for window_left and window_right. */
#define ISOFLASH_UNLIMITED (-1)

/* A whole number that may differ from sequence to sequence: `values` (int32, shape (batch)) if given, else `value`. */
typedef struct isoflash_per_sequence {
  int64_t value;
  isoflash_tensor values;
} isoflash_per_sequence;

typedef enum isoflash_history_kind {
  ISOFLASH_HISTORY_BIDIRECTIONAL = 0, /* a history query sees the whole valid history */
  ISOFLASH_HISTORY_CAUSAL = 1,        /* ... keys j <= p */
  ISOFLASH_HISTORY_WINDOW = 2         /* ... keys p - window_left <= j <= p + window_right */
} isoflash_history_kind;

/* What each query may see. Key positions of one sequence:
 *
 *   [0, num_context)                                context: seen by every query
 *   [num_context, num_context + history_len)        history slot; of it [history_begin, history_end) is valid
 *   [candidate_begin, candidate_begin + num_candidates)   candidates, in groups of candidate_group_size
 *
 * Context, history and candidate queries all see context and valid history (history queries as history_kind says); a
 * candidate query also sees its own group; nobody sees other candidates or padding, and padding queries see nothing.
 * Query row i stands at position i + query_offset.
 *
 * isoflash_problem_init sets every number to its default. Per sequence, with c = num_context, h = history_len,
 * n = num_candidates, s = candidate_begin and "given" meaning not ISOFLASH_DEFAULT:
 *
 *   c                 if not given: 0
 *   h                 if not given: what lies between context and candidates: s - c if s is given, else seqlen_kv - c - n
 *   n                 if not given: seqlen_kv - s if h or s is given, else 0
 *   s                 if not given: c + h, and then c + h + n must be seqlen_kv
 *   history_begin     if not given: c            history_end   if not given: c + h
 *   query_offset      if not given: seqlen_kv - seqlen_q
 *
 * So nothing given is full attention, and history_kind = CAUSAL alone is plain causal attention, aligned at the last query
 * and the last key. seqlen_q and seqlen_kv are the rows in use (seqused). Where the mask has context, candidates or
 * padding, every query must stand in [0, seqlen_kv); history alone also accepts queries before or after the keys. */
typedef struct isoflash_mask {
  int32_t history_kind;
  int32_t reserved0;                     /* 0 */
  int64_t window_left, window_right;     /* >= 0 or ISOFLASH_UNLIMITED; limits with history_kind WINDOW only */
  int64_t candidate_group_size;          /* >= 1; default 1: each candidate alone; the last group may be shorter */
  isoflash_per_sequence num_context;     /* c */
  isoflash_per_sequence history_len;     /* h */
  isoflash_per_sequence num_candidates;  /* n */
  isoflash_per_sequence history_begin;   /* position */
  isoflash_per_sequence history_end;     /* position */
  isoflash_per_sequence candidate_begin; /* position, s */
  isoflash_per_sequence query_offset;    /* position of query row 0 */
} isoflash_mask;

typedef enum isoflash_softcap_kind {
  ISOFLASH_SOFTCAP_NONE = 0,
  ISOFLASH_SOFTCAP_TANH = 1,     /* cap * tanh(s / cap) */
  ISOFLASH_SOFTCAP_SOFT_SIGN = 2 /* s / (1 + |s| / cap) */
} isoflash_softcap_kind;

/* Lists of tiles instead of, or on top of, isoflash_mask. One list: for each block of its own axis (query blocks in forward
 * form, key blocks in backward form) how many blocks of the other axis it holds, and which; entries past the count are not
 * read. int32, on the CPU, extents of 1 are broadcast:
 *
 *   counts  (batch, num_heads_q, num_blocks)           packed: (num_heads_q, total_blocks)
 *   indices (batch, num_heads_q, num_blocks, width)    packed: (num_heads_q, total_blocks, width)
 *
 * Packed, the blocks of sequence b start at the sum of ceil(rows / block) over the sequences before it, rows being those of
 * cu_seqlens; indices count from the sequence's own first block. */
typedef struct isoflash_block_list {
  isoflash_tensor counts, indices; /* both or neither */
} isoflash_block_list;

/* A block is in at most one of the three lists of a row of blocks; in none, nothing of it is seen.
 *   full  every element, up to the lengths in use
 *   mask  what isoflash_mask or row_intervals allow; with valid bounds, what these allow instead
 *   diag  only the key at the query's own position */
typedef struct isoflash_block_lists {
  isoflash_block_list mask, full, diag;
} isoflash_block_lists;

/* block_m = 0: no block lists. Otherwise block_m (query rows) and block_n (keys) are multiples of 64.
 *
 * valid_upper and valid_lower (int32 (batch, num_heads_q, num_blocks), num_blocks that of the longer of queries and keys;
 * extents of 1 broadcast; packed without the batch; block_m = block_n): position x of block t is valid if x - t * block <
 * upper[t] or >= lower[t]. An element of a mask block is then seen where its query row and its key are valid. */
typedef struct isoflash_block_sparsity {
  int64_t block_m, block_n;
  isoflash_block_lists forward;  /* indexed by query block; required */
  isoflash_block_lists backward; /* indexed by key block; optional, and then the transpose of forward */
  isoflash_tensor valid_upper, valid_lower;
} isoflash_block_sparsity;

/* One attention problem: shapes, strides, types, lengths, mask. Data of floating-point tensors is not read by the plan; the
 * int32 arrays (cu_seqlens, seqused, mask values, intervals, block lists, block_table) are read while it is made and copied.
 *
 *   dense:  q (batch, seqlen_q, num_heads_q, head_dim)        lse (batch, num_heads_q, seqlen_q)
 *   packed: q (total_q, num_heads_q, head_dim)                lse (num_heads_q, total_q); cu_seqlens_q and cu_seqlens_kv
 *
 * Forward only, keys and values may also come from a cache:
 *   block_table (int32 (batch, max_pages)): k and v are pages (num_pages, page_size, num_heads_kv, dim), and key j of
 *     sequence b is row j % page_size of page block_table[b][j / page_size]. seqused_kv says how many keys b has; entries
 *     past its last page are not read. Queries are dense or packed (cu_seqlens_q alone).
 *   k_new, v_new: keys of the query rows themselves, laid out like q with num_heads_kv heads. Sequence b has the keys of k
 *     (seqused_kv of them, if given), then one for each of its query rows in use. k and v may be dense, packed or paged,
 *     whatever q is. */
typedef struct isoflash_problem {
  uint32_t struct_size;
  int32_t deterministic; /* nonzero: refuse whatever is not bitwise repeatable */
  isoflash_tensor q, k, v, out;
  isoflash_tensor lse;                         /* optional; needed by the backward */
  isoflash_tensor cu_seqlens_q, cu_seqlens_kv; /* int32 (batch + 1): both for packed, neither for dense */
  isoflash_tensor seqused_q, seqused_kv;       /* int32 (batch), optional: rows in use; the others give zeros */
  int64_t max_seqlen_q, max_seqlen_kv;         /* optional check: no length may exceed it; ISOFLASH_DEFAULT: no check */
  double scale;                                /* -1e30 to 1e30; NaN: 1 / sqrt(head_dim) */
  int32_t softcap_kind;
  int32_t reserved0;
  double softcap; /* > 0, at most 1e30, when softcap_kind is not NONE */
  double dropout; /* must be 0: dropout is not supported */
  isoflash_mask mask;
  /* Optional, in place of `mask` (of which then only query_offset may be given): the keys that each row sees, as up to three
   * half-open intervals [begin, end) of key positions in ascending order without overlap; begin = end, an empty one, may stand
   * anywhere. Rows that are not in use are not read.
   * int32 (batch, num_heads_q, seqlen_q, 2 n) with n = 1 to 3 pairs begin, end; packed (num_heads_q, total_q, 2 n). The first
   * axes may be 1: shared by the batch, by the heads. */
  isoflash_tensor row_intervals;
  isoflash_block_sparsity blocks;
  isoflash_tensor block_table;  /* paged k and v, see above */
  isoflash_tensor k_new, v_new; /* see above */
  /* Optional (num_heads_q), float32: a logit that joins every row's softmax and has no value. A row that sees no key then has
   * out = 0, lse = sink. */
  isoflash_tensor sink;
  /* Optional, float32: added to the scores after scale and softcap. (batch, num_heads_q, seqlen_q, seqlen_kv), packed
   * (num_heads_q, total_q, longest sequence's keys or more): column j is key j of the row's sequence. The axes before the
   * last may be 1. */
  isoflash_tensor bias;
} isoflash_problem;

ISOFLASH_API void isoflash_problem_init(isoflash_problem *problem);

/* Error details, owned by the caller; one per thread. */
typedef struct isoflash_error isoflash_error;
ISOFLASH_API isoflash_error *isoflash_error_create(void); /* NULL if out of memory */
ISOFLASH_API void isoflash_error_destroy(isoflash_error *error);
ISOFLASH_API isoflash_status isoflash_error_id(const isoflash_error *error); /* 0: the last call succeeded */
ISOFLASH_API const char *isoflash_error_name(const isoflash_error *error);
ISOFLASH_API const char *isoflash_error_message(const isoflash_error *error); /* one line: what, got, expected, fix */
/* {"id", "name", "message", "fields", "meaning", "solutions", "docs", ...}; see docs/errors.md. */
ISOFLASH_API const char *isoflash_error_json(const isoflash_error *error);
/* The catalogue entry of an id as JSON or Markdown; NULL for an unknown id. isoflash_error_next(0) is the first id, and 0
 * follows the last. */
ISOFLASH_API const char *isoflash_error_catalogue_json(isoflash_status id);
ISOFLASH_API const char *isoflash_error_catalogue_markdown(isoflash_status id);
ISOFLASH_API isoflash_status isoflash_error_next(isoflash_status id);

typedef struct isoflash_plan isoflash_plan;

typedef struct isoflash_plan_options {
  uint32_t struct_size;
  int32_t num_threads; /* CPU backend; 0: one per core the process may use. Results do not depend on it. */
  const char *backend; /* NULL or "auto", or a name of isoflash_backend_name */
  /* Forward: cut the keys of each sequence into this many parts and merge them, for few query rows with many keys. At least
   * 1; 0: the backend chooses (the CPU: 1). The result depends on it in the last bits. */
  int32_t num_splits;
  int32_t reserved0;
} isoflash_plan_options;
ISOFLASH_API void isoflash_plan_options_init(isoflash_plan_options *options);

/* Checks `problem`, chooses a backend and prepares. `options` may be NULL. *plan is NULL on failure. */
ISOFLASH_API isoflash_status isoflash_plan_create(const isoflash_problem *problem, const isoflash_plan_options *options,
                                                  isoflash_plan **plan, isoflash_error *error);
ISOFLASH_API void isoflash_plan_destroy(isoflash_plan *plan);

/* Name of the backend and kernel that the plan uses, e.g. "cpu:avx512_bf16". Lives as long as the plan. */
ISOFLASH_API const char *isoflash_plan_kernel(const isoflash_plan *plan);
/* Visible (query, key) pairs over all sequences, per query head: where heads see different keys (intervals or block lists of
 * their own), the mean over the heads, rounded down; INT64_MAX if there are more. Useful FLOPs: forward 2 * (head_dim +
 * head_dim_v) * num_heads_q * pairs; backward 2.5 times that. */
ISOFLASH_API int64_t isoflash_plan_visible_pairs(const isoflash_plan *plan);
/* Bytes of workspace a call needs; alignment 64. The workspace's content is never kept from call to call. */
ISOFLASH_API size_t isoflash_forward_workspace_size(const isoflash_plan *plan);
ISOFLASH_API size_t isoflash_backward_workspace_size(const isoflash_plan *plan);

typedef struct isoflash_forward_args {
  uint32_t struct_size;
  uint32_t reserved0;
  isoflash_tensor q, k, v; /* in */
  isoflash_tensor out;     /* written */
  isoflash_tensor lse;     /* written if given */
  void *workspace;
  size_t workspace_size;
  void *stream;                             /* CUDA stream; NULL on the CPU */
  isoflash_tensor k_new, v_new, sink, bias; /* in, as the problem has them */
} isoflash_forward_args;
ISOFLASH_API void isoflash_forward_args_init(isoflash_forward_args *args);

/* Shapes and dtypes must be the plan's; strides may differ from it. Neither allocates nor synchronises nor reads back. */
ISOFLASH_API isoflash_status isoflash_forward(const isoflash_plan *plan, const isoflash_forward_args *args,
                                              isoflash_error *error);

typedef struct isoflash_backward_args {
  uint32_t struct_size;
  uint32_t reserved0;
  isoflash_tensor q, k, v, out, lse, dout; /* in: the forward's tensors and the gradient of out */
  isoflash_tensor dlse;                    /* in, optional: the gradient of lse */
  isoflash_tensor dq, dk, dv;              /* written; each may be left out (rank 0) */
  void *workspace;
  size_t workspace_size;
  void *stream;
  isoflash_tensor sink, bias;   /* in, as the problem has them */
  isoflash_tensor dsink, dbias; /* written if given; shaped like sink and bias, float32 */
} isoflash_backward_args;
ISOFLASH_API void isoflash_backward_args_init(isoflash_backward_args *args);

ISOFLASH_API isoflash_status isoflash_backward(const isoflash_plan *plan, const isoflash_backward_args *args,
                                               isoflash_error *error);

/* Merges attention over disjoint sets of keys: with w[n] = exp(lses[n] - lse),
 *
 *   lse = ln(sum of exp(lses[n]))     out = sum of w[n] outs[n]
 *
 * for 1 to 1024 partial results of one shape: outs[n] and out (..., num_heads, head_dim_v) of rank 3 or 4, each of any
 * float type, lses[n] and lse float32 as a plan has them. A part that saw no key (lse -inf) adds nothing, and its out is
 * not read; a row that no part saw has out = 0, lse = -inf; an lse of NaN or +inf in any part makes the row NaN. A sink
 * counts once: give it to one part only. out may be one of outs if it is the same tensor, lse likewise. CPU tensors. */
typedef struct isoflash_merge_args {
  uint32_t struct_size;
  int32_t num_parts;
  const isoflash_tensor *outs, *lses; /* num_parts of each */
  isoflash_tensor out;                /* written */
  isoflash_tensor lse;                /* written if given */
} isoflash_merge_args;
ISOFLASH_API void isoflash_merge_args_init(isoflash_merge_args *args);
ISOFLASH_API isoflash_status isoflash_merge(const isoflash_merge_args *args, isoflash_error *error);

/* The gradients of the parts, each to be given with its part's own out and lse to isoflash_backward (as dout and dlse):
 *
 *   douts[n] = w[n] dout     dlses[n] = w[n] (dout . (outs[n] - out) + dlse) */
typedef struct isoflash_merge_backward_args {
  uint32_t struct_size;
  int32_t num_parts;
  const isoflash_tensor *outs, *lses;   /* in: the parts */
  isoflash_tensor out, lse, dout;       /* in: the merged result and the gradient of out */
  isoflash_tensor dlse;                 /* in, optional: the gradient of lse */
  const isoflash_tensor *douts, *dlses; /* written: num_parts of each */
} isoflash_merge_backward_args;
ISOFLASH_API void isoflash_merge_backward_args_init(isoflash_merge_backward_args *args);
ISOFLASH_API isoflash_status isoflash_merge_backward(const isoflash_merge_backward_args *args, isoflash_error *error);

/* Block lists made from masks. The handle owns the arrays that `isoflash_block_lists_view` describes, both directions.
 *
 * from_problem: of the problem's mask or row_intervals (its `blocks` must be empty): blocks that every row sees whole are
 *   `full`, blocks of candidates that see only themselves are `diag`, the other seen ones are `mask`. Used with the same
 *   problem they give the same result. Forward lists alone for paged and new keys, which have no backward.
 * from_sessions: of rows that several users share, each user's keys being [prefix][padding][history][candidates]; see
 *   docs/block_lists.md. cu_seqlens (int32 (rows, users + 1)) is where each user starts in its row, in positions;
 *   candidate_slot (int32 (rows, users)) how many of a user's last positions are candidates, each alone; padding (int32
 *   (rows, seqlen), optional) is nonzero at positions that are padding, one run in each user's history; prefix >= 0
 *   positions at each user's start are seen by all of its rows. Starts, candidate slots and seqlen are multiples of
 *   `block`. Gives valid bounds too. Used with a dense problem of batch = rows, mask default.
 * transpose: forward lists from backward lists (if `from` has only these) or the other way round. */
typedef struct isoflash_block_lists_handle isoflash_block_lists_handle;
ISOFLASH_API isoflash_status isoflash_block_lists_from_problem(const isoflash_problem *problem, int64_t block_m,
                                                               int64_t block_n, isoflash_block_lists_handle **lists,
                                                               isoflash_error *error);
ISOFLASH_API isoflash_status isoflash_block_lists_from_sessions(const isoflash_tensor *cu_seqlens,
                                                                const isoflash_tensor *candidate_slot,
                                                                const isoflash_tensor *padding, int64_t seqlen,
                                                                int64_t prefix, int64_t block,
                                                                isoflash_block_lists_handle **lists, isoflash_error *error);
ISOFLASH_API isoflash_status isoflash_block_lists_transpose(const isoflash_block_sparsity *from, int64_t num_blocks,
                                                            isoflash_block_lists_handle **lists, isoflash_error *error);
/* Lives as long as the handle. */
ISOFLASH_API const isoflash_block_sparsity *isoflash_block_lists_view(const isoflash_block_lists_handle *lists);
ISOFLASH_API void isoflash_block_lists_destroy(isoflash_block_lists_handle *lists);

/* Backends in order of priority. why_not: empty string if the backend serves the problem on this machine, else the reason
 * (lives in `error`, which must not be NULL). */
ISOFLASH_API int32_t isoflash_backend_count(void);
ISOFLASH_API const char *isoflash_backend_name(int32_t index);
ISOFLASH_API const char *isoflash_backend_why_not(int32_t index, const isoflash_problem *problem, isoflash_error *error);

/* CPU levels compiled in, lowest first, and the one in use (ISOFLASH_CPU_LEVEL in the environment forces one).
 * available: whether this machine's processor can run it. */
ISOFLASH_API int32_t isoflash_cpu_level_count(void);
ISOFLASH_API const char *isoflash_cpu_level_name(int32_t index);
ISOFLASH_API int32_t isoflash_cpu_level_available(int32_t index);
ISOFLASH_API const char *isoflash_cpu_level_in_use(void);

ISOFLASH_API const char *isoflash_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif

#endif /* ISOFLASH_ISOFLASH_H */
