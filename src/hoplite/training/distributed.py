"""Training on several processes: each has a shard of the rows, all have the same weights.

With W processes and N rows in all, process r contributes

    loss_r = W / N  *  sum over its own rows of the loss

so that the average over the processes, of values and of gradients alike, is the mean over all rows,
whatever the shards' sizes. DistributedDataParallel averages the gradients; :meth:`Team.mean` the
loss that a line search sees, so that every process takes the same decisions.
"""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hoplite.config import check_number
from hoplite.errors import ConfigError, HopliteError

TIMEOUT = 600.0  # seconds that a process waits for the others in one exchange
Objective = Callable[..., tuple[Tensor, ...]]  # the loss first


class Team:
    """The processes that train together; this class is a team of one, which exchanges nothing."""

    rank = 0
    size = 1

    def shard(self, nodes: int) -> tuple[int, int]:
        """The range of nodes whose rows this process has."""
        return 0, nodes

    def objective(self, loss: Objective, weights: Mapping[str, Tensor]) -> Objective:
        """``loss``, a function of ``weights``, such that its gradients are averaged over all."""
        return loss

    def mean(self, values: Tensor) -> Tensor:
        """The average over all processes; the gradient is that of this process's own values."""
        return values

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        return values

    def least(self, value: int) -> int:
        """The smallest of all processes' values."""
        return value

    def check_agreement(self, weights: Mapping[str, Tensor]) -> None:
        """HopliteError unless all processes hold the very same weights."""


ALONE = Team()


class ProcessTeam(Team):
    """The processes of torch's default group, see :func:`connected`.

    ``shares`` are the processes' parts of the rows, equal ones if None.
    """

    def __init__(self, shares: Sequence[float] | None = None) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        parts = np.ones(self.size) if shares is None else np.asarray(shares, np.float64)
        if parts.shape != (self.size,) or not (parts >= 0).all() or not parts.sum() > 0:
            raise ConfigError(
                f"shares is {shares!r} for {self.size} processes; give each a part, none negative."
            )
        self._ends = np.concatenate([[0.0], np.cumsum(parts) / parts.sum()])

    def shard(self, nodes: int) -> tuple[int, int]:
        low, high = np.rint(self._ends[self.rank : self.rank + 2] * nodes).astype(int).tolist()
        return low, high

    def objective(self, loss: Objective, weights: Mapping[str, Tensor]) -> Objective:
        return DistributedDataParallel(_Held(loss, weights))

    def mean(self, values: Tensor) -> Tensor:
        return _Mean.apply(values, self)  # pyright: ignore[reportReturnType]

    def total(self, values: Tensor) -> Tensor:
        total = values.detach().clone()
        dist.all_reduce(total)
        return total

    def least(self, value: int) -> int:
        found = torch.tensor(value)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)

    def check_agreement(self, weights: Mapping[str, Tensor]) -> None:
        for value in weights.values():
            bits = value.detach().contiguous().view(torch.int32)
            first = bits.clone()
            dist.broadcast(first, src=0)
            if not self.least(int(torch.equal(bits, first))):
                raise HopliteError(
                    "the processes' weights have come apart; run all of them on machines of one "
                    "kind, with the same number of threads."
                )


class _Held(torch.nn.Module):
    """A module that holds the weights of a loss, as DistributedDataParallel needs it."""

    def __init__(self, loss: Objective, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.loss = loss
        for name, value in weights.items():
            assert isinstance(value, torch.nn.Parameter)  # the very tensor, not a copy
            self.register_parameter(name, value)

    def forward(self, *arguments: Any) -> tuple[Tensor, ...]:
        return self.loss(*arguments)


class _Mean(torch.autograd.Function):
    """The average of all processes' values; the gradients are averaged elsewhere, after them."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, team: Team) -> Tensor:
        return team.total(values) / team.size

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


@contextlib.contextmanager
def connected(shares: Sequence[float] | None = None, *, timeout: float = TIMEOUT) -> Iterator[Team]:
    """The team that ``torchrun`` (or RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) describes.

    Without these variables it is a team of one. A process that waits longer than ``timeout``
    seconds for another, or finds it gone, stops with a HopliteError.

    >>> with connected() as team:
    ...     team.size, team.shard(10)
    (1, (0, 10))
    """
    check_number("timeout", timeout, 0, open_ends="l")
    size = team_size()
    if size == 1:
        yield ALONE
        return
    rank = _from_environment("RANK")
    try:
        dist.init_process_group(
            "gloo", rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
        )
        yield ProcessTeam(shares)
    except (dist.DistError, RuntimeError, ValueError) as error:
        if isinstance(error, HopliteError) or not _is_of_network(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold what is to be freed below
        raise HopliteError(
            f"process {rank} of {size} lost the others or waited longer than {timeout:g} s for "
            "them; look for the first error among their messages, and start all of them again."
        ) from error
    finally:
        if dist.is_initialized():
            # a DistributedDataParallel that outlives the group aborts the process at its end
            gc.collect()
            with contextlib.suppress(RuntimeError):  # the others may be gone
                dist.destroy_process_group()


def team_size() -> int:
    """How many processes the environment describes, without a word to the others."""
    return _from_environment("WORLD_SIZE", 1)


def _is_of_network(error: Exception) -> bool:
    words = ("gloo", "Connection", "connect", "timed out", "Timed out", "MASTER_", "TCPStore")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def _from_environment(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isascii() or not text.isdigit():
        raise ConfigError(
            f"the environment variable {name} is {text!r}; it must be a whole number, as torchrun "
            "sets it."
        )
    return int(text)
