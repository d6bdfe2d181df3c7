"""What the tests of clusters share."""

from tests.dask_processes import dask  # noqa: F401 - a fixture
