"""Training: settings, the loop over many runs, and hoplite.train."""

from hoplite.training.loop import fit_runs
from hoplite.training.runs import NodeSet, Progress, Run, RunResult
from hoplite.training.train import ScoredRun, TrainingResult, plan, train

__all__ = [
    "NodeSet",
    "Progress",
    "Run",
    "RunResult",
    "ScoredRun",
    "TrainingResult",
    "fit_runs",
    "plan",
    "train",
]
