"""hoplite datasets: what can be loaded by name."""

from __future__ import annotations

import dataclasses

from hoplite.cli.console import JsonOption, print_json, print_line, print_table
from hoplite.datasets import available


def datasets(json: JsonOption = False) -> None:
    """List the datasets that come with Hoplite."""
    records = available()
    if json:
        print_json({"datasets": [dataclasses.asdict(record) for record in records]})
        return
    columns = ["name", "nodes", "edges", "features", "classes", "train", "val", "test"]
    rows = [
        [record.name, *[f"{getattr(record, column):,}" for column in columns[1:]]]
        for record in records
    ]
    print_table("Datasets", columns, rows)
    print_line("Your own graph: wherever a name goes, give a folder with nodes.csv and edges.csv.")
