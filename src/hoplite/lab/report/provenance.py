"""Where the results come from: command, date, machine and versions, in words."""

from __future__ import annotations

from typing import Any

from hoplite.lab.report.text import plain
from hoplite.words import plural

QUIET = 0.1  # others may use this share of the cores without being told of, as in hoplite bench
MACHINE = ("cpu", "cores", "threads", "memory_gb", "kernels", "system")


def command(results: dict[str, Any]) -> str:
    return plain(results.get("command") or "hoplite reproduce")


def when(results: dict[str, Any]) -> str:
    return plain((results.get("provenance") or {}).get("date") or "an unknown date")


def machine_line(results: dict[str, Any]) -> str:
    """CPU, cores, threads, memory, kernels and system in one line.

    >>> machine_line({"provenance": {"machine": {"cpu": "Xeon", "cores": 2, "threads": 1}}})
    'Xeon, 2 cores, 1 thread used'
    """
    machine = (results.get("provenance") or {}).get("machine") or {}
    parts = []
    for key in MACHINE:
        value = machine.get(key)
        if value is None:
            continue
        if key in ("cores", "threads") and isinstance(value, int):
            parts.append(plural(value, key[:-1]) + (" used" if key == "threads" else ""))
        elif key == "memory_gb":
            parts.append(f"{plain(value)} GB of memory")
        elif key == "kernels":
            parts.append(f"kernels: {plain(value)}")
        else:
            parts.append(plain(value))
    return ", ".join(parts) or "unknown"


def busy_line(results: dict[str, Any]) -> str:
    """That others used the machine, if they did.

    >>> busy_line({"provenance": {"machine": {"busy_before": 0.424}}})
    'The machine was 42 % busy with other work when the run began, so times may be too long.'
    >>> busy_line({"provenance": {"machine": {"busy_before": 0.1}}})
    ''
    """
    busy = ((results.get("provenance") or {}).get("machine") or {}).get("busy_before")
    if busy is None or busy <= QUIET:
        return ""
    return (
        f"The machine was {100 * busy:.0f} % busy with other work when the run began, so times may "
        "be too long."
    )


def versions(results: dict[str, Any]) -> dict[str, str]:
    machine = (results.get("provenance") or {}).get("machine") or {}
    return {str(name): plain(value) for name, value in (machine.get("versions") or {}).items()}


def versions_line(results: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions(results).items()) or "unknown"
