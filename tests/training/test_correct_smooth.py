"""Correct and Smooth: its formulas, the choice on validation nodes, what a model keeps of it."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests import pyg, untidy
from tests.examples import examples

import hoplite
from hoplite import Graph, ModelFileError, TrainedModel
from hoplite.models.labelprop import ALPHAS, SCALES, STEPS, CorrectSmooth
from hoplite.operators import find_operator

OPTIONS = {"hops": 2, "dropout": 0.0, "epochs": 8, "lr": 0.1}


def walk(S, G, alpha, fix):
    found = G
    for _ in range(STEPS):
        found = fix(alpha * S @ found + (1 - alpha) * G)
    return found


def by_hand(S, Z, nodes, labels, settings):
    """Z'' as the paper writes it, in dense float64."""
    Y = np.eye(Z.shape[1])[labels]
    if settings.correct is not None:
        E = np.zeros_like(Z)
        E[nodes] = Y - Z[nodes]
        known = np.isin(np.arange(len(Z)), nodes)[:, None]
        clipped = walk(S, E, settings.correct, lambda G: np.clip(G, -1, 1))
        pinned = walk(S, E, settings.correct, lambda G: np.where(known, E, G))
        found = clipped if settings.scale is None else pinned
        size = np.abs(found).sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", over="ignore"):
            scale = np.abs(E[nodes]).sum(axis=1).mean() / size
        scale[scale > 1000] = 1
        Z = Z + (scale if settings.scale is None else settings.scale) * found
    if settings.smooth is not None:
        Z = Z.copy()
        Z[nodes] = Y
        Z = walk(S, Z, settings.smooth, lambda G: np.clip(G, 0, 1))
    return Z


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@examples(60)
@given(
    graph=untidy.graphs(),
    correct=st.none() | st.floats(0, 1),
    smooth=st.none() | st.floats(0, 1),
    scale=st.none() | st.floats(0.1, 3),
    seed=untidy.SEEDS,
)
def test_equal_to_the_formulas(dense, graph, correct, smooth, scale, seed):
    m, train = len(graph.class_names), graph.split.train
    logits = np.random.default_rng(seed).normal(0, 3, (graph.num_nodes, m))
    known = CorrectSmooth.of(train, graph.labels[train])
    settings = CorrectSmooth(known.nodes, known.labels, correct, smooth, scale)
    found = settings.outputs(graph, logits)
    S = dense.operator(graph, "adjacency")
    wanted = by_hand(S, softmax(logits, axis=1), train, graph.labels[train], settings)
    assert settings.idle == (correct is None and smooth is None)
    if settings.idle:
        assert found is logits
    else:
        np.testing.assert_allclose(np.exp(found), np.maximum(wanted, 2.0**-40), atol=1e-9)


@pytest.mark.parametrize("scale", [None, 1.0, 0.4])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_to_torch_geometric(scale, weighted):
    """On a star of stars, where sums of the hubs' neighbours leave the interval that is kept."""
    layers = pyg.layers()
    import torch

    rng, n = np.random.default_rng(3), 90
    edges = np.column_stack([rng.integers(0, 4, 240), rng.integers(0, n - 3, 240)])
    graph = Graph.from_edges(
        edges, np.eye(n), rng.integers(0, 3, n), weights=rng.lognormal(0, 2, 240) * weighted + 1
    )
    nodes, logits = rng.permutation(n)[:40], rng.normal(0, 2, (n, 3))
    ours = CorrectSmooth.of(nodes, graph.labels[nodes])
    ours = dataclasses.replace(ours, correct=0.9, smooth=0.7, scale=scale)
    S = find_operator("adjacency").matrix(graph, np.float64).tocoo()
    index, weight = torch.from_numpy(np.stack([S.row, S.col])).long(), torch.from_numpy(S.data)
    theirs = layers.CorrectAndSmooth(STEPS, 0.9, STEPS, 0.7, scale is None, scale or 1.0)
    mask, y = torch.from_numpy(nodes), torch.from_numpy(graph.labels[nodes])
    soft = torch.from_numpy(softmax(logits, axis=1))
    soft = theirs.correct(soft, y, mask, index, weight)
    wanted = theirs.smooth(soft, y, mask, index, weight)
    np.testing.assert_allclose(
        np.exp(ours.outputs(graph, logits)), np.maximum(wanted.numpy(), 2.0**-40), atol=1e-12
    )


def test_validation_chooses_from_the_whole_grid_and_ties_go_to_the_simplest(graphs, dense):
    graph = graphs(n=60, classes=3)
    split, labels = graph.split, graph.labels
    S = dense.operator(graph, "adjacency")
    known = CorrectSmooth.of(split.train, labels[split.train])
    grid = [known]
    for correct, scale in [(None, None), *((a, s) for a in ALPHAS for s in SCALES)]:
        steps = [one for one in (None, *ALPHAS) if one is not None or correct is not None]
        grid += [CorrectSmooth(known.nodes, known.labels, correct, one, scale) for one in steps]
    grid.sort(key=lambda one: 2 * (one.correct is not None) + (one.smooth is not None))
    assert len(grid) == 28
    for seed in range(6):
        logits = np.random.default_rng(seed).normal(0, 1, (60, 3))

        def right(outputs):
            return float((outputs[split.val].argmax(axis=1) == labels[split.val]).mean())

        values = [
            right(by_hand(S, softmax(logits, axis=1), split.train, labels[split.train], one))
            for one in grid
        ]
        chosen = known.chosen(graph, logits, right)
        assert chosen == grid[int(np.argmax(values))]
    assert known.chosen(graph, logits, lambda outputs: 0.5).idle
    assert known.chosen(graph, logits, lambda outputs: float("nan")).idle


@pytest.mark.parametrize("model", ["sgc", "lgc", "gcn", "labelprop"])
def test_a_model_keeps_it(graphs, tmp_path, model):
    graph = graphs(n=60, seed=2)
    own = {k: v for k, v in OPTIONS.items() if k in hoplite.models.find_model(model).settings()}
    plain = hoplite.train(graph, model, seeds=3, **own)
    result = hoplite.train(graph, model, seeds=3, correct_smooth=True, **own)
    split, labels = graph.split, graph.labels
    for run, before in zip(result.runs, plain.runs, strict=True):
        after = run.model.correct_smooth
        assert run.val_accuracy >= before.val_accuracy  # neither is among the choices
        base = before.model.logits(graph)
        if after.idle:
            assert (run.model.logits(graph) == base).all()
            continue
        assert after.nodes == tuple(sorted(split.train.tolist()))
        wanted = after.outputs(graph, base)
        found = run.model.logits(graph)
        np.testing.assert_allclose(found, wanted, atol=1e-9)
        for part in ("val", "test"):
            nodes = getattr(split, part)
            share = (found[nodes].argmax(axis=1) == labels[nodes]).mean()
            assert run.scores[f"{part}_accuracy"] == pytest.approx(share)
        back = TrainedModel.load(run.model.save(tmp_path / f"{model} {run.seed}"))
        assert back.correct_smooth == after
        assert (back.logits(graph) == found).all()
    best = max(result.runs, key=lambda run: (run.selection_scores[0], -run.selection_scores[1]))
    assert result.best_run is best
    one = hoplite.train(graph, model, seeds=[1], correct_smooth=True, **own).runs[0]
    together = result.runs[1]
    assert one.model.correct_smooth == together.model.correct_smooth
    np.testing.assert_allclose(one.model.logits(graph), together.model.logits(graph), atol=1e-5)


def test_damaged_files_are_told(graphs, tmp_path):
    graph, options = graphs(n=60, seed=2), OPTIONS | {"epochs": 1, "correct_smooth": True}
    models = (hoplite.train(graph, "sgc", seeds=[seed], **options).model for seed in range(40))
    model = next(one for one in models if not one.correct_smooth.idle)
    folder = model.save(tmp_path / "model")
    text = (folder / "config.json").read_text()
    for change in (
        lambda c: c["correct_smooth"]["nodes"].pop(),
        lambda c: c["correct_smooth"]["nodes"].__setitem__(0, 60),
        lambda c: c["correct_smooth"]["nodes"].__setitem__(0, -1),
        lambda c: c["correct_smooth"]["nodes"].__setitem__(0, c["correct_smooth"]["nodes"][1]),
        lambda c: c["correct_smooth"]["labels"].__setitem__(0, 3),
        lambda c: c["correct_smooth"].update(smooth=1.5),
        lambda c: c["correct_smooth"].update(scale="auto"),
        lambda c: c.pop("node_index"),
    ):
        content = json.loads(text)
        content.pop("checksum")
        change(content)
        (folder / "config.json").write_text(json.dumps(content))
        with pytest.raises(ModelFileError, match="is damaged"):
            TrainedModel.load(folder)


@pytest.mark.parametrize("refit", [False, True])
def test_nodes_of_weight_0_have_no_label(graphs, refit):
    graph = graphs(n=90, d=4)
    weights, lost = np.ones(90), graph.split.train[::2]
    weights[lost] = 0
    labels = np.array(graph.labels)
    labels[lost] = (labels[lost] + 1) % graph.num_classes
    other = Graph(graph.adjacency, graph.features, labels, split=graph.split)
    options = {"hops": 2, "epochs": 20, "correct_smooth": True, "refit": refit}
    one, two = (
        hoplite.train(g, "lgc", sample_weight=weights, **options).model for g in (graph, other)
    )
    assert one.correct_smooth is not None
    assert not set(one.correct_smooth.nodes) & set(lost.tolist())
    np.testing.assert_array_equal(one.predict(graph), two.predict(other))
