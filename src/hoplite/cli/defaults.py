"""Where a command's default is another than that of the Python it calls, and why.

All other defaults are equal: tests/cli/test_defaults.py walks every option of every command, and
fails at a difference that is not in this table, and at a line of it that is none. `--help` shows
the reasons, and docs/command-line.md lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """An option of a command, the argument that it is in Python, and both defaults."""

    command: str
    option: str
    python: str
    there: Any  # in Python
    here: Any
    why: str
    shown: str = ""  # what ``there`` means, if its value does not say it

    def told(self) -> str:
        """For a help text."""
        return f"In Python {self.shown or self.there}: {self.why}."


DIFFERENCES = (
    Difference(
        "train",
        "seeds",
        "hoplite.train",
        1,
        5,
        "a call fits one model, while a command tells a figure with its deviation",
    ),
    Difference(
        "train",
        "seeds",
        "hoplite.AutoClassifier",
        3,
        5,
        "cross-validation fits it many times over",
    ),
    Difference(
        "explain",
        "memory",
        "hoplite.explain.explain",
        None,
        "4GB",
        "your program shares its process with what else you hold",
        shown="without a bound",
    ),
)


def python_default(command: str, option: str) -> str:
    """What the help of an option adds: the first difference's default in Python, and the reason.

    >>> python_default("train", "seeds")
    ' In Python 1: a call fits one model, while a command tells a figure with its deviation.'
    """
    for one in DIFFERENCES:
        if (one.command, one.option) == (command, option):
            return f" {one.told()}"
    raise KeyError(f"{command} --{option} has the default of Python")
