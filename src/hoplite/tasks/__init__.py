"""Tasks: what is learned of the nodes. A task is one file and its place in this list."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoplite.errors import check_choice
from hoplite.labels import label_type
from hoplite.tasks.base import LOSS, Metric, Task
from hoplite.tasks.conformal import Conformal
from hoplite.tasks.evaluation import Evaluation
from hoplite.tasks.multiclass import Multiclass
from hoplite.tasks.multilabel import Multilabel
from hoplite.tasks.regression import Regression

TASKS: dict[str, Task] = {task.name: task for task in (Multiclass(), Regression(), Multilabel())}
DEFAULT_TASK = Multiclass.name  # task of a training, or a saved model, that names none


def find_task(task: Any = DEFAULT_TASK) -> Task:
    """The task of this name, or ``task`` itself."""
    if isinstance(task, Task):
        return task
    check_choice("task", task, TASKS)
    return TASKS[task]


def task_of(labels: np.ndarray) -> Task:
    """The task that learns such labels, see :mod:`hoplite.labels`.

    >>> task_of(np.array([0.5, 2.0])).name
    'regression'
    """
    type_ = label_type(labels)
    return next(task for task in TASKS.values() if task.labels is type_)


__all__ = [
    "DEFAULT_TASK",
    "LOSS",
    "TASKS",
    "Conformal",
    "Evaluation",
    "Metric",
    "Regression",
    "Task",
    "find_task",
    "task_of",
]
