"""Launch orders of our flash2 on a GPU, beside the model: python benchmarks/gpu_orders.py FILE.

The same tiles, the same bytes between L2 and the multiprocessors; only the order of the grid
differs. Needs a GPU, Nsight Compute and permission to read counters.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from iosim.cli.predict import calls_of
from iosim.device.hbm import simulate
from iosim.device.own import launch_of
from iosim.device.profile import profile
from iosim.output import render
from iosim.schedule import family
from iosim.shape import AttentionShape

SHAPES = (
    AttentionShape(16384, 16384, 128, heads=32),
    AttentionShape(32768, 32768, 64, heads=16),
    AttentionShape(32768, 32768, 128, heads=8, causal=True),
    AttentionShape(131072, 131072, 128, causal=True),
)
COLUMNS = ("n_q", "head_dim", "heads", "causal", "heads_first", "ascending", "sm_read_bytes",
           "hbm_read_bytes", "predicted_bytes", "compulsory_bytes", "seconds")  # fmt: skip


def main() -> None:
    from iosim.gpu.measure import measure
    from iosim.gpu.plan import usual_tiles

    device, records, head = profile("H200"), [], {}
    for shape in SHAPES:
        schedule = family("flash2").build(shape, **usual_tiles("flash2", shape))
        launch = launch_of(schedule, calls_of(schedule, device)[0], device)
        for heads_first in (False, True) if shape.heads > 1 else (False,):
            for ascending in (False, True) if shape.causal else (False,):
                tuned = {"heads_first": heads_first, "ascending": ascending}
                found = measure([schedule], tuned=tuned)
                ordered = replace(
                    launch,
                    order="heads-first" if heads_first else "blocks-first",
                    tiles_descending=shape.causal and not ascending,
                )
                head = {k: v for k, v in found.to_dict().items() if k != "records"}
                records.append(
                    found.to_dict()["records"][0]
                    | tuned
                    | {
                        "predicted_bytes": simulate(ordered, device).dram_read,
                        "compulsory_bytes": ordered.compulsory_read_bytes,
                    }
                )
    print(render(records, "table", COLUMNS))
    lines = ",\n  ".join(json.dumps(record) for record in records)
    text = json.dumps(head, indent=1).removesuffix("\n}")
    Path(sys.argv[1]).write_text(f'{text},\n "records": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
