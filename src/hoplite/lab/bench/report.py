"""A result as rows of a table, lines of text and a Markdown page."""

from __future__ import annotations

from typing import Any

from hoplite.lab.bench.records import Figure, Outcome
from hoplite.lab.bench.suite import SuiteResult

COLUMNS = ["case", "ours", "peer", "ratio", "goal"]

QUIET = 0.1  # others may use this share of the CPU without being told of

RATIO_NOTE = (
    "Contestants take turns in one process after a warm-up; a time is the median of the rounds, "
    "a ratio the median over the rounds of theirs / ours (above 1: Hoplite is faster)."
)


def table_rows(outcome: Outcome) -> list[list[str]]:
    """One row per figure, in the order of COLUMNS."""
    return [
        [
            figure.case,
            _value(figure.ours, figure.unit),
            _peer(figure),
            "-" if figure.ratio is None else f"{_number(figure.ratio)}x",
            _goal(figure),
        ]
        for figure in outcome.figures
    ]


def machine_line(facts: dict[str, Any]) -> str:
    """CPU, cores, threads, bandwidth and kernels in one line."""
    memory = "" if facts["memory_gb"] is None else f"{facts['memory_gb']:g} GB of memory, "
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads used, {memory}"
        f"{facts['bandwidth_gb_s']:.1f} GB/s measured (triad), {facts['system']}, "
        f"kernels: {facts['kernels']}"
    )


def busy_line(facts: dict[str, Any]) -> str:
    """How idle the machine was, and what follows if it was not.

    >>> busy_line({"busy_before": 0.05})
    'Others used 5 % of the CPU before the run.'
    """
    busy = facts["busy_before"]
    if busy is None:
        return "It is not known whether others used the CPU during the run."
    text = f"Others used {busy:.0%} of the CPU before the run".replace("%", " %")
    return text + (
        ": ratios may be far off, repeat it on an idle machine." if busy > QUIET else "."
    )


def versions_line(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in facts["versions"].items())


def summary_line(result: SuiteResult) -> str:
    reached, missed = result.count(True), result.count(False)
    seconds = sum(result.seconds.values())
    return f"{reached} of {reached + missed} goals reached; it took {seconds:.0f} s."


def markdown(result: SuiteResult, command: str) -> str:
    """The whole result as a page; ``command`` is what made it."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}`; do not edit.",
        "",
        f"- Machine: {machine_line(result.machine)}",
        f"- Versions: {versions_line(result.machine)}",
        f"- {busy_line(result.machine)}",
        f"- {RATIO_NOTE}",
        f"- {summary_line(result)}",
    ]
    for benchmark, outcome in result.outcomes:
        lines += ["", f"## {benchmark.title} (`{benchmark.name}`)"]
        if outcome.figures:
            lines += ["", f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
            lines += [f"| {' | '.join(row)} |" for row in table_rows(outcome)]
        if outcome.notes:
            lines += ["", *[f"- {note}" for note in outcome.notes]]
    return "\n".join(lines).rstrip() + "\n"


def _peer(figure: Figure) -> str:
    if figure.peer is None or figure.theirs is None:
        return "-"
    return f"{figure.peer}: {_value(figure.theirs, figure.unit)}"


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return "-"
    return f"{figure.goal.text}: {'pass' if figure.passed else 'miss'}"


def _value(value: float, unit: str) -> str:
    """With its unit; long times in seconds.

    >>> _value(2.345, "ms"), _value(31000, "ms"), _value(0.98, "")
    ('2.35 ms', '31 s', '0.98')
    """
    if unit == "ms" and value >= 10_000:
        value, unit = value / 1e3, "s"
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
