"""The Python of the README and the docs runs as it stands there, and its links lead somewhere."""

import importlib
import re

import pytest
from tests import pyg
from tests.blocks import PAGES, ROOT, blocks, files_of, is_built, name_of


@pytest.mark.parametrize("page", [page for page in PAGES if not is_built(page)], ids=name_of)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what the examples save must not land in the repository
    found = blocks(page)
    code = [block for block in found if block.language == "python"]
    text = "\n".join(block.text for block in code)
    for module in ("pandas", "networkx", "onnx"):  # which Hoplite itself does not need
        if module in text:
            pytest.importorskip(module)
    if "torch_geometric" in text:
        pyg.layers()
    with files_of(found, tmp_path):
        for block in code:
            if block.file:
                importlib.import_module(block.file.removesuffix(".py"))
            else:
                exec(compile(block.text, str(block), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_map_names_every_module():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in (ROOT / "src" / "hoplite").iterdir():
        if (path / "__init__.py").exists():
            assert f"src/hoplite/{path.name}/" in text
        elif path.suffix == ".py" and not path.name.startswith("_"):
            assert f"{path.name}`" in text, path.name
    for name in re.findall(r"`((?:src|tests|experiments|benchmarks|docs|examples)/[\w./]+)`", text):
        assert "NAME" in name or (ROOT / name).exists(), name
