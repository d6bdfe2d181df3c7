"""A Dask cluster: functions of Hoplite on its workers, which share a folder and may die."""

from hoplite.cluster.connection import connect, warm_up
from hoplite.cluster.tasks import Cluster

__all__ = ["Cluster", "connect", "warm_up"]
