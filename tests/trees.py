"""Schedules to test with: trees edited node by node, and a few that are not built in."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from iosim.schedule import (
    Compute,
    For,
    Problem,
    Schedule,
    Tensor,
    family,
    free,
    load,
    new,
    problem,
    store,
)
from iosim.schedule.tree import Node
from iosim.shape import AttentionShape

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def edited(schedule: Schedule, edit: Callable[[Node], tuple[Node, ...]]) -> Schedule:
    """Return the schedule with each node replaced by what `edit` returns for it."""

    def visit(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            replace(new, body=visit(new.body)) if isinstance(new, For) else new
            for node in body
            for new in edit(node)
        )

    return replace(schedule, body=visit(schedule.body))


def edits_of_one(
    schedule: Schedule, kinds: type | tuple[type, ...], times: int
) -> Iterator[tuple[Node, Schedule]]:
    """Yield each node of those kinds with the schedule where it stands `times` times."""
    places: list[Node] = []
    edited(schedule, lambda node: (places.append(node) or node,))
    for target, node in enumerate(places):
        if isinstance(node, kinds):
            at = iter(range(len(places)))
            yield (
                node,
                edited(schedule, lambda n: (n,) * (times if next(at) == target else 1)),  # noqa: B023
            )


def in_order(schedule: Schedule, axis: str, order: str) -> Schedule:
    """Return the schedule with its loops over an axis run in another order."""
    return edited(
        schedule,
        lambda node: (
            replace(node, order=order) if isinstance(node, For) and node.dim.name == axis else node,
        ),
    )


def _updates(p: Problem) -> tuple[Node, ...]:
    """The online softmax and P V of the tile S_ij."""
    return (
        Compute("rescale_state", (p.O, p.l, p.m), (p.S, p.O, p.l, p.m)),
        Compute("exponentiate", (p.S,), (p.S, p.m)),
        Compute("add_row_sums", (p.l,), (p.S, p.l)),
        Compute("accumulate", (p.O,), (p.S, p.V, p.O)),
    )


def rows_kept(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """All tiles S_ij of a query tile are kept on chip between a pass over K and one over V."""
    p = problem(shape, br, bc)
    body = For(p.query, (
        *load("load Q_i", p.Q), *new(p.O, p.l, p.m),
        Compute("start_state", (p.O, p.l, p.m), ()),
        For(p.key, (
            *load("load K_j", p.K), *new(p.S),
            Compute("scores", (p.S,), (p.Q, p.K)),
            *free(p.K),
        ), relation=p.mask),
        For(p.key, (
            *load("load V_j", p.V),
            *_updates(p),
            *free(p.S, p.V),
        ), relation=p.mask),
        Compute("normalise", (p.O,), (p.O, p.l)),
        *store("write O_i", p.O),
        *free(p.O, p.l, p.m, p.Q),
    ))  # fmt: skip
    return Schedule("rows_kept", shape, p.per_head((body,)), p.mask, {"br": br, "bc": bc})


def scores_twice(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """A pass over K for the row statistics, and one that forms the scores again for P V."""
    p = problem(shape, br, bc)
    scores = (*load("load K_j", p.K), *new(p.S), Compute("scores", (p.S,), (p.Q, p.K)))
    body = For(p.query, (
        *load("load Q_i", p.Q), *new(p.O, p.l, p.m),
        Compute("clear", (p.O,), ()),
        Compute("start_statistics", (p.l, p.m), ()),
        For(p.key, (
            *scores,
            Compute("rescale_statistics", (p.l, p.m), (p.S, p.l, p.m)),
            Compute("add_exponential_sums", (p.l,), (p.S, p.m, p.l)),
            *free(p.S, p.K),
        ), relation=p.mask),
        For(p.key, (
            *scores, *load("load V_j", p.V),
            Compute("exponentiate", (p.S,), (p.S, p.m)),
            Compute("accumulate", (p.O,), (p.S, p.V, p.O)),
            *free(p.S, p.K, p.V),
        ), relation=p.mask),
        Compute("normalise", (p.O,), (p.O, p.l)),
        *store("write O_i", p.O),
        *free(p.O, p.l, p.m, p.Q),
    ))  # fmt: skip
    return Schedule("scores_twice", shape, p.per_head((body,)), p.mask, {"br": br, "bc": bc})


def sliced_values(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """O stays in slow memory, and V_j and O_i come in one column after the other: not fused.

    The scores are not rescaled between tiles, so that it only computes attention where S is small.
    """
    p = problem(shape, br, bc)
    column = p.value.cut(1)
    body = For(p.query, (
        *load("load Q_i", p.Q), *new(p.l, p.m),
        Compute("start_statistics", (p.l, p.m), ()),
        For(column, (
            *new(p.O), Compute("clear", (p.O,), ()), *store("clear O", p.O), *free(p.O),
        )),
        For(p.key, (
            *load("load K_j", p.K), *new(p.S),
            Compute("scores", (p.S,), (p.Q, p.K)),
            For(column, (
                *load("load a column of V_j, O_i", p.V, p.O),
                Compute("accumulate", (p.O,), (p.S, p.V, p.O)),
                *store("write a column of O_i", p.O),
                *free(p.V, p.O),
            )),
            *free(p.S, p.K),
        ), relation=p.mask),
        *free(p.l, p.m, p.Q),
    ))  # fmt: skip
    return Schedule("sliced_values", shape, p.per_head((body,)), p.mask, {"br": br, "bc": bc})


def nested(
    shape: AttentionShape, br: int, bc: int, shard: int, split: int, page: int, numbers: int = 1
) -> Schedule:
    """Key tiles in pages in splits, query tiles in shards, skipped at each level under a mask.

    O and its statistics return to slow memory after each split, and so does the LSE so far, in a
    tensor that has a row for each split (for each page of it, numbers = 2, if pages tile splits).
    """
    p = problem(shape, br, bc)
    shards = p.query.cut(shard, "r")
    splits = replace(p.key.cut(split, "s"), index="split" if numbers == 1 else "")
    pages = replace(p.key.cut(page, "t"), index="page" if numbers == 2 else "").within(splits)
    part = (splits if numbers == 1 else pages).numbers()
    L = Tensor("L", (*p.LSE.axes[:-1], part, p.query), p.LSE.dtype, "slow")
    logs = Compute("log_sum_exp", (L,), (p.m, p.l))
    so_far = (*new(L), logs, *store("write LSE so far", L), *free(L))
    inner = For(p.key.within(pages), (
        *load("load K_j, V_j", p.K, p.V), *new(p.S),
        Compute("scores", (p.S,), (p.Q, p.K)),
        *_updates(p),
        *free(p.S, p.K, p.V),
    ), relation=p.mask)  # fmt: skip
    body = (
        For(p.query, (
            *new(p.O, p.l, p.m), Compute("start_state", (p.O, p.l, p.m), ()),
            *store("initialise", p.O, p.l, p.m), *free(p.O, p.l, p.m),
        )),
        For(shards, (
            For(splits, (
                For(p.query.within(shards), (
                    *load("load Q_i, O_i", p.Q, p.O, p.l, p.m),
                    Compute("unnormalise", (p.O,), (p.O, p.l)),
                    For(pages, (inner, *(so_far if numbers == 2 else ())), relation=p.mask),
                    Compute("normalise", (p.O,), (p.O, p.l)),
                    *(so_far if numbers == 1 else ()),
                    *store("write O_i", p.O, p.l, p.m),
                    *free(p.O, p.l, p.m, p.Q),
                ), relation=p.mask),
            ), relation=p.mask),
        )),
    )  # fmt: skip
    return Schedule("nested", shape, p.per_head(body), p.mask, {"br": br, "bc": bc})


split_loads = family(f"{EXAMPLES / 'split_loads.py'}:split_loads").build

OWN = {
    "split_loads": split_loads,
    "rows_kept": rows_kept,
    "scores_twice": scores_twice,
    "sliced_values": sliced_values,
}
