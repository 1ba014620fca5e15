"""The cases that shared options state: one for each combination of the values of a sweep."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import click

from iosim.best import best, note
from iosim.bounds import seen_rows
from iosim.cli.options import BEST, resolve_hbm_bytes, resolve_heads, resolve_sram_words
from iosim.errors import IosimError
from iosim.model_config import ModelHeads
from iosim.report import Simulation, simulate
from iosim.report_step import Step
from iosim.schedule.registry import Family, backward_of, family, forward_of
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape
from iosim.units import format_count


@dataclass(frozen=True)
class Case:
    """One shape with one fast memory (M in words, or None)."""

    shape: AttentionShape
    sram_words: int | None


def shapes(options: dict[str, Any]) -> Iterator[AttentionShape]:
    """Yield the shapes that the options state, the longest-varying axis first.

    Raises IosimError for a missing --seq-len or --head-dim, or values that do not go together.
    """
    if options["seq_len"] is None:
        raise IosimError("--seq-len is missing; write --seq-len 8k")
    if options["align"] == "top-left" and not (options["causal"] or options["mask"]):
        raise IosimError("--align top-left is about a mask; give --causal or --mask with it")
    heads = resolve_heads(
        options["head_dim"], options["heads"], options["kv_heads"], options["model"]
    )
    if options["mask"] is None:
        _note_window(options["model"], max(options["kv_len"] or options["seq_len"]))
    noted = False
    for head_dim, n_q in product(heads.head_dims, options["seq_len"]):
        for n_k in options["kv_len"] or (n_q,):
            shape = AttentionShape(
                n_q=n_q,
                n_k=n_k,
                head_dim=head_dim,
                value_dim=options["value_dim"] or head_dim,
                batch=options["batch"],
                heads=heads.heads,
                kv_heads=heads.kv_heads,
                dtype=options["dtype"],
                causal=options["causal"],
                align=options["align"],
                mask=options["mask"],
                dropout=options["dropout"],
            )
            noted = noted or _note_blind_queries(shape)
            yield shape


def _note_blind_queries(shape: AttentionShape) -> bool:
    """Say on standard error that some queries see no key, and return whether there are any."""
    blind = shape.n_q - seen_rows(shape)[0]
    if blind:
        click.echo(
            f"note: {format_count(blind)} of {format_count(shape.n_q)} queries see no key; their O "
            "is 0 and their LSE is -inf",
            err=True,
        )
    return blind > 0


def _note_window(model: ModelHeads | None, n_k: int) -> None:
    """Say on standard error that a model's window, shorter than the keys, is not counted."""
    if model is not None and model.sliding_window is not None and model.sliding_window < n_k:
        click.echo(
            f"note: {model.name} states a sliding window of {model.sliding_window} keys, which is "
            "not counted; the counts are of a layer without it, and --mask "
            f"window:{model.sliding_window - 1},0 gives those of one with it",
            err=True,
        )


def cases(options: dict[str, Any], *, need_memory: bool = False) -> Iterator[Case]:
    """Yield the shapes with each fast memory that the options state."""
    memories = resolve_sram_words(options["sram"], options["device"], options["dtype"])
    if memories is None and need_memory:
        raise IosimError("--sram is missing; write --sram 100KiB, --sram 25600w or --device A100")
    for shape in shapes(options):
        for words in memories or (None,):
            yield Case(shape, words)


def simulations(
    options: dict[str, Any], default: tuple[str, ...], direction: str | None = None
) -> Iterator[Simulation]:
    """Yield one run for each case, schedule and combination of tile sizes."""
    for case in cases(options):
        for chosen in schedules(options, default, direction):
            yield from simulations_of(chosen, case, options)


def passes(
    options: dict[str, Any], default: tuple[str, ...], direction: str | None
) -> Iterator[Simulation | Step]:
    """Yield the runs of the pass asked for; of both, the two runs and then their sum."""
    if direction != "both":
        yield from simulations(options, default, direction)
        return
    for case in cases(options):
        for chosen in schedules(options, default):
            forward, backward = (
                list(simulations_of(pass_of(chosen, one), case, options)) for one in BEST_OF
            )
            # Either may have no tile sizes; otherwise both have run with the same ones.
            alike = len(forward) == len(backward)
            for pair in (
                zip(forward, backward, strict=True) if alike else product(forward, backward)
            ):
                yield from (*pair, Step(*pair))


def simulations_of(
    chosen: Family, case: Case, options: dict[str, Any], rules: Sequence[str] = ()
) -> Iterator[Simulation]:
    """Yield the runs of one schedule for one case, by the rules given or by that of --tiles."""
    if chosen in BEST_OF.values():
        yield from _best_of(chosen.direction, case, options)
        return
    hbm_bytes = resolve_hbm_bytes(options.get("hbm"), options["device"])
    for sizes in given_tiles(options, chosen.settings) if chosen.tiles else ({},):
        if "ranks" in chosen.settings and "ranks" in options and "ranks" not in sizes:
            raise IosimError(
                f"--ranks is missing; {chosen.name} runs on several devices, so write --ranks 4"
            )
        for rule in rules or (options["tiles"] or "best",):
            yield simulate(
                chosen,
                case.shape,
                sram_words=case.sram_words,
                rule=rule,
                given=sizes,
                hbm_bytes=hbm_bytes,
            )


def _no_tree(shape: AttentionShape) -> Schedule:
    raise IosimError(f"--schedule {BEST} is chosen for each memory and has no tree of its own")


BEST_OF = {
    direction: Family(BEST, _no_tree, (), "The fewest words that fit.", forward=forward)
    for direction, forward in (("forward", ""), ("backward", BEST))
}
"""What stands for --schedule best among families, until a shape and a memory are known."""


def pass_of(chosen: Family, direction: str) -> Family:
    """Return the "forward" or the "backward" schedule that a schedule belongs to."""
    if chosen in BEST_OF.values():
        return BEST_OF[direction]
    return forward_of(chosen) if direction == "forward" else backward_of(chosen)


def _best_of(direction: str, case: Case, options: dict[str, Any]) -> Iterator[Simulation]:
    """Yield the run of the best schedule for a case, and say on standard error why it is that."""
    if case.sram_words is None:
        raise IosimError(
            f"--schedule {BEST} chooses for a memory, but none is stated; give --sram or --device"
        )
    if options["tiles"] not in (None, "best"):
        raise IosimError(
            f"--schedule {BEST} takes the tiles of least traffic, but --tiles {options['tiles']} "
            "asks for others; leave it out"
        )
    hbm_bytes = resolve_hbm_bytes(options.get("hbm"), options["device"])
    for sizes in given_tiles(options):
        run = best(
            case.shape, case.sram_words, given=sizes, hbm_bytes=hbm_bytes, direction=direction
        )
        click.echo(note(run), err=True)
        yield run


def schedules(
    options: dict[str, Any], default: tuple[str, ...], direction: str | None = None
) -> list[Family]:
    """Return the schedules that the options name, or those of `default`.

    With a `direction`, "forward" or "backward", that pass of each of them, and each once. Raises
    IosimError where the best is to be chosen of any pass but the forward one, and for an option
    about a setting that none of them has.
    """
    named = [
        BEST_OF["forward"] if name == BEST else family(name)
        for name in options["schedule"] or default
    ]
    _check_settings(options, named)
    if direction is None:
        return named
    return list({each.name: each for each in (pass_of(one, direction) for one in named)}.values())


# What a schedule may take beside its tile sizes, with one that does.
SETTINGS = {
    "splits": "split_kv",
    "pack": "flash2_packed",
    "page_size": "flash2_packed",
    "ranks": "ring",
    "layout": "ring",
}


def _check_settings(options: dict[str, Any], chosen: Sequence[Family]) -> None:
    for name, example in SETTINGS.items():
        given = options.get(name)
        if given and not any(name in each.settings for each in chosen):
            raise IosimError(
                f"--{name.replace('_', '-')} {given[0]} is no setting of "
                f"{', '.join(each.name for each in chosen)}; write --schedule {example} with it"
            )


def given_tiles(
    options: dict[str, Any], settings: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the tile sizes and settings that options state, one mapping for each combination.

    That is --br, --bc and the options of those settings. Raises IosimError where --tiles is to
    choose what --br and --bc state already.
    """
    if options["tiles"] and options["br"] and options["bc"]:
        raise IosimError(
            f"--tiles {options['tiles']} chooses the sizes that --br and --bc state; "
            "give either the rule or the sizes"
        )
    names = ("br", "bc", *(name for name in SETTINGS if name in settings))
    for sizes in product(*(options.get(name) or (None,) for name in names)):
        yield {name: size for name, size in zip(names, sizes, strict=True) if size is not None}


def with_settings(columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of a table with those of the settings that any record has, behind bc.

    Left out is a setting that is in all of them what goes without saying.
    """
    plain = {"layout": "contiguous"}
    own = [
        name
        for name in SETTINGS
        if any(record.get(name) not in (None, plain.get(name)) for record in records)
    ]
    place = columns.index("bc") + 1
    return [*columns[:place], *own, *columns[place:]]
