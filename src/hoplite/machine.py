"""Facts about the machine and the installed packages; none of these is imported here.

Containers limit processors and memory below what the machine has, so both are reported.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil

from hoplite.version import VERSION

DISTRIBUTION = "hoplite-graph"
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
EVERYTHING = "all"  # the extra that has the others that users may want
_REQUIREMENT = re.compile(r'([\w.-]+)(?:\[([\w,\s-]+)\])?[^;]*(?:;.*extra == "([\w-]+)")?')


def cpu_model() -> str:
    """The processor's name, as it tells it itself where the system shows that."""
    found = re.search(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def system() -> str:
    """The operating system and the kind of processor."""
    return f"{platform.system()} {platform.machine()}"


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Python's, Hoplite's and those of the packages that are installed."""
    found = {"python": platform.python_version(), "hoplite": VERSION}
    return found | {name: told for name in packages if (told := installed(name))}


def installed(package: str) -> str | None:
    """The version of a package, None if it is not installed.

    >>> installed("no-such-package") is None
    True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Extra:
    """An extra of Hoplite's: what it needs, and what of that is missing here."""

    name: str
    packages: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """The line that brings it."""
        return f'pip install "{DISTRIBUTION}[{self.name}]"'


def extras(requirements: Iterable[str] | None = None) -> list[Extra]:
    """Those that the extra ``all`` names, and the ones within them.

    >>> found = extras(['h[b]; extra == "all"', 'no-such>=1; extra == "b"'])
    >>> [(one.name, one.missing) for one in found]
    [('b', ('no-such',))]
    """
    own: dict[str, list[str]] = {}
    inner: dict[str, list[str]] = {}
    for text in (requires(DISTRIBUTION) or []) if requirements is None else requirements:
        found = _REQUIREMENT.match(text)
        if found is not None and found[3]:
            parts = [part.strip() for part in (found[2] or "").split(",") if part.strip()]
            (inner if parts else own).setdefault(found[3], []).extend(parts or [found[1]])

    def within(name: str) -> list[str]:
        return [*own.get(name, []), *(p for part in inner.get(name, []) for p in within(part))]

    names = dict.fromkeys(inner.get(EVERYTHING, []))
    for name in list(names):
        names |= dict.fromkeys(inner.get(name, []))
    return [
        Extra(name, packages, tuple(p for p in packages if installed(p) is None))
        for name in names
        if (packages := tuple(dict.fromkeys(within(name))))
    ]


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_limit(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Cores' worth of time that a container allows, None if there is no limit."""
    found = []
    for place in _groups("cpu", root, own):
        quota, _, period = _text(place / "cpu.max").partition(" ")  # of version 2, then of 1
        if not quota:
            quota = _text(place / "cpu.cfs_quota_us")
            period = _text(place / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int | None:
    """Bytes of memory that a container allows, None if there is no limit below the machine's."""
    files = ("memory.max", "memory.limit_in_bytes")  # of version 2 and of 1
    texts = [_text(place / name) for place in _groups("memory", root, own) for name in files]
    limit = min((int(text) for text in texts if text.isdigit()), default=None)
    return limit if limit is not None and limit < psutil.virtual_memory().total else None


def _groups(controller: str, root: Path, own: Path) -> list[Path]:
    """The folders of this process's control groups, of either version, each with those above."""
    found: list[Path] = []
    for line in _text(own).splitlines():
        number, names, path = line.split(":", 2)
        if controller in names.split(",") or number == "0":
            base = root / names if names else root
            place = base / path.lstrip("/")
            found += [one for one in (place, *place.parents) if one == base or base in one.parents]
    return found


def _text(path: Path) -> str:
    """What a file of the system's tells; nothing if there is none, as on other systems."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
