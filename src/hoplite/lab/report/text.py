"""Results in words: scores, times and settings, the same on the page, in Markdown and terminals."""

from __future__ import annotations

import json
from typing import Any

from hoplite.config import idle_settings
from hoplite.kinds import MODEL_KINDS
from hoplite.lab.report.paper import Score
from hoplite.words import NOTHING, number, plural

SYMBOLS = {
    "hops": "k",
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "hidden": "hidden units",
}


def score(value: Score | None, digits: int = 2) -> str:
    """Percent with one decimal and its standard deviation, if it has one.

    >>> score(Score(82.04, 0.515)), score(Score(82.04, None))
    ('82.0 ± 0.52', '82.0')
    """
    if value is None:
        return NOTHING
    if value.std is None:
        return f"{value.mean:.1f}"
    return f"{value.mean:.1f} ± {value.std:.{digits}f}"


def milliseconds(value: float) -> str:
    """
    >>> milliseconds(2.148), milliseconds(20.44), milliseconds(1234.0)
    ('2.15', '20.4', '1,234')
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(theirs: float, ours: float) -> str:
    """How much faster ours is, in words.

    >>> ratio(10.0, 2.0), ratio(2.0, 10.0), ratio(10.0, 9.9)
    ('5.0x faster', '5.0x slower', 'as fast')
    """
    if not (theirs > 0 and ours > 0):
        return NOTHING
    factor = max(theirs / ours, ours / theirs)
    if factor < 1.05:
        return "as fast"
    shown = f"{factor:.0f}" if factor >= 9.95 else f"{factor:.1f}"
    return f"{shown}x {'faster' if theirs > ours else 'slower'}"


def setting(name: str, value: Any) -> str:
    """
    >>> setting("hops", 20), setting("weight_decay", 5e-06)
    ('k = 20', 'weight decay = 5e-06')
    """
    return f"{SYMBOLS.get(name, name.replace('_', ' '))} = {plain(value)}"


def settings(entry: dict[str, Any]) -> list[str]:
    """The configuration of a result, without the settings that its model has not.

    >>> settings({"model": "lgc", "config": {"model": "lgc", "hops": 20, "heads": 8}})
    ['k = 20']
    """
    hidden = {"model"} | idle_settings(entry["model"])
    return [
        setting(str(name), value)
        for name, value in (entry.get("config") or {}).items()
        if value is not None and name not in hidden
    ]


def size(entry: dict[str, Any]) -> str:
    """The setting that a time depends on most.

    >>> size({"model": "lgc", "config": {"hops": 20, "hidden": 16}})
    'k = 20'
    """
    kind = MODEL_KINDS.get(entry["model"])
    name = kind.growth if kind else "hops"
    value = (entry.get("config") or {}).get(name)
    return "" if value is None else setting(name, value)


def searched(entry: dict[str, Any]) -> list[str]:
    """How large the search of a result was, and what it cost: minutes are of all cores together.

    >>> searched({"configurations": 189, "runs": 945, "minutes": 5.339})
    ['189 configurations', '945 runs', '5.34 processor minutes']
    """
    keys = ("configurations", "runs")
    counts = [plural(entry[key], key[:-1]) for key in keys if entry.get(key) is not None]
    minutes = entry.get("minutes")
    return counts + ([] if minutes is None else [f"{number(minutes)} processor minutes"])


def one_seed(entry: dict[str, Any]) -> bool:
    """Whether a result is known to rest on a single seed, which has no deviation.

    >>> one_seed({"seeds": [0]}), one_seed({"seeds": [0, 1]}), one_seed({"test": [0.8]})
    (True, False, True)
    """
    return len(entry.get("seeds") or entry.get("test") or ()) == 1


def plain(value: Any) -> str:
    """A value of a configuration: text as it is, the rest as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
