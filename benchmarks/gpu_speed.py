"""Ours beside torch's attention on a GPU, in one run: python benchmarks/gpu_speed.py [FILE].

16k tokens of 2048 words in every case, as FlashAttention's papers have it. `speed` is ours over the
other's; with FILE the records are written there as JSON.
"""

import json
import sys
from pathlib import Path

from iosim.gpu.bench import bench
from iosim.gpu.plan import usual_tiles
from iosim.output import render
from iosim.schedule import family
from iosim.shape import AttentionShape

OTHERS = ("torch standard", "torch flash", "torch cudnn", "torch efficient")
COLUMNS = ("kernel", "n_q", "head_dim", "dtype", "causal", "seconds", "tflops", "speed")
TOKENS, WIDTH = 16384, 2048


def main() -> None:
    records = []
    for dtype in ("float16", "float32"):
        for d in (64, 128):
            for causal in (False, True):
                for n in (2048, 4096, 8192, 16384):
                    shape = AttentionShape(
                        n, n, d, batch=TOKENS // n, heads=WIDTH // d, dtype=dtype, causal=causal
                    )
                    schedule = family("flash2").build(shape, **usual_tiles("flash2", shape))
                    # S of the three calls would take 34 GB and more at 16k.
                    others = OTHERS if n <= 8192 and not causal else OTHERS[1:]
                    records += bench(schedule, others=others)
    # The paper's comparison with standard attention: 16 heads.
    shape = AttentionShape(8192, 8192, 64, heads=16)
    records += bench(family("flash2").build(shape, **usual_tiles("flash2", shape)), others=OTHERS)
    print(render([r for r in records if r["seconds"]], "table", COLUMNS))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
