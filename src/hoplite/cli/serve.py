"""hoplite serve: a local page, and JSON over HTTP, to ask a model about single nodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hoplite.cli.console import print_json, print_line, print_note, steps_bar
from hoplite.cli.options import (
    DatasetArgument,
    JsonOption,
    ModelArgument,
    OwnClassOption,
    SplitSeedOption,
    StoreMemoryOption,
    load_model,
    table_options,
    with_tables,
)


@with_tables(reading=True)
def serve(
    model_dir: ModelArgument,
    dataset: DatasetArgument,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in, unasked.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen at; 0 is any that is free.")
    ] = 8000,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    memory: StoreMemoryOption = None,
    split_seed: SplitSeedOption = 0,
    own_class: OwnClassOption = None,
    json: JsonOption = False,
    **tables: Any,
) -> None:
    """Serve a page where one looks a node of DATASET up and sees why it is predicted so.

    It shows the prediction, its exact explanation and the neighbourhood, and what the model would
    say if a value of the node were another. The same is there as JSON (see /openapi.json). Only
    this machine reaches it unless --host says otherwise; Ctrl-C ends it. With --json the address
    is printed as one object as soon as it answers.
    """
    from hoplite.serve import check_libraries

    check_libraries()
    from hoplite import open_data  # only now, as importing it takes time
    from hoplite.engine.backend import set_num_threads
    from hoplite.serve.answers import Answers
    from hoplite.serve.app import address, is_loopback, listen, make_app, run

    bound = listen(host, port)  # first, as all else takes longer
    with bound:
        model = load_model(model_dir, own_class)
        data = open_data(dataset, seed=split_seed, prepare=model, **table_options(tables))
        with steps_bar(f"prepare {data.name}") as report:
            answers = Answers(model, data, memory=memory, progress=report)
        set_num_threads(1)  # of the engine; requests have threads of their own
        where = address(host, bound)
        if not is_loopback(host):
            print_note(
                f"warning: {host} is reached from other machines, and nobody is asked who they "
                "are; whoever reaches it sees the data."
            )

        def ready() -> None:
            if json:
                told = {"address": where, "host": host, "port": bound.getsockname()[1]}
                print_json(told | {"dataset": data.name, "nodes": data.num_nodes})
            else:
                print_line(f"{data.name}, {data.num_nodes:,} nodes: {where} (Ctrl-C ends it)")
            if open_:
                import webbrowser

                webbrowser.open(where)

        run(make_app(answers, host=host), bound, ready)
    print_note("The server has ended.")
