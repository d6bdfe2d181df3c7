"""All benchmarks by name, and the run that makes one result of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hoplite.errors import ConfigError, check_choice
from hoplite.lab.bench import (
    epoch,
    grid,
    hyper,
    large,
    large_cost,
    large_train,
    machine,
    many,
    product,
    scaling,
)
from hoplite.lab.bench.context import Context
from hoplite.lab.bench.records import Figure, Outcome
from hoplite.propagation.backend import get_num_threads


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
    Benchmark("epoch", "One epoch on Cora", epoch.run, epoch.QUICK, epoch.FULL),
    Benchmark("many", "Many runs at once on Cora", many.run, many.QUICK, many.FULL),
    Benchmark("hyper", "One epoch of hLGC on Cora", hyper.run, hyper.QUICK, hyper.FULL),
    Benchmark("grid", "The paper's grid of LGC on Cora", grid.run, None, grid.FULL),
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
        large_train.run_training,
        large_train.QUICK,
        large_train.FULL,
    ),
    Benchmark("large-cost", "The cost model", large_cost.run, large_cost.QUICK, large_cost.FULL),
)

# What runs now, and the share of all benchmarks that is done, from 0 to 1.
SuiteReport = Callable[[str, float], None]


@dataclass(frozen=True)
class SuiteResult:
    """Everything that was measured, and on what."""

    quick: bool
    machine: dict[str, Any]
    outcomes: list[tuple[Benchmark, Outcome]]
    seconds: dict[str, float]  # that each benchmark took

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
            "machine": self.machine,
            "benchmarks": [
                {
                    "name": benchmark.name,
                    "title": benchmark.title,
                    "figures": [figure.as_dict() for figure in outcome.figures],
                    "notes": outcome.notes,
                    "facts": outcome.facts,
                    "seconds": self.seconds[benchmark.name],
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
    """Run the benchmarks one after another; ``threads`` defaults to those that torch uses."""
    chosen = chosen_benchmarks(quick, only, available)
    threads = get_num_threads() if threads is None else threads
    report = progress or (lambda what, share: None)
    report("memory bandwidth", 0.0)
    facts = machine.describe(threads)
    outcomes: list[tuple[Benchmark, Outcome]] = []
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="hoplite-bench-") as folder:
        for index, benchmark in enumerate(chosen):
            context = Context(
                threads,
                1e9 * facts["bandwidth_gb_s"],
                lambda what, share, index=index, name=benchmark.name: report(
                    f"{name}: {what}", (index + share) / len(chosen)
                ),
                Path(folder),
            )
            size = benchmark.quick if quick else benchmark.full
            started = time.perf_counter()
            outcomes.append((benchmark, benchmark.run(context, size)))
            seconds[benchmark.name] = time.perf_counter() - started
    report("done", 1.0)
    return SuiteResult(quick, facts, outcomes, seconds)
