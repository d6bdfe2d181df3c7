"""Pages of the repository's other folders, and links to them.

A page of docs/ that holds nothing but an include of a Markdown file outside docs/ shows that file.
Links are written for readers of the files themselves; here they are led to the site's pages, and
to the file itself where the site has no page of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gallery import in_gallery
from sphinx.application import Sphinx

INCLUDE = re.compile(r"^```\{include\} (\.\./\S+)\n```$", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")


def included(docs: Path) -> dict[Path, Path]:
    """Files outside docs/ -> the page that shows them."""
    found = {}
    for page in docs.rglob("*.md"):
        for target in INCLUDE.findall(page.read_text(encoding="utf-8")):
            found[(page.parent / target).resolve()] = page
    return found


def absent(docs: Path) -> list[str]:
    """Pages of docs/ that would show a file which is not there, such as a changelog: left out."""
    shown = included(docs).items()
    return [str(page.relative_to(docs)) for target, page in shown if not target.is_file()]


def led(text: str, source: Path, page: Path, docs: Path, shown: dict[Path, Path]) -> str:
    """The text of ``source``, shown as ``page``, with its links led to where they are here."""

    def lead(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        if not target.exists():
            return match[0]
        target = shown.get(target, target)
        if in_gallery(target):
            target = docs / "gallery" / f"{target.stem}.rst"
        return os.path.relpath(target, page.parent) + (match[2] or "")

    return LINK.sub(lead, text)


def read(app: Sphinx, name: str, content: list[str]) -> None:
    docs = Path(app.srcdir).resolve()
    page = Path(app.env.doc2path(name)).resolve()
    if page.suffix != ".md":
        return
    shown = included(docs)

    def insert(match: re.Match[str]) -> str:
        source = (page.parent / match[1]).resolve()
        app.env.note_dependency(str(source))
        return led(source.read_text(encoding="utf-8"), source, page, docs, shown)

    text = led(content[0], page, page, docs, shown)
    text = INCLUDE.sub(insert, text)
    for gone in map(Path, absent(docs)):
        if docs / gone.parent == page.parent:
            text = re.sub(rf"^{re.escape(gone.stem)}\n", "", text, flags=re.MULTILINE)
    text = text.replace("@other-guides@", "\n".join(other_guides(docs)))
    content[0] = text


def other_guides(docs: Path) -> list[str]:
    """Pages of docs/ that no table of contents names: guides that were written later."""
    texts = [path.read_text(encoding="utf-8") for path in docs.rglob("*.md")]
    lines = [re.sub(r".*<(\S+)>$", r"\1", line) for text in texts for line in text.splitlines()]
    named = {Path(line.strip()).name for line in lines}
    pages = sorted(path.stem for path in docs.glob("*.md"))
    return [name for name in pages if name not in named | {"index"}]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
