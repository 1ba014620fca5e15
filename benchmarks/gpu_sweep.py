"""Record the sweep that tests the theorem on hardware: python benchmarks/gpu_sweep.py GROUP FILE.

GROUP is flash2, float32, flash1 or standard; `merge FILE FILE ... OUTPUT` joins recordings into
one. Needs a GPU, Nsight Compute and permission to read counters.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from iosim.schedule import family
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

LENGTHS = [1024 << i for i in range(8)]  # 1k to 128k
HEAD_DIMS = (64, 128)
QUERY_TILES = (32, 48, 64, 96, 128, 192, 256)


def build(name: str, n: int, d: int, br: int, bc: int, dtype: str = "float16",
          causal: bool = False) -> Schedule:  # fmt: skip
    return family(name).build(AttentionShape(n, n, d, dtype=dtype, causal=causal), br=br, bc=bc)


def flash2() -> Iterator[Schedule]:
    for d in HEAD_DIMS:
        for n in LENGTHS:
            for br in QUERY_TILES:
                yield build("flash2", n, d, br, 64)
            for br in (64, 128):
                yield build("flash2", n, d, br, 64, causal=True)
            yield build("flash2", n, d, 128, 64, dtype="bfloat16")


def float32() -> Iterator[Schedule]:
    for d in HEAD_DIMS:
        for n in LENGTHS[:6]:
            for br in (32, 64, 128):
                yield build("flash2", n, d, br, 32, dtype="float32")


def flash1() -> Iterator[Schedule]:
    # One block walks a head, so that long sequences take seconds; the law shows before that.
    for d in HEAD_DIMS:
        for n in LENGTHS[:5]:
            for bc in (32, 64, 128, 256):
                yield build("flash1", n, d, 64, bc)
            yield build("flash1", n, d, 64, 128, causal=True)


def standard() -> Iterator[Schedule]:
    # S and P of 64k rows would take 16 GB, which the profiler saves before each pass.
    for d in HEAD_DIMS:
        for n in LENGTHS[:6]:
            yield build("standard_tiled", n, d, 128, 128)


GROUPS = {"flash2": flash2, "float32": float32, "flash1": flash1, "standard": standard}


def merge(paths: list[str]) -> None:
    *given, output = paths
    documents = [json.loads(Path(path).read_text(encoding="utf-8")) for path in given]
    records = [record for document in documents for record in document["records"]]
    whole = documents[0] | {"records": records}
    # One record a line: a few hundred rows that a diff can show.
    lines = ",\n  ".join(json.dumps(record) for record in whole.pop("records"))
    head = json.dumps(whole, indent=1).removesuffix("\n}")
    Path(output).write_text(f'{head},\n "records": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def main() -> None:
    if sys.argv[1] == "merge":
        merge(sys.argv[2:])
        return
    from iosim.gpu.measure import measure

    recording = measure(list(GROUPS[sys.argv[1]]()))
    Path(sys.argv[2]).write_text(json.dumps(recording.to_dict()), encoding="utf-8")


if __name__ == "__main__":
    main()
