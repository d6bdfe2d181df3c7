"""The model and the settings of ``train`` where no model is given: they depend on the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoplite.models import HopBlocks, default_options, find_model
from hoplite.node_data import NodeData
from hoplite.structural import with_log_degree


def with_default_model(
    data: NodeData, model: str | type | None, options: Mapping[str, Any]
) -> tuple[NodeData, str | type, dict[str, Any]]:
    """``data``, ``model`` and ``options``, with the defaults for the data if ``model`` is None.

    They are those of :func:`hoplite.models.default_options`; data in memory whose features come
    from named columns counts as tables. With hop blocks the logarithm of the degree is one more
    feature.
    """
    if model is not None:
        return data, model, dict(options)
    made = data.preparation
    tables = made is not None and bool(made.fitted or made.transformer) and data.stored is None
    name, chosen = default_options(options, tables=tables)
    if issubclass(find_model(name), HopBlocks):
        data = with_log_degree(data.in_memory())
    return data, name, chosen
