"""Damage, other graphs and full disks: noticed, said in one sentence, repaired by running again."""

import dataclasses
import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from hoplite import ConfigError, HopliteWarning
from hoplite.store import HopStore, StoreError, propagate, run_panel, run_task
from hoplite.store.claim import claimed
from hoplite.store.manifest import read_manifest

SETTINGS = {"hops": 3}


@pytest.fixture
def made(graphs, stores, tmp_path):
    """A graph, its store in small blocks, and the bytes of that."""
    graph = graphs(60, 9, dtype=np.float32)
    stores.cut(graph, tmp_path / "s", tmp_path / "x", rows=16, columns=4, **SETTINGS)
    propagate(graph, tmp_path / "s", **SETTINGS)
    return graph, tmp_path / "s", stores.all_bytes(tmp_path / "s")


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-7])


def not_finite(path):
    content = path.read_bytes()
    path.write_bytes(content[:-4] + np.array([np.inf], np.float32).tobytes())


DAMAGES = {
    "flip": (flip, "does not hold what was written"),
    "cut": (cut_short, "is damaged"),
    "inf": (not_finite, "not finite"),
    "gone": (os.remove, "is missing"),
}


@pytest.mark.parametrize("block", ["hops/h0/r000001-c0001.npy", "hops/h2/r000003-c0002.npy"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_block_is_told_and_repaired(made, stores, kind, block):
    graph, folder, before = made
    damage, sentence = DAMAGES[kind]
    damage(folder / block)
    store = HopStore.open(folder)
    assert store.complete == (kind in ("flip", "inf"))
    (found,) = store.verify()
    assert block in found
    assert sentence in found
    assert f"run `hoplite propagate` again with the same dataset and --out {folder}" in found
    if kind in ("cut", "gone"):
        with pytest.raises(StoreError, match="is not complete"):
            store.require_complete()
    for read in (lambda: store.read(0, 60), lambda: store.rows([59, 16])):
        with pytest.raises(StoreError, match=sentence):  # no wrong number is ever given out
            read()
    assert propagate(graph, folder, **SETTINGS).verify() == []
    assert stores.all_bytes(folder) == before


@pytest.mark.parametrize(
    "name",
    [
        "operator/values.npy",
        "operator/indices.npy",
        "operator/crc32.json",
        "labels.npy",
        "split.npz",
        "hops/h1/c0000.json",
    ],
)
@pytest.mark.parametrize("kind", ["flip", "cut", "gone"])
def test_other_files_are_repaired_too(made, stores, kind, name):
    graph, folder, before = made
    DAMAGES[kind][0](folder / name)
    found = HopStore.open(folder).verify()
    assert found
    assert all(name.partition("/")[0] in sentence for sentence in found)
    assert propagate(graph, folder, **SETTINGS).verify() == []
    assert stores.all_bytes(folder) == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_damage_in_the_middle_of_the_work(graphs, stores, tmp_path, dtype):
    """Hops 2 and 3 are missing, and what they are computed from has a flipped bit."""
    graph, settings = graphs(60, 9, dtype=np.float32), {"hops": 3, "dtype": dtype}
    propagate(graph, tmp_path / "s", **settings)
    before = stores.all_bytes(tmp_path / "s")
    for hop in (2, 3):
        shutil.rmtree(tmp_path / f"s/hops/h{hop}")
    flip(tmp_path / "s/hops/h0/r000000-c0000.npy")
    flip(tmp_path / "s/hops/h1/r000000-c0000.npy")
    propagate(graph, tmp_path / "s", **settings)
    assert stores.all_bytes(tmp_path / "s") == before


@pytest.mark.parametrize("block", ["hops/h0/r000001-c0001.npy", "hops/h1/r000003-c0002.npy"])
def test_damage_is_repaired_when_hops_are_added(made, stores, tmp_path, block):
    graph, folder, _ = made
    flip(folder / block)
    assert propagate(graph, folder, hops=5).verify() == []
    shutil.copytree(folder, tmp_path / "again")
    assert propagate(graph, tmp_path / "again", hops=5).verify() == []
    assert stores.all_bytes(tmp_path / "again") == stores.all_bytes(folder)


def test_damage_in_a_panel_that_was_not_finished(made, stores):
    """Its blocks are there, but the record with their checksums is not."""
    graph, folder, before = made
    (folder / "hops/h2/c0001.json").unlink()
    flip(folder / "hops/h2/r000002-c0001.npy")
    assert propagate(graph, folder, **SETTINGS).verify() == []
    assert stores.all_bytes(folder) == before


def test_tasks_one_by_one_in_any_order_of_panels(made, stores, tmp_path):
    _, folder, before = made
    for hop in (1, 2, 3):
        shutil.rmtree(folder / f"hops/h{hop}")
    store = HopStore.open(folder)
    assert sorted(store.missing()) == [(panel, hop) for panel in range(3) for hop in (1, 2, 3)]
    for hop in (1, 2, 3):
        for panel in (2, 0, 1):
            assert run_task(folder, panel, hop)
            assert not run_task(folder, panel, hop)
    assert stores.all_bytes(folder) == before
    with pytest.raises(StoreError, match="panel 3 is asked for"):
        run_task(folder, 3, 1)
    with pytest.raises(StoreError, match="hops 4 to 4 are asked for"):
        run_task(folder, 0, 4)
    shutil.rmtree(folder / "hops" / "h1")
    shutil.rmtree(folder / "hops" / "h2")
    with pytest.raises(StoreError, match=r"h1/c0000.json .* is missing"):
        run_task(folder, 0, 2)
    assert run_panel(folder, 0) == [1, 2]


def test_a_damaged_operator_stops_a_task(made):
    _, folder, _ = made
    shutil.rmtree(folder / "hops" / "h3")
    path = folder / "operator" / "indices.npy"
    content = bytearray(path.read_bytes())
    content[-2] = 127
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"the operator of .* is missing or damaged"):
        run_task(folder, 0, 3)


def test_another_graph_is_refused(made, graphs):
    graph, folder, _ = made
    with pytest.raises(StoreError, match="another graph"):
        propagate(graphs(60, 9, seed=5, dtype=np.float32), folder, **SETTINGS)
    other = graph.with_features(graph.features + 1)
    with pytest.raises(StoreError, match="other features"):
        propagate(other, folder, **SETTINGS)
    for setting, value in (("operator", "laplacian"), ("basis", "chebyshev"), ("dtype", "float16")):
        with pytest.raises(StoreError, match=f"with {setting} .*, not {value}; give another --out"):
            propagate(graph, folder, hops=3, **{setting: value})


def test_other_labels_are_taken_over(made):
    graph, folder, _ = made
    labels = np.roll(graph.labels, 1)
    store = propagate(graph.with_labels(labels), folder, **SETTINGS)
    assert np.array_equal(store.labels, labels)
    assert store.split.train.size == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "manifest.json is damaged"),
        ("[]", "is damaged .it is not one object"),
        ('{"format": "other"}', "no manifest of a hop store"),
        ('{"format": "hoplite hop store 1"}', "manifest.json is damaged"),
    ],
)
def test_a_damaged_manifest(made, content, sentence):
    graph, folder, _ = made
    (folder / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(StoreError, match=sentence):
        HopStore.open(folder)
    with pytest.raises(StoreError, match=sentence):
        propagate(graph, folder, **SETTINGS)


def edit(path, **changes):
    """Other values and no checksum, as earlier versions wrote it and malice would."""
    content = json.loads(path.read_text()) | changes
    content.pop("checksum", None)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        {"panels": [[0, 4]]},
        {"panels": [[0, 4], [4, 4], [4, 9]]},
        {"panels": 3},
        {"rows_per_block": 0},
        {"rows_per_block": None},
        {"nodes": -1},
        {"nodes": 10**18},
        {"nodes": 10**12},
        {"hops": 10**12},
        {"hops": 10**5, "nodes": 10**6},
        {"hops": float("inf")},
        {"columns": 10**9},
        {"operator": "pickle"},
        {"labels_crc32": -1},
        {"class_names": [1.5]},
        {"feature_names": ["x"]},
        {"error": [{"hop": 1}]},
    ],
)
def test_a_manifest_that_contradicts_itself(made, change):
    _, folder, _ = made
    edit(folder / "manifest.json", **change)
    with pytest.raises(StoreError, match="damaged"):
        HopStore.open(folder)


def test_an_edited_manifest_is_noticed_and_one_without_checksum_is_read(made):
    _, folder, _ = made
    path = folder / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"monomial"', '"chebyshev"'))
    with pytest.raises(StoreError, match="does not fit its checksum"):
        HopStore.open(folder)
    path.write_text(text)
    edit(path)
    assert HopStore.open(folder).verify() == []


def test_many_hops_that_are_not_there_are_told_at_once(made):
    _, folder, _ = made
    edit(folder / "manifest.json", hops=10**5)
    with pytest.raises(StoreError, match=r"is not complete .* the first of 299,991 such places"):
        HopStore.open(folder).require_complete()


def test_more_blocks_than_can_be_kept(graphs, tmp_path, monkeypatch):
    monkeypatch.setattr("hoplite.store.manifest.MOST_FILES", 10)
    with pytest.raises(StoreError, match=r"would be \d+ blocks.*use fewer hops"):
        propagate(graphs(5, 2), tmp_path / "s", hops=10)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"train": [0, 60]}, "names node 60"),
        ({"train": [-1]}, "names node -1"),
        ({"train": [3], "val": [3]}, "shares 1 nodes"),
        ({"train": [0.5]}, "no node numbers"),
        ({"train": [[1]]}, "no node numbers"),
        ({"train": np.arange(100)}, "no node numbers"),
        ({"train": [True] * 60}, "no node numbers"),
    ],
)
def test_a_split_that_does_not_fit(made, parts, why):
    _, folder, _ = made
    edit(folder / "manifest.json", split_crc32=None)
    none = np.empty(0, np.int64)
    np.savez(folder / "split.npz", **({"train": none, "val": none, "test": none} | parts))
    with pytest.raises(StoreError, match=f"split.npz is missing or damaged .*{why}"):
        _ = HopStore.open(folder).split


def test_a_compressed_or_endless_split(made):
    _, folder, _ = made
    none = np.empty(0, np.int64)
    np.savez_compressed(folder / "split.npz", train=none, val=none, test=none)
    with pytest.raises(StoreError, match="is compressed"):
        _ = HopStore.open(folder).split
    with (folder / "split.npz").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(StoreError, match="at most"):
        _ = HopStore.open(folder).split


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        ".lock",
        "labels.npy",
        "split.npz",
        "operator/values.npy",
        "operator/crc32.json",
        "hops/h0/r000001-c0001.npy",
        "hops/h1/c0000.json",
    ],
)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_does_not_hang(made, make, name):
    """It is told, and where a file can be made anew, it is."""
    graph, folder, _ = made
    (folder / name).unlink()
    make(folder / name)
    if name == "manifest.json":
        with pytest.raises(StoreError, match="it is not a regular file"):
            HopStore.open(folder)
        return
    if name == ".lock":
        with pytest.raises(StoreError, match=r"\.lock"):
            propagate(graph, folder, **SETTINGS)
        return
    store = HopStore.open(folder)
    assert store.verify()
    if name.endswith(".npy") and name.startswith("hops"):
        with pytest.raises(StoreError, match="not a regular file"):
            store.read(0, 60)
    if name.startswith("hops"):
        assert propagate(graph, folder, **SETTINGS).verify() == []
    else:
        with pytest.raises(StoreError, match="not a regular file"):
            propagate(graph, folder, **SETTINGS)


def test_folders_that_are_no_store(graphs, tmp_path):
    graph = graphs(5, 2)
    with pytest.raises(StoreError, match="holds no hop store"):
        HopStore.open(tmp_path)
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(StoreError, match=r"holds 'mine.txt' but no manifest"):
        propagate(graph, tmp_path, hops=1)
    with pytest.raises(StoreError, match="is a file"):
        propagate(graph, tmp_path / "mine.txt", hops=1)


def test_one_process_leads(graphs, tmp_path):
    with claimed(tmp_path / "s"), pytest.raises(StoreError, match="another process is working"):
        propagate(graphs(5, 2), tmp_path / "s", hops=1)


def test_numbers_beyond_the_type(graphs, tmp_path):
    graph = graphs(20, 3, dtype=np.float32)
    large = graph.with_features(graph.features * 1e6)
    with pytest.raises(StoreError, match=r"beyond the range of float16.*bfloat16"):
        propagate(large, tmp_path / "a", hops=2, dtype="float16")
    huge = graph.with_features(graph.features * 1e38)
    with pytest.raises(StoreError, match=r"hop \d+ has numbers beyond the range of float32"):
        propagate(huge, tmp_path / "b", hops=20, operator="laplacian")


def test_too_little_memory_names_the_least(graphs, tmp_path):
    graph = graphs(5, 2)
    with pytest.raises(ConfigError, match=r"give --memory (\d+)MB or more") as caught:
        propagate(graph, tmp_path / "s", hops=1, memory="100MB")
    assert not (tmp_path / "s").exists()  # nothing was begun, so nothing is left
    least = str(caught.value).rpartition("--memory ")[2].split()[0]
    assert propagate(graph, tmp_path / "s", hops=1, memory=least).complete


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB, and the function that makes it larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield (
        folder,
        lambda: subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True),
    )
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("rows", [64, 4096])
def test_a_full_disk(graphs, stores, tmp_path, small_disk, rows):
    graph = graphs(1000, 100, density=0.01, dtype=np.float32)
    stores.cut(graph, tmp_path / "s", tmp_path / "x", rows=rows, columns=16, **SETTINGS)
    propagate(graph, tmp_path / "s", **SETTINGS)
    before = stores.all_bytes(tmp_path / "s")
    disk, grow = small_disk
    store = disk / "s"
    store.mkdir()
    manifest = read_manifest(tmp_path / "s")
    dataclasses.replace(manifest).write(store)
    for _ in range(2):
        with (
            pytest.warns(HopliteWarning, match="the store needs .* more but the disk"),
            pytest.raises(StoreError, match="there is no room left on the disk"),
        ):
            propagate(graph, store, **SETTINGS)
        left = stores.all_bytes(store)
        assert left.items() <= before.items()  # no half block, no temporary file
    grow()
    propagate(graph, store, **SETTINGS)
    assert stores.all_bytes(store) == before
