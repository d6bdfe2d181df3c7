"""hoplite doctor: what is installed, what the machine gives, and whether the core works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoplite.cli.console import (
    JsonOption,
    print_json,
    print_line,
    print_table,
    report_and_fail,
    steps_bar,
)
from hoplite.errors import HopliteError

if TYPE_CHECKING:
    from hoplite.doctor import Diagnosis


def doctor(json: JsonOption = False) -> None:
    """Show what is installed, kernels, threads, memory and disk, and test the core.

    The exit code is 0 if all of the core works; extras may be missing.
    """
    from hoplite.doctor import diagnose  # only now: it needs psutil

    with steps_bar("doctor") as progress:
        found = diagnose(progress)
    failure, broken = None, found.broken
    if broken is not None:
        failure = HopliteError(f"{broken.name}: {broken.told}; {broken.remedy}.")
    if json:
        print_json(found.as_dict() | ({} if failure is None else {"error": str(failure)}))
    else:
        _print(found)
    report_and_fail(failure)


def _print(found: Diagnosis) -> None:
    from hoplite.memory import show_bytes

    def size(count: int | None) -> str:
        return "no limit" if count is None else show_bytes(count)

    facts = found.facts
    rows = [[name, str(value)] for name, value in facts["versions"].items()]
    if "build" in facts["torch"]:
        rows.append(["torch's build", facts["torch"]["build"]])
    print_table("installed", ["", "version"], rows)
    rows = [
        [name, "installed" if not one["missing"] else one["install"]]
        for name, one in facts["extras"].items()
    ]
    print_table("extras", ["extra", "installed, or what brings it"], rows)
    threads, memory = facts["threads"], facts["memory"]
    rows = [[name, str(value)] for name, value in facts["machine"].items()]
    rows += [[f"kernels: {name}", _shown(value)] for name, value in facts["kernels"].items()]
    rows += [
        ["cores", f"{threads['cores']}, {threads['usable']} of them for this process"],
        ["limit of cores", _shown(threads["limit"], "no limit")],
        ["OMP_NUM_THREADS", _shown(threads["OMP_NUM_THREADS"], "not set")],
        ["engine's threads", _shown(threads.get("engine"), "not known")],
        ["memory", f"{size(memory['total'])}, {size(memory['available'])} available"],
        ["limit of memory", size(memory["limit"])],
    ]
    rows += [
        [f"disk, {name} folder", f"{size(one['free'])} free in {one['path']}"]
        for name, one in facts["disk"].items()
        if one["free"] is not None
    ]
    if facts["data"]:
        rows.append(["HOPLITE_DATA", _shown(facts["data"]["HOPLITE_DATA"], "not set")])
        rows.append(["data folders", ", ".join(facts["data"]["folders"])])
    print_table("machine", ["", "found"], rows)
    rows = [[one.name, "works" if one.ok else "BROKEN", one.told] for one in found.checks]
    print_table("the core", ["", "", "found"], rows)
    for note in found.notes:
        print_line(f"Note: {note}")
    if found.broken is None:
        print_line("All of the core works.")


def _shown(value: Any, none: str = "-") -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return none if value is None else f"{value:g}" if isinstance(value, float) else str(value)
