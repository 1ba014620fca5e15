"""The kernels' source on the emulator: results and byte counts equal the executor and `count`.

One Python thread a lane makes a case take a second or two, so the shapes are small and chosen to be
awkward: ragged tiles on both sides, tiles that are no whole number of matrix instructions, grouped
heads, both masks, rows that see nothing.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from iosim.errors import IosimError
from iosim.gpu.emulate import Emulation, emulate
from iosim.gpu.emulator import Lanes, Memory
from iosim.gpu.variant import Variant
from iosim.precision import precision
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.schedule import family
from iosim.schedule.tree import For, Node, Schedule
from iosim.shape import AttentionShape
from iosim.tolerance import Execution, agrees, elementwise_error

WARPGROUP = {"warpgroup": True, "q_in_registers": False}

CASES = [
    ("flash2", "float16", {"n_q": 40, "n_k": 46, "heads": 2, "kv_heads": 1}, 32, 16, {}),
    ("flash2", "float16", {"head_dim": 24, "causal": True, "n_k": 50}, 32, 32, {"step": 16}),
    ("flash2", "bfloat16", {"head_dim": 64, "n_k": 45}, 50, 20, {"m_tiles": 2, "step": 16}),
    ("flash2", "float16", {"n_q": 50, "n_k": 20, "causal": True}, 20, 20, {}),
    ("flash2", "float16", {"n_q": 21, "causal": True, "align": "top-left"}, 16, 32, {"stages": 1}),
    ("flash2", "float32", {"head_dim": 24, "causal": True, "batch": 2, "n_q": 20}, 20, 20, {}),
    ("flash2", "float32", {"n_q": 33, "n_k": 18}, 48, 16, {"m_tiles": 2, "step": 16}),
    ("flash2", "bfloat16", {"head_dim": 40, "causal": True}, 32, 32, {"q_in_registers": False}),
    ("flash2", "float16", {"head_dim": 64, "n_q": 70, "n_k": 50}, 64, 32, WARPGROUP | {"step": 16}),
    (
        "flash2",
        "bfloat16",
        {"head_dim": 128, "n_q": 70, "n_k": 90, "causal": True},
        50,
        40,
        WARPGROUP | {"step": 32},
    ),
    ("flash2", "float16", {"batch": 2, "heads": 2, "causal": True}, 16, 16, {"heads_first": True}),
    ("flash2", "float16", {"causal": True}, 16, 16, {"ascending": True}),
    ("flash1", "float16", {"heads": 2, "kv_heads": 1}, 32, 16, {}),
    ("flash1", "bfloat16", {"head_dim": 24, "causal": True}, 20, 20, {}),
    ("flash1", "float32", {"n_q": 50, "n_k": 20, "causal": True}, 16, 16, {}),
    ("standard_tiled", "float16", {"heads": 2}, 32, 16, {}),
    ("standard_tiled", "bfloat16", {"head_dim": 24, "n_k": 40, "causal": True}, 32, 32, {}),
    ("standard_tiled", "float32", {"n_q": 20, "n_k": 33}, 20, 20, {}),
]


def arrays(shape: AttentionShape, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    storage = precision(shape.dtype).storage
    rows = ((shape.heads, shape.n_q), (shape.kv_heads, shape.n_k), (shape.kv_heads, shape.n_k))
    return [
        rng.standard_normal((shape.batch, heads, n, shape.head_dim)).astype(storage)
        for heads, n in rows
    ]


def build(name: str, dtype: str, sizes: dict[str, object], br: int, bc: int) -> Schedule:
    shape = AttentionShape(**{"n_q": 40, "n_k": 37, "head_dim": 16, **sizes, "dtype": dtype})
    return family(name).build(shape, br=br, bc=bc)


def assert_bytes_equal_count(schedule: Schedule, done: Emulation) -> None:
    traffic = count(schedule)
    for name, words in traffic.tensors.items():
        item = traffic.items[name]
        assert done.read_bytes[name] == words.read * item, f"bytes read of {name}"
        assert done.write_bytes[name] == words.write * item, f"bytes written of {name}"


@pytest.mark.parametrize(("name", "dtype", "sizes", "br", "bc", "tuned"), CASES)
def test_results_and_bytes_equal_the_executor_and_count(
    name: str, dtype: str, sizes: dict[str, object], br: int, bc: int, tuned: dict[str, object]
) -> None:
    schedule = build(name, dtype, sizes, br, bc)
    q, k, v = arrays(schedule.shape)
    done = emulate(schedule, q, k, v, **tuned)
    expected = execute(schedule, q, k, v)
    shape = schedule.shape
    tiles = -(-shape.n_k // bc)
    # Both lie within the bound of float64's result, so within twice the bound of each other. The
    # split products of float32 leave out 2^-22 and round 2^-22 twice, 12 roundoffs of a product.
    execution = Execution(
        dtype,
        head_dim=shape.head_dim + (12 if dtype == "float32" else 0),
        n_keys=shape.n_k,
        tiles=tiles,
        largest_tile=min(bc, shape.n_k) + (12 if dtype == "float32" else 0),
        stored_scores=name == "standard_tiled",
        stored_output_per_tile=name == "flash1",
    )
    visible = None if schedule.mask is None else schedule.mask.visible(
        slice(0, shape.n_q), slice(0, shape.n_k)
    )  # fmt: skip
    bound, lse_bound = elementwise_error(execution, q, k, v, visible)
    wide = [x.astype(np.float64) for x in (done.O, expected.O)]
    assert agrees(*wide, 2 * bound)
    if expected.LSE is not None:
        assert agrees(done.arrays["LSE"], expected.LSE, 2 * lse_bound)
    assert_bytes_equal_count(schedule, done)


@pytest.mark.parametrize("order", ["reverse", "snake"])
def test_the_order_of_the_keys_is_the_schedules(order: str) -> None:
    schedule = build("flash2", "float16", {"causal": True, "n_q": 48, "n_k": 48}, 16, 16)

    def turned(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            replace(
                node,
                body=turned(node.body),
                order=order if node.dim.name == "key" else node.order,
            )
            if isinstance(node, For)
            else node
            for node in body
        )

    schedule = replace(schedule, body=turned(schedule.body))
    q, k, v = arrays(schedule.shape)
    done, expected = emulate(schedule, q, k, v), execute(schedule, q, k, v)
    # Half a unit in the last place of either, where a rounding falls the other way: |O| < 4.
    assert np.abs(done.O.astype(float) - expected.O).max() <= 4 * 2**-10
    assert_bytes_equal_count(schedule, done)


def test_unaligned_rows_are_copied_word_by_word() -> None:
    schedule = build("flash2", "float16", {"head_dim": 24, "causal": True}, 32, 16)
    q, k, v = arrays(schedule.shape)
    done = emulate(schedule, q, k, v, unaligned=True)
    assert np.array_equal(done.O, emulate(schedule, q, k, v).O)
    assert_bytes_equal_count(schedule, done)


def test_infinities_and_nan_reach_their_own_rows_only() -> None:
    schedule = build("flash2", "float16", {"n_q": 32, "n_k": 32}, 32, 16)
    q, k, v = arrays(schedule.shape)
    q[0, 0, 3] = np.nan
    q[0, 0, 5] = 60000  # scores of about 1e9, far apart
    q[0, 0, 7] = np.inf
    k[0, 0, :, 0] = np.abs(k[0, 0, :, 0])
    done, expected = emulate(schedule, q, k, v), execute(schedule, q, k, v)
    bad = np.isnan(expected.O.astype(np.float32)).any(axis=-1)
    assert np.flatnonzero(bad[0, 0]).tolist() == [3, 7]
    assert np.array_equal(np.isnan(done.O.astype(np.float32)).any(axis=-1), bad)
    assert np.array_equal(done.O[0, 0, 5], expected.O[0, 0, 5])  # one key has all the weight


def test_scores_far_below_zero_after_masked_keys() -> None:
    # Row 0 sees key 0 only, after a first tile that is masked for it, and its score is -1e4.
    schedule = build("flash2", "bfloat16", {"n_q": 32, "n_k": 32, "causal": True}, 32, 16)
    q, k, v = arrays(schedule.shape)
    q[...], k[...] = 50, -50
    done = emulate(schedule, q, k, v)
    assert np.array_equal(done.O[0, 0, 0], v[0, 0, 0])
    lse = 16 * 50 * -50 / 4 + np.log(np.arange(1, 33))
    # m and LSE are near 1e4, a float32 has 24 bits, and m counts in bits: three roundings.
    assert np.abs(done.arrays["LSE"][0, 0] - lse).max() <= 3 * 1e4 * 2**-24


def test_the_emulator_shows_an_access_outside_an_array() -> None:
    memory = Memory()
    address = memory.add("x", np.zeros(8, np.float32))
    lanes = Lanes(memory, 32, 64)
    with pytest.raises(IosimError, match="outside every array"):
        lanes.run(lambda: lanes.load_float(address + 32), 1, ())
    with pytest.raises(IosimError, match="outside shared memory"):
        lanes.run(lambda: lanes.store_shared_int(64, 0), 1, ())
    with pytest.raises(IosimError, match="not aligned"):
        lanes.run(lambda: lanes.load_16(address + 4), 1, ())


def test_the_emulator_shows_a_copy_that_nobody_waited_for() -> None:
    memory = Memory()
    address = memory.add("x", np.arange(4, dtype=np.float32))
    lanes = Lanes(memory, 32, 16)
    seen = []

    def kernel() -> None:
        if lanes.thread() == 0:
            lanes.copy_async(0, address, 16)
            seen.append(lanes.load_shared_float(0))
            lanes.wait_for_copies()
            seen.append(lanes.load_shared_float(4))

    lanes.run(kernel, 1, ())
    assert np.isnan(seen[0])
    assert seen[1] == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_emulated_matrix_product_is_a_matrix_product(dtype: str) -> None:
    """A and B come in by ldmatrix and go through mma, C goes out by the accumulator's layout."""
    rng = np.random.default_rng(1)
    storage = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    a, b = (rng.integers(-4, 5, size).astype(storage) for size in ((16, 16), (16, 16)))
    lanes = Lanes(Memory(), 32, 1024)
    out = np.zeros((16, 16), np.float32)

    def kernel() -> None:
        n = lanes.lane_number()
        words = np.concatenate([a.reshape(-1), b.reshape(-1)]).view(np.uint32)
        for i in range(n, 256, 32):
            lanes.store_shared_int(4 * i, int(words[i]))
        lanes.barrier()
        fa = lanes.ldmatrix((n & 15) * 32 + (n >> 4) * 16)
        fb = lanes.ldmatrix_transposed(512 + (n & 15) * 32 + (n >> 4) * 16)
        for half in range(2):
            c = getattr(lanes, f"mma_{dtype}")(*fa, fb[2 * half], fb[2 * half + 1], 0, 0, 0, 0)
            for i in range(4):
                out[n // 4 + i // 2 * 8, 8 * half + 2 * (n % 4) + i % 2] = c[i]

    lanes.run(kernel, 1, ())
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


def test_shared_memory_of_a_variant_is_what_its_kernel_may_touch() -> None:
    variant = Variant("flash2", "float16", head_dim=64, br=64, bc=64)
    # Q, and two stages of K and V, 64 rows of 128 bytes each.
    assert variant.shared_bytes == 5 * 64 * 128
