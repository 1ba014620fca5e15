"""How Sphinx builds these pages."""

import json
from dataclasses import replace
from pathlib import Path

from sphinx.application import Sphinx

from iosim import __version__
from iosim.measured import load
from iosim.plot.decoding import draw_decoding
from iosim.plot.devices import draw_devices
from iosim.plot.figures import draw_measured, save, write_figures
from iosim.plot.hbm import draw_hbm
from iosim.plot.l2_walks import draw_walks
from iosim.plot.masks import draw_masks
from iosim.plot.training_step import draw_training_step
from iosim.proofs.claims.recompute_figure2 import flash_step, standard_step
from iosim.proofs.page import fill
from iosim.schedule.masks import Butterfly, Documents, LocalGlobal, Random, Window
from iosim.shape import AttentionShape

project = "iosim"
author = "The iosim developers"
copyright = "The iosim developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

# Docstrings are Markdown-like plain text with `names` in single backquotes.
default_role = "code"
autodoc_typehints = "description"

html_theme = "furo"
html_title = f"iosim {version}"


HERE = Path(__file__).parent

ALL_PAIRS = AttentionShape(8192, 8192, 64)
PACKED = Documents((1000, 3000, 500, 2192, 1500))
MASKS = {
    "causal": replace(ALL_PAIRS, causal=True),
    "window": replace(ALL_PAIRS, mask=Window(256, 256)),
    "local + global": replace(ALL_PAIRS, mask=LocalGlobal(32, 32, tokens=128)),
    "documents, causal": replace(ALL_PAIRS, causal=True, mask=PACKED),
    "butterfly": replace(ALL_PAIRS, mask=Butterfly(128)),
    "random": replace(ALL_PAIRS, mask=Random(1 / 8, 128)),
}
SPARSE = [replace(ALL_PAIRS, mask=Random(2.0**-k, 128)) for k in range(6, -1, -1)]


def setup(app: Sphinx) -> None:
    """Draw the figures anew, and show the theorems where `proofs.md` has its markers."""

    def draw(app: Sphinx) -> None:
        # In place, as the README shows them too: the same versions write the same bytes. The figure
        # of rounding is left, since its bytes depend on the machine's BLAS.
        write_figures(HERE / "figures")
        # FA1's Figure 2: two passes over K and V forward, four backward.
        step = AttentionShape(1024, 1024, 64, batch=64, heads=16, dtype="float16", dropout=0.1)
        training = draw_training_step(
            [standard_step(step, mask_pass=True), flash_step(step, (512, 256))]
        )
        errors = json.loads((HERE / "data" / "h200_hbm_errors.json").read_text(encoding="utf-8"))
        walks = json.loads((HERE / "data" / "h200_l2_walks.json").read_text(encoding="utf-8"))
        more = {
            "measured": draw_measured(load(HERE / "data" / "h200_sweep.json")),
            "training": training,
            "decoding": draw_decoding(),
            "devices": draw_devices(),
            "hbm": draw_hbm(errors),
            "l2_walks": draw_walks(walks),
            "masks": draw_masks(MASKS, SPARSE, words=51_200),
        }
        for name, figure in more.items():
            for form in ("svg", "png"):
                save(figure, HERE / "figures" / f"{name}.{form}", form)

    def show(app: Sphinx, page: str, source: list[str]) -> None:
        if page == "proofs":
            source[0] = fill(source[0])

    app.connect("builder-inited", draw)
    app.connect("source-read", show)
