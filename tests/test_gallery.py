"""The examples of the gallery run, small, in a folder of their own, and leave nothing behind."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests import pyg

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SMALL = "HOPLITE_EXAMPLES"

pytest.importorskip("plotly")
SCRIPTS: list[Path] = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))["gallery_scripts"]()


@pytest.mark.parametrize("name", sorted({path.stem for path in SCRIPTS} - {"dask_cluster"}))
def test_an_example_runs(name, tmp_path, monkeypatch, capsys):
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    if "pandas" in text:
        pytest.importorskip("pandas")
    if "torch_geometric" in text:
        pyg.layers()
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    monkeypatch.setenv(SMALL, "small")
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
    own = [file for file in scratch.iterdir() if not file.name.startswith(("torch", "__pycache__"))]
    assert not [*here.iterdir(), *own]


def test_dask_cluster(tmp_path):
    """As a plain script, in another folder, with real workers."""
    pytest.importorskip("distributed")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "dask_cluster.py")],
        cwd=tmp_path,
        env={**os.environ, SMALL: "small"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "the same numbers as from one process: True\n" in done.stdout
    assert not [*tmp_path.iterdir()]


def test_every_example_has_a_place():
    gallery = runpy.run_path(str(ROOT / "docs" / "_ext" / "gallery.py"))
    assert set(gallery["ORDER"]) == {script.stem for script in SCRIPTS}
