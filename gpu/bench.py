"""Ours beside what torch has, in one run: medians of CUDA events, TFLOP/s and ratios."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

from iosim.errors import IosimError
from iosim.gpu.launch import Prepared, context
from iosim.gpu.profiled import random_arrays
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

TORCH_BACKENDS = {
    "torch flash": "FLASH_ATTENTION",
    "torch cudnn": "CUDNN_ATTENTION",
    "torch efficient": "EFFICIENT_ATTENTION",
    "torch math": "MATH",
}
WARM_UP, REPEATS = 3, 15


def visible_flops(shape: AttentionShape) -> int:
    """Return the FLOPs of the two products over visible pairs, as the field counts them."""
    pairs = shape.n_q * shape.n_k
    if shape.causal:
        offset = shape.causal_offset
        pairs = sum(min(max(i + offset + 1, 0), shape.n_k) for i in range(shape.n_q))
    return 4 * pairs * shape.head_dim * shape.batch * shape.heads


def bench(schedule: Schedule, *, others: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Time a schedule's kernels and, where torch is installed, its attention on the same arrays.

    `others` names those to time ("torch flash", "triton (flex)", ...), by default all. Returns
    records with `seconds` (the median), `tflops` of the visible pairs, and `speed`, the schedule's
    speed over that of the other. Raises IosimError where there is no GPU.
    """
    context()
    shape = schedule.shape
    flops = visible_flops(shape)
    candidates: dict[str, Callable[[], Any] | str] = {}
    q, k, v = random_arrays(shape)
    torch_arrays = None if others == () else _torch_arrays(q, k, v, shape.dtype)
    arrays = torch_arrays or (q, k, v)
    prepared = Prepared(schedule, *arrays)
    candidates[f"iosim {schedule.name}"] = prepared.launch
    if torch_arrays:
        candidates |= {
            name: call
            for name, call in _torch_calls(shape, *torch_arrays)
            if others is None or name in others
        }
    records: list[dict[str, Any]] = []
    for name, call in candidates.items():
        seconds, note = None, ""
        try:
            if isinstance(call, str):
                raise IosimError(call)
            seconds = time_of(call)
        except Exception as error:  # a backend that cannot take the shape says so in its own way
            if name.startswith("iosim"):
                raise
            note = str(error).strip().partition("\n")[0][:100]
        records.append(
            {
                "kernel": name,
                **shape.to_dict(("n_q", "n_k", "head_dim", "heads", "causal", "dtype")),
                "seconds": seconds,
                "tflops": seconds and flops / seconds * 1e-12,
                "speed": seconds and seconds / records[0]["seconds"] if records else 1.0,
                "note": note,
            }
        )
    return records


def time_of(call: Callable[[], Any]) -> float:
    """Return the median seconds of a call's work on the device, by CUDA events."""
    from numba import cuda

    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    for _ in range(REPEATS):
        start, end = cuda.event(), cuda.event()
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(cuda.event_elapsed_time(start, end) * 1e-3)
    return median(times)


def _torch_arrays(*given: Any) -> tuple[Any, ...] | None:
    """Return the arrays as torch tensors on the device, or None where torch cannot be used."""
    *arrays, dtype = given
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    return tuple(
        torch.from_numpy(array.astype("float32")).cuda().to(getattr(torch, dtype))
        for array in arrays
    )


def _torch_calls(
    shape: AttentionShape, q: Any, k: Any, v: Any
) -> Iterator[tuple[str, Callable[[], Any] | str]]:
    """Yield torch's attention by name: three calls, then each backend of its fused attention."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    grouped = shape.kv_heads != shape.heads
    corner = shape.causal and shape.n_q != shape.n_k
    scale = shape.head_dim**-0.5

    def three_calls() -> Any:
        one, other = (x.repeat_interleave(shape.group, 1) if grouped else x for x in (k, v))
        s = torch.matmul(q, one.transpose(-1, -2)) * scale
        if shape.causal:
            rows = torch.arange(shape.n_q, device=q.device)[:, None] + shape.causal_offset
            s = s.masked_fill(torch.arange(shape.n_k, device=q.device) > rows, float("-inf"))
        return torch.matmul(torch.softmax(s, -1), other)

    def fused(which: Any) -> Any:
        with sdpa_kernel(which):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=shape.causal, enable_gqa=grouped
            )

    yield "torch standard", three_calls
    for name, backend in TORCH_BACKENDS.items():
        if corner:
            yield name, "torch aligns a causal mask top-left"
            continue

        yield name, partial(fused, getattr(SDPBackend, backend))
    yield from _triton(shape, q, k, v)


def _triton(
    shape: AttentionShape, q: Any, k: Any, v: Any
) -> Iterator[tuple[str, Callable[[], Any] | str]]:
    """Yield torch's flex attention, whose kernel is compiled with Triton."""
    try:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    except ImportError:
        return
    mask = None
    if shape.causal:

        def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
            return j <= i + shape.causal_offset

        mask = create_block_mask(sees, None, None, shape.n_q, shape.n_k, device=q.device)
    compiled = torch.compile(flex_attention)
    grouped = shape.kv_heads != shape.heads
    yield "triton (flex)", lambda: compiled(q, k, v, block_mask=mask, enable_gqa=grouped)
