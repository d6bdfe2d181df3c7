"""Settings: frozen dataclasses, checked once, written beside every result; and those of training.

A setting says in one place what it is: its default, its help and its check. The command line's
options and the estimators' arguments are made from that. Nothing here needs torch, so that the
command line can show its help at once.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.errors import ConfigError, IdleWarning, check_choice, nearest_hint

OPTIMIZERS = ("adam", "lbfgs")
MONITORS = ("auto", "accuracy", "loss", "auc", "ap", "f1", "r2", "mae")
LOSSES = ("auto", "squared", "huber")
TIES = ("loss", "first")
PAPER_DATASETS = ("cora", "citeseer", "pubmed", "reddit")
THRESHOLDS = ("half", "balanced", "f1")
# what needs X itself in every step, so that hop features are not enough
NEED_FEATURES = ("dropout", "drop_nodes", "output_dropout", "consistency")
ORDERS = ("auto", "weights-first", "hops-first")
TABLE_FORMATS = (".parquet", ".csv")
MOST_HOPS = 100_000
MOST_LBFGS_RATE = 1e12  # its line search goes up to 1e25 times as far, and float32 up to 3e38
MOST_SEED = 2**63 - 1
MOST_DRAWS = 1000
MOST_COUNT = 2**53  # of epochs, rows
ClassWeights = tuple[tuple[str, float], ...]  # pairs of a class name and its weight
LARGEST = sys.float_info.max  # a whole number beyond it is no float, and neither is infinity


def setting(
    default: Any,
    help: str,
    check: Callable[[str, Any], Any],
    *,
    store: str = "",
    late: bool = False,
    choices: Iterable[str] = (),
) -> Any:
    """A field of :class:`Checked`.

    ``check`` takes the name and a value, and gives the value as it is kept or raises ConfigError;
    ``store`` says what the default is where hop features come from a store, if it is another one;
    ``late``, that ledgers of searches exist that do not name it, so they leave out its default;
    ``choices``, the texts that it may be, for shells that complete them.
    """
    about = {"help": help, "check": check, "store": store, "late": late, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=about)


def number_setting(
    default: float,
    help: str,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    open_ends: str = "",
    store: str = "",
    late: bool = False,
) -> Any:
    """A number of [least, most], whole if the default is; ends as in :func:`check_number`."""

    def check(name: str, value: Any) -> float:
        check_number(name, value, least, most, whole=type(default) is int, open_ends=open_ends)
        return type(default)(value)

    return setting(default, help, check, store=store, late=late)


def choice_setting(
    default: str, help: str, allowed: Iterable[str], *, store: str = "", late: bool = False
) -> Any:
    """One of the texts ``allowed``."""
    names = tuple(allowed)

    def check(name: str, value: Any) -> str:
        return check_choice(name, value, names)

    return setting(default, help, check, store=store, late=late, choices=names)


def flag_setting(default: bool, help: str, *, late: bool = False) -> Any:
    """True or False."""

    def check(name: str, value: Any) -> bool:
        check_flag(name, value)
        return bool(value)

    return setting(default, help, check, late=late)


@dataclass(frozen=True)
class Checked:
    """A frozen dataclass whose fields are settings."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


def check_class_weight(name: str, value: Any) -> str | ClassWeights:
    """``"none"``, ``"balanced"``, or weights as pairs, given as a mapping, pairs or a text.

    >>> check_class_weight("class_weight", {"fraud": 10}), check_class_weight("", "fraud=10,ok=1")
    ((('fraud', 10.0),), (('fraud', 10.0), ('ok', 1.0)))
    """
    if value is None or (isinstance(value, str) and value in ("none", "balanced")):
        return value or "none"
    try:
        pairs = (
            [pair.rsplit("=", 1) for pair in value.split(",")] if isinstance(value, str) else value
        )
        pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
        found = tuple((str(class_).strip(), float(weight)) for class_, weight in pairs)
    except (TypeError, ValueError):
        found = ()
    if not found or not all(0 <= weight <= LARGEST for _, weight in found):
        raise ConfigError(
            f"{name} is {value!r}; it must be 'none', 'balanced' or a weight for each class, such "
            f"as fraud=10,ok=1, none negative.{nearest_hint(value, ('none', 'balanced'))}"
        )
    return found


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
        to 0 in a training step; what is kept is scaled so that expectations stay.
    draws : int
        Draws of what is dropped in one step; the loss is their mean.
    consistency : float
        Factor of the penalty that lets all nodes, labelled or not, be predicted alike in all draws,
        see :mod:`hoplite.training.consistency`.
    sharpen : float
        Temperature of the common prediction that the draws are drawn to; 0 for its largest class.
    confidence : float
        A node counts in that penalty where the common prediction has such a probability or more.
    optimizer : {"adam", "lbfgs"}
        Adam as in the paper, or full-batch L-BFGS (one epoch is one call of up to 20 iterations).
    epochs, patience : int
        At most ``epochs``; stop when none of the last ``patience`` was a better one.
    monitor : {"auto", "accuracy", "loss", "auc", "ap", "f1", "r2", "mae"}
        Which figure of the validation nodes tells a better epoch; "auto" is the task's usual one,
        of classes the accuracy, of numbers the loss.
    tie : {"loss", "first"}
        Which of epochs with equal figures is the better one: that with the lower validation loss,
        or the first, as in the paper.
    loss : {"auto", "squared", "huber"}
        Of numbers: the squared error ("auto"), or Huber's, which is linear beyond one deviation of
        the training nodes, so that wild values count less. Of labels there is one loss.
    class_weight : "none", "balanced" or a mapping from class names to weights
        What a node counts in the loss, by its class; "balanced" lets all classes count the same.
    threshold : {"half", "balanced", "f1"}
        From which probability on the rarer of two classes is predicted: 1/2, or that of the best
        balanced accuracy, or F1, on the validation nodes.
    calibrate : bool
        Divide the outputs by the temperature of the least log loss on the validation nodes, before
        they become probabilities; no prediction changes.
    correct_smooth : bool
        Correct and Smooth the probabilities of classes by the training nodes' labels, with settings
        that the validation nodes choose, see :mod:`hoplite.models.correct_smooth`.
    refit : bool
        Train again on the training and the validation labels, for as many epochs as were best; the
        validation figures stay those of the first training. It is another protocol.
    order : {"auto", "weights-first", "hops-first"}
        Evaluation order; "auto" takes the cheaper one. GCN and GAT have one order only.
    batch : int
        Rows of the training set in one step of Adam; 0 takes them all. Smaller batches need the
        hop features, so dropout 0, and their epochs shuffle the rows by the seed.
    """

    lr: float = number_setting(0.05, "Learning rate.", 0, open_ends="l")
    weight_decay: float = number_setting(5e-4, "L2 penalty.", 0)
    dropout: float = number_setting(
        0.5, "Dropout of the features, 0 to below 1.", 0, 1, open_ends="m", store="0 for a store"
    )
    drop_nodes: float = number_setting(
        0.0, "Dropout of whole nodes' features, 0 to below 1.", 0, 1, open_ends="m", late=True
    )
    output_dropout: float = number_setting(
        0.0, "Dropout of X Theta, 0 to below 1.", 0, 1, open_ends="m", late=True
    )
    draws: int = number_setting(1, "Draws of what is dropped in a step.", 1, MOST_DRAWS, late=True)
    consistency: float = number_setting(
        0.0, "Penalty of differences between the draws, over all nodes.", 0, late=True
    )
    sharpen: float = number_setting(
        0.5, "Temperature of what the draws are drawn to; 0: its largest class.", 0, 1, late=True
    )
    confidence: float = number_setting(
        0.0, "Least probability with which a node counts in that penalty.", 0, 1, late=True
    )
    filter_lr_factor: float = number_setting(
        1.0, "Learning rate of the filter, as a multiple of --lr.", 0, open_ends="l", late=True
    )
    filter_decay_factor: float = number_setting(
        1.0, "L2 penalty of the filter, as a multiple of --weight-decay.", 0, late=True
    )
    optimizer: str = choice_setting("adam", "adam or lbfgs.", OPTIMIZERS)
    epochs: int = number_setting(500, "At most so many epochs.", 1, MOST_COUNT)
    patience: int = number_setting(
        100, "Stop after so many epochs without a better one on validation.", 1, MOST_COUNT
    )
    monitor: str = choice_setting(
        "auto",
        "What tells a better epoch on validation: accuracy, loss, auc, ap, f1; of numbers loss, "
        "r2 or mae.",
        MONITORS,
        late=True,
    )
    tie: str = choice_setting(
        "loss", "Of equal epochs that of the lower validation loss, or the first.", TIES, late=True
    )
    loss: str = choice_setting("auto", "Of numbers: squared (auto) or huber.", LOSSES, late=True)
    class_weight: str | ClassWeights = setting(  # noqa: RUF009 - it makes a field
        "none",
        "Weights of classes in the loss: balanced, or NAME=WEIGHT,...",
        check_class_weight,
        late=True,
        choices=("none", "balanced"),
    )
    threshold: str = choice_setting(
        "half",
        "Of two classes, the rarer one's: half, or by validation balanced or f1.",
        THRESHOLDS,
        late=True,
    )
    calibrate: bool = flag_setting(
        False, "Fit a temperature of the probabilities on the validation nodes.", late=True
    )
    correct_smooth: bool = flag_setting(
        False, "Of classes: Correct and Smooth, its settings chosen by validation.", late=True
    )
    refit: bool = flag_setting(
        False,
        "Train again on training and validation labels, with the epochs that were best.",
        late=True,
    )
    order: str = choice_setting("auto", "auto, weights-first or hops-first.", ORDERS)
    batch: int = number_setting(0, "Training rows in one step of Adam; 0 for all.", 0, MOST_COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer == "lbfgs":
            check_number("lr", self.lr, 0, MOST_LBFGS_RATE, open_ends="l")
            self._check_lbfgs()
        if self.batch:
            self._check_batch()

    @property
    def drops(self) -> bool:
        """Whether a step drops anything, so that no two steps see the same features."""
        return bool(self.dropout or self.drop_nodes or self.output_dropout)

    @property
    def trades_accuracy(self) -> bool:
        """Whether accuracy is given up on purpose for classes that are rare."""
        return self.class_weight != "none" or self.threshold != "half"

    def check_validated(self, has_validation: bool, give: str) -> None:
        """ConfigError if a setting needs validation nodes and there are none; ``give`` some."""
        flags = {name: getattr(self, name) for name in ("calibrate", "correct_smooth", "refit")}
        wanted = {"threshold": self.threshold != "half", **flags}
        for name, needs in wanted.items():
            if needs and not has_validation:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}, which validation nodes choose, but there "
                    f"are none; {give}, or leave it out."
                )

    def warn_of_nothing(self) -> None:
        """Say which settings have no effect, as another one that they need is not given.

        A grid may hold them for its other cells; a single training should not.

        >>> with warnings.catch_warnings(record=True, action="always") as said:
        ...     TrainingConfig(sharpen=0.2).warn_of_nothing()
        >>> str(said[0].message)
        'sharpen is 0.2, which does nothing without consistency; give consistency, such as 1.'
        """
        if not self.consistency:
            for name in ("sharpen", "confidence"):
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    warnings.warn(
                        f"{name} is {getattr(self, name):g}, which does nothing without "
                        "consistency; give consistency, such as 1.",
                        IdleWarning,
                        stacklevel=3,
                    )
        if self.draws > 1 and not self.drops:
            warnings.warn(
                f"draws is {self.draws}, but nothing is dropped, so that all draws are the same; "
                "give dropout, drop_nodes or output_dropout.",
                IdleWarning,
                stacklevel=3,
            )

    def _check_lbfgs(self) -> None:
        for option, needed in (("consistency", 0), ("filter_lr_factor", 1)):
            if getattr(self, option) != needed:
                raise ConfigError(
                    f"{option} is {getattr(self, option)} but optimizer is 'lbfgs', which has none;"
                    f" leave it out, or set optimizer to 'adam'."
                )

    def _check_batch(self) -> None:
        for option, value, needed in (
            ("optimizer", self.optimizer, ("adam",)),
            *((name, getattr(self, name), (0,)) for name in NEED_FEATURES),
            ("order", self.order, ("auto", "hops-first")),
        ):
            if value not in needed:
                raise ConfigError(
                    f"batch is {self.batch} but {option} is {value!r}; steps on some rows are "
                    f"made with {option} {needed[0]!r} on hop features, so set it, or batch to 0."
                )


def check_hops(hops: int) -> int:
    """Return ``hops`` if it is a whole number from 0 to 100,000."""
    check_number("hops", hops, 0, MOST_HOPS, whole=True)
    return int(hops)


def check_number(
    argument: str,
    value: Any,
    least: float,
    most: float = math.inf,
    *,
    whole: bool = False,
    open_ends: str = "",
) -> None:
    """Raise ConfigError unless ``value`` is a (whole) number in [least, most].

    ``open_ends`` may hold "l" (more than least) and "m" (less than most).
    """
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, kinds) and not isinstance(value, bool) and abs(value) <= LARGEST:
        above = value > least if "l" in open_ends else value >= least
        below = value < most if "m" in open_ends else value <= most
        if above and below:
            return
    kind = "a whole number" if whole else "a number"
    low = f", larger than {least:g}" if "l" in open_ends else f", {least:g} or larger"
    low = "" if math.isinf(least) else low
    high = "" if math.isinf(most) else f" and {'below' if 'm' in open_ends else 'at most'} {most:g}"
    raise ConfigError(f"{argument} is {value!r}; it must be {kind}{low}{high}.")


def check_flag(argument: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{argument} is {value!r}; it must be True or False.")
