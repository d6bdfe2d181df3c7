"""Write the grid of `hoplite reproduce --quick`: the settings that a full run chose on validation.

python scripts/update_quick_grid.py results
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hoplite.files import atomic_write_text
from hoplite.lab.results import Results, load_results

GRID = Path(__file__).parents[1] / "src" / "hoplite" / "selection" / "grids" / "quick.toml"
HEAD = """note = "One configuration each: those that the full run chose on the validation nodes."

# Written by `python scripts/update_quick_grid.py results`.
"""


def quick_grid(results: Results) -> str:
    """The space file with what validation chose for every model (hLGC: its class gate)."""
    sections: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in results.of("validation"):
        if entry.gate in (None, "class"):
            size = "hidden" if entry.model in ("gcn", "gat") else "hops"
            names = [size, "lr", "weight_decay", "dropout"]
            names += ["start"] if entry.config.get("start") == "lowpass" else []
            options = {name: entry.config[name] for name in names}
            sections.setdefault(entry.dataset, {})[entry.model] = options
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
