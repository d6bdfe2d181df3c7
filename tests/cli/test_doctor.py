"""hoplite doctor: facts, a test of the core that can fail, and one sentence if it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import hoplite, succeed

from hoplite import machine
from hoplite.cli import doctor as command
from hoplite.engine import backend

doctor = sys.modules[command.__module__]
PROGRAM = "from hoplite.__main__ import main; main()"


def quiet(what: str, share: float) -> None:
    pass


def test_a_machine_that_works(tmp_path):
    done = hoplite("doctor", "--json", cwd=tmp_path, env={"HOPLITE_DATA": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert "error" not in found
    assert {"python", "hoplite", "build", "numpy", "scipy"} <= found["versions"].keys()
    assert {"cluster", "convert", "export", "plot"} <= found["extras"].keys()
    assert found["machine"]["memory"] >= found["machine"]["available_memory"] > 0
    assert found["data"]["HOPLITE_DATA"] == str(tmp_path)
    names = [check["name"] for check in found["checks"]]
    assert names == ["hoplite", "kernels", "product", "training"]
    assert found["kernels"]["loaded"] is backend.has_native()
    assert "OMP_NUM_THREADS" in succeed("doctor", env={"COLUMNS": "200"})


def diagnosed(folder, *words):
    """hoplite doctor, with the modules of a folder before all others."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "doctor", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


def test_a_torch_that_does_not_load_leaves_the_core_working(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libtorch.so: no such file')\n")
    done = diagnosed(tmp_path, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (0, True)
    assert found["torch"]["problem"] == "it cannot be imported (libtorch.so: no such file)"
    assert [note for note in found["notes"] if "PyTorch" in note]


def test_a_library_that_does_not_load(tmp_path, monkeypatch):
    (tmp_path / "scipy.py").write_text("raise ImportError('no libblas', name='scipy')\n")
    done = diagnosed(tmp_path, "--json")
    assert done.returncode == 1
    assert done.stderr.startswith("error: scipy cannot be imported (no libblas)")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["error"] in done.stderr
    (tmp_path / "broken_one.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    problem = doctor.import_problem("broken_one")
    assert problem.startswith("it needs no_such_module, which cannot be imported")


def test_without_kernels_it_works_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(backend, "native", None)
    assert all(check.ok for check in doctor.run_checks(quiet))
    facts = doctor.collect_facts(works=True)
    assert facts["kernels"]["loaded"] is False
    assert any("C++ compiler" in note for note in doctor.list_notes(facts))


@pytest.mark.parametrize(("name", "value"), [("MAX_DIFFERENCE", -1.0), ("MIN_ACCURACY", 1.1)])
def test_what_is_wrong_is_reported(monkeypatch, name, value):
    monkeypatch.setattr(doctor, name, value)
    (broken,) = [check for check in doctor.run_checks(quiet) if not check.ok]
    assert broken.name == {"MAX_DIFFERENCE": "product", "MIN_ACCURACY": "training"}[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_containers(tmp_path):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    assert machine.memory_limit(root, own) is None
    own.write_text("0::/a/b\n")
    write(root / "a" / "b" / "memory.max", "max\n")
    write(root / "a" / "b" / "cpu.max", "max 100000\n")
    assert (machine.memory_limit(root, own), machine.core_limit(root, own)) == (None, None)
    write(root / "a" / "memory.max", "1000000\n")  # the one above counts, too
    write(root / "a" / "cpu.max", "150000 100000\n")
    write(tmp_path / "memory.max", "1\n")  # but nothing outside the groups
    assert (machine.memory_limit(root, own), machine.core_limit(root, own)) == (1000000, 1.5)
