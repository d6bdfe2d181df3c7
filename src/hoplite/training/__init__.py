"""Training: settings, the loop over many runs, and hoplite.train."""

from hoplite.training.distributed import connected
from hoplite.training.loop import fit_runs
from hoplite.training.results import ScoredRun, TrainingResult
from hoplite.training.runs import NodeSet, Run, RunResult, TrainingProgress
from hoplite.training.streamed import StoredPropagation
from hoplite.training.train import plan, train

__all__ = [
    "NodeSet",
    "Run",
    "RunResult",
    "ScoredRun",
    "StoredPropagation",
    "TrainingProgress",
    "TrainingResult",
    "connected",
    "fit_runs",
    "plan",
    "train",
]
