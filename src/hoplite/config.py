"""The settings of a model and of its training: checked once, frozen, written beside every result.

Nothing here needs torch, so that the command line can show its help at once.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.bases import find_basis
from hoplite.errors import ConfigError, check_choice, nearest_hint
from hoplite.kinds import MODEL_KINDS, Kind

MODELS = tuple(MODEL_KINDS)
GATES = ("node", "class", "feature")
OPERATORS = ("renormalized", "adjacency", "laplacian")
STARTS = ("random", "lowpass")
OPTIMIZERS = ("adam", "lbfgs")
ORDERS = ("auto", "weights-first", "hops-first")
TABLE_FORMATS = (".parquet", ".csv")
USED_BY = {  # which models have the settings that not all of them have
    name: tuple(kind.name for kind in MODEL_KINDS.values() if name in kind.settings)
    for name in dict.fromkeys(name for kind in MODEL_KINDS.values() for name in kind.settings)
}
MOST_HOPS = 100_000
MOST_LBFGS_RATE = 1e12  # its line search goes up to 1e25 times as far, and float32 up to 3e38
MOST_SEED = 2**63 - 1
MOST_COUNT = 2**53  # of epochs, rows
MOST_UNITS = 1_000_000  # hidden units, and heads: their product with the features is no overflow


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a linear graph convolution, checked once.

    Parameters
    ----------
    model : {"sgc", "egc", "lgc", "hlgc", "gcn", "gat"}
        Which coefficients are learned: none, one diffusion rate, one per hop, a gate per node; or
        a two-layer baseline: GCN on the same operator, GAT with attention on the graph's edges.
    hops : int
        The degree k of the polynomial. GCN and GAT have none, but two layers.
    operator : {"renormalized", "adjacency", "laplacian"}
        The matrix S. GAT has none.
    basis : str
        The polynomials whose coefficients LGC and hLGC learn, "monomial" or another one of
        :mod:`hoplite.bases`. SGC and EGC are defined by powers.
    start : {"random", "lowpass"}
        First values of the coefficients: the paper's, or a smoothing filter.
    gate : {"node", "class", "feature"}
        The reading of hLGC: the paper's equation, its experimental section, or the public
        experiments. Only hLGC uses it.
    hidden : int
        Hidden units of GCN, and of each head of GAT. Only these two use it.
    heads : int
        Attention heads of GAT's first layer. Only GAT uses it.
    bias, standardize : bool
        Add b to the logits (GCN and GAT always do); scale each logit column to mean 0 and std 1
        over the nodes first.

    A setting that the model does not have must be left at its default.
    """

    model: str = "lgc"
    hops: int = 10
    operator: str = "renormalized"
    basis: str = "monomial"
    start: str = "random"
    gate: str = "class"
    hidden: int = 16
    heads: int = 8
    bias: bool = False
    standardize: bool = False

    def __post_init__(self) -> None:
        check_choice("model", self.model, MODELS)
        check_choice("operator", self.operator, OPERATORS)
        check_choice("start", self.start, STARTS)
        check_choice("gate", self.gate, GATES)
        basis = find_basis(self.basis)
        object.__setattr__(self, "basis", str(basis))
        object.__setattr__(self, "hops", check_hops(self.hops))
        check_number("hidden", self.hidden, 1, MOST_UNITS, whole=True)
        check_number("heads", self.heads, 1, MOST_UNITS, whole=True)
        check_flag("bias", self.bias)
        check_flag("standardize", self.standardize)
        if not basis.powers and self.kind.of_powers:
            raise ConfigError(
                f"basis is {self.basis!r} but {self.model} is defined by powers of the operator; "
                "use basis 'monomial', or model 'lgc'."
            )
        _refuse_idle(self.model, self)

    @property
    def kind(self) -> Kind:
        """What the model is: linear or not, and so on."""
        return MODEL_KINDS[self.model]


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of one training run, checked once; the defaults suit the citation graphs.

    Parameters
    ----------
    lr, weight_decay : float
        Learning rate, and the factor of the penalty ``weight_decay / 2 * ||weights||^2``.
    dropout : float
        Probability in [0, 1) that an entry of X is set to 0 in a training step.
    optimizer : {"adam", "lbfgs"}
        Adam as in the paper, or full-batch L-BFGS (one epoch is one call of up to 20 iterations).
    epochs, patience : int
        At most ``epochs``; stop when validation accuracy has not risen for ``patience`` of them.
    order : {"auto", "weights-first", "hops-first"}
        Evaluation order; "auto" takes the cheaper one. GCN and GAT have one order only.
    batch : int
        Rows of the training set in one step of Adam; 0 takes them all. Smaller batches need the
        hop features, so dropout 0, and their epochs shuffle the rows by the seed.
    """

    lr: float = 0.05
    weight_decay: float = 5e-4
    dropout: float = 0.5
    optimizer: str = "adam"
    epochs: int = 500
    patience: int = 100
    order: str = "auto"
    batch: int = 0

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("order", self.order, ORDERS)
        most = MOST_LBFGS_RATE if self.optimizer == "lbfgs" else math.inf
        check_number("lr", self.lr, 0, most, open_ends="l")
        check_number("weight_decay", self.weight_decay, 0)
        check_number("dropout", self.dropout, 0, 1, open_ends="m")
        check_number("epochs", self.epochs, 1, MOST_COUNT, whole=True)
        check_number("patience", self.patience, 1, MOST_COUNT, whole=True)
        check_number("batch", self.batch, 0, MOST_COUNT, whole=True)
        if self.batch:
            self._check_batch()

    def _check_batch(self) -> None:
        for option, value, needed in (
            ("optimizer", self.optimizer, ("adam",)),
            ("dropout", self.dropout, (0,)),
            ("order", self.order, ("auto", "hops-first")),
        ):
            if value not in needed:
                raise ConfigError(
                    f"batch is {self.batch} but {option} is {value!r}; steps on some rows are "
                    f"made with {option} {needed[0]!r} on hop features, so set it, or batch to 0."
                )


def split_options(model: str, options: dict[str, Any]) -> tuple[ModelConfig, TrainingConfig]:
    """Sort ``options`` into the two configurations; an unknown name gets the nearest suggested."""
    fields = {
        kind: {f.name for f in dataclasses.fields(kind)} for kind in (ModelConfig, TrainingConfig)
    }
    known = set().union(*fields.values())
    for name in options:
        if name not in known:
            raise ConfigError(f"{name!r} is not an option of train.{nearest_hint(name, known)}")
    chosen = {
        kind: {name: value for name, value in options.items() if name in names}
        for kind, names in fields.items()
    }
    config = ModelConfig(model, **chosen[ModelConfig])
    training = TrainingConfig(**chosen[TrainingConfig])
    check_batch(config, training)
    _refuse_idle(model, training)
    return config, training


def idle_settings(model: Any) -> set[str]:
    """The settings that ``model`` does not have; none for a name that is not a model's.

    >>> sorted(idle_settings("gcn"))
    ['basis', 'bias', 'gate', 'heads', 'hops', 'order', 'start']
    """
    return {name for name, models in USED_BY.items() if model in MODELS and model not in models}


def _refuse_idle(model: str, config: ModelConfig | TrainingConfig) -> None:
    """A setting that the model would ignore is a mistake, not a wish."""
    idle = idle_settings(model)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in idle and value != field.default:
            raise ConfigError(
                f"{field.name} is {value!r} but {model} has no {field.name}; "
                f"leave it out, or use {' or '.join(USED_BY[field.name])}."
            )


def check_batch(config: ModelConfig, training: TrainingConfig) -> None:
    """Raise ConfigError if the model needs all nodes in every step, and a step has only some."""
    if training.batch and not config.kind.linear:
        raise ConfigError(
            f"batch is {training.batch} but {config.model} needs the whole graph in every step; "
            "set batch to 0, or use a linear model."
        )
    if training.batch and config.standardize:
        raise ConfigError(
            f"batch is {training.batch} but standardize needs the mean and deviation over all "
            "nodes in every step; set batch to 0, or leave out standardize."
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
    if isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < math.inf:
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
