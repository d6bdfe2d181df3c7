"""All benchmarks by name, the run that makes one result of them, and its report."""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import command, epoch, graphs, large, product, serving
from benchmarks.machine import QUIET, Machine, OtherPrograms, describe
from benchmarks.measure import Context, Figure, Outcome
from experiments.report import Report, Section, Table
from hoplite.engine.backend import get_num_threads
from hoplite.errors import ConfigError

COLUMNS = ("case", "ours", "peer", "ratio", "goal")
RATIO_NOTE = (
    "Contestants take turns in one process after a warm-up; a time is the median of the rounds, "
    "a ratio the median over the rounds of theirs / ours (above 1: Hoplite is faster). "
    "The strongest peer of a case comes first: its ratio is the one to quote."
)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark; one without a ``quick`` size is part of the full run only."""

    name: str
    title: str
    run: Callable[[Context], Outcome]
    quick: bool = True


_SMALL = (
    Benchmark("spmm", "S @ X", product.spmm),
    Benchmark("spmm-reddit", "S @ X at Reddit's size", product.spmm_reddit, quick=False),
    Benchmark("scaling", "Cost against edges and hops", product.scaling),
    Benchmark("epoch", "One epoch on Cora and Pubmed", epoch.run),
    Benchmark("many", "Two runs at once on Cora", epoch.many),
    Benchmark("hyper", "One epoch of hLGC", epoch.hyper),
    Benchmark("family-epoch", "One epoch of every linear model", epoch.family),
    Benchmark("command", "From the shell", command.run),
    Benchmark("serve", "Requests to `hoplite serve`", serving.run),
    Benchmark("grid", "The paper's grid of LGC on Cora", command.grid, quick=False),
)
_LARGE = (
    Benchmark("large-hops", "Hop features in memory", large.hops),
    Benchmark("large-store", "Hop features on disk", large.store),
    Benchmark("large-budget", "A graph larger than memory", large.budget),
    Benchmark("large-train", "Training from a store", large.training),
    Benchmark("large-update", "1 % new edges in a store", large.update),
    Benchmark("large-cost", "The cost model", large.cost_model),
    Benchmark("large-graphs", "A million small graphs", graphs.small_graphs),
)
BENCHMARKS, LARGE = ({one.name: one for one in part} for part in (_SMALL, _LARGE))


@dataclass(frozen=True)
class SuiteResult:
    """What was measured, and where."""

    machine: Machine
    outcomes: list[tuple[Benchmark, Outcome]]
    seconds: float
    busiest: float  # the largest share of the CPU that other programs used during a benchmark

    @property
    def figures(self) -> list[Figure]:
        return [figure for _, outcome in self.outcomes for figure in outcome.figures]


def run_suite(
    chosen: Mapping[str, Benchmark],
    *,
    quick: bool = False,
    report: Callable[[str], object] = lambda what: None,
) -> SuiteResult:
    """Run benchmarks one after another; with ``quick``, those that have a quick size."""
    benchmarks = [one for one in chosen.values() if one.quick or not quick]
    if not benchmarks:
        raise ConfigError(f"{', '.join(chosen)} has no quick size; leave out --quick.")
    report("memory bandwidth")
    started, threads = time.perf_counter(), get_num_threads()
    machine = describe(threads)
    outcomes, busiest = [], 0.0
    with tempfile.TemporaryDirectory(prefix="hoplite-benchmarks-") as folder:
        for one in benchmarks:
            context = Context(
                quick=quick,
                threads=threads,
                bandwidth=1e9 * (machine.bandwidth_gb_s or 0.0),
                report=lambda what, name=one.name: report(f"{name}: {what}"),
                folder=Path(folder),
            )
            context.report("")
            others = OtherPrograms()
            began, outcome = time.perf_counter(), one.run(context)
            share = others.share()
            outcome.notes.append(f"it took {time.perf_counter() - began:.0f} s.")
            outcomes.append((one, judged(outcome, share)))
            busiest = max(busiest, share)
    return SuiteResult(machine, outcomes, time.perf_counter() - started, busiest)


def judged(outcome: Outcome, others: float) -> Outcome:
    """The outcome, without ratios and verdicts if other programs used too much of the CPU."""
    if others <= QUIET:
        return outcome
    figures = [replace(figure, ratio=None, judged=False) for figure in outcome.figures]
    note = f"other programs used {100 * others:.0f} % of the CPU meanwhile: times may be far off, "
    note += "so no ratio is shown and no goal judged; repeat it on an idle machine."
    return Outcome(figures, [*outcome.notes, note])


def table_rows(outcome: Outcome) -> list[list[str]]:
    """One row per figure, in the order of COLUMNS."""
    return [
        [
            one.case,
            _value(one.ours, one.unit),
            "-" if one.theirs is None else f"{one.peer}: {_value(one.theirs, one.unit)}",
            _ratio(one),
            "-" if one.goal is None else f"{one.goal.text}: {_verdict(one)}",
        ]
        for one in outcome.figures
    ]


def summary(result: SuiteResult) -> str:
    """How many goals were reached, and the seconds of the run."""
    verdicts = [one.passed for one in result.figures if one.goal is not None]
    reached, missed = verdicts.count(True), verdicts.count(False)
    open_ = f", {verdicts.count(None)} not judged" if None in verdicts else ""
    return f"{reached} of {reached + missed} goals reached{open_}; it took {result.seconds:.0f} s."


def suite_report(result: SuiteResult, made_by: str) -> Report:
    """The whole result, measured by the command ``made_by``."""
    goals = [
        [one.case, (one.peer or "-") if one.goal.of_ratio else "-", one.goal.text,
         f"{_ratio(one) if one.goal.of_ratio else _value(one.ours, one.unit)}, {_verdict(one)}"]
        for one in result.figures if one.goal is not None
    ]  # fmt: skip
    goal_table = Table("", ["case", "peer", "goal", "reached"], goals, folded=True)
    sections = [
        Section(
            benchmark.name,
            f"{benchmark.title} ({benchmark.name})",
            lines=outcome.notes,
            tables=[Table("", COLUMNS, table_rows(outcome))],
        )
        for benchmark, outcome in result.outcomes
    ]
    return Report(
        title="Benchmarks",
        headline=summary(result),
        findings=[
            f"Other programs used {100 * (result.machine.busy_before or 0.0):.0f} % of the CPU "
            f"before the run, and during a benchmark {100 * result.busiest:.0f} % at most.",
            RATIO_NOTE,
        ],
        sections=[Section("goals", "Goals", tables=[goal_table]), *sections],
        command=made_by,
        date=datetime.date.today().isoformat(),
        machine=result.machine,
    )


def _verdict(figure: Figure) -> str:
    return {True: "pass", False: "miss", None: "not judged"}[figure.passed]


def _ratio(figure: Figure) -> str:
    return "-" if figure.ratio is None else f"{_number(figure.ratio)}x"


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
