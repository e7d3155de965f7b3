/* Error ids: the values of isoflash_status other than ISOFLASH_OK. Printed from src/errors/catalogue.def by
 * isoflash_error_docs; docs/errors.md explains each. Numbers and names are stable. */
#ifndef ISOFLASH_ERROR_CODES_H
#define ISOFLASH_ERROR_CODES_H

typedef enum isoflash_error_code {
  ISOFLASH_ERROR_TENSOR_MISSING = 1001, /* a tensor that the call needs is not given */
  ISOFLASH_ERROR_RANK_MISMATCH = 1002, /* a tensor has the wrong number of axes */
  ISOFLASH_ERROR_SHAPE_MISMATCH = 1003, /* the shapes of two tensors do not fit together */
  ISOFLASH_ERROR_HEAD_RATIO = 1004, /* num_heads_q is not a multiple of num_heads_kv */
  ISOFLASH_ERROR_HEAD_DIM_RANGE = 1005, /* head_dim or head_dim_v is out of range */
  ISOFLASH_ERROR_SEQLEN_TOO_LONG = 1006, /* a sequence is longer than positions can count */
  ISOFLASH_ERROR_NEGATIVE_EXTENT = 1007, /* an extent is negative */
  ISOFLASH_ERROR_OFFSET_OVERFLOW = 1008, /* shape and strides reach beyond the address space */
  ISOFLASH_ERROR_MAX_SEQLEN_EXCEEDED = 1009, /* a sequence is longer than the given maximum */
  ISOFLASH_ERROR_MAX_SEQLEN_NEGATIVE = 1010, /* max_seqlen is negative */
  ISOFLASH_ERROR_BATCH_TOO_LARGE = 1011, /* the batch has more sequences than a plan can hold */
  ISOFLASH_ERROR_DTYPE_UNSUPPORTED = 2001, /* a tensor has a dtype that attention does not accept */
  ISOFLASH_ERROR_DTYPE_MISMATCH = 2002, /* two tensors have different dtypes */
  ISOFLASH_ERROR_LSE_DTYPE = 2003, /* lse and its gradient must be float32 */
  ISOFLASH_ERROR_INDEX_DTYPE = 2004, /* a tensor of lengths or offsets must be int32 */
  ISOFLASH_ERROR_GRADIENT_LAYOUT = 2005, /* the layout of a gradient is wrong */
  ISOFLASH_ERROR_OUTPUT_LAYOUT = 2006, /* the layout of an output is wrong */
  ISOFLASH_ERROR_OUTPUT_SELF_OVERLAP = 2007, /* two elements of an output share memory */
  ISOFLASH_ERROR_OUTPUT_ALIASES = 2008, /* an output shares memory with another tensor */
  ISOFLASH_ERROR_NULL_DATA = 2009, /* a tensor with elements has no data */
  ISOFLASH_ERROR_MISALIGNED_POINTER = 2010, /* the data of a tensor is not aligned to its elements */
  ISOFLASH_ERROR_DEVICE_MISMATCH = 2011, /* tensors are on different devices */
  ISOFLASH_ERROR_DEVICE_UNKNOWN = 2012, /* device_type names no device */
  ISOFLASH_ERROR_INDEX_DEVICE = 2013, /* a tensor of lengths or offsets must be on the CPU */
  ISOFLASH_ERROR_CU_SEQLENS_START = 3001, /* cu_seqlens does not start at 0 */
  ISOFLASH_ERROR_CU_SEQLENS_DECREASE = 3002, /* cu_seqlens decreases */
  ISOFLASH_ERROR_CU_SEQLENS_END = 3003, /* cu_seqlens does not end at the number of packed rows */
  ISOFLASH_ERROR_CANDIDATE_SPAN_MISMATCH = 3004, /* context, history and candidates do not add up to the sequence */
  ISOFLASH_ERROR_NEGATIVE_PART = 3005, /* a part of the mask is negative */
  ISOFLASH_ERROR_PART_OVERLAP = 3006, /* the candidates begin inside the context or the history */
  ISOFLASH_ERROR_HISTORY_RANGE = 3007, /* the valid history lies outside the history slot */
  ISOFLASH_ERROR_CANDIDATE_GROUP_SIZE = 3008, /* candidate_group_size is less than 1 */
  ISOFLASH_ERROR_WINDOW_WITHOUT_KIND = 3009, /* a window is given, but history_kind is not WINDOW */
  ISOFLASH_ERROR_NEGATIVE_WINDOW = 3010, /* a window limit is negative */
  ISOFLASH_ERROR_QUERY_OFFSET_RANGE = 3011, /* query_offset puts a query where the sequence has no role for it */
  ISOFLASH_ERROR_CU_SEQLENS_UNPAIRED = 3012, /* only one of cu_seqlens_q and cu_seqlens_kv is given */
  ISOFLASH_ERROR_CU_SEQLENS_SHAPE = 3013, /* cu_seqlens has the wrong shape */
  ISOFLASH_ERROR_CU_SEQLENS_BATCH = 3014, /* cu_seqlens_q and cu_seqlens_kv have different batches */
  ISOFLASH_ERROR_PACKED_RANK = 3015, /* dense tensors came with cu_seqlens */
  ISOFLASH_ERROR_SEQUSED_RANGE = 3016, /* seqused is out of range */
  ISOFLASH_ERROR_HISTORY_KIND_UNKNOWN = 3017, /* history_kind is unknown */
  ISOFLASH_ERROR_SOFTCAP_KIND_UNKNOWN = 3018, /* softcap_kind is unknown */
  ISOFLASH_ERROR_SOFTCAP_VALUE = 3019, /* softcap must be positive and at most 1e30 */
  ISOFLASH_ERROR_SOFTCAP_WITHOUT_KIND = 3020, /* softcap is given, but softcap_kind is NONE */
  ISOFLASH_ERROR_SCALE_NOT_FINITE = 3021, /* scale is infinite or beyond 1e30 */
  ISOFLASH_ERROR_DROPOUT_UNSUPPORTED = 3022, /* dropout is not supported */
  ISOFLASH_ERROR_ENUM_UNKNOWN = 3023, /* a field has a value that its type does not name */
  ISOFLASH_ERROR_PER_SEQUENCE_SHAPE = 3024, /* an array with one number per sequence has the wrong shape */
  ISOFLASH_ERROR_NO_BACKEND = 5001, /* no backend serves the problem on this machine */
  ISOFLASH_ERROR_BACKEND_UNKNOWN = 5002, /* there is no backend of that name */
  ISOFLASH_ERROR_BACKEND_REFUSES = 5003, /* the named backend does not serve the problem */
  ISOFLASH_ERROR_CPU_LEVEL_UNKNOWN = 5004, /* ISOFLASH_CPU_LEVEL names no CPU level */
  ISOFLASH_ERROR_CPU_LEVEL_UNAVAILABLE = 5005, /* this processor cannot run the CPU level in ISOFLASH_CPU_LEVEL */
  ISOFLASH_ERROR_STRUCT_SIZE = 6001, /* struct_size is not that of a known version */
  ISOFLASH_ERROR_NULL_ARGUMENT = 6002, /* an argument that is needed is NULL */
  ISOFLASH_ERROR_WORKSPACE_TOO_SMALL = 6003, /* the workspace is too small */
  ISOFLASH_ERROR_WORKSPACE_MISALIGNED = 6004, /* the workspace is not aligned */
  ISOFLASH_ERROR_WORKSPACE_MISSING = 6005, /* the workspace is NULL */
  ISOFLASH_ERROR_PLAN_SHAPE = 6006, /* a tensor's shape is not the plan's */
  ISOFLASH_ERROR_PLAN_DTYPE = 6007, /* a tensor's dtype is not the plan's */
  ISOFLASH_ERROR_PLAN_DEVICE = 6008, /* a tensor's device is not the plan's */
  ISOFLASH_ERROR_BACKWARD_WITHOUT_LSE = 6009, /* the backward needs the forward's lse */
  ISOFLASH_ERROR_NUM_THREADS = 6010, /* num_threads is out of range */
  ISOFLASH_ERROR_RESERVED_FIELD = 6011, /* a reserved field is not 0 */
  ISOFLASH_ERROR_OUT_OF_MEMORY = 6012, /* out of memory */
  ISOFLASH_ERROR_STREAM_ON_CPU = 6013, /* a stream is given to a call that runs on the CPU */
  ISOFLASH_ERROR_FILE_OPEN = 7001, /* a file cannot be read */
  ISOFLASH_ERROR_FILE_WRITE = 7002, /* a file cannot be written */
  ISOFLASH_ERROR_SAFETENSORS_HEADER = 7003, /* a file is not a valid safetensors file */
  ISOFLASH_ERROR_FILE_TENSOR_MISSING = 7004, /* a file lacks a tensor */
  ISOFLASH_ERROR_FILE_TENSOR_DTYPE = 7005, /* a tensor of a file has the wrong dtype */
  ISOFLASH_ERROR_FILE_TENSOR_SHAPE = 7006, /* a tensor of a file has the wrong shape */
  ISOFLASH_ERROR_FILE_METADATA = 7007, /* the metadata of a file have a wrong value */
  ISOFLASH_ERROR_INTERACTIONS_LINE = 7008, /* a line of an interactions file cannot be read */
  ISOFLASH_ERROR_INTERACTIONS_EMPTY = 7009, /* an interactions file gives no session */
  ISOFLASH_ERROR_SAFETENSORS_TENSOR = 7010, /* a tensor of a safetensors file contradicts itself */
  ISOFLASH_ERROR_INTERNAL = 9001 /* isoflash made a mistake of its own */
} isoflash_error_code;

#endif /* ISOFLASH_ERROR_CODES_H */
