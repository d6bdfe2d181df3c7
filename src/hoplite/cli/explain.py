"""hoplite explain: explain the prediction of a node in tables and on an HTML page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

import hoplite
from hoplite.cli import console, graphs, options
from hoplite.errors import ConfigError
from hoplite.files import atomic_write_text

if TYPE_CHECKING:  # importing it takes time
    from hoplite.explain import Flips, Summary


@options.with_reading
def explain(
    model_dir: options.ModelFolder,
    dataset: options.Dataset,
    node: list[str] | None = Option(
        None, help="Node to explain: an id, or an index if there are no ids."
    ),
    more_nodes: list[str] | None = Argument(
        None, metavar="NODE", help="Nodes (or graphs) to explain, as with --node (or --graph)."
    ),
    graph: list[str] | None = Option(None, help="Graph to explain, for a model of graphs."),
    class_: str | None = Option(
        None, "--class", help="Class to explain.", show_default="the predicted class"
    ),
    against: str | None = Option(
        None,
        help="Class to compare with.",
        show_default="the runner-up",
    ),
    alone: bool = Option(
        False, "--alone", help="Explain the logit of the class instead of the margin."
    ),
    top: int = Option(10, min=1, metavar="N", help="Number of nodes and features to list."),
    flips: bool = Option(True, help="Find edges and nodes whose removal changes the prediction."),
    budget: int = Option(500, min=1, metavar="N", help="Maximum number of edges and nodes to try."),
    out: Path | None = Option(
        None, help="Page to write, FILE.html; FILE-1.html, ... for several nodes."
    ),
    overwrite: options.Overwrite = False,
    memory: options.StoreMemory = "4GB",
    own_class: options.OwnClass = None,
    json: options.Json = False,
    **reading: Any,
) -> None:
    """Explain predictions as exact sums over hops, nodes and features.

    The margin between the predicted class and the runner-up is split into exact contributions
    (for several labels the logit of one; for regression the value). Then the command finds the
    edges, nodes and values that would change the prediction.

    Example: hoplite explain cora-lgc cora --node 17 --out why.html
    """
    nodes = [*(node or ()), *(graph or ()), *(more_nodes or ())]
    pages: list[Path | None] = [out] * len(nodes)
    if out is not None and len(nodes) > 1:
        pages = [out.with_name(f"{out.stem}-{i + 1}{out.suffix}") for i in range(len(nodes))]
    for page in filter(None, pages):
        options.check_page(page, overwrite=overwrite)
    model = options.load_model(model_dir, dataset, own_class)
    if not nodes and reading["nodes"]:
        raise ConfigError(
            f"chooses a table; pass --node {reading['nodes']} to explain it.", "nodes"
        )
    if graphs.check_names(model, node, graph, nodes):
        whole, data = graphs.load(model_dir, dataset, reading)
        compared: dict[str, Any] = {"against": against, "alone": alone}
        why = [hoplite.explain_graph(whole, data, name, class_, **compared) for name in nodes]
        for explanation, page in zip(why, pages, strict=True):
            if page is not None:
                atomic_write_text(page, explanation.page())
        described = [(values.to_dict(top), values.describe(top)) for values in why]
        console.print_explanations(described, pages, json=json)
        return
    from hoplite.explain import Explainer  # only now, as importing it takes time
    from hoplite.explain.exact import class_index
    from hoplite.explain.rendering import describe, explanation_page

    for argument, value in (("class_", class_), ("against", against)):
        if value is not None and model.task.has_classes:
            class_index(argument, model.class_names, value)
    data = hoplite.open_data(dataset, prepare=model, **options.without_none(reading))
    explainer = Explainer(model, data, memory=memory)
    explanations = [explainer.explain(name, class_, against=against, alone=alone) for name in nodes]
    summaries: list[Summary] = []
    note = ""
    for name, explanation, page in zip(nodes, explanations, pages, strict=True):
        removals, why_not = None, "Removals were not searched because of --no-flips."
        if flips and model.task.exclusive and model.num_classes > 1:
            removals, why_not = _search_removals(model, data, name, budget=budget, memory=memory)
            note = why_not or note
        summaries.append(explanation.summary(top=top, flips=removals))
        if page is not None:
            command = shlex.join(["hoplite", *sys.argv[1:]])
            content = explanation_page(summaries[-1], command=command, why_not=why_not)
            atomic_write_text(page, content)
    described = [(values.to_dict(), describe(values)) for values in summaries]
    console.print_explanations(described, pages, json=json)
    if note:
        console.print_note(note)


def _search_removals(
    model: hoplite.TrainedModel, data: hoplite.NodeData, node: str, **limits: Any
) -> tuple[Flips | None, str]:
    """The removals that change the prediction, or None and the reason."""
    from hoplite.explain import RemovalsUnavailableError, flips

    try:
        return flips(model, data, node, progress=True, **limits), ""
    except RemovalsUnavailableError as error:
        return None, f"{error}"[:1].upper() + f"{error}"[1:]
