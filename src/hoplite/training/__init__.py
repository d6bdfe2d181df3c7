"""Training: settings, the loop over many runs, and hoplite.train."""

from hoplite.training.distributed import connected
from hoplite.training.loop import fit_runs
from hoplite.training.results import ScoredRun, TrainingResult
from hoplite.training.runs import NodeSet, Progress, Run, RunResult
from hoplite.training.streamed import StoredPropagation
from hoplite.training.train import plan, train

__all__ = [
    "NodeSet",
    "Progress",
    "Run",
    "RunResult",
    "ScoredRun",
    "StoredPropagation",
    "TrainingResult",
    "connected",
    "fit_runs",
    "plan",
    "train",
]
