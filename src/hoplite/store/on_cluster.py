"""The tasks of a store on a cluster: a panel with all its missing hops is one task.

So a panel stays in the memory of one worker from hop to hop, and S is read once for it where it
fits. What another task or process has written is not written again, and what two write at the same
time is the same: blocks are renamed into place, whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hoplite.cluster import Cluster
from hoplite.errors import StoreError
from hoplite.files import remove_leftovers
from hoplite.store.errors import AGAIN
from hoplite.store.panel import run_panel
from hoplite.store.store import HopStore

SEEN_SECONDS = 90.0  # until then a shared folder shows here what was written elsewhere


def compute_on(
    cluster: Cluster,
    folder: Path,
    work: list[tuple[int, int]],
    memory: int,
    note: Callable[[int, int], None],
) -> None:
    """Do the tasks (panel, hop) of ``work`` on ``cluster``; ``note`` hears of each once."""
    hops: dict[int, list[int]] = {}
    for panel, hop in work:
        hops.setdefault(panel, []).append(hop)
    panels, waiting = list(hops), set(work)

    def hear(number: int, hop: int) -> None:
        task = (panels[number], hop)
        if task in waiting:  # a worker that died may have done it before
            waiting.remove(task)
            note(*task)

    def done(number: int) -> None:
        for hop in hops[panels[number]]:
            hear(number, hop)

    arguments = [(str(folder.absolute()), panel, hops[panel], memory) for panel in panels]
    cluster.run(f"{__name__}:compute_panel", arguments, hear, done)
    _wait_until_seen(folder)
    for place in folder.glob("hops/h*"):  # what workers left that died while they wrote
        remove_leftovers(place)


def compute_panel(
    folder: str, panel: int, hops: list[int], memory: int, tell: Callable[[int], None]
) -> None:
    """Run on a worker: the missing ones of ``hops`` of one panel."""
    run_panel(folder, panel, hops, memory=memory, note=lambda _, hop: tell(hop))


def _wait_until_seen(folder: Path) -> None:
    deadline = time.monotonic() + SEEN_SECONDS
    while missing := HopStore.open(folder).missing():
        if time.monotonic() > deadline:
            raise StoreError(
                f"the workers have written hop {missing[0][1]} of panel {missing[0][0]} but it is "
                f"not in {folder}; check that all machines share it, and "
                f"{AGAIN.format(folder=folder)}."
            )
        time.sleep(0.5)
