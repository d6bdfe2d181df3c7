"""Stores where a small mistake would go unnoticed elsewhere: the arithmetic of plans and costs, by
hand; a store that was cut once must be cut so again."""

import dataclasses
import itertools
import math
import mmap
import shutil

import numpy as np
import pytest

from hoplite import Graph, HopliteWarning
from hoplite.csr_rows import CsrMemory
from hoplite.engine.backend import has_native
from hoplite.errors import ConfigError, StoreError
from hoplite.memory import parse_bytes, peak_memory, show_bytes, used_memory
from hoplite.store import layout, opening, panel, propagate
from hoplite.store.blocks import decode, encode
from hoplite.store.cost import Cost, cost
from hoplite.store.layout import (
    Sizes,
    check_room,
    panel_width,
    part_entries,
    planned_use,
    prepared_entries,
    rows_per_block,
)
from hoplite.store.operator_files import write_operator
from hoplite.store.panel import run_panel, run_task

needs_native = pytest.mark.skipif(not has_native(), reason="sizes are those of the C++ core")
SMALL = Sizes.of(1000, 5000, 50, 40)
MB = 10**6


# ---- sizes


def test_sizes_count_the_diagonal():
    assert dataclasses.astuple(SMALL) == (1000, 6000, 51, 40)
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.nodes = 3


@needs_native
def test_bytes_of_the_operator_and_of_a_part():
    assert SMALL.entry_bytes == 8
    assert Sizes.of(2**31 - 1, 5, 1, 1).entry_bytes == 8
    assert Sizes.of(2**31, 5, 1, 1).entry_bytes == 12
    assert SMALL.operator_bytes == 6000 * 8 + 24 * 1000
    assert SMALL.part_bytes(10) == 10 * 8 + 24 * 1000
    dense = Sizes.of(1000, 20_000, 50, 40)
    assert dense.part_bytes(11_999) == 11_999 * 8 + 24_000
    assert dense.part_bytes(12_000) == 12_000 * 8 + 24_000 + 64_000
    large = Sizes.of(2**21, 10, 5, 3)
    assert large.part_bytes(2**21) == 8 * 2**21 + 24 * 2**20
    assert large.part_bytes(2**21 + 10) == 8 * (2**21 + 10) + 24 * 2**21
    assert SMALL.least_part == 6000
    assert Sizes.of(10**6, 10**7, 10**5, 1).least_part == 10**5 + 1
    assert Sizes.of(10**6, 10**7, 50, 1).least_part == 2**16


def test_without_the_core_a_panel_takes_twice_as_much(monkeypatch):
    for native, size in ((True, 8000), (False, 16_000)):
        monkeypatch.setattr(layout, "has_native", lambda native=native: native)
        assert SMALL.panel_bytes == size


@needs_native
def test_the_least_memory():
    making = 16 * 1000 + 80 * 2**16
    assert SMALL.least(3, 7) == 7 + making
    panels = 8 * 1000 * 10**4 + SMALL.part_bytes(6000)
    assert SMALL.least(10**4, 7) == 7 + panels
    assert Sizes.of(2, 1, 1, 10**7).least(1, 5) == 5 + 24 * 10**7
    hub = Sizes.of(1000, 200_000, 10**5, 1)
    assert hub.least(1, 0) == 16_000 + 80 * (10**5 + 1)


# ---- plans


def test_planned_use_goes_in_steps():
    steps = [planned_use(held * MB) // MB for held in (0, 140, 141, 200, 201, 320)]
    assert steps == [140, 140, 200, 200, 260, 320]


def test_rows_of_a_block_are_a_power_of_two():
    wide = Sizes.of(10**7, 1, 1, 40)
    assert rows_per_block(wide, 10**12) == 2**15  # 8 MB / 160 B = 50,000
    assert rows_per_block(SMALL, 10**12) == 512
    assert rows_per_block(Sizes.of(1024, 1, 1, 40), 10**12) == 1024
    assert rows_per_block(wide, 16 * 160 * 7) == 4
    assert rows_per_block(wide, 16 * 160 * 8) == 8
    assert rows_per_block(wide, 0) == 1
    assert rows_per_block(Sizes.of(100, 1, 1, 0), 10**12) == 64
    assert rows_per_block(Sizes.of(10**8, 1, 1, 1), 10**12) == 2**20
    around = [rows_per_block(Sizes.of(10**7, 1, 1, columns), 10**12) for columns in (61, 62)]
    assert around == [2**15, 2**14]  # 8 MB / 244 B and / 248 B


@needs_native
@pytest.mark.parametrize(
    ("nodes", "degree", "columns", "room", "workers", "width"),
    [
        (10**5, 10, 400, 200, 1, 144),
        (10**5, 10, 400, 200, 4, 112),
        (10**5, 10, 400, 4000, 1, 400),
        (10**5, 10, 400, 4000, 3, 144),
        (10**5, 10, 20, 4000, 8, 16),
        (10**6, 50, 600, 1000, 1, 100),
        (10**6, 3, 17, 500, 1, 17),
        (10**6, 100, 128, 900, 2, 64),
        (1000, 0, 1, 100, 1, 1),
        (1000, 3, 40, 58, 1, 40),
        (10**7, 5, 64, 600, 1, 5),
    ],
)
def test_a_panel_is_cut_as_before(nodes, degree, columns, room, workers, width):
    sizes = Sizes.of(nodes, nodes * degree, max(degree, 1), columns)
    assert panel_width(sizes, room * MB, workers) == width


@needs_native
def test_entries_that_fit_beside_the_panels():
    reserve, panels = 24 * MB, 8 * 1000 * 10
    whole = reserve + panels + SMALL.part_bytes(6000)
    assert part_entries(SMALL, 10, whole) == 6000
    hub = Sizes.of(10**5, 10**6, 100, 40)
    panels = 8 * 10**5 * 10
    room = reserve + panels + 24 * 10**5 + 8 * 500_000
    assert part_entries(hub, 10, room) == 500_000
    assert part_entries(hub, 10, room + 8) == 500_001
    assert part_entries(hub, 10, 0) == 2**16
    just = reserve + panels + hub.part_bytes(hub.entries)
    assert part_entries(hub, 10, just) == hub.entries
    assert part_entries(hub, 10, just - 1) == hub.entries - 1
    dense = Sizes.of(10**5, 10**7, 1000, 40)
    bare = reserve + panels + 24 * 10**5
    assert part_entries(dense, 10, bare + 8 * (12 * 10**5 - 1)) == 12 * 10**5 - 1
    assert part_entries(dense, 10, bare + 8 * 12 * 10**5) == 12 * 10**5 - 1  # packing costs
    assert part_entries(dense, 10, bare + 8 * 3 * 10**6) == 3 * 10**6 - 8 * 10**5
    huge = Sizes.of(10**6, 3 * 10**9, 1000, 1)
    assert part_entries(huge, 1, 10**12) == 2**31 - 2


def test_entries_of_which_the_operator_is_made():
    assert prepared_entries(320 * 10**6) == 10**6
    assert prepared_entries(0) == 2**16


@needs_native
def test_room_that_is_checked():
    least = SMALL.least(1, 24 * MB)
    assert check_room(SMALL, 1, 100 * MB, 100 * MB + least) == least
    with pytest.raises(ConfigError, match=r"needs 140 MB at least, .* 100 MB are in use .*140MB"):
        check_room(SMALL, 1, 100 * MB, 100 * MB + least - 1)
    with pytest.raises(ConfigError, match=r"cut into panels of 2 columns"):
        check_room(SMALL, 2, 100 * MB, MB)
    with pytest.raises(ConfigError, match=r"starts; give --memory 530MB or more"):
        check_room(SMALL, 1, 100 * MB, 499 * MB, taken=500 * MB)
    assert check_room(SMALL, 1, 100 * MB, 500 * MB, taken=500 * MB) == 400 * MB
    assert check_room(SMALL, 1, 0, SMALL.least(1, 3), reserve=3) == SMALL.least(1, 3)


# ---- amounts


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1B", 1), ("2kb", 2000), ("3MB", 3 * 10**6), ("1.5gb", 15 * 10**8), ("1TB", 10**12),
        ("2KiB", 2048), ("3MiB", 3 * 2**20), ("1GiB", 2**30), (" 1 TiB ", 2**40), (1, 1), ("1", 1),
    ],
)  # fmt: skip
def test_amounts_that_are_read(text, count):
    assert parse_bytes(text) == count


def test_amounts_out_of_range():
    for amount in (0, "0.5B", "99999999TB", f"{2**63}B", 2.5):
        with pytest.raises(ConfigError, match=r"size is .*; give an amount"):
            parse_bytes(amount, "size")
    assert parse_bytes("9000000TB") == 9 * 10**18


def test_amounts_that_are_shown():
    shown = [show_bytes(count) for count in (0, 7, 999, 999.4, 999.5, 1000, 1234, 999_499, 999_500)]
    assert shown[:4] == ["0 B", "7 B", "999 B", "999 B"]
    assert shown[4:] == ["1 kB", "1 kB", "1.23 kB", "999 kB", "1 MB"]
    assert show_bytes(5.6e9) == "5.6 GB"
    assert show_bytes(2.5e12) == "2.5 TB"
    assert show_bytes(1.2345e15) == "1,234.5 TB"


def test_used_memory_is_that_of_the_process():
    before = used_memory()
    assert 10 * MB < before < 10**11
    block = mmap.mmap(-1, 64 * MB)  # not memory that the process had freed before
    block[:: mmap.PAGESIZE] = b"x" * (64 * MB // mmap.PAGESIZE)
    assert used_memory() - before > 32 * MB
    block.close()


# ---- costs


@needs_native
def test_costs_by_hand():
    n, e, d, k = 1000, 5000, 40, 3
    adjacency, features = 8 * (n + 1) + 8 * e, 4 * n * d
    operator, kept = adjacency + 8 * n, 4 * n * d * k
    assert cost(n, e, d, k, 10**9) == Cost(
        graph=adjacency + features,
        operator=operator,
        files=operator + features + kept,
        panels=1,
        passes=1,
        read=3 * adjacency + 2 * features + 2 * operator,
        written=operator + features + kept,
        shared=operator + features + kept,
        flops=2 * k * (e + n) * d,
        gathered=k * ((e + n) * (4 * d + 8) + features),
    )
    tight = cost(10**6, 5 * 10**7, 600, 2, 140 * MB + 10**9, longest_row=50)
    width = panel_width(Sizes.of(10**6, 5 * 10**7, 50, 600), 10**9)
    assert tight.panels == math.ceil(600 / width) > 1
    assert tight.passes == 2 * tight.panels
    many = cost(10**5, 10**6, 400, 2, 140 * MB + 4 * 10**9, workers=3)
    assert (many.panels, many.passes) == (3, 3)


# ---- stores


def test_the_share_of_the_operator_that_is_done(graphs, tmp_path):
    shares: list[float] = []
    graph = graphs(n=20, seed=2)
    write_operator(
        tmp_path, CsrMemory(graph.adjacency), "adjacency", "monomial", 1.0, 6, shares.append
    )
    assert len(shares) > 3
    assert shares == sorted(set(shares))
    assert 0 < shares[0] < 0.5
    assert shares[-1] == pytest.approx(1.0)


def test_an_operator_that_does_not_fit_goes_by_in_ranges(graphs, tmp_path, monkeypatch):
    propagate(graphs(n=12), tmp_path / "s", hops=1)
    read, part = [], panel._part
    monkeypatch.setattr(
        panel, "_part", lambda files, *ends: read.append(ends) or part(files, *ends)
    )
    for entries in (10**6, 9):
        for block in (tmp_path / "s" / "hops" / "h1").iterdir():
            block.unlink()
        monkeypatch.setattr(panel, "part_entries", lambda *_, entries=entries: entries)
        run_panel(tmp_path / "s", 0)
    assert read[0] == (0, 12)
    assert len(read) > 3
    assert [start for start, _ in read[1:]] == [0, *(stop for _, stop in read[1:-1])]
    assert read[-1][1] == 12


def test_progress_rises_to_the_end(graphs, tmp_path):
    told = []
    propagate(graphs(n=12), tmp_path / "s", hops=3, progress=lambda *given: told.append(given))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == 1
    assert [what.split(": ")[-1] for what, _ in told[-3:]] == [
        f"hop {hop} of panel 1/1" for hop in (1, 2, 3)
    ]


def test_bfloat16_is_rounded_as_torch_rounds():
    bits = np.random.default_rng(0).integers(0, 2**31, 5000, dtype=np.uint32)
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000], np.uint32)
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < 1e38)].reshape(-1, 1)
    stored = encode(values, "bfloat16")
    assert stored.shape == values.shape
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(decode(stored, "bfloat16"), expected)


def test_tables_are_imported_from_a_size_on(tmp_path, monkeypatch):
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    monkeypatch.setattr(opening, "used_memory", lambda: 10**7)
    enough = 10**7 + 16 * size + 128 * 10**6
    assert not opening.large_tables(tmp_path, enough)
    assert opening.large_tables(tmp_path, enough - 1)
    assert not opening.large_tables("cora", 1)
    assert not opening.large_tables(tmp_path / "none", 1)


def test_hops_of_zeros_in_half_precision_are_finished(tmp_path):
    graph = Graph.from_edges(np.empty((0, 2), int), features=np.eye(5))
    settings = {"hops": 2, "operator": "adjacency", "dtype": "float16"}
    store = propagate(graph, tmp_path / "s", **settings)
    assert store.complete
    assert store.missing() == []
    assert [record["relative"] for record in store.errors()] == [0.0, 0.0]
    before = (tmp_path / "s/hops/h1/r000000-c0000.npy").stat().st_mtime_ns
    assert propagate(graph, tmp_path / "s", **settings).complete
    assert (tmp_path / "s/hops/h1/r000000-c0000.npy").stat().st_mtime_ns == before


def test_panels_and_hops_that_are_not_there(graphs, tmp_path):
    propagate(graphs(n=12), tmp_path / "s", hops=2)
    for number in (-1, 1):
        with pytest.raises(StoreError, match=f"panel {number} is asked for but .* has 1; count"):
            run_panel(tmp_path / "s", number)
    for hops in ([0], [3], [1, 3]):
        with pytest.raises(StoreError, match=f"hops {hops[0]} to {hops[-1]} are asked for"):
            run_panel(tmp_path / "s", 0, hops)
    assert run_panel(tmp_path / "s", 0) == []
    for block in (tmp_path / "s" / "hops" / "h2").iterdir():
        block.unlink()
    noted = []
    done = run_panel(tmp_path / "s", 0, [2, 1, 2], note=lambda *given: noted.append(given))
    assert (done, noted) == ([2], [(0, 2)])
    assert not run_task(tmp_path / "s", 0, 2)


def test_errors_are_store_errors():
    with pytest.raises(StoreError, match="holds no hop store"):
        run_panel("/nowhere/at/all", 0)


# ---- what is told


def test_numbers_beyond_the_range_are_told_with_their_place(graphs, tmp_path):
    graph = graphs(20, 6, dtype=np.float32)
    features = np.asarray(graph.features).copy()
    features[:, 3] = 1e7
    with pytest.raises(StoreError, match=r"^hop 1 .* of float16 in columns 0 to 5 of block 0; use"):
        propagate(graph.with_features(features), tmp_path / "s", hops=1, dtype="float16")


def test_a_disk_that_is_too_small_is_told_in_bytes(graphs, stores, tmp_path, monkeypatch):
    graph, settings = graphs(23, 7, dtype=np.float32), {"hops": 2, "dtype": "float16"}
    stores.cut(graph, tmp_path / "s", tmp_path / "x", rows=4, columns=3, **settings)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=10))
    with pytest.warns(HopliteWarning, match="the store needs") as warned:
        propagate(graph, tmp_path / "s", **settings)
    needed = sum(path.stat().st_size for path in (tmp_path / "s/hops").rglob("*.npy"))
    assert f"the store needs {show_bytes(needed)} more" in str(warned[0].message)


def test_the_share_rises_with_every_block(graphs, stores, tmp_path):
    graph = graphs(23, 7, dtype=np.float32)
    stores.cut(graph, tmp_path / "s", tmp_path / "x", rows=4, columns=3, hops=2)
    told = []
    propagate(graph, tmp_path / "s", hops=2, progress=lambda what, share: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1
    assert len(set(told)) >= 6 + 2 * 3  # a share for each row of blocks of X, and for each panel
    assert all(abs(a - b) < 0.2 for a, b in itertools.pairwise(told))


def test_the_share_of_an_import(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "large_tables", lambda *_: True)
    (tmp_path / "t").mkdir()
    (tmp_path / "t/nodes.csv").write_text("id,x,y\n" + "".join(f"n{i},{i},1\n" for i in range(40)))
    (tmp_path / "t/edges.csv").write_text("source,target\nn3,n7\nn9,n1\n")
    told = []
    propagate(tmp_path / "t", tmp_path / "s", hops=1, progress=lambda *news: told.append(news))
    imported = [share for what, share in told if "panel" not in what and "writing" not in what]
    assert imported
    assert min(share for _, share in told) < 0.1
    assert [share for _, share in told] == sorted(share for _, share in told)


def test_panels_with_a_gap_are_damage(graphs, tmp_path):
    manifest = propagate(graphs(12, 4, dtype=np.float32), tmp_path / "s", hops=1).manifest
    assert dataclasses.replace(manifest, panels=((0, 2), (2, 4))).panels == ((0, 2), (2, 4))
    for panels in (((0, 2), (3, 4)), ((0, 3), (2, 4)), ((1, 4),), ((0, 3),), ((0, 4), (4, 4))):
        with pytest.raises(ValueError, match="do not cut 4 columns"):
            dataclasses.replace(manifest, panels=panels)


def test_the_peak_is_at_least_what_is_used():
    assert used_memory() <= peak_memory() < 10**11
