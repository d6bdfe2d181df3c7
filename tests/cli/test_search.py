"""hoplite search and reproduce on the command line: outputs, exports, and early errors."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow.csv
from tests.commands import fail, succeed

SPACE = """
[any]
lr = {low = 0.01, high = 0.3, log = true}
dropout = 0.0
hops = {low = 1, high = 4}
"""


def test_random_draws_are_searched_and_exported(tmp_path: Path) -> None:
    space, out, export = tmp_path / "space.toml", tmp_path / "s", tmp_path / "runs.csv"
    space.write_text(SPACE)
    words = ["search", "cora", "--model", "lgc", "--grid", str(space), "--out", str(out)]
    words += ["--samples", "3", "--seeds", "2", "--epochs", "10", "--workers", "1"]
    text = succeed(*words, "--export", str(export))
    assert "best of 3 configurations x 2 seeds" in " ".join(text.split())
    assert "To reproduce: hoplite train cora --model lgc" in text
    table = pyarrow.csv.read_csv(export)
    assert len(table) == 6
    assert not {"test_accuracy"} & set(table.column_names)
    again = json.loads(succeed(*words, "--json"))
    assert again["protocol"] == "validation"
    assert again["trials"] == 6
    assert "--overwrite" in fail(1, *words, "--export", str(export))
    other = fail(1, *words[:1], "citeseer", *words[2:])
    assert "belongs to a search with another dataset: 'cora' instead of 'citeseer'" in other


def test_the_command_that_repeats_the_choice_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[any]\nlr = [0.1, 0.2]\nhops = 1\n")
    folder = tmp_path / "my tables"
    folder.mkdir()
    rows = [f"{i},{i % 2},{i % 7 + i % 2}" for i in range(40)]
    (folder / "nodes.csv").write_text("\n".join(["key,label,x", *rows]))
    rows = [f"{i},{(i * 7) % 40},{'ab'[i % 2]}" for i in range(40)]
    (folder / "edges.csv").write_text("\n".join(["source,target,type", *rows]))
    words = ["search", "my tables", "--grid", "space.toml", "--out", "s", "--workers", 1]
    words += ["--directed", "--type", "type", "--id", "key", "--seeds", 1, "--epochs", 5, "--bias"]
    text = succeed(*words, cwd=tmp_path)
    assert "best of 2 configurations x 1 seed" in " ".join(text.split())
    again = re.findall("To reproduce: hoplite (.*)", text)[0]
    trained = json.loads(succeed(*shlex.split(again), "--json", cwd=tmp_path))
    assert trained["relations"] == ["a:out", "a:in", "b:out", "b:in"]
    searched = json.loads(succeed(*words, "--json", cwd=tmp_path))
    assert trained["test_accuracy_mean"] == searched["test_mean"]
