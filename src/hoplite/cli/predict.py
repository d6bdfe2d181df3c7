"""hoplite predict: a trained model's labels for every node of a graph, as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

import hoplite
from hoplite.cli import console, graphs, options
from hoplite.config import check_number
from hoplite.errors import ConfigError, plural

if TYPE_CHECKING:
    from hoplite.predictions import Columns


@options.with_reading
def predict(
    model_dir: options.ModelFolder,
    dataset: options.Dataset,
    out: Path = Option(help="Table to write: FILE.parquet or FILE.csv."),
    proba: bool = Option(False, "--proba", help="Write the probability of every class."),
    sets: float | None = Option(
        None,
        metavar="COVERAGE",
        help="Write a set of labels that contains the true one with this probability, e.g. 0.9.",
    ),
    by_class: bool = Option(
        False, "--by-class", help="Reach the coverage of --sets within each class."
    ),
    overwrite: options.Overwrite = False,
    memory: options.StoreMemory = None,
    own_class: options.OwnClass = None,
    add: list[Path] | None = Option(
        None,
        metavar="NEW",
        help="Tables of new nodes and edges to add to DATASET; predict only the new nodes.",
    ),
    every: bool = Option(
        False, "--all", help="Predict the nodes of DATASET as well as those of --add."
    ),
    unlabelled: bool = Option(False, "--unlabelled", help="Write only nodes without a label."),
    sort: str | None = Option(
        None, metavar="COLUMN", help="Sort by a column: numbers descending, text ascending."
    ),
    top: int | None = Option(
        None,
        metavar="N",
        min=1,
        help="Write only the first N rows. Without --sort: those with the highest probability (of "
        "two classes: of the rarer one) or predicted number.",
    ),
    ascending: bool = Option(
        False, "--ascending", help="Sort numbers ascending, too: with margin, least certain first."
    ),
    json: options.Json = False,
    **reading: Any,
) -> None:
    """Predict the label of every node of DATASET.

    The table has a row per node: its id, the predicted label with its probability, the runner-up
    with the margin, the number of neighbours and the split. DATASET may be a hop store, which is
    read in pieces within --memory. To predict nodes that are not in DATASET, use --add.

    Example: hoplite predict cora-lgc cora --out labels.csv --proba
    """
    options.check_table("--out", out, dataset)
    for folder in add or ():
        options.check_table("--out", out, str(folder))
    if every and not add:
        raise ConfigError("requires --add; without it, all nodes are written.", "all")
    if sets is not None:
        check_number("sets", sets, 0, 1, open_ends="lm")
    elif by_class:
        raise ConfigError("requires --sets, e.g. --sets 0.9.", "by_class")
    options.check_new(out, overwrite=overwrite)
    from hoplite.graphs.model import is_graph_model  # only now, as importing it takes time
    from hoplite.predictions import (
        Order,
        class_columns,
        isolated_note,
        predictions,
        write_table,
    )
    from hoplite.store.opening import open_extended

    model = options.load_model(model_dir, dataset, own_class)
    of_graphs, new = is_graph_model(model), None
    if of_graphs and add:
        raise ConfigError("requires a node model; pass new graphs as DATASET.", "add")
    if add:
        chosen = options.without_none(reading)
        data, new = open_extended(dataset, *add, prepare=model, **chosen)
    else:
        model, data = graphs.open_data(model_dir, model, dataset, reading)
    tally = Tally(classes=model.task.has_classes)
    order = Order.of(model, sort, top, ascending=ascending)
    batches = predictions(
        model,
        data,
        memory=memory,
        proba=proba or order.column in class_columns(model.class_names),
        coverage=sets,
        by_class=by_class,
        unlabelled=unlabelled,
        nodes=None if every else new,
        progress=True,
    )

    def counted() -> Iterator[Columns]:
        for batch in batches:
            if of_graphs:
                del batch["neighbours"]
            tally.add(batch, model)
            yield batch

    written = write_table(counted(), out, order)
    what = "graph" if of_graphs else "node"
    if json:
        extra = {"rows": written} if written < tally.rows else {}
        extra |= {} if sets is None else {"coverage": sets}
        console.print_json({"out": str(out), **tally.summary(what), **extra})
        return
    rows = [[name, f"{value:,.6g}"] for name, value in tally.predicted().items()]
    columns = ["label", f"{what}s"] if tally.classes else ["", "value"]
    console.print_table(f"{data.name}: predictions of {plural(tally.rows, what)}", columns, rows)
    if sets is not None and tally.set_sizes:
        _print_sets(tally, sets, what, by_class=by_class)
    if sets is not None and model.fold_models is not None and data.stored is None:
        least = max(0.0, 200 * sets - 100)
        console.print_line(f"CV+ guarantees a coverage of at least {least:g} %.")
    extreme = "lowest" if ascending else "highest"
    column = "predicted value" if order.column == "predicted" else order.column
    rows = f", the {plural(written, what)} with the {extreme} {column}"
    if sort is not None:
        rows = f", the first {plural(written, what)} by {sort}"
    console.print_line(f"Table: {out}{rows if top is not None else ''}")
    if tally.isolated:
        console.print_line(isolated_note(model, tally.isolated, tally.rows))
    if not add and not of_graphs:
        console.print_line(f"Explain one: hoplite explain {model_dir} {dataset} --node ID")
    if add and not every:
        folders = " and ".join(map(str, add))
        console.print_line(
            f"The table has only the nodes of {folders}; --all adds those of {dataset}."
        )


def _print_sets(tally: Tally, coverage: float, what: str, *, by_class: bool) -> None:
    """The sizes of the prediction sets."""
    sizes, share = tally.set_sizes, 100 * coverage
    where = " of each class" if by_class else ""
    mean = sum(size * count for size, count in sizes.items()) / max(tally.rows, 1)
    console.print_line(
        f"Sets that cover {share:g} %{where}: {mean:.2f} labels on average. "
        f"{plural(sizes[1], 'set')} {'contains' if sizes[1] == 1 else 'contain'} one label and "
        f"{sizes[0]:,} {'is' if sizes[0] == 1 else 'are'} empty."
    )
    if sizes[0]:
        advice = "use the column `predicted` there, or a larger --sets"
        if not by_class:
            advice = "these may be most of a rare class: --by-class covers each class"
        console.print_line(
            f"The model is right for more than {share:g} % of the {what}s, so the least certain "
            f"ones get an empty set; {advice}."
        )


class Tally:
    """Counts of classes, or mean and range of numbers, of predictions that come in batches."""

    def __init__(self, *, classes: bool) -> None:
        self.classes, self.rows = classes, 0
        self.isolated: int | None = None  # nodes without an edge, if the edges are known
        self.counts, self.set_sizes = Counter[str](), Counter[int]()
        self._total, self._least, self._largest = 0.0, math.inf, -math.inf

    def add(self, batch: Columns, model: hoplite.TrainedModel) -> None:
        values = batch["predicted"]
        self.rows += len(values)
        if "neighbours" in batch:
            self.isolated = (self.isolated or 0) + int((batch["neighbours"] == 0).sum())
        if self.classes:
            self.counts.update(model.task.tallied(values.tolist()))
        elif len(values):
            self._total += float(values.sum(dtype="float64"))
            self._least = min(self._least, float(values.min()))
            self._largest = max(self._largest, float(values.max()))
        if "set_size" in batch:
            self.set_sizes.update(batch["set_size"].tolist())

    def summary(self, what: str) -> dict[str, Any]:
        """The counts as JSON values; ``what`` is "node" or "graph"."""
        values: dict[str, Any] = {f"{what}s": self.rows, "predicted": self.predicted()}
        if self.isolated is not None:
            values["isolated"] = self.isolated
        if self.set_sizes:
            values["set_sizes"] = {str(size): n for size, n in sorted(self.set_sizes.items())}
        return values

    def predicted(self) -> dict[str, float]:
        """The count of each class, or the mean and range of numbers."""
        if self.classes:
            return dict(sorted(self.counts.items()))
        if not self.rows:
            return {}
        mean = self._total / self.rows
        return {"mean": mean, "least": self._least, "largest": self._largest}
