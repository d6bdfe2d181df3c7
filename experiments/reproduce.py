"""The paper's experiments: searches, chosen models, random splits, times and filters.

A search per model and dataset, over the paper's grid or the part of it that we can afford. Settings
are chosen on validation, trained again with all that the report shows, and compared on random
splits that nothing was chosen on; apart from that, settings are chosen on the test set, as in the
paper's appendix, which is biased.
"""

from __future__ import annotations

import datetime
import os
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hoplite
from benchmarks.machine import OtherPrograms, describe
from benchmarks.measure import Contestant, Effort, race
from experiments import paper
from experiments import results as schema
from experiments.results import RESULTS, load_results, mean_and_std, paired, write_results
from experiments.trainings import (
    CORES,
    CURVES_ON,
    Details,
    Report,
    Scores,
    Training,
    Trainings,
    by_validation,
    opened,
)
from hoplite import ConfigError, HopliteError, frequency_response, spectral_density
from hoplite.errors import check_choice
from hoplite.models import split_options

WHOLE = ("sgc", "egc", "lgc", "gcn")  # searched over the paper's whole grid
POLYNOMIAL = ("sgc", "egc", "lgc", "hlgc")
FULL = Path(__file__).parents[1] / "results"
SLOW = ("gat", "hlgc")
TIMED_GATE = "class"  # the paper's experimental section; the benchmarks have the others
SPLITS = 20
SIZES = {"per_class": 20, "val": 500, "test": 1000}  # those of the public splits
BASE = "lgc"
SPECTRUM_POINTS = 201


@dataclass(frozen=True)
class Job:
    """One model on one dataset with the grid that it is searched over."""

    dataset: str
    model: str
    grid: str
    gate: str | None = None

    @property
    def about(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "model": self.model, "gate": self.gate}

    @property
    def fixed(self) -> dict[str, Any]:
        return {} if self.gate is None else {"gate": self.gate}

    def configurations(self) -> list[dict[str, Any]]:
        """All that is tried; of equal epochs the first is kept, as in the paper."""
        found = paper.space(self.grid).configurations(self.dataset, self.model, self.fixed)
        return [{**one, "tie": "first"} for one in found]

    def training(self, options: dict[str, Any], seeds: Sequence[int], **more: Any) -> Training:
        return Training(f"{self.dataset}-public", self.model, options, tuple(seeds), **more)


def full_jobs(datasets: Sequence[str]) -> list[Job]:
    """The cheap grids first, so that an interrupted run has something to show."""
    whole = [Job(data, model, "paper") for data in datasets for model in WHOLE]
    cut = [Job(data, "gat", "reduced") for data in datasets]
    gates = ("class", "node", "feature")
    return whole + cut + [Job(d, "hlgc", "reduced", gate) for gate in gates for d in datasets]


def quick_jobs(datasets: Sequence[str]) -> list[Job]:
    """One configuration each, of hLGC on Cora alone with the gate that the grid names."""
    gate = paper.quick_options(CURVES_ON, "hlgc")["gate"]
    check = [Job(CURVES_ON, "hlgc", "quick", gate)] * (CURVES_ON in datasets)
    return check + [Job(data, model, "quick") for model in ("gat", *WHOLE) for data in datasets]


@dataclass(frozen=True)
class Chosen:
    """What is known of a job: the chosen options, their scores, and its entries of the tables."""

    job: Job
    options: dict[str, Any]
    scores: Scores
    entries: list[schema.Accuracy]

    @property
    def details(self) -> Details:
        assert self.scores.details is not None
        return self.scores.details


def reproduce(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    gates: Sequence[str] | None = None,
    seeds: int = 5,
    workers: int = CORES,
    report: Report = lambda what, share: None,
) -> schema.Results:
    """Run the paper's experiments into ``out`` and return the results (``results.json``).

    A call that was interrupted is continued by the same call: every training is kept in
    ``trainings.sqlite``.

    Parameters
    ----------
    quick : bool, default False
        Train one given configuration of each model, without a search.
    datasets, models, gates : list of str, optional
        Run these alone, and keep what ``out`` has of the others. Times are measured again for all
        models, unless some gates of hLGC are run alone.
    seeds : int, default 5
        Runs of each configuration.
    workers : int
        Processes.
    report : function of str and float
    """
    folder = Path(out)
    for name in datasets or ():
        check_choice("datasets", name, paper.DATASETS)
    for name in models or ():
        check_choice("models", name, paper.MODELS)
    names = [name for name in paper.DATASETS if not datasets or name in datasets]
    jobs = quick_jobs(names) if quick else full_jobs(names)
    jobs = [job for job in jobs if _selected(job, names, models, gates)]
    command = ["python", "-m", "experiments", "reproduce", *["--quick"] * quick]
    results = schema.Results(
        kind="quick" if quick else "full",
        command=shlex.join([*command, "--out", folder.name]),
        datasets=names,
        seeds=seeds,
        provenance=schema.Provenance(datetime.date.today().isoformat(), describe(CORES)),
    )
    old = _kept(folder, results, lambda entry: not _selected(entry, names, models, gates))
    kept = {*names, *old.datasets}
    results = replace(
        results,
        datasets=[name for name in paper.DATASETS if name in kept],
        timing=[one for one in old.timing if one.dataset not in names],
        spectrum=[one for one in old.spectrum if one.dataset not in names],
        comparison=old.comparison,
    )
    if quick and (not models or "hlgc" in models):
        full = load_results(FULL).of("validation")
        old.accuracy.extend(one for one in full if one.model == "hlgc" and one.dataset in names)
    chosen: list[Chosen] = []
    with opened(folder / "trainings.sqlite", None, workers, report) as trainings:
        searches = (_searched(trainings, job, seeds) for job in jobs)
        for one in _quick(trainings, jobs, seeds) if quick else searches:
            chosen.append(one)
            entries = [entry for each in chosen for entry in each.entries]
            results = replace(
                results,
                accuracy=[*old.accuracy, *entries],
                curves=[*old.curves, *loss_curves(chosen)],
                coefficients=[*old.coefficients, *coefficients(chosen)],
            )
            write_results(results, folder)
        if not quick:
            compared = compare(trainings, results.of("validation"), old.comparison)
            results = replace(results, comparison=compared)
    for name in names:
        report(f"{name}: times and spectrum", 0.0)
        graph = hoplite.load(name)
        own = [entry for entry in results.of("validation") if entry.dataset == name]
        times = [one for one in old.timing if one.dataset == name]
        times = times if gates and times else time_models(graph, own, quick=quick)
        before = next((one for one in old.spectrum if one.dataset == name), None)
        shown = spectrum(name, graph, chosen, before)
        results = replace(
            results, timing=[*results.timing, *times], spectrum=[*results.spectrum, shown]
        )
    write_results(results, folder)
    return results


def _selected(
    one: Any, datasets: Sequence[str], models: Sequence[str] | None, gates: Sequence[str] | None
) -> bool:
    """Whether a job is to be run, or an entry of the results is made again."""
    return (
        one.dataset in datasets
        and (not models or one.model in models)
        and (not gates or one.gate in gates)
    )


def _kept(folder: Path, new: schema.Results, keeps: Callable[[Any], bool]) -> schema.Results:
    """What ``folder`` has of what is not run now; another type of run is refused."""
    if not (folder / RESULTS).exists():
        return schema.Results()
    old = load_results(folder)
    if (old.kind, old.seeds) != (new.kind, new.seeds):
        raise ConfigError(f"{folder} has another run ({old.command}); give another folder.")
    names = ("accuracy", "curves", "coefficients", "comparison")
    others = {name: list(filter(keeps, getattr(old, name))) for name in names}
    spectra = [replace(one, responses=list(filter(keeps, one.responses))) for one in old.spectrum]
    return replace(old, **others, spectrum=spectra)


def _quick(trainings: Trainings, jobs: list[Job], seeds: int) -> list[Chosen]:
    """Train the one configuration that the quick grid has of each; hLGC's is only a check."""
    options = [job.configurations()[0] for job in jobs]
    wanted = [
        job.training(one, range(1 if job.gate else seeds), details=True)
        for job, one in zip(jobs, options, strict=True)
    ]
    chosen = []
    for job, one, scores in zip(jobs, options, trainings.run(wanted), strict=True):
        protocol = schema.CHECK if job.gate else "validation"
        entry = accuracy(job, protocol, one, scores, 1, len(scores.val))
        chosen.append(Chosen(job, one, scores, [entry]))
    return chosen


def _searched(trainings: Trainings, job: Job, seeds: int) -> Chosen:
    """Search, choose on validation, train the chosen one; then, apart, choose on the test set.

    With a ``screen`` in two stages: all configurations with the first seed, without the test nodes,
    and the best of them with all seeds.
    """
    tried, minutes, runs = job.configurations(), 0.0, 0
    left = tried
    screen = paper.space(job.grid).screen(job.dataset, job.model, job.fixed)
    if screen is not None and screen < len(tried) and seeds > 1:
        first = trainings.run([job.training(one, [0], test=False) for one in tried])
        order = sorted(range(len(tried)), key=lambda i: by_validation([first[i]]))
        left = [tried[i] for i in order[:screen]]
        minutes, runs = sum(one.cpu_seconds for one in first) / 60, len(first)
    scores = trainings.run([job.training(one, range(seeds)) for one in left])
    minutes += sum(one.cpu_seconds for one in scores) / 60
    runs += seeds * len(left)
    best = min(range(len(left)), key=lambda i: by_validation([scores[i]]))
    biased = min(range(len(left)), key=lambda i: _by_test(scores[i]))
    (seen,) = trainings.run([job.training(left[best], range(seeds), details=True)])
    size = len(tried), runs, minutes
    entries = [
        accuracy(job, "validation", left[best], seen, *size),
        accuracy(job, "test", left[biased], scores[biased], *size),
    ]
    return Chosen(job, left[best], seen, entries)


def _by_test(scores: Scores) -> tuple[int, float, float]:
    test = mean_and_std(scores.test)[0]
    return scores.test.count(None), -(test or 0.0), by_validation([scores])[1]


def accuracy(
    job: Job,
    protocol: str,
    options: dict[str, Any],
    scores: Scores,
    configurations: int,
    runs: int,
    minutes: float | None = None,
) -> schema.Accuracy:
    """An entry of the tables from the scores of each seed, and the size of its search."""
    (val, val_std), (test, test_std) = mean_and_std(scores.val), mean_and_std(scores.test)
    if val is None or test is None:
        raise HopliteError(
            f"{job.model} on {job.dataset} diverged with the settings {options}; give a grid with "
            "lower learning rates."
        )
    cut = paper.space(job.grid).cut(job.dataset, job.model, job.fixed)
    return schema.Accuracy(
        **job.about, protocol=protocol, grid=job.grid, cut=cut, configurations=configurations,
        runs=runs, minutes=minutes, config=options, seeds=list(range(len(scores.val))),
        val_mean=val, val_std=val_std, test_mean=test, test_std=test_std or 0.0, val=scores.val,
        test=scores.test, command=train_command(job, options, len(scores.val)),
        date=datetime.date.today().isoformat(), hoplite=hoplite.__version__,
    )  # fmt: skip


def train_command(job: Job, options: dict[str, Any], seeds: int) -> str:
    """The command that repeats a configuration with the seeds 0, 1, ...

    A gate is always named, as the default may change.

    >>> train_command(Job("cora", "lgc", "paper"), {"hops": 3, "weight_decay": 5e-4}, 5)
    'hoplite train cora --model lgc --hops 3 --weight-decay 0.0005 --seeds 5'
    >>> train_command(Job("cora", "hlgc", "paper", "class"), {"hops": 3}, 5)
    'hoplite train cora --model hlgc --gate class --hops 3 --seeds 5'
    """
    words = ["hoplite", "train", job.dataset, "--model", job.model]
    for name, value in {**job.fixed, **options, "seeds": seeds}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def compare(
    trainings: Trainings, chosen: Sequence[schema.Accuracy], old: Sequence[schema.OnSplits] = ()
) -> list[schema.OnSplits]:
    """hLGC against LGC: what was chosen, on the same random splits, split s with seed s.

    Datasets of which LGC, or every gate, is missing are left out. What ``old`` has is kept.
    """
    entries = []
    for name in paper.DATASETS:
        own = [entry for entry in chosen if entry.dataset == name]
        base, gates = [e for e in own if e.model == BASE], [e for e in own if e.gate]
        entries += [*base, *gates] if base and gates else []
    kept = {(one.dataset, one.model, one.gate): one for one in old}
    wanted = [
        Training(f"{e.dataset}-public", e.model, e.config, (split,), split=split, random=SIZES)
        for e in entries
        if (e.dataset, e.model, e.gate) not in kept
        for split in range(SPLITS)
    ]
    scores = iter(trainings.run(wanted))
    pairs, base, found = sum(e.model != BASE for e in entries), [], []
    for entry in entries:
        if (before := kept.get((entry.dataset, entry.model, entry.gate))) is not None:
            val, test = before.val, before.test
        else:
            own = [next(scores) for _ in range(SPLITS)]
            val, test = [one.val[0] for one in own], [one.test[0] for one in own]
        base = test if entry.model == BASE else base
        mean, std = mean_and_std(test)
        difference = None if entry.model == BASE else paired(test, base, pairs)
        scored = {"val": val, "test": test, "test_mean": mean, "test_std": std}
        found.append(schema.OnSplits(**entry.about, **scored, difference=difference))
    return found


def loss_curves(chosen: list[Chosen]) -> list[schema.LossCurves]:
    """Of the first seed, on the one dataset that they are shown for."""
    return [
        schema.LossCurves(
            **one.job.about,
            config=one.options,
            best_epoch=one.details.best_epoch,
            **one.details.curves,
        )
        for one in chosen
        if one.job.dataset == CURVES_ON and one.job.model in POLYNOMIAL
    ]


def coefficients(chosen: list[Chosen]) -> list[schema.Coefficients]:
    """Of the models that learn them: SGC's only coefficient is 1."""
    found = []
    for one in chosen:
        runs = aligned(one.details.coefficients)
        if one.job.model != "sgc" and len(runs):
            values = {"mean": runs.mean(axis=0).tolist(), "std": runs.std(axis=0).tolist()}
            values |= {"node_std": one.details.node_std or None, "seeds": list(range(len(runs)))}
            found.append(schema.Coefficients(**one.job.about, **values))
    return found


def spectrum(
    name: str, graph: hoplite.Graph, chosen: list[Chosen], old: schema.Spectrum | None = None
) -> schema.Spectrum:
    """Density of the operator's eigenvalues, and each learned filter over them, after ``old``."""
    points, density = spectral_density(graph, "renormalized", SPECTRUM_POINTS)
    responses = list(old.responses) if old and old.points == points.tolist() else []
    for one in chosen:
        runs = aligned(one.details.coefficients)
        if one.job.dataset == name and len(runs):
            config = split_options(one.job.model, one.options)[0].fitted(graph)
            about = {"basis": config.basis, "operator": config.operator}
            each = [frequency_response(c, points, **about) for c in runs]
            each = [response / (np.abs(response).max() or 1.0) for response in each]
            mean, std = np.mean(each, axis=0).tolist(), np.std(each, axis=0).tolist()
            responses.append(schema.Response(**one.job.about, mean=mean, std=std))
    return schema.Spectrum(
        dataset=name, operator="renormalized", points=points.tolist(), density=density.tolist(),
        responses=responses,
    )  # fmt: skip


def aligned(runs: Any) -> np.ndarray:
    """The finite runs of (R, k + 1) with the signs that make their sums positive.

    A filter and its negative are one model, as Theta takes the other sign.
    """
    values = np.array(runs or [[]], dtype=np.float64)  # None becomes NaN
    values = values[np.isfinite(values).all(axis=1)] if values.size else values[:0]
    return values * np.where(values.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def time_models(
    graph: hoplite.Graph, chosen: list[schema.Accuracy], *, quick: bool = False
) -> list[schema.Timing]:
    """Milliseconds per epoch of the chosen settings with the paper's degree or hidden units.

    Set-up is shared out over the epochs, as in the paper. Models take turns; both sides do the same
    work, a training step and a validation pass.
    """
    epochs, slow, rounds = (30, 10, 3) if quick else (200, 50, 7)
    gates = {one.model: one.gate for one in chosen}  # any, but the timed one if it is there
    gates |= {one.model: one.gate for one in chosen if one.gate == TIMED_GATE}
    own = [one for one in chosen if one.gate == gates[one.model]]

    def seconds(one: schema.Accuracy, count: int) -> float:
        """Of an epoch, the mean of a training of ``count``."""
        options = one.config | paper.size(one.model, one.dataset)
        fixed = {**options, "epochs": count, "patience": count}
        return hoplite.train(graph, one.model, **fixed).ms_per_epoch / 1000

    counts = {one.model: slow if one.model in SLOW else epochs for one in own}
    contestants = [
        Contestant(one.model, partial(seconds, one, counts[one.model]), partial(seconds, one, 2))
        for one in own
    ]
    others = OtherPrograms()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hoplite.HopliteWarning)  # one may diverge; its time counts
        samples = race(contestants, Effort(rounds, 300.0), CORES)
    busy, found = others.share(), []
    for one in own:
        low, middle, high = np.percentile(samples.seconds[one.model], [25, 50, 75]).tolist()
        config = one.config | paper.size(one.model, one.dataset)
        times = {"ms_median": 1e3 * middle, "ms_low": 1e3 * low, "ms_high": 1e3 * high}
        found.append(schema.Timing(**one.about, **times, config=config, threads=CORES, others=busy))
    return found
