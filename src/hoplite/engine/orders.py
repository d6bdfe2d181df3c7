"""The choice between the exact evaluation orders, by counted work.

    weights first   per pass: X Theta (nnz(X) m, for each hop if it has a map of its own), then k
                    products with M (nnz(M) m each); what has less than a vector of columns costs as
                    much as a whole one
    hops first      once: k products with M of width d; then per pass: mix the kept hop features of
                    the needed rows (rows d each) and multiply by Theta (rows d m, a dense product,
                    in which a multiply-add costs less)

A training step passes over its rows twice, forward and backward, a validation once.

Dropout acts on X before propagation, so under dropout hops first would have to propagate again in
every epoch: then weights first is the only exact order worth running.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from hoplite.config import ORDERS
from hoplite.errors import ConfigError, check_choice

MIN_COLUMNS = 8  # of a sparse product, as many as a vector holds
DENSE_GAIN = 4  # a multiply-add of a dense product costs so many times less than of a sparse one
MAX_FILTER_SIZE = 2**27  # elements of kept rows of a filter


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


def make_plan(
    sizes: Sizes, order: str = "auto", memory: int | None = None, *, like_store: bool = False
) -> Plan:
    """Choose the order for ``sizes``; ``memory`` (bytes) defaults to half of what is free.

    With ``like_store``, hops first wherever they fit, as training from a hop store does.

    >>> cora = Sizes(2708, 1433, 7, 13264, 49216, hops=20, kept_hops=21, rows=640)
    >>> make_plan(cora).order
    'weights-first'
    """
    check_choice("order", order, ORDERS)
    if order == "hops-first" and sizes.dropout:
        raise ConfigError(
            "order is 'hops-first' but drop_nodes, dropout or output_dropout is not 0; hop "
            "features cannot be computed once when X changes in every epoch, so set them to 0 or "
            "order to 'weights-first'."
        )
    if order != "auto":
        return Plan(order, "as asked", sizes)
    if sizes.dropout:
        return Plan("weights-first", "dropout changes the features in every epoch", sizes)
    available = free_memory() // 2 if memory is None else memory
    if sizes.hops_first_bytes() > available:
        return Plan("weights-first", "the hop features do not fit in memory", sizes)
    if like_store:
        return Plan("hops-first", "line searches need the rounding of a hop store", sizes)
    if sizes.hops_first_work() < sizes.weights_first_work():
        return Plan("hops-first", "it needs less work", sizes)
    return Plan("weights-first", "it needs less work", sizes)


def free_memory() -> int:
    """Bytes of physical memory that can be had now, including what the system caches of files.

    Without these, a plan would depend on how much was read before.
    """
    return psutil.virtual_memory().available
