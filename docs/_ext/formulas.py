"""Formulas of docstrings: a block that is indented behind a blank line is shown as it stands."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

INDENT = 4
ATTRIBUTES = ("attribute", "data", "property")


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def as_literal(lines: list[str]) -> list[str]:
    """The lines with a ``::`` before every indented block that has none and is no item's text.

    >>> as_literal(["The walk", "", "    H <- S H", "", "ends."])
    ['The walk', '', '::', '', '    H <- S H', '', 'ends.']
    """
    found: list[str] = []
    before = ""  # the last line with text
    for i, line in enumerate(lines):
        begins = line.strip() and i > 0 and not lines[i - 1].strip()
        deeper = begins and indent(line) >= indent(before) + INDENT
        if deeper and not before.rstrip().endswith("::") and not _is_item(before):
            found += [" " * indent(before) + "::", ""]
            before = "::"
        found.append(line)
        if line.strip() and not (before == "::" and indent(line) >= INDENT):
            before = line
    return found


def _is_item(line: str) -> bool:
    return line.lstrip().startswith((">>>", "- ", "* ", ".. "))


def process(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_literal(lines)
    if what in ATTRIBUTES:
        lines[:0] = ["..", ""]  # a comment; or napoleon takes what is before a colon for a type


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
