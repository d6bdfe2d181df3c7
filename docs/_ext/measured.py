"""The figures of the site's pages, read from the files that the commands wrote.

`{{ lgc_cora }}` in a page is the text of that name here. A figure that is no longer in its file
ends the build.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BENCH, LARGE = ROOT / "benchmarks" / "README.md", ROOT / "benchmarks" / "large.md"
RESULTS, RESULTS_TEXT = ROOT / "results" / "results.json", ROOT / "results" / "RESULTS.md"
DATASETS = ("cora", "citeseer", "pubmed")
EPOCH = "cora, lgc, 20 hops, "  # with 1 thread and with 2: small products suit one, large ones two


def rows(path: Path) -> list[list[str]]:
    """The cells of every row of every table of a benchmark page: case, ours, peer, ratio, goal."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in cells if len(row) == 5]


def row(path: Path, case: str, peer: str = "") -> list[str]:
    """The first row whose case and peer begin like this. LookupError without one."""
    for cells in rows(path):
        if cells[0].startswith(case) and cells[2].startswith(peer):
            return cells
    raise LookupError(f"{path} has no row {case!r} with peer {peer!r}; run the benchmarks again.")


def strongest(peer: str) -> list[str]:
    """The row of an epoch with the threads that suit the peer best."""
    matches = [
        cells for cells in rows(BENCH) if cells[0].startswith(EPOCH) and cells[2].startswith(peer)
    ]
    if not matches:
        raise LookupError(
            f"{BENCH} has no row {EPOCH!r} with peer {peer!r}; run the benchmarks again."
        )
    return min(matches, key=lambda cells: float(cells[3].rstrip("x").replace(",", "")))


def epoch_ratios(peer: str) -> dict[str, float]:
    """How many times as fast as a peer an epoch is, by "MODEL, N hops, DATASET", set-up apart.

    Of several numbers of threads, the one that suits the peer best.
    """
    ratios: dict[str, float] = {}
    for case, _, other, ratio, _ in rows(BENCH):
        dataset, *rest = re.sub(r", \d threads?", "", case).split(", ")
        if dataset not in DATASETS or not other.startswith(peer) or "set-up" in case:
            continue
        title = "Hop blocks" if rest[0] == "blocks" else rest[0].upper()
        name = ", ".join([title, *rest[1:], dataset.title()])
        ratios[name] = min(float(ratio.rstrip("x")), ratios.get(name, float("inf")))
    return dict(sorted(ratios.items(), key=lambda item: -item[1]))


def search_text(path: Path, pattern: str) -> str:
    """The pattern's first group in a page."""
    match = re.search(pattern, path.read_text(encoding="utf-8"))
    if match is None:
        raise LookupError(f"{path} does not contain {pattern!r}; update docs/_ext/measured.py.")
    return match[1]


def times(ratio: str) -> str:
    """A ratio in words: "3.9 times" for "3.9x"."""
    return f"{ratio.removesuffix('x')} times"


def accuracy(dataset: str, model: str = "lgc") -> str:
    """Test accuracy in percent, its settings chosen on validation: mean and deviation."""
    for entry in json.loads(RESULTS.read_text(encoding="utf-8"))["accuracy"]:
        if (entry["dataset"], entry["model"], entry["protocol"]) == (dataset, model, "validation"):
            mean, deviation = (100 * entry[f"test_{what}"] for what in ("mean", "std"))
            return f"{mean:.1f} ± {deviation:.1f} %".replace(" ", "\N{NO-BREAK SPACE}")
    raise LookupError(f"{RESULTS} has no accuracy of {model} on {dataset}.")


def measured() -> dict[str, str]:
    """Every figure by its name."""
    product = row(BENCH, "233,000 nodes, 20M entries, 128 columns", "torch CSR")
    figures = {f"lgc_{name}": accuracy(name) for name in DATASETS}
    figures |= {
        "spmm_ratio": times(product[3]),
        "spmm_case": product[0],
        "epoch": strongest("plain torch:")[1],
        "epoch_torch": times(strongest("plain torch:")[3]),
        "epoch_pyg": times(strongest("TAGConv K=20, CSR:")[3]),
        "budget": search_text(LARGE, r"peak / the budget of (\S+ MB)"),
        "budget_times": row(LARGE, "the graph (CSR and features) / the budget")[1].rstrip(" x"),
        "train_time": row(LARGE, "lgc with L-BFGS, 4 hops")[1],
        "train_size": search_text(LARGE, r"\| (232,965 nodes), \w+ entries"),
        "machine": search_text(BENCH, r"Machine: ([^,]+, \d+ cores)"),
        "reproduced": search_text(RESULTS_TEXT, r"\*\*(\d+ of \d+) accuracies within"),
        "optimism": search_text(
            RESULTS_TEXT, r"test set instead would show \+([\d.]+) points on average"
        ),
    }
    return figures
