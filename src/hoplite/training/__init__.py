"""Training: settings, the loop over many runs, and hoplite.train."""

from hoplite.propagation.engine import Propagation
from hoplite.training.distributed import connected
from hoplite.training.loop import fit_runs
from hoplite.training.results import TrainingResult, as_seeds, plan, train
from hoplite.training.runs import NodeSet, Run, RunResult, TrainingProgress
from hoplite.training.scoring import ScoredRun, scored_run
from hoplite.training.streamed import StoredPropagation

__all__ = [
    "NodeSet",
    "Propagation",
    "Run",
    "RunResult",
    "ScoredRun",
    "StoredPropagation",
    "TrainingProgress",
    "TrainingResult",
    "as_seeds",
    "connected",
    "fit_runs",
    "plan",
    "scored_run",
    "train",
]
