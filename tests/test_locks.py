"""Every lock ends with its process, however that ends, and the next one takes it at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from pathlib import Path

from hoplite.errors import StoreError
from hoplite.files import atomic_write, lock
from hoplite.store.building import lock_folder


@contextlib.contextmanager
def store(folder):
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder / "store"))
        except StoreError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def model(folder):
    """The folder itself is locked, so that there is no file in it that is not the model's."""
    handle = os.open(folder / "model", os.O_RDONLY)
    try:
        yield lock(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(folder):
    """Who finds the usual temporary file locked takes one more."""
    with atomic_write(folder / "file" / "a.json"):
        yield len(list((folder / "file").glob(".*.tmp"))) == 1


LOCKS = (store, model, writing)


def hold(folder: Path, ready: Path) -> None:
    with contextlib.ExitStack() as stack:
        assert all(stack.enter_context(take(folder)) for take in LOCKS)
        ready.touch()
        time.sleep(6000)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    for name in ("model", "file"):
        (tmp_path / name).mkdir()
    ready = tmp_path / "ready"
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path, ready))
    process.start()
    while not ready.exists():
        assert process.is_alive()
        time.sleep(0.01)
    for take in LOCKS:
        with take(tmp_path) as ours:
            assert ours is False, take.__name__
    process.kill()
    process.join()
    process.close()
    for take in LOCKS:
        with take(tmp_path) as ours:
            assert ours is True, take.__name__
