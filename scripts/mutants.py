"""The mutants of a package: every small change that Cosmic Ray knows, and a random choice of them.

Not made, since no test could tell them from the code, or since the code never runs:
annotations (but those of classes that msgspec checks), functions whose body is only a
docstring or ``...`` (protocols, overloads), what is under ``TYPE_CHECKING``, the stars of arguments
(which Cosmic Ray takes for products), and ``==`` changed to ``is``, ``!=`` to ``is not`` (the same
for small numbers and for names in the source).
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# pyright: reportMissingImports=false
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    name: f"src/hoplite/{name}"
    for name in (
        *("bases.py", "operators.py", "engine", "models", "store", "training"),
        "search",
    )
}
SAME = ("_Eq_Is", "_NotEq_IsNot")
BINARY = "ReplaceBinaryOperator"
Position = tuple[int, int]  # line and column


@dataclass(frozen=True)
class Mutant:
    """Change number ``occurrence`` of the kind ``operator`` in the file ``path``.

    ``place`` is what mutants of one spot share, ``key`` names the mutant; both change only if the
    function around it does. ``lines`` are those that a test must run to notice it.
    """

    path: str
    operator: str
    occurrence: int
    line: int
    place: str
    key: str
    lines: tuple[int, ...]

    def apply(self) -> tuple[str, str, str]:
        """The changed source, and the changed lines before and after."""
        source = (ROOT / self.path).read_text(encoding="utf-8")
        code = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        old, new = source.splitlines(), code.splitlines()
        head = _alike(old, new)
        tail = _alike(old[head:][::-1], new[head:][::-1])
        before, after = (
            " ".join(line.strip() for line in lines[head : len(lines) - tail])
            for lines in (old, new)
        )
        return code, before, after


def sampled(package: str, sample: int | None, seed: int) -> tuple[list[Mutant], int, int]:
    """One random mutant at each of ``sample`` random places (None: all), and how many there are."""
    base = ROOT / PACKAGES[package]
    files = [base] if base.suffix == ".py" else sorted(base.rglob("*.py"))
    mutants = [one for path in files for one in _mutants_of(path)]
    mutants.sort(key=lambda one: _digest(seed, one.key))
    first: dict[str, Mutant] = {}
    for one in mutants:
        first.setdefault(one.place, one)
    chosen = mutants if sample is None else list(first.values())[:sample]
    return chosen, len(first), len(mutants)


def _mutants_of(path: Path) -> Iterator[Mutant]:
    source = path.read_text(encoding="utf-8")
    nodes = list(ast_nodes(get_ast(source)))
    scopes = _Scopes(source)
    name = str(path.relative_to(ROOT))
    seen: dict[str, int] = defaultdict(int)
    for operator_name in operator_names():
        operator_class = get_operator(operator_name)
        if operator_class.arguments() or operator_name.endswith(SAME):
            continue
        operator = operator_class()
        family = operator_name.split("/")[1].split("_")[0]
        places = (place for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (begin, end) in enumerate(places):
            if scopes.idle(begin) or (family == BINARY and not scopes.binary(begin)):
                continue
            first, last = scopes.unit(begin)
            text = "\n".join(scopes.source[first - 1 : last])
            place = _digest(name, text, begin[0] - first, begin[1], end[1], family)
            seen[place + operator_name] += 1
            key = _digest(place, operator_name, seen[place + operator_name])
            lines = tuple(scopes.lines(begin))
            yield Mutant(name, operator_name, occurrence, begin[0], place, key, lines)


class _Scopes:
    """In what function and statement of a module a position is."""

    def __init__(self, source: str) -> None:
        self.source = source.splitlines()
        nodes = list(ast.walk(ast.parse(source)))
        self.statements = [node for node in nodes if isinstance(node, ast.stmt)]
        self.functions = [
            node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        self.classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        self.idle_spans = [_ends(node) for node in self._idle_nodes(nodes)]
        self.binary_spans = [
            (_ends(node.left)[1], _ends(node.right)[0])
            for node in nodes
            if isinstance(node, ast.BinOp)
        ]

    def _idle_nodes(self, nodes: list[ast.AST]) -> Iterator[Any]:
        read: set[int] = set()
        if any("msgspec" in line for line in self.source):  # which reads the fields' annotations
            read = {id(field) for one in self.classes for field in one.body}
        for node in nodes:
            if isinstance(node, ast.arg | ast.AnnAssign) and id(node) not in read:
                yield from filter(None, [node.annotation])
            elif isinstance(node, ast.FunctionDef):
                yield from filter(None, [node.returns])
                if all(_says_nothing(statement) for statement in node.body):
                    yield from [node, *node.decorator_list]
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                yield node

    def idle(self, position: Position) -> bool:
        # a decorator's change is placed at its @, one column before its name
        near = (position[0], position[1] + 1)
        return any(begin <= near and position < end for begin, end in self.idle_spans)

    def binary(self, position: Position) -> bool:
        """Whether an operator stands there, between its two sides."""
        return any(begin <= position < end for begin, end in self.binary_spans)

    def unit(self, position: Position) -> tuple[int, int]:
        """First and last line of the innermost function or class, else statement, around it."""
        around = self._around([*self.functions, *self.classes], position)
        return _span((around or self._around(self.statements, position))[-1])

    def lines(self, position: Position) -> Iterable[int]:
        """Of the statement within a function; else of the whole function, or of the module."""
        line = position[0]
        inner = self._around(self.statements, position)[-1]
        functions = self._around(self.functions, position)
        if functions and inner is not functions[-1]:
            body = getattr(inner, "body", None)
            last = body[0].lineno - 1 if body else inner.end_lineno or line
            return range(inner.lineno, max(last, line) + 1)
        first, last = _span(functions[-1]) if functions else (1, len(self.source))
        return range(first, last + 1)

    @staticmethod
    def _around(nodes: list[Any], position: Position) -> list[Any]:
        held = [one for one in nodes if _span(one)[0] <= position[0] <= _span(one)[1]]
        return sorted(held, key=_span)


def _ends(node: Any) -> tuple[Position, Position]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _span(node: Any) -> tuple[int, int]:
    return min(one.lineno for one in [node, *getattr(node, "decorator_list", [])]), node.end_lineno


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _alike(old: list[str], new: list[str]) -> int:
    """How many lines at the beginning are the same."""
    for count, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return count
    return min(len(old), len(new))


def _digest(*parts: Any) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:20]
