"""Training: one pipeline from data to scored models, and hoplite.train."""

from hoplite.training.fit import fit
from hoplite.training.results import TrainingResult, as_seeds, plan, train
from hoplite.training.runs import Run, RunResult, TrainingProgress, train_runs
from hoplite.training.scoring import ScoredRun
from hoplite.training.sets import NodeSet

__all__ = [
    "NodeSet",
    "Run",
    "RunResult",
    "ScoredRun",
    "TrainingProgress",
    "TrainingResult",
    "as_seeds",
    "fit",
    "plan",
    "train",
    "train_runs",
]
