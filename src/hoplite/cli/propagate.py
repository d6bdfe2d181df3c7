"""hoplite propagate: hop features on disk, for graphs that are larger than memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hoplite.bases import basis_choices
from hoplite.cli.console import (
    DatasetArgument,
    JsonOption,
    SplitSeedOption,
    print_json,
    print_line,
    print_note,
    print_table,
    steps_bar,
)
from hoplite.cli.settings import table_options, with_tables
from hoplite.models import ModelConfig

_model = ModelConfig()


@with_tables()
def propagate(
    dataset: DatasetArgument,
    hops: Annotated[int, typer.Option(help="Degree k of the polynomial.")],
    out: Annotated[
        Path, typer.Option(help="Folder of the store; the same command continues in it.")
    ],
    memory: Annotated[
        str, typer.Option(help="Peak of the whole process: 600MB, 4GB, 1.5GiB.")
    ] = "4GB",
    operator: Annotated[
        str, typer.Option(help="renormalized, adjacency or laplacian.")
    ] = _model.operator,
    basis: Annotated[str, typer.Option(help=f"{basis_choices()}.")] = _model.basis,
    dtype: Annotated[
        str, typer.Option(help="How hops are stored: float32, float16 or bfloat16.")
    ] = "float32",
    split_seed: SplitSeedOption = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; all cores if not given.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Compute on a Dask cluster: tcp://HOST:PORT of a scheduler, or local:N "
            "processes; --memory is of each worker then."
        ),
    ] = None,
    prepare: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL_DIR",
            help="Of node tables: prepare their columns as this model does, to predict from the "
            "store.",
        ),
    ] = None,
    json: JsonOption = False,
    **tables: Any,
) -> None:
    """Compute the hop features p_0(S) X .. p_k(S) X of DATASET once and keep them in a folder.

    It may be stopped at any moment, or killed: the same command goes on where it was. Node and edge
    tables may be larger than memory, too; they are imported piece by piece.

    Example: hoplite propagate cora --hops 3 --out cora-hops --memory 1GB
    """
    if cluster is not None:
        from hoplite.cluster import warm_up

        warm_up(cluster)
    from hoplite import set_num_threads  # only now: importing torch takes a second
    from hoplite.memory import parse_bytes, peak_memory
    from hoplite.store import propagate as run
    from hoplite.store.opening import large_tables

    if threads is not None:
        set_num_threads(threads)
    given = table_options(tables)
    if prepare is not None:
        from hoplite import TrainedModel

        given["prepare"] = TrainedModel.load(prepare)
    started, imported = time.monotonic(), large_tables(dataset, parse_bytes(memory))
    if imported:
        print_note(
            f"{dataset} is large for --memory {memory}: it is imported piece by piece, to "
            f"{out / 'graph'}"
        )
    with steps_bar(f"propagate {dataset}") as progress:
        store = run(
            dataset,
            out,
            hops=hops,
            operator=operator,
            basis=basis,
            memory=memory,
            dtype=dtype,
            seed=split_seed,
            progress=progress,
            cluster=cluster,
            **given,
        )
    manifest = store.manifest
    summary = {
        "dataset": manifest.name,
        "out": str(out),
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
        "seconds": round(time.monotonic() - started, 3),
        "peak_memory": peak_memory(),
        "imported": imported,
        "cluster": cluster,
        "error": list(store.errors()),
    }
    if json:
        print_json(summary)
    else:
        _print(summary)


def _print(summary: dict[str, Any]) -> None:
    from hoplite.memory import show_bytes

    print_line(
        f"{summary['out']}: hops 0 to {summary['hops']} of {summary['dataset']} "
        f"({summary['nodes']:,} nodes, {summary['features']:,} features, {summary['operator']}, "
        f"{summary['basis']}), {show_bytes(summary['bytes'])} in {summary['row_blocks']:,} row "
        f"blocks x {summary['panels']:,} panels"
    )
    print_line(f"{summary['seconds']:.1f} s, peak memory {show_bytes(summary['peak_memory'])}")
    if summary["error"]:
        rows = [
            [str(record["hop"]), f"{record['max_abs']:.3g}", f"{record['relative']:.3g}"]
            for record in summary["error"]
        ]
        print_table(
            f"what {summary['dtype']} loses", ["hop", "largest error", "relative (Frobenius)"], rows
        )
