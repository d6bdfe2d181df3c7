"""The Python of the README and the docs runs as it stands there, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
from tests import pyg

from hoplite.models import MODELS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[a-z]*/*.md"))]
EXECUTED = DOCS / "tutorials"  # by the site's build, which fails if a block does: tests/site


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != EXECUTED], ids=lambda page: page.name
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what the examples save must not land in the repository
    known = dict(MODELS)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for module in ("pandas", "networkx", "onnx"):  # which Hoplite itself does not need
        if module in "\n".join(blocks):
            pytest.importorskip(module)
    if "torch_geometric" in "\n".join(blocks):
        pyg.layers()
    try:
        for block in blocks:
            exec(compile(block, page.name, "exec"), {})
    finally:  # a page may make a model known
        MODELS.clear()
        MODELS.update(known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_readme_names_every_module():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for folder in (ROOT / "src" / "hoplite").iterdir():
        if folder.is_dir() and (folder / "__init__.py").exists():
            assert f"src/hoplite/{folder.name}/" in text
