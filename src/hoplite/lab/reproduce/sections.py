"""The parts of the results file, made from what the jobs found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hoplite.errors import HopliteError
from hoplite.filters import frequency_response
from hoplite.graph import Graph
from hoplite.kinds import MODEL_KINDS
from hoplite.lab.reproduce.jobs import CURVES_ON, Job
from hoplite.selection import Ledger, runs_table, train_command
from hoplite.spectrum import spectral_density

SPECTRUM_POINTS = 201


@dataclass
class Found:
    """What is known of one job: its chosen options, what they gave, its entries of the table."""

    job: Job
    options: dict[str, Any]
    seen: dict[str, Any]
    entries: list[dict[str, Any]]
    ledger: Ledger | None = None


def accuracy_entry(
    job: Job,
    protocol: str,
    options: dict[str, Any],
    seen: dict[str, Any],
    sizes: dict[str, Any],
) -> dict[str, Any]:
    """An entry of the section ``accuracy``; ``seen`` has the figures of each seed."""
    val, test, seeds = (list(seen[name]) for name in ("val", "test", "seeds"))
    if any(value is None or not math.isfinite(value) for value in (*val, *test)):
        raise HopliteError(
            f"{job.name}: the chosen configuration diverges with one of the seeds {seeds}, so it "
            "has no mean accuracy; give a grid with lower learning rates."
        )
    return {
        "protocol": protocol,
        "dataset": job.dataset,
        "model": job.model,
        "gate": job.gate,
        "grid": job.grid,
        "cut": None,
        **sizes,
        "config": options,
        "seeds": seeds,
        "val_mean": float(np.mean(val)),
        "val_std": float(np.std(val)),
        "test_mean": float(np.mean(test)),
        "test_std": float(np.std(test)),
        "val": val,
        "test": test,
        "command": train_command(job.dataset, job.model, options, len(seeds)),
    }


def learned_sections(found: list[Found]) -> dict[str, list[dict[str, Any]]]:
    """The sections ``curves`` and ``coefficients``."""
    curves, coefficients = [], []
    for one in found:
        about = {key: getattr(one.job, key) for key in ("dataset", "model", "gate")}
        about["config"] = one.options
        learned = one.seen["coefficients"]
        if learned is None:
            continue
        if one.job.dataset == CURVES_ON:
            first = {"seed": one.seen["seeds"][0], "best_epoch": one.seen["best_epoch"]}
            curves.append({**about, **first, **one.seen["curves"]})
        runs = _aligned(learned["runs"])
        known = MODEL_KINDS[one.job.model].coefficients
        if len(runs) and (known is None or known.learned):  # SGC's only coefficient is 1
            coefficients.append(
                {
                    **about,
                    "seeds": one.seen["seeds"],
                    "mean": runs.mean(axis=0).tolist(),
                    "std": runs.std(axis=0).tolist(),
                    "runs": runs.tolist(),
                    "node_std": learned["node_std"],
                }
            )
    return {"curves": curves, "coefficients": coefficients}


def spectrum_entry(name: str, graph: Graph, found: list[Found]) -> dict[str, Any]:
    """Density of the operator's eigenvalues, and each learned filter over them."""
    points, density = spectral_density(graph, "renormalized", SPECTRUM_POINTS)
    responses = []
    for one in found:
        learned = one.seen["coefficients"]
        if one.job.dataset != name or learned is None:
            continue
        basis, operator = one.options["basis"], one.options["operator"]
        each = [
            _scaled(frequency_response(c, points, basis=basis, operator=operator))
            for c in _aligned(learned["runs"])
        ]
        if not each:
            continue
        responses.append(
            {
                "model": one.job.model,
                "gate": one.job.gate,
                "config": one.options,
                "mean": np.mean(each, axis=0).tolist(),
                "std": np.std(each, axis=0).tolist(),
            }
        )
    return {
        "dataset": name,
        "operator": "renormalized",
        "points": points.tolist(),
        "density": density.tolist(),
        "responses": responses,
    }


def all_runs(found: list[Found]) -> pa.Table:
    """Every run of every search; test accuracies are not among them."""
    tables = []
    for one in found:
        if one.ledger is None:
            continue
        table = runs_table(one.ledger)
        for position, (key, value) in enumerate(
            (("dataset", one.job.dataset), ("model", one.job.model))
        ):
            table = table.add_column(position, key, pa.array([value] * len(table)))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default")


def _aligned(runs: Any) -> np.ndarray:
    """The finite runs of (R, k + 1) with the signs that make their sums positive.

    A filter and its negative are one model, as Theta takes the other sign; a mean over seeds that
    fell to either side would say nothing.
    """
    values = np.array(runs, dtype=np.float64)  # None, a value that was not finite, becomes NaN
    values = values[np.isfinite(values).all(axis=1)]
    return values * np.where(values.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def _scaled(response: np.ndarray) -> np.ndarray:
    """The response over its largest size: only shapes can be compared."""
    largest = np.abs(response).max()
    return response / largest if largest > 0 else response
