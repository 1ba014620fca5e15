"""The recording that a figure shows: a run on the GPU that is here, else the one that is kept."""

from collections.abc import Sequence

import click

from iosim.cli.options import Heads
from iosim.errors import IosimError
from iosim.measured import Recording, load
from iosim.schedule.registry import family
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

SCHEDULES = ("flash2", "flash1", "standard_tiled")
LENGTHS = (1024, 2048, 4096, 8192)
HEAD_DIMS = (64, 128)


def here_or_kept(
    names: Sequence[str], lengths: Sequence[int], heads: Heads, dtype: str, causal: bool
) -> Recording:
    """Return a recording of the schedules named, run on this machine's GPU.

    Without a GPU, or one whose counters can be read, it is the recording that comes with iosim;
    standard error says so, and why.
    """
    try:
        from iosim.gpu.launch import context
        from iosim.gpu.measure import measure

        context()
        return measure(_schedules(names, lengths, heads, dtype, causal))
    except IosimError as why:
        kept = load()
        click.echo(
            f"note: drawn from the recording of {kept.device} of {kept.date}, since {why}", err=True
        )
        return kept


def _schedules(
    names: Sequence[str], lengths: Sequence[int], heads: Heads, dtype: str, causal: bool
) -> list[Schedule]:
    from iosim.gpu.plan import usual_tiles

    made = []
    for name in names:
        for d in heads.head_dims:
            for n in lengths:
                shape = AttentionShape(
                    n, n, d, heads=heads.heads, kv_heads=heads.kv_heads, dtype=dtype, causal=causal
                )
                made.append(family(name).build(shape, **usual_tiles(name, shape)))
    return made
