"""hoplite propagate: hop features on disk, for graphs that are larger than memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from typer import Option

import hoplite
from hoplite.bases import find_basis
from hoplite.cli import console, options
from hoplite.errors import ConfigError, plural
from hoplite.machine import format_bytes, parse_bytes, peak_memory
from hoplite.operators import SYMMETRIC
from hoplite.preparation import TableOptions

DTYPES = ("float32", "float16", "bfloat16")


@options.with_store_tables
def propagate(
    dataset: options.Source,
    out: Path = Option(help="Folder of the store (resumed if it exists)."),
    hops: int | None = Option(None, min=0, help="Number of hops; required without --update."),
    update: bool = Option(
        False,
        "--update",
        help="Add the nodes and edges of DATASET, a folder of tables, to the store.",
    ),
    memory: str = Option(
        "4GB", help="Memory limit of the process, e.g. 600MB; of each worker with --cluster."
    ),
    dtype: str | None = Option(
        None,
        help="Data type of the hops: float32, float16 or bfloat16.",
        show_default="float32",
        autocompletion=options.complete(DTYPES),
    ),
    threads: options.Threads = None,
    cluster: options.Cluster = None,
    prepare: Path | None = Option(
        None,
        metavar="MODEL_DIR",
        help="Prepare the columns as this trained model does.",
    ),
    operator: str | None = Option(
        None,
        help=f"Graph operator: {', '.join(SYMMETRIC)}.",
        show_default="renormalized",
        autocompletion=options.complete(SYMMETRIC),
    ),
    basis: str | None = Option(None, help="Basis, e.g. chebyshev.", show_default="monomial"),
    json: options.Json = False,
    **settings: Any,
) -> None:
    """Compute the hop features of DATASET once and keep them on disk.

    A hop store contains p_0(S) X, ..., p_k(S) X. The graph may be larger than memory. After an
    interruption, run the same command again to continue. With --update, only rows that change are
    computed.

    Example: hoplite propagate cora --hops 3 --out cora-hops --memory 1GB
    """
    settings |= {"hops": hops, "operator": operator, "basis": basis, "dtype": dtype}
    settings |= {"cluster": cluster, "prepare": prepare}
    chosen = options.without_none(settings)
    tables = {name: chosen.pop(name) for name in TableOptions.names() if name in chosen}
    if update and chosen:
        raise ConfigError(
            "cannot be combined with --update, which uses the store's setting.", min(chosen)
        )
    if not update and "hops" not in chosen:
        raise ConfigError("is missing; pass the number of hops, e.g. --hops 2.", "hops")
    from hoplite.store.opening import large_tables  # only now, as importing it takes time

    if threads is not None:
        hoplite.set_num_threads(threads)
    if prepare is not None:
        chosen["prepare"] = hoplite.TrainedModel.load(prepare)
    started = time.monotonic()
    imported = not update and large_tables(dataset, parse_bytes(memory), tables)
    if imported:
        console.print_note(
            f"{dataset} is too large for --memory {memory}, so it is first imported to "
            f"{out / 'graph'}"
        )
    tables |= {"memory": memory, "progress": True}
    if update:
        before = hoplite.HopStore.open(out).manifest.added
        store = hoplite.update_store(dataset, out, **tables)
        if store.manifest.added == before:
            console.print_note(
                f"Nothing was added: all of {dataset} is already in {out} or was dropped."
            )
    else:
        store = hoplite.propagate(dataset, out, **tables, **chosen)
    summary = _summary(store) | {
        "out": str(out),
        "seconds": round(time.monotonic() - started, 3),
        "imported": imported,
        "cluster": cluster,
    }
    console.print_json(summary) if json else _print(summary)


def _summary(store: Any) -> dict[str, Any]:
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
    basis = find_basis(summary["basis"]).title
    console.print_line(
        f"{summary['out']}: hops 0 to {summary['hops']} of {summary['dataset']} "
        f"({plural(summary['nodes'], 'node')}, {plural(summary['features'], 'feature')}, "
        f"{summary['operator']}, {basis}), {format_bytes(summary['bytes'])} in "
        f"{plural(summary['row_blocks'], 'row block')} x {plural(summary['panels'], 'panel')}"
    )
    console.print_line(
        f"{summary['seconds']:.1f} s, peak memory {format_bytes(summary['peak_memory'])}"
    )
    if summary["error"]:
        rows = [
            [str(record["hop"]), f"{record['max_abs']:.3g}", f"{record['relative']:.3g}"]
            for record in summary["error"]
        ]
        columns = ["hop", "largest error", "relative (Frobenius)"]
        console.print_table(f"rounding errors of {summary['dtype']}", columns, rows)
