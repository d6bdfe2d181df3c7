"""The pictures of the concepts, each computed by the library itself: name -> SVG."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from measured import RESULTS, epoch_ratios
from svg import Chart, arrow, box, circle, drawing, legend, line, text

import hoplite
from hoplite.bases import find_basis
from hoplite.models import MODELS, ModelConfig, model_config
from hoplite.operators import find_operator
from hoplite.training import plan

POINTS = np.linspace(-1, 1, 201)


def bases(alt: str) -> str:
    """p_0 .. p_5 of four bases on [-1, 1]."""
    parts, hops = [], 5
    for i, name in enumerate(("monomial", "chebyshev", "legendre", "jacobi:1,1")):
        left, top = 40 + 350 * (i % 2), 34 + 230 * (i // 2)
        chart = Chart(left, top, 290, 160, (-1, 1), (-1.5, 1.5))
        chart.frame(name, (-1, 0, 1), (-1, 0, 1), "λ" if i > 1 else "")
        for degree, values in enumerate(find_basis(name).values(POINTS, hops).T):
            chart.curve(POINTS, values, degree)
        parts += chart.parts
    parts += legend([f"p{'₀₁₂₃₄₅'[i]}" for i in range(hops + 1)], 130, 505, 80)
    return drawing(700, 520, parts, alt)


def filters(alt: str) -> str:
    """Responses of the fixed filters with ten hops and their default settings."""
    names = ("sgc", "s2gc", "ppr", "heat", "dgc")
    chart = Chart(44, 20, 620, 260, (-1, 1), (-0.05, 1.05))
    chart.frame(
        "",
        (-1, -0.5, 0, 0.5, 1),
        (0, 0.5, 1),
        "eigenvalue λ of S: rough signals left, smooth ones right",
    )
    for i, name in enumerate(names):
        config = model_config(name, hops=10)
        response = hoplite.frequency_response(coefficients(config), POINTS)
        chart.curve(POINTS, response, i)
    titles = [MODELS[name].title for name in names]
    return drawing(700, 372, [*chart.parts, *legend(titles, 110, 350, 100)], alt)


def coefficients(config: ModelConfig) -> np.ndarray:
    """c_0 .. c_k of a fixed filter."""
    return config.kind.constants(config)


def spectra(alt: str) -> str:
    """Where Cora's eigenvalues lie, for three operators."""
    graph, parts = hoplite.load("cora"), []
    for i, name in enumerate(("renormalized", "adjacency", "laplacian")):
        xs, density = hoplite.spectral_density(graph, name, moments=120, probes=24)
        low, high = float(xs[0]), float(xs[-1])
        chart = Chart(36 + 232 * i, 34, 190, 150, (low, high), (0, 1.05 * float(density.max())))
        chart.frame(name, (low, (low + high) / 2, high), (0,), "eigenvalue λ")
        parts += chart.area(xs, density, i).curve(xs, density, i).parts
    return drawing(720, 232, parts, alt)


def learned(alt: str) -> str:
    """Responses that were learned on Cora, above the density of its eigenvalues."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["spectrum"]
    cora = next(entry for entry in found if entry["dataset"] == "cora")
    xs, density = np.array(cora["points"]), np.array(cora["density"])
    chosen = [one for one in cora["responses"] if one["gate"] is None]
    chart = Chart(44, 20, 620, 250, (-1, 1), (-0.1, 1.05))
    chart.frame("", (-1, -0.5, 0, 0.5, 1), (0, 0.5, 1), "eigenvalue λ of S")
    chart.area(xs, 0.45 * density / density.max(), 5)
    for i, one in enumerate(chosen):
        mean = np.array(one["mean"])
        chart.curve(xs, mean / np.abs(mean).max(), i)
    names = [MODELS[one["model"]].title for one in chosen]
    return drawing(700, 350, [*chart.parts, *legend([*names], 210, 335, 100)], alt)


def hops(alt: str) -> str:
    """What one node of a small graph sees after 0 .. 3 hops: the row of S^i."""
    graph, places = small_graph()
    chosen, parts = 0, []
    matrix = find_operator("renormalized").matrix(graph).toarray()
    row = np.eye(graph.num_nodes)[chosen]
    for i in range(4):
        left = 12 + 175 * i
        spots = places * 150 + (left, 34)
        parts += [text(left + 75, 18, f"{i} hops" if i != 1 else "1 hop", "title")]
        for a, b in zip(*np.nonzero(np.triu(graph.adjacency.toarray())), strict=True):
            parts.append(line(*spots[a], *spots[b], "edge"))
        for u, (x, y) in enumerate(spots):
            weight = abs(row[u])
            parts.append(circle(x, y, 5, "node"))
            if weight > 0:
                parts.append(circle(x, y, 4 + 10 * np.sqrt(weight), "node c0"))
        parts.append(circle(*spots[chosen], 3, "chosen"))
        row = matrix @ row
    return drawing(710, 196, parts, alt)


def small_graph() -> tuple[hoplite.Graph, np.ndarray]:
    """A ring of nodes with some chords and a tail, and where to draw them in the unit square."""
    turns = 2 * np.pi * np.arange(9) / 9
    places = np.column_stack([0.42 + 0.36 * np.cos(turns), 0.5 + 0.4 * np.sin(turns)])
    places = np.vstack([places, [[0.95, 0.75], [0.95, 0.25], [0.42, 0.5]]])
    edges = [(i, (i + 1) % 9) for i in range(9)] + [(9, 1), (10, 8), (11, 3), (11, 6), (11, 0)]
    return hoplite.Graph.from_edges(edges, np.ones((12, 1))), places


def orders(alt: str) -> str:
    """The two orders, with the shapes of Cora and the planner's own estimates of the work."""
    graph = hoplite.load("cora")
    n, d, m = graph.num_nodes, graph.num_features, graph.num_classes
    problem = plan(graph, "lgc", hops=20).sizes
    kinds = (
        (
            "weights first",
            f"X Θ: {n:,} x {m}",
            f"20 products with S, {m} columns each",
            problem.weights_first_work(),
        ),
        (
            "hops first",
            f"Sⁱ X: {n:,} x {d:,} each",
            f"once; then rows times Θ: {d:,} x {m}",
            problem.hops_first_work(),
        ),
    )
    parts = []
    for i, (name, first, second, work) in enumerate(kinds):
        y = 30 + 108 * i
        parts += [text(8, y + 31, name, "title", "start")]
        parts += [box(112, y, 216, 52), text(220, y + 31, first), arrow(331, y + 26, 349, y + 26)]
        parts += [box(352, y, 260, 52), text(482, y + 31, second), arrow(615, y + 26, 633, y + 26)]
        parts += [box(636, y, 80, 52, "box strong"), text(676, y + 31, "logits")]
        words = f"{work / 1e9:,.1f} billion multiply-adds in {problem.epochs} epochs"
        parts += [text(414, y + 74, f"LGC, 20 hops, on Cora: {words}", "tick")]
    return drawing(724, 226, parts, alt)


def protocols(alt: str) -> str:
    """What each step of a search may look at."""
    steps = ("fit every setting", "stop and compare", "write the choice down", "score it, once")
    reads = ("training nodes", "validation nodes", "nothing new", "test nodes")
    parts = []
    for i, (step, read) in enumerate(zip(steps, reads, strict=True)):
        x = 10 + 178 * i
        last = i == len(steps) - 1
        parts += [box(x, 16, 156, 58, "box strong" if last else "box"), text(x + 78, 50, step)]
        parts += [line(x + 78, 106, x + 78, 78, "reads"), text(x + 78, 122, "reads", "tick")]
        parts += [text(x + 78, 142, read, f"label {'strong' if last else ''}".strip())]
        if not last:
            parts += [arrow(x + 158, 45, x + 176, 45)]
    return drawing(724, 156, parts, alt)


def epoch(alt: str) -> str:
    """Speed of an epoch relative to plain torch, a bar for each measured case, from 0."""
    ratios = epoch_ratios("plain torch")
    parts, left, scale = [], 266, 150 / max(5.0, *ratios.values())
    below = 26 * len(ratios) + 8
    parts += [line(left + scale, 4, left + scale, below, "zero")]
    for i, (case, ratio) in enumerate(ratios.items()):
        y = 6 + 26 * i
        parts += [text(left - 8, y + 15, case, "label", "end")]
        parts += [box(left, y, scale * ratio, 20, "bar c0", 3)]
        parts += [text(left + scale * ratio + 7, y + 15, f"{ratio:.1f} times", "label", "start")]
    parts += [line(left, below, left + 5 * scale, below)]
    for tick in range(6):
        parts += [text(left + tick * scale, below + 16, str(tick), "tick")]
    parts += [text(left + scale, below + 34, "1: as fast as plain PyTorch", "tick")]
    return drawing(480, below + 44, parts, alt)


DRAWINGS: dict[str, Callable[[str], str]] = {
    draw.__name__: draw
    for draw in (bases, filters, spectra, learned, hops, orders, protocols, epoch)
}
