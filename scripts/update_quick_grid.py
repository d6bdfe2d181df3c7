"""Write the grid of the quick reproduction: the settings that a full run chose on validation.

python -m scripts.update_quick_grid results
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from experiments.results import Accuracy, Results, load_results
from hoplite.files import atomic_write_text

GRID = Path(__file__).parents[1] / "src" / "hoplite" / "search" / "grids" / "quick.toml"
MOST_SECONDS = 6.0  # of a processor, for a run
HEAD = """note = "One configuration each: those that the full run chose on the validation nodes."

# Written by `python -m scripts.update_quick_grid results`.
"""


def seconds(entry: Accuracy) -> float:
    """Processor time of a run of its search."""
    return 60 * (entry.minutes or 0) / (entry.runs or 1)


def quick_grid(results: Results) -> str:
    """The space file with what validation chose for every model, of hLGC for its best gate.

    Gates whose runs take longer than ``MOST_SECONDS`` are left out, if others do not: the quick run
    has 3 minutes for everything.
    """
    gates: dict[tuple[str, str], list[Accuracy]] = {}
    for entry in results.of("validation"):
        gates.setdefault((entry.dataset, entry.model), []).append(entry)
    sections: dict[str, dict[str, dict[str, Any]]] = {}
    for (dataset, model), entries in gates.items():
        cheap = [e for e in entries if seconds(e) <= MOST_SECONDS]
        entry = max(cheap or [min(entries, key=seconds)], key=lambda e: e.val_mean or 0)
        names = ["gate"] if entry.gate else []
        names += ["hidden" if model in ("gcn", "gat") else "hops", "lr", "weight_decay", "dropout"]
        names += ["start"] if entry.config.get("start") == "lowpass" else []
        options = {name: entry.config[name] for name in names}
        sections.setdefault(dataset, {})[model] = options
    lines = [HEAD]
    for dataset, models in sections.items():
        lines.append(f"[{dataset}]\n")
        for model, options in models.items():
            values = "".join(f"{name} = {json.dumps(v)}\n" for name, v in options.items())
            lines.append(f"[{dataset}.{model}]\n{values}")
    return "\n".join(lines)


if __name__ == "__main__":
    atomic_write_text(GRID, quick_grid(load_results(sys.argv[1])))
    print(f"wrote {GRID.name}")
