"""On a GPU: results against float64 by the derived tolerance, for awkward shapes and values.

A kernel is compiled for its tiles, not for lengths, so each variant meets many shapes. The arrays
are NumPy's, so that nothing but the extra is needed; what torch adds is skipped without it.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iosim import reference
from iosim.errors import IosimError
from iosim.gpu.exactness import execution_of
from iosim.gpu.launch import Prepared, run
from iosim.precision import precision
from iosim.schedule import family
from iosim.schedule.tree import For, Node, Schedule
from iosim.shape import AttentionShape
from iosim.tolerance import agrees, elementwise_error

pytestmark = pytest.mark.usefixtures("device")

# Schedule, dtype, head_dim, B_r, B_c, causal: each kernel and dtype; the smallest, usual and
# largest head_dim; tiles that are no whole number of instructions.
VARIANTS = [
    ("flash2", "float16", 64, 128, 64, False),
    ("flash2", "float16", 64, 128, 64, True),
    ("flash2", "float16", 128, 128, 128, False),
    ("flash2", "float16", 128, 128, 128, True),
    ("flash2", "bfloat16", 128, 64, 64, True),
    ("flash2", "float16", 16, 32, 32, True),
    ("flash2", "bfloat16", 256, 64, 64, False),
    ("flash2", "float16", 72, 50, 40, True),
    ("flash2", "float32", 64, 128, 32, True),
    ("flash2", "float32", 128, 64, 32, False),
    ("flash2", "float32", 24, 20, 20, True),
    ("flash1", "float16", 64, 64, 128, True),
    ("flash1", "bfloat16", 40, 40, 24, False),
    ("flash1", "float32", 64, 64, 64, True),
    ("standard_tiled", "float16", 64, 128, 128, True),
    ("standard_tiled", "bfloat16", 40, 48, 56, False),
    ("standard_tiled", "float32", 64, 64, 64, True),
]


def build(variant: tuple, **sizes: object) -> Schedule:
    name, dtype, head_dim, br, bc, causal = variant
    shape = AttentionShape(**sizes, head_dim=head_dim, dtype=dtype, causal=causal)
    return family(name).build(shape, br=br, bc=bc)


def visible(schedule: Schedule) -> np.ndarray | None:
    if schedule.mask is None:
        return None
    return schedule.mask.visible(slice(0, schedule.shape.n_q), slice(0, schedule.shape.n_k))


def arrays(shape: AttentionShape, seed: int = 0, spread: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    storage = precision(shape.dtype).storage
    rows = ((shape.heads, shape.n_q), (shape.kv_heads, shape.n_k), (shape.kv_heads, shape.n_k))
    return [
        (spread * rng.standard_normal((shape.batch, heads, n, shape.head_dim))).astype(storage)
        for heads, n in rows
    ]


def assert_exact(schedule: Schedule, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    result = run(schedule, q, k, v)
    expected, lse = reference.attention(q, k, v, visible(schedule))
    bound, lse_bound = elementwise_error(execution_of(schedule), q, k, v, visible(schedule))
    assert agrees(result.O.astype(np.float64), expected, bound)
    if result.LSE is not None:
        assert agrees(result.LSE, lse, lse_bound)


lengths = st.one_of(st.integers(1, 40), st.integers(1, 700))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    n_q=lengths,
    n_k=lengths,
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    batch=st.integers(1, 2),
    align=st.sampled_from(["bottom-right", "top-left"]),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.1, 1.0, 6.0]),
)
def test_results_lie_within_the_derived_tolerance(
    variant, n_q, n_k, kv_heads, group, batch, align, seed, spread
):
    schedule = build(
        variant, n_q=n_q, n_k=n_k, batch=batch, heads=kv_heads * group, kv_heads=kv_heads,
        align=align,
    )  # fmt: skip
    assert_exact(schedule, *arrays(schedule.shape, seed, spread))


@pytest.mark.parametrize("variant", VARIANTS[:4] + VARIANTS[8:10], ids=str)
def test_the_error_is_at_most_twice_that_of_torch(variant):
    torch = pytest.importorskip("torch", reason="compares with torch's standard attention")
    schedule = build(variant, n_q=1024, n_k=1024, heads=4)
    host = arrays(schedule.shape)
    q, k, v = (
        torch.from_numpy(x.astype(np.float32)).cuda().to(getattr(torch, schedule.shape.dtype))
        for x in host
    )
    O = run(schedule, q, k, v).O.double()
    s = (q @ k.transpose(-1, -2)) * schedule.shape.head_dim**-0.5
    hidden = visible(schedule)
    if hidden is not None:
        s = s.masked_fill(torch.from_numpy(~hidden).cuda(), float("-inf"))
    standard = (torch.softmax(s, -1) @ v).double()
    expected = torch.from_numpy(reference.attention(*host, hidden)[0]).cuda()
    error, theirs = (float((x - expected).abs().max()) for x in (O, standard))
    # Float32 in three parts: 12 roundoffs of a product beside FMA's one (see gpu.exactness).
    allowed = 2 * theirs + 1e-5
    assert error <= allowed


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[8], VARIANTS[11]], ids=str)
def test_nan_and_infinity_reach_their_own_rows_only(variant):
    schedule = build((*variant[:5], False), n_q=200, n_k=150)
    q, k, v = arrays(schedule.shape)
    q[0, 0, 3] = np.nan
    q[0, 0, 70] = np.inf
    k[0, 0, :, 0] = np.abs(k[0, 0, :, 0])
    O = run(schedule, q, k, v).O.astype(np.float32)
    assert np.flatnonzero(np.isnan(O).any(axis=-1)[0, 0]).tolist() == [3, 70]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_huge_scores_give_the_value_of_the_largest(variant):
    # Scores up to 1e9 and far apart: one key has all the weight.
    schedule = build((*variant[:5], False), n_q=64, n_k=90)
    if schedule.name == "standard_tiled" and variant[1] == "float16":
        pytest.skip("float16 scores overflow, as S is stored in float16")
    q, k, v = arrays(schedule.shape)
    largest = 2.0**15
    q[...], k[...] = largest, -largest
    k[0, 0, 41] = largest
    O, expected = run(schedule, q, k, v).O, np.broadcast_to(v[:, :, 41:42], q.shape)
    # Float32 words go through the tensor cores as two parts, rounded to 2^-22 of the word.
    apart = 2.0**-22 * abs(expected) if variant[1] == "float32" else 0
    assert (abs(O - expected) <= apart).all()


def reordered(schedule: Schedule, order: str) -> Schedule:
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

    return replace(schedule, body=turned(schedule.body))


@pytest.mark.parametrize("order", ["reverse", "snake"])
def test_a_first_tile_that_is_masked_before_scores_below_zero(order):
    # Backwards, the first tile a row meets is all masked for it; then come scores of -1e4.
    schedule = reordered(build(VARIANTS[1], n_q=300, n_k=300), order)
    q, k, v = arrays(schedule.shape)
    q[...], k[...] = 40, -40
    assert_exact(schedule, q, k, v)
    q, k, v = arrays(schedule.shape)
    assert_exact(schedule, q, k, v)


def test_rows_that_see_no_key_are_zero_and_minus_infinity():
    schedule = build(VARIANTS[1], n_q=300, n_k=100)
    result = run(schedule, *arrays(schedule.shape))
    assert not result.O[0, 0, :200].any()
    assert np.isneginf(result.LSE[0, 0, :200]).all()
    assert np.isfinite(result.LSE[0, 0, 200:]).all()


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[8], VARIANTS[11], VARIANTS[14]], ids=str)
def test_runs_repeat_to_the_bit(variant):
    schedule = build(variant, n_q=1000, n_k=1000, heads=8)
    q, k, v = arrays(schedule.shape)
    first = run(schedule, q, k, v).O
    for _ in range(5):
        assert np.array_equal(run(schedule, q, k, v).O, first)


def test_strides_and_misaligned_rows():
    torch = pytest.importorskip("torch", reason="makes strided arrays on the device")
    schedule = build(VARIANTS[0], n_q=130, n_k=130, batch=2, heads=3)
    host = arrays(schedule.shape)
    expected = run(schedule, *host).O
    q, k, v = (torch.from_numpy(x).cuda() for x in host)
    # (batch, rows, heads, words) seen as (batch, heads, rows, words), as models have it.
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert np.array_equal(run(schedule, *turned).O.cpu().numpy(), expected)
    # Rows of 65 words begin at odd multiples of 2 bytes.
    wide = [torch.nn.functional.pad(x, (0, 1))[..., :-1] for x in (q, k, v)]
    assert wide[0].stride(2) == 65
    assert np.array_equal(run(schedule, *wide).O.cpu().numpy(), expected)


def test_offsets_beyond_two_to_the_31_elements():
    torch = pytest.importorskip("torch", reason="makes strided arrays on the device")
    far = 2**31 + 4096
    if torch.cuda.mem_get_info()[0] < 3 * (4 * far):
        pytest.skip("needs 26 GB of device memory")
    schedule = build(VARIANTS[0], n_q=130, n_k=130, heads=2)
    host = arrays(schedule.shape)
    expected = run(schedule, *host).O
    placed = []
    for x in host:
        room = torch.zeros(far + 130 * 64, dtype=torch.float16, device="cuda")
        strided = room.as_strided((1, 2, 130, 64), (2 * far, far, 64, 1))
        strided.copy_(torch.from_numpy(x))
        placed.append(strided)
    assert np.array_equal(run(schedule, *placed).O.cpu().numpy(), expected)


def test_arrays_of_numba_cupy_and_torch():
    from numba import cuda

    schedule = build(VARIANTS[0], n_q=100, n_k=100)
    host = arrays(schedule.shape)
    expected = run(schedule, *host).O
    result = run(schedule, *[cuda.to_device(x) for x in host])
    assert np.array_equal(result.O.copy_to_host(), expected)
    flat = run(schedule, *[x[0, 0] for x in host])  # without the axes of size 1
    assert np.array_equal(flat.O, expected)


def test_arrays_of_cupy():
    cupy = pytest.importorskip("cupy", reason="checks CuPy's arrays")
    schedule = build(VARIANTS[0], n_q=100, n_k=100)
    host = arrays(schedule.shape)
    result = run(schedule, *[cupy.asarray(x) for x in host])
    assert np.array_equal(cupy.asnumpy(cupy.asarray(result.O)), run(schedule, *host).O)


def test_bfloat16_comes_by_dlpack():
    torch = pytest.importorskip("torch", reason="the array interface has no bfloat16")
    schedule = build(VARIANTS[4], n_q=100, n_k=100)
    host = arrays(schedule.shape)
    tensors = [torch.from_numpy(x.astype(np.float32)).cuda().bfloat16() for x in host]
    result = run(schedule, *tensors)
    assert result.O.dtype == torch.bfloat16
    expected = run(schedule, *host).O.astype(np.float32)
    assert np.array_equal(result.O.float().cpu().numpy(), expected)


def test_wrong_input_is_one_sentence_and_leaves_the_process_usable():
    torch = pytest.importorskip("torch", reason="makes strided arrays on the device")
    schedule = build(VARIANTS[0], n_q=100, n_k=100)
    q, k, v = (torch.from_numpy(x).cuda() for x in arrays(schedule.shape))
    with pytest.raises(IosimError, match="contiguous"):
        run(schedule, q.transpose(2, 3).contiguous().transpose(2, 3), k, v)
    with pytest.raises(IosimError, match="no device's memory"):
        run(schedule, q.cpu(), k, v)
    with pytest.raises(IosimError, match="dtype"):
        run(schedule, q.float(), k, v)
    with pytest.raises(IosimError, match="shape"):
        run(schedule, q[..., :50, :], k, v)
    big = build(("flash2", "float32", 256, 512, 512, False), n_q=600, n_k=600)
    with pytest.raises(IosimError, match=r"shared memory|registers"):
        run(big, *arrays(big.shape))
    prepared = Prepared(schedule, q, k, v)
    with pytest.raises(IosimError, match="driver failed at launching"):
        prepared.kernels[0].launch(0, [0] * 5, (0,) * 15)  # an empty grid
    prepared.launch()
    assert np.array_equal(prepared.result().O.cpu().numpy(), run(schedule, q, k, v).O.cpu().numpy())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_nothing_is_spilled(variant):
    schedule = build(variant, n_q=64, n_k=64)
    assert [kernel.local_bytes for kernel in Prepared(schedule, *arrays(schedule.shape)).kernels] \
        == [0] * len(Prepared(schedule, *arrays(schedule.shape)).kernels)  # fmt: skip
