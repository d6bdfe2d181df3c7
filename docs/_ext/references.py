"""References of docstrings to names of the code that have no page, or that another page has.

Sphinx looks names up where they are documented (`hoplite.load`), docstrings name them as their own
module sees them (`read_tables`, `Weights`). A name that only one page documents leads there, and
one that Hoplite's code has, but no page, is shown as text. All others are warnings.
"""

from __future__ import annotations

import ast
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import hoplite

OWN = "hoplite."
SKIPPED = ("hoplite.__main__", "hoplite._native")


@cache
def known_names() -> frozenset[str]:
    """Every name that a module of Hoplite has, alone and with the module."""
    found = set()
    for info in pkgutil.walk_packages(hoplite.__path__, OWN):
        if info.name not in SKIPPED:
            home = import_module(info.name)
            found |= {info.name, *vars(home), *(f"{info.name}.{name}" for name in vars(home))}
            found |= annotated(home.__file__)
    return frozenset(found)


def annotated(path: str | None) -> set[str]:
    """The names that a module has for its annotations alone."""
    tree = ast.parse(Path(path or "").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found = {name.asname or name.name for node in imports for name in node.names}
    apart = [inner for node in tree.body if isinstance(node, ast.If) for inner in node.body]
    assigned = [node.targets for node in apart if isinstance(node, ast.Assign)]
    return found | {name.id for names in assigned for name in names if isinstance(name, ast.Name)}


def is_known(target: str) -> bool:
    """Whether the code has it: a module, a name of one, or a member of such a name."""
    if target in known_names():
        return True
    owner, _, member = target.rpartition(".")
    if owner not in known_names():
        return False
    home, _, name = owner.rpartition(".")
    if not home.startswith("hoplite"):
        return False
    value = getattr(import_module(home), name, None)
    return hasattr(value, member) or member in getattr(value, "__annotations__", {})


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Node | None:
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].lstrip(".~")
    domain = env.domains.python_domain
    pages = {
        (entry.docname, entry.node_id)
        for name, entry in domain.objects.items()
        if name == target or name.endswith(f".{target}")
    }
    if len(pages) == 1:
        ((page, anchor),) = pages
        link = nodes.reference("", "", content, internal=True)
        link["refuri"] = f"{app.builder.get_relative_uri(node['refdoc'], page)}#{anchor}"
        return link
    return content if is_known(target) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
