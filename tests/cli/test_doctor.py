"""hoplite doctor: facts, a test of the core that can fail, and one sentence if it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.commands import hoplite

from benchmarks.machine import describe
from hoplite import doctor, machine
from hoplite.engine import backend
from hoplite.training import train  # first, as a test below hides the C++ core

PROGRAM = "from hoplite.__main__ import main; main()"


def test_a_machine_that_works(tmp_path):
    place = tmp_path / "mein Ordner é"
    place.mkdir()
    done = hoplite("doctor", "--json", cwd=place, env={"HOPLITE_DATA": str(place)})
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert "error" not in found
    assert {"python", "hoplite", "build", *doctor.CORE} <= found["versions"].keys()
    assert found["torch"]["build"] == "CPU" or found["torch"]["build"].startswith("CUDA ")
    assert {"torch", "cluster", "convert", "export", "plot"} <= found["extras"].keys()
    assert found["threads"]["usable"] >= 1
    assert found["memory"]["total"] >= found["memory"]["available"] > 0
    assert found["disk"]["working"]["path"] == str(place)
    assert found["data"]["HOPLITE_DATA"] == str(place)
    assert found["data"]["folders"][0] == str(place)
    assert [check["name"] for check in found["checks"]] == [
        "hoplite", "kernels", "product", "training",
    ]  # fmt: skip
    assert found["kernels"]["loaded"] is backend.has_native()


def test_the_table():
    done = hoplite("doctor", env={"COLUMNS": "200"})
    assert (done.returncode, done.stderr) == (0, "")
    for told in ("scikit-learn", "OMP_NUM_THREADS", "disk, temporary folder"):
        assert told in done.stdout
    assert done.stdout.endswith("All of the core works.\n")


def test_a_working_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = hoplite("doctor", "--json", cwd=gone, before=f"import os; os.rmdir({str(gone)!r})")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["disk"]["working"]["free"] is None


def diagnosed(folder, *words):
    """hoplite doctor, with the modules of a folder before all others."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "doctor", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


def test_a_torch_that_does_not_load_is_told_and_the_core_works(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libtorch.so: no such file')\n")
    done = diagnosed(tmp_path, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (0, True)
    assert found["torch"]["error"] == "it cannot be imported (libtorch.so: no such file)"
    (note,) = [note for note in found["notes"] if "PyTorch" in note]
    assert "pip install --force-reinstall torch" in note


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_core_that_does_not_load(tmp_path, words):
    (tmp_path / "scipy.py").write_text("raise ImportError('no libblas', name='scipy')\n")
    done = diagnosed(tmp_path, *words)
    sentence = (
        "hoplite: it needs scipy, which cannot be imported (no libblas); install it again: "
        "pip install --force-reinstall hoplite-graph."
    )
    assert (done.returncode, done.stderr) == (1, f"error: {sentence}\n")
    if words:
        found = json.loads(done.stdout)
        assert (found["ok"], found["error"]) == (False, sentence)
        assert [check["name"] for check in found["checks"]] == ["hoplite"]
    else:
        assert "BROKEN" in done.stdout


@pytest.mark.parametrize("error", ["ValueError", "RuntimeError", "AttributeError"])
def test_a_module_that_breaks_when_it_is_imported(tmp_path, monkeypatch, error):
    (tmp_path / "broken_one.py").write_text(f"raise {error}('sizes differ\\nby 8')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor._not_imported("broken_one") == "it cannot be imported (sizes differ)"


def test_the_missing_module_is_named(monkeypatch):
    def imported(name):
        if name == "hoplite.training":
            raise ModuleNotFoundError("No module named 'scipy.sparse'", name="scipy.sparse")
        return import_module(name)

    monkeypatch.setattr(doctor, "import_module", imported)
    found = doctor.diagnose()
    assert [(check.name, check.ok) for check in found.checks] == [("hoplite", False)]
    assert found.broken is not None
    assert found.broken.told.startswith("it needs scipy.sparse, which cannot be imported (No ")


def test_without_the_core_it_works_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(backend, "native", None)
    assert callable(train)
    found = doctor.diagnose()
    assert found.broken is None
    assert found.facts["kernels"]["loaded"] is False
    assert any("C++ compiler" in note for note in found.notes)


@pytest.mark.parametrize(("name", "value"), [("CLOSE", -1.0), ("LEAST_ACCURACY", 1.1)])
def test_what_is_wrong_is_found(monkeypatch, name, value):
    monkeypatch.setattr(doctor, name, value)
    broken = doctor.diagnose().broken
    assert broken is not None
    assert broken.name == {"CLOSE": "product", "LEAST_ACCURACY": "training"}[name]
    assert broken.remedy == doctor.REPORT


def test_a_check_that_raises_is_broken():
    def attempt():
        raise RuntimeError("no such instruction")

    check = doctor._tried("product", attempt)
    assert (check.ok, check.told) == (False, "it failed (no such instruction)")


def test_extras_that_are_missing_are_told_with_their_line(monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda name: None if name == "plotly" else "1.0")
    missing = {one.name: one for one in machine.extras() if one.missing}
    assert {"plot", "serve"} <= missing.keys()  # serve has what plot has
    assert "cluster" not in missing
    assert missing["serve"].missing == ("plotly",)
    assert missing["serve"].remedy == 'pip install "hoplite-graph[serve]"'


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_containers(tmp_path):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    assert machine.memory_limit(root, own) is None
    own.write_text("0::/a/b\n")  # version 2
    write(root / "a" / "b" / "memory.max", "max\n")
    write(root / "a" / "b" / "cpu.max", "max 100000\n")
    assert (machine.memory_limit(root, own), machine.core_limit(root, own)) == (None, None)
    write(root / "a" / "memory.max", "1000000\n")  # the one above counts, too
    write(root / "a" / "cpu.max", "150000 100000\n")
    write(tmp_path / "memory.max", "1\n")  # but nothing beside the groups
    assert (machine.memory_limit(root, own), machine.core_limit(root, own)) == (1000000, 1.5)
    own.write_text("4:memory:/x\n3:cpu,cpuacct:/x\n0::/\n")  # version 1
    write(root / "memory" / "x" / "memory.limit_in_bytes", "2000000\n")
    write(root / "memory" / "memory.limit_in_bytes", f"{2**63 - 4096}\n")
    write(root / "cpu,cpuacct" / "x" / "cpu.cfs_quota_us", "50000\n")
    write(root / "cpu,cpuacct" / "x" / "cpu.cfs_period_us", "100000\n")
    write(root / "cpu,cpuacct" / "cpu.cfs_quota_us", "-1\n")
    assert (machine.memory_limit(root, own), machine.core_limit(root, own)) == (2000000, 0.5)


def test_notes(monkeypatch):
    facts = {
        "kernels": {"loaded": True},
        "threads": {"limit": 2.0, "engine": 16},
        "torch": {},
        "memory": {"limit": 10},
        "disk": {"temporary": {"path": "/t", "free": 5, "writable": True}},
    }
    told = doctor._notes(facts)
    assert "set OMP_NUM_THREADS=2." in told[0]
    assert "--memory" in told[1]
    assert "nearly full" in told[2]


def test_the_benchmarks_have_the_same_facts():
    found = describe(1, floats=1000)
    assert found.cpu == machine.cpu_model()
    assert found.kernels == backend.kernels()
    assert found.versions.items() >= machine.versions(["torch"]).items()
