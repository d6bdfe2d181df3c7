"""The result of a search: its ranking under one of two protocols, and the chosen settings.

validation  the configuration with the best mean validation score; then, and only then, that one is
            trained again and scored on the test set
test        the configuration with the best mean test accuracy: optimistic, because it is biased by
            the choice itself, as in the paper's appendix
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hoplite.errors import HopliteError, IdleWarning, plural
from hoplite.files import without_nan
from hoplite.formatting import Described, Description, Table
from hoplite.formatting import number as number_text
from hoplite.graph import Graph
from hoplite.labels import label_type
from hoplite.models import model_defaults
from hoplite.models.trained import TrainedModel
from hoplite.plots import figure
from hoplite.plots.drawings import scores as plot_scores
from hoplite.search.trials import FinishedTrial
from hoplite.tasks import Metric, Task, task_of
from hoplite.tasks.base import title_of
from hoplite.training.results import TrainingResult, train
from hoplite.training.scoring import PROTOCOL, Scored, number

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MODEL = "model"  # the folder of the chosen model, next to the search's file
BIASED = "optimistic: settings chosen on the test set"
TOP = 5  # configurations in a table of the best


@dataclass(frozen=True)
class ConfigurationScores:
    """The scores of a configuration over its seeds; NaN if a trial has no finite result.

    Parameters
    ----------
    position : int
        Place of the configuration in the grid, from 0.
    options : dict
        The options of the configuration.
    scores : tuple of float
        Scores of the monitor, which choose; larger is better.
    val : tuple of float
        Validation accuracies, or ``scores`` if there are no classes.
    val_loss : float
        Mean loss at the best epochs, infinite if a trial has none.
    test : tuple of float
        Test accuracies; empty except under the protocol "test".
    seconds : float
        Time of all trials.
    epochs : int
        Number of epochs of all trials.

    Examples
    --------
    >>> ConfigurationScores(0, {"hops": 2}, (0.5, 0.75), (0.5, 0.75), 1.2).val_mean
    0.625
    """

    position: int  # position in the grid
    options: dict[str, Any]
    scores: tuple[float, ...]
    val: tuple[float, ...]
    val_loss: float
    test: tuple[float, ...] = ()
    seconds: float = 0.0
    epochs: int = 0  # epochs of all seeds

    @classmethod
    def of(
        cls, position: int, trials: Sequence[FinishedTrial], *, test: bool = False
    ) -> ConfigurationScores:
        """The scores of a configuration's trials.

        Parameters
        ----------
        position : int
            Place of the configuration in the grid.
        trials : sequence of FinishedTrial
            Its trials, one per seed.
        test : bool, default False
            Whether to use the test accuracies.

        Returns
        -------
        ConfigurationScores
        """
        scores = _numbers(trial.scores.score for trial in trials)
        accuracies = _numbers(trial.scores.val_accuracy for trial in trials)
        losses = _numbers((trial.scores.val_loss for trial in trials), math.inf)
        return cls(
            position=position,
            options=trials[0].trial.options,
            scores=scores,
            val=scores if np.isnan(accuracies).all() else accuracies,
            val_loss=float(np.mean(losses)),
            test=_numbers(trial.test_accuracy for trial in trials) if test else (),
            seconds=sum(trial.seconds for trial in trials),
            epochs=sum(trial.scores.epochs for trial in trials),
        )

    @property
    def lost(self) -> int:
        """Trials without a finite result."""
        return sum(math.isnan(value) for value in self.val)

    @property
    def val_mean(self) -> float:
        """Mean of ``val``."""
        return float(np.mean(self.val))

    @property
    def order(self) -> tuple[float, ...]:
        """What sorts configurations, the best first: by the test set if its scores were read."""
        means = (-_sum(self.test), -_sum(self.val)) if self.test else (-_sum(self.scores),)
        return self.lost, *means, self.val_loss


def rank(
    trials: Sequence[FinishedTrial], seeds: int, protocol: str = "validation"
) -> list[ConfigurationScores]:
    """The configurations of a search, best first; ``trials`` holds ``seeds`` of each in a row.

    Equal means are common, as the sets are small. Then the lower mean validation loss goes first,
    then the earlier in the grid; under the test protocol the higher validation accuracy before.
    Configurations with trials without a finite result come last, those with more of them later.
    """
    configurations = [
        ConfigurationScores.of(i, trials[i * seeds : (i + 1) * seeds], test=protocol == "test")
        for i in range(len(trials) // seeds)
    ]
    if all(configuration.lost == seeds for configuration in configurations):
        raise HopliteError(
            "every trial diverged, so none can be chosen; try lower learning rates, fewer hops "
            "or another operator."
        )
    return sorted(configurations, key=lambda configuration: configuration.order)


def _sum(values: tuple[float, ...]) -> float:
    """Their sum, the same whatever the order: means that are equal must compare as equal."""
    return round(math.fsum(value for value in values if not math.isnan(value)), 9)


def _numbers(values: Iterable[float | None], missing: float = math.nan) -> tuple[float, ...]:
    return tuple(missing if value is None else value for value in values)


@dataclass(frozen=True)
class _SavedScores:
    """What a saved model's training says about the search that chose it; None for NaN."""

    of: dict[str, Any]
    val: tuple[float | None, ...]
    test: tuple[float | None, ...]
    figures: dict[str, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult(Described, Scored):
    """The result of a search under one protocol; :func:`hoplite.search` returns it.

    Parameters
    ----------
    protocol : {"validation", "test"}
        How the best configuration was chosen.
    name : str
        Name of the model.
    graph : Graph
        The data.
    trials : list of FinishedTrial
        All trials in the order of the grid, including those of a first stage.
    ranking : list of ConfigurationScores
        Configurations, best first; for a search in two stages, those of the second.
    seeds : list of int
        The seeds.
    facts : dict
        Fingerprint of the data, and version of Hoplite.
    cut : str or None
        What the grid leaves out, as it says itself.
    folder : Path or None
        Folder of the search's file.

    Examples
    --------
    >>> import hoplite
    >>> result = hoplite.search("cora", "sgc", grid={"hops": [1, 2], "epochs": 3}, seeds=1)
    >>> len(result.ranking), sorted(result.best.options)[:2]
    (2, ['batch', 'bias'])
    """

    protocol: str
    name: str
    graph: Graph
    trials: list[FinishedTrial]
    ranking: list[ConfigurationScores]
    seeds: list[int]
    facts: dict[str, Any]
    cut: str | None = None
    folder: Path | None = None

    @cached_property
    def trained(self) -> TrainingResult:
        """The chosen configuration, trained again with all seeds and scored on the test nodes."""
        with warnings.catch_warnings():  # a grid may hold settings that have no effect in places
            warnings.simplefilter("ignore", IdleWarning)
            model = self.trials[0].trial.model
            task = label_type(self.graph.labels).task
            return train(self.graph, model, seeds=self.seeds, task=task, **self.best.options)

    @cached_property
    def _chosen(self) -> tuple[TrainedModel, _SavedScores]:
        """The model and its scores: from the folder if it has them, otherwise trained."""
        of = {"model": self.name, "options": self.best.options, "seeds": self.seeds, **self.facts}
        folder = None
        if self.folder is not None and self.protocol == "validation":
            folder = self.folder / MODEL
            with contextlib.suppress(HopliteError, ValueError):  # there is none, or a damaged one
                model, training = self._load(folder)
                saved = msgspec.convert(training.get("search"), _SavedScores)
                if saved.of == of and len(saved.val) == len(saved.test) == len(self.seeds):
                    return model, saved
        val, test = (
            tuple(number(run.scores[f"{part}_{self.task.score.name}"]) for run in self.trained.runs)
            for part in ("val", "test")
        )
        scores = _SavedScores(of, val, test, self.trained.figures())
        model = self._with(self.trained.model, dataclasses.asdict(scores))
        if folder is not None:
            model.save(folder, overwrite=True)
        return model, scores

    def _load(self, folder: Path) -> tuple[Any, dict[str, Any]]:
        """The model in a folder, and its record of the training."""
        model = TrainedModel.load(folder)
        return model, model.training

    def _with(self, model: Any, scores: dict[str, Any]) -> Any:
        """The model with the scores of this search."""
        return dataclasses.replace(model, training=model.training | {"search": scores})

    @property
    def model(self) -> TrainedModel:
        """The model of the chosen configuration, of the seed with the best validation score.

        It is stored next to the search's file, unless it was chosen on the test set.
        """
        return self._chosen[0]

    @property
    def best(self) -> ConfigurationScores:
        """The chosen configuration."""
        return self.ranking[0]

    @property
    def val(self) -> tuple[float, ...]:
        """Validation scores of the chosen configuration, trained again, one per seed.

        This reads the test set, as :attr:`test` does; ``best.val`` and ``best.val_mean`` do not.
        """
        return self.best.val if self.protocol == "test" else _numbers(self._chosen[1].val)

    @property
    def test(self) -> tuple[float, ...]:
        """Scores of the chosen configuration on the test nodes, one per seed."""
        return self.best.test if self.protocol == "test" else _numbers(self._chosen[1].test)

    def _scored(self, part: str) -> tuple[Task, float]:
        return self.task, float(np.mean(self.test if part == "test" else self.val))

    @property
    def task(self) -> Task:
        """What was learned."""
        return task_of(self.graph.labels)

    @property
    def monitor(self) -> Metric:
        """The metric by which configurations were compared under the protocol "validation"."""
        return self.task.monitor(self.best.options.get("monitor", "auto"))

    def monitored(self, configuration: ConfigurationScores) -> float:
        """Mean of :attr:`monitor` over the seeds of a configuration.

        Parameters
        ----------
        configuration : ConfigurationScores
            One of ``ranking``.

        Returns
        -------
        float
        """
        return self.monitor.rank(float(np.mean(configuration.scores)))

    @property
    def varied(self) -> list[str]:
        """The options in which the ranked configurations differ."""
        return [
            name
            for name, value in self.best.options.items()
            if any(other.options.get(name) != value for other in self.ranking)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """The options, seed and scores of each trial: ``pandas.DataFrame(result.rows())``.

        Returns
        -------
        list of dict
        """
        return [
            {
                **finished.trial.options,
                "seed": finished.trial.seed,
                "fold": finished.trial.fold,
                **dataclasses.asdict(finished.scores),
                "epochs": finished.trial.options["epochs"],
                "trained_epochs": finished.scores.epochs,
                **({"test_accuracy": finished.test_accuracy} if self.protocol == "test" else {}),
                "seconds": finished.seconds,
            }
            for finished in self.trials
        ]

    def table(self) -> dict[str, np.ndarray]:
        """The columns of :meth:`rows`.

        Returns
        -------
        dict of ndarray
            Missing numbers are NaN; values that are not numbers are text.
        """
        rows = self.rows()
        columns = {}
        for name in rows[0]:
            values = [row.get(name) for row in rows]
            type_: Any = np.float64 if None in values else None
            if not all(value is None or isinstance(value, int | float) for value in values):
                values, type_ = [None if v is None else str(v) for v in values], object
            columns[name] = np.array(values, type_)
        return columns

    def plot(self) -> Figure:
        """Mean and deviation of the validation score of every configuration, best first.

        Returns
        -------
        plotly.graph_objects.Figure
            Requires the extra ``plot``.
        """
        scores = [self.monitor.rank(np.array(c.scores)) for c in self.ranking]
        drawing = plot_scores(
            [float(values.mean()) for values in scores],
            [float(values.std()) for values in scores],
            [", ".join(f"{k} {c.options[k]}" for k in self.varied) for c in self.ranking],
            f"validation {title_of(self.monitor.name)}",
        )
        biased = ", in the order of the test set (biased)" if self.protocol == "test" else ""
        return figure(drawing, f"{self.name} on {self.graph.name}{biased}")

    @property
    def configurations(self) -> int:
        """Number of configurations trained; for a search in two stages, in the first stage."""
        return len({str(finished.trial.options) for finished in self.trials})

    def command(self, dataset: str, reading: Mapping[str, Any]) -> str:
        """The ``hoplite train`` command that repeats the choice.

        Parameters
        ----------
        dataset, reading
            As for :func:`train_command`.

        Returns
        -------
        str
        """
        model = self.trials[0].trial.model
        return train_command(dataset, model, self.best.options, len(self.seeds), reading)

    def summary(self) -> dict[str, Any]:
        """The choice and its scores.

        Returns
        -------
        dict
            Values for JSON; standard deviations are over the seeds (divided by n).
        """
        spreads = {
            f"{part}_{what}": float(statistic(values))
            for part, values in (("val", self.val), ("test", self.test))
            for what, statistic in (("mean", np.mean), ("std", np.std))
        }
        return without_nan(
            {
                "protocol": self.protocol,
                "biased": BIASED if self.protocol == "test" else None,
                "dataset": self.graph.name,
                "model": self.name,
                "configurations": self.configurations,
                "trials": len(self.trials),
                "diverged": sum(finished.scores.diverged for finished in self.trials),
                "cut": self.cut,
                "seeds": self.seeds,
                "config": self.best.options,
                **spreads,
                "val": self.val,
                "test": self.test,
                "minutes": sum(finished.seconds for finished in self.trials) / 60,
                "score": self.task.score.name,  # what val and test are
                "monitor": self.monitor.name,  # what configurations were compared by
                "monitor_mean": self.monitored(self.best),
                "figures": None if self.protocol == "test" else self._chosen[1].figures,
            }
        )

    def __repr__(self) -> str:
        best = ", ".join(f"{name} {self.best.options[name]}" for name in self.varied)
        biased = ", biased" if self.protocol == "test" else ""
        best = f"best: {best}" if best else "1 configuration"
        return f"SearchResult({self.name} on {self.graph.name}, {best}{biased})"

    def _describe(self) -> Description:
        varied, what, summary = self.varied, title_of(self.task.score.name), self.summary()
        size = f"{plural(self.configurations, 'configuration')} x {plural(len(self.seeds), 'seed')}"
        columns = [*varied, f"validation {self.monitor.title}"]
        rows = [
            [*(str(c.options.get(k)) for k in varied), self.monitor.format(self.monitored(c))]
            for c in self.ranking[:TOP]
        ]
        tables = [Table(columns, rows, f"{self.graph.name}: {self.name}, best of {size}")]
        if (figures := summary["figures"]) is not None:
            columns = ["mean", "std", "baseline"]
            parts = [figures[part] for part in columns]
            rows = [[title_of(k), *(number_text(p.get(k)) for p in parts)] for k in parts[0]]
            title = f"The chosen model on the {figures['nodes']} nodes"
            tables.append(Table(["", *columns], rows, title))
        notes = [
            f"Chosen by {self.protocol}, {title_of(self.monitor.name)}: test {what} "
            f"{format_spread(self.test)}, validation {format_spread(self.val)}"
        ]
        if self.protocol == "test":
            notes.append(f"The choice is {BIASED}.")
        if len(self.ranking) < self.configurations:
            notes.append(
                "Every configuration was trained with one seed, and the "
                f"{len(self.ranking)} best with all."
            )
        if self.best.options.get("refit"):
            notes.append(f"The test scores are those of models {PROTOCOL}, after the choice.")
        if summary["diverged"]:
            notes.append(f"Diverged: {summary['diverged']:,} of {len(self.trials):,} trials.")
        notes += [f"The grid is reduced: {self.cut}"] if self.cut else []
        return Description("SearchResult", tables=tables, notes=notes)


def format_spread(values: Sequence[float]) -> str:
    """Mean and deviation over the seeds.

    >>> format_spread([0.5, 0.7]), format_spread([math.nan])
    ('0.600 ± 0.100 over 2 seeds', 'not scored')
    """
    if np.isnan(values).all():
        return "not scored"
    spread = f" ± {float(np.std(values)):.3f} over {len(values)} seeds" if len(values) > 1 else ""
    return f"{float(np.mean(values)):z.3f}{spread}"


def train_command(
    dataset: str, model: str, options: Mapping[str, Any], seeds: int, reading: Mapping[str, Any]
) -> str:
    """Return the ``hoplite train`` command that repeats a configuration with the seeds 0, 1, ...

    Parameters
    ----------
    dataset, model : str
        The dataset and the model, as for the command.
    options : mapping
        Options of ``train``.
    seeds : int
        Number of seeds.
    reading : mapping
        Options with which the dataset was read; those that are None are left out.

    Returns
    -------
    str

    Examples
    --------
    >>> train_command("cora", "sgc", {"hops": 3}, 5, {})
    'hoplite train cora --model sgc --hops 3 --seeds 5'
    """
    defaults = model_defaults(model, options)
    defaults |= {"optimizer": model_defaults(model)["optimizer"]}  # the others follow from it
    changed = {name: value for name, value in options.items() if value != defaults.get(name)}
    return f"{changed_command(dataset, model, changed, reading)} --seeds {seeds}"


def changed_command(
    dataset: str, model: str, changed: Mapping[str, Any], reading: Mapping[str, Any]
) -> str:
    """A ``hoplite train`` command with options that are not defaults."""
    words = ["hoplite", "train", dataset, "--model", model]
    for name, value in {**changed, **reading}.items():
        flag = name.replace("_", "-")
        if isinstance(value, tuple | list):  # weights of classes
            value = ",".join(f"{class_}={weight:g}" for class_, weight in value)
        if isinstance(value, bool):
            words += [f"--{flag}"] * value or [f"--no-{flag}"] * (name in changed)
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)
