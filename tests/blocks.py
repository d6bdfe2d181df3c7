"""The code blocks of the pages, of the site and of the README, and which test executes them.

| block | executed by |
|---|---|
| of docs/tutorials and docs/plots.md | the site's build, which shows what they print and draw |
| ``python`` | tests/test_docs.py |
| ``bash`` | tests/test_doc_commands.py, in a shell |
| ``toml``, or ``python``, with ``# NAME`` on top | they are that file when the others run |
| ``text`` behind ``bash`` | it is what that block prints |
| examples in the help of commands | tests/test_doc_commands.py |
| doctests that the reference shows | pytest, by ``--doctest-modules`` |
| the gallery's | tests/test_gallery.py |
| without a language | nothing: they are formulas |
"""

from __future__ import annotations

import contextlib
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from markdown_it import MarkdownIt

from hoplite.cli import app
from hoplite.models import MODELS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NAMED = re.compile(r"# ([\w-]+\.(?:py|toml))\b")  # a block that is a file says so first
INCLUDED = re.compile(r"^```\{include\} (\S+)\n```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page; ``language`` is empty where it has none."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        found = NAMED.match(self.text)
        return found[1] if found and self.language in ("python", "toml") else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'no language'})"


def pages() -> list[Path]:
    """The README, the pages of docs/ that are written by hand, and what they include."""
    own = [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[a-z]*/*.md"))]
    included = [
        (page.parent / name).resolve()
        for page in own
        for name in INCLUDED.findall(page.read_text(encoding="utf-8"))
    ]
    return [ROOT / "README.md", *own, *(path for path in included if path.exists())]


PAGES = pages()


def is_built(page: Path) -> bool:
    """Whether the site's build executes it, and fails if a block does."""
    executed = runpy.run_path(str(DOCS / "_ext" / "executed.py"))
    return DOCS in page.parents and executed["is_executed"](
        page.relative_to(DOCS).with_suffix("").as_posix()
    )


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order, also the indented ones; directives are none."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    found = [
        Block(name_of(page), token.map[0] + 1, token.info.strip(), token.content.rstrip("\n"))
        for token in tokens
        if token.type in ("fence", "code_block") and token.map
    ]
    return [block for block in found if not block.language.startswith("{")]


def help_examples() -> dict[str, Block]:
    """The examples in the help of each command that has some, as the reference shows them."""
    group = typer.main.get_command(app)
    found = {}
    for name, command in group.commands.items():  # pyright: ignore[reportAttributeAccessIssue]
        text = command.help or ""
        lines = re.findall(r"^ *(?:Examples?: *)?(hoplite \S.*)$", text, re.MULTILINE)
        if lines:
            found[name] = Block(f"hoplite {name} --help", 0, "bash", "\n".join(lines))
    return found


@contextlib.contextmanager
def files_of(found: list[Block], folder: Path) -> Iterator[None]:
    """Write the blocks that are files; their modules, and the models they make known, end again."""
    for name, text in [(block.file, block.text) for block in found if block.file]:
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n\n")
    known, path = dict(MODELS), list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        MODELS.clear()
        MODELS.update(known)
        for own in folder.glob("*.py"):
            sys.modules.pop(own.stem, None)
