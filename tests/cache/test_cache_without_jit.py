"""The loops as plain Python, which also checks every index and every overflow."""

import json
import os
import subprocess
import sys

SCRIPT = """
import json, sys
import numpy as np
from iosim.cache import CacheConfig, from_arrays, simulate, simulate_curves
from iosim.cache import lru_curve, opt_curve

lru_curve.FIRST_SLOTS, opt_curve.FIRST_SLOTS = 512, 64
random = np.random.default_rng(5)
lines = np.concatenate([
    random.integers(0, 90, 300), random.integers(0, 40, 300) * (1 << 58), np.arange(600) % 70,
    [2**62, -(2**63), 2**63 - 1],
])
writes = random.random(lines.size) < 0.3
found = []
for marks in (None, writes):
    for rules in ({}, {"write_allocate": False}, {"write_back": False}):
        found += simulate(from_arrays(lines, marks), ["lru", "fifo", "opt"], [5, 64],
                          CacheConfig(1, **rules))
        found += simulate(from_arrays(lines, marks), ["lru", "fifo", "plru"], [24],
                          CacheConfig(1, ways=8, **rules))
    found += simulate(from_arrays(lines, marks), ["opt"], [5], CacheConfig(1, bypass=True))
    found += simulate_curves(from_arrays(lines, marks), ["lru", "opt"])
json.dump([result.to_dict() for result in found], sys.stdout)
"""


def counts(**environment):
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def test_plain_python_counts_the_same():
    assert counts(NUMBA_DISABLE_JIT="1") == counts(NUMBA_DISABLE_JIT="0")
