"""Any torch.nn.Module of (x, edge_index) as a model, such as a network of PyTorch Geometric.

    logits = module(X, edge_index)      X: (n, d), edge_index: (2, e), logits: (n, m)

Its settings are the arguments of its ``__init__``, its weights are its parameters and buffers. X is
dense, the edges lead both ways, without self-loops, which the layers add themselves; a ``forward``
with an argument ``edge_weight`` gets the weights, (e,). An argument ``dropout`` is that of the
training. It is the module that drops then, and nothing else is dropped from X.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, make_dataclass
from functools import cache, cached_property
from inspect import Parameter
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from hoplite.config import flag_setting, number_setting, setting
from hoplite.engine.dropout import Dropout, Mask
from hoplite.errors import ConfigError, HopliteError, is_shortage, plural
from hoplite.machine import torch
from hoplite.models.base import OF_FILTERS, Model, Weights
from hoplite.models.settings import RESERVED, ModelConfig
from hoplite.nets.base import Network, Tensors

if TYPE_CHECKING:
    from torch import Tensor

    from hoplite.nets.view import GraphView, WholeGraph

SIZES = ("in_channels", "out_channels")  # PyTorch Geometric's words for the features and outputs
DROPOUT, EDGE_WEIGHT = "dropout", "edge_weight"
DEFAULTS = {"hidden_channels": 64, "num_layers": 2}  # values of arguments that have no default
# Arguments that cannot be settings: they keep their defaults
NO_SETTINGS = RESERVED | {"operator", "basis", "standardize"}
# Settings of a training that mean nothing where X and the steps are the module's own
UNUSED = OF_FILTERS | {"order", "drop_nodes", "output_dropout", "draws"}
MAX_WHOLE = 2**24  # float32 keeps whole numbers up to here
FLOATS = (float, "float")  # annotations; in a module of __future__ annotations they are texts
# Modules draw from the one generator of the process, so they are called one at a time
_generator_lock = threading.RLock()


class ModuleModel(Network):
    """The model of the class :attr:`module`; :func:`as_model` makes a subclass for each."""

    module: ClassVar[type[torch.nn.Module]]
    weighted: ClassVar[bool]  # whether its forward takes the weights of the edges
    random_steps = True  # it may drop whatever it likes in a training step
    own_bias = True

    def __init__(
        self, config: ModelConfig, num_features: int, num_classes: int, relations: int = 1
    ) -> None:
        super().__init__(config, num_features, num_classes, relations)
        # modules may keep what they made of a graph's edges, so each graph has its own
        self._built: WeakKeyDictionary[WholeGraph, dict[float, torch.nn.Module]]
        self._built = WeakKeyDictionary()

    def initial(self, rng: np.random.Generator | None) -> Weights:
        """What the module has when it is made after ``torch.manual_seed`` of the same seed."""
        if rng is None:
            shapes = {name: tuple(v.shape) for name, v in _tensors(self._skeleton).items()}
            return {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
        with _seeded(_seed_of(rng)):
            first = _tensors(self._make())
        for name, value in first.items():
            if not value.is_floating_point() and (value.long().abs() > MAX_WHOLE).any():
                raise ConfigError(
                    f"the buffer {name!r} of {self.title} contains integers beyond 2^24, which "
                    "cannot be saved; use floats, or do not register it as a buffer."
                )
        return {name: _array(value) for name, value in first.items()}

    @property
    def unlearned(self) -> frozenset[str]:
        params = self._skeleton.named_parameters()
        return frozenset(self._state) | {
            name for name, weight in params if not weight.requires_grad
        }

    def forward(self, weights: Tensors, view: GraphView, dropout: Dropout | None) -> Tensor:
        """The module's outputs in the rows of the view, computed on all nodes: (rows, m).

        A training step is one with a ``dropout``: the module is in training mode, and what it draws
        follows from (seed, step) alone. Buffers that it changes then are changed in ``weights``.
        """
        with _generator_lock:
            return view.pick(self._outputs(weights, view.whole, dropout))

    def _outputs(self, weights: Tensors, whole: WholeGraph, dropout: Dropout | None) -> Tensor:
        module = self._module(whole, 0.0 if dropout is None else dropout.rate)
        module.train(dropout is not None)
        state = {
            name: weights[name].detach().to(dtype or weights[name].dtype, copy=True)
            for name, dtype in self._state.items()
        }
        named = {EDGE_WEIGHT: whole.edge_weight} if self.weighted else {}
        seed = 0 if dropout is None else _seed_of_step(dropout)
        with (
            _seeded(seed),
            _as_config_error(
                f"the forward of {self.title} failed on x of shape {tuple(whole.features.shape)}"
            ),
        ):
            outputs = torch.func.functional_call(
                module, weights | state, (whole.features, whole.edge_index), named, strict=True
            )
        self._check(outputs, len(whole.features))
        if dropout is not None:
            with torch.no_grad():
                for name, value in state.items():
                    weights[name].copy_(value)
        return outputs

    def signal_columns(self) -> int:
        return max(self.num_features, self.num_classes)

    def dense_work(self, rows: int, nodes: int) -> int:
        return super().dense_work(nodes, nodes)  # whichever rows are read

    def _check(self, outputs: Any, nodes: int) -> None:
        is_tensor = isinstance(outputs, torch.Tensor)
        shape = tuple(outputs.shape) if is_tensor else type(outputs).__name__
        if shape != (nodes, self.num_classes):
            raise ConfigError(
                f"{self.title} returned {shape} for {plural(nodes, 'node')} and {self.num_classes} "
                "outputs; its forward must return one row per node and out_channels columns."
            )

    def _module(self, whole: WholeGraph, rate: float) -> torch.nn.Module:
        """The module for a graph and a rate of dropout; its own weights are never used."""
        built = self._built.setdefault(whole, {})
        if rate not in built:
            with _seeded(0):
                built[rate] = self._make(rate)
        return built[rate]

    def _make(self, rate: float = 0.0) -> torch.nn.Module:
        names = {field.name for field in fields(self.config)} - NO_SETTINGS
        arguments = {name: getattr(self.config, name) for name in names}
        arguments |= dict(zip(SIZES, (self.num_features, self.num_classes), strict=True))
        if DROPOUT in self.settings():
            arguments[DROPOUT] = rate
        with _as_config_error(f"{self.title} cannot be built with {self.config}"):
            module = self.module(**arguments)
            _ = [value.shape for value in module.parameters()]  # lazy ones have none
        return module

    @cached_property
    def _skeleton(self) -> torch.nn.Module:
        """The module without numbers, by which its weights are known."""
        with _seeded(0):
            try:
                with torch.device("meta"):
                    return self._make()
            except ConfigError:  # it may need numbers, or be too large, which is an error again
                with torch.device("cpu"):
                    return self._make()

    @cached_property
    def _state(self) -> dict[str, torch.dtype | None]:
        """The buffers, and their types if these are no floats, which weights are."""
        buffers = self._skeleton.named_buffers()
        return {
            name: None if buffer.is_floating_point() else buffer.dtype for name, buffer in buffers
        }


def as_model(module: type) -> type[Model] | None:
    """The model of a class of torch.nn.Module; None for any other, ConfigError if it cannot be one.

    >>> class Net(torch.nn.Linear):
    ...     def __init__(self, in_channels, out_channels, hidden_channels, act="relu", norm=None):
    ...         super().__init__(in_channels, out_channels)
    ...     def forward(self, x, edge_index): ...
    >>> model = as_model(Net)
    >>> model.title, model.Settings()
    ('Net', Net.Settings(standardize=False, hidden_channels=64, act='relu'))
    >>> model(model.Settings(), 3, 2).shapes()
    {'weight': (2, 3), 'bias': (2,)}
    """
    loaded = sys.modules.get("torch")  # whoever has such a class has imported it
    return _model(module) if loaded and issubclass(module, loaded.nn.Module) else None


@cache
def _model(module: type[torch.nn.Module]) -> type[Model]:
    arguments, title = _arguments(module), getattr(module, "title", None)
    missing = [name for name in SIZES if name not in arguments]
    if missing:
        raise ConfigError(
            f"{module.__qualname__} has no argument {' and '.join(missing)}; the numbers of "
            f"features and outputs are passed to its __init__ as {' and '.join(SIZES)}."
        )
    declared = {
        name: _setting(name, argument)
        for name, argument in arguments.items()
        if name not in (*SIZES, DROPOUT, *NO_SETTINGS)
    }
    declared = {name: field for name, field in declared.items() if field is not None}
    needed = [name for name, argument in arguments.items() if argument.default is Parameter.empty]
    needed = [name for name in needed if name not in (*SIZES, DROPOUT, *declared)]
    if needed:
        raise ConfigError(
            f"{module.__qualname__} needs {' and '.join(needed)}, which have no default value; "
            "add a default to its __init__ that is a number, a bool or a string."
        )
    about = {"__module__": module.__module__, "__qualname__": module.__qualname__}
    inner = about | {"__qualname__": f"{module.__qualname__}.Settings"}
    typed_fields = [(name, type(field.default), field) for name, field in declared.items()]
    settings = make_dataclass(
        "Settings", typed_fields, bases=(ModelConfig,), namespace=inner, frozen=True
    )
    settings.__module__ = module.__module__  # which make_dataclass replaces by its own
    sizes = [name for name, field_type, _ in typed_fields if field_type is int]
    body = about | {
        "__doc__": module.__doc__,
        "name": _name(module),
        "title": title if isinstance(title, str) else module.__name__,
        "idle": UNUSED if DROPOUT in arguments else UNUSED | {DROPOUT},
        "size": ", ".join(f"{name} {{0.{name}}}" for name in sizes) or "a torch module",
        "growth": sizes[0] if sizes else "hops",
        "module": module,
        "weighted": _takes_weights(module),
        "Settings": settings,
    }
    return type(module.__name__, (ModuleModel,), body)


def _arguments(module: type[torch.nn.Module]) -> dict[str, Parameter]:
    """The named arguments of its ``__init__``."""
    parameters = list(inspect.signature(module.__init__).parameters.values())[1:]
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {argument.name: argument for argument in parameters if argument.kind in named}


def _setting(name: str, argument: Parameter) -> Any:
    """The setting that an argument is; None if its default is not a number, flag or text."""
    default: Any = argument.default
    if default is Parameter.empty:
        default = DEFAULTS.get(name)
    if type(default) is int and argument.annotation in FLOATS:
        default = float(default)
    text = f"Argument {name} of the module."
    if type(default) is bool:
        return flag_setting(default, text)
    if type(default) in (int, float) and math.isfinite(default):
        return number_setting(default, text)
    return setting(default, text, _check_text) if type(default) is str else None


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}; it must be a string.")
    return value


def _takes_weights(module: type[torch.nn.Module]) -> bool:
    """Whether its forward takes ``edge_weight``; ConfigError unless x and edge_index are enough."""
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    named = [
        argument
        for argument in parameters
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    ]
    rest = [argument.name for argument in named[2:] if argument.default is Parameter.empty]
    placed = [argument for argument in named[:2] if argument.kind is not Parameter.KEYWORD_ONLY]
    if len(placed) < 2 or set(rest) - {EDGE_WEIGHT}:
        takes = ", ".join(str(argument) for argument in parameters) or "nothing"
        raise ConfigError(
            f"the forward of {module.__qualname__} takes {takes}; it must take x and edge_index, "
            "optionally edge_weight, and have defaults for all other arguments."
        )
    return any(argument.name == EDGE_WEIGHT for argument in named[2:])


def _name(module: type[torch.nn.Module]) -> str:
    """The name from its file and its class: ``my_models_net`` for ``package.my_models:Net``.

    With the file it is none of Hoplite's own, and PyTorch Geometric's GCN is another than ours.
    """
    words = f"{module.__module__.rpartition('.')[2].strip('_')}_{module.__qualname__}"
    return re.sub(r"\W+", "_", words).lower()


def _tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, by the names that the module knows them by."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    return {name: value.detach() for name, value in tensors.items()}


def _array(value: Tensor) -> np.ndarray:
    """A copy; of the types that NumPy lacks, such as bfloat16, in float32."""
    try:
        return value.numpy().copy(order="C")
    except TypeError:
        return value.float().numpy().copy(order="C")


def _seed_of(rng: np.random.Generator) -> int:
    """The seed that a generator was made with, or one that is drawn from it."""
    entropy = getattr(rng.bit_generator.seed_seq, "entropy", None)
    return entropy if isinstance(entropy, int) and entropy < 2**63 else int(rng.integers(2**63))


def _seed_of_step(dropout: Dropout) -> int:
    """What a step draws from, by its seed and number; whatever its rate."""
    low, high = Mask(0.0, dropout.seed, dropout.step).keys
    return high << 32 | low


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within the block, torch's own generator draws by ``seed``; outside nothing has changed."""
    with _generator_lock, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _as_config_error(what: str) -> Iterator[None]:
    """ConfigError for whatever goes wrong within the block, in code that is not ours."""
    try:
        yield
    except Exception as error:
        if isinstance(error, HopliteError) or is_shortage(error):
            raise
        reason = (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")
        raise ConfigError(f"{what}: {type(error).__name__}: {reason}.") from error
