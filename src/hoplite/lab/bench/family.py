"""`family-epoch`: one epoch on Cora (training step and validation) of every linear model, beside
LGC's of as many hops, and of hop blocks beside PyTorch Geometric's SIGN.

Every model has its usual settings. LGC, with the same hops and dropout of the features, takes its
turn in the same race, so that a goal of ``>= 0.5x`` says: at most twice LGC's epoch. Consistency is
that of DropNode with three draws, a step of which is on all nodes of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hoplite.config import TrainingConfig
from hoplite.graph import Graph
from hoplite.lab.bench import epoch
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome
from hoplite.lab.bench.training import Trainer
from hoplite.models import (
    LGC,
    MODELS,
    PPR,
    JacobiConv,
    LinearModel,
    Model,
    usual_options,
)

DATASET = "cora"
TIMES, WIDE_TIMES = 2.0, 5.0  # most that an epoch may take of LGC's; with a filter per class
DRAWS = 3
CONSISTENCY: dict[str, Any] = {
    "dropout": 0.0,
    "drop_nodes": 0.5,
    "draws": DRAWS,
    "consistency": 1.0,
}
SIGN = "SIGN K=2"
BLOCKS = epoch.Cell(DATASET, "blocks", 2, dropout=0, ratios={SIGN: 2.0}, set_up_ratios={SIGN: 1.0})


@dataclass(frozen=True)
class Member:
    """A model with its usual settings but for some, and what its epoch may take of LGC's."""

    model: str
    times: float = TIMES
    changed: dict[str, Any] = field(default_factory=dict)
    what: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """What it is trained with, as far as LGC has the same."""
        usual = {"hops": usual_options(self.model)["hops"], "lr": TrainingConfig.lr}
        return usual | {"dropout": TrainingConfig.dropout} | self.changed

    @property
    def case(self) -> str:
        """
        >>> Member("s2gc").case, Member("ppr", what="consistency of 3 draws").case
        ('s2gc, 16 hops', 'ppr, 10 hops, consistency of 3 draws')
        """
        return ", ".join([self.model, f"{self.options['hops']} hops", *filter(None, [self.what])])

    @property
    def reference(self) -> Member:
        """LGC of as many hops and the same dropout."""
        shared = {name: self.options[name] for name in ("hops", "dropout")}
        return Member(LGC.name, changed=shared, what="" if shared["dropout"] else "no dropout")

    def contestant(self, graph: Graph, epochs: int) -> Contestant:
        """A sample is the mean of ``epochs``."""
        trainer = Trainer(graph, self.model, **self.options)
        return Contestant(self.case, lambda: trainer.epoch(epochs))


def members() -> list[Member]:
    """All of Hoplite's own linear models but for LGC; then consistency."""
    wide: dict[type[Model], float] = {JacobiConv: WIDE_TIMES}
    alone = [
        Member(kind.name, wide.get(kind, TIMES))
        for kind in MODELS.values()
        if issubclass(kind, LinearModel) and not kind.source() and kind is not LGC
    ]
    draws = f"consistency of {DRAWS} draws"
    return alone + [Member(kind.name, WIDE_TIMES, CONSISTENCY, draws) for kind in (PPR, LGC)]


@dataclass(frozen=True)
class FamilySize:
    """Our epochs per sample, and the effort for all models; the same again for hop blocks."""

    epochs: int
    effort: Effort


# many short rounds, since a ratio is taken within one
QUICK = FamilySize(10, Effort(3, 3))
FULL = FamilySize(100, Effort(15, 120))


def run(context: Context, size: FamilySize) -> Outcome:
    """All models in one race with LGC, then hop blocks beside SIGN."""
    graph = context.load(DATASET)
    figures = _beside_lgc(context.part(0, 2), size, graph)
    blocks = epoch.EpochSize((BLOCKS,), size.epochs, size.effort)
    beside = epoch.run(context.part(1, 2), blocks)
    notes = [
        f"a sample is {size.epochs} epochs, with {context.threads} threads; "
        "beside lgc, a ratio of 0.5x means twice LGC's epoch."
    ]
    return Outcome([*figures, *beside.figures], [*notes, *beside.notes], beside.facts)


def _beside_lgc(context: Context, size: FamilySize, graph: Graph) -> list[Figure]:
    every = members()
    taking_part = {one.case: one for member in every for one in (member.reference, member)}
    samples = context.race(
        [one.contestant(graph, size.epochs) for one in taking_part.values()], size.effort
    )
    return [
        samples.figure(
            f"{DATASET}, {member.case}",
            member.case,
            member.reference.case,
            Goal.ratio_at_least(1 / member.times),
        )
        for member in every
    ]
