#!/usr/bin/env python3
"""isoflash beside PyTorch's CPU attention, on the same tensors in one interleaved run.

Cases: dense, 2 sequences of 1024 history + 64 candidates, 4 query heads, 2 KV heads, head_dim 128; and, with --batch, a file
of `isoflash pack` (packed users). Peer of the dense case: scaled_dot_product_attention with the exact boolean mask. Peers of
the packed case: one such call a sequence, and padded batches of users of similar length; the faster one counts. GQA is given
to the peer as enable_gqa and as repeated K and V; the faster one counts. Every side is checked against float64 first.

--no-amx keeps both sides from using AMX tiles (a setting for each of the peer's two math libraries, a CPU level of ours).
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time


def number_from(low):
    """A converter for argparse: a whole number, `low` or more."""
    def number(text):
        value = int(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"{text} is less than {low}")
        return value
    return number


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/lib/libisoflash.so", help="the shared library (default: %(default)s)")
    parser.add_argument("--batch", help="packed sessions written by `isoflash pack` (their dtype is converted to each one measured)")
    parser.add_argument("--users", type=number_from(0), default=0, help="only the first USERS sequences of the batch")
    parser.add_argument("--threads", type=number_from(1), default=2)
    parser.add_argument("--repeats", type=number_from(1), default=5)
    parser.add_argument("--no-amx", action="store_true")
    parser.add_argument("--json", help="write the results here as well")
    return parser.parse_args()


ARGS = options()
if ARGS.no_amx:
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    os.environ["MKL_ENABLE_INSTRUCTIONS"] = "AVX512"
    os.environ["ISOFLASH_CPU_LEVEL"] = "avx512"

import torch  # noqa: E402  (after the environment is set)
from isoflash_ctypes import Attention  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402


def visible(length, context_and_history):
    """Boolean mask of one sequence: everybody sees context and history, a candidate also itself."""
    mask = torch.zeros(length, length, dtype=torch.bool)
    mask[:, :context_and_history] = True
    return mask | torch.eye(length, dtype=torch.bool)


class Peer:
    """scaled_dot_product_attention over a list of (q, k, v, dout, mask), each (batch, heads, seqlen, dim)."""

    def __init__(self, name, groups, repeat_kv):
        self.name, self.groups, self.repeat_kv = name, groups, repeat_kv

    def forward(self):
        self.leaves, self.outs = [], []
        for q, k, v, _, mask in self.groups:
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            q, k, v = leaves
            if self.repeat_kv:
                ratio = q.shape[1] // k.shape[1]
                k, v = k.repeat_interleave(ratio, 1), v.repeat_interleave(ratio, 1)
            self.leaves.append(leaves)
            self.outs.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=not self.repeat_kv))

    def backward(self):
        for out, (_, _, _, dout, _) in zip(self.outs, self.groups):
            out.backward(dout)


def reference(q, k, v, dout, mask):
    """float64 out, dq, dk, dv of (heads, seqlen, dim) inputs."""
    q, k, v = (t.double().requires_grad_() for t in (q, k, v))
    ratio = q.shape[0] // k.shape[0]
    scores = q @ k.repeat_interleave(ratio, 0).mT / q.shape[-1] ** 0.5
    out = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v.repeat_interleave(ratio, 0)
    return (out.detach(),) + torch.autograd.grad(out, (q, k, v), dout.double())


def worst(results, references):
    return max(float((r.double() - x).abs().max() / x.abs().max().clamp_min(1e-30)) for r, x in zip(results, references))


def rows(t, b, begin, end):
    """(heads, seqlen, dim) of one sequence of a dense or packed tensor."""
    return (t[b] if t.dim() == 4 else t[begin:end]).transpose(0, 1)


def check(name, ours, peers, spans, masks, tolerance):
    """Sequences at both ends of the batch against float64; a side that fails is not timed."""
    ours.forward()
    ours.backward()
    for peer in peers:
        peer.forward()
        peer.backward()
    for b in {0, len(spans) - 1}:
        begin, end = spans[b]
        pick = lambda t: rows(t, b, begin, end)  # noqa: E731
        truth = reference(*(pick(t) for t in (ours.q, ours.k, ours.v, ours.dout)), masks(b))
        error = worst([pick(t) for t in (ours.out, ours.dq, ours.dk, ours.dv)], truth)
        if not error <= tolerance:
            sys.exit(f"{name}: isoflash differs from float64 by {error:.2e} of the largest value (allowed {tolerance:.0e})")
        for peer in peers:
            out, leaves = peer.sequence(b)
            error = worst([out] + [leaf.grad for leaf in leaves], truth) if out is not None else 0
            if not error <= tolerance:
                sys.exit(f"{name}: {peer.name} differs from float64 by {error:.2e} of the largest value (allowed {tolerance:.0e})")


class DensePeer(Peer):
    def sequence(self, b):
        leaves = self.leaves[0]
        return self.outs[0][b].detach(), [_Sliced(leaf, b) for leaf in leaves]


class SequencePeer(Peer):
    def sequence(self, b):
        return self.outs[b][0].detach(), [_Sliced(leaf, 0) for leaf in self.leaves[b]]


class PaddedPeer(Peer):
    def sequence(self, b):
        return None, []  # the same calls as SequencePeer with zeros behind; checked there


class _Sliced:
    def __init__(self, leaf, b):
        self.grad = leaf.grad[b]


def timed(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def measure(name, dtype, ours, peers, flops):
    sides = [("isoflash", ours)] + [(peer.name, peer) for peer in peers]
    times = {(side, d): [] for side, _ in sides for d in ("forward", "backward")}
    for repeat in range(ARGS.repeats + 1):
        for side, runner in sides:
            forward, backward = timed(runner.forward), timed(runner.backward)
            if repeat > 0:  # the first round warms up
                times[side, "forward"].append(forward)
                times[side, "backward"].append(backward)
    result = []
    for direction, factor in (("forward", 1.0), ("backward", 2.5)):
        mine = times["isoflash", direction]
        best = min((peer.name for peer in peers), key=lambda n: statistics.median(times[n, direction]))
        ratios = sorted(b / a for a, b in zip(mine, times[best, direction]))
        row = {"case": name, "dtype": str(dtype).removeprefix("torch."), "direction": direction, "kernel": ours.kernel,
               "isoflash_ms": 1e3 * statistics.median(mine), "isoflash_gflops": factor * flops / statistics.median(mine) / 1e9,
               "peer": best, "peer_ms": {p.name: 1e3 * statistics.median(times[p.name, direction]) for p in peers},
               "ratio": statistics.median(ratios), "ratio_min": ratios[0], "ratio_max": ratios[-1],
               "workspace_bytes_per_thread": ours.workspace_bytes[direction] // ARGS.threads}
        result.append(row)
        print(f"{name:8} {row['dtype']:9} {direction:9} {row['isoflash_ms']:9.2f} ms {row['isoflash_gflops']:8.1f} GFLOP/s   "
              f"{best:28} {row['peer_ms'][best]:9.2f} ms   {row['ratio']:5.2f} x ({ratios[0]:.2f} to {ratios[-1]:.2f})   "
              f"{row['workspace_bytes_per_thread'] / 2**20:.2f} MiB/thread", flush=True)
    return result


def dense(dtype, tolerance):
    torch.manual_seed(1)
    batch, history, candidates, heads_q, heads_kv, dim = 2, 1024, 64, 4, 2, 128
    seqlen = history + candidates
    make = lambda heads: torch.randn(batch, seqlen, heads, dim).to(dtype)  # noqa: E731
    q, k, v, dout = make(heads_q), make(heads_kv), make(heads_kv), make(heads_q)
    ours = Attention(ARGS.library, q, k, v, dout, ARGS.threads, history_len=history, num_candidates=candidates)
    mask = visible(seqlen, history)
    group = [tuple(t.transpose(1, 2) for t in (q, k, v, dout)) + (mask,)]
    peers = [DensePeer("sdpa, enable_gqa", group, False), DensePeer("sdpa, repeated K and V", group, True)]
    check("dense", ours, peers, [(0, seqlen)] * batch, lambda b: mask, tolerance)
    return measure("dense", dtype, ours, peers, 4 * dim * heads_q * ours.visible_pairs)


def packed(path, dtype, tolerance, padded_users=64):
    from safetensors.torch import load_file
    file = load_file(path)
    users = ARGS.users or len(file["history_len"])
    cu = file["cu_seqlens"][:users + 1].contiguous()
    total = int(cu[-1])
    q, k, v, dout = (file[name][:total].to(dtype) for name in ("q", "k", "v", "dout"))
    parts = {name: file[name][:users].contiguous() for name in ("num_context", "history_len", "num_candidates")}
    ours = Attention(ARGS.library, q, k, v, dout, ARGS.threads, cu_seqlens=cu, **parts)
    spans = list(zip(cu[:-1].tolist(), cu[1:].tolist()))
    shared = (parts["num_context"] + parts["history_len"]).tolist()
    masks = [visible(end - begin, shared[b]) for b, (begin, end) in enumerate(spans)]
    single = [tuple(t[begin:end].transpose(0, 1)[None] for t in (q, k, v, dout)) + (masks[b],) for b, (begin, end) in enumerate(spans)]
    padded, order = [], sorted(range(users), key=lambda b: spans[b][1] - spans[b][0])
    for first in range(0, users, padded_users):
        chosen = order[first:first + padded_users]
        longest = max(spans[b][1] - spans[b][0] for b in chosen)
        mask = torch.eye(longest, dtype=torch.bool).repeat(len(chosen), 1, 1, 1)  # a padding row sees itself: no NaN
        tensors = [torch.zeros(len(chosen), t.shape[1], longest, t.shape[2], dtype=dtype) for t in (q, k, v, dout)]
        for n, b in enumerate(chosen):
            begin, end = spans[b]
            mask[n, 0, :end - begin, :end - begin] = masks[b]
            for target, t in zip(tensors, (q, k, v, dout)):
                target[n, :, :end - begin] = t[begin:end].transpose(0, 1)
        padded.append(tuple(tensors) + (mask,))
    peers = [SequencePeer("sdpa a sequence, enable_gqa", single, False), SequencePeer("sdpa a sequence, repeated", single, True),
             PaddedPeer("sdpa padded, repeated", padded, True)]
    check("packed", ours, peers, spans, lambda b: masks[b], tolerance)
    return measure("packed", dtype, ours, peers, 4 * q.shape[2] * q.shape[1] * ours.visible_pairs)


def main():
    torch.set_num_threads(ARGS.threads)
    results = []
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 4e-2)):
        results += dense(dtype, tolerance)
        if ARGS.batch:
            results += packed(ARGS.batch, dtype, tolerance)
    if ARGS.json:
        with open(ARGS.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "cpu": platform.processor() or platform.machine(), "threads": ARGS.threads,
                       "amx": not ARGS.no_amx, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
