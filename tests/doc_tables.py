"""The files that the pages speak of as being there: small, with all columns that they name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
PARTS = ("train", "val", "test")


def write(folder: Path, nodes: list[str], edges: list[str]) -> None:
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join(nodes) + "\n", encoding="utf-8")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n", encoding="utf-8")


def write_tables() -> None:
    """Folders of tables, into the current folder."""
    rng = np.random.default_rng(0)

    def table(name, ids, header, row, ends=None, more="", pick=lambda: "", named="source,target"):
        ends = rng.choice(ids, (3 * len(ids), 2)) if ends is None else ends
        edges = [named + more, *(f"{a},{b}{pick()}" for a, b in ends)]
        write(Path(name), [header, *(f"{i},{row(k)}" for k, i in enumerate(ids))], edges)

    def label(k, names):
        return "" if k % 3 == 2 else names[rng.integers(len(names))]

    def account(k):
        day = f"20{rng.integers(10, 24)}-0{rng.integers(1, 10)}-11"
        return f"{label(k, ['yes', 'no'])},{rng.normal():.3f},{day},DE{k:05d},note {k}"

    def member(k):
        found, town = label(k, ["fraud", "ok"]), rng.choice(["Ulm", "Bonn", ""])
        return f"{found},{rng.choice(PARTS) if found else ''},{rng.normal():.2f},{town}"

    def weight():
        return f",{10 ** rng.uniform(-2, 2):.3g}"

    def kinds():
        return f",{rng.integers(1, 9)},{rng.choice(['card', 'cash'])}"

    header, old = "account,fraud,amount,opened,iban,note", [f"AC{k:04d}" for k in range(90)]
    paid = {"more": ",weight,kind", "pick": kinds}
    table("bank", old, header, account, **paid)
    table("new-bank", [f"N{k}" for k in range(60)], header, account, **paid)
    new = [f"AC9{k}" for k in range(8)]
    table("new-accounts", new, header, account, [(n, old[k]) for k, n in enumerate(new)], **paid)
    paid["more"] = ",euros,kind"
    table("payments", old, header, account, **paid, named="payer,payee")
    for name, added, first in (("club", "new", "0"), ("DATASET", "NEW", "ID")):
        ids, header = [first, *(str(k) for k in range(1, 80))], "id,label,split,age,town"
        table(name, ids, header, member, None, ",weight", weight)
        later = [f"{name} {k}" for k in range(5)]
        ends = [(n, ids[k]) for k, n in enumerate(later)]
        table(added, later, "id,age,town", lambda k: f"{k},Ulm", ends, ",weight", weight)
    several, ids = ["music|sport", "sport", "|", "music", "art|music"], [str(k) for k in range(80)]
    table("people", ids, "id,interests,age", lambda k: f"{label(k, several)},{rng.normal():.2f}")
    write_molecules()
    table("houses", ids, "id,price,size", lambda k: f"{rng.normal(300, 50):.4f},{rng.normal():.2f}")


def write_molecules() -> None:
    """A set of 60 graphs, chains and rings, as three tables."""
    rng, folder = np.random.default_rng(0), Path("molecules")
    graphs, nodes, edges = ["graph,label"], ["graph,id,element,charge"], ["graph,source,target"]
    for g in range(60):
        size = int(rng.integers(4, 9))
        graphs.append(f"m{g},{('chain', 'ring')[g % 2]}")
        nodes += [f"m{g},{v},{'CNO'[rng.integers(3)]},{rng.normal():.2f}" for v in range(size)]
        edges += [f"m{g},{v},{v + 1}" for v in range(size - 1)] + [f"m{g},0,{size - 1}"] * (g % 2)
    write(folder, nodes, edges)
    (folder / "graphs.csv").write_text("\n".join(graphs) + "\n", encoding="utf-8")


def write_graph(path: Path, classes: int, seed: int) -> None:
    """60 nodes and 3 splits: some nodes isolated, some without a label, uneven classes."""
    rng, n = np.random.default_rng(seed), 60
    labels = rng.choice(classes, n, p=np.arange(classes, 0, -1) / sum(range(classes + 1)))
    features = rng.standard_normal((n, 6)) + 3 * np.eye(6)[labels]
    masks = {f"{part}_masks": np.zeros((3, n), bool) for part in PARTS}
    for i in range(3):
        for part, nodes in zip(PARTS, np.split(rng.permutation(n), [24, 40]), strict=True):
            masks[f"{part}_masks"][i, nodes] = True
    edges = rng.integers(0, 50, (110, 2))
    np.savez(
        path, node_features=features.astype(np.float32), node_labels=labels, edges=edges, **masks
    )


def write_graphs() -> None:
    """Graphs as `.npz` files, and what the scripts read."""
    for folder in ("graphs", "FOLDER", "results", "scripts"):
        Path(folder).mkdir()
    for path, classes in (
        ("tolokers.npz", 2),
        ("web.npz", 2),
        ("graphs/texas.npz", 3),
        ("FOLDER/tolokers.npz", 2),
        ("FOLDER/minesweeper.npz", 2),
    ):
        write_graph(Path(path), classes, len(path))
    Path("examples").symlink_to(ROOT / "examples")
