"""Without a GPU: a sample of kernels compiles, and its machine code is what was meant.

The sample has each kernel, each dtype, the smallest, usual and largest head_dim and both masks, for
sm_80 and sm_90a in turn. Held to: no spills, a ceiling of registers, the matrix instructions that
the tile's FLOPs need, and copies that bypass the registers.
"""

import importlib.util
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from iosim.gpu.plan import Limits, launches
from iosim.schedule import family
from iosim.shape import AttentionShape

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("needs the extra iosim[gpu], whose wheels compile", allow_module_level=True)

from iosim.gpu import compiler, ptx

AMPERE, HOPPER = (8, 0), (9, 0, "a")
A100_BYTES = 166912

# Schedule, dtype, head_dim, B_r, B_c, causal, target.
SAMPLE = [
    ("flash2", "float16", 16, 64, 64, True, AMPERE),
    ("flash2", "float16", 64, 128, 64, False, AMPERE),
    ("flash2", "bfloat16", 128, 128, 64, True, AMPERE),
    ("flash2", "float16", 256, 64, 32, False, AMPERE),
    ("flash2", "float32", 64, 128, 32, True, AMPERE),
    ("flash2", "float16", 64, 64, 128, False, HOPPER),
    ("flash2", "bfloat16", 128, 128, 128, True, HOPPER),
    ("flash2", "float16", 256, 64, 64, True, HOPPER),
    ("flash2", "float32", 16, 64, 32, False, HOPPER),
    ("flash2", "float32", 256, 32, 16, False, HOPPER),
    ("flash1", "float16", 64, 64, 128, True, HOPPER),
    ("flash1", "float32", 64, 64, 64, False, AMPERE),
    ("standard_tiled", "float16", 64, 128, 128, True, AMPERE),
    ("standard_tiled", "float32", 64, 64, 64, False, HOPPER),
]


@cache
def nvdisasm() -> str | None:
    """Return the disassembler: on the PATH, or from its wheel."""
    wheel = Path(sys.prefix).glob("lib/python*/site-packages/nvidia/cu*/bin/nvdisasm")
    return shutil.which("nvdisasm") or next((str(path) for path in wheel), None)


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_machine_code_is_what_was_meant(case):
    name, dtype, head_dim, br, bc, causal, target = case
    if nvdisasm() is None:
        pytest.skip("needs nvdisasm, from the wheel nvidia-cuda-nvdisasm or a CUDA toolkit")
    limits = Limits(warpgroups=True) if target == HOPPER else Limits(shared_bytes=A100_BYTES)
    shape = AttentionShape(1000, 1000, head_dim, dtype=dtype, causal=causal)
    for launch in launches(family(name).build(shape, br=br, bc=bc), limits=limits):
        v = launch.variant
        made = compiler.assemble(
            launch.factory(ptx, v), launch.kinds, target, v.threads, v.min_blocks
        )
        used = compiler.resources(made.cubin, nvdisasm())
        assert used.local_instructions == 0, v.kernel
        ceiling = min(255, 65536 // (v.threads * v.min_blocks))
        assert used.registers <= ceiling, v.kernel
        if v.kernel == "standard_softmax":
            assert used.count("HMMA", "HGMMA") == 0
            continue
        if v.warpgroup:
            # One instruction for 64 rows and 16 words of depth: Q K^T over d, P V over the step.
            assert used.count("HGMMA") == v.width // 16 + v.step // 16
            assert used.count("HMMA", "LDSM") == 0
        else:
            # At least one depth of each product: loops over the depth may stay rolled.
            per_depth = v.m_tiles * v.step // 8 * (3 if dtype == "float32" else 1)
            whole = per_depth * (v.width // v.depth)
            assert used.count("HMMA") >= per_depth
            if v.half and v.kernel == "flash2" and v.head_dim == 64:
                assert used.count("HMMA") == 2 * whole
        # Tiles of K and V, or of P and V, bypass the registers; a long copy is a loop.
        assert used.count("LDGSTS") >= (2 if v.kernel != "standard_scores" else 1)


def test_the_count_of_spills_can_fail():
    """A local array under an index known at run time only lies in local memory."""
    if nvdisasm() is None:
        pytest.skip("needs nvdisasm, from the wheel nvidia-cuda-nvdisasm or a CUDA toolkit")
    from numba import cuda
    from numba.cuda import types

    store, load, local = ptx.store_float, ptx.load_float, cuda.local

    def kernel(address, n):
        a = cuda.local.array(64, "float32")
        for i in range(n):
            a[i & 63] = load(address + 4 * i)
        for i in range(n):
            store(address + 4 * i, a[i * 7 & 63])

    assert local is cuda.local
    made = compiler.assemble(kernel, (types.int64, types.int64), AMPERE, 32)
    used = compiler.resources(made.cubin, nvdisasm())
    assert used.local_instructions > 0
