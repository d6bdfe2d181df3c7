"""What is installed and whether it works: facts about this machine, and a small test of the core.

A check reports its result and, if something is wrong, what to do. The core is what everybody needs:
Hoplite and the libraries that it imports, the C++ core where it was built, and a training. Extras,
PyTorch among them, may be missing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from hoplite import machine
from hoplite.errors import HopliteError, is_shortage
from hoplite.version import build

CORE = ("numpy", "scipy", "scikit-learn", "pyarrow", "safetensors", "ml_dtypes")
OPTIONAL = ("torch",)  # whose version is reported if it is installed
CLOSE = 1e-5  # of a product of float32 with another order of its sums
LEAST_ACCURACY = 0.5  # of Cora's training nodes after a few epochs; by chance it is 0.14
REPORT = "report it, with the output of `hoplite doctor --json`"
FEW_BYTES = 10**9  # of disk, below which stores and searches run into trouble


@dataclass(frozen=True)
class Check:
    """One thing that was tried: whether it works, what was found, and what to do if it does not."""

    name: str
    ok: bool
    told: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All that is known; ``facts`` are plain values by their topic."""

    facts: dict[str, dict[str, Any]]
    checks: list[Check]
    notes: list[str] = field(default_factory=list)

    @property
    def broken(self) -> Check | None:
        """The first thing that does not work."""
        return next((check for check in self.checks if not check.ok), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        checks = [asdict(check) for check in self.checks]
        return {"ok": self.broken is None, **self.facts, "checks": checks, "notes": self.notes}


def diagnose(progress: Callable[[str, float], None] | None = None) -> Diagnosis:
    """Look at everything and try the core; it takes some seconds.

    >>> found = diagnose()
    >>> [check.name for check in found.checks]
    ['hoplite', 'kernels', 'product', 'training']
    """
    report = progress or (lambda what, share: None)
    report("importing", 0.1)
    checks = [_library()]
    works = checks[0].ok  # everything else needs it
    if works:
        report("multiplying", 0.5)
        checks += [_kernels(), _tried("product", _product)]
        report("training", 0.7)
        checks.append(_tried("training", _training))
    facts = {
        "versions": {**machine.versions((*CORE, *OPTIONAL)), "build": build()},
        "machine": {"system": machine.system(), "cpu": machine.cpu_model()},
        "torch": _torch_facts(),
        "kernels": _kernel_facts() if works else {},
        "threads": _threads(works=works),
        "memory": _memory(),
        "disk": {name: _free(path) for name, path in _folders().items()},
        "data": _data() if works else {},
        "extras": {
            one.name: {"missing": list(one.missing), "install": one.remedy if one.missing else ""}
            for one in machine.extras()
        },
    }
    return Diagnosis(facts, checks, _notes(facts))


def _library() -> Check:
    """Whether Hoplite's own modules, and the libraries that they need, can be imported."""
    wrong = _not_imported("hoplite.training")
    if wrong is None:
        return Check("hoplite", True, f"{machine.VERSION} and its libraries can be imported")
    remedy = "install it again: pip install --force-reinstall hoplite-graph"
    return Check("hoplite", False, wrong, remedy)


def _not_imported(module: str) -> str | None:
    """Why a module cannot be imported, with the name of the one that is to blame."""
    try:
        import_module(module)
    except (ImportError, OSError, ValueError, RuntimeError, AttributeError) as error:
        # OSError: a library is not there; the others: two of them do not fit each other
        first = (str(error) or type(error).__name__).splitlines()[0]
        blamed = (isinstance(error, ImportError) and error.name) or module
        if blamed.split(".")[0] != module.split(".")[0]:
            return f"it needs {blamed}, which cannot be imported ({first})"
        return f"it cannot be imported ({first})"
    return None


def _torch_facts() -> dict[str, Any]:
    """Of PyTorch, which networks need: nothing if it is not installed."""
    if find_spec("torch") is None:
        return {}
    wrong = _not_imported("torch")
    if wrong is not None:
        return {"version": machine.installed("torch"), "error": wrong}
    torch = import_module("torch")
    return {
        "version": torch.__version__,
        "build": f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU",
    }


def _kernels() -> Check:
    if find_spec("hoplite._native") is None:
        return Check("kernels", True, "the C++ core was not built; NumPy computes, more slowly")
    from hoplite.engine.backend import kernels

    try:
        import_module("hoplite._native")
    except ImportError as error:
        first = str(error).splitlines()[0]
        remedy = "install it again: pip install --force-reinstall --no-deps hoplite-graph"
        return Check("kernels", False, f"the C++ core cannot be loaded ({first})", remedy)
    return Check("kernels", True, kernels())


def _kernel_facts() -> dict[str, Any]:
    from hoplite.engine.backend import get_num_threads, has_native, native

    if native is None or not has_native():
        remedy = "install hoplite-graph where a C++ compiler is, without HOPLITE_NO_NATIVE"
        return {"loaded": False, "install": remedy}
    return {
        "loaded": True,
        "instructions": native.architecture(),
        "threads": get_num_threads(),
    }


def _tried(name: str, attempt: Callable[[], Check]) -> Check:
    """The check, which failed if it raised what broken libraries raise."""
    try:
        return attempt()
    except (HopliteError, ImportError, OSError, RuntimeError, ValueError, MemoryError) as error:
        told = "there is not enough memory" if is_shortage(error) else f"it failed ({error})"
        return Check(name, False, told, REPORT)


def _product() -> Check:
    """p(S) X with the C++ core and with NumPy, on a small graph with weights and isolated nodes."""
    import numpy as np

    from hoplite.engine.backend import has_native, use_backend
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
    core, judge = results
    apart = float(np.abs(core - judge).max() / max(float(np.abs(judge).max()), 1e-30))
    what = "the C++ core and NumPy" if has_native() else "NumPy"
    if not apart <= CLOSE or not np.isfinite(core).all():
        return Check("product", False, f"{what} differ by {apart:.2g} of the largest", REPORT)
    return Check("product", True, f"S^3 X by {what}: they differ by {apart:.1g} of the largest")


def _training() -> Check:
    """Five epochs on Cora, by the accuracy on its training nodes."""
    import warnings

    import hoplite

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hoplite.HopliteWarning)  # so few epochs are no good model
        graph = hoplite.load("cora")
        result = hoplite.train(graph, "sgc", hops=2, lr=0.2, dropout=0.0, epochs=5)
    nodes = graph.split.train
    right = float((result.model.predict(graph)[nodes] == graph.labels[nodes]).mean())
    if right < LEAST_ACCURACY:
        told = f"5 epochs on Cora leave {right:.0%} of the training nodes right"
        return Check("training", False, told, REPORT)
    return Check("training", True, f"5 epochs on Cora: {right:.0%} of the training nodes right")


def _threads(*, works: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "usable": machine.usable_cores(),
        "limit": machine.core_limit(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }
    if works:
        from hoplite.engine.backend import get_num_threads

        found["engine"] = get_num_threads()
    return found


def _memory() -> dict[str, Any]:
    found = psutil.virtual_memory()
    return {"total": found.total, "available": found.available, "limit": machine.memory_limit()}


def _folders() -> dict[str, Path]:
    return {"temporary": Path(tempfile.gettempdir()), "working": Path()}


def _free(path: Path) -> dict[str, Any]:
    try:
        told, free = str(path.absolute()), shutil.disk_usage(path).free
    except OSError:  # the working folder may be gone
        told, free = str(path), None
    return {"path": told, "free": free, "writable": os.access(path, os.W_OK)}


def _data() -> dict[str, Any]:
    from hoplite.io.reddit import find_reddit, reddit_folders

    place = find_reddit()
    return {
        "HOPLITE_DATA": os.environ.get("HOPLITE_DATA"),
        "folders": [str(folder.parent) for folder in reddit_folders()],
        "reddit": None if place is None else str(place),
    }


def _notes(facts: dict[str, dict[str, Any]]) -> list[str]:
    """What works but is worth knowing."""
    notes = []
    kernels, threads, limit = facts["kernels"], facts["threads"], facts["memory"]["limit"]
    if kernels and not kernels["loaded"]:
        notes.append(f"Products are several times faster with the C++ core: {kernels['install']}.")
    if "error" in facts["torch"]:
        notes.append(
            f"PyTorch is installed, but {facts['torch']['error']}; networks such as gcn need it. "
            "Install it again: pip install --force-reinstall torch."
        )
    if threads["limit"] and threads.get("engine", 0) > threads["limit"] + 0.5:
        cores = max(1, int(threads["limit"]))
        notes.append(
            f"This container may use {threads['limit']:g} cores but the engine uses "
            f"{threads['engine']} threads; set OMP_NUM_THREADS={cores}."
        )
    if limit is not None:
        notes.append("This container has less memory than the machine; give --memory accordingly.")
    for name, place in facts["disk"].items():
        if not place["writable"]:
            notes.append(f"The {name} folder {place['path']} is not writable.")
        elif place["free"] is not None and place["free"] < FEW_BYTES:
            notes.append(f"The {name} folder {place['path']} is nearly full.")
    if sys.version_info < (3, 11, 1):
        notes.append("Python before 3.11.1 starts worker processes slowly; a newer one is better.")
    return notes
