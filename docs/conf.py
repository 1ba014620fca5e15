"""How Sphinx builds these pages."""

from sphinx.application import Sphinx

from iosim import __version__
from iosim.proofs.page import fill

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


def setup(app: Sphinx) -> None:
    """Show the records of the theorems where `proofs.md` has its markers."""

    def show(app: Sphinx, page: str, source: list[str]) -> None:
        if page == "proofs":
            source[0] = fill(source[0])

    app.connect("source-read", show)
