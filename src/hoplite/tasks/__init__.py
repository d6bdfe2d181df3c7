"""Tasks: what is learned of the nodes. A task is one file and its place in this list."""

from __future__ import annotations

from typing import Any

from hoplite.errors import check_choice
from hoplite.tasks.base import LOSS, Metric, Task
from hoplite.tasks.evaluation import Evaluation
from hoplite.tasks.multiclass import Multiclass
from hoplite.tasks.regression import Regression

TASKS: dict[str, Task] = {task.name: task for task in (Multiclass(), Regression())}
USUAL = Multiclass.name  # of a training, and of a saved model that names none


def find_task(task: Any = USUAL) -> Task:
    """The task of this name, or ``task`` itself."""
    if isinstance(task, Task):
        return task
    check_choice("task", task, TASKS)
    return TASKS[task]


__all__ = ["LOSS", "TASKS", "USUAL", "Evaluation", "Metric", "Regression", "Task", "find_task"]
