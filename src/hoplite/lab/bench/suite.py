"""All benchmarks by name, the run that makes one result of them, and that as tables and a page."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hoplite.engine.backend import get_num_threads
from hoplite.errors import ConfigError, check_choice
from hoplite.lab import machine
from hoplite.lab.bench import (
    command,
    epoch,
    family,
    hyper,
    large,
    many,
    paper_times,
    product,
    scaling,
    serving,
    update,
)
from hoplite.lab.bench.measure import Context, Figure, Outcome
from hoplite.lab.machine import Machine

COLUMNS = ["case", "ours", "peer", "ratio", "goal"]
RATIO_NOTE = (
    "Contestants take turns in one process after a warm-up; a time is the median of the rounds, "
    "a ratio the median over the rounds of theirs / ours (above 1: Hoplite is faster). "
    "A case's strongest peer stands first: its ratio is the one to quote."
)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark at its two sizes; without ``quick`` it is part of the full run only."""

    name: str
    title: str
    run: Callable[[Context, Any], Outcome]
    quick: Any
    full: Any


BENCHMARKS = (
    Benchmark("spmm", "S @ X", product.run, product.QUICK, product.FULL),
    Benchmark("spmm-reddit", "S @ X at Reddit's size", product.run, None, product.REDDIT),
    Benchmark("scaling", "Cost against edges and hops", scaling.run, scaling.QUICK, scaling.FULL),
    Benchmark("epoch", "One epoch on Cora and Pubmed", epoch.run, epoch.QUICK, epoch.FULL),
    Benchmark("many", "Two runs at once on Cora", many.run_many, many.QUICK, many.FULL),
    Benchmark("hyper", "One epoch of hLGC", hyper.run, hyper.QUICK, hyper.FULL),
    Benchmark(
        "family-epoch", "One epoch of every linear model", family.run, family.QUICK, family.FULL
    ),
    Benchmark(
        "paper-times",
        "The paper's milliseconds per epoch",
        paper_times.run,
        paper_times.QUICK,
        paper_times.FULL,
    ),
    Benchmark("command", "From the shell", command.run, command.QUICK, command.FULL),
    Benchmark("serve", "Requests to `hoplite serve`", serving.run, serving.QUICK, serving.FULL),
    Benchmark("grid", "The paper's grid of LGC on Cora", many.run_grid, None, many.GRID),
)
LARGE = (
    Benchmark("large-hops", "Hop features in memory", large.run_hops, large.QUICK, large.FULL),
    Benchmark("large-store", "Hop features on disk", large.run_store, large.QUICK, large.FULL),
    Benchmark(
        "large-budget", "A graph larger than memory", large.run_budget, large.QUICK, large.FULL
    ),
    Benchmark(
        "large-train",
        "Training from a store",
        large.run_training,
        large.TRAIN_QUICK,
        large.TRAIN_FULL,
    ),
    Benchmark("large-update", "New nodes in a store", update.run, update.QUICK, update.FULL),
    Benchmark("large-cost", "The cost model", large.run_cost, large.COST_QUICK, large.COST_FULL),
)

# What runs now, and the share of all benchmarks that is done, from 0 to 1.
SuiteReport = Callable[[str, float], None]


@dataclass(frozen=True)
class SuiteResult:
    """Everything that was measured, and on what."""

    quick: bool
    machine: Machine
    outcomes: list[tuple[Benchmark, Outcome]]
    seconds: dict[str, float]  # that each benchmark took
    others: dict[str, float]  # the share of the CPU that others used meanwhile

    @property
    def figures(self) -> list[Figure]:
        return [figure for _, outcome in self.outcomes for figure in outcome.figures]

    def count(self, passed: bool) -> int:
        """How many goals were reached, or missed."""
        return sum(figure.passed is passed for figure in self.figures)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "quick": self.quick,
            "machine": asdict(self.machine),
            "benchmarks": [
                {
                    "name": benchmark.name,
                    "title": benchmark.title,
                    "figures": [figure.as_dict() for figure in outcome.figures],
                    "notes": outcome.notes,
                    "facts": outcome.facts,
                    "seconds": self.seconds[benchmark.name],
                    "others": self.others[benchmark.name],
                }
                for benchmark, outcome in self.outcomes
            ],
            "goals_reached": self.count(True),
            "goals_missed": self.count(False),
            "seconds": sum(self.seconds.values()),
        }


def chosen_benchmarks(
    quick: bool, only: Sequence[str], available: Sequence[Benchmark] = BENCHMARKS
) -> list[Benchmark]:
    """The benchmarks to run: those named in ``only``, or all that have this size."""
    names = [benchmark.name for benchmark in available]
    for name in only:
        check_choice("only", name, names)
    chosen = [benchmark for benchmark in available if not only or benchmark.name in only]
    if not quick:
        return chosen
    for benchmark in chosen:
        if only and benchmark.quick is None:
            raise ConfigError(
                f"only names {benchmark.name!r}, which has no quick size; leave out --quick."
            )
    return [benchmark for benchmark in chosen if benchmark.quick is not None]


def run_suite(
    quick: bool = False,
    only: Sequence[str] = (),
    threads: int | None = None,
    progress: SuiteReport | None = None,
    available: Sequence[Benchmark] = BENCHMARKS,
) -> SuiteResult:
    """Run the benchmarks one after another; ``threads`` defaults to the engine's."""
    chosen = chosen_benchmarks(quick, only, available)
    threads = get_num_threads() if threads is None else threads
    report = progress or (lambda what, share: None)
    report("memory bandwidth", 0.0)
    facts = machine.describe(threads)
    outcomes: list[tuple[Benchmark, Outcome]] = []
    seconds: dict[str, float] = {}
    others: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="hoplite-bench-") as folder:
        whole = Context(threads, 1e9 * (facts.bandwidth_gb_s or 0.0), report, Path(folder))
        for index, benchmark in enumerate(chosen):
            context = whole.part(index, len(chosen), f"{benchmark.name}: ")
            size = benchmark.quick if quick else benchmark.full
            meter, started = machine.Others(), time.perf_counter()
            outcome = benchmark.run(context, size)
            seconds[benchmark.name] = time.perf_counter() - started
            others[benchmark.name] = meter.share()
            outcomes.append((benchmark, _judged(outcome, others[benchmark.name])))
    report("done", 1.0)
    return SuiteResult(quick, facts, outcomes, seconds, others)


def _judged(outcome: Outcome, others: float) -> Outcome:
    """The outcome, of which only the times are left if others used too much of the CPU."""
    if others <= machine.QUIET:
        return outcome
    return outcome.unjudged(
        f"others used {100 * others:.0f} % of the CPU meanwhile: times may be far off, so no ratio "
        "is shown and no goal judged; repeat it on an idle machine."
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


def machine_line(facts: Machine) -> str:
    """CPU, cores, threads, bandwidth and kernels in one line."""
    return (
        f"{facts.cpu}, {facts.cores} cores, {facts.threads} threads used, "
        f"{facts.memory_gb:g} GB of memory, {facts.bandwidth_gb_s:.1f} GB/s measured (triad), "
        f"{facts.system}, kernels: {facts.kernels}"
    )


def busy_line(result: SuiteResult) -> str:
    """How idle the machine was before the run, and during its benchmarks at worst."""
    before, during = result.machine.busy_before or 0.0, max(result.others.values(), default=0.0)
    return (
        f"Others used {100 * before:.0f} % of the CPU before the run, and during a benchmark "
        f"{100 * during:.0f} % at most."
    )


def versions_line(facts: Machine) -> str:
    return ", ".join(f"{name} {number}" for name, number in facts.versions.items())


def summary_line(result: SuiteResult) -> str:
    reached, missed = result.count(True), result.count(False)
    open_ = sum(figure.goal is not None for figure in result.figures) - reached - missed
    left = f", {open_} not judged" if open_ else ""
    seconds = sum(result.seconds.values())
    return f"{reached} of {reached + missed} goals reached{left}; it took {seconds:.0f} s."


def markdown(result: SuiteResult, command: str, mark: str = "") -> str:
    """The whole result as a page; ``command`` made it, and knows its own page by the ``mark``."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}`; do not edit.",
        *([f"<!-- hoplite {mark} -->"] if mark else []),
        "",
        f"- Machine: {machine_line(result.machine)}",
        f"- Versions: {versions_line(result.machine)}",
        f"- {busy_line(result)}",
        f"- {RATIO_NOTE}",
        f"- {summary_line(result)}",
        *_goal_lines(result),
    ]
    for benchmark, outcome in result.outcomes:
        lines += ["", f"## {benchmark.title} (`{benchmark.name}`)"]
        if outcome.figures:
            lines += ["", f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
            lines += [f"| {' | '.join(row)} |" for row in table_rows(outcome)]
        if outcome.notes:
            lines += ["", *[f"- {note}" for note in outcome.notes]]
    return "\n".join(lines).rstrip() + "\n"


def _goal_lines(result: SuiteResult) -> list[str]:
    """All goals of the run in one table."""
    figures = [figure for figure in result.figures if figure.goal is not None]
    if not figures:
        return []
    lines = ["", "## Goals", "", "| case | peer | goal | reached |", "|---|---|---:|---:|"]
    for figure in figures:
        assert figure.goal is not None
        value = _value(figure.ours, figure.unit)
        if figure.goal.of_ratio:
            value = "-" if figure.ratio is None else f"{_number(figure.ratio)}x"
        peer = (figure.peer or "-") if figure.goal.of_ratio else "-"
        lines.append(
            f"| {figure.case} | {peer} | {figure.goal.text} | {value}, {_verdict(figure)} |"
        )
    return lines


def _peer(figure: Figure) -> str:
    if figure.peer is None or figure.theirs is None:
        return "-"
    return f"{figure.peer}: {_value(figure.theirs, figure.unit)}"


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return "-"
    return f"{figure.goal.text}: {_verdict(figure)}"


def _verdict(figure: Figure) -> str:
    return {True: "pass", False: "miss", None: "not judged"}[figure.passed]


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
