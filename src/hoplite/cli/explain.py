"""hoplite explain: why a node is predicted as it is, as tables and as one HTML page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

import hoplite
from hoplite.cli import console, graphs, options
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
    pages = [None if out is None else _page(out, i, len(nodes)) for i in range(len(nodes))]
    for page in filter(None, pages):
        options.check_page(page, overwrite=overwrite)
    model = options.load_model(model_dir, dataset, own_class)
    if graphs.check_names(model, node, graph, nodes):
        chosen = {"class_": class_, "against": against, "alone": alone, "top": top}
        targets = dict(zip(nodes, pages, strict=True))
        graphs.explain(model_dir, dataset, reading, targets, json=json, **chosen)
        return
    if out is not None:
        from hoplite.plots import check_libraries

        check_libraries()
    from hoplite.explain import Explainer  # only now, as importing it takes time
    from hoplite.explain.exact import class_index
    from hoplite.explain.rendering import describe, explanation_page

    for option, value in (("--class", class_), ("--against", against)):
        if value is not None:
            class_index(option, model.class_names, value)
    data = hoplite.open_data(dataset, prepare=model, **options.without_none(reading))
    explainer = Explainer(model, data, memory=memory)
    explanations = [explainer.explain(one, class_, against=against, alone=alone) for one in nodes]
    found: list[tuple[Summary, Path | None]] = []
    for name, explanation, page in zip(nodes, explanations, pages, strict=True):
        removals = None
        if flips and model.task.exclusive and model.num_classes > 1:
            removals = _search_removals(model, data, name, budget=budget, memory=memory)
        found.append((explanation.summary(top=top, flips=removals), page))
        if page is not None:
            command = shlex.join(["hoplite", *sys.argv[1:]])
            atomic_write_text(page, explanation_page(found[-1][0], command=command))
    explained = [(values.to_dict(), describe(values), page) for values, page in found]
    console.print_explanations(explained, json=json)


def _page(out: Path, place: int, pages: int) -> Path:
    """Where the page of the node in this place is."""
    return out if pages == 1 else out.with_name(f"{out.stem}-{place + 1}{out.suffix}")


def _search_removals(
    model: hoplite.TrainedModel, data: hoplite.NodeData, node: str, **limits: Any
) -> Flips | None:
    from hoplite.explain import NoRemovals, flips

    try:
        return flips(model, data, node, progress=True, **limits)
    except NoRemovals as error:
        console.print_note(f"Removed edges and nodes were not tried: {error}")
        return None
