"""The gallery: the scripts of examples/ that are written for it, executed by `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# From the first steps to what is special.
ORDER = (
    "cora_in_ten_lines",
    "your_own_tables",
    "new_nodes",
    "explain_a_decision",
    "learned_filter",
    "let_it_choose",
    "heterophily",
    "honest_probabilities",
    "regression",
    "label_propagation",
    "unlabelled_nodes",
    "many_runs",
    "grid_search_cv",
    "pyg_dataset",
    "molecules",
    "own_tables_of_graphs",
    "larger_than_memory",
    "dask_cluster",
    "own_model",
)
TITLED = re.compile(r'\A(?:#!.*\n)?r?"""\n?(\S[^\n]*)\n=+\n')


def in_gallery(path: Path) -> bool:
    """Whether a script begins with a title that is underlined, as the gallery's do."""
    if path.suffix != ".py" or EXAMPLES not in path.parents or not path.is_file():
        return False
    return TITLED.match(path.read_text(encoding="utf-8")) is not None


class Order:
    """A key to sort the examples of a folder by, as sphinx-gallery wants it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        """Its place in ORDER; what is not there comes behind."""
        stem = Path(name).stem
        return (ORDER.index(stem) if stem in ORDER else len(ORDER)), stem


def gallery_conf() -> dict[str, Any]:
    """The settings of sphinx-gallery."""
    others = [re.escape(path.name) for path in EXAMPLES.rglob("*.py") if not in_gallery(path)]
    return {
        "examples_dirs": [str(EXAMPLES)],
        "gallery_dirs": ["gallery"],
        "filename_pattern": r"\.py$",
        "ignore_pattern": "|".join([r"__init__\.py", *(rf"^{name}$" for name in others)]),
        "image_scrapers": ("figures.thumbnail",),
        "reset_modules": (),
        "capture_repr": ("_repr_html_", "__repr__"),
        "download_all_examples": False,
        "show_memory": False,
        "show_signature": False,
        "write_computation_times": False,
        "min_reported_time": 3600,  # how long it took here says little
        "remove_config_comments": True,
        "abort_on_example_error": False,
        "within_subsection_order": "gallery.Order",
    }
