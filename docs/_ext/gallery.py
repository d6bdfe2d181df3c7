"""The gallery: the scripts of examples/ that are written for it, executed by `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TITLED = re.compile(r'\A(?:#!.*\n)?r?"""\n?(\S[^\n]*)\n=+\n')


def in_gallery(path: Path) -> bool:
    """Whether a script begins with a title that is underlined, as the gallery's do."""
    if path.suffix != ".py" or EXAMPLES not in path.parents or not path.is_file():
        return False
    return TITLED.match(path.read_text(encoding="utf-8")) is not None


def gallery_conf() -> dict[str, Any]:
    """The settings of sphinx-gallery."""
    others = [re.escape(path.name) for path in EXAMPLES.rglob("*.py") if not in_gallery(path)]
    return {
        "examples_dirs": [str(EXAMPLES)],
        "gallery_dirs": ["gallery"],
        "filename_pattern": r"\.py$",
        "ignore_pattern": "|".join([r"__init__\.py", *(rf"^{name}$" for name in others)]),
        "image_scrapers": (),
        "reset_modules": (),
        "capture_repr": ("_repr_html_", "__repr__"),
        "download_all_examples": False,
        "show_memory": False,
        "show_signature": False,
        "write_computation_times": False,
        "min_reported_time": 1,
        "remove_config_comments": True,
        "abort_on_example_error": False,
        "within_subsection_order": "FileNameSortKey",
    }
