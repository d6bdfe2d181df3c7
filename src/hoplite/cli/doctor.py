"""hoplite doctor: show versions and hardware, and test whether the core works.

The core is what everybody needs: Hoplite and the libraries that it imports, the C++ core where it
was built, and a training. Extras, PyTorch among them, may be missing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hoplite.cli import console, options
from hoplite.errors import HopliteError, is_shortage
from hoplite.machine import format_bytes
from hoplite.progress import steps_bar

PACKAGES = ("numpy", "scipy", "scikit-learn", "duckdb", "safetensors", "torch")
FOR_DEVELOPERS = ("dev", "docs", "test")  # extras
SIZES = ("memory", "available_memory", "memory_limit", "free_disk")
MAX_DIFFERENCE = 1e-5  # largest difference of float32 products with different orders of summation
MIN_ACCURACY = 0.5  # accuracy on Cora's training nodes after a few epochs; chance is 0.14
MIN_DISK = 10**9  # bytes, below which stores and searches run into trouble
REMEDY = (
    "reinstall it (pip install --force-reinstall hoplite-graph), or report it with the output of "
    "`hoplite doctor --json`"
)


@dataclass(frozen=True)
class Check:
    """A test of the core: whether it passed, and its result."""

    name: str
    ok: bool
    result: str


def doctor(json: options.Json = False) -> None:
    """Check the installation: versions, hardware, extras, and a test of the core.

    The exit code is 0 if the core works; extras may be missing.
    """
    with steps_bar("doctor") as progress:
        checks = run_checks(progress)
        facts = collect_facts(works=checks[0].ok)
    notes = list_notes(facts)
    failures = [f"{check.name}: {check.result}; {REMEDY}." for check in checks if not check.ok]
    if json:
        error = {"error": failures[0]} if failures else {}
        records = [asdict(check) for check in checks]
        console.print_json({"ok": not failures, **facts, "checks": records, "notes": notes} | error)
    else:
        for topic, values in facts.items():
            rows = [[name, _text(name, value)] for name, value in values.items()]
            if any(value is not None for value in values.values()):  # torch may have no problem
                console.print_table(topic, ["", ""], rows)
        rows = [[check.name, "works" if check.ok else "BROKEN", check.result] for check in checks]
        console.print_table("the core", ["", "", ""], rows)
        for note in notes:
            console.print_line(f"Note: {note}")
        if not failures:
            console.print_line("All of the core works.")
    console.report_and_fail(failures[0] if failures else None)


def _text(name: str, value: Any) -> str:
    if name in SIZES and value is not None:
        return format_bytes(value)
    return "-" if value is None else str(value)


def run_checks(progress: Callable[[str, float], None]) -> list[Check]:
    """Test the core, which takes some seconds; if the library is broken, skip the other tests."""
    checks: list[Check] = []
    for attempt in (try_hoplite, try_kernels, try_product, try_training):
        name = attempt.__name__.removeprefix("try_")
        progress(name, len(checks) / 4)
        try:
            check = Check(name, *attempt())
        except (HopliteError, ImportError, OSError, RuntimeError, ValueError, MemoryError) as error:
            reason = "there is not enough memory" if is_shortage(error) else str(error)
            check = Check(name, False, reason)
        checks.append(check)
        if not checks[0].ok:
            break
    return checks


def import_problem(module: str) -> str | None:
    """Why a module cannot be imported, with the name of the module that is missing or broken."""
    try:
        import_module(module)
    except (ImportError, OSError, ValueError, RuntimeError, AttributeError) as error:
        # OSError: a shared library is missing; the others: two libraries do not fit each other
        first = (str(error) or type(error).__name__).splitlines()[0]
        blamed = (isinstance(error, ImportError) and error.name) or module
        if blamed.split(".")[0] != module.split(".")[0]:
            return f"it needs {blamed}, which cannot be imported ({first})"
        return f"it cannot be imported ({first})"
    return None


def try_hoplite() -> tuple[bool, str]:
    problem = import_problem("hoplite.training")
    return problem is None, problem or "it can be imported with its libraries"


def try_kernels() -> tuple[bool, str]:
    from hoplite.engine.backend import kernels

    if find_spec("hoplite._native") is None:
        return True, "the C++ core was not built; NumPy is used, which is slower"
    problem = import_problem("hoplite._native")
    return problem is None, problem or kernels()


def try_product() -> tuple[bool, str]:
    """p(S) X with the C++ core and with NumPy, on a small graph with weights and isolated nodes."""
    import numpy as np

    from hoplite.engine.backend import use_backend
    from hoplite.engine.propagation import Propagation
    from hoplite.graph import Graph

    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 180, (600, 2)),
        features=rng.standard_normal((200, 9), np.float32),
        weights=10.0 ** rng.uniform(-3, 3, 600),
    )
    results = []
    for backend in ("auto", "numpy"):
        with use_backend(backend):
            results.append(Propagation(graph, "renormalized", hops=3).hop_features())
    difference = float(np.abs(results[0] - results[1]).max() / np.abs(results[1]).max())
    text = f"S^3 X by kernels and by NumPy differ by {difference:.1g} of the largest value"
    return difference <= MAX_DIFFERENCE, text


def try_training() -> tuple[bool, str]:
    """Five epochs on Cora, by the accuracy on its training nodes."""
    import hoplite

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hoplite.HopliteWarning)  # so few epochs train no good model
        graph = hoplite.load("cora")
        result = hoplite.train(graph, "sgc", hops=2, lr=0.2, dropout=0.0, epochs=5)
    nodes = graph.split.train
    accuracy = float((result.model.predict(graph)[nodes] == graph.labels[nodes]).mean())
    return accuracy >= MIN_ACCURACY, f"5 epochs on Cora: training accuracy {accuracy:.0%}"


def collect_facts(*, works: bool) -> dict[str, dict[str, Any]]:
    """Facts by topic; those of Hoplite itself only if it ``works``."""
    import psutil

    from hoplite import machine

    memory = psutil.virtual_memory()
    facts: dict[str, dict[str, Any]] = {
        "versions": machine.versions(PACKAGES) | {"build": machine.build()},
        "extras": {
            name: f'pip install "{machine.DISTRIBUTION}[{name}]"' if missing else "installed"
            for name, missing in machine.missing_packages().items()
            if name not in FOR_DEVELOPERS
        },
        "machine": {
            "system": machine.system(),
            "cpu": machine.cpu_model(),
            "cores": os.cpu_count(),
            "usable_cores": machine.usable_cores(),
            "core_limit": machine.core_limit(),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
            "memory": memory.total,
            "available_memory": memory.available,
            "memory_limit": machine.memory_limit(),
            "temporary_folder": tempfile.gettempdir(),
            "free_disk": shutil.disk_usage(tempfile.gettempdir()).free,
        },
        "torch": {"problem": import_problem("torch")} if find_spec("torch") else {},
    }
    if works:
        from hoplite.engine.backend import get_num_threads, has_native, native
        from hoplite.io.datasets import find_reddit

        loaded, reddit = native is not None and has_native(), find_reddit()
        facts["kernels"] = {
            "loaded": loaded,
            "threads": get_num_threads(),
            "instructions": native.architecture() if native and loaded else None,
        }
        facts["data"] = {
            "HOPLITE_DATA": os.environ.get("HOPLITE_DATA"),
            "reddit": None if reddit is None else str(reddit),
        }
    return facts


def list_notes(facts: dict[str, dict[str, Any]]) -> list[str]:
    """Notes on problems that do not stop Hoplite from working."""
    notes, machine = [], facts["machine"]
    kernels, limit = facts.get("kernels", {}), machine["core_limit"]
    if kernels and not kernels["loaded"]:
        notes.append(
            "The C++ core is several times faster; install hoplite-graph with a C++ compiler and "
            "without HOPLITE_NO_NATIVE."
        )
    if facts["torch"].get("problem"):
        notes.append(
            f"PyTorch is installed, but {facts['torch']['problem']}; networks such as gcn need "
            "it. Reinstall it: pip install --force-reinstall torch."
        )
    if limit and kernels.get("threads", 0) > limit + 0.5:
        notes.append(
            f"This container may use {limit:g} cores but the engine uses {kernels['threads']} "
            f"threads; set OMP_NUM_THREADS={max(1, int(limit))}."
        )
    if machine["memory_limit"] is not None:
        notes.append("This container has less memory than the machine; set --memory accordingly.")
    if machine["free_disk"] < MIN_DISK:
        notes.append(f"The temporary folder {Path(machine['temporary_folder'])} is nearly full.")
    return notes
