"""Small untidy graphs as `.npz` files under the names of the table's problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

SPLITS = 10
METHODS = """
reference = "lgc"
note = "A note."

[protocol]
seeds = 2
final_seeds = 3
screen = 2
random = {splits = 3, per_class = 5, val = 60, test = 90}

[protocol.on.large]
screen = 1

[common.any]
epochs = 8
patience = 4
hidden = 3
bias = true

[common.imbalanced]
scale = "standard"

[variants.longer]
epochs = 9

[methods.features]
title = "Features"
model = "sgc"
grid = {hops = 0, lr = [0.5, 0.01]}

[methods.lgc]
title = "LGC"
model = "lgc"
grid = {hops = [0, 2], dropout = [0.0, 0.5], lr = 0.2}
on.cora = {hops = 2}

[methods.mixed]
title = "Two grids"
model = "lgc"
grid = [{hops = 3, lr = [0.3, 0.03]}, {hops = 1, lr = 0.1, structural = [0, 2]}]
on.few = [{hops = 1}]

[methods.gcn]
title = "GCN"
model = "gcn"
linear = false
only = ["texas"]
grid = {lr = 0.05}
"""


def write_graph(
    path: Path, classes: int, seed: int, *, masks: bool = True, wrong: bool = False
) -> None:
    """60 nodes: some alone, some without a label, classes of uneven sizes.

    All splits have the same test nodes, whose labels are others if ``wrong``.
    """
    rng = np.random.default_rng(seed)
    n, shares = 60, np.array([0.5, 0.3, 0.2])[:classes]
    labels = rng.choice(classes, n, p=shares / shares.sum())
    features = rng.standard_normal((n, 6)) * 10.0 ** rng.integers(-1, 2, 6)
    features[:, :classes] += 3 * np.eye(classes)[labels]
    edges = rng.integers(0, 50, (110, 2))
    order = rng.permutation(n)
    labels[order[:4]] = -1
    test, rest = order[4:19], order[19:]
    parts = {part: np.zeros((SPLITS, n), bool) for part in ("train", "val", "test")}
    for i in range(SPLITS):
        own = np.random.default_rng([seed, i]).permutation(rest)
        parts["train"][i, own[:24]] = parts["val"][i, own[24:]] = True
        parts["test"][i, test] = True
    if wrong:
        labels[test] = (labels[test] + 1) % classes
    arrays = {f"{part}_masks": mask for part, mask in parts.items()} if masks else {}
    np.savez(
        path, node_features=features.astype(np.float32), node_labels=labels, edges=edges, **arrays
    )


@pytest.fixture(scope="session")
def graph_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    write_graph(folder / "texas.npz", 3, 1)
    write_graph(folder / "tolokers.npz", 2, 2)
    write_graph(folder / "amazon_photo.npz", 3, 3, masks=False)
    return folder


@pytest.fixture(scope="session")
def methods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("methods") / "methods.toml"
    path.write_text(METHODS)
    return path
