"""Where the results come from: command, date, machine and versions, in words."""

from __future__ import annotations

from typing import Any

from hoplite.report.text import plain, plural

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


def versions(results: dict[str, Any]) -> dict[str, str]:
    machine = (results.get("provenance") or {}).get("machine") or {}
    return {str(name): plain(value) for name, value in (machine.get("versions") or {}).items()}


def versions_line(results: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions(results).items()) or "unknown"
