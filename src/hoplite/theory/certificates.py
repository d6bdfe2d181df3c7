"""Certificates: with a stated confidence, the error on the unlabelled nodes is at most e.

Two bounds, both exact for finite graphs. The only random thing is which nodes have labels: the
parts of the split are a uniform draw without replacement from all nodes. Graph, features and the
labels that nobody knows are fixed. U are the n_U nodes in no part of the split.

Holdout
    The n_T test nodes, whose labels the model has not used, are a uniform draw from the
    n = n_T + n_U nodes of the test set and U. If the model errs on K of these n nodes, it errs on
    X ~ Hypergeometric(n, K, n_T) test nodes. It erred on x. With confidence 1 - delta

        K <= K* = max {K : P(X <= x | K) > delta},        error on U <= (K* - x) / n_U.

PAC-Bayes
    The labelled nodes (training and validation) are halved at random into A and B, with n_B nodes
    in B. Given A, B is a uniform draw from the n = n_B + n_U nodes of B and U. F (n x d) are
    propagated features, and a classifier is argmax of F Theta, Theta (d x c). The prior
    N(Theta_A, s^2 I) uses labels of A only; the posterior N(Theta_AB, s^2 I) uses all. Let e_B and
    e_U be the errors on B and on U of the classifier that draws a new Theta from the posterior for
    each node (Gibbs), e = (n_B e_B + n_U e_U) / n, and H(p) = -p ln p - (1 - p) ln(1 - p). With
    confidence 1 - delta, for all Theta_AB at once,

        n H(e) - n_B H(e_B) - n_U H(e_U) <= |Theta_AB - Theta_A|^2 / (2 s^2) + ln(xi / delta),
        xi = max_K sum_x a(n_B, x) a(n_U, K - x) / a(n, K),   a(n, x) = C(n, x) exp(-n H(x / n)).

    This is the theorem of Begin, Germain, Laviolette and Roy (2014) with their divergence
    kl(e_B, e) + n_U/n_B kl(e_U, e), times n_B, and xi computed exactly. The left side grows with
    e_U >= e_B, so bisection gives the largest e_U. J values of s are tried, each with delta / J.

    e_B needs no sampling. The logits of a node v are independent normals with means mu_c = F_v
    Theta_AB[:, c] and deviation t = s |F_v|. So its class y is predicted with probability

        integral of phi(x) prod_{c != y} Phi((mu_y - mu_c) / t + x) dx.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.signal import fftconvolve
from scipy.special import entr, gammaln, log_softmax, ndtr, softmax

from hoplite.config import TrainingConfig, check_number
from hoplite.engine.propagation import Propagation
from hoplite.errors import (
    ConfigError,
    GraphError,
    HopliteError,
    option_name,
    plural,
    warn,
)
from hoplite.graph import Graph, Split
from hoplite.models.alignment import labels_in
from hoplite.models.linear import LinearModel
from hoplite.models.trained import LEARNED_FROM, TrainedModel, check_trained, learned_nodes
from hoplite.store import open_data
from hoplite.training.results import train

ROUNDING = 1e-6  # margin added to computed probabilities
POINTS, STEP = np.linspace(-9, 9, 181, retstep=True)  # grid of the integral: error below 1e-12
DENSITY = STEP * np.exp(-(POINTS**2) / 2) / math.sqrt(2 * math.pi)
SPREADS = 2.0 ** np.arange(1, -7, -1)  # s sqrt(d): logits have about this deviation
PENALTIES = 10.0 ** np.arange(-3, 1)  # penalties of the prior
PULLS = (10, 100, 1000)  # pulls of the posterior to the prior, in multiples of the prior's penalty
MIN_LABELLED = 8  # training and validation nodes of a PAC-Bayes bound
MAX_STEPS = 200  # maximum number of steps of L-BFGS


@dataclass(frozen=True)
class Certificate:
    """With ``confidence``, the error on the ``unlabelled`` nodes is at most ``bound``.

    Attributes
    ----------
    bound, confidence : float
        The bound, and the probability with which it holds.
    unlabelled : int
        Number of nodes that the bound is about: those outside the split, or the test nodes.
    sample : int
        Number of nodes from whose labels it was computed: n_T or n_B.
    sample_error : float
        Error on these nodes.
    error : float or None
        Error on the ``unlabelled`` nodes if the graph has their labels.
    outside : bool
        Whether the bound is about the nodes outside the split.

    Examples
    --------
    >>> Certificate(0.2, 0.95, 100, 50, 0.1, None, outside=True).sentence().partition(", ")[0]
    'with 95 % confidence the error on the 100 nodes outside the split is at most 20.0 %'
    """

    condition: ClassVar[str] = (
        "if the test nodes are a random sample of all nodes that are not for training or validation"
    )

    bound: float
    confidence: float
    unlabelled: int
    sample: int
    sample_error: float
    error: float | None
    outside: bool

    def sentence(self) -> str:
        """The statement and its condition in plain words.

        Returns
        -------
        str
        """
        nodes = f"{plural(self.unlabelled, 'node')} outside the split"
        if not self.outside:
            nodes = plural(self.unlabelled, "test node")
        true_error = f" (true error, from their labels: {100 * (self.error or 0):.1f} %)"
        return (
            f"with {100 * self.confidence:g} % confidence the error on the {nodes} is at most "
            f"{100 * self.bound:.1f} %, {self.condition}{'' if self.error is None else true_error}"
        )


@dataclass(frozen=True)
class PacBayes(Certificate):
    """A PAC-Bayes certificate, of the Gibbs classifier, which draws its weights.

    Attributes
    ----------
    divergence : float
        ``|Theta_AB - Theta_A|^2 / (2 s^2)``
    spread : float
        s, the standard deviation of the weights.

    Examples
    --------
    >>> PacBayes(0.3, 0.9, 40, 25, 0.2, None, False, divergence=1.5, spread=0.1).sentence()[:70]
    'with 90 % confidence the error on the 40 test nodes is at most 30.0 %,'
    """

    condition: ClassVar[str] = "if the parts of the split are random samples of all nodes"

    divergence: float
    spread: float


@dataclass(frozen=True)
class Certificates:
    """The two certificates of :func:`certify`.

    Attributes
    ----------
    holdout : Certificate or None
        From test nodes.
    pac_bayes : PacBayes or None
        Without test nodes.
    refusals : dict of str
        The reason for each certificate that is None.

    Examples
    --------
    >>> Certificates(None, None, {"holdout": "there are no test nodes"}).refusals["holdout"]
    'there are no test nodes'
    """

    holdout: Certificate | None
    pac_bayes: PacBayes | None
    refusals: dict[str, str]


def certify(
    model: TrainedModel, data: Any, *, confidence: float = 0.95, seed: int = 0
) -> Certificates:
    """Bound the error on the nodes that have no label, see :mod:`hoplite.theory.certificates`.

    Parameters
    ----------
    model : TrainedModel
        A model that predicts one class for each node.
    data : Graph, or what :func:`hoplite.load` accepts
        The graph of the training with the same split, whose parts are random draws from all nodes.
        The certificates are about the nodes outside the split; if there are none, PAC-Bayes is
        about the test nodes.
    confidence : float, default 0.95
        Confidence of each certificate.
    seed : int, default 0
        Seed of the halves A and B. Choose it beforehand: the best of several seeds is not a
        certificate.

    Returns
    -------
    Certificates

    Raises
    ------
    HopliteError
        If neither certificate can be computed.

    Warns
    -----
    HopliteWarning
        If all classes have equally many training nodes, but not equally many nodes: such a split is
        not a random draw, so there is no PAC-Bayes certificate, and the other one requires that the
        test nodes are a random draw from the nodes that are not for training or validation.

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.io.synthetic(nodes=300, edges=900, features=8, classes=2, seed=1)
    >>> order = np.random.default_rng(0).permutation(300)
    >>> graph = graph.with_split(Split(order[:80], order[80:100], order[100:200]))
    >>> model = hoplite.train(graph, "sgc", hops=2, lr=0.2, epochs=20).model
    >>> holdout = hoplite.certify(model, graph).holdout
    >>> holdout.sample, holdout.unlabelled, holdout.bound < 0.5
    (100, 100, True)
    """
    check_number("confidence", confidence, 0, 1, open_ends="lm")
    check_trained(model)
    graph = open_data(data, prepare=model).in_memory()
    model.aligned(graph)  # ModelFileError if its features are others
    if not model.task.exclusive:
        raise ConfigError(
            "certificates require one class per node, but the model is for "
            f"{model.task.labels.task}."
        )
    certificates: dict[str, Any] = {"holdout": None, "pac_bayes": None}
    refusals: dict[str, str] = {}
    methods: dict[str, Callable[..., Certificate]] = {"holdout": holdout_certificate}
    if _is_balanced(model, graph):
        refusals["pac_bayes"] = (
            "the training nodes are balanced by class, so they are not a random sample of all "
            "nodes."
        )
    else:
        methods["pac_bayes"] = partial(pac_bayes_certificate, seed=seed)
    for name, method in methods.items():
        try:
            certificates[name] = method(model, graph, 1 - confidence)
        except HopliteError as error:
            refusals[name] = str(error)
    if len(refusals) == len(certificates):
        raise GraphError(
            f"no certificate is possible. From the test nodes: {refusals['holdout']} PAC-Bayes: "
            f"{refusals['pac_bayes']}"
        )
    if certificates["holdout"] is not None and "pac_bayes" not in methods:
        warn(
            "the training nodes are balanced by class, so they are not a random sample of all "
            "nodes. The bound from test nodes holds only if these are a random sample of all nodes "
            "that are not for training or validation."
        )
    return Certificates(**certificates, refusals=refusals)


def holdout_certificate(model: TrainedModel, graph: Graph, delta: float) -> Certificate:
    """The certificate of the model itself, from the test nodes.

    GraphError without test or unlabelled nodes, or if the model may have learned from the former.
    """
    split, rest = graph.split, _unlabelled(graph.split, graph.num_nodes)
    if not (split.test.size and rest.size):
        missing = "no node is outside the split" if split.test.size else "there are no test nodes"
        raise GraphError(
            f"{missing}; the bound requires test nodes, which measure the error, and nodes outside "
            "the split, whose error it bounds. If the split was drawn in training, repeat its seed "
            f"here: {option_name('split_seed')}."
        )
    if model.training.get(LEARNED_FROM) != learned_nodes(split):
        raise GraphError(
            "the model was not trained on the training and validation nodes of this split, so it "
            "may have learned from the test nodes; certify it with the split that it was trained "
            "on."
        )
    labels = labels_in(graph, model.class_names)
    wrong = model.predict(graph) != labels
    errors, sample = int(wrong[split.test].sum()), len(split.test)
    max_total = max_errors(errors, sample, sample + len(rest), delta)
    return Certificate(
        bound=(max_total - errors) / len(rest),
        confidence=1 - delta,
        unlabelled=len(rest),
        sample=sample,
        sample_error=errors / sample,
        error=float(wrong[rest].mean()) if (labels[rest] >= 0).all() else None,
        outside=True,
    )


def max_errors(errors: int, sample: int, population: int, delta: float) -> int:
    """K*, the most errors in the population that ``errors`` in the sample leave plausible.

    That is max {K : P(X <= errors) > delta}, X ~ Hypergeometric(population, K, sample).

    >>> max_errors(0, 10, 20, 0.05), max_errors(2, 10, 10, 0.05)
    (3, 2)
    """
    from scipy.stats import hypergeom  # only now, as importing it takes a second

    def too_many(total: int) -> bool:
        return hypergeom.cdf(errors, population, total, sample) * (1 + ROUNDING) <= delta

    totals = range(errors, population - (sample - errors) + 1)  # the first is plausible
    return errors + bisect_left(totals, True, lo=1, key=too_many) - 1


def pac_bayes_certificate(
    model: TrainedModel, graph: Graph, delta: float, seed: int = 0
) -> PacBayes:
    """The certificate of a Gibbs classifier with the model's filter and settings.

    If the filter is learned, it is learned again, from labels of A. GraphError or ConfigError
    where there are too few nodes, or for models that are not linear in features known beforehand.
    """
    split, labels = graph.split, labels_in(graph, model.class_names)
    rest = _unlabelled(split, graph.num_nodes)
    outside = bool(rest.size)
    rest = rest if outside else split.test
    labelled = np.random.default_rng(seed).permutation(np.union1d(split.train, split.val))
    prior_nodes, sample = np.split(labelled, [len(labelled) // 2])
    if not rest.size:
        raise GraphError(
            "all nodes are training or validation nodes; the bound requires nodes outside the "
            "split or test nodes, whose error it bounds."
        )
    if len(labelled) < MIN_LABELLED:
        raise GraphError(
            f"the bound requires at least {MIN_LABELLED} training and validation nodes, but there "
            f"are {len(labelled)}."
        )
    nodes = np.concatenate([prior_nodes, sample, rest])
    features = _features(model, graph, prior_nodes, nodes)
    prior_rows, rows, rest_rows = np.split(
        np.arange(len(nodes)), np.cumsum([len(prior_nodes), len(sample)])
    )
    classes, y = model.num_classes, labels[nodes]
    start, penalty = _prior(features[prior_rows], y[prior_rows], classes)
    both = np.concatenate([prior_rows, rows])
    centres = [start] + [_fit(features[both], y[both], start, pull * penalty) for pull in PULLS]
    m, total, norms = len(rows), len(rows) + len(rest), np.linalg.norm(features, axis=1)
    spreads = SPREADS / math.sqrt(features.shape[1])
    slack = math.log(transductive_constant(m, total) * len(spreads) / delta)
    best = PacBayes(math.inf, 1 - delta, len(rest), m, 1.0, None, outside, 0.0, 0.0)
    for centre in centres:
        logits = features @ centre
        for spread in spreads:
            risk = float(gibbs_errors(logits[rows], spread * norms[rows], y[rows]).mean())
            divergence = float(np.sum((centre - start) ** 2) / (2 * spread**2))
            bound = largest_risk(risk, m, total, divergence + slack)
            if bound < best.bound:
                error = None
                if (y[rest_rows] >= 0).all():
                    noise = spread * norms[rest_rows]
                    error = float(gibbs_errors(logits[rest_rows], noise, y[rest_rows]).mean())
                best = PacBayes(
                    bound, 1 - delta, len(rest), m, risk, error, outside, divergence, float(spread)
                )
    return best


def transductive_constant(m: int, total: int) -> float:
    """xi = max_K sum_x a(m, x) a(n - m, K - x) / a(n, K), m = n_B and n = ``total``.

    >>> round(transductive_constant(1, 2), 4)
    4.0
    """

    def peaks(n: int) -> np.ndarray:
        k = np.arange(n + 1.0)
        logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        return np.exp(logs - n * _entropy(k / max(n, 1)))

    sums = fftconvolve(peaks(m), peaks(total - m))
    return float((sums / peaks(total)).max()) * (1 + ROUNDING)


def largest_risk(risk: float, m: int, total: int, budget: float) -> float:
    """The largest e_U >= e_B = ``risk`` with n H(e) - n_B H(e_B) - n_U H(e_U) <= ``budget``.

    >>> round(largest_risk(0.1, 50, 100, 0.0), 6), largest_risk(0.1, 50, 100, 100.0)
    (0.1, 1.0)
    """
    low, high = risk, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        mean = (m * risk + (total - m) * middle) / total
        cost = total * _entropy(mean) - m * _entropy(risk) - (total - m) * _entropy(middle)
        low, high = (middle, high) if cost <= budget else (low, middle)
    return high


def gibbs_errors(logits: np.ndarray, deviations: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """P(argmax_c (mu_c + t e_c) is not the label), e_c independent normals: (rows, c) -> (rows,).

    ``deviations`` are the t of the rows: (rows,).

    >>> gibbs_errors(np.array([[0.0, 0.0], [9.0, 0.0]]), np.ones(2), np.zeros(2, int)).round(6)
    array([0.5, 0. ])
    """
    rows = np.arange(len(logits))
    gaps = (logits[rows, labels][:, None] - logits) / np.maximum(deviations, 1e-300)[:, None]
    gaps[rows, labels] = np.inf
    right = sum(
        weight * ndtr(gaps + x).prod(axis=1) for x, weight in zip(POINTS, DENSITY, strict=True)
    )
    return np.clip(1 - right, 0, 1)


def _entropy(share: Any) -> Any:
    return entr(share) + entr(np.maximum(1 - share, 0))


def _is_balanced(model: TrainedModel, graph: Graph) -> bool:
    """Whether the training nodes are balanced where the others are not: no random draw is."""
    labels = labels_in(graph, model.class_names)
    others = np.setdiff1d(np.flatnonzero(labels >= 0), graph.split.train)
    drawn = np.bincount(labels[graph.split.train], minlength=model.num_classes)
    left = np.bincount(labels[others], minlength=model.num_classes)
    return bool(drawn.max() <= 1.05 * drawn.min() and left.max() > 1.2 * left.min())


def _unlabelled(split: Split, nodes: int) -> np.ndarray:
    return np.setdiff1d(np.arange(nodes), np.concatenate([split.train, split.val, split.test]))


def _features(
    model: TrainedModel, graph: Graph, prior_nodes: np.ndarray, nodes: np.ndarray
) -> np.ndarray:
    """F at ``nodes``, columns standardised over all of them, and a column of ones."""
    config, model_class = model.config, model.config.kind
    if not issubclass(model_class, LinearModel) or model.parts_ or config.neighbour_labels:
        raise ConfigError(
            "it requires a linear model with one operator, without relations or labels of "
            "neighbours."
        )
    graph = model.aligned(graph)
    propagation = Propagation.of(graph, config)
    if len(model.maps_) > 1:  # hop blocks, or a filter for each class
        features = np.concatenate([*propagation.hop_features(nodes)], axis=1)
    else:
        filter_ = model_class.constants(config)
        if filter_ is None:
            filter_ = _learned_filter(model, graph, prior_nodes)
        features = propagation.filtered_features(filter_.astype(propagation.dtype), nodes)
    features = features.astype(np.float64) - features.mean(axis=0)
    deviations = features.std(axis=0)
    features /= np.where(deviations > 0, deviations, 1)
    return np.column_stack([features, np.ones(len(nodes))])


def _learned_filter(model: TrainedModel, graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """c_0 .. c_k of a model with the same settings that sees labels of ``nodes`` only."""
    names = {field.name for field in dataclasses.fields(TrainingConfig)} & {*model.training}
    options = {name: model.training[name] for name in names & model.config.kind.settings()}
    options |= model.config.as_dict() | {"refit": False, "correct_smooth": False, "folds": 0}
    name, cut = options.pop("model"), len(nodes) // 4
    half = graph.with_split(Split(nodes[cut:], nodes[:cut]))
    return train(half, name, test=False, **options).model.filter_coefficients_


def _prior(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, float]:
    """Theta_A, and its penalty: that with the lowest loss on a quarter of the nodes."""
    none, cut = np.zeros((features.shape[1], classes)), len(labels) // 4

    def loss(penalty: float) -> float:
        fitted = _fit(features[cut:], labels[cut:], none, penalty)
        logs = log_softmax(features[:cut] @ fitted, axis=1)
        return -float(logs[np.arange(cut), labels[:cut]].mean())

    penalty = float(min(PENALTIES, key=loss))
    return _fit(features, labels, none, penalty), penalty


def _fit(
    features: np.ndarray, labels: np.ndarray, centre: np.ndarray, penalty: float
) -> np.ndarray:
    """argmin of the mean cross-entropy of F Theta + penalty/2 |Theta - centre|^2: (d, c)."""
    rows = np.arange(len(labels))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = flat.reshape(centre.shape)
        logits, step = features @ theta, theta - centre
        gradient = softmax(logits, axis=1)
        gradient[rows, labels] -= 1
        loss = -float(log_softmax(logits, axis=1)[rows, labels].mean())
        slope = features.T @ gradient / len(rows) + penalty * step
        return loss + penalty / 2 * float(np.sum(step**2)), slope.ravel()

    options = {"maxiter": MAX_STEPS}
    minimum = minimize(objective, centre.ravel(), jac=True, method="L-BFGS-B", options=options)
    return minimum.x.reshape(centre.shape)
