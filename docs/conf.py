"""How Sphinx builds these pages."""

from iosim import __version__

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
