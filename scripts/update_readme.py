"""Write the README's table of results and its picture, from the files that the experiments wrote.

python scripts/update_readme.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pages import replaced

from hoplite.files import atomic_write_text

ROOT = Path(__file__).parent.parent
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "_static" / "accuracy.svg"
DATASETS, MODELS = ("cora", "citeseer", "pubmed"), ("sgc", "egc", "lgc", "hlgc", "gcn", "gat")
LOW, HIGH, WIDTH, ROW = 68.0, 84.0, 520, 22  # percent and pixels of the picture


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def title(model: str) -> str:
    return "hLGC" if model == "hlgc" else model.upper()


def accuracies() -> list[tuple[str, str, tuple[float, float], float]]:
    """(dataset, model, our mean and deviation, the paper's mean) in percent."""
    theirs = json.loads(read("experiments/paper.json"))["accuracy"]["validation"]
    entries = json.loads(read("results/results.json"))["accuracy"]
    ours = {
        (one["dataset"], one["model"]): (100 * one["test_mean"], 100 * one["test_std"])
        for one in sorted(entries, key=lambda one: one["val_mean"])
        if one["protocol"] == "validation"  # the last gate of hLGC is the best one
    }
    return [(d, m, ours[d, m], theirs[m][d][0]) for d in DATASETS for m in MODELS]


def table() -> list[str]:
    """Accuracy by model and dataset, and the time of an epoch compared with plain torch."""
    found = {(d, m): f"{ours[0]:.1f} ({theirs:.1f})" for d, m, ours, theirs in accuracies()}
    cells = [[title(m), *(found[d, m] for d in DATASETS)] for m in MODELS]
    head = ["test accuracy, %: Hoplite (paper)", *map(str.title, DATASETS)]
    pattern = r"cora, lgc, 20 hops, 1 thread \| plain torch .*\| ([0-9.]+)x,"
    ratio = re.findall(pattern, read("benchmarks/README.md"))[0]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *cells)]
    speed = f"Hoplite trains an epoch of LGC with 20 hops on Cora {ratio} times as fast as plain"
    return [*lines, "", speed, "PyTorch, on one thread each."]


def picture() -> str:
    """A row for each model and dataset: an open circle for the paper, a filled one for ours."""
    height = 44 + ROW * len(DATASETS) * len(MODELS)
    shapes = ["<style>text{font:12px sans-serif;fill:#888}path,circle{stroke-width:2}</style>"]

    def at(value: float) -> float:
        return round(150 + (value - LOW) / (HIGH - LOW) * (WIDTH - 170), 1)

    for tick in range(int(LOW), int(HIGH) + 1, 4):
        shapes.append(f'<path d="M{at(tick)} 24V{height - 4}" stroke="#8884"/>')
        shapes.append(f'<text x="{at(tick)}" y="16" text-anchor="middle">{tick} %</text>')
    for i, (dataset, model, (mean, std), theirs) in enumerate(accuracies()):
        y = 40 + ROW * i
        shapes += [
            f'<text x="8" y="{y + 4}">{dataset.title()}, {title(model)}</text>',
            f'<circle cx="{at(theirs)}" cy="{y}" r="6" fill="none" stroke="#888"/>',
            f'<path d="M{at(mean - std)} {y}H{at(mean + std)}" stroke="#0a7ea4"/>',
            f'<circle cx="{at(mean)}" cy="{y}" r="4" fill="#0a7ea4"/>',
        ]
    box = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(shapes)}</svg>\n'


def main() -> None:
    atomic_write_text(README, replaced(read("README.md"), "results", table()))
    atomic_write_text(PICTURE, picture())


if __name__ == "__main__":
    main()
