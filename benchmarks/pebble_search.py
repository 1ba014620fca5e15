"""The tables of docs/small-instances.md, with the time that each row takes.

    python benchmarks/pebble_search.py                                    # print (minutes)
    python benchmarks/pebble_search.py --page docs/small-instances.md     # put them on the page

Seconds are of one core of the machine at hand; configurations do not depend on it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from iosim.output import write_text
from iosim.proofs import pebble_table as tables
from iosim.proofs.pebble import solve
from iosim.proofs.pebble_moves import Instance
from iosim.shape import AttentionShape


def timed_rows(cases: Sequence[tables.Case], compare: Callable[..., Any]) -> list[Any]:
    rows = []
    for shape, words in cases:
        start = time.perf_counter()
        rows.append(compare(shape, words))
        seconds = time.perf_counter() - start
        print(
            f"{shape.n_q} x {shape.n_k}, d {shape.head_dim}, M {words}: {seconds:.2f} s",
            file=sys.stderr,
        )
    return rows


def search_times() -> None:
    """How long one search takes, and how many configurations it looks at."""
    for n in (3, 4):
        for words in range(4, 9):
            start = time.perf_counter()
            found = solve(Instance(AttentionShape(n, n, 1), words))
            seconds = time.perf_counter() - start
            print(
                f"{n} x {n}, d 1, M {words}: {found.words} words, {found.expanded} expanded of "
                f"{found.reached} configurations, {seconds:.2f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    made: Mapping[str, list[str]] = {
        "fused": tables.markdown(
            timed_rows([*tables.QUICK_CASES, *tables.SLOW_CASES], tables.compare),
            tables.fused_columns(),
        ),
        "unfused": tables.markdown(
            timed_rows([*tables.QUICK_UNFUSED, *tables.SLOW_UNFUSED], tables.compare_unfused),
            tables.unfused_columns(),
        ),
    }
    if arguments.page:
        text = arguments.page.read_text(encoding="utf-8")
        for name, lines in made.items():
            text = tables.with_table(text, name, lines)
        write_text(arguments.page, text)
    else:
        for lines in made.values():
            print("\n".join(lines), end="\n\n")
        search_times()


if __name__ == "__main__":
    main()
