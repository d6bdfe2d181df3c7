"""hoplite serve: a local page, and JSON over HTTP, to ask a model about single nodes."""

from __future__ import annotations

from typing import Any

from typer import Option

import hoplite
from hoplite.cli import console, graphs, options
from hoplite.errors import plural
from hoplite.progress import steps_bar


@options.with_reading
def serve(
    model_dir: options.ModelFolder,
    dataset: options.Dataset,
    host: str = Option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 lets anyone on the network connect."
    ),
    port: int = Option(
        8000, min=0, max=65535, metavar="N", help="Port to listen on; 0 for any free port."
    ),
    open_: bool = Option(False, "--open/--no-open", help="Open the page in a browser."),
    memory: options.StoreMemory = None,
    own_class: options.OwnClass = None,
    json: options.Json = False,
    **reading: Any,
) -> None:
    """Serve predictions and explanations over HTTP.

    A page shows the prediction, its exact explanation, the neighbourhood, and the effect of
    changing a value; /openapi.json describes the JSON interface. Without --host, only this machine
    can connect. Press Ctrl-C to stop. With --json, the address is printed once it is ready.

    Example: hoplite serve cora-lgc cora
    """
    from hoplite.serve import check_libraries

    check_libraries()
    from hoplite.serve.answers import Answers
    from hoplite.serve.app import address, is_loopback, listen, make_app, run

    bound = listen(host, port)  # first, as all else takes longer
    with bound:
        model = options.load_model(model_dir, dataset, own_class)
        model, data = graphs.open_data(model_dir, model, dataset, reading)
        with steps_bar(f"prepare {data.name}") as report:
            answers = Answers(model, data, memory=memory, progress=report)
        hoplite.set_num_threads(1)  # threads of the engine; requests have threads of their own
        where = address(host, bound)
        if not is_loopback(host):
            console.print_note(
                f"warning: {host} can be reached from other machines without a login; anyone who "
                "can reach it can see the data."
            )

        def ready() -> None:
            if json:
                place = {"address": where, "host": host, "port": bound.getsockname()[1]}
                console.print_json(place | {"dataset": data.name, "nodes": data.num_nodes})
            else:
                console.print_line(
                    f"{data.name}, {plural(data.num_nodes, 'node')}: {where} (press Ctrl-C to stop)"
                )
            if open_:
                import webbrowser

                webbrowser.open(where)

        run(make_app(answers, host=host), bound, ready)
    console.print_note("The server has stopped.")
