"""A part of a page that a script writes, between two comments that stay."""

from __future__ import annotations


def replaced(text: str, name: str, lines: list[str]) -> str:
    """The text with ``lines`` between ``<!-- name: ... -->`` and ``<!-- end of name -->``.

    >>> replaced("a<!-- n: x -->old<!-- end of n -->b", "n", ["new"])
    'a<!-- n: x -->\\nnew\\n<!-- end of n -->b'
    """
    before, rest = text.split(f"<!-- {name}: ")
    script, rest = rest.split(" -->", 1)
    end = f"<!-- end of {name} -->"
    return "\n".join([f"{before}<!-- {name}: {script} -->", *lines, end]) + rest.split(end)[1]
