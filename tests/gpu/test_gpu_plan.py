"""From a schedule to launches, without a GPU: what is refused, and what runs as it was counted."""

import re
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.gpu.plan import DTYPES, KERNELS, Limits, launches, usual_tiles
from iosim.gpu.variant import layout
from iosim.schedule import family
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

HOPPER = Limits(warpgroups=True)
AMPERE = Limits(shared_bytes=166912)


def build(name: str = "flash2", br: int = 64, bc: int = 64, **sizes: object) -> Schedule:
    shape = AttentionShape(**({"n_q": 100, "n_k": 100, "head_dim": 64} | sizes))
    return family(name).build(shape, br=br, bc=bc)


@given(
    name=st.sampled_from(sorted(KERNELS)),
    head_dim=st.integers(2, 32).map(lambda n: 8 * n),
    dtype=st.sampled_from(DTYPES),
    causal=st.booleans(),
    limits=st.sampled_from([HOPPER, AMPERE]),
)
def test_the_usual_tiles_of_every_shape_have_a_kernel(name, head_dim, dtype, causal, limits):
    if name == "standard_tiled" and (dtype == "float32" or limits is AMPERE):
        head_dim = min(head_dim, 128)  # bc >= head_dim keys of it fill the shared memory
    shape = AttentionShape(1000, 1000, head_dim, dtype=dtype, causal=causal)
    tiles = usual_tiles(name, shape)
    for launch in launches(family(name).build(shape, **tiles), limits=limits):
        v = launch.variant
        if v.kernel != "standard_softmax":
            assert (v.br, v.bc) == (tiles["br"], tiles["bc"])
        assert v.rows >= v.br
        assert v.keys >= v.bc
        assert v.shared_bytes <= limits.shared_bytes
        assert v.registers * v.threads * v.min_blocks <= limits.registers


@given(br=st.integers(1, 256), bc=st.integers(1, 256), dtype=st.sampled_from(DTYPES))
def test_a_plan_is_launched_as_it_is_or_refused(br, bc, dtype):
    schedule = build(br=br, bc=bc, dtype=dtype)
    try:
        (launch,) = launches(schedule, limits=HOPPER)
    except IosimError as error:
        reason = str(error)
    else:
        reason = ""
    if reason:
        event("refused")
        assert re.search("shared memory|registers", reason)
        return
    assert (launch.variant.br, launch.variant.bc) == (br, bc)
    assert launch.grid == -(-100 // br)
    assert launch.variant.shared_bytes <= HOPPER.shared_bytes


@given(row_bytes=st.integers(1, 64).map(lambda n: 32 * n))
def test_eight_rows_of_a_layout_lie_in_eight_banks_and_sectors_stay_whole(row_bytes):
    pitch, shift, mask = layout(row_bytes)
    chunks = row_bytes // 16
    places = {
        (row, chunk): row * pitch // 16 + (chunk ^ (row >> shift & mask))
        for row in range(16)
        for chunk in range(chunks)
    }
    assert len(set(places.values())) == len(places)
    for chunk in range(chunks):
        for first in (0, 8):
            assert len({places[row, chunk] % 8 for row in range(first, first + 8)}) == 8
    for (row, chunk), place in places.items():
        assert places[row, chunk ^ 1] == place ^ 1


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        (lambda: family("standard").build(AttentionShape(8, 8, 16)), "standard_tiled"),
        (lambda: build(dtype="float64"), "dtype 'float64'"),
        (lambda: build(head_dim=20), "head_dim is 20"),
        (lambda: build(head_dim=264), "head_dim is 264"),
        (lambda: build(value_dim=32), "value_dim is 32"),
        (lambda: build("standard_tiled", bc=32), "bc is 32"),
        (lambda: build(dropout=0.1), "dropout is 0.1"),
        (lambda: build(br=4096, n_q=8192), "shared memory"),
        (lambda: build(br=1024, bc=16, n_q=8192, head_dim=16), "registers"),
        (lambda: replace(build(), body=build().body[:0]), "differs"),
    ],
)
def test_what_no_kernel_takes_is_one_sentence(schedule, complaint):
    with pytest.raises(IosimError, match=complaint) as caught:
        launches(schedule())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_must_be_positive(scale):
    with pytest.raises(IosimError, match="scale"):
        launches(build(), scale=scale)
