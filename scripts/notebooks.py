"""Writes a notebook for every example of the gallery: `python scripts/notebooks.py [FOLDER]`.

The scripts in examples/ are the source; the notebooks (in build/notebooks by default) are not
kept in the repository. sphinx-gallery makes the same ones for the site's download links.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
from sphinx_gallery.notebook import jupyter_notebook, save_notebook
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
TITLED = re.compile(r'"""\n\S.*\n=+\n')  # a docstring that begins with a title


def gallery_scripts() -> list[Path]:
    """The examples that are written for the gallery; the others are tools with arguments."""
    scripts = sorted(EXAMPLES.glob("*.py"))
    return [one for one in scripts if TITLED.match(one.read_text(encoding="utf-8"))]


def write_notebook(script: Path, folder: Path) -> Path:
    """The notebook of an example: its text blocks as Markdown, its code blocks as cells."""
    _, blocks = split_code_and_text_blocks(str(script))
    notebook = jupyter_notebook(blocks, dict(DEFAULT_GALLERY_CONF), folder)
    path = folder / f"{script.stem}.ipynb"
    save_notebook(notebook, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "notebooks")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for script in gallery_scripts():
        print(write_notebook(script, folder))


if __name__ == "__main__":
    main()
