"""Training on a team without its network, and the room for the rows of a store, by hand."""

import math

import numpy as np
import pytest
import torch
from tests.training.scattered import parts_of, scattered_graph

from hoplite import ConfigError
from hoplite.config import TrainingConfig
from hoplite.errors import HopliteError
from hoplite.models import ModelConfig, build_model
from hoplite.propagation.engine import Propagation
from hoplite.store import propagate
from hoplite.training import distributed, streamed


@pytest.fixture
def scattered():
    return scattered_graph()


# ---- several processes, of which this is one


@pytest.fixture
def process(monkeypatch):
    """A team of three without its network: the others hold ``others`` in every exchange."""

    def make(rank, shares=None, others=(0.0, 0.0)):
        monkeypatch.setattr(distributed.dist, "get_rank", lambda: rank)
        monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 3)

        def all_reduce(values, how=torch.distributed.ReduceOp.SUM):
            if how == torch.distributed.ReduceOp.MIN:
                values.copy_(torch.tensor(min(float(values), *others)))
            else:
                values += sum(others)

        monkeypatch.setattr(distributed.dist, "all_reduce", all_reduce)
        return distributed.ProcessTeam(shares)

    return make


def test_shards_of_a_team(process):
    assert [process(r).shard(10) for r in range(3)] == [(0, 3), (3, 7), (7, 10)]
    uneven = [process(r, [3, 5, 2]).shard(100) for r in range(3)]
    assert uneven == [(0, 30), (30, 80), (80, 100)]
    assert [process(r, [0.0, 1.0, 0.0]).shard(7) for r in range(3)] == [(0, 0), (0, 7), (7, 7)]
    assert (process(2).rank, process(2).size) == (2, 3)
    for shares in ([1, 1], [1, 1, 1, 1], [2, -1, 1], [0, 0, 0], [[1], [1], [1]], [math.nan, 1, 1]):
        with pytest.raises(ConfigError, match="for 3 processes; give each a part, none negative"):
            process(0, shares)


def test_exchanges_of_a_team(process):
    team = process(1, others=(5.0, 7.0))
    values = torch.tensor([3.0, 0.0], requires_grad=True)
    assert team.total(values).tolist() == [15, 12]
    mean = team.mean(values)
    assert mean.tolist() == [5, 4]
    mean.sum().backward()
    assert values.grad.tolist() == [1, 1]  # averaged elsewhere
    assert values.tolist() == [3, 0]
    assert (team.least(6), team.least(2)) == (5, 2)


@pytest.mark.parametrize("same", [True, False])
def test_weights_that_come_apart_are_noticed(process, monkeypatch, same):
    team = process(1, others=(1.0, 1.0))
    sent = []

    def broadcast(values, src):
        sent.append(src)
        values += 0 if same else 1  # a single bit

    monkeypatch.setattr(distributed.dist, "broadcast", broadcast)
    weights = {"a": torch.ones(2), "b": torch.zeros(3, dtype=torch.float64)}
    if same:
        team.check_agreement(weights)
        assert sent == [0, 0]
    else:
        with pytest.raises(HopliteError, match="weights have come apart"):
            team.check_agreement(weights)


def test_alone_nothing_is_exchanged(monkeypatch):
    team = distributed.ALONE
    value = torch.ones(2)
    assert (team.rank, team.size, team.shard(9), team.least(4)) == (0, 1, (0, 9), 4)
    assert team.mean(value) is team.total(value) is value
    team.check_agreement({"a": value})
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with distributed.connected() as found:
        assert found is team
    for timeout in (0, -1):
        with pytest.raises(ConfigError, match="timeout is"), distributed.connected(timeout=timeout):
            pass
    for text in ("two", "", "-1", "²"):
        monkeypatch.setenv("WORLD_SIZE", text)
        with pytest.raises(ConfigError, match="WORLD_SIZE is"), distributed.connected():
            pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="RANK is ''"), distributed.connected():
        pass


# ---- room for the rows of a store


@pytest.fixture
def source_of(scattered, tmp_path, monkeypatch):
    """A StoredPropagation of 2 hops with ``room`` bytes beside what is in use and in reserve."""
    store = propagate(scattered, tmp_path / "store", hops=2)
    monkeypatch.setattr(streamed, "used_memory", lambda: 10**8)

    def make(room, model="lgc", team=distributed.ALONE, runs=1, **training):
        built = build_model(ModelConfig(model, 2), 6, 3)
        return streamed.StoredPropagation(
            store,
            built,
            memory=10**8 + 96 * 10**6 + room,
            team=team,
            training=TrainingConfig(dropout=0, **training),
            runs=runs,
        )

    return make


def test_the_least_room_of_a_store(scattered, source_of):
    assert max(len(part.nodes) for part in parts_of(scattered)) == 27
    row, run, least = 4 * 3 * 6, 4 * 10 * 27 * 3 + 4 * 24 * 21, 4 * 16 * 4 * 3 * 6
    source = source_of(run + least)
    assert (source.runs, source.tile_rows, source._shelf.chunk_rows) == (1, 16, 16)
    assert source._shelf.take(16)  # what is left beside three chunks: one more
    assert not source._shelf.take(1)
    with pytest.raises(ConfigError, match="this training needs 210 MB at least, of which 196 MB"):
        source_of(run + least - 1)
    batches = (8 + 4) * 5 * row
    source_of(run + batches + least, batch=5)
    with pytest.raises(ConfigError, match="this training needs"):
        source_of(run + batches + least - 1, batch=5)
    lbfgs = 4 * 10 * 27 * 3 + 4 * 224 * 21
    source_of(lbfgs + least, optimizer="lbfgs")
    with pytest.raises(ConfigError, match="this training needs"):
        source_of(lbfgs + least - 1, optimizer="lbfgs")
    last = source_of(10**9, "sgc")
    assert last.tile_rows == 3 * 10**6 // (4 * 6)
    assert last._shelf.hops == [2]
    assert source_of(10**9)._shelf.chunk_rows == 32 * 10**6 // row


def test_runs_of_a_store_that_fit_beside_each_other(source_of):
    run = 4 * 10 * 27 * 3 + 4 * 24 * 21
    for room, runs in ((6 * run, 3), (6 * run - 1, 2), (4 * run, 2), (20 * run, 5)):
        assert source_of(room, runs=5).runs == runs


def test_a_process_counts_its_own_rows(scattered, source_of):
    class Half(distributed.Team):
        def shard(self, nodes):
            return 20, nodes

    mine = max(int((np.asarray(part.nodes) >= 20).sum()) for part in parts_of(scattered))
    assert 0 < mine < 27
    run = 4 * 10 * mine * 3 + 4 * 24 * 21
    least = 4 * 16 * 4 * 3 * 6
    source_of(run + least, team=Half())
    with pytest.raises(ConfigError, match="this training needs"):
        source_of(run + least - 1, team=Half())


def test_chunks_of_a_store_are_its_rows(scattered, source_of):
    """Whatever is kept: rows in order, and rows picked, from chunks of a few nodes."""
    expected = Propagation(scattered, hops=2, dtype=np.float32).view().hop_features().squeeze(2)
    nodes = np.array([0, 1, 7, 8, 9, 30, 31, 44, 58, 59])
    run, least = 4 * 10 * 27 * 3 + 4 * 24 * 21, 4 * 16 * 4 * 3 * 6
    for room in (run + least, run + 3 * least, 10**7):
        source = source_of(room)
        source._shelf.chunk_rows = 3
        rows = source.view(nodes)._rows
        for _ in range(2):
            found = list(rows.chunks())
            assert [start for start, _ in found] == [0, 3, 6, 9]
            together = torch.cat([chunk for _, chunk in found], dim=1)
            torch.testing.assert_close(together, expected[:, torch.from_numpy(nodes)])
        picked = rows.pick(torch.tensor([1, 2, 5, 9]))
        torch.testing.assert_close(picked, expected[:, [1, 7, 30, 59]])
        assert rows.pick(torch.tensor([], dtype=torch.int64)).shape == (3, 0, 6)
        for order in ([3, 1], [1, 1]):
            with pytest.raises(ConfigError, match="rising order, none twice"):
                source.view(np.array(order))
