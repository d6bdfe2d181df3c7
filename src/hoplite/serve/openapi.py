"""What the server answers, in the words of OpenAPI 3.1, from the types that it uses."""

from __future__ import annotations

from typing import Any

import msgspec

from hoplite.explain.summary import Changes, Summary
from hoplite.serve.schema import (
    ChangeAnswer,
    ChangeRequest,
    ExplanationQuery,
    Failure,
    FeatureSearch,
    FoundExamples,
    FoundFeatures,
    FoundNodes,
    ModelAnswer,
    NodeAnswer,
    NodeQuery,
    Search,
)
from hoplite.version import VERSION

GETS: dict[str, tuple[str, type | None, type]] = {
    "/api/model": ("The model and its data.", None, ModelAnswer),
    "/api/examples": ("Nodes to begin with.", None, FoundExamples),
    "/api/nodes": ("Nodes by how their ids begin.", Search, FoundNodes),
    "/api/features": ("What can be changed, by how its name begins.", FeatureSearch, FoundFeatures),
    "/api/node": ("A node: its prediction, values and nearest.", NodeQuery, NodeAnswer),
    "/api/explanation": ("Why, as exact sums; see docs/explain.md.", ExplanationQuery, Summary),
    "/api/flips": ("Which value of the node would change its class.", NodeQuery, Changes),
}
REFUSALS = {
    "400": "A parameter, the JSON or the host is wrong.",
    "404": "There is no such node.",
    "413": "The body is too long.",
    "422": "A value cannot be used.",
    "503": "Too much is asked at once.",
}


def openapi() -> dict[str, Any]:
    """The description as plain JSON values."""
    asked = [kind for _, kind, _ in GETS.values() if kind is not None]
    types = [*dict.fromkeys([*asked, *(kind for _, _, kind in GETS.values())])]
    types += [ChangeRequest, ChangeAnswer, Failure]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    place = dict(zip(types, schemas, strict=True))
    for one in components.values():  # numbers in the library, texts here: see serve.explained
        if {"type": "integer"} in one.get("properties", {}).get("id", {}).get("anyOf", ()):
            one["properties"]["id"] = {"type": "string"}
    paths: dict[str, Any] = {
        path: {"get": _operation(told, place[answer], parameters=_parameters(kind))}
        for path, (told, kind, answer) in GETS.items()
    }
    body = {"required": True, "content": _content(place[ChangeRequest])}
    told = "What the model would say if some values of a node were others."
    paths["/api/change"] = {"post": _operation(told, place[ChangeAnswer], requestBody=body)}
    for methods in paths.values():
        for operation in methods.values():
            for status, why in REFUSALS.items():
                content = _content(place[Failure])
                operation["responses"][status] = {"description": why, "content": content}
    return {
        "openapi": "3.1.0",
        "info": {"title": "hoplite serve", "version": VERSION},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(told: str, answer: Any, **more: Any) -> dict[str, Any]:
    done = {"description": "The answer.", "content": _content(answer)}
    return {"summary": told, "responses": {"200": done}, **more}


def _content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(kind: type | None) -> list[dict[str, Any]]:
    if kind is None:
        return []
    fields = msgspec.json.schema(kind)["$defs"][kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in fields.get("required", ()), "schema": one}
        for name, one in fields["properties"].items()
    ]
