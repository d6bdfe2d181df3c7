"""hoplite explain: why a node is predicted as it is, as tables and as one HTML page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hoplite.cli.console import (
    DatasetArgument,
    JsonOption,
    SplitSeedOption,
    check_page,
    print_json,
    print_line,
    print_note,
    print_table,
    steps_bar,
)
from hoplite.cli.settings import table_options, with_tables
from hoplite.errors import HopliteError


@with_tables(reading=True)
def explain(
    model_dir: Annotated[Path, typer.Argument(help="A folder that `hoplite train --out` wrote.")],
    dataset: DatasetArgument,
    node: Annotated[str, typer.Option(help="Id of the node; its index if the data has no ids.")],
    class_: Annotated[
        str | None, typer.Option("--class", help="Class to explain; the predicted one if left out.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="A second class: why the first and not this one.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Nodes, features and pairs to list.")] = 10,
    flips: Annotated[
        bool, typer.Option(help="Search edges and nodes whose removal changes the prediction.")
    ] = True,
    budget: Annotated[
        int, typer.Option(min=1, help="Most edges, and most nodes, that the search removes.")
    ] = 500,
    out: Annotated[Path | None, typer.Option(help="A page to write as well: FILE.html.")] = None,
    memory: Annotated[
        str, typer.Option(help="For a store: peak memory of the process, such as 700MB.")
    ] = "4GB",
    split_seed: SplitSeedOption = 0,
    json: JsonOption = False,
    **tables: Any,
) -> None:
    """Explain the prediction for one node of DATASET: an exact sum of hops, nodes and features.

    DATASET may be a hop store, which is read piece by piece.
    """
    if out is not None:
        check_page(out)
        from hoplite.lab.report import check_libraries

        check_libraries()
    from hoplite import TrainedModel, open_data  # only now: importing torch takes a second
    from hoplite.explain import NoRemovals
    from hoplite.explain import explain as explained
    from hoplite.explain import flips as search
    from hoplite.explain.exact import class_index
    from hoplite.explain.text import MOST_FLIPS, terminal_explanation

    model = TrainedModel.load(model_dir)
    for option, value in (("--class", class_), ("--against", against)):
        if value is not None:
            class_index(option, model.class_names, value)
    data = open_data(dataset, seed=split_seed, prepare=model, **table_options(tables))
    explanation = explained(model, data, node, class_, against=against, memory=memory)
    found = None
    if flips and model.num_classes > 1:
        options = {"budget": budget, "most": MOST_FLIPS, "memory": memory}
        try:
            with steps_bar("removals") as report:
                found = search(model, data, node, **options, progress=report)
        except NoRemovals as error:
            print_note(f"Removals were not searched: {error}")
    values = explanation.summary(top=top, flips=found)
    if out is not None:
        from hoplite.lab.report import write_explanation

        try:
            write_explanation(values, out, command=shlex.join(["hoplite", *sys.argv[1:]]))
        except OSError as error:
            raise HopliteError(f"cannot write {out}: {error.strerror}.") from None
    if json:
        print_json({**values.to_dict(), "out": None if out is None else str(out)})
        return
    for part in terminal_explanation(values):
        if isinstance(part, str):
            print_line(part)
        else:
            title, (columns, rows) = part
            print_table(title, columns, rows)
    if out is not None:
        print_line(f"Page: {out}")
