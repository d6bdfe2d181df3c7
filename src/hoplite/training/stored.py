"""Training from a hop store: sums over ranges of rows, within a memory limit.

A node's outputs follow from its own hop features P_i, so with the rows cut into ranges R

    H[R] = sum_i c_i P_i[R] Theta        dLoss/dw = sum over R of dLoss[R]/dw

and a step reads every range once: the loss of a range and its gradient follow from its outputs. A
range has about 2^20 numbers, and sums are taken in the order of the ranges, so the bits do not
depend on the memory limit, the number of threads or the workers of a cluster. Line searches amplify
rounding, so L-BFGS on a graph in memory takes the same sums, if the rows fit.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar
from weakref import WeakSet

import numpy as np

from hoplite.bases import find_basis
from hoplite.config import NEED_FEATURES, TrainingConfig
from hoplite.engine.backend import (
    RANGE_NUMBERS,
    get_num_threads,
    in_order,
    one_blas_thread,
    row_ranges,
    use_threads,
)
from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import (
    Evaluation,
    Filter,
    FilterGradient,
    KeptHops,
    KeptRows,
    Order,
    side_by_side,
)
from hoplite.engine.features import Features
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError
from hoplite.graph import StoredHops
from hoplite.machine import free_memory, parse_bytes, release_memory
from hoplite.models.alignment import check_stored
from hoplite.models.base import Weights
from hoplite.models.linear import LinearModel
from hoplite.tasks import Task
from hoplite.training.objective import Measured, Part
from hoplite.training.sets import WINDOW

SHARDS = 32  # groups of ranges that are summed separately: the maximum number of workers
COPIES = 3  # copies of a range in use: its rows, and the results of an evaluation
MIN_AT_ONCE = 3  # ranges in memory: one in use, one waiting, one being read
SIGNALS = 10  # arrays as large as the outputs: these, their gradients, and those of the loss
ORDERS = 4  # numbers per row for sorting: the order and its inverse
WEIGHT_COPIES = {"adam": 24, "lbfgs": 224}  # copies of the weights: sums in float64, 100 pairs

Result = TypeVar("Result")
Sums = tuple[np.ndarray, ...]


class RowForm(NamedTuple):
    """Which hops of a row a model reads, and in which form they are kept.

    Parameters
    ----------
    hops : tuple of int
    mix : tuple of float or None
        Constant coefficients c_i, if only sum_i c_i P_i is kept: (rows, d).
    flat : bool
        Whether the hops stand side by side, (rows, hops d); otherwise they are (hops, rows, d).
    """

    hops: tuple[int, ...]
    mix: tuple[float, ...] | None = None
    flat: bool = False

    @classmethod
    def of(cls, model: LinearModel) -> Self:
        """The form on which a linear model trains."""
        hops, mix = tuple(model.hops_read), None
        if model.constants(model.config) is not None:
            coefficients = model.coefficients({})
            assert coefficients is not None
            mix = tuple(coefficients[list(hops)].tolist())
        return cls(hops, mix, flat=len(model.shapes()["theta"]) == 3)

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """The shape of this many rows of d ``columns`` in this form."""
        if self.mix is not None:
            return rows, columns
        count = len(self.hops)
        return (rows, count * columns) if self.flat else (count, rows, columns)

    def of_hops(self, hops: np.ndarray) -> np.ndarray:
        """Convert hop features (hops, rows, d), which may be overwritten, to this form.

        The numbers of a row do not depend on the other rows.
        """
        if self.mix is None:
            return side_by_side(hops) if self.flat else hops
        mixed = hops[0] * hops.dtype.type(self.mix[0])
        for hop, coefficient in zip(hops[1:], self.mix[1:], strict=True):
            hop *= hops.dtype.type(coefficient)
            mixed += hop
        return mixed

    def put(self, rows: np.ndarray, columns: slice, hops: np.ndarray) -> None:
        """Fill some columns of ``rows``, in this form, from hop features (hops, rows, w)."""
        whole = rows.reshape(len(rows), len(self.hops), -1) if self.flat else rows
        kept = self.of_hops(hops)
        whole[..., columns] = kept.reshape(*whole.shape[:-1], -1)


def summed(results: Iterable[Sums]) -> Sums:
    """The sum of the results of several ranges, or of several groups of them, in their order."""
    total: list[np.ndarray] = []
    for result in results:
        if not total:
            total = [np.array(value, np.float64) for value in result]
        else:
            for value, more in zip(total, result, strict=True):
                value += more
    return tuple(total)


def joined(results: Iterable[Sums]) -> Sums:
    """The values of all rows, concatenated."""
    return (np.concatenate([values for (values,) in results]),)


@dataclass(frozen=True)
class Job:
    """A computation on every range of rows; a cluster sends it to the workers.

    Parameters
    ----------
    filter : Filter
    measure : callable
        A function at module level: the result from the evaluation of the filter and from ``rows``.
    rows : tuple of ndarray or None
        Arrays with a value for every row.
    combine : callable, default :func:`summed`
        The result of several ranges.
    """

    filter: Filter
    measure: Callable[..., Sums]
    rows: tuple[np.ndarray | None, ...] = ()
    combine: Callable[[Iterable[Sums]], Sums] = summed

    def of(self, order: Order) -> Sums:
        """The result for all rows of the job."""
        return self.measure(order.evaluate(self.filter), *self.rows)

    def cut(self, part: slice) -> Job:
        """The job for some of the rows."""
        rows = tuple(None if values is None else values[part] for values in self.rows)
        return dataclasses.replace(self, rows=rows)


def _signal(evaluation: Evaluation) -> Sums:
    return (evaluation.values,)


def _gradient(evaluation: Evaluation, outer: np.ndarray) -> Sums:
    """The gradient by the filter, from G = dLoss/dH: (rows, m)."""
    return tuple(value for value in evaluation.gradient(outer) if value is not None)


def _loss(
    bias: np.ndarray | None,
    task: Task,
    count: int,
    evaluation: Evaluation,
    targets: np.ndarray,
    weights: np.ndarray | None,
) -> Sums:
    """The loss of the rows, the tally of their metrics, and the gradient.

    ``count`` is the number of all rows, by which the sum of the losses is divided.
    """
    logits = evaluation.values if bias is None else evaluation.values + bias
    loss, outer = task.loss_and_gradient(logits, targets, weights, count)
    tally = task.tally(logits, targets)
    return np.array(loss), tally, outer.sum(axis=0), *_gradient(evaluation, outer)


def _filter_gradient(filter: Filter, sums: Sequence[np.ndarray]) -> FilterGradient:
    return FilterGradient(sums[0].astype(filter.maps.dtype), *sums[1:])


class Shelf:
    """Reads the rows of a store range by range, and keeps them in memory while there is ``room``.

    Parameters
    ----------
    store : StoredHops
    room : int
        Bytes for rows in use and for rows that are kept.
    hops : int
        Number of hops that are read.
    """

    def __init__(self, store: StoredHops, room: int, hops: int) -> None:
        self.store = store
        size = COPIES * range_bytes(store, hops)
        self.at_once = max(MIN_AT_ONCE, min(room // 2 // max(size, 1), get_num_threads() + 2))
        self._spare = room - self.at_once * size
        self._rows: WeakSet[StoredRows] = WeakSet()
        self.reading = threading.Lock()  # a disk is read fastest by one thread

    def rows(self, nodes: np.ndarray, form: RowForm) -> StoredRows:
        """The rows of ``nodes``; reading is fastest if they are sorted."""
        rows = StoredRows(self, nodes, form)
        self._rows.add(rows)
        return rows

    def fits(self, size: int) -> bool:
        """Whether ``size`` more bytes fit in addition to the rows still in use."""
        return sum(rows.kept_bytes for rows in self._rows) + size <= self._spare


class RowRanges(ABC):
    """Rows of hop features, cut into ranges and groups of ranges.

    Parameters
    ----------
    rows : int
    form : RowForm
        The form in which they are kept.
    columns : int
        d, the number of features.
    """

    def __init__(self, rows: int, form: RowForm, columns: int) -> None:
        self._count, self._form, self._columns = rows, form, columns
        self.ranges = row_ranges(rows, len(form.hops) * columns)

    def __len__(self) -> int:
        return self._count

    @property
    def shards(self) -> list[range]:
        """The numbers of the ranges of each group."""
        count = min(SHARDS, len(self.ranges))
        ends = [len(self.ranges) * i // count for i in range(count + 1)] if count else []
        return list(itertools.starmap(range, itertools.pairwise(ends)))

    def results(self, job: Job, shards: Sequence[range]) -> Iterator[Sums]:
        """The result of ``job`` for each of these consecutive groups."""
        first = self.ranges[shards[0][0]].start

        def work(part: slice, rows: np.ndarray) -> Sums:
            return job.cut(slice(part.start - first, part.stop - first)).of(as_order(rows))

        results = self.map_ranges(work, range(shards[0].start, shards[-1].stop))
        for shard in shards:
            yield job.combine(itertools.islice(results, len(shard)))

    def map_ranges(
        self, work: Callable[[slice, np.ndarray], Result], numbers: Sequence[int] | None = None
    ) -> Iterator[Result]:
        """``work`` of the ranges and their rows, on the engine's threads; the results in order."""
        numbers = range(len(self.ranges)) if numbers is None else numbers

        def run(number: int) -> Result:
            with use_threads(1):
                return work(self.ranges[number], self.load(number))

        with one_blas_thread:
            threads = 1 if len(numbers) == 1 else self.threads(numbers)
            yield from in_order(run, numbers, threads, threads)

    @abstractmethod
    def threads(self, numbers: Sequence[int]) -> int:
        """How many threads work on these ranges."""

    @abstractmethod
    def load(self, number: int) -> np.ndarray:
        """The rows of a range."""

    def _shape(self, rows: int) -> tuple[int, ...]:
        return self._form.shape(rows, self._columns)


class MemoryRows(RowRanges):
    """The rows of ``nodes`` of a graph in memory; the same numbers as in a hop store."""

    def __init__(self, source: Propagation, nodes: np.ndarray, form: RowForm) -> None:
        super().__init__(len(nodes), form, source.features.shape[1])
        sizes = (part.stop - part.start for part in self.ranges)
        self._kept = [np.empty(self._shape(size), source.dtype) for size in sizes]
        for columns, block in source.features.column_blocks():
            hops = source.gather(block, nodes)[list(form.hops)]
            for part, rows in zip(self.ranges, self._kept, strict=True):
                form.put(rows, columns, hops[:, part])

    def threads(self, numbers: Sequence[int]) -> int:
        return get_num_threads()

    def load(self, number: int) -> np.ndarray:
        return self._kept[number]


class StoredRows(RowRanges):
    """The rows of some nodes of a store."""

    def __init__(self, shelf: Shelf, nodes: np.ndarray, form: RowForm) -> None:
        super().__init__(len(nodes), form, shelf.store.num_features)
        self._shelf, self._nodes = shelf, nodes
        self._kept: dict[int, np.ndarray] = {}
        self.kept_bytes = 0

    def threads(self, numbers: Sequence[int]) -> int:
        threads = min(get_num_threads() + 1, self._shelf.at_once - 1)  # one of them reads
        if threads == 2 and self._kept.keys() >= set(numbers):
            return 1
        release_memory()  # what other threads freed, which these cannot use
        return threads

    def pick(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, by their positions in rising order."""
        out = np.empty(self._shape(len(rows)), np.float32)
        cuts = np.searchsorted(rows, [part.start for part in self.ranges] + [len(self)]).tolist()
        for number, (low, high) in enumerate(itertools.pairwise(cuts)):
            if low == high:
                continue
            if number in self._kept or self._fits(number):
                inside = rows[low:high] - self.ranges[number].start
                out[..., low:high, :] = self.load(number).take(inside, axis=-2)
            else:
                out[..., low:high, :] = self._read(self._nodes[rows[low:high]])
        return out

    def load(self, number: int) -> np.ndarray:
        """The rows of a range, which stay in memory if there is room."""
        with self._shelf.reading:
            rows = self._kept.get(number)
            if rows is None:
                keep = self._fits(number)
                rows = self._read(self._nodes[self.ranges[number]])
                if keep:
                    self._kept[number] = rows
                    self.kept_bytes += rows.nbytes
            return rows

    def _fits(self, number: int) -> bool:
        part = self.ranges[number]
        return self._shelf.fits(4 * int(np.prod(self._shape(part.stop - part.start))))

    def _read(self, nodes: np.ndarray) -> np.ndarray:
        return self._form.of_hops(self._shelf.store.rows(nodes, self._form.hops))


def as_order(rows: np.ndarray) -> Order:
    """An order that evaluates rows of a :class:`RowForm` in memory."""
    return KeptHops(rows) if rows.ndim == 3 else KeptRows(Features(rows))


class RangeOrder(Order):
    """The rows of ``nodes``, in any order; a linear model trains on sums over ranges of rows.

    Parameters
    ----------
    rows : RowRanges
        The same nodes, sorted.
    nodes : ndarray
    """

    def __init__(self, rows: RowRanges, nodes: np.ndarray) -> None:
        self._rows, self._sorting = rows, np.argsort(nodes, kind="stable")
        self._places = np.argsort(self._sorting)  # position of each row among the sorted ones

    @classmethod
    def in_memory(
        cls, source: Propagation, model: LinearModel, nodes: np.ndarray | None
    ) -> RangeOrder:
        """The rows of a graph in memory: the same sums, bit for bit, as with a hop store."""
        nodes = np.arange(source.num_nodes) if nodes is None else nodes
        return cls(MemoryRows(source, np.sort(nodes), RowForm.of(model)), nodes)

    def evaluate(self, filter: Filter, dropout: Dropout | None = None) -> Evaluation:
        if dropout is not None:
            raise ConfigError(
                "cannot be applied to precomputed hop features; set dropout to 0.", "dropout"
            )
        values = self._run(Job(filter, _signal, combine=joined))[0][self._places]

        def gradient(outer: np.ndarray) -> FilterGradient:
            if len(outer) < len(self._rows):
                rest = np.zeros((len(self._rows) - len(outer), outer.shape[1]), outer.dtype)
                outer = np.concatenate([outer, rest])
            job = Job(filter, _gradient, (outer[self._sorting],))
            return _filter_gradient(filter, self._run(job))

        return Evaluation(values, gradient)

    def loss_and_gradient(
        self, filter: Filter, bias: np.ndarray | None, task: Task, part: Part
    ) -> tuple[Measured, np.ndarray, FilterGradient]:
        """The loss of all rows and its gradients by the bias and by the filter, in one pass."""
        weights = None if part.weights is None else part.weights[self._sorting]
        targets = part.targets[self._sorting]
        measure = partial(_loss, bias, task, len(part))
        loss, tally, by_bias, *by_filter = self._run(Job(filter, measure, (targets, weights)))
        gradient = _filter_gradient(filter, by_filter)
        return Measured(float(loss), tally), by_bias.astype(gradient.maps.dtype), gradient

    def _run(self, job: Job) -> Sums:
        """The job's result for all rows, sorted."""
        return job.combine(self._rows.results(job, self._rows.shards))


class StoredOrder(RangeOrder):
    """Rows of a hop store, from which mini-batches are drawn.

    Parameters
    ----------
    rows : StoredRows
    nodes : ndarray
    batch : int
        Rows of a mini-batch, 0 without.
    """

    _rows: StoredRows

    def __init__(self, rows: StoredRows, nodes: np.ndarray, batch: int = 0) -> None:
        super().__init__(rows, nodes)
        self._batch = batch
        self._window: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def part(self, rows: np.ndarray) -> Order:
        """A mini-batch; the segments that it is drawn from are read once for all their batches."""
        size = min(self._batch or len(rows), len(self._rows))
        segments = np.unique(rows // size)
        if self._window is None or not np.isin(segments, self._window[0]).all():
            self._window = None  # whose memory is needed
            near = (segments[:, None] * size + np.arange(size)).ravel()
            near = np.sort(self._places[near[near < len(self._rows)]])
            self._window = segments, near, self._rows.pick(near)
        _, near, kept = self._window
        return as_order(kept.take(np.searchsorted(near, self._places[rows]), axis=-2))


class HopRows:
    """The rows of a hop store as a source of training, for one model.

    Parameters
    ----------
    store : HopStore
        A complete store, with at least as many hops as the model.
    model : LinearModel or RowNetwork
    training : TrainingConfig
        The optimizer and the size of mini-batches determine the memory needed.
    memory : str or int, default "4GB"
        Memory limit of the whole process, including imported libraries. Rows that fit stay in
        memory.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        store: StoredHops,
        model: Any,
        training: TrainingConfig,
        *,
        memory: str | int = "4GB",
    ) -> None:
        check_stored(store, model.config)
        check_training(training)
        self.num_nodes, self.hops = store.num_nodes, model.config.hops
        self.basis = find_basis(store.basis)
        self._store, self._batch = store, training.batch
        hops = len(model.hops_read)
        needed = run_bytes(store, model, training, max_rows(store, model))
        self._shelf = Shelf(store, free_room(store, hops, parse_bytes(memory), needed), hops)
        self._chunked: dict[tuple[bytes, tuple[int, ...]], StoredRows] = {}

    def close(self) -> None:
        """Release resources, such as the connection to a cluster."""

    def order(self, model: LinearModel, nodes: np.ndarray | None = None) -> StoredOrder:
        """The rows of ``nodes`` (default: all), in the form on which ``model`` trains."""
        nodes = self._indices(nodes)
        rows = self._shelf.rows(np.sort(nodes), RowForm.of(model))
        return StoredOrder(rows, nodes, self._batch)

    def chunks(
        self, nodes: np.ndarray | None, hops: Sequence[int]
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Hop features (hops, rows, d) of ``nodes``, in chunks; do not change them.

        Reading is fastest if the nodes are mostly sorted.
        """
        nodes = self._indices(nodes)
        key = nodes.tobytes(), tuple(hops)
        if key not in self._chunked:
            self._chunked[key] = self._shelf.rows(nodes, RowForm(tuple(hops)))
        return self._chunked[key].map_ranges(lambda part, rows: (part, rows))

    def rows(self, nodes: np.ndarray, hops: Sequence[int]) -> np.ndarray:
        """Hop features of ``nodes``, in any order: (hops, nodes, d)."""
        return self._shelf.store.rows(self._indices(nodes), hops)

    def logits(self, model: Any, weights: Weights, nodes: np.ndarray | None = None) -> np.ndarray:
        """Outputs of a trained model at ``nodes``, or at all nodes: (nodes, m)."""
        weights = {name: value.astype(self.dtype) for name, value in weights.items()}
        if model.config.standardize:
            whole = model.finished(weights, self._signal(model, weights, self._indices(None)))
            return whole if nodes is None else whole[nodes]
        return model.finished(weights, self._signal(model, weights, self._indices(nodes)))

    def _signal(self, model: Any, weights: Weights, nodes: np.ndarray) -> np.ndarray:
        """The outputs before standardisation and bias."""
        signal = np.empty((len(nodes), model.num_classes), self.dtype)

        def work(part: slice, hops: np.ndarray) -> None:
            signal[part] = model.signal_from_hops(weights, hops)

        for _ in self._shelf.rows(nodes, RowForm(tuple(model.hops_read))).map_ranges(work):
            pass
        return signal

    def _indices(self, nodes: np.ndarray | None) -> np.ndarray:
        return np.arange(self.num_nodes) if nodes is None else np.asarray(nodes, np.int64)


def check_training(config: TrainingConfig) -> None:
    """Raise ConfigError if the training needs more than hop features."""
    for name in NEED_FEATURES:
        if getattr(config, name):
            raise ConfigError(
                f"is {getattr(config, name)} but hop features in a store were computed "
                f"without dropout; set {name} to 0, or train "
                "on the graph.",
                name,
            )
    if config.order == "weights-first":
        raise ConfigError(
            "is 'weights-first' but a hop store contains hop features only; leave it out, "
            "or train on the graph.",
            "order",
        )


def max_rows(store: StoredHops, model: Any) -> int:
    """Rows whose outputs are needed at the same time."""
    sizes = store.split.sizes()
    return store.num_nodes if model.config.standardize else sum(sizes.values())


def range_bytes(store: StoredHops, hops: int) -> int:
    """Maximum size of the hop features of one range."""
    numbers = hops * store.num_features
    return 4 * min(max(RANGE_NUMBERS, numbers), numbers * store.num_nodes)


def run_bytes(store: StoredHops, model: Any, training: TrainingConfig, rows: int) -> int:
    """Memory of a training with this many rows, without hop features."""
    weights = sum(int(np.prod(shape)) for shape in model.shapes().values())
    # the rows that batches are drawn from, and a batch with what is made of it
    batches = (WINDOW + 4) * min(training.batch, rows) * len(model.hops_read) * store.num_features
    signals = (SIGNALS * model.num_classes + ORDERS) * rows
    return 4 * (signals + batches + WEIGHT_COPIES[training.optimizer] * weights)


def free_room(store: StoredHops, hops: int, memory: int, needed: int) -> int:
    """Bytes of ``memory`` left for hop features; ConfigError if they are too few."""
    least = MIN_AT_ONCE * COPIES * range_bytes(store, hops)
    return free_memory(memory, needed + least, "this training") + least
