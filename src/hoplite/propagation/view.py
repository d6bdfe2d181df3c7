"""What models and views ask of each other, wherever the rows are: in memory or in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor

from hoplite.propagation.dropout import Dropout

if TYPE_CHECKING:
    from hoplite.propagation.engine import RowView


class Filter(Protocol):
    """What a view asks of a model."""

    kept_hops: ClassVar[str]
    num_classes: int

    def filtered(
        self, weights: dict[str, Tensor], view: RowView, dropout: Dropout | None
    ) -> Tensor: ...


class View(Protocol):
    """Some rows of a graph."""

    def evaluate(
        self, model: Filter, weights: dict[str, Tensor], dropout: Dropout | None
    ) -> Tensor:
        """The model's filtered signal on the rows: (rows, R, m), differentiable in the weights."""
        ...

    def std_mean(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Deviation and mean of each column of a signal over all nodes: (1, R, m) each."""
        ...

    def part(self, rows: Tensor, kept_hops: str) -> View:
        """Some of the rows, counted within the view, with these hop features in memory."""
        ...
