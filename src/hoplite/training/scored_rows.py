"""A node set as the loop sees it: rows with the targets that they should meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hoplite.models import Model, Weights
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import View
from hoplite.tasks import Task
from hoplite.training.runs import NodeSet, Source, team_of
from hoplite.training.shuffle import shuffled_windows


@dataclass(frozen=True)
class ScoredRows:
    """This process's part of a node set of ``total`` nodes, in one evaluation order.

    ``mine`` tells which positions of the node set are this process's, and ``rows`` picks theirs
    where ``view`` holds all nodes, as standardisation needs it.
    """

    model: Model
    view: View
    rows: Tensor | None
    task: Task
    targets: Tensor
    mine: np.ndarray
    processes: int

    @classmethod
    def of(cls, model: Model, source: Source, task: Task, part: NodeSet, order: str) -> ScoredRows:
        team = team_of(source)
        first, stop = team.shard(source.num_nodes)
        nodes = np.array(part.nodes, np.int64)
        mine = (nodes >= first) & (nodes < stop)
        nodes, hops_first = nodes[mine], order == "hops-first"
        targets = task.targets(np.asarray(part.labels), model.num_classes)
        targets = targets[torch.from_numpy(mine)]
        rows: Tensor | None = None
        if model.config.standardize:  # mean and deviation are over all nodes
            rows = torch.from_numpy(nodes - first)
            view: View = source.view(hops_first=hops_first)
        else:
            view = source.view(nodes, hops_first=hops_first)
        return cls(model, view, rows, task, targets, mine, team.size)

    @property
    def total(self) -> int:
        """Nodes of the set, over all processes."""
        return len(self.mine)

    def logits(self, weights: Weights, dropout: Dropout | None) -> Tensor:
        """(rows, R, m)."""
        return self.model.logits(weights, self.view, dropout, self.rows)

    def measure(self, weights: Weights, dropout: Dropout | None = None) -> tuple[Tensor, ...]:
        """The loss and the task's metrics per run, (R,) each.

        Their average over the processes is over all rows; see
        :mod:`hoplite.training.distributed`.
        """
        logits, count = self.logits(weights, dropout), self.total / self.processes
        loss = self.task.loss(logits, self.targets, count)
        return loss, *self.task.measure(logits.detach(), self.targets, count)

    def batches(self, batch: int, seed: int, epoch: int) -> Iterator[ScoredRows]:
        """All rows in one (``batch`` 0), or in batches, of which every process has its rows."""
        if not batch:
            yield self
            return
        place = np.cumsum(self.mine) - 1  # of a position of the set among this process's rows
        kept = self.model.kept_hops
        for window, parts in shuffled_windows(self.total, batch, seed, epoch):
            here = place[window[self.mine[window]]]
            near = self.view.part(torch.from_numpy(here), kept)
            for part in parts:
                mine = self.mine[part]
                rows = place[part[mine]]
                inside = torch.from_numpy(np.searchsorted(here, rows))
                targets = self.targets[torch.from_numpy(rows)]
                view = near.part(inside, kept)
                yield ScoredRows(self.model, view, None, self.task, targets, mine, self.processes)


def scores_of(
    model: Model, source: Source, task: Task, weights: Weights, part: NodeSet
) -> list[float]:
    """The task's metrics of one run's weights (without run axis) on ``part``.

    They are from its hop features; NaN if an output is not finite.
    """
    stacked = {name: value.unsqueeze(0) for name, value in weights.items()}
    rows = ScoredRows.of(model, source, task, part, "hops-first")
    with torch.no_grad():
        loss, *found = (team_of(source).mean(value) for value in rows.measure(stacked))
        return [float(value) if loss.isfinite() else float("nan") for value in found]
