"""Sphinx's settings. `make docs` builds the site strictly; docs/_ext has what is Hoplite's own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from gallery import gallery_conf
from measured import measured
from root_pages import absent

from hoplite.machine import VERSION

project = "Hoplite"
author = "the Hoplite contributors"
release = version = VERSION.partition(" ")[0]
project_copyright = ""

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "command_pages",
    "executed",
    "figures",
    "formulas",
    "pictures",
    "references",
    "root_pages",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_ext", "_build", "**/README.*", "gallery/**/*.ipynb", "gallery/**/*.py"]
exclude_patterns += absent(Path(__file__).parent.resolve())
suppress_warnings = [
    "config.cache",  # the gallery's settings hold functions, which cannot be kept between builds
]

# MyST: anchors as GitHub makes them, so that the pages' links work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "substitution"]
myst_substitutions = measured()

# Docstrings: shapes and choices in words are no names of types, so they are shown as they stand.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
smartquotes = False  # -- begins an option
highlight_language = "none"  # formulas and tables stand in blocks without a language

# Every reference must lead somewhere, but for these.
nitpicky = True
nitpick_ignore_regex = [
    # other libraries' types, whose pages are elsewhere: the site is built without a network
    (r"py:.*", r"(np|sp|pa|numpy|scipy|sklearn|torch|pyarrow|plotly|rich|typer|msgspec)\..*"),
    (r"py:.*", r"(collections|concurrent|dataclasses|pathlib|os|types|typing)(\..*)?"),
    (r"py:.*", r"(optional|array-like|ndarray|Tensor)"),
    # bounds in Annotated[float, Meta(ge=-1.0)] or Annotated[int, pydantic.Field(ge=1)], not types
    (r"py:class", r"\d+\.\d+|FieldInfo|NoneType|MaxLen|Ge|Le|AllowInfNan"),
]

sphinx_gallery_conf = gallery_conf()
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div.highlight pre:not(.output pre)"

pygments_style = "tango"
pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "Hoplite"
html_logo = None
html_favicon = "_static/hoplite.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_logo": "hoplite.svg",
    "dark_logo": "hoplite.svg",
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
