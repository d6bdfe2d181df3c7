"""`hyper`: one epoch of hLGC (training step and validation) for each gate, k = 10, dropout 0.5.

A sample is the mean of the epochs of a short training; its set-up, which hundreds of epochs share
in use, does not count for a few.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoplite.lab.bench.measure import Contestant, Context, Effort, Goal, Outcome
from hoplite.lab.bench.training import Trainer

HOPS = 10


@dataclass(frozen=True)
class Gate:
    """A gate on a dataset, the epochs of a sample, and the goal for one in ms."""

    dataset: str
    name: str
    epochs: int
    ms: float

    @property
    def case(self) -> str:
        return f"{self.dataset}, hlgc, gate {self.name}, {HOPS} hops"


@dataclass(frozen=True)
class HyperSize:
    """The gates, and the effort for all."""

    gates: tuple[Gate, ...]
    effort: Effort


QUICK = HyperSize(
    (
        Gate("cora", "node", 3, 250),
        Gate("cora", "class", 21, 15),
        Gate("cora", "feature", 3, 120),
    ),
    Effort(3, 4),
)
FULL = HyperSize(
    (
        Gate("cora", "node", 20, 250),
        Gate("cora", "class", 100, 15),
        Gate("cora", "feature", 20, 120),
        Gate("citeseer", "feature", 20, 400),
    ),
    Effort(5, 240),
)


def run(context: Context, size: HyperSize) -> Outcome:
    """Time an epoch of each gate, in turn."""
    graphs = {gate.dataset: context.load(gate.dataset) for gate in size.gates}

    def contestant(gate: Gate) -> Contestant:
        trainer = Trainer(graphs[gate.dataset], "hlgc", gate=gate.name, hops=HOPS)
        return Contestant(
            gate.case, lambda: trainer.epoch(gate.epochs), warm_up=lambda: trainer.epoch(1)
        )

    samples = context.race([contestant(gate) for gate in size.gates], size.effort)
    figures = [
        samples.figure(gate.case, gate.case, goal=Goal.at_most(gate.ms, "ms"))
        for gate in size.gates
    ]
    counts = ", ".join(f"{gate.epochs} epochs of {gate.name}" for gate in size.gates)
    return Outcome(figures, [f"a sample trains {counts}; set-up does not count."])
