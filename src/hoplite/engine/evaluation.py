"""The filtered signal of a linear model at some nodes, and its gradient, in several orders.

    sum_i c_i p_i(M) X~ Theta        one map for all hops        c: (hops,), or (hops, m) by class
    sum_i p_i(M) X~ Theta_i          a map for each hop          Theta: (hops, d, m)

With G = dLoss/dH (rows, m), 0 at all other nodes, and U_i = p_i(M') G:

    order           evaluates                              gradient
    WeightsFirst    Z = X~ Theta, then the hops of Z       X~' sum_i c_i U_i,  dc_i = <U_i, Z>
    FeaturesFirst   F = sum_i c_i p_i(M) X~, for d < m     F' G,  dc_i = <U_i Theta', X~>
    FilterRows      R = rows of sum_i c_i p_i(M), R Z      X~' R' G
    KeptRows        F = rows of sum_i c_i p_i(M) X         F' G
    KeptHops        P_i = rows of p_i(M) X                 (sum_i c_i P_i)' G,  <P_i, G Theta'>

FilterRows and KeptRows are for constant coefficients; KeptRows also has all hops side by side, for
a map per hop. The last two keep what dropout would change, so they are for evaluations without it.
All are equal to rounding. An order is shared by all runs of a training; an evaluation belongs to
one.

The choice between the exact orders (:func:`make_plan`) is by counted work:

    weights first   per pass: X Theta (nnz(X) m, for each hop if it has a map of its own), then k
                    products with M (nnz(M) m each); what has less than a vector of columns costs as
                    much as a whole one
    hops first      once: k products with M of width d; then per pass: mix the kept hop features of
                    the needed rows (rows d each) and multiply by Theta (rows d m, a dense product,
                    in which a multiply-add costs less)

A training step passes over its rows twice, forward and backward, a validation once.

Dropout acts on X before propagation, so under dropout hops first would have to propagate again in
every epoch: then weights first is the only exact order worth running.

Standardised outputs, the paper's setting for Reddit, have mean 0 and deviation 1 in every column:

    H^ = (V - mean) / sd       mean and sd over all n nodes, column by column;  V, H^: n x m

With G = dLoss/dH^, 0 at nodes without a loss, the gradient is 0 nowhere:

    dV = (G - mean(G) - H^ * mean(G * H^)) / sd
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from hoplite.config import ORDERS
from hoplite.engine.backend import each_range, product, transposed_product
from hoplite.engine.dropout import Dropout
from hoplite.engine.features import Features
from hoplite.engine.propagation import Propagation, repeated
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import ConfigError, check_choice
from hoplite.machine import available_memory

SPARSE_SHARE = 0.25  # kept rows with a smaller share of nonzeros are stored as CSR
MIN_COLUMNS = 8  # columns of a sparse product that a vector holds
DENSE_GAIN = 4  # a multiply-add of a dense product costs so many times less than of a sparse one
MAX_FILTER_SIZE = 2**27  # elements of kept rows of a filter


@dataclass(frozen=True)
class Filter:
    """A linear model at some weights.

    Parameters
    ----------
    maps : ndarray
        Theta, (d, m), or one for each hop, (hops, d, m).
    coefficients : ndarray or None
        c_0, c_1, ..., (hops,), or one for each class, (hops, m); the last ones may be left out if
        they are 0. None where every hop has a map of its own.
    fixed : bool
        Whether the coefficients are constants, which no gradient is asked for.
    """

    maps: np.ndarray
    coefficients: np.ndarray | None
    fixed: bool = False

    @property
    def by_class(self) -> bool:
        """Whether every class has coefficients of its own."""
        return self.coefficients is not None and self.coefficients.ndim == 2


class FilterGradient(NamedTuple):
    """The gradient by the maps and, unless they are fixed, by the coefficients."""

    maps: np.ndarray
    coefficients: np.ndarray | None = None


class Evaluation(NamedTuple):
    """The signal (rows, m), and what makes the gradient of a G (rows, m) of its first rows."""

    values: np.ndarray
    gradient: Callable[[np.ndarray], FilterGradient]


class Order(ABC):
    """Some nodes whose signals are evaluated in one of the orders."""

    @abstractmethod
    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        """The signal at the rows."""

    def part(self, rows: np.ndarray) -> Order:
        """Some of the rows, by their positions, where rows are kept."""
        raise ConfigError(
            "mini-batches require precomputed hop features; set order to 'hops-first'."
        )

    def head(self, count: int) -> Order:
        """The first ``count`` rows where rows are kept, otherwise all."""
        return self


class WeightsFirst(Order):
    """X~ Theta, then the hops of its m columns; at ``rows``, or at all nodes if None."""

    def __init__(self, source: Propagation, rows: np.ndarray | None = None) -> None:
        self._source, self._rows = (source, None) if rows is None else source.near(rows)
        self._repeats = rows is not None and len(np.unique(rows)) < len(rows)

    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        source, features, maps = self._source, self._source.features, filter.maps
        if filter.coefficients is not None:
            signal = features.drop_outputs(features.times(maps, dropout), dropout)
            scales = repeated(filter.coefficients, signal)
            values = source.combine(signal, scales)
            gradient = partial(self._gradient, filter, signal, scales, dropout)
            return Evaluation(self._pick(values), gradient)
        hops, d, m = maps.shape
        blocks = np.empty((hops, source.num_nodes, m), source.dtype)  # X~ Theta_i
        if dropout is None:
            for theta, out in zip(maps, blocks, strict=True):
                features.times(theta, out=out)
        else:  # side by side: one mask for all
            wide = np.ascontiguousarray(maps.swapaxes(0, 1)).reshape(d, -1)
            wide = features.drop_outputs(features.times(wide, dropout), dropout)
            blocks[...] = wide.reshape(-1, hops, m).swapaxes(0, 1)
        gradient = partial(self._blocks_gradient, filter, dropout)
        return Evaluation(self._pick(source.sum_blocks(blocks)), gradient)

    def evaluate_twice(self, filter: Filter, dropout: Dropout) -> tuple[Evaluation, np.ndarray]:
        """The evaluation under dropout, and the signal without it, in one pass over M.

        [X~ Theta | X Theta] are 2 m columns; up to 16 of them are one cache line of a gathered row,
        so the second half is nearly free.
        """
        source, m = self._source, filter.maps.shape[1]
        both = np.empty((source.num_nodes, 2 * m), source.dtype)
        source.features.times(filter.maps, dropout, both[:, :m], both[:, m:])
        source.features.drop_outputs(both[:, :m], dropout)
        assert filter.coefficients is not None
        scales = repeated(filter.coefficients, both[:, :m])
        outputs = self._pick(source.combine(both, np.concatenate([scales, scales], axis=1)))
        gradient = partial(self._gradient, filter, both[:, :m], scales, dropout)
        return Evaluation(outputs[:, :m], gradient), outputs[:, m:]

    def _gradient(
        self,
        filter: Filter,
        signal: np.ndarray,
        scales: np.ndarray,
        dropout: Dropout | None,
        gradient: np.ndarray,
    ) -> FilterGradient:
        source, spread = self._source, self._spread(gradient)
        by_scale = None
        if filter.fixed:
            by_signal = source.combine_transposed(spread, scales)
        else:
            by_signal, by_scale = source.combine_adjoint(spread, signal, scales)
            by_scale = by_scale if filter.by_class else by_scale.sum(axis=1)
        by_signal = source.features.drop_outputs(by_signal, dropout)
        return FilterGradient(source.features.transposed_times(by_signal, dropout), by_scale)

    def _blocks_gradient(
        self, filter: Filter, dropout: Dropout | None, gradient: np.ndarray
    ) -> FilterGradient:
        source, (hops, d, m) = self._source, filter.maps.shape
        by_hop = source.sum_blocks_adjoint(self._spread(gradient))
        if dropout is None:
            return FilterGradient(np.stack([*map(source.features.transposed_times, by_hop)]))
        wide = np.ascontiguousarray(by_hop.swapaxes(0, 1)).reshape(-1, hops * m)
        wide = source.features.drop_outputs(wide, dropout)
        by_map = source.features.transposed_times(wide, dropout)
        return FilterGradient(np.ascontiguousarray(by_map.reshape(d, hops, m).swapaxes(0, 1)))

    def _pick(self, signal: np.ndarray) -> np.ndarray:
        return signal if self._rows is None else signal[self._rows]

    def _spread(self, gradient: np.ndarray) -> np.ndarray:
        """G at all nodes, from that of the first rows."""
        if self._rows is None and len(gradient) == self._source.num_nodes:
            return np.ascontiguousarray(gradient)
        spread = np.zeros((self._source.num_nodes, gradient.shape[1]), self._source.dtype)
        if self._rows is None:
            spread[: len(gradient)] = gradient
        elif self._repeats:
            np.add.at(spread, self._rows[: len(gradient)], gradient)
        else:
            spread[self._rows[: len(gradient)]] = gradient
        return spread


class FeaturesFirst(WeightsFirst):
    """The hops of X~ itself, where it has fewer columns than there are outputs."""

    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        if filter.by_class or (dropout is not None and dropout.of_outputs is not None):
            return super().evaluate(filter, dropout)
        source, coefficients = self._source, filter.coefficients
        inputs = np.ascontiguousarray(source.features.dense(dropout))
        if coefficients is None:
            return KeptHops(source.gather(inputs, self._rows)).evaluate(filter)
        scales = repeated(coefficients, inputs)
        filtered = self._pick(source.combine(inputs, scales))

        def gradient(outer: np.ndarray) -> FilterGradient:
            by_map = transposed_product(filtered[: len(outer)], outer)
            if filter.fixed:
                return FilterGradient(by_map)
            spread = self._spread(product(outer, np.ascontiguousarray(filter.maps.T)))
            _, by_scale = source.combine_adjoint(spread, inputs, scales)
            return FilterGradient(by_map, by_scale.sum(axis=1))

        return Evaluation(product(filtered, filter.maps), gradient)


class FilterRows(Order):
    """The rows of sum_i c_i p_i(M) itself, kept, for fixed coefficients under dropout."""

    def __init__(self, source: Propagation, rows: np.ndarray, coefficients: np.ndarray) -> None:
        self._features = source.features
        unit = np.zeros((source.num_nodes, len(rows)), source.dtype)
        unit[rows, np.arange(len(rows))] = 1
        columns = source.combine_transposed(unit, repeated(coefficients, unit))
        self._filter = np.ascontiguousarray(columns.T)  # (rows, n)

    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        signal = self._features.drop_outputs(self._features.times(filter.maps, dropout), dropout)

        def gradient(outer: np.ndarray) -> FilterGradient:
            by_signal = transposed_product(self._filter[: len(outer)], outer)
            by_signal = self._features.drop_outputs(by_signal, dropout)
            return FilterGradient(self._features.transposed_times(by_signal, dropout))

        return Evaluation(product(self._filter, signal), gradient)


class KeptRows(Order):
    """Regression on one kept matrix: filtered features, or all hops side by side."""

    def __init__(self, rows: Features) -> None:
        self._rows = rows
        self._first: tuple[int, Features] = (-1, rows)

    @classmethod
    def from_array(cls, rows: np.ndarray) -> KeptRows:
        """Keep the rows, as CSR if less than a quarter is not 0."""
        few = np.count_nonzero(rows) < SPARSE_SHARE * rows.size
        return cls(Features(SparseMatrix.from_scipy(sp.csr_array(rows)) if few else rows))

    @classmethod
    def of_filter(
        cls, source: Propagation, rows: np.ndarray | None, coefficients: np.ndarray
    ) -> KeptRows:
        """sum_i c_i p_i(M) X at the rows: (rows, d)."""
        return cls.from_array(source.filtered_features(coefficients, rows))

    @classmethod
    def of_hops(cls, source: Propagation, rows: np.ndarray | None) -> KeptRows:
        """All hops of X side by side: (rows, hops d)."""
        return cls.from_array(side_by_side(source.hop_features(rows)))

    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        shape = filter.maps.shape
        maps = filter.maps.reshape(-1, shape[-1])

        def gradient(outer: np.ndarray) -> FilterGradient:
            return FilterGradient(self._head(len(outer)).transposed_times(outer).reshape(shape))

        return Evaluation(self._rows.times(maps), gradient)

    def part(self, rows: np.ndarray) -> Order:
        return KeptRows(self._rows.rows(rows))

    def head(self, count: int) -> Order:
        return KeptRows(self._head(count))

    def column_squares(self, count: int) -> np.ndarray:
        """The sum of the squares of every column over the first ``count`` rows, in float64."""
        head = self._head(count).matrix()
        if isinstance(head, np.ndarray):
            return np.einsum("vj,vj->j", head, head, dtype=np.float64)
        return np.asarray(head.astype(np.float64).power(2).sum(axis=0)).ravel()

    def _head(self, count: int) -> Features:
        """The first rows; those of the training nodes are asked for in every step."""
        if count == self._rows.shape[0]:
            return self._rows
        rows, head = self._first
        if rows != count:
            head = Features.from_array(self._rows.matrix()[:count])
            self._first = count, head
        return head


class KeptHops(Order):
    """Regression on kept hop features P_i: (hops, rows, d); the filter may use fewer."""

    def __init__(self, hops: np.ndarray) -> None:
        self._hops = hops

    @classmethod
    def of(cls, source: Propagation, rows: np.ndarray | None) -> KeptHops:
        """Those of some nodes of a graph."""
        return cls(source.hop_features(rows))

    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        c, maps = filter.coefficients, filter.maps
        if c is None:
            return KeptRows(Features(self._side_by_side)).evaluate(filter)
        hops = self._hops[: len(c)]
        return self._by_class(hops, c, maps) if filter.by_class else self._mixed(hops, filter)

    def _mixed(self, hops: np.ndarray, filter: Filter) -> Evaluation:
        """F = sum_i c_i P_i, (rows, d); H = F Theta."""
        c, maps = np.asarray(filter.coefficients, hops.dtype), filter.maps
        count, rows, d = hops.shape
        mixed = np.empty((rows, d), hops.dtype)

        def mix(part: slice) -> None:
            np.einsum("k,knd->nd", c, hops[:, part], out=mixed[part], optimize=True)

        for _ in each_range(mix, rows, d * count):
            pass

        def gradient(outer: np.ndarray) -> FilterGradient:
            by_map = transposed_product(mixed[: len(outer)], outer)
            if filter.fixed:
                return FilterGradient(by_map)
            turned = np.ascontiguousarray(maps.T)

            def dots(part: slice) -> np.ndarray:
                by_mixed = outer[part] @ turned  # (rows, d)
                return np.array([np.vdot(hop[part], by_mixed) for hop in hops], np.float64)

            total = np.zeros(count)
            for part in each_range(dots, len(outer), d * count):
                total += part
            return FilterGradient(by_map, total)

        return Evaluation(product(mixed, maps), gradient)

    def _by_class(self, hops: np.ndarray, c: np.ndarray, maps: np.ndarray) -> Evaluation:
        """H = sum_i c_i * (P_i Theta), by class."""
        c = np.asarray(c, hops.dtype)
        outputs = np.stack([product(hop, maps) for hop in hops])  # (hops, rows, m)

        def gradient(outer: np.ndarray) -> FilterGradient:
            by_map = np.zeros_like(maps)
            for hop, scale in zip(hops, c, strict=True):
                by_map += transposed_product(hop[: len(outer)], outer * scale)
            by_scale = np.einsum("knm,nm->km", outputs[:, : len(outer)], outer, dtype=np.float64)
            return FilterGradient(by_map, by_scale)

        return Evaluation(np.einsum("km,knm->nm", c, outputs), gradient)

    def part(self, rows: np.ndarray) -> Order:
        return KeptHops(self._hops[:, rows])

    def head(self, count: int) -> Order:
        return KeptHops(self._hops[:, :count])

    @cached_property
    def _side_by_side(self) -> np.ndarray:
        return side_by_side(self._hops)


def side_by_side(hops: np.ndarray) -> np.ndarray:
    """(hops, rows, d) -> (rows, hops d)."""
    count, rows, d = hops.shape
    return np.ascontiguousarray(hops.transpose(1, 0, 2)).reshape(rows, count * d)


@dataclass(frozen=True)
class Sizes:
    """The sizes that decide: all counts, none of the data."""

    nodes: int
    features: int
    classes: int
    operator_nonzeros: int
    feature_nonzeros: int
    hops: int
    kept_hops: int  # hop features that are kept: k + 1, or 1 for a fixed filter
    rows: int  # nodes whose outputs a pass needs
    epochs: int = 500
    maps: int = 1  # 1, or k + 1 if every hop has a map of its own
    dropout: bool = False
    passes: int = 2  # of an epoch: forward and backward, or one that nothing is learned from
    itemsize: int = 4  # bytes of a number: 4 of float32, 8 of float64

    def weights_first_work(self) -> int:
        """Multiply-adds of a whole training, weights first."""
        per_pass = self.maps * self.feature_nonzeros + self.hops * self.operator_nonzeros
        return self.passes * self.epochs * max(self.classes, MIN_COLUMNS) * per_pass

    def hops_first_work(self) -> int:
        """Multiply-adds of a whole training, hops first."""
        setup = self.hops * self.operator_nonzeros * self.features
        mixing = self.kept_hops if self.kept_hops > 1 and self.maps == 1 else 0
        per_row = self.features * (DENSE_GAIN * mixing + self.maps * self.classes)
        return setup + self.passes * self.epochs * self.rows * per_row // DENSE_GAIN

    def hops_first_bytes(self) -> int:
        """Memory of the kept hop features."""
        return self.itemsize * self.kept_hops * self.rows * self.features

    def keeps_filter(self) -> bool:
        """Whether a dense product with kept rows of a fixed filter costs less than the hops.

        With few columns, both read a number of the filter or gather a row of the signal for each
        multiply-add, which takes about as long.
        """
        dense = self.rows * self.nodes
        return dense < self.hops * self.operator_nonzeros and dense <= MAX_FILTER_SIZE


@dataclass(frozen=True)
class Plan:
    """The chosen order with the estimates behind it."""

    order: str
    reason: str
    sizes: Sizes

    def explain(self) -> str:
        """The estimates of both orders and why one was chosen."""
        sizes = self.sizes
        return (
            f"{self.order}: {self.reason}\n"
            f"  weights first  {sizes.weights_first_work():.3g} multiply-adds\n"
            f"  hops first     {sizes.hops_first_work():.3g} multiply-adds, "
            f"{sizes.hops_first_bytes() / 2**20:,.1f} MiB of hop features"
        )


def make_plan(sizes: Sizes, order: str = "auto", *, like_store: bool = False) -> Plan:
    """Choose the order for ``sizes``; kept hop features may take half of the free memory.

    With ``like_store``, hops first wherever they fit, as training from a hop store does.

    >>> cora = Sizes(2708, 1433, 7, 13264, 49216, hops=20, kept_hops=21, rows=640)
    >>> make_plan(cora).order
    'weights-first'
    """
    check_choice("order", order, ORDERS)
    if order == "hops-first" and sizes.dropout:
        raise ConfigError(
            "is 'hops-first' but drop_nodes, dropout or output_dropout is not 0; hop "
            "features cannot be computed once when X changes in every epoch, so set them to 0 or "
            "order to 'weights-first'.",
            "order",
        )
    if order != "auto":
        return Plan(order, "as requested", sizes)
    if sizes.dropout:
        return Plan("weights-first", "dropout changes the features in every epoch", sizes)
    if sizes.hops_first_bytes() > available_memory() // 2:
        return Plan("weights-first", "the hop features do not fit in memory", sizes)
    if like_store:
        return Plan("hops-first", "line searches need the rounding of a hop store", sizes)
    if sizes.hops_first_work() < sizes.weights_first_work():
        return Plan("hops-first", "it needs less work", sizes)
    return Plan("weights-first", "it needs less work", sizes)


class Moments(NamedTuple):
    """Number of rows, their mean, and the sum of squared distances from it: (m,) each, float64."""

    rows: int
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """The moments of a signal (rows, m)."""
        rows = len(values)
        mean = values.mean(axis=0, dtype=np.float64) if rows else np.zeros(values.shape[1])
        return cls(rows, mean, np.square(values - mean).sum(axis=0))

    def merged(self, other: Moments) -> Moments:
        """Those of the rows of both."""
        rows = self.rows + other.rows
        gap = other.mean - self.mean
        share = other.rows / max(rows, 1)
        squares = self.squares + other.squares + gap**2 * (self.rows * share)
        return Moments(rows, self.mean + gap * share, squares)


class Standardized(NamedTuple):
    """The mean and the deviation (m,) that are taken from the columns of a signal.

    >>> scale = Standardized.of(np.array([[1.0], [3.0]]))
    >>> scale.apply(np.array([[1.0], [5.0]])).ravel().tolist()
    [-1.0, 3.0]
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """The standardisation of a signal (n, m) on all nodes."""
        return cls.from_moments(Moments.of(values), values.dtype)

    @classmethod
    def from_moments(cls, moments: Moments, dtype: np.dtype) -> Self:
        """Standardise by moments of all nodes; constant columns by the rounding error of 1."""
        deviation = np.sqrt(moments.squares / max(moments.rows, 1))
        least = np.finfo(dtype).eps
        return cls(moments.mean.astype(dtype), np.maximum(deviation, least).astype(dtype))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """H^ of some rows of V."""
        return (values - self.mean) / self.deviation

    def by_signal(self, gradient: np.ndarray, values: np.ndarray) -> np.ndarray:
        """dV of all rows, from their G and V.

        mean(G * H^) counts as 0 in a constant column, which stays one.
        """
        standardized = self.apply(values)
        first = gradient.mean(axis=0, dtype=np.float64).astype(values.dtype)
        second = (gradient * standardized).mean(axis=0, dtype=np.float64)
        constant = self.deviation <= np.finfo(self.deviation.dtype).eps
        second = np.where(constant, 0.0, second).astype(values.dtype)
        return (gradient - first - standardized * second) / self.deviation
