"""Figures: what is drawn is what is counted, it can be read, and files are whole or absent."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iosim import cli
from iosim.bounds import BOUNDS, bounds_of, lower_bounds, regime
from iosim.errors import IosimError
from iosim.plot import figures
from iosim.plot.draw import draw_constants, draw_traffic
from iosim.plot.draw_tiles import draw_tile_map
from iosim.plot.figures import FIGURES, Request, save, write_figures
from iosim.plot.steps import log_steps
from iosim.plot.style import short, styled
from iosim.plot.sweep import (
    LEADING,
    Sweep,
    against_dim,
    against_length,
    against_memory,
    choose,
    crossover,
)
from iosim.plot.tile_map import map_tiles
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles

SHAPE = AttentionShape(512, 512, 64)
ALL = ("standard", "standard_tiled", "flash1", "flash2")
SMALL = Request(
    shape=SHAPE,
    words=8192,
    lengths=(64, 256, 1024, 4096),
    dims=(8, 32, 128, 256),
    memories=(128, 1024, 2048, 8192, 65536, 2**20),
)


def sweeps() -> dict[str, Sweep]:
    choices = choose(ALL)
    return {
        "length": against_length(SHAPE, SMALL.words, SMALL.lengths, choices),
        "dim": against_dim(SHAPE, SMALL.words, SMALL.dims, choices),
        "memory": against_memory(SHAPE, SMALL.memories, choices),
    }


@pytest.fixture(scope="module", params=["length", "dim", "memory"])
def sweep(request: pytest.FixtureRequest) -> Sweep:
    return sweeps()[request.param]


CROWDED = AttentionShape(512, 512, 64, batch=16, heads=64, kv_heads=8, causal=True)


@pytest.fixture(
    scope="module", params=[*FIGURES, "length crowded", "memory crowded", "tiles alone"]
)
def figure(request: pytest.FixtureRequest) -> Figure:
    crowded = replace(SMALL, shape=CROWDED, words=10**6, marked={"RTX 3060 Ti": 50_688})
    asked = {
        "length crowded": crowded,
        "memory crowded": crowded,
        "tiles alone": replace(SMALL, schedules=["flash2"]),
    }
    return FIGURES[request.param.partition(" ")[0]](asked.get(request.param, SMALL))


def drawn(draw: Any, data: object) -> Axes:
    with styled():
        ax = Figure(layout="constrained").subplots()
        draw(data, ax)
    return ax


def lines(ax: Axes) -> dict[str, list[tuple[float, float]]]:
    return {
        str(line.get_label()): list(zip(*line.get_data(), strict=True)) for line in ax.get_lines()
    }


def expected(sweep: Sweep, name: str, rule: str) -> dict[int, tuple[int, bool]]:
    """Count a schedule again at each position: words, and whether it fits in M."""
    found = {}
    for x in sweep.xs:
        case = sweep.case(x)
        try:
            sizes = choose_tiles(family(name), case.shape, case.words, rule).sizes
        except IosimError:
            continue
        traffic = count(family(name).build(case.shape, **sizes))
        found[x] = traffic.total_words, traffic.peak_words <= case.words
    return found


def test_the_curves_are_counts(sweep: Sweep) -> None:
    found = lines(drawn(draw_traffic, sweep))
    for choice in sweep.choices:
        counted = expected(sweep, choice.family.name, choice.rule)
        assert found[f"curve {choice.label}"] == [(x, words) for x, (words, _) in counted.items()]
        for fits, kind in ((True, "fits"), (False, "does not fit")):
            marked = [(x, words) for x, (words, f) in counted.items() if f == fits]
            assert found.get(f"{kind} {choice.label}", []) == marked


def test_hollow_markers_are_what_does_not_fit(sweep: Sweep) -> None:
    ax = drawn(draw_traffic, sweep)
    hollow = [line for line in ax.get_lines() if "does not fit" in str(line.get_label())]
    assert hollow
    assert all(line.get_markerfacecolor() == "white" for line in hollow)


def test_the_constants_are_the_counts_by_hand(sweep: Sweep) -> None:
    found = lines(drawn(draw_constants, sweep))
    for x, ratio in found["curve flash2, best tiles"]:
        case = sweep.case(int(x))
        words = expected(sweep, "flash2", "best")[int(x)][0]
        unit = case.shape.n_q**2 * case.shape.head_dim**2 / case.words
        assert ratio == pytest.approx(words / unit, rel=1e-15)  # one division rounds


def test_the_theory_lines_are_the_formulas(sweep: Sweep) -> None:
    found = lines(drawn(draw_traffic, sweep))
    for x, words in found["theory standard"]:
        shape = sweep.case(int(x)).shape
        assert words == 4 * shape.n_q**2 + 4 * shape.n_q * shape.head_dim
    for choice in sweep.choices:
        constant = LEADING.get((choice.family.name, choice.rule))
        for x, words in found.get(f"theory {choice.label}", []):
            case = sweep.case(int(x))
            N, d, M = case.shape.n_q, case.shape.head_dim, case.words
            if constant is None:
                assert choice.family.name == "standard"
                continue
            assert d**2 <= M <= N * d
            assert words == pytest.approx(constant * N**2 * d**2 / M, rel=1e-15)
    assert found["theory flash2, best tiles"]


@pytest.mark.parametrize("key", LEADING)
def test_the_leading_constants_are_reached(key: tuple[str, str]) -> None:
    """At N = 2^30 and M = 2^21, d = 64, what is left of the lower-order terms is small."""
    name, rule = key
    shape, words = AttentionShape(2**30, 2**30, 64), 2**21
    sizes = choose_tiles(family(name), shape, words, rule).sizes
    traffic = count(family(name).build(shape, **sizes)).total_words
    # Beside its 2d words a row of the leading tile holds at most 4 more (S, m, l, LSE), and beside
    # its 3d words a row of Q and O moves 4 more (l and m, read and written): together they add
    # less than (1 + 2/d) (1 + 4/3d) - 1 < 4/d.
    assert traffic * words / (2**60 * 64**2) == pytest.approx(LEADING[key], rel=4 / 64)


def test_bounds_are_drawn_where_they_hold(sweep: Sweep) -> None:
    ax = drawn(draw_traffic, sweep)
    low = ax.get_ylim()[0]
    found = lines(ax)
    for bound in sweep.bounds:
        line = found.pop(f"bound {bound.name}", [])
        assert line == [] or line == list(zip(bound.xs, bound.words, strict=True))
        assert line or max(bound.words) <= low
        for x, words in line:
            case = sweep.case(int(x))
            checked = [None, *(p.checked for p in _fitting(sweep, int(x), bound.schedules))]
            holding = [BOUNDS[bound.name](case.shape, case.words, each) for each in checked]
            assert any(each.holds and each.words == words for each in holding)
    assert not [label for label in found if label.startswith("bound")]


def _fitting(sweep: Sweep, x: int, names: tuple[str, ...]) -> Iterator[Any]:
    for curve in sweep.curves:
        for at, point in zip(curve.xs, curve.points, strict=True):
            if at == x and point.fits and curve.choice.family.name in names:
                yield point


def test_the_fused_bound_is_for_fused_schedules_only(sweep: Sweep) -> None:
    (fused,) = (bound for bound in sweep.bounds if bound.name == "fused")
    assert fused.schedules == ("flash1", "flash2")
    smallest = check(family("flash2").build(SHAPE, br=1, bc=1)).peak_words
    if sweep.what == "memory":
        assert min(fused.xs) == min(x for x in sweep.xs if x >= smallest)


@settings(max_examples=25)
@given(
    n=st.integers(1, 300),
    d=st.integers(1, 40),
    memories=st.lists(st.integers(8, 20_000), min_size=2, max_size=4, unique=True),
    causal=st.booleans(),
    heads=st.sampled_from([(1, 1), (4, 2)]),
)
def test_no_curve_that_fits_goes_below_a_bound_on_it(
    n: int, d: int, memories: list[int], causal: bool, heads: tuple[int, int]
) -> None:
    shape = AttentionShape(n, n, d, causal=causal, heads=heads[0], kv_heads=heads[1])
    big = 10 * (n + d) ** 2  # everything fits, so that every curve has a point
    found = against_memory(shape, [*memories, big], choose(ALL))
    for bound in found.bounds:
        said = dict(zip(bound.xs, bound.words, strict=True))
        for curve in found.curves:
            if bound.schedules and curve.choice.family.name not in bound.schedules:
                continue
            for x, point in zip(curve.xs, curve.points, strict=True):
                assert not point.fits or point.words >= said.get(x, 0)


@given(
    n=st.integers(1, 5000),
    d=st.integers(1, 300),
    ends=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
)
@settings(max_examples=25)
def test_regimes_cover_the_sweep(n: int, d: int, ends: tuple[int, int]) -> None:
    shape = AttentionShape(n, n, d)
    found = against_memory(shape, ends, choose(["standard"])).regimes
    assert (found[0].first, found[-1].last) == (min(ends), max(ends))
    for each in found:
        assert {regime(shape, each.first), regime(shape, each.last)} == {each.name}
    for before, after in pairwise(found):
        assert after.first == before.last + 1
        assert after.name != before.name


def test_all_regimes_are_shaded_and_named() -> None:
    texts = {text.get_text() for text in drawn(draw_traffic, sweeps()["memory"]).texts}
    assert {"small memory\nM < d²", "middle\nd² ≤ M ≤ Nd", "large memory\nM > Nd"} <= texts


@pytest.mark.parametrize("what", ["memory", "dim"])
def test_the_crossover_is_where_the_order_changes(what: str) -> None:
    found = sweeps()[what]
    change = crossover(found, "flash2", "standard_tiled")
    assert change is not None
    less = []
    for x in (change.x - 1, change.x):
        case = found.case(x)
        words = {}
        for name in (change.fewer, change.more):
            sizes = choose_tiles(family(name), case.shape, case.words, "best").sizes
            words[name] = count(family(name).build(case.shape, **sizes)).total_words
        less.append(words[change.fewer] < words[change.more])
    assert less == [False, True] or (less == [True, True] and change.fewer == "standard_tiled")
    assert words[change.fewer] == change.words
    assert change.fewer == ("flash2" if what == "memory" else "standard_tiled")


def test_there_is_no_crossover_without_both_schedules() -> None:
    found = against_memory(SHAPE, [1024, 8192], choose(["flash2"]))
    assert crossover(found, "flash2", "standard_tiled") is None


def test_a_sweep_in_which_nothing_fits_says_so() -> None:
    with pytest.raises(IosimError, match=r"^no tile of flash2 fits in the 200 words .* --sram$"):
        against_memory(SHAPE, [100, 200], choose(["flash2"]))


def test_the_tile_map_is_counted() -> None:
    found = map_tiles(family("flash1"), AttentionShape(100, 60, 16), 2000)
    ax = drawn(draw_tile_map, found)
    (mesh,) = (each for each in ax.collections if each.get_array() is not None)
    values = mesh.get_array().reshape(len(found.brs), len(found.bcs))
    for i, br in enumerate(found.brs):
        for j, bc in enumerate(found.bcs):
            built = family("flash1").build(found.shape, br=br, bc=bc)
            assert values[i, j] == count(built).total_words


@pytest.mark.parametrize("name", ["flash1", "flash2", "standard_tiled"])
def test_the_edge_parts_what_fits_from_what_does_not(name: str) -> None:
    shape, words = AttentionShape(100, 60, 16), 2000
    found = map_tiles(family(name), shape, words)
    for bc, br in found.edge.items():
        if br > 0:
            assert check(family(name).build(shape, br=br, bc=bc)).peak_words <= words
        if br < shape.n_q:
            assert check(family(name).build(shape, br=br + 1, bc=bc)).peak_words > words


# With d = 64 the tiles that Algorithm 1 prints fit from 33 856 words on.
@pytest.mark.parametrize(("words", "fits"), [(33_855, False), (33_856, True)])
def test_the_rules_are_marked(words: int, fits: bool) -> None:
    shape = AttentionShape(4096, 4096, 64)
    found = map_tiles(family("flash1"), shape, words)
    ax = drawn(draw_tile_map, found)
    marks = {str(line.get_label()).partition(":")[0]: line for line in ax.get_lines()}
    names = {"paper": "the paper's rule", "largest": "largest square", "best": "least traffic"}
    for rule, text in names.items():
        sizes = choose_tiles(family("flash1"), shape, words, rule).sizes
        assert marks[text].get_xdata() == [sizes["bc"]]
        assert marks[text].get_ydata() == [sizes["br"]]
    assert ("does not fit: it needs" in str(marks["the paper's rule"].get_label())) is not fits


def test_a_map_needs_two_tile_sizes() -> None:
    with pytest.raises(IosimError, match=r"^--schedule standard has no tile sizes"):
        map_tiles(family("standard"), SHAPE, 10**6)


def test_every_axis_has_a_label_with_its_unit(figure: Figure) -> None:
    units = ("(words", "(rows", "(bytes)", "(no unit)")
    for ax in figure.axes:
        assert any(unit in ax.get_ylabel() for unit in units)
        shown = any(label.get_visible() for label in ax.get_xticklabels())
        if shown:
            assert any(unit in ax.get_xlabel() for unit in units)


def test_nothing_is_clipped_and_no_ticks_overlap(figure: Figure) -> None:
    with styled():
        figure.draw_without_rendering()
    whole = figure.bbox
    texts = [*figure.texts, *(text for ax in figure.axes for text in ax.texts)]
    legends = [legend for ax in figure.axes if (legend := ax.get_legend())]
    assert len(figure.texts) == 1  # the title
    for artist in (*texts, *legends):
        box = artist.get_window_extent()
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    for ax in figure.axes:
        low, high = sorted(ax.get_xlim())
        ticks = [
            label.get_window_extent()
            for label in ax.get_xticklabels()
            if label.get_text() and low <= label.get_position()[0] <= high
        ]
        ticks.sort(key=lambda box: box.x0)
        assert all(a.x1 < b.x0 for a, b in pairwise(ticks))


def test_curves_differ_in_colour_and_in_marker(sweep: Sweep) -> None:
    ax = drawn(draw_traffic, sweep)
    looks = {
        (line.get_color(), line.get_marker())
        for line in ax.get_lines()
        if str(line.get_label()).startswith(("fits", "does not fit"))
    }
    assert len(looks) == len(sweep.curves)
    assert len({marker for _, marker in looks}) == len(sweep.curves)


LITTLE = Request(lengths=(64, 256, 1024), schedules=("flash1", "flash2"))


def written(form: str) -> bytes:
    to = io.BytesIO()
    save(FIGURES["length"](LITTLE), to, form)
    return to.getvalue()


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_a_figure_is_the_same_bytes_whatever_the_reader_has_set(form: str) -> None:
    first = written(form)
    mine = {"font.size": 30, "xtick.labelsize": 20, "axes.facecolor": "red", "svg.hashsalt": None}
    with matplotlib.rc_context(mine):
        before = dict(matplotlib.rcParams)
        assert written(form) == first
        assert dict(matplotlib.rcParams) == before


HEADLESS = """
import sys
from pathlib import Path
from iosim.plot.figures import FIGURES, Request, save
assert not [name for name in sys.modules if name.startswith("matplotlib")]
little = Request(lengths=(64, 256, 1024), schedules=("flash1", "flash2"))
save(FIGURES["length"](little), Path(sys.argv[1]), "svg")
assert "matplotlib.pyplot" not in sys.modules
"""


def test_another_process_without_a_display_or_pyplot_writes_the_same(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    env["MPLBACKEND"] = "tkagg"  # a backend that only a display could serve
    path = tmp_path / "length.svg"
    subprocess.run([sys.executable, "-c", HEADLESS, str(path)], env=env, check=True)
    assert path.read_bytes() == written("svg")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make write_figures draw what takes less time than its own figures."""
    monkeypatch.setattr(figures, "Request", lambda: SMALL)
    monkeypatch.setattr(figures, "FIGURES", {n: FIGURES[n] for n in ("length", "tiles")})


@pytest.mark.usefixtures("few")
def test_write_figures_writes_svg_and_png(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    paths = write_figures(folder)
    names = ["length.svg", "length.png", "tiles.svg", "tiles.png"]
    assert [path.name for path in paths] == names
    assert sorted(each.name for each in folder.iterdir()) == sorted(names)
    for path in paths:
        start = b"\x89PNG" if path.suffix == ".png" else b"<?xml"
        assert path.read_bytes().startswith(start)


@pytest.mark.usefixtures("few")
def test_a_failure_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "length.png").write_text("older")

    def fail(figure: Figure, to: Path, form: str) -> None:
        to.write_text("part")
        if form == "png":
            raise OSError("no space left")
        save(figure, to, form)

    monkeypatch.setattr(figures, "save", fail)
    with pytest.raises(IosimError, match=r"^--plots '.*length\.png' cannot be written"):
        write_figures(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["length.png", "length.svg"]
    assert (tmp_path / "length.png").read_text() == "older"
    assert (tmp_path / "length.svg").read_bytes().endswith(b"</svg>\n")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(IosimError, match=r"^--plots '.*file' cannot be made \(File exists\)"):
        write_figures(path)


@given(first=st.integers(1, 100), factor=st.integers(1, 10_000), per_octave=st.integers(1, 12))
def test_steps_are_even_and_complete(first: int, factor: int, per_octave: int) -> None:
    last = first * factor
    found = log_steps(first, last, per_octave)
    assert (found[0], found[-1]) == (first, last)
    assert list(found) == sorted(set(found))
    step = 2 ** (1 / per_octave)
    # Each number is rounded by at most 1/2, so two neighbours are apart by at most a step and 1.
    assert all(b <= a * step + 1 + step / 2 for a, b in pairwise(found))


def test_ticks_are_powers_of_two_as_people_write_them() -> None:
    assert [short(2**k) for k in (0, 9, 10, 16, 20)] == ["1", "512", "1k", "64k", "1024k"]


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.main, ["plot", *args])
    return result.exit_code, result.stdout, result.stderr


ARGS = ("--seq-len", "256", "--sram", "2048w,8192w,128KiB", "--schedule", "flash2")


def test_plot_writes_a_file_and_prints_its_path(tmp_path: Path) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")):
        path = tmp_path / name
        assert run("memory", *ARGS, "-o", str(path)) == (0, f"{path}\n", "")
        assert path.read_bytes().startswith(start)


def test_plot_without_a_file_names_it_after_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("memory", *ARGS) == (0, "memory.svg\n", "")
    code, out, err = run("memory", *ARGS, "-o", "-")
    assert (code, err) == (0, "")
    assert out.encode() == (tmp_path / "memory.svg").read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["memory.svg"]


def test_plot_takes_the_shared_options(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    shape = ("--heads", "4", "--kv-heads", "2", "--dtype", "float32", "--causal")
    for args in (
        ("length", "--seq-len", "128..512:x2", "--device", "A100", "--tiles", "paper"),
        ("dim", "--head-dim", "16,32", "--sram", "16KiB", "--seq-len", "256", "--tiles", "largest"),
        ("memory", "--seq-len", "128", "--device", "H200", "--schedule", "flash1,flash2"),
        ("tiles", "--seq-len", "64", "--head-dim", "32"),
    ):
        assert run(*args, *shape, "-o", str(path)) == (0, f"{path}\n", "")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ("length -o a.gif", "--output 'a.gif' does not end in a format; end it in one of .svg, "),
        ("length -o no/a.png", "--output 'no/a.png' cannot be written (there is no folder 'no')"),
        ("length --seq-len 4k", "--seq-len 4096 is one value, but a figure against length needs"),
        ("memory --sram 4KiB", "--sram 4096B is one value, but a figure against memory needs sev"),
        ("dim --seq-len 1k,2k", "--seq-len has 2 values, but a figure of dim takes one; give one"),
        ("tiles --tiles best", "--tiles best has no place in a figure of tiles, which marks eve"),
        ("tiles --schedule standard", "--schedule standard has no tile sizes B_r and B_c to draw"),
        ("tiles --sram 100w", "no tile of flash1 fits: the smallest needs 259 words, but M has 1"),
        ("memory --schedule flash3", "unknown schedule 'flash3'; did you mean 'flash2'? known: "),
        ("size", "Invalid value for 'WHAT': 'size' is not one of 'length', "),
    ],
)
def test_plot_refuses_in_one_sentence(
    args: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*args.split())
    assert (code, out) == (2, "")
    assert f"Error: {complaint}" in err
    assert list(tmp_path.iterdir()) == []


def test_the_bounds_of_the_figures_are_all_there_are() -> None:
    """A bound that is new should get a formula and a look: this is the reminder."""
    from iosim.plot.style import BOUND_LOOKS
    from iosim.plot.text import bound_text

    for bound in lower_bounds(SHAPE, 1024):
        assert bound.name in BOUND_LOOKS
        assert ":" in bound_text(bound.name, (), SHAPE)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_map_of_a_row_or_two_has_room(rows: int) -> None:
    tiles = map_tiles(family("flash2"), replace(SHAPE, n_q=rows, n_k=rows), 8192)
    ax = Figure().subplots()
    draw_tile_map(tiles, ax)  # a warning of matplotlib would be an error
    assert ax.get_xlim()[0] < ax.get_xlim()[1]


def test_regimes_of_memories_that_no_range_is_long_enough_for() -> None:
    memories = [1, 2**40, 2**70]
    found = against_memory(SHAPE, memories, choose(["standard"])).regimes
    assert (found[0].first, found[-1].last) == (1, 2**70)


def test_a_figure_of_backward_passes_has_bounds_of_backward_passes_alone() -> None:
    names = ("standard_backward", "flash1_backward", "flash2_backward", "flash2_backward_q")
    swept = against_memory(SHAPE, SMALL.memories, choose(names))
    assert {bound.name for bound in swept.bounds} <= set(bounds_of("backward"))
    universal = {bound.name for bound in swept.bounds if not bound.schedules}
    assert "backward_compulsory" in universal
    assert universal <= {"backward_compulsory", "backward_general"}
    for bound in swept.bounds:
        for x, words in zip(bound.xs, bound.words, strict=True):
            for point in _fitting(swept, x, bound.schedules):
                case = swept.case(x)
                claimed = bounds_of("backward")[bound.name](case.shape, case.words, point.checked)
                assert words <= claimed.words <= point.words


def test_in_a_figure_of_both_passes_no_bound_is_on_every_schedule() -> None:
    swept = against_memory(SHAPE, SMALL.memories, choose(["flash2", "flash2_backward"]))
    whom = {bound.name: bound.schedules for bound in swept.bounds}
    assert whom["compulsory"] == ("flash2",)
    assert whom["backward_compulsory"] == ("flash2_backward",)
    for name, schedules in whom.items():
        assert schedules == (("flash2_backward" if "backward" in name else "flash2"),)
