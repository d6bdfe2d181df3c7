"""Docstrings as they are written here, made readable for reStructuredText and napoleon.

A block that is indented behind a blank line is a formula and shown as it stands. A section such as
``Parameters`` ends where a paragraph begins that is none of its entries.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

INDENT = 4
ENTRY = re.compile(r"[\w*]+(, [\w*]+)* :")
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


def with_ended_sections(lines: list[str]) -> list[str]:
    """The lines with one more blank one where a section ends, which is how napoleon knows it.

    >>> with_ended_sections(["Parameters", "----------", "x : a number", "", "The end."])
    ['Parameters', '----------', 'x : a number', '', '', 'The end.']
    """
    found: list[str] = []
    inside = False
    for i, line in enumerate(lines):
        if set(line.strip()) == {"-"}:
            inside = True
        elif inside and i and line and not line[0].isspace() and not lines[i - 1].strip():
            heading = i + 1 < len(lines) and set(lines[i + 1].strip()) == {"-"}
            if not heading and not ENTRY.match(line):
                found.append("")
                inside = False
        found.append(line)
    return found


def _is_item(line: str) -> bool:
    return line.lstrip().startswith((">>>", "- ", "* ", ".. "))


def process(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = with_ended_sections(as_literal(lines))
    if what in ATTRIBUTES:
        lines[:0] = ["..", ""]  # a comment; or napoleon takes what is before a colon for a type


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
