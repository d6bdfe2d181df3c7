"""``auto``: the simplest of the linear models that are as good as the best, by validation.

Candidates are trained in their order, one seed each, as :func:`hoplite.train` does, and compared as
it does (:mod:`hoplite.training.comparison`): first those that ``train`` itself compares if no model
is given, then those of a file. Of those that are worse than the best by at most a standard error,
and not worse than what ``train`` would choose, the one that learns the fewest numbers is chosen,
then the one of fewer hops, then the first. It is trained with all seeds, and only then the test
nodes are read.

The candidates are a TOML file of tables, each a model with values of its settings:

    [[try]]
    family = "PageRank"
    model = "ppr"
    hops = [5, 10]

A table is the product of its lists, the last key varying fastest, and belongs to a ``family``, by
default its model. Keys are the options of ``train``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import (
    ConfigError,
    GridError,
    HopliteError,
    HopliteWarning,
    nearest_hint,
    plural,
)
from hoplite.files import without_nan
from hoplite.formatting import Described, Description, Table
from hoplite.graph import Graph
from hoplite.labels import AUTO, label_type, warn_of_float_classes
from hoplite.models import all_settings, build_model, find_model, split_options
from hoplite.models.saved import CHOICE, check_target
from hoplite.models.settings import TABLE_OPTIONS
from hoplite.models.trained import TrainedModel
from hoplite.progress import steps_bar, watched
from hoplite.search.results import TOP, format_spread
from hoplite.search.rival import boosted_outputs
from hoplite.search.run import check_comparable, check_split, file_facts, full_options
from hoplite.search.sample import sample
from hoplite.search.space import (
    list_products,
    parse_toml,
    read_dimension,
    read_grid,
    read_text,
)
from hoplite.search.trials import FILE, SearchFile
from hoplite.store import open_data
from hoplite.structural import log_degrees_of
from hoplite.tasks import LOSS, Metric, Task, task_of
from hoplite.tasks.base import title_of
from hoplite.training.comparison import (
    Candidate,
    Comparison,
    as_good,
    default_candidates,
    default_choice,
    is_tables,
    standard_error,
    with_default_model,
)
from hoplite.training.results import TrainingResult, as_seeds, train
from hoplite.training.runs import OutOfTimeError, time_limit
from hoplite.training.scoring import Scored, ScoredRun, with_test_scores

log = logging.getLogger("hoplite.search")

BUDGET = "60s"
TRIALS_SHARE, RIVAL_SHARE = 0.6, 0.1  # shares of the time; the last training has the rest
SAMPLED_SHARE = 0.25  # share of trials on a sample: the last training takes much longer
LAST_SHARE = 0.95  # the last training ends then, as its model is still to be scored and saved
MIN_SHARE = 0.2  # least share of the budget that is left after reading
UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
RIVAL = "gradient boosting"

Report = Callable[[str, float], None]


def list_candidates(
    source: str | Path | None = None,
    fixed: Mapping[str, Any] | None = None,
    graph: Graph | None = None,
) -> tuple[list[Candidate], list[str]]:
    """The candidates of a file, by default Hoplite's own, in their order.

    Those of ``train`` for the ``graph`` come first, and one of each family. ``fixed`` options
    replace the candidates' wherever the model has them. Candidates that they make equal are tried
    once. Those that they, or the ``graph``, make impossible are left out; the second value says
    why.

    >>> candidates, _ = list_candidates()
    >>> candidates[0].family, candidates[0].options["hops"]
    ('labels of neighbours', 1)
    """
    fixed = dict(fixed or {})
    check_fixed(fixed)
    name = "auto" if source is None else str(source)
    listed = _parse(read_grid("auto") if source is None else read_text("candidates", source), name)
    models = list(dict.fromkeys(one.model for one in listed))
    for option in fixed:
        if not any(option in find_model(model).settings() for model in models):
            raise ConfigError(
                f"is not a setting of any candidate ({', '.join(models)}); leave it out, "
                "or train a model that accepts it.",
                option,
            )
    if source is None and graph is not None:
        listed = default_candidates(graph, TABLE_OPTIONS if is_tables(graph) else {}) + listed
        first = {one.family: one for one in reversed(listed)}
        listed.sort(key=lambda one: not one.default and one is not first[one.family])
    candidates: dict[str, Candidate] = {}
    left_out: dict[str, ConfigError] = {}
    for one in listed:
        own = find_model(one.model).settings()
        monitor = {"monitor": LOSS.name} if "monitor" in own and not one.default else {}
        options = monitor | one.options | {key: fixed[key] for key in fixed if key in own}
        listed_one = dataclasses.replace(one, position=len(candidates) + 1, options=options)
        try:
            settings = full_options(one.model, options)
            if graph is not None:
                _check_possible(listed_one, graph)
        except ConfigError as error:
            left_out.setdefault(f"{one.model}: {error}", error)
        else:
            candidates.setdefault(f"{one.model} {settings}", listed_one)
    if not candidates:
        raise next(iter(left_out.values()))
    own = [full_options(c.model, c.options) for c in candidates.values() if not c.default]
    check_comparable(own)
    return list(candidates.values()), list(left_out)


def _check_possible(candidate: Candidate, graph: Graph) -> None:
    """ConfigError if the candidate's model is not one for this graph."""
    config, training = split_options(candidate.model, candidate.options)
    task = task_of(graph.labels)
    task.check_consistency(training.consistency)
    outputs = task.outputs(graph.labels, graph.class_names)
    build_model(config, graph.num_features, outputs, graph.relation_weights)


def check_fixed(fixed: Mapping[str, Any]) -> None:
    """ConfigError for an option that is unknown, or whose value no model takes."""
    known = all_settings()
    for name, value in fixed.items():
        if name not in known:
            hint = nearest_hint(name, known)
            raise ConfigError(f"{name!r} is not an option of models or of training.{hint}")
        known[name].metadata["check"](name, value)


def _parse(text: str, name: str) -> list[Candidate]:
    """The candidates of a file, each checked."""
    content = parse_toml(text, f"candidates {name}")
    tables = content.pop("try", None)
    content.pop("note", None)
    if content or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise GridError(
            f"candidates {name} is not a file of candidates; it must contain tables [[try]], and "
            "optionally a note."
        )
    candidates = []
    for position, table in enumerate(tables, start=1):
        where = f"candidates {name}, table {position}"
        if not isinstance(table.get("model"), str):
            raise GridError(f"{where} has no model; add one, e.g. model = 'ppr'.")
        model = find_model(table.pop("model"))
        family = str(table.pop("family", model.title))
        branch = {key: read_dimension(key, value, where) for key, value in table.items()}
        for options in list_products([branch], where):
            try:
                full_options(model.name, options)
            except ConfigError as error:
                raise GridError(f"candidates {name}, {model.name}: {error}") from error
            named = tuple(options)
            candidates.append(Candidate(0, model.name, options, named, family))
    return candidates


def decide(tried: Sequence[Candidate]) -> tuple[Candidate, Candidate]:
    """The simplest of those as good as the best, and not worse than ``train``'s; and the best."""
    best = max(tried, key=lambda one: one.rank, default=None)
    if best is None or not best.ranks:
        raise HopliteError(
            "every candidate diverged or failed, so none can be chosen; try a lower lr, or other "
            "options."
        )
    default = default_choice(tried)
    least = -math.inf if default is None else default.rank
    equal = [one for one in tried if one.rank >= least and as_good(one, best)]
    return min(equal, key=lambda one: one.simplicity), best


def parse_seconds(value: Any) -> float:
    """The seconds that ``"60s"``, ``"1.5m"``, ``"2h"`` or a number means.

    >>> parse_seconds("60s"), parse_seconds("1.5m"), parse_seconds(7)
    (60.0, 90.0, 7.0)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    seconds = float(match[1]) * UNITS.get(match[2], 0) if match else 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"is {value!r}; it must be a positive time, e.g. 60s, 5m or 1h, or a number of "
            "seconds.",
            "budget",
        )
    return seconds


def parse_trials(value: Any) -> int | list[int]:
    """How many candidates to try, or their numbers, from 1; a comma makes one number a list.

    >>> parse_trials(3), parse_trials("1,2,5"), parse_trials("3,")
    (3, [1, 2, 5], [3])
    """
    match = re.fullmatch("[0-9]{1,6}(,[0-9]{1,6})*,?", str(value))
    numbers = [int(part) for part in match[0].split(",") if part] if match else [0]
    if min(numbers) < 1:
        raise ConfigError(
            f"is {value!r}; it must be a number of candidates to try, e.g. 12, or the "
            "candidates' own numbers, e.g. 1,2,5.",
            "trials",
        )
    return numbers if "," in str(value) else numbers[0]


def _select(listed: list[Candidate], wanted: int | list[int]) -> list[Candidate]:
    """The first ``wanted`` candidates, or those with these numbers."""
    if isinstance(wanted, int):
        return listed[:wanted]
    if max(wanted) > len(listed):
        raise ConfigError(
            f"trials contains {max(wanted)}, but there are {len(listed)} candidates for "
            f"this graph and these options; give numbers from 1 to {len(listed)}."
        )
    return [one for one in listed if one.position in wanted]


@dataclass(frozen=True, eq=False)
class AutoResult(Described, Scored):
    """The choice of :func:`hoplite.auto`, and what it tried.

    Parameters
    ----------
    trained : TrainingResult
        The chosen model with its test scores.
    chosen : Candidate
        The chosen candidate.
    candidates : list of Candidate
        All candidates, best first.
    why : str
        Why the candidate was chosen.
    advice : list of str
        Whether the edges help, and whether gradient boosting is better.
    rival : Candidate or None
        Gradient boosting on the same columns, if there was time.
    monitor : Metric
        The metric by which candidates were compared.
    budget : float or None
        The time budget in seconds.
    seconds : float
        The time used.
    budget_notes : list of str
        What was shortened to keep within the budget.
    left_out : list of str
        Candidates that do not work with the options or the graph.

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.io.synthetic(nodes=60, edges=120, features=4, classes=2, seed=1)
    >>> result = hoplite.auto(graph, trials=2, seeds=1)
    >>> len(result.candidates), result.chosen in result.candidates
    (2, True)
    """

    trained: TrainingResult
    chosen: Candidate
    candidates: list[Candidate]
    why: str
    advice: list[str]
    rival: Candidate | None
    monitor: Metric
    budget: float | None
    seconds: float
    budget_notes: list[str]
    left_out: list[str]

    @property
    def model(self) -> TrainedModel:
        """The chosen model, of the seed that is best on validation."""
        return self.trained.model

    def _scored(self, part: str) -> tuple[Task, float]:
        return self.trained._scored(part)

    @property
    def trials(self) -> str:
        """What repeats the choice: ``trials=result.trials``."""
        tried = sorted(one.position for one in self.candidates)
        if tried[-1] == len(tried):
            return str(len(tried))
        return f"{tried[0]}," if len(tried) == 1 else ",".join(map(str, tried))

    def summary(self) -> dict[str, Any]:
        """The choice, without the test nodes' scores.

        Returns
        -------
        dict
            Values for JSON.
        """
        names = ("why", "advice", "trials", "budget", "seconds", "budget_notes", "left_out")
        return without_nan(
            {
                "chosen": self.chosen.model,
                "options": self.chosen.options,
                "monitor": self.monitor.name,
                **{name: getattr(self, name) for name in names},
                "candidates": [one.as_dict() for one in self.candidates],
                "rival": None if self.rival is None else self.rival.as_dict(),
            }
        )

    def __repr__(self) -> str:
        return f"AutoResult({self.chosen}; {plural(len(self.candidates), 'candidate')})"

    def _describe(self) -> Description:
        score = self.trained.task.score
        facts = {"chosen": str(self.chosen)}
        names = self.trained.part_titles
        for part, name in names.items():
            values = [run.scores[f"{part}_{score.name}"] for run in self.trained.runs]
            facts[f"{name} {title_of(score.name)}"] = format_spread(values)
        tried = [*self.candidates[:TOP], *([] if self.rival is None else [self.rival])]
        facts["tried"] = f"{plural(len(self.candidates), 'candidate')} in {self.seconds:.3g} s"
        rows = [
            [one.family, str(one), self.monitor.format(one.val), score.format(one.score)]
            for one in tried
        ]
        titles = [f"{names['val']} {metric.title}" for metric in (self.monitor, score)]
        table = Table(["family", "candidate", *titles], rows)
        notes = [self.why, *self.advice, *self.budget_notes]
        return Description("AutoResult", facts, [table], notes)


def auto(
    data: Any,
    *,
    budget: str | float | None = None,
    trials: int | str | None = None,
    seeds: int | Sequence[int] = 5,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    candidates: str | Path | None = None,
    progress: bool | Report | None = False,
    task: str = AUTO,
    **options: Any,
) -> AutoResult:
    """Choose a linear model on validation, and train it.

    Parameters
    ----------
    data : Graph, path, or whatever else :func:`hoplite.train` accepts, except a hop store
        Without validation nodes, folds of the training nodes choose. With more than 10,000 labels,
        candidates are tried on a part of the graph, with the 100 most frequent columns.
    budget : str or float, default "60s"
        Time budget, such as "60s", "5m" or a number of seconds.
    trials : int or str, optional
        Number of candidates instead of a budget, such as 12, or which, such as "1,2,5" or "3,".
    seeds : int or sequence of int, default 5
        Seeds of the chosen model; candidates are compared with the first.
    out : path, optional
        Folder of the model; ``auto/search.sqlite`` in it has all trials. The same call continues.
    overwrite : bool, default False
        Replace an existing model in ``out``, and start again.
    candidates : path, optional
        A TOML file of candidates, see docs/searching.md.
    progress : bool or callable
        True for a progress bar, or a function to call with the step and its share.
    task, **options
        As for :func:`hoplite.train`; an option applies to all candidates that have it.

    Returns
    -------
    AutoResult
        With the ``trained`` result, all ``candidates``, and ``why`` one was chosen.

    Examples
    --------
    >>> import hoplite
    >>> result = hoplite.auto("cora", trials=2)
    >>> result.trials, [one.family for one in result.candidates]
    ('2', ['hop blocks', 'features alone'])
    """
    if budget is not None and trials is not None:
        raise ConfigError(
            f"is {budget!r} and trials is {trials!r}; pass only one of them.", "budget"
        )
    started, wanted = time.monotonic(), None if trials is None else parse_trials(trials)
    seconds = parse_seconds(BUDGET if budget is None else budget) if trials is None else None
    folder = None if out is None else Path(out) / CHOICE
    if out is not None and folder is not None:
        resumed = (folder / FILE).is_file()  # then the model is this call's own
        check_target(Path(out), overwrite=overwrite or resumed)
    list_candidates(candidates, options)  # mistakes are reported before any work
    opened, _, defaults = with_default_model(open_data(data, task=task), None, {})
    graph = opened.in_memory()
    warn_of_float_classes(graph.labels, task)
    check_split(graph)
    if seconds is not None:  # reading is part of it
        seconds = max(MIN_SHARE * seconds, seconds - (time.monotonic() - started))
    threshold = {name: value for name, value in defaults.items() if name == "threshold"}
    listed, left_out = list_candidates(candidates, threshold | options, graph)
    if wanted is not None:
        listed = _select(listed, wanted)
    if not graph.split.val.size and any(one.options.get("folds") == 0 for one in listed):
        raise ConfigError(
            "is 0, but without validation nodes only folds can compare; leave it out.", "folds"
        )
    call = {"trials": trials, "seeds": as_seeds(seeds), "options": options}
    call["candidates"] = [f"{one.model} {one.options}" for one in listed]
    call = json.loads(json.dumps(call, default=str))  # as a file gives it back
    if overwrite and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    with (
        watched(progress, steps_bar, "choosing a model") as report,
        SearchFile(folder, file_facts(graph) | call) as file,
    ):
        choice = _Choice(graph, listed, call["seeds"], file, seconds, report)
        result = choice.result(left_out)
    log.info("%s", result.why)
    if out is not None:
        kept = result.trained.summary() | {"auto": result.summary()}
        result.model.save(Path(out), overwrite=True, result=kept)
    return result


@dataclass
class _Progress:
    """What is decided so far, kept in the search's file."""

    seconds: float = 0.0
    tried: list[int] | None = None  # positions, once no more are tried


class _Choice:
    """One choice: the trials, the decision and the last training."""

    def __init__(
        self,
        graph: Graph,
        candidates: list[Candidate],
        seeds: list[int],
        file: SearchFile,
        budget: float | None,
        report: Report | None,
    ) -> None:
        self.graph, self.candidates, self.file, self.seeds = graph, candidates, file, seeds
        self.budget, self._report, self.notes = budget, report, list[str]()
        self.progress = file.fact("progress", _Progress) or _Progress()
        self._started = time.monotonic() - self.progress.seconds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # of classes: it was given before
            self.small, self.columns = sample(graph, seeds[0])
        self.sampled = self.columns is not None
        self.share = SAMPLED_SHARE if self.sampled else TRIALS_SHARE
        self.results: dict[int, TrainingResult] = {}  # results of this process, by position
        self.config = split_options(candidates[0].model, candidates[0].options)[1]
        self.monitor = task_of(graph.labels).monitor(self.config.monitor)
        self.comparison = Comparison(self.small, self.monitor, self.config.class_weight)

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share of the budget is spent, an interrupted call's included."""
        spent = time.monotonic() - self._started
        return math.inf if self.budget is None else share * self.budget - spent

    def report(self, what: str, share: float) -> None:
        """Say what is being done; with a budget, the share is that of the time."""
        share = share if self.budget is None else 1 - self.left() / self.budget
        if self._report is not None:
            self._report(what, min(share, 1.0))

    def keep(self, candidate: Candidate | None = None) -> None:
        """Write down what is decided, and the time."""
        if candidate is not None:
            self.file.keep_fact(f"trial {candidate.position}", candidate)
        self.progress.seconds = time.monotonic() - self._started
        self.file.keep_fact("progress", self.progress)

    def result(self, left_out: list[str]) -> AutoResult:
        """Try, decide, train."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # of classes that a sample lacks
            tried, rival = self.trials()
        first, best = decide(tried)
        order = sorted(tried, key=lambda one: -one.rank)
        why = _why(first, best, len(tried), self.monitor)
        chosen, trained = self.last_training(first, tried)
        if chosen is not first:
            why = (
                f"{chosen}, a default of train, was chosen: on all data it is better than {first}."
            )
        advice = self._advice(tried, best, rival)
        self.resample(trained)
        return AutoResult(
            trained=trained,
            chosen=dataclasses.replace(chosen, chosen=True),
            candidates=[dataclasses.replace(one, chosen=one is chosen) for one in order],
            why=why,
            advice=advice,
            rival=rival,
            monitor=self.monitor,
            budget=self.budget,
            seconds=time.monotonic() - self._started,
            budget_notes=self.notes,
            left_out=left_out,
        )

    def trials(self) -> tuple[list[Candidate], Candidate | None]:
        """Train the candidates that there is time for, and the rival after one of each family."""
        decided = self.progress.tried  # by a call that was interrupted
        tried, seen, rivals = list[Candidate](), set[str](), list[Candidate | None]()
        for i, candidate in enumerate(self.candidates):
            waiting = {one.family for one in self.candidates[i:]} - seen
            if not waiting and not rivals:
                rivals.append(self._rival())
            if candidate.default and not self.sampled:  # what `train` compares without a budget
                limit = self.left()
            else:
                limit = self.left(self.share) / max(1, len(waiting))
            limit = limit if tried else math.inf
            seen.add(candidate.family)
            if limit > 0 if decided is None else candidate.position in decided:
                self.report(str(candidate), i / len(self.candidates))
                known = self.file.fact(f"trial {candidate.position}", Candidate)
                one = known or self._try(candidate, limit)
                tried += [] if one is None else [one]
        if len(tried) < len(self.candidates):
            self.notes.insert(0, f"{len(tried)} of {len(self.candidates)} candidates were tried")
        self.progress.tried = [one.position for one in tried]
        self.keep()
        return tried, rivals[0] if rivals else self._rival()

    def _try(self, candidate: Candidate, limit: float) -> Candidate | None:
        """Train a candidate for at most ``limit`` seconds; None, and a note, if it has no result.

        One that is out of time is judged by its best epoch, or penalty, so far.
        """

        def train_small() -> ScoredRun:
            result = self._train_on(self.small, candidate)
            return self.results.setdefault(candidate.position, result).best_run

        try:
            with time_limit(limit, keep_best=True):
                candidate, _ = self.comparison.evaluate(candidate, train_small)
        except OutOfTimeError:
            self.notes.append(f"{candidate} did not finish in {limit:.1g} s")
            return None
        self.keep(candidate)
        return candidate

    def _train_on(self, graph: Graph, candidate: Candidate) -> TrainingResult:
        options: dict[str, Any] = dict(candidate.options)
        options |= {"refit": False} if "refit" in options else {}
        options |= {"task": label_type(graph.labels).task, "test": False}
        return train(graph, candidate.model, seeds=self.seeds[:1], **options)

    def _rival(self) -> Candidate | None:
        """Gradient boosting, of one class or number a node; None without time."""
        small, labels, split = self.small, self.small.labels, self.small.split
        known, started = self.file.fact("trial 0", Candidate), time.monotonic()
        limit = min(self.left(self.share + RIVAL_SHARE), (self.budget or math.inf) * RIVAL_SHARE)
        if known or labels.ndim > 1 or small.relations or limit <= 0 or not small.num_features:
            return known
        task = task_of(labels).fitted(labels[split.train], max(len(small.class_names), 1))
        outputs = boosted_outputs(small, task, self.config.folds, self.seeds[0], limit)
        if outputs is None:
            self.notes.append(f"there was no time for {RIVAL}")
            return None
        judged = labels[split.val if split.val.size else split.train]
        rival = Candidate(0, RIVAL, {}, family="comparison only")
        rival = self.comparison.scored(rival, task, judged, outputs)
        rival = dataclasses.replace(rival, seconds=time.monotonic() - started)
        self.keep(rival)
        return rival

    def last_training(
        self, chosen: Candidate, tried: list[Candidate]
    ) -> tuple[Candidate, TrainingResult]:
        """The chosen one on all data with all seeds, or with what the budget leaves time for.

        The model of the trial is the answer where nothing else would be learned, or in time. After
        trials on a sample the largest default of ``train`` is trained on all data first, as more
        can be learned from more labels; the better one of the two there is the answer.
        """
        _, config = split_options(chosen.model, chosen.options)
        known, seeds = self.results.get(chosen.position), self.seeds
        if config.optimizer == "path":
            seeds = seeds[:1]  # an optimum does not depend on it
        elif self.budget is not None:
            affordable = int(max(self.left(), 0.0) / max(chosen.seconds, 1e-3))
            seeds = seeds[: 1 if self.sampled else max(1, affordable)]
            if len(seeds) < len(self.seeds):
                self.notes.append(f"the chosen model was trained with {plural(len(seeds), 'seed')}")
        defaults = [one for one in tried if self.sampled and one.default and one.ranks]
        larger = max(defaults, key=lambda one: one.learned, default=chosen)
        finalists = [chosen] if larger is chosen else [larger, chosen]
        done: list[tuple[Candidate, TrainingResult]] = []
        if self.sampled or len(seeds) > 1 or config.refit or known is None:
            for one in finalists:
                self.report(f"{one}, all data", 1.0)
                last = known is None and not done and one is chosen
                limit = math.inf if last else self.left(LAST_SHARE)
                try:
                    with time_limit(limit, keep_best=True):
                        options = dict(one.options, task=label_type(self.graph.labels).task)
                        result = train(self.graph, one.model, seeds=seeds, **options)
                    done.append((one, result))
                except OutOfTimeError:
                    self.notes.append(f"there was no time to train {one} on all data")
            self.notes += [] if done else ["the model of its trial is used"]
        if done:
            return max(done, key=self._rank_of)
        assert known is not None
        run = dataclasses.replace(known.best_run, model=self._widened(known.model))
        run = with_test_scores(run, self.graph)
        return chosen, dataclasses.replace(known, graph=self.graph, runs=(run,))

    def _rank_of(self, pair: tuple[Candidate, TrainingResult]) -> float:
        """The rank on the validation nodes of a candidate that was trained on all data."""
        run = pair[1].best_run
        comparison = dataclasses.replace(self.comparison, data=self.graph)
        return comparison.scored(pair[0], run.task, *run.outputs["val"]).rank

    def resample(self, result: TrainingResult) -> None:
        """Find the intervals of the scores, which takes long for many classes, if there is time."""
        try:
            with time_limit(self.left()):
                result.intervals(result.reported_part)
        except OutOfTimeError:
            self.notes.append("there was no time for intervals of the scores")

    def _advice(
        self, tried: list[Candidate], best: Candidate, rival: Candidate | None
    ) -> list[str]:
        """Whether the edges help, and whether gradient boosting is better."""
        advice = []
        joined = any(one.hops and one.ranks for one in tried)  # those that failed show nothing
        alone = [one for one in tried if not one.hops and as_good(one, best)]
        if joined and alone and self._as_good_without_degrees(alone[0], best):
            advice.append(
                "The edges do not help: no candidate that uses them is better than the features "
                "alone by more than a standard error."
            )
        if rival is not None and rival.rank > best.rank and not as_good(best, rival):
            advice.append(
                "Gradient boosting on the same columns is better than every linear model: "
                f"{title_of(self.monitor.name)} {rival.val:.3g} against "
                f"{best.val:.3g}; docs/searching.md shows how to train it on HopFeatures."
            )
        return advice

    def _as_good_without_degrees(self, alone: Candidate, best: Candidate) -> bool:
        """Whether a candidate of 0 hops is as good without log degrees, which the edges give."""
        columns = np.arange(self.graph.num_features) if self.columns is None else self.columns
        own = columns < self.graph.num_features - len(log_degrees_of(self.graph))
        if own.all():
            return True
        again = dataclasses.replace(alone, ranks=())

        def train_without() -> ScoredRun:
            graph = self.small.with_features(self.small.features[:, own])
            return self._train_on(graph, alone).best_run

        try:
            with time_limit(self.left(), keep_best=True):
                again, _ = self.comparison.evaluate(again, train_without)
        except OutOfTimeError:
            return False
        return as_good(again, best)

    def _widened(self, model: TrainedModel) -> TrainedModel:
        """The model of a sample with the columns of all data; the weights of others are 0."""
        if self.columns is None:
            return model
        graph, theta = self.graph, model.weights["theta"]
        wide = np.zeros((*theta.shape[:-2], graph.num_features, theta.shape[-1]), theta.dtype)
        wide[..., self.columns, :] = theta
        return dataclasses.replace(
            model,
            weights=model.weights | {"theta": wide},
            fold_models=None,  # their weights do not have these columns
            num_features=graph.num_features,
            feature_names=graph.feature_names or None,
            preparation=graph.preparation,
        )


def _why(chosen: Candidate, best: Candidate, count: int, monitor: Metric) -> str:
    """The sentence that explains the choice."""
    if count == 1:
        return f"{chosen} was chosen: no other candidate finished in time; pass a larger budget."
    of = f"the best of {plural(count, 'candidate')}"
    start = f"{chosen} was chosen: its {title_of(monitor.name)} {chosen.val:.3g} is"
    if chosen is best:
        return f"{start} {of}, and no simpler candidate is as good."
    error = standard_error(best.ranks, chosen.ranks)
    return (
        f"{start} within a standard error, {error:.2g}, of {of} ({best}: {best.val:.3g}), and it "
        f"is simpler: it has {chosen.learned:,} parameters and {plural(chosen.hops, 'hop')}, the "
        f"best has {best.learned:,} and {best.hops}."
    )
