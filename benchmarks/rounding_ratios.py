"""How loose the bounds of iosim.tolerance are: bound over the largest error measured, as a table.

    python benchmarks/rounding_ratios.py                          # N = 1024, d = 64; a minute
    python benchmarks/rounding_ratios.py --keys 256,4096 --seeds 3
    python benchmarks/rounding_ratios.py --page docs/tolerance.md # put it on the page

Normal inputs, tiles of 128 rows. A ratio is the largest bound on an element over the largest
error of one, against `reference.attention`, as `iosim verify` compares; the worst of the seeds.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iosim import reference, tolerance
from iosim.output import write_text
from iosim.precision import NAMES, Array, precision
from iosim.reading.execute import execute
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.verify.exactness import rounding_of

HEAD_DIM, TILE = 64, 128
ORDERS = ("flash2", "flash1", "split_kv", "standard", "standard_tiled")
START, END = "<!-- ratios -->", "<!-- end of ratios -->"


@dataclass(frozen=True)
class Row:
    """Ratios of the bounds on O, and of those on LSE where an order gives one."""

    dtype: str
    order: str
    keys: int
    error: float
    forward: float
    worst: float
    probable: float
    worst_lse: float
    probable_lse: float


def run(
    order: str, dtype: str, q: Array, k: Array, v: Array
) -> tuple[tolerance.Execution, Array, Array | None]:
    chosen = family(order)
    shape = AttentionShape(len(q), len(k), HEAD_DIM, dtype=dtype)
    # A tile to each split, so that the merges count most.
    settings = {"splits": -(-len(k) // TILE)} if "splits" in chosen.settings else {}
    schedule = chosen.build(shape, **dict.fromkeys(chosen.tiles, TILE), **settings)
    done = execute(schedule, q, k, v)
    return rounding_of(schedule), done.O, done.LSE


def measure(order: str, dtype: str, keys: int, queries: int, seed: int) -> Row:
    form, rng = precision(dtype), np.random.default_rng(seed)
    q, k, v = (
        form.round(rng.standard_normal((n, HEAD_DIM)).astype(form.accumulator))
        for n in (queries, keys, keys)
    )
    execution, O, lse = run(order, dtype, q, k, v)
    truth = reference.attention(q, k, v)
    error = float(abs(O - truth[0]).max())
    error_lse = np.nan if lse is None else float(abs(lse - truth[1]).max())
    worst, probable = (
        tolerance.elementwise_error(execution, q, k, v, form=each) for each in ("worst", "probable")
    )
    forward = tolerance.forward_error(
        execution,
        score_magnitude=tolerance.score_magnitude(q, k),
        value_magnitude=float(abs(v).max()),
    )
    return Row(
        dtype,
        order,
        keys,
        error,
        forward / error,
        worst[0].max() / error,
        probable[0].max() / error,
        worst[1].max() / error_lse,
        probable[1].max() / error_lse,
    )


def rows(keys: list[int], queries: int, seeds: int) -> Iterator[Row]:
    for n in keys:
        for dtype in NAMES:
            for order in ORDERS:
                found = [measure(order, dtype, n, min(queries, n), seed) for seed in range(seeds)]
                yield max(found, key=lambda row: row.probable)


def table(found: list[Row]) -> str:
    lines = [
        "| dtype | order | N | largest error of O | scalar worst case | worst case | probable "
        "| LSE: worst case | LSE: probable |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        ratios = (row.forward, row.worst, row.probable, row.worst_lse, row.probable_lse)
        cells = ["–" if np.isnan(ratio) else f"{ratio:.0f}" for ratio in ratios]
        lines.append(
            f"| {row.dtype} | `{row.order}` | {row.keys} | {row.error:.1e} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", default="1024")
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    made = table(list(rows([int(n) for n in asked.keys.split(",")], asked.queries, asked.seeds)))
    if asked.page is None:
        print(made)
        return
    before, _, rest = asked.page.read_text(encoding="utf-8").partition(START)
    write_text(asked.page, f"{before}{START}\n\n{made}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
