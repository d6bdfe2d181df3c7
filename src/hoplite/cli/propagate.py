"""hoplite propagate: hop features on disk, for graphs that are larger than memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hoplite.bases import find_basis
from hoplite.cli.console import print_json, print_line, print_note, print_table, steps_bar
from hoplite.cli.options import (
    DatasetArgument,
    JsonOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    ThreadsOption,
    complete,
    table_options,
    with_settings,
)
from hoplite.errors import ConfigError

DTYPES = ("float32", "float16", "bfloat16")


@with_settings(only=("hops", "operator", "basis"))
def propagate(
    dataset: DatasetArgument,
    out: Annotated[
        Path, typer.Option(help="Folder of the store; the same command continues in it.")
    ],
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Add the nodes and edges of DATASET, a folder of tables, to the store; only rows "
            "that they change are computed.",
        ),
    ] = False,
    memory: Annotated[
        str, typer.Option(help="Peak of the whole process: 600MB, 4GB, 1.5GiB.")
    ] = "4GB",
    dtype: Annotated[
        str | None,
        typer.Option(
            help="How hops are stored: float32, float16 or bfloat16.",
            show_default="float32",
            autocompletion=complete(DTYPES),
        ),
    ] = None,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
    threads: ThreadsOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Compute on a Dask cluster: tcp://HOST:PORT of a scheduler, or local:N "
            "processes; --memory is for each worker then."
        ),
    ] = None,
    prepare: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL_DIR",
            help="Prepare the columns of tables as this model does, to predict from the store.",
        ),
    ] = None,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Compute the hop features p_0(S) X .. p_k(S) X of DATASET once and keep them in a folder.

    It may be stopped at any moment, or killed: the same command continues. Node and edge tables may
    be larger than memory.

    With --update, DATASET has new nodes and edges, which are added to the store in --out.

    Example: hoplite propagate cora --hops 3 --out cora-hops --memory 1GB
    """
    options = table_options(settings)
    settings |= {"dtype": dtype, "split": split_index, "structural": structural}
    settings |= {"cluster": cluster, "prepare": prepare}
    chosen = {name: value for name, value in settings.items() if value is not None}
    if update and chosen:
        raise ConfigError("cannot be combined with --update: the store decides.", min(chosen))
    if not update and "hops" not in chosen:
        raise ConfigError("is missing; give the degree k of the polynomial.", "hops")
    from hoplite import TrainedModel, set_num_threads  # only now, as importing it takes time
    from hoplite.machine import parse_bytes
    from hoplite.store import HopStore, update_store
    from hoplite.store import propagate as run
    from hoplite.store.opening import large_tables

    if threads is not None:
        set_num_threads(threads)
    if prepare is not None:
        chosen["prepare"] = TrainedModel.load(prepare)
    started = time.monotonic()
    imported = not update and large_tables(dataset, parse_bytes(memory), options)
    if imported:
        print_note(f"{dataset} is large for --memory {memory}: it is imported to {out / 'graph'}")
    with steps_bar(f"propagate {dataset}") as progress:
        options |= {"memory": memory, "progress": progress}
        if update:
            before = HopStore.open(out).manifest.added
            store = update_store(dataset, out, **options)
            if store.manifest.added == before:
                print_note(f"Nothing was added: all of {dataset} is already in {out}, or dropped.")
        else:
            store = run(dataset, out, seed=split_seed, **options, **chosen)
    summary = _summary(store) | {
        "out": str(out),
        "seconds": round(time.monotonic() - started, 3),
        "imported": imported,
        "cluster": cluster,
    }
    print_json(summary) if json else _print(summary)


def _summary(store: Any) -> dict[str, Any]:
    from hoplite.machine import peak_memory

    manifest = store.manifest
    return {
        "dataset": manifest.name,
        "nodes": store.num_nodes,
        "edges": manifest.entries // 2,
        "features": store.num_features,
        "hops": store.hops,
        "operator": manifest.operator,
        "basis": manifest.basis,
        "dtype": manifest.dtype,
        "panels": len(manifest.panels),
        "row_blocks": len(manifest.row_blocks),
        "bytes": store.size(),
        "peak_memory": peak_memory(),
        "error": list(store.errors()),
    }


def _print(summary: dict[str, Any]) -> None:
    from hoplite.machine import format_bytes

    basis = find_basis(summary["basis"]).title
    print_line(
        f"{summary['out']}: hops 0 to {summary['hops']} of {summary['dataset']} "
        f"({summary['nodes']:,} nodes, {summary['features']:,} features, {summary['operator']}, "
        f"{basis}), {format_bytes(summary['bytes'])} in {summary['row_blocks']:,} row "
        f"blocks x {summary['panels']:,} panels"
    )
    print_line(f"{summary['seconds']:.1f} s, peak memory {format_bytes(summary['peak_memory'])}")
    if summary["error"]:
        rows = [
            [str(record["hop"]), f"{record['max_abs']:.3g}", f"{record['relative']:.3g}"]
            for record in summary["error"]
        ]
        columns = ["hop", "largest error", "relative (Frobenius)"]
        print_table(f"rounding errors of {summary['dtype']}", columns, rows)
