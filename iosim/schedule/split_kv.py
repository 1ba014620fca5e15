"""Split-KV (flash-decoding): the keys in splits, each by itself, and a pass that merges them."""

from dataclasses import replace

from iosim.schedule.attention import Problem, at_least_one, problem
from iosim.schedule.dropout import save_random_state
from iosim.schedule.flash2 import rows_from_chip
from iosim.schedule.paging import over_keys
from iosim.schedule.registry import schedule
from iosim.schedule.tree import (
    Compute,
    Dim,
    For,
    Node,
    Remark,
    Schedule,
    Tensor,
    free,
    load,
    new,
    store,
)
from iosim.shape import AttentionShape


@schedule(
    "split_kv",
    source="Dao et al. 2023, Flash-Decoding for long-context inference; pages: Kwon et al. 2023, "
    "arXiv 2309.06180",
    like="flash2",
)
def split_kv(
    shape: AttentionShape,
    br: int,
    bc: int,
    splits: int = 2,
    pack: int | None = None,
    page_size: int | None = None,
) -> Schedule:
    """Flash-decoding: each split of the keys gives O and LSE of its own, which a pass merges.

    A split has ceil(n_k / splits) rows, or as many whole pages as that takes, so that s, the splits
    that are not empty, may be fewer. Without a mask and for one tile of queries, a head reads
    n_k (d + d_v) + s n_q d words, then s n_q (d_v + 1) to merge, and writes s n_q (d_v + 1), then
    n_q (d_v + 1). Partial results are float32. `pack` and `page_size` are those of flash2_packed.
    """
    pack = shape.group if pack is None else pack
    p = problem(shape, br, bc, pack)
    rows = -(-shape.n_k // at_least_one("splits", splits))
    if page_size is not None:
        rows = -(-rows // at_least_one("page_size", page_size)) * page_size
    split = replace(p.key.cut(rows, "s"), index="split")
    part = _partial(p, split.numbers())
    body = (
        *save_random_state(p, p.per_head(_split_pass(part, split, page_size))),
        *p.per_head(_merge_pass(p, part, split)),
    )
    tiles = {"br": br, "bc": bc, "splits": splits, "pack": pack}
    tiles |= {} if page_size is None else {"page_size": page_size}
    return Schedule("split_kv", shape, body, p.mask, tiles)


def _partial(p: Problem, number: Dim) -> Problem:
    """Return the problem of one split: its O and LSE have an entry for each split, in float32."""
    heads = (p.batch, p.kv_head, p.group, number, p.query)
    wide, statistic = p.shape.accumulator_dtype, p.shape.statistic_dtype
    return replace(
        p,
        O=Tensor("O_part", (*heads, p.value), wide, "slow"),
        LSE=Tensor("LSE_part", heads, statistic, "slow"),
    )


def _split_pass(part: Problem, split: Dim, page_size: int | None) -> tuple[Node, ...]:
    return (
        Remark("divide K and V into s splits, each into blocks of B_c rows"),
        For(part.query, (
            For(split, (
                *rows_from_chip(part, over_keys(part, page_size, split)),
                *store("write O_i and LSE_i of the split", part.O, part.LSE),
                *free(part.LSE, part.m, part.l, part.O, part.Q),
            ), relation=part.mask, parallel=True, line="for each split do"),
            Remark("end for splits"),
        ), parallel=True, line="for 1 <= i <= T_r do"),
        Remark("end for i"),
    )  # fmt: skip


def _merge_pass(p: Problem, part: Problem, split: Dim) -> tuple[Node, ...]:
    O, LSE, m, l = p.O, p.LSE, p.m, p.l
    return (
        For(p.query, (
            *new(O, l, m),
            Compute("start_state", (O, l, m), (), "on chip, start from O_i = 0, l_i = 0"),
            For(split, (
                *load("load O_i and LSE_i of the split", part.O, part.LSE),
                Compute("merge_finished", (O, l, m), (part.O, part.LSE, O, l, m),
                        "on chip, weigh O_i of the split by e^LSE_i and add it"),
                *free(part.O, part.LSE),
            ), relation=p.mask, line="for each split again do"),
            Remark("end for splits again"),
            Compute("normalise", (O,), (O, l), "on chip, divide O_i by the sum of the weights"),
            *new(LSE),
            Compute("log_sum_exp", (LSE,), (m, l), "on chip, LSE_i = log of that sum"),
            *store("write O_i", O),
            *store("write LSE_i", LSE),
            *free(LSE, m, l, O),
        ), parallel=True, line="merge: for 1 <= i <= T_r do"),
        Remark("end merge"),
        Remark("return O and LSE"),
    )  # fmt: skip
