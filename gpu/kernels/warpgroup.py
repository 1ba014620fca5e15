"""Q K^T and P V of a warpgroup in 16 bits: wgmma m64nNk16, operands straight from shared memory.

Four warps own 64 rows. Tiles lie in panels of 64 words, rows of 128 bytes whose chunks are XORed
with the row's number: what the tensor cores call the 128-byte swizzle. Accumulators have the layout
of 16 x 8 fragments, so that all else is as for a warp.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from types import SimpleNamespace
from typing import Any

from iosim.gpu.variant import PANEL, Variant

EIGHT_ROWS = 8 * PANEL
SWIZZLE_128 = 1 << 62


def products(lane: Any, v: Variant) -> SimpleNamespace:
    """Return the two matrix products on tiles in shared memory, for a warpgroup (see `half`)."""
    device, thread = lane.device, lane.thread
    pack = lane.pack_bfloat16 if v.dtype == "bfloat16" else lane.pack_float16
    cuda, int32, wide = lane.cuda, lane.int32, lane.int64
    step, width, p_size = v.step, v.width, v.step // 4
    key_panel = v.keys * PANEL
    multiply_scores = lane.warpgroup_scores(step, width // 16, v.dtype, v.rows * PANEL, key_panel)
    multiply_output = lane.warpgroup_output(width, step // 16, v.dtype)
    # Descriptors: address, stride between panels (for V), stride between eight rows, swizzle.
    rows_apart = (EIGHT_ROWS >> 4) << 32 | SWIZZLE_128
    panels_apart = (key_panel >> 4) << 16

    def take_queries(q_at, q):
        """Do nothing: the products read Q from shared memory."""

    def scores(s, q, q_at, k_at):
        """S = Q K^T for the step's keys; q_at is the warp's first row, k_at the first key."""
        group_at = q_at - (thread() >> 5 & 3) * 16 * PANEL
        multiply_scores(s, wide(group_at >> 4) | rows_apart, wide(k_at >> 4) | rows_apart)

    def accumulate(o, s, v_at):
        """O = O + P V for the step's keys; P is rounded to 16 bits here."""
        p = cuda.local.array(p_size, int32)
        for x in range(p_size):
            p[x] = pack(s[2 * x], s[2 * x + 1])
        multiply_output(o, p, wide(v_at >> 4) | panels_apart | rows_apart)

    return SimpleNamespace(
        take_queries=device(take_queries), scores=device(scores), accumulate=device(accumulate)
    )
