"""Packages: imports go down the list in CONTRIBUTING, none come back, none need the experiments."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def imports(module: str) -> set[str]:
    """The modules of the package that ``module`` imports, lazily or not, but for types alone."""
    tree = tree_of(module)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
    return found - {module, "hoplite"}  # the package itself looks its names up when they are used


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Nodes of a graph that lead to each other, none if there are no such."""
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> Iterator[list[str]]:
        if node in way:
            yield [*way[way.index(node) :], node]
        elif node not in done:
            for other in sorted(edges.get(node, ())):
                yield from visit(other, [*way, node])
            done.add(node)

    return next((found for node in sorted(edges) for found in visit(node, [])), [])


def test_a_cycle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle({module: imports(module) for module in MODULES}) == []


def test_no_room_imports_itself_by_way_of_others() -> None:
    edges: dict[str, set[str]] = {}
    for module in MODULES:
        others = {room(other) for other in imports(module)}
        edges.setdefault(room(module), set()).update(others - {room(module)})
    assert cycle(edges) == []


def test_the_library_needs_neither_experiments_nor_benchmarks() -> None:
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"experiments", "benchmarks"}
