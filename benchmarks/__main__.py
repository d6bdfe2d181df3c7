"""``python -m benchmarks``: measure, print the tables, and write them as a page."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.suite import BENCHMARKS, LARGE, run_suite, suite_report
from experiments.report import markdown, show
from hoplite.errors import HopliteError
from hoplite.files import atomic_write_text


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    found.add_argument("--quick", action="store_true", help="small sizes, about two minutes")
    found.add_argument(
        "--large", action="store_true", help="graphs of Reddit's size: 7 GB of memory, 10 of disk"
    )
    found.add_argument(
        "--only", action="append", metavar="NAME", choices=[*BENCHMARKS, *LARGE],
        help=f"run this one (repeatable): {', '.join([*BENCHMARKS, *LARGE])}",
    )  # fmt: skip
    found.add_argument("--out", type=Path, metavar="FILE", help="write the tables as FILE.md, too")
    return found


def main(words: list[str] | None = None) -> int:
    """0 if every goal was reached, 1 if one was missed or the run failed."""
    options = parser().parse_args(words)
    chosen = LARGE if options.large else BENCHMARKS
    if options.only:
        chosen = {name: one for name, one in (BENCHMARKS | LARGE).items() if name in options.only}
    console = Console(stderr=True)
    try:
        with console.status("") as status:
            result = run_suite(chosen, quick=options.quick, report=status.update)
    except HopliteError as error:
        console.print(f"Error: {error}", markup=False, highlight=False)
        return 1
    command = shlex.join(["python", "-m", "benchmarks", *(words or sys.argv[1:])])
    report = suite_report(result, command)
    show(report)
    if options.out is not None:
        atomic_write_text(options.out, markdown(report))
    return int(any(figure.passed is False for figure in result.figures))


if __name__ == "__main__":
    sys.exit(main())
