"""What becomes of errors that tasks raise, without a cluster."""

from types import SimpleNamespace

import distributed
import pytest

from hoplite.cluster.tasks import Cluster
from hoplite.cluster.worker import call
from hoplite.errors import ClusterError
from hoplite.version import build


def wrong_attribute(tell):
    return tell.nothing_of_this_name


def wrong_import(tell):
    import no_such_module  # pyright: ignore[reportMissingImports] # noqa: F401


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (wrong_attribute, "AttributeError: .*nothing_of_this_name"),
        (wrong_import, "ModuleNotFoundError: .*no_such_module"),
    ],
)
def test_a_bug_of_a_task_is_no_fault_of_the_worker(tmp_path, monkeypatch, task, said):
    """Dask raises the same errors for a task that it cannot read, of a worker without Hoplite."""
    worker = SimpleNamespace(
        address="tcp://here",
        memory_manager=SimpleNamespace(memory_limit=None),
        state=SimpleNamespace(nthreads=1),
    )
    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    monkeypatch.setattr("hoplite.engine.backend.set_num_threads", lambda count: None)
    (tmp_path / "sign").touch()
    sign = {"version": build(), "folder": str(tmp_path), "name": "sign", "memory": 0}
    with pytest.raises(RuntimeError, match=said) as caught:
        call(sign, f"{__name__}:{task.__name__}", (), 0)
    future = SimpleNamespace(status="error", exception=lambda: caught.value)
    cluster = Cluster(None, "tcp://here", 1, sign, None)
    with pytest.raises(ClusterError, match=f"a task failed on tcp://here .*{said}"):
        cluster._is_done(future, "tcp://here")
    assert not cluster._unfit
    unread = SimpleNamespace(status="error", exception=lambda: AttributeError("call"))
    assert not cluster._is_done(unread, "tcp://here")
    assert "cannot import Hoplite" in cluster._unfit["tcp://here"]
