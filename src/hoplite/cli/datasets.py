"""hoplite datasets: list the datasets that have a name, and download them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from typer import Option

from hoplite.cli import console, options
from hoplite.config import REDDIT
from hoplite.errors import ConfigError


def datasets(
    fetch_name: str | None = Option(
        None,
        "--fetch",
        help="Download a dataset: reddit (1.4 GB).",
        autocompletion=options.complete([REDDIT]),
    ),
    folder: Path | None = Option(None, help="Folder for --fetch.", show_default="the cache"),
    json: options.Json = False,
) -> None:
    """List the named datasets, or download one with --fetch."""
    from hoplite.io import available, fetch, obtainable  # only now, as importing it takes time
    from hoplite.io.datasets import find_reddit

    if fetch_name is not None:
        place = fetch(fetch_name, folder, progress=True)
        if json:
            console.print_json({"dataset": fetch_name, "folder": str(place)})
        else:
            example = f"hoplite train {fetch_name if folder is None else place}"
            console.print_line(
                f"{fetch_name} is in {place}; use it with, for example, `{example}`."
            )
        return
    if folder is not None:
        raise ConfigError("requires --fetch with the name of a dataset.", "folder")
    embedded, others = available(), obtainable()
    place = find_reddit()
    download = "download it with `hoplite datasets --fetch reddit`"
    sources = {
        "reddit": f"it is in {place}" if place else download,
        "reddit-like": "generated; reddit-like:0.01 has a hundredth of its nodes and edges",
    }
    if json:
        records = [dataclasses.asdict(info) | {"source": sources[info.name]} for info in others]
        console.print_json(
            {"datasets": [dataclasses.asdict(info) for info in embedded], "others": records}
        )
        return
    columns = ["name", "nodes", "edges", "features", "classes", "train", "val", "test"]
    rows = [
        [info.name, *[f"{getattr(info, column):,}" for column in columns[1:]]] for info in embedded
    ]
    console.print_table("Datasets", columns, rows)
    for info in others:
        size = f"{info.nodes:,} nodes, {info.edges:,} edges, {info.features} features"
        console.print_line(f"{info.name}: {size}; {sources[info.name]}")
    console.print_line(
        "For your own graph, pass a folder with nodes.csv and edges.csv instead of a name."
    )
