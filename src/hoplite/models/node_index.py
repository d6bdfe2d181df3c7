"""The nodes that labels inside a model belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta

from hoplite.errors import ModelFileError
from hoplite.node_data import NodeData


@dataclass(frozen=True)
class NodeIndex:
    """``count`` nodes in their order, known again by a digest of their ids, if they have some.

    >>> from hoplite import Graph
    >>> known = NodeIndex.of(Graph.from_edges([(0, 1)], [[1.0], [2.0]], node_ids=["a", "b"]))
    >>> known.check(Graph.from_edges([(0, 2)], [[1.0]] * 3, node_ids=["a", "b", "new"]))
    """

    count: Annotated[int, Meta(ge=1, le=2**53)]
    ids: Annotated[str, Meta(max_length=64)] = ""

    @classmethod
    def of(cls, data: NodeData) -> NodeIndex:
        """Those of the data that a model is trained on."""
        return cls(data.num_nodes, _digest(data.node_ids, data.num_nodes))

    def check(self, data: NodeData) -> None:
        """ModelFileError unless the data has these nodes first; others may follow if it has ids."""
        count = data.num_nodes
        if count < self.count or (count > self.count and not self.ids):
            raise ModelFileError(
                f"the model keeps labels of the {self.count:,} nodes of its graph, and {data.name} "
                f"has {count:,}; predict on the graph of the training, to which nodes with ids may "
                "be added (--add), or train a model on this one."
            )
        if self.ids and _digest(data.node_ids, self.count) != self.ids:
            raise ModelFileError(
                f"the model keeps labels of the {self.count:,} nodes of its graph, and those of "
                f"{data.name} have other ids, or another order; predict on the graph of the "
                "training, or train a model on this one."
            )


def _digest(ids: Sequence[Any] | None, count: int) -> str:
    """SHA-256 of the first ids as text; empty without any."""
    if ids is None:
        return ""
    digest = hashlib.sha256()
    for node_id in islice(iter(ids), count):
        text = str(node_id).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()
