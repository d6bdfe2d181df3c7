"""Linear models need no PyTorch: the README's example and the commands, without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKER = """
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec

def without_torch(name, path=None, target=None):
    hidden = name.partition(".")[0] in ("torch", "torch_geometric")
    return None if hidden else find_spec(name, path, target)

PathFinder.find_spec = without_torch
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> tuple[dict[str, str], Path]:
    """The environment of processes in which torch is not installed, and a folder to work in."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "path").mkdir()
    (folder / "path" / "sitecustomize.py").write_text(BLOCKER)
    return os.environ | {"PYTHONPATH": str(folder / "path")}, folder


def run(bare, *words, code: str | None = None) -> subprocess.CompletedProcess[str]:
    env, folder = bare
    command = [sys.executable, *(["-c", code] if code else ["-m", "hoplite", *words])]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)


def test_the_readme_example(bare):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    done = run(bare, code=f"{code}\nimport torch")
    assert done.stderr.strip().endswith("No module named 'torch'"), done.stderr


def test_train_predict_explain_search_and_serve(bare):
    quick = ["--epochs", "5", "--json"]
    commands = [
        ["train", "cora", "--hops", "3", "--seeds", "2", *quick, "--out", "model"],
        ["predict", "model", "cora", "--out", "labels.csv", "--json"],
        ["explain", "model", "cora", "--node", "17", "--json"],
        ["search", "cora", "--model", "sgc", "--samples", "2", "--seeds", "1", "--out", "s"],
    ]
    code = "from hoplite.cli import app\n"
    done = run(bare, code=code + f"for words in {commands}: app(words, standalone_mode=False)")
    assert done.returncode == 0, done.stderr
    env, folder = bare
    command = [sys.executable, "-m", "hoplite", "serve", "model", "cora", "--port", "0", "--json"]
    server = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        found = next(match for line in lines if (match := re.search(r"http://[^\s\"]+", line)))
        for _ in range(100):
            try:
                url = found[0].rstrip("/") + "/api/model"
                with urllib.request.urlopen(url, timeout=300) as answer:
                    assert json.load(answer)
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise AssertionError("the server did not answer")
    finally:
        server.terminate()
        server.communicate(timeout=600)


def test_networks_name_the_extra(bare):
    done = run(bare, "train", "cora", "--model", "gcn", "--seeds", "1", "--epochs", "1")
    assert done.returncode == 1
    assert ".[torch]" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
