"""Damage, other graphs and full disks: noticed, said in one sentence, repaired by running again."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from hoplite import ConfigError, Graph, HopliteWarning
from hoplite.io.array_files import file_crc32
from hoplite.store import HopStore, StoreError, propagate
from hoplite.store.building import lock_folder, run_panel
from hoplite.store.files import read_manifest

SETTINGS = {"hops": 3}
AGAIN = "run the same hoplite.propagate(...) again"


@pytest.fixture
def made(graphs, stores, tmp_path):
    """A graph with text ids, its store in small blocks, and the bytes of that."""
    graph = graphs(60, 9, dtype=np.float32)
    ids = [f"ü{i}" for i in range(60)]
    graph = Graph(graph.adjacency, graph.features, graph.labels, graph.split, node_ids=ids)
    stores.cut(graph, tmp_path / "s", 16, 4, **SETTINGS)
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


def header(path, text):
    start = b"\x93NUMPY\x01\x00" + (len(text) + 1).to_bytes(2, "little")
    path.write_bytes(start + text + b"\n" + path.read_bytes()[128:])


DAMAGES = {
    "flip": (flip, "does not contain the data that was written"),
    "cut": (cut_short, "is damaged"),
    "inf": (not_finite, "contains NaN or infinity"),
    "gone": (os.remove, "is missing"),
    "objects": (
        lambda path: header(path, b"{'descr': '|O', 'fortran_order': False, 'shape': (60, 9), }"),
        "is damaged",
    ),
    "endless": (
        lambda path: header(
            path, b"{'descr': '<f4', 'fortran_order': False, 'shape': (9**9**9, 9), }"
        ),
        "is damaged",
    ),
    "nested": (lambda path: header(path, b"(" * 4000), "is damaged"),
}


@pytest.mark.parametrize("block", ["v0/hops/h0/r000001-c0001.npy", "v0/hops/h2/r000003-c0002.npy"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_block_is_reported_and_repaired(made, stores, kind, block):
    graph, folder, before = made
    damage, sentence = DAMAGES[kind]
    damage(folder / block)
    store = HopStore.open(folder)
    assert store.complete == (kind in ("flip", "inf"))
    (found,) = store.verify()
    assert block in found
    assert sentence in found
    assert AGAIN in found
    if kind in ("cut", "gone"):
        with pytest.raises(StoreError, match=r"is (not complete|damaged|missing)"):
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
        "files.json",
        "labels.npy",
        "split.npz",
        "ids.npy",
        "id_ends.npy",
        "hops/h1/c0000.json",
    ],
)
@pytest.mark.parametrize("kind", ["flip", "cut", "gone"])
def test_other_files_are_repaired_too(made, stores, kind, name):
    graph, folder, before = made
    DAMAGES[kind][0](folder / "v0" / name)
    found = HopStore.open(folder).verify()
    assert any(name.partition("/")[0].replace("id_ends", "ids") in line for line in found)
    assert propagate(graph, folder, **SETTINGS).verify() == []
    assert stores.all_bytes(folder) == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_damage_in_the_middle_of_the_work(graphs, stores, tmp_path, dtype):
    """Hops 2 and 3 are missing, and what they are computed from has a flipped bit."""
    graph, settings = graphs(60, 9, dtype=np.float32), {"hops": 3, "dtype": dtype}
    propagate(graph, tmp_path / "s", **settings)
    before = stores.all_bytes(tmp_path / "s")
    for hop in (2, 3):
        shutil.rmtree(tmp_path / f"s/v0/hops/h{hop}")
    flip(tmp_path / "s/v0/hops/h0/r000000-c0000.npy")
    flip(tmp_path / "s/v0/hops/h1/r000000-c0000.npy")
    propagate(graph, tmp_path / "s", **settings)
    assert stores.all_bytes(tmp_path / "s") == before


def test_another_graph_is_refused(made, graphs):
    graph, folder, _ = made
    with pytest.raises(StoreError, match="choose another folder"):
        propagate(graphs(60, 9, seed=5, dtype=np.float32), folder, **SETTINGS)
    for setting, value in (("operator", "laplacian"), ("basis", "chebyshev"), ("dtype", "float16")):
        with pytest.raises(
            StoreError, match=f"with {setting} .*, not {value}; choose another folder"
        ):
            propagate(graph, folder, hops=3, **{setting: value})
    other = graph.with_features(graph.features + 1)
    with pytest.raises(StoreError, match="features have changed"):
        propagate(other, folder, **SETTINGS)


def test_other_labels_are_taken_over(made):
    graph, folder, _ = made
    labels = np.roll(graph.labels, 1)
    store = propagate(graph.with_labels(labels), folder, **SETTINGS)
    assert np.array_equal(store.labels, labels)
    assert store.split.train.size == 0


def edit(path, **changes):
    """Other values and no checksum, as malice would write it."""
    content = json.loads(path.read_text()) | changes
    content.pop("checksum", None)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        {"panels": [[0, 4]]},
        {"panels": [[0, 4], [4, 4], [4, 9]]},
        {"panels": [[0, 4], [5, 9]]},
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
        {"basis": "chebyshev"},  # with the checksum of the other
        {"class_names": [1.5]},
        {"feature_names": ["x"]},
        {"version": -1},
        {"version": "../.."},
    ],
)
def test_a_manifest_that_contradicts_itself(made, change):
    _, folder, _ = made
    path = folder / "manifest.json"
    if "basis" in change:
        path.write_text(path.read_text().replace('"monomial"', '"chebyshev"'))
    else:
        edit(path, **change)
    with pytest.raises(StoreError, match="damaged"):
        HopStore.open(folder)


def test_more_blocks_than_can_be_kept(graphs, tmp_path, monkeypatch):
    monkeypatch.setattr("hoplite.store.files.MAX_BLOCKS", 10)
    with pytest.raises(StoreError, match=r"blocks are more than.*use fewer hops"):
        propagate(graphs(5, 2), tmp_path / "s", hops=10)


def forged(folder, name):
    """A file of a stranger, with the right checksum."""
    record = json.loads((folder / "v0/files.json").read_text())
    sums = record["crc32"] | {name: file_crc32(folder / "v0" / name)}
    edit(folder / "v0/files.json", crc32=sums)


@pytest.mark.parametrize(
    "parts",
    [
        {"train": [0, 60]},
        {"train": [-1]},
        {"train": [3], "val": [3]},
        {"train": [0.5]},
        {"train": [[1]]},
        {"train": np.arange(100)},
        {"train": [True] * 60},
    ],
)
def test_a_split_that_does_not_fit(made, parts):
    _, folder, _ = made
    none = np.empty(0, np.int64)
    np.savez(folder / "v0/split.npz", **({"train": none, "val": none, "test": none} | parts))
    forged(folder, "split.npz")
    with pytest.raises(StoreError, match=r"split.npz is missing or damaged"):
        _ = HopStore.open(folder).split


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("labels.npy", np.full(60, 99)),
        ("labels.npy", np.zeros(59, np.int64)),
        ("id_ends.npy", np.arange(61) * 10**9),
        ("id_ends.npy", np.arange(61)[::-1].copy()),
        ("id_ends.npy", np.zeros(7, np.int64)),
        ("ids.npy", np.full(1000, 255, np.uint8)),
    ],
)
def test_forged_labels_and_ids(made, name, values):
    _, folder, _ = made
    np.save(folder / "v0" / name, values)
    forged(folder, name)
    store = HopStore.open(folder)
    with pytest.raises(StoreError, match=r"is missing or damaged \((?!None)"):
        _ = store.labels, list(store.node_ids or ())


@pytest.mark.parametrize("part", ["indptr", "indices"])
@pytest.mark.parametrize("value", [-7, 61, 2**31 - 1])
def test_a_forged_operator(made, part, value):
    """Nothing of it reaches the C++ core unchecked, and the adjacency is checked as well."""
    _, folder, _ = made
    path = folder / "v0/operator" / f"{part}.npy"
    array = np.load(path)
    array[5] = value
    np.save(path, array)
    forged(folder, f"operator/{part}.npy")
    shutil.rmtree(folder / "v0/hops/h3")
    with pytest.raises(StoreError, match="operator is missing or damaged"):
        run_panel(folder, read_manifest(folder), 0, 8 * 10**9, lambda panel, hop: None)
    rows = HopStore.open(folder).adjacency_rows
    assert rows is not None
    with pytest.raises(StoreError, match="operator is missing or damaged"):
        rows.read(0, 60)


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        ".lock",
        "v0/labels.npy",
        "v0/split.npz",
        "v0/ids.npy",
        "v0/operator/values.npy",
        "v0/files.json",
        "v0/hops/h0/r000001-c0001.npy",
        "v0/hops/h1/c0000.json",
    ],
)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_does_not_hang(made, make, name):
    graph, folder, _ = made
    (folder / name).unlink()
    make(folder / name)
    if name == "manifest.json":
        with pytest.raises(StoreError, match="it is not a regular file"):
            HopStore.open(folder)
    elif name != ".lock":
        assert HopStore.open(folder).verify()
    if name.startswith("v0/hops"):
        assert propagate(graph, folder, **SETTINGS).verify() == []
    else:
        with pytest.raises(StoreError, match=name.rpartition("/")[2]):
            propagate(graph, folder, **SETTINGS)


def test_folders_that_are_no_store(graphs, tmp_path):
    graph = graphs(5, 2)
    with pytest.raises(StoreError, match="is not a hop store"):
        HopStore.open(tmp_path)
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(StoreError, match=r"already contains 'mine.txt'"):
        propagate(graph, tmp_path, hops=1)
    with pytest.raises(StoreError, match="is a file"):
        propagate(graph, tmp_path / "mine.txt", hops=1)


def test_one_process_leads(graphs, tmp_path):
    with (
        lock_folder(tmp_path / "s"),
        pytest.raises(StoreError, match="another process is using"),
    ):
        propagate(graphs(5, 2), tmp_path / "s", hops=1)


def test_numbers_beyond_the_type(graphs, tmp_path):
    graph = graphs(20, 3, dtype=np.float32)
    large = graph.with_features(graph.features * 1e6)
    with pytest.raises(
        StoreError, match=r"exceeds the range of float16 in columns 0 to 2.*bfloat16"
    ):
        propagate(large, tmp_path / "a", hops=2, dtype="float16")
    huge = graph.with_features(graph.features * 1e38)
    with pytest.raises(StoreError, match=r"hop \d+ exceeds the range of float32"):
        propagate(huge, tmp_path / "b", hops=20, operator="laplacian")


def test_too_little_memory_names_the_least(graphs, tmp_path):
    graph = graphs(5, 2)
    with pytest.raises(ConfigError, match=r"use (\d+)MB or more") as caught:
        propagate(graph, tmp_path / "s", hops=1, memory="100MB")
    assert not (tmp_path / "s").exists()  # nothing was begun, so nothing is left
    least = str(caught.value).rpartition("; use ")[2].split()[0]
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
    stores.cut(graph, tmp_path / "s", rows, 16, **SETTINGS)
    propagate(graph, tmp_path / "s", **SETTINGS)
    before = stores.all_bytes(tmp_path / "s")
    disk, grow = small_disk
    store = disk / "s"
    store.mkdir()
    read_manifest(tmp_path / "s").write(store)
    for _ in range(2):
        with (
            pytest.warns(HopliteWarning, match="the store needs .* more but the disk"),
            pytest.raises(StoreError, match="No space left on device"),
        ):
            propagate(graph, store, **SETTINGS)
        left = stores.all_bytes(store)
        assert left.items() <= before.items()  # no half block, no temporary file
    grow()
    propagate(graph, store, **SETTINGS)
    assert stores.all_bytes(store) == before
