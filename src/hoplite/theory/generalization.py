"""What a trained model's own norms promise about nodes that it has not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError, GraphError, plural
from hoplite.graph import Graph
from hoplite.models.alignment import labels_in
from hoplite.models.linear import LinearModel
from hoplite.models.trained import TrainedModel, check_trained
from hoplite.theory.complexity import DRAWS
from hoplite.theory.function_class import FunctionClass, check_bounds

STEPS = 80  # sizes 2^(r/2), r = -80 .. 80, of the classes that are tried
RISK_OF_DRAWS = 0.01  # share of delta for the Monte Carlo estimate


@dataclass(frozen=True)
class Generalization:
    """A bound on the error on unseen nodes, with all its terms and the measured errors.

        bound = margin_loss + complexity_term + confidence_term

    Attributes
    ----------
    bound : float
        The bound; it holds with probability 1 - ``delta``.
    vacuous : bool
        Whether the bound is 1 or more, so that it guarantees nothing.
    delta : float
        Probability with which the bound may fail.
    nodes : int
        Number L of training nodes.
    margin_scale : float
        rho, the margin from which a node does not contribute to ``margin_loss``.
    margin_loss : float
        Mean over the training nodes of min(1, max(0, 1 - margin of the node / rho)).
    complexity_term : float
        4 C R, where R (``unit_complexity``) is the complexity of the class of norm 1.
    confidence_term : float
        3 sqrt(ln(2 / delta_j) / 2L).
    coefficient_norm : float
        ``||alpha||_inf``; ``|beta|`` for egc, 1 for sgc.
    weight_norms : tuple of float
        ``||Theta_c||_1`` of each class.
    train_error, test_error, gap : float
        Measured errors, and their difference; the last two are None without test labels.
    test_interval : tuple of float
        Interval of the error on all nodes like the test nodes, with probability 1 - delta
        (Clopper and Pearson).

    Examples
    --------
    >>> import hoplite
    >>> from hoplite.theory import generalization
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> found = generalization(model, graph)
    >>> terms = found.margin_loss, found.complexity_term, found.confidence_term
    >>> found.nodes, found.bound == sum(terms)
    (140, True)
    """

    bound: float
    vacuous: bool
    delta: float
    nodes: int
    margin_scale: float
    margin_loss: float
    complexity_term: float
    confidence_term: float
    unit_complexity: float
    coefficient_norm: float
    weight_norms: tuple[float, ...]
    train_error: float
    test_error: float | None
    test_interval: tuple[float, float] | None
    gap: float | None

    def sentence(self) -> str:
        """The statement in plain words.

        Returns
        -------
        str
        """
        sure = f"{100 * (1 - self.delta):g} %"
        if self.vacuous:
            head = (
                f"The bound on the error is {self.bound:.2f}, which is vacuous (no error exceeds "
                f"1): {plural(self.nodes, 'training node')} and these norms guarantee nothing"
            )
        else:
            head = (
                f"With {sure} confidence the error on unseen nodes is at most "
                f"{100 * self.bound:.1f} %"
            )
        if self.test_error is None or self.test_interval is None or self.gap is None:
            return f"{head}; there are no test labels to compare with."
        low, high = self.test_interval
        return (
            f"{head}. Measured: {100 * self.train_error:.1f} % error on the training nodes, "
            f"{100 * self.test_error:.1f} % on the test nodes ({sure} interval {100 * low:.1f} to "
            f"{100 * high:.1f}), a gap of {100 * self.gap:.1f} points."
        )


def generalization(
    model: TrainedModel,
    graph: Graph,
    *,
    delta: float = 0.05,
    draws: int = DRAWS,
    seed: int = 0,
) -> Generalization:
    """Bound the error of a trained model on unseen nodes, with probability 1 - delta.

    Parameters
    ----------
    model : TrainedModel
        An SGC, EGC, LGC or fixed filter.
    graph : Graph
        The graph of the training.
    delta : float, default 0.05
        Probability with which the bound may fail.
    draws : int, default 2000
        Random draws of the estimate of the complexity.
    seed : int, default 0
        Seed of the draws.

    Returns
    -------
    Generalization

    Notes
    -----
    The probability is over the L training nodes, as if they were drawn independently from the nodes
    on which the error is measured; graph and features are given. For all integers j, with
    C = 2^(j/2), rho = W / C and W = ``||alpha||_inf sum_c ||Theta_c||_1`` (plus the bias),

        error <= margin loss at rho + 4 C R + 3 sqrt(ln(2 / delta_j) / 2L)

    at once, so the smallest bound is used. The proof is in docs/theory.md.

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> generalization(model, graph, draws=50).vacuous
    True
    """
    check_number("delta", delta, 0, 1, open_ends="lm")
    coefficient, weights = norms(model)
    if not model.task.exclusive:
        raise ConfigError(
            f"the model is for {model.task.labels.task}, but the bound requires one class per node."
        )
    config = model.config
    assert issubclass(config.kind, LinearModel)  # norms refuses others
    if config.standardize:
        raise ConfigError("no bound is known for standardised outputs; train without standardize.")
    graph = model.aligned(graph)
    train, labels = graph.split.train, labels_in(graph, model.class_names)
    if not train.size:
        raise GraphError("the graph has no labelled training nodes, which the bound requires.")
    logits = model.logits(graph).astype(np.float64)
    leads = _leads(logits[train], labels[train])
    norm, coefficient_limit, tries = sum(weights), 1.0, 1.0
    facts = config.kind.facts
    if facts.homogeneous:  # alpha is scaled to norm 1, and Theta the other way
        norm *= coefficient
    elif facts.exponential:
        coefficient_limit, tries = _rate_limit(coefficient)
    if "bias" in model.weights:
        norm += float(_absolute(model.weights["bias"]).sum())
    unit = FunctionClass(
        graph,
        config,
        nodes=train,
        coefficient_bound=coefficient_limit,
        bias="bias" in model.weights,
        outputs=model.num_classes,
    )
    risk = RISK_OF_DRAWS * delta
    sampled = unit.estimate(draws, seed=seed, confidence=1 - risk)
    complexity = min(unit.bound(), sampled.high)
    best = min(
        (
            _terms(r, leads, norm, complexity, (delta - risk) * tries)
            for r in range(-STEPS, STEPS + 1)
        ),
        key=lambda terms: sum(terms[1:]),
    )
    margin, margin_loss, class_term, confidence_term = best
    total = margin_loss + class_term + confidence_term
    wrong = float(np.mean(logits[train].argmax(axis=1) != labels[train]))
    test_error, interval = _measured(logits, labels, graph.split.test, delta)
    return Generalization(
        bound=total,
        vacuous=total >= 1,
        delta=delta,
        nodes=len(train),
        margin_scale=margin,
        margin_loss=margin_loss,
        complexity_term=class_term,
        confidence_term=confidence_term,
        unit_complexity=complexity,
        coefficient_norm=coefficient,
        weight_norms=tuple(weights),
        train_error=wrong,
        test_error=test_error,
        test_interval=interval,
        gap=None if test_error is None else test_error - wrong,
    )


def norms(model: TrainedModel) -> tuple[float, tuple[float, ...]]:
    """Compute the norms of a model's weights.

    Parameters
    ----------
    model : TrainedModel
        An SGC, EGC, LGC or fixed filter.

    Returns
    -------
    float
        ``||alpha||_inf``; ``|beta|`` for egc, otherwise 1.
    tuple of float
        ``||Theta_c||_1`` of each class.

    Examples
    --------
    >>> import hoplite
    >>> model = hoplite.train("cora", "sgc", hops=2, epochs=5).model
    >>> coefficient_norm, weight_norms = norms(model)
    >>> coefficient_norm, len(weight_norms)
    (1.0, 7)
    """
    check_trained(model)
    model_class = check_bounds(model.config)
    if model.parts_:
        raise ConfigError(
            "no bound is known for models with a polynomial per direction or edge type; train "
            "without directed and type."
        )
    if model.config.neighbour_labels:
        raise ConfigError("has no known bound; train without it.", "neighbour_labels")
    learned = model_class.facts.learned
    coefficient = float(_absolute(model.weights[learned]).max()) if learned else 1.0
    return coefficient, tuple(_absolute(model.weights["theta"]).sum(axis=0).tolist())


def _absolute(weight: np.ndarray) -> np.ndarray:
    return np.abs(np.asarray(weight, np.float64))


def _rate_limit(rate: float) -> tuple[float, float]:
    """The limit of ``|beta|`` for the class, and the share of the risk that belongs to it.

    Theta cannot make up for beta, so the class has the next power of sqrt(2) as its limit.
    """
    step = max(-STEPS, math.ceil(2 * math.log2(rate))) if rate > 0 else -STEPS
    return max(rate, 2.0 ** (step / 2)), _share(step)


def _share(step: int) -> float:
    """Parts of 1 for all whole numbers: their sum is 3/4.

    >>> sum(_share(step) for step in range(-1000, 1001)) < 0.75
    True
    """
    return 1 / (2 * (abs(step) + 1) * (abs(step) + 2))


def _terms(
    step: int, leads: np.ndarray, norm: float, unit: float, delta: float
) -> tuple[float, float, float, float]:
    size = 2.0 ** (step / 2)
    margin = norm / size
    loss = np.clip(1 - leads / margin, 0, 1) if margin > 0 else (leads <= 0).astype(float)
    slack = 3 * math.sqrt(math.log(2 / (delta * _share(step))) / (2 * len(leads)))
    return margin, float(loss.mean()), 4 * size * unit, slack


def _leads(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The right class's logit minus the highest other: (rows,)."""
    rows = np.arange(len(labels))
    others = logits.copy()
    others[rows, labels] = -np.inf
    return logits[rows, labels] - others.max(axis=1)


def _measured(
    logits: np.ndarray, labels: np.ndarray, test: np.ndarray, delta: float
) -> tuple[Any, Any]:
    """The error on the test nodes and its Clopper-Pearson interval, or None and None."""
    from scipy.stats import binomtest  # only now, as importing it takes a second

    if not test.size:
        return None, None
    wrong, count = int(np.sum(logits[test].argmax(axis=1) != labels[test])), len(test)
    return wrong / count, tuple(binomtest(wrong, count).proportion_ci(1 - delta))
