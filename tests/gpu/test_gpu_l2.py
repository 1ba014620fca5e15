"""benchmarks/gpu_l2.py without a GPU: kernels that compile, walks, sides from noisy latencies."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from iosim.device.walks import walk_of

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("needs the extra iosim[gpu], whose wheels compile", allow_module_level=True)

FILE = Path(__file__).parents[2] / "benchmarks" / "gpu_l2.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("gpu_l2", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["WALK", "LATENCY"])
def test_the_kernels_compile(benchmark, name):
    kernel = getattr(benchmark, name)
    made = benchmark.compiled(kernel, (9, 0, "a"))
    assert made.cubin.startswith(b"\x7fELF")


def test_no_walk_has_more_blocks_than_run_at_once_and_all_can_be_replayed(benchmark):
    walks = benchmark.walks(132)
    for record in walks:
        walk = walk_of(record, benchmark.CHUNK)
        assert len(walk.lags) <= 132
        assert walk.most_reads > 1
    assert len({json.dumps(record) for record in walks}) == len(walks)
    assert len({record["name"] for record in walks}) == 9


@pytest.mark.parametrize(("up_and_down", "lag"), [(False, 0), (False, 3), (True, 2)])
def test_the_kernel_walks_as_a_walk_says(benchmark, monkeypatch, up_and_down, lag):
    """The kernel as Python, one block of four threads that need not wait for anybody."""
    chunks, passes, threads, size = 5, 3, 4, 128
    read = [[] for _ in range(threads)]
    steps = [0] * threads
    for number in range(threads):

        def load_16(at, number=number):
            read[number].append((steps[number] // 2, at))
            return 0, 0, 0, 0

        def barrier(number=number):
            steps[number] += 1

        ops = SimpleNamespace(
            thread=lambda number=number: number,
            block=lambda: 7,
            blocks=lambda: 1,
            barrier=barrier,
            load_4=lambda at: {4028: lag}[at],
            load_16=load_16,
            store_4=lambda at, value: None,
            add_release=lambda at, value: None,
            load_acquire=lambda at: 1 << 30,
            multiprocessor=lambda: 0,
        )
        monkeypatch.setattr(benchmark, "ptx", ops)
        numbers = (size, chunks, passes, up_and_down, 4, threads)
        benchmark.walk_kernel()(1 << 20, 4000, 0, 8000, 0, *numbers)
    order = [
        chunk
        for turn in range(passes)
        for chunk in (range(chunks)[::-1] if up_and_down and turn % 2 else range(chunks))
    ]
    expected = sorted(
        (lag + i, (1 << 20) + chunk * size + at)
        for i, chunk in enumerate(order)
        for at in range(0, size, 16)
    )
    assert sorted(each for mine in read for each in mine) == expected
    assert steps == [2 * (len(order) + 4)] * threads


def test_what_is_written_is_read_again(benchmark, tmp_path):
    document = {"schema": 1, "walks": benchmark.walks(4), "pace": {"times": [{"blocks": 1}]}}
    document |= {"dispatch": [[0, 1], [1, 0]], "counters": {"hbm_read_bytes": "x"}}
    benchmark.write(tmp_path / "l2.json", document)
    text = (tmp_path / "l2.json").read_text()
    assert json.loads(text) == document
    assert text.count("\n") == len(document["walks"]) + 17


def test_halves_are_found_in_noise(benchmark):
    """A quarter of 132 on one side, 31 cycles further, in noise of that size."""
    random = np.random.default_rng(0)
    sms = (np.arange(132) % 4 == 3).astype(int)
    lines = random.integers(0, 2, 512)
    cycles = random.normal(280, 30, (132, 512)) + random.normal(0, 50, 512)
    cycles += random.normal(0, 20, (132, 1)) + 31 * (sms[:, None] != lines)
    found = benchmark.sides(cycles)
    assert found["side_of_sm"] == sms.tolist()
    agree = np.mean(np.array(benchmark.halves(cycles)[1]) == lines)
    assert agree > 0.99
    gap = np.diff(found["median_cycles"], axis=1)
    assert np.median(gap) == pytest.approx(31, abs=3)
