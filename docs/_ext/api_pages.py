"""The API reference: a page for every public name of Hoplite, and one for every public module.

The pages are written into docs/api before Sphinx reads its sources; what has not changed is left.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import hoplite

# The names of hoplite.__all__ by what they are for. What is in no group is listed as "More".
GROUPS = {
    "Graphs and datasets": ("load", "Graph", "Split", "NodeData", "open_data", "io"),
    "Tables": ("TableOptions", "Preparation"),
    "Training and models": (
        "train",
        "TrainingResult",
        "TrainedModel",
        "ModelConfig",
        "TrainingConfig",
        "register_model",
    ),
    "Whole graphs": (
        "load_graphs",
        "write_graphs",
        "GraphSet",
        "train_graphs",
        "GraphModel",
        "explain_graph",
    ),
    "Choosing settings": ("search", "auto", "AutoClassifier"),
    "Filters and spectra": ("frequency_response", "spectral_density"),
    "Guarantees": ("certify",),
    "Larger than memory": ("propagate", "update_store", "HopStore", "set_num_threads"),
}
ESTIMATORS, ERRORS = "Estimators for scikit-learn", "Errors and warnings"

# Modules whose names the guides import.
MODULES = (
    "explain",
    "theory",
    "io",
    "predictions",
    "engine.spectrum",
    "operators",
    "bases",
    "models",
    "tasks",
    "training",
    "engine.propagation",
    "search",
    "store",
    "store.cost",
    "store.cluster",
    "graph",
    "structural",
    "serve.answers",
)


def groups() -> dict[str, list[str]]:
    """Every name of ``hoplite.__all__`` under its title, once."""
    found = {title: list(names) for title, names in GROUPS.items()}
    for title in (ESTIMATORS, ERRORS, "More"):
        found[title] = []
    grouped = {name for names in found.values() for name in names}
    for name in hoplite.__all__:
        if name not in grouped:
            found[_title(getattr(hoplite, name))].append(name)
    return {title: names for title, names in found.items() if names}


def _title(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return ERRORS
    return ESTIMATORS if hasattr(value, "fit") else "More"


def module_names(module: str) -> list[str]:
    """What a module's page documents: its ``__all__``, or what it defines; not what hoplite has."""
    home = import_module(f"hoplite.{module}")
    names = getattr(home, "__all__", None) or [
        name
        for name, value in vars(home).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == home.__name__
    ]
    shared = [getattr(hoplite, name) for name in hoplite.__all__]
    return [
        name
        for name in names
        if (inspect.isclass(value := getattr(home, name)) or inspect.isroutine(value))
        and not any(value is other for other in shared)
    ]


def title(text: str, line: str = "=") -> list[str]:
    return [text, line * len(text), ""]


def entry(name: str, module: str = "hoplite") -> list[str]:
    """The directive that documents one name, with its own and Hoplite's inherited members."""
    value = getattr(import_module(module), name)
    kind = "autofunction"
    options: list[str] = []
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, Exception) else "autoclass"
        options = [] if issubclass(value, Exception) else _member_options(value)
    return [f".. {kind}:: {module}.{name}", *(f"   {option}" for option in options), ""]


def members(kind: type) -> list[str]:
    """The public methods and properties that Hoplite itself gives a class, in the code's order."""
    return [
        name
        for base in kind.__mro__
        if base.__module__.startswith("hoplite.")
        for name, value in vars(base).items()
        if not name.startswith("_")
        and not type(value).__module__.startswith("sklearn.")  # its requests of metadata
        and (inspect.isroutine(value) or isinstance(value, property) or hasattr(value, "func"))
    ]


def _member_options(kind: type) -> list[str]:
    names = list(dict.fromkeys(members(kind)))
    return [f":members: {', '.join(names)}"] if names else []


def first_sentence(value: Any) -> str:
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.sub(r":[a-z]+:`~?([^`]*)`", r"``\1``", text).replace("|", "\\|")


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    found: dict[str, str] = {}
    index = [
        *title("API reference"),
        "What ``import hoplite`` gives, by what it is for, and then the modules.",
        "",
    ]
    for group, names in groups().items():
        index += [
            *title(group, "-"),
            ".. list-table::",
            "   :class: api-table",
            "   :widths: 35 65",
            "",
        ]
        for name in names:
            value = getattr(hoplite, name)
            page = f"hoplite.{name}"
            index += [f"   * - :doc:`{page}`", f"     - {first_sentence(value)}"]
            if not inspect.ismodule(value):
                text = [*title(page), ".. currentmodule:: hoplite", "", *entry(name)]
                found[page] = "\n".join(text)
        index += [""]
    index += [
        *title("Modules", "-"),
        ".. list-table::",
        "   :class: api-table",
        "   :widths: 35 65",
        "",
    ]
    for module in MODULES:
        home = import_module(f"hoplite.{module}")
        index += [f"   * - :doc:`hoplite.{module}`", f"     - {first_sentence(home)}"]
        text = [*title(home.__name__), f".. automodule:: {home.__name__}", "   :no-members:", ""]
        if home.__name__ in found:  # a function has the name of its module, and its place
            text[-1:] = ["   :no-index:", "", *entry(module)]
        for name in module_names(module):
            text += entry(name, home.__name__)
        found[home.__name__] = "\n".join(text)
    index += ["", ".. toctree::", "   :hidden:", ""]
    index += [f"   {page}" for page in sorted(found)]
    found["index"] = "\n".join([*index, ""])
    return found


def write_changed(folder: Path, texts: dict[str, str]) -> None:
    """Write the pages of a folder and remove those that are no longer made."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in texts:
            old.unlink()
    for name, text in texts.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", lambda app: write_changed(Path(app.srcdir) / "api", pages()))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
