"""Graphs of other libraries: what people have in memory becomes a :class:`hoplite.Graph`.

No library is imported here before an object of it is met. ``Graph.from_pyg`` and the like call the
functions of :mod:`hoplite.convert.attributes` (nodes with named columns, read by the rules of node
and edge tables) and :mod:`hoplite.convert.arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

from hoplite.convert.arrays import from_dgl, from_pyg, from_scipy
from hoplite.convert.attributes import from_frames, from_igraph, from_networkx, is_frame
from hoplite.errors import ConfigError
from hoplite.link import link_of_model
from hoplite.preparation import TableOptions
from hoplite.structural import count_of_model

READERS = {
    "dgl": from_dgl,
    "igraph": from_igraph,
    "networkx": from_networkx,
    "scipy": from_scipy,
    "torch_geometric": from_pyg,
}
COLUMNS = ("igraph", "networkx")  # whose nodes have named columns
KNOWN = "a graph of PyTorch Geometric, NetworkX, igraph, DGL or SciPy, or a pair of frames"


def converted(source: Any, /, *, seed: int = 0, prepare: Any = None, **options: Any) -> Any:
    """``source`` as a Graph if it is another library's, and otherwise ``source`` itself.

    ``options`` are those of the ``Graph.from_...`` that reads it, ``prepare`` is for those that
    have named columns.

    >>> import scipy.sparse as sp
    >>> converted(sp.eye_array(3, k=1), structural=0)
    Graph(nodes=3, edges=2, features=2, classes=0)
    >>> converted("cora")
    'cora'
    """
    libraries = [kind.__module__.partition(".")[0] for kind in type(source).__mro__]
    library = next((name for name in libraries if name in READERS), None)
    if library is None and not _is_pair(source):
        return source
    if options.get("structural") is None:  # those of a model
        options["structural"] = count_of_model(prepare)
    options["link"] = options.get("link", False) or link_of_model(prepare)
    if (library is None or library in COLUMNS) and prepare is not None:
        options["prepare"] = prepare
    if library is None:
        return from_frames(*source, seed=seed, **options)
    if library not in COLUMNS:
        own = signature(READERS[library]).parameters
        for name in [name for name in TableOptions.names() if name in options and name not in own]:
            if options.pop(name) is not None:
                raise ConfigError(
                    f"{name} is given, which says how columns of nodes are read, but a graph of "
                    f"{library} has none; leave it out."
                )
    return READERS[library](source, seed=seed, **options)


def _is_pair(source: Any) -> bool:
    pair = isinstance(source, Sequence) and not isinstance(source, str) and len(source) == 2
    return pair and all(is_frame(one) for one in source)
