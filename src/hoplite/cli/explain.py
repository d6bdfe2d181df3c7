"""hoplite explain: why a node is predicted as it is, as tables and as one HTML page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoplite.cli.console import print_json, print_line, print_note, print_table, steps_bar
from hoplite.cli.options import (
    STORE_MEMORY,
    DatasetArgument,
    JsonOption,
    ModelArgument,
    OverwriteOption,
    OwnClassOption,
    SplitSeedOption,
    check_page,
    load_model,
    table_options,
    with_tables,
)
from hoplite.errors import HopliteError

if TYPE_CHECKING:  # importing them takes time
    from hoplite import NodeData, TrainedModel
    from hoplite.explain import Flips, Summary


@with_tables(reading=True)
def explain(
    model_dir: ModelArgument,
    dataset: DatasetArgument,
    node: Annotated[
        list[str],
        typer.Option(help="Id of a node, or its index if the data has no ids; several: A B C."),
    ],
    more_nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="More nodes to explain.")
    ] = None,
    class_: Annotated[
        str | None, typer.Option("--class", help="Class to explain; the predicted one if left out.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="A second class: why the first and not this one.",
            show_default="the strongest other one",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Explain the logit of the class, not its lead.")
    ] = False,
    top: Annotated[
        int, typer.Option(min=1, help="Classes, nodes, features and pairs to list.")
    ] = 10,
    flips: Annotated[
        bool, typer.Option(help="Search edges and nodes whose removal changes the prediction.")
    ] = True,
    budget: Annotated[
        int, typer.Option(min=1, help="Most edges, and most nodes, that the search removes.")
    ] = 500,
    out: Annotated[
        Path | None,
        typer.Option(help="A page to write as well: FILE.html, of several nodes FILE-1.html, ..."),
    ] = None,
    overwrite: OverwriteOption = False,
    memory: Annotated[
        str,
        typer.Option(help=STORE_MEMORY),
    ] = "4GB",
    split_seed: SplitSeedOption = 0,
    own_class: OwnClassOption = None,
    json: JsonOption = False,
    **tables: Any,
) -> None:
    """Explain predictions for nodes of DATASET: exact sums over hops, nodes and features.

    What is explained is the lead of the predicted class over the runner-up (of several labels the
    logit of one, of numbers the value), and what would change it: an edge, a node or a value of
    the node itself. DATASET may be a hop store, which is read
    piece by piece.
    """
    nodes = [*node, *(more_nodes or ())]
    if out is not None:
        for place in range(len(nodes)):
            check_page(_page(out, place, len(nodes)), overwrite=overwrite)
        from hoplite.plots.page import check_libraries

        check_libraries()
    from hoplite import open_data  # only now, as importing it takes time
    from hoplite.explain import Explainer
    from hoplite.explain.exact import class_index
    from hoplite.explain.rendering import terminal_explanation

    model = load_model(model_dir, own_class)
    for option, value in (("--class", class_), ("--against", against)):
        if value is not None:
            class_index(option, model.class_names, value)
    data = open_data(dataset, seed=split_seed, prepare=model, **table_options(tables))
    explainer = Explainer(model, data, memory=memory)
    found = [explainer.explain(one, class_, against=against, alone=alone) for one in nodes]
    shown = []
    for place, (name, explanation) in enumerate(zip(nodes, found, strict=True)):
        removals = None
        if flips and model.task.exclusive and model.num_classes > 1:
            removals = _searched(model, data, name, budget=budget, memory=memory)
        values = explanation.summary(top=top, flips=removals)
        page = None if out is None else _page(out, place, len(nodes))
        if page is not None:
            _write(values, page)
        shown.append((values, page))
    if json:
        results = [
            {**values.to_dict(), "out": None if page is None else str(page)}
            for values, page in shown
        ]
        print_json(results[0] if len(results) == 1 else {"explanations": results})
        return
    for values, page in shown:
        for part in terminal_explanation(values):
            if isinstance(part, str):
                print_line(part)
            else:
                print_table(part.title, list(part.columns), [list(row) for row in part.rows])
        if page is not None:
            print_line(f"Page: {page}")


def _page(out: Path, place: int, pages: int) -> Path:
    """Where the page of the node in this place is."""
    return out if pages == 1 else out.with_name(f"{out.stem}-{place + 1}{out.suffix}")


def _searched(model: TrainedModel, data: NodeData, node: str, **options: Any) -> Flips | None:
    from hoplite.explain import NoRemovals
    from hoplite.explain import flips as search

    try:
        with steps_bar("removals") as report:
            return search(model, data, node, progress=report, **options)
    except NoRemovals as error:
        print_note(f"Removals were not searched: {error}")
        return None


def _write(values: Summary, page: Path) -> None:
    from hoplite.explain.rendering import write_explanation

    try:
        write_explanation(values, page, command=shlex.join(["hoplite", *sys.argv[1:]]))
    except OSError as error:
        raise HopliteError(f"cannot write {page}: {error.strerror}.") from None
