"""hoplite propagate: hop features on disk, for graphs that are larger than memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hoplite.bases import basis_choices, basis_words, find_basis
from hoplite.cli.completion import DTYPES, offered
from hoplite.cli.console import (
    DatasetArgument,
    JsonOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    print_json,
    print_line,
    print_note,
    print_table,
    steps_bar,
)
from hoplite.cli.settings import table_options, with_tables
from hoplite.errors import ConfigError
from hoplite.models import ModelConfig
from hoplite.operators import SYMMETRIC

_model = ModelConfig()


@with_tables()
def propagate(
    dataset: DatasetArgument,
    out: Annotated[
        Path, typer.Option(help="Folder of the store; the same command continues in it.")
    ],
    hops: Annotated[
        int | None, typer.Option(help="Degree k of the polynomial.", show_default="none")
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Add the nodes and edges of DATASET, a folder of tables, to the store: only what "
            "they change is computed.",
        ),
    ] = False,
    memory: Annotated[
        str, typer.Option(help="Peak of the whole process: 600MB, 4GB, 1.5GiB.")
    ] = "4GB",
    operator: Annotated[
        str | None,
        typer.Option(
            help="renormalized, adjacency or laplacian.",
            show_default=_model.operator,
            autocompletion=offered(SYMMETRIC),
        ),
    ] = None,
    basis: Annotated[
        str | None,
        typer.Option(
            help=f"{basis_choices()}.",
            show_default=_model.basis,
            autocompletion=offered(basis_words()),
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="How hops are stored: float32, float16 or bfloat16.",
            show_default="float32",
            autocompletion=offered(DTYPES),
        ),
    ] = None,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
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

    With --update, DATASET has nodes and edges that came later: they join those of the store in
    --out, in which only the rows that they change are computed again.

    Example: hoplite propagate cora --hops 3 --out cora-hops --memory 1GB
    """
    own = {"hops": hops, "operator": operator, "basis": basis, "dtype": dtype}
    chosen = {name: value for name, value in own.items() if value is not None}
    if update:
        more = {"split-index": split_index, "structural": structural}
        _refuse(chosen | more | {"cluster": cluster, "prepare": prepare})
    elif hops is None:
        raise ConfigError("--hops is missing; give the degree k of the polynomial.")
    from hoplite import set_num_threads  # only now, as importing it takes time
    from hoplite.memory import parse_bytes, peak_memory
    from hoplite.store import HopStore, update_store
    from hoplite.store import propagate as run
    from hoplite.store.opening import large_tables

    if threads is not None:
        set_num_threads(threads)
    given = table_options(tables)
    if prepare is not None:
        from hoplite import TrainedModel

        given["prepare"] = TrainedModel.load(prepare)
    started = time.monotonic()
    imported = not update and large_tables(dataset, parse_bytes(memory), given)
    if imported:
        print_note(
            f"{dataset} is large for --memory {memory}: it is imported piece by piece, to "
            f"{out / 'graph'}"
        )
    with steps_bar(f"propagate {dataset}") as progress:
        if update:
            before = HopStore.open(out).manifest.added
            store = update_store(dataset, out, memory=memory, progress=progress, **given)
            if store.manifest.added == before:
                print_note(f"All of {dataset} is in {out} already, or dropped: nothing was added.")
        else:
            loaded = {"split": split_index, "structural": structural}
            given |= {name: value for name, value in loaded.items() if value is not None}
            options = given | chosen
            store = run(
                dataset,
                out,
                memory=memory,
                seed=split_seed,
                progress=progress,
                cluster=cluster,
                **options,
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


def _refuse(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"--{name} is given with --update; the store has its own, leave it.")


def _print(summary: dict[str, Any]) -> None:
    from hoplite.memory import show_bytes

    basis = find_basis(summary["basis"]).title
    print_line(
        f"{summary['out']}: hops 0 to {summary['hops']} of {summary['dataset']} "
        f"({summary['nodes']:,} nodes, {summary['features']:,} features, {summary['operator']}, "
        f"{basis}), {show_bytes(summary['bytes'])} in {summary['row_blocks']:,} row "
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
