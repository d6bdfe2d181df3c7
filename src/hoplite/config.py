"""The configuration of training, and how its fields and those of models are declared and checked.

A field says in one place what it is: default, help and check. The options of the command
line, the arguments of the estimators and the dimensions of grids are read from there. Nothing here
imports a large library, so ``hoplite --help`` is fast.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hoplite.errors import (
    ConfigError,
    IdleWarning,
    by_interface,
    check_choice,
    nearest_hint,
    option_name,
)

EMBEDDED = ("cora", "citeseer", "pubmed")
REDDIT, REDDIT_LIKE = "reddit", "reddit-like"
NAMES = (*EMBEDDED, REDDIT, REDDIT_LIKE)  # names of datasets
FAMILIES = ("hops", "pool", "colours", "fourier")  # models of whole graphs
OPTIMIZERS = ("adam", "lbfgs", "path")
PRESETS = ("default", "paper", "authors")
MONITORS = ("auto", "accuracy", "loss", "auc", "ap", "f1", "r2", "mae")
LOSSES = ("auto", "squared", "huber")
TIES = ("loss", "first")
THRESHOLDS = ("balanced", "f1")  # or a number
ORDERS = ("auto", "weights-first", "hops-first")
GRIDS = ("paper", "reduced", "quick", "published", "default")  # spaces that come with Hoplite
PROTOCOLS = ("validation", "test")  # nodes by which a search chooses
EXECUTORS = ("threads", "processes")  # the workers of a search
# options that need X itself in every step; hop features do not suffice
NEED_FEATURES = ("dropout", "drop_nodes", "output_dropout", "consistency")
NEED_VALIDATION = ("threshold", "calibrate", "correct_smooth", "refit")
TABLE_FORMATS = (".parquet", ".csv")
MAX_HOPS = 100_000
MAX_LBFGS_RATE = 1e12  # the line search goes up to 1e25 times as far, and float32 up to 3e38
MAX_SEED = 2**63 - 1
MAX_COUNT = 2**53  # maximum number of epochs, rows
# headings of training settings in --help; the others are below "Training"
GROUPS = {
    "Output": "threshold calibrate refit folds",
    "Unlabelled nodes": "drop_nodes output_dropout draws consistency sharpen confidence "
    "correct_smooth",
}
MAX_FLOAT = sys.float_info.max  # a larger whole number is not a float, and neither is infinity
ClassWeights = tuple[tuple[str, float], ...]  # pairs of a class name and its weight


def setting(
    default: Any,
    help: str,
    check: Callable[[str, Any], Any] = lambda name, value: value,
    *,
    choices: Iterable[str] = (),
    **metadata: Any,
) -> Any:
    """A field of a :class:`Checked` configuration.

    Parameters
    ----------
    default, help
        Its default and its line in ``--help``.
    check : callable
        Takes the name and a value; returns the value to keep or raises ConfigError.
    choices : iterable of str
        Values that shells complete.
    **metadata
        Other facts of the field.
    """
    metadata |= {"help": help, "check": check, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=metadata)


def number_setting(
    default: float,
    help: str,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    *,
    open_ends: str = "",
) -> Any:
    """A number in [minimum, maximum], whole if the default is; see :func:`check_number`."""

    def check(name: str, value: Any) -> float:
        whole = type(default) is int
        check_number(name, value, minimum, maximum, whole=whole, open_ends=open_ends)
        return type(default)(value)

    return setting(default, help, check)


def choice_setting(default: str, help: str, allowed: Iterable[str], **metadata: Any) -> Any:
    """One of the texts ``allowed``."""
    names = tuple(allowed)
    check = partial(check_choice, allowed=names)
    return setting(default, help, check, choices=names, **metadata)


def flag_setting(default: bool, help: str) -> Any:
    """True or False."""

    def check(name: str, value: Any) -> bool:
        check_flag(name, value)
        return bool(value)

    return setting(default, help, check)


@dataclass(frozen=True)
class Checked:
    """A frozen dataclass whose fields are settings."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


def check_class_weight(name: str, value: Any) -> str | ClassWeights | None:
    """None, ``"balanced"``, or pairs of a class and its weight, from a mapping, pairs or a text.

    The text "none", for the command line and grids, is None.

    >>> check_class_weight("class_weight", {"fraud": 10}), check_class_weight("", "fraud=10,ok=1")
    ((('fraud', 10.0),), (('fraud', 10.0), ('ok', 1.0)))
    """
    if value is None or (isinstance(value, str) and value in ("none", "balanced")):
        return None if value == "none" else value
    try:
        pairs = (
            [pair.rsplit("=", 1) for pair in value.split(",")] if isinstance(value, str) else value
        )
        pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
        weights = tuple((str(class_).strip(), float(weight)) for class_, weight in pairs)
    except (TypeError, ValueError):
        weights = ()
    example = by_interface("{'fraud': 10, 'ok': 1}", "fraud=10,ok=1")
    if not weights or not all(0 <= weight <= MAX_FLOAT for _, weight in weights):
        raise ConfigError(
            f"is {value!r}; use 'balanced' or a weight of 0 or more for each class, such as "
            f"{example}.{nearest_hint(value, ['balanced'])}",
            name,
        )
    return weights


def check_threshold(name: str, value: Any) -> str | float:
    """``"balanced"``, ``"f1"``, or a probability between 0 and 1, which may be a text.

    >>> check_threshold("threshold", "f1"), check_threshold("threshold", "0.3")
    ('f1', 0.3)
    """
    if isinstance(value, str) and value in THRESHOLDS:
        return value
    try:
        probability = float(value)
    except (TypeError, ValueError):
        probability = 0.0
    if isinstance(value, bool) or not 0 < probability < 1:
        raise ConfigError(
            f"is {value!r}; it must be {', '.join(map(repr, THRESHOLDS))} or a number between "
            f"0 and 1.{nearest_hint(value, THRESHOLDS)}",
            name,
        )
    return probability


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """The settings of one training run, checked once; the defaults suit the citation graphs.

    Parameters
    ----------
    lr, weight_decay : float
        Learning rate, and the factor of the penalty ``weight_decay / 2 * ||weights||^2``.
    filter_lr_factor, filter_decay_factor : float
        The learning rate and the penalty of a learned filter, as multiples of those of Theta.
    dropout, drop_nodes, output_dropout : float
        Probabilities in [0, 1) that an entry of X, a whole row of X, or an entry of X Theta is set
        to 0 in a training step; the others are scaled so that the expectation does not change.
    draws : int
        Number of dropout masks in one step; the loss is their mean.
    consistency : float
        Factor of the penalty on differences between the predictions of the draws, over all nodes,
        labelled or not; see :func:`hoplite.training.objective.penalty`.
    sharpen : float
        Temperature of the mean prediction in that penalty; 0 for its largest class.
    confidence : float
        Smallest probability of the mean prediction with which a node counts in that penalty.
    optimizer : {"adam", "lbfgs", "path"}
        Adam as in the paper, or full-batch L-BFGS (one epoch is one call of up to 20 iterations),
        or a path of penalties, each solved to its optimum (one epoch is one penalty), for models
        that are linear in their weights; see :mod:`hoplite.training.path`.
    preset : {"default", "paper", "authors"}
        The defaults of other settings: the best known ones; those of the paper's experiments, with
        Adam and dropout for every model; or those of the model's authors, for JacobiConv.
    epochs, patience : int
        Maximum number of epochs; training stops after ``patience`` epochs without improvement.
    validate_every : int
        Score the validation nodes after every so many epochs, and after the last; only these epochs
        can be the best. The curves of the others are NaN.
    monitor : {"auto", "accuracy", "loss", "auc", "ap", "f1", "r2", "mae"}
        The validation score that chooses the epoch; "auto" is the accuracy for classes and the loss
        for numbers.
    tie : {"loss", "first"}
        Which of several epochs with equal scores is best: the one with the lower validation loss,
        or the first, as in the paper.
    loss : {"auto", "squared", "huber"}
        For regression: the squared error ("auto"), or Huber's, which is linear beyond one standard
        deviation of the training labels, so that outliers count less.
    class_weight : None, "balanced" or a mapping from class names to weights
        Weight of a node in the loss, by its class; "balanced" gives all classes the same total.
    threshold : float, "balanced" or "f1", default 0.5
        Probability from which the rarer of two classes is predicted: a number, or the one with the
        best balanced accuracy, or F1, on the validation nodes.
    calibrate : bool
        Divide the outputs by the temperature with the smallest log loss on the validation nodes;
        probabilities change, predictions do not.
    correct_smooth : bool
        Correct and Smooth the probabilities of classes with the labels of the training nodes; the
        validation nodes choose its settings, see :mod:`hoplite.models.labelprop`.
    refit : bool
        Train again on the training and the validation labels, for the best number of epochs; the
        validation scores stay those of the first training. ``hoplite train TABLES --out MODEL``
        does so by default if the tables have validation nodes.
    folds : int
        Number of folds of the training nodes that choose the epoch (the penalty for the optimizer
        "path") if there are no validation nodes; the model is then trained on all of them, see
        :mod:`hoplite.training.fit`. At least 2, and at most one for each node is made. With 0 the
        last epoch is kept.
    order : {"auto", "weights-first", "hops-first"}
        Evaluation order; "auto" takes the cheaper one.
    batch : int
        Training rows in one step of Adam; 0 for all. Mini-batches are rows of hop features, so
        they need dropout 0; the seed shuffles the rows.

    Examples
    --------
    >>> TrainingConfig(lr=0.2, dropout=0).epochs
    500
    """

    lr: float = number_setting(0.05, "Learning rate.", 0, open_ends="l")
    weight_decay: float = number_setting(5e-4, "L2 penalty.", 0)
    dropout: float = number_setting(
        0.5, "Dropout rate of the features X; 0 for a hop store.", 0, 1, open_ends="m"
    )
    drop_nodes: float = number_setting(0.0, "Dropout rate of whole nodes.", 0, 1, open_ends="m")
    output_dropout: float = number_setting(0.0, "Dropout rate of outputs.", 0, 1, open_ends="m")
    draws: int = number_setting(1, "Dropout masks per step.", 1, 1000)
    consistency: float = number_setting(
        0.0, "Weight of the penalty on differences between the draws.", 0
    )
    sharpen: float = number_setting(
        0.5,
        "Sharpening of the target of --consistency, from 1 (none) to 0 (only the most probable "
        "class).",
        0,
        1,
    )
    confidence: float = number_setting(
        0.0, "Minimum probability for a node to count in the penalty.", 0, 1
    )
    filter_lr_factor: float = number_setting(
        1.0, "Factor of --lr for the filter.", 0, open_ends="l"
    )
    filter_decay_factor: float = number_setting(1.0, "Factor of --weight-decay for the filter.", 0)
    optimizer: str = choice_setting(
        "adam",
        "adam, lbfgs, or path (solve a convex model for several penalties). Without this option, "
        "an option of adam, such as --lr, selects adam.",
        OPTIMIZERS,
    )
    preset: str = choice_setting(
        "default", "Source of the defaults: default, paper, or authors (jacobiconv).", PRESETS
    )
    epochs: int = number_setting(500, "Maximum number of epochs.", 1, MAX_COUNT)
    patience: int = number_setting(100, "Epochs without improvement before stopping.", 1, MAX_COUNT)
    validate_every: int = number_setting(1, "Epochs from one validation to the next.", 1, MAX_COUNT)
    monitor: str = choice_setting(
        "auto",
        "Validation score that selects the epoch: accuracy (auto), loss, auc, ap or f1; for "
        "regression loss (auto), r2 or mae.",
        MONITORS,
    )
    tie: str = choice_setting("loss", "Choice among equal scores: loss (lowest) or first.", TIES)
    loss: str = choice_setting("auto", "Loss of regression: squared (auto) or huber.", LOSSES)
    class_weight: str | ClassWeights | None = setting(  # noqa: RUF009 - it makes a field
        None,
        "Class weights in the loss: balanced, or NAME=WEIGHT,...",
        check_class_weight,
        choices=("none", "balanced"),
    )
    threshold: str | float = setting(
        0.5,
        "Probability from which to predict the rarer class; balanced or f1 (rare classes of "
        "tables) tune it.",
        check_threshold,
        choices=THRESHOLDS,
    )
    calibrate: bool = flag_setting(False, "Calibrate the probabilities on the validation nodes.")
    correct_smooth: bool = flag_setting(
        False, "Apply Correct and Smooth, tuned on the validation nodes."
    )
    refit: bool = flag_setting(
        False,
        "Train again with the validation labels; on for tables with --out, unless --no-refit.",
    )
    folds: int = number_setting(
        5, "Cross-validation folds if there is no validation split; 0 for none.", 0, 100
    )
    order: str = choice_setting(
        "auto", "Evaluation order: auto, weights-first or hops-first.", ORDERS
    )
    batch: int = number_setting(0, "Training rows per step of Adam; 0 for all.", 0, MAX_COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds == 1:
            raise ConfigError("is 1; use at least 2, or 0 for no cross-validation.", "folds")
        if self.optimizer == "lbfgs":
            check_number("lr", self.lr, 0, MAX_LBFGS_RATE, open_ends="l")
            self._require("optimizer", consistency=0, filter_lr_factor=1)
        if self.optimizer == "path":
            self._require("optimizer", **dict.fromkeys(NEED_FEATURES, 0), validate_every=1)
        if self.batch:
            self._require("batch", **dict.fromkeys(NEED_FEATURES, 0), optimizer="adam")
            if self.order == "weights-first":
                raise ConfigError("'weights-first' cannot be combined with batch.", "order")

    def _require(self, option: str, **needed: Any) -> None:
        """ConfigError unless the settings have the values that ``option`` needs."""
        for name, value in needed.items():
            if (current := getattr(self, name)) != value:
                raise ConfigError(
                    f"is {getattr(self, option)!r}, which requires {option_name(name, value)} "
                    f"instead of {current!r}.",
                    option,
                )

    @property
    def step_title(self) -> str:
        """What a run tries one after the other: penalties where it is solved, otherwise epochs."""
        return "penalty" if self.optimizer == "path" else "epoch"

    @property
    def drops(self) -> bool:
        """Whether a step drops anything, so that no two steps see the same features."""
        return bool(self.dropout or self.drop_nodes or self.output_dropout)

    @property
    def trades_accuracy(self) -> bool:
        """Whether accuracy is given up on purpose for classes that are rare."""
        return self.class_weight is not None or self.threshold != 0.5

    def check_validated(self, has_validation: bool, remedy: str) -> None:
        """ConfigError if an option needs validation nodes, or folds, and there are none."""
        for name in NEED_VALIDATION:
            value = getattr(self, name)
            tuned = value is True or isinstance(value, str)
            if tuned and not has_validation:
                raise ConfigError(f"requires a validation split or folds; {remedy}.", name)

    def warn_unused(self) -> None:
        """Warn of settings that have no effect without another one that is not given.

        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     TrainingConfig(sharpen=0.2).warn_unused()
        >>> str(caught[0].message)
        'sharpen= has no effect without consistency.'
        """
        reasons = {}
        if not self.consistency:
            reasons |= dict.fromkeys(("sharpen", "confidence"), "without consistency")
        if self.optimizer == "path":
            reason = f"with {option_name('optimizer', 'path')}; use adam"
            reasons |= dict.fromkeys(("lr", "weight_decay"), reason)
        if not self.drops:
            reasons["draws"] = "without dropout, drop_nodes or output_dropout"
        for field in dataclasses.fields(self):
            if field.name in reasons and getattr(self, field.name) != field.default:
                message = f"{option_name(field.name)} has no effect {reasons[field.name]}."
                warnings.warn(message, IdleWarning, stacklevel=3)


def check_hops(hops: int) -> int:
    """Return ``hops`` if it is an integer from 0 to 100,000."""
    check_number("hops", hops, 0, MAX_HOPS, whole=True)
    return int(hops)


def check_number(
    argument: str,
    value: Any,
    minimum: float,
    maximum: float = math.inf,
    *,
    whole: bool = False,
    open_ends: str = "",
) -> None:
    """Raise ConfigError unless ``value`` is a (whole) number in [minimum, maximum].

    ``open_ends`` may contain "l" (above minimum) and "m" (below maximum).
    """
    hint = ""
    types = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, types) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT:
        above = value > minimum if "l" in open_ends else value >= minimum
        below = value < maximum if "m" in open_ends else value <= maximum
        if above and below:
            return
        hint = f" Did you mean {value / 100:g}?" if maximum == 1 and 10 <= value < 100 else ""
    noun = "an integer" if whole else "a number"
    low, high = (f"{end:,}" if whole else f"{end:g}" for end in (minimum, maximum))
    beyond = isinstance(value, types) and value > maximum
    if minimum == maximum:
        allowed = low
    elif maximum < MAX_COUNT or beyond:
        left, right = "(" if "l" in open_ends else "[", ")" if "m" in open_ends else "]"
        ends = f"from {low} to {high}" if whole else f"in {left}{low}, {high}{right}"
        allowed = f"{noun} {ends}"
    else:
        low = f" {'above' if 'l' in open_ends else 'of at least'} {low}"
        allowed = noun + ("" if math.isinf(minimum) else low)
    raise ConfigError(f"is {value!r}; it must be {allowed}.{hint}", argument)


def check_flag(argument: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"is {value!r}; it must be True or False.", argument)
