"""The C ABI of isoflash (include/isoflash/isoflash.h) for the benchmarks, through ctypes, on CPU tensors of PyTorch."""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p

import torch

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int32: 4}


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * 4), ("strides", c_int64 * 4),
                ("device_type", c_int32), ("device_index", c_int32)]


class PerSequence(Structure):
    _fields_ = [("value", c_int64), ("values", Tensor)]


class Mask(Structure):
    _fields_ = [("history_kind", c_int32), ("reserved0", c_int32), ("window_left", c_int64), ("window_right", c_int64),
                ("candidate_group_size", c_int64)] + [(name, PerSequence) for name in (
                    "num_context", "history_len", "num_candidates", "history_begin", "history_end", "candidate_begin",
                    "query_offset")]


class Problem(Structure):
    _fields_ = [("struct_size", c_uint32), ("deterministic", c_int32)] + [(name, Tensor) for name in (
        "q", "k", "v", "out", "lse", "cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv")] + [
            ("max_seqlen_q", c_int64), ("max_seqlen_kv", c_int64), ("scale", c_double), ("softcap_kind", c_int32),
            ("reserved0", c_int32), ("softcap", c_double), ("dropout", c_double), ("mask", Mask)]


class PlanOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("num_threads", c_int32), ("backend", c_char_p)]


class ForwardArgs(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved0", c_uint32)] + [(name, Tensor) for name in ("q", "k", "v", "out", "lse")] + [
        ("workspace", c_void_p), ("workspace_size", c_size_t), ("stream", c_void_p)]


class BackwardArgs(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved0", c_uint32)] + [(name, Tensor) for name in (
        "q", "k", "v", "out", "lse", "dout", "dlse", "dq", "dk", "dv")] + [
            ("workspace", c_void_p), ("workspace_size", c_size_t), ("stream", c_void_p)]


def describe(tensor):
    t = Tensor(data=tensor.data_ptr(), dtype=DTYPES[tensor.dtype], rank=tensor.dim(), device_type=1, device_index=0)
    for axis in range(tensor.dim()):
        t.shape[axis], t.strides[axis] = tensor.shape[axis], tensor.stride(axis)
    return t


class Attention:
    """One plan and its buffers: dense q (batch, seqlen, heads, dim), or packed (total, heads, dim) with cu_seqlens."""

    def __init__(self, library, q, k, v, dout, threads, cu_seqlens=None, **mask):
        self.lib = ctypes.CDLL(library)
        for name in ("isoflash_forward_workspace_size", "isoflash_backward_workspace_size"):
            getattr(self.lib, name).restype = c_size_t
        self.lib.isoflash_plan_visible_pairs.restype = c_int64
        for name in ("isoflash_plan_kernel", "isoflash_error_message"):
            getattr(self.lib, name).restype = c_char_p
        self.lib.isoflash_error_create.restype = c_void_p
        self.error = c_void_p(self.lib.isoflash_error_create())
        lse_shape = (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])
        self.q, self.k, self.v, self.dout = q, k, v, dout
        self.out, self.lse = torch.empty_like(dout), torch.empty(lse_shape)
        self.dq, self.dk, self.dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

        problem = Problem()
        self.lib.isoflash_problem_init(byref(problem))
        for name in ("q", "k", "v", "out", "lse"):
            setattr(problem, name, describe(getattr(self, name)))
        if cu_seqlens is not None:
            problem.cu_seqlens_q = problem.cu_seqlens_kv = describe(cu_seqlens)
        for name, value in mask.items():
            field = getattr(problem.mask, name)
            if isinstance(value, torch.Tensor):
                field.values = describe(value)
            else:
                field.value = value
        options = PlanOptions()
        self.lib.isoflash_plan_options_init(byref(options))
        options.num_threads = threads
        self.plan = c_void_p()
        self.call("isoflash_plan_create", byref(problem), byref(options), byref(self.plan))
        sizes = [getattr(self.lib, f"isoflash_{d}_workspace_size")(self.plan) for d in ("forward", "backward")]
        self.workspace_bytes = dict(zip(("forward", "backward"), sizes))
        self.workspace = torch.empty(max(sizes) + 64, dtype=torch.uint8)
        aligned = (self.workspace.data_ptr() + 63) // 64 * 64
        self.forward_args, self.backward_args = ForwardArgs(), BackwardArgs()
        for args, init in ((self.forward_args, "isoflash_forward_args_init"), (self.backward_args, "isoflash_backward_args_init")):
            getattr(self.lib, init)(byref(args))
            for name, kind in args._fields_:
                if kind is Tensor and hasattr(self, name):
                    setattr(args, name, describe(getattr(self, name)))
            args.workspace, args.workspace_size = aligned, max(sizes)

    def call(self, name, *args):
        if getattr(self.lib, name)(*args, self.error) != 0:
            raise RuntimeError(self.lib.isoflash_error_message(self.error).decode())

    def forward(self):
        self.call("isoflash_forward", self.plan, byref(self.forward_args))

    def backward(self):
        self.call("isoflash_backward", self.plan, byref(self.backward_args))

    @property
    def kernel(self):
        return self.lib.isoflash_plan_kernel(self.plan).decode()

    @property
    def visible_pairs(self):
        return self.lib.isoflash_plan_visible_pairs(self.plan)
