"""The errors and warnings that Hoplite raises on purpose; each message is one clear sentence."""

from __future__ import annotations

import contextlib
import difflib
import shlex
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

_FLAGS = {"split": "split_index", "seed": "split_seed"}  # options with another name in commands
_in_command = False


@contextlib.contextmanager
def command_line_names() -> Iterator[None]:
    """Within it, messages name options as the command line does, see :func:`option_name`."""
    global _in_command
    before, _in_command = _in_command, True
    try:
        yield
    finally:
        _in_command = before


def option_name(name: str, value: object = None) -> str:
    """An option as the interface in use spells it, with a value if there is one.

    >>> option_name("label"), option_name("gaps", "fill"), option_name("overwrite", True)
    ('label=', "gaps='fill'", 'overwrite=True')
    >>> with command_line_names():
    ...     option_name("label"), option_name("gaps", "fill"), option_name("overwrite", True)
    ('--label', '--gaps fill', '--overwrite')
    """
    if not _in_command:
        return f"{name}={'' if value is None else repr(value)}"
    alone = value is None or value is True
    return _flag(name) if alone else f"{_flag(name)} {shlex.quote(str(value))}"


def by_interface(python: str, command: str) -> str:
    """The text for the interface in use."""
    return command if _in_command else python


def _flag(name: str) -> str:
    return f"--{_FLAGS.get(name, name).rstrip('_').replace('_', '-')}"


class HopliteError(Exception):
    """Base class of all errors that Hoplite raises deliberately.

    Examples
    --------
    >>> import hoplite
    >>> try:
    ...     hoplite.load("no-such-dataset")
    ... except hoplite.HopliteError as error:
    ...     print(type(error).__name__)
    DatasetError
    """

    def command_line_message(self) -> str:
        """The message, with options as the command line spells them."""
        return str(self)


class GraphError(HopliteError, ValueError):
    """A graph's adjacency matrix, features, labels or split contradict each other.

    Examples
    --------
    >>> import hoplite
    >>> try:
    ...     hoplite.Graph.from_edges([(0, 5)], [[1.0], [2.0]])
    ... except hoplite.GraphError as error:
    ...     print(type(error).__name__)
    GraphError
    """


class ConfigError(HopliteError, ValueError):
    """An option has an invalid value.

    Parameters
    ----------
    message : str
        A sentence; with ``parameter``, the rest of a sentence that begins with its name.
    parameter : str, optional
        The name of the option in Python. The command line shows it as ``--parameter``.

    >>> error = ConfigError("requires a validation split.", "correct_smooth")
    >>> print(error)
    correct_smooth requires a validation split.
    >>> error.command_line_message()
    '--correct-smooth requires a validation split.'
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message if parameter is None else f"{parameter} {message}")
        self.message, self.parameter = message, parameter

    def command_line_message(self) -> str:
        """The message with the option as the command line spells it."""
        if self.parameter is None or not self.parameter.isidentifier():
            return str(self)
        return f"{_flag(self.parameter)} {self.message}"


class GridError(ConfigError):
    """A grid's file is damaged, or asks for what does not exist."""


class DatasetError(HopliteError):
    """A dataset cannot be found or read.

    Examples
    --------
    >>> import hoplite
    >>> try:
    ...     hoplite.load("no-such-dataset")
    ... except hoplite.DatasetError as error:
    ...     print(type(error).__name__)
    DatasetError
    """


class ModelFileError(HopliteError):
    """A model folder is incomplete or damaged, or belongs to another model or graph.

    Examples
    --------
    >>> import hoplite
    >>> try:
    ...     hoplite.TrainedModel.load("no-such-folder")
    ... except hoplite.ModelFileError as error:
    ...     print(type(error).__name__)
    ModelFileError
    """


class SearchError(HopliteError):
    """A search's file cannot be used: it is of other data, damaged, or not writable."""


class StoreError(HopliteError):
    """A hop store is incomplete, damaged or belongs to another graph, or the disk is full.

    Examples
    --------
    >>> import hoplite
    >>> try:
    ...     hoplite.HopStore.open("no-such-folder")
    ... except hoplite.StoreError as error:
    ...     print(type(error).__name__)
    StoreError
    """


class ClusterError(HopliteError):
    """A Dask cluster cannot be reached, has no workers, or its workers cannot do the work."""


class HopliteWarning(UserWarning):
    """Something looks wrong, but the work continues.

    Examples
    --------
    Turn these warnings into errors:

    >>> import warnings, hoplite
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", hoplite.HopliteWarning)
    """


class IdleWarning(HopliteWarning):
    """A setting has no effect unless another one is set, too."""


def warn(message: str, stacklevel: int = 2) -> None:
    """Give a HopliteWarning, which Python shows at the line ``stacklevel`` calls above this one."""
    warnings.warn(message, HopliteWarning, stacklevel=stacklevel + 1)


def require_extra(extra: str, what: str, *modules: str) -> None:
    """HopliteError unless the ``modules`` that ``what`` needs are installed: those of an extra.

    >>> require_extra("plot", "a page", "no_module")
    Traceback (most recent call last):
    hoplite.errors.HopliteError: a page needs no_module; run `pip install ".[plot]"` in a clone.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise HopliteError(f'{what} needs {names}; run `pip install ".[{extra}]"` in a clone.')


MAX_TYPED = 100  # letters of a name that somebody types
SYNONYMS = {  # names in other libraries
    "learning_rate": "lr",
    "wd": "weight_decay",
    "K": "hops",
    "k": "hops",
    "verbose": "progress",
    "acc": "accuracy",
    "validation": "val",
    "multiclass": "classification",
    "--cv": "--folds",
    "--test-size": "--split-seed",
}
_SHORTAGES = ("allocate memory", "bad_alloc", "failed to map segment", "can't start new thread")


def is_shortage(error: BaseException) -> bool:
    """Whether there was not enough memory; libraries report that in many ways, also as text.

    >>> is_shortage(MemoryError()), is_shortage(ImportError("x.so: failed to map segment"))
    (True, True)
    """
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _SHORTAGES)


def first_line(error: BaseException) -> str:
    """What an error says, in one line without a full stop; its type if it says nothing."""
    return next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "run"), plural(945, "run"), plural(2, "class")
    ('1 run', '945 runs', '2 classes')
    """
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def some_of(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and that there are more.

    >>> some_of("ab"), some_of("abc", 2)
    ('a, b', 'a, b, ...')
    """
    names = list(names)
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def nearest_hint(value: object, allowed: Iterable[str]) -> str:
    """Say which allowed name is near ``value``: ``" Did you mean 'lgc'?"`` or ``""``.

    >>> nearest_hint("lcg", ["sgc", "lgc"])
    " Did you mean 'lgc'?"
    >>> nearest_hint("acc", ["auc", "accuracy"])
    " Did you mean 'accuracy'?"
    >>> nearest_hint("transformer", ["sgc", "lgc"])
    ''
    """
    names = {name[:MAX_TYPED].lower(): name for name in allowed}
    synonym = SYNONYMS.get(str(value))
    value = synonym if synonym in names else value
    matches = difflib.get_close_matches(str(value)[:MAX_TYPED].lower(), names, n=1)
    return f" Did you mean {names[matches[0]]!r}?" if matches else ""


def check_choice(argument: str, value: str, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``allowed``; otherwise name the nearest one in the error.

    >>> check_choice("model", "lgc", ["sgc", "lgc"])
    'lgc'
    >>> check_choice("monitor", "roc_auc", ["auc", "f1"])
    Traceback (most recent call last):
    hoplite.errors.ConfigError: monitor is 'roc_auc'; it must be one of auc, f1. Did you mean 'auc'?
    """
    allowed = list(allowed)
    if not isinstance(value, str) or value not in allowed:
        hint = nearest_hint(value, allowed)
        names = f"one of {', '.join(allowed)}" if len(allowed) > 1 else allowed[0]
        shown = repr(value).splitlines()[0][:MAX_TYPED]
        raise ConfigError(f"is {shown}; it must be {names}.{hint}", argument)
    return value
