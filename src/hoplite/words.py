"""Names and numbers as people read them, the same on pages, in Markdown and in the terminal."""

from __future__ import annotations

import math
from typing import Any

from hoplite.errors import plural as plural
from hoplite.models import MODELS

DATASET_NAMES = {"citeseer": "Citeseer", "cora": "Cora", "pubmed": "Pubmed"}
NOTHING = "\u2013"  # an en dash
MINUS = "\u2212"  # as wide as a plus


def model_name(model: str, gate: str | None = None) -> str:
    """
    >>> model_name("hlgc", "class"), model_name("lgc")
    ('hLGC, class gate', 'LGC')
    """
    name = MODELS[model].title if model in MODELS else model
    return f"{name}, {gate} gate" if gate else name


def dataset_name(dataset: str) -> str:
    return DATASET_NAMES.get(dataset, dataset)


def signed(value: float | None, digits: int = 1) -> str:
    """With its sign, and a zero that has none too many.

    >>> signed(0.4), signed(-1.25), signed(-0.0)
    ('+0.4', '−1.2', '+0.0')
    """
    if value is None:
        return NOTHING
    shown = f"{abs(value):.{digits}f}"
    negative = value < 0 and float(shown) != 0
    return f"{MINUS if negative else '+'}{shown}"


def number(value: Any, digits: int = 3) -> str:
    """A number in few digits; anything that is none as a dash.

    >>> number(0.0123456), number(1234.5), number(None), number(float("nan"))
    ('0.0123', '1,234', '–', '–')
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", MINUS)
    return f"{value:.{digits}g}".replace("-", MINUS)


def listing(parts: list[str]) -> str:
    """
    >>> listing(["a"]), listing(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
