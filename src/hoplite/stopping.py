"""The command line and the signals that end it: one sentence, a known exit code, nothing left.

SIGINT, SIGTERM and SIGHUP raise :class:`Stopped` wherever the main thread is, so that files and
processes are put away on its way up, and the exit code is 128 + the signal's number. What others
make of it on that way, errors, warnings and logs of what was cut off, is no news and is not shown.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from types import FrameType
from typing import Any

HANGUP: int | None = getattr(signal, "SIGHUP", None)  # Windows has neither this nor alarms
ALARMS = hasattr(signal, "setitimer")
ENDING = tuple(n for n in (signal.SIGINT, signal.SIGTERM, HANGUP) if n is not None)

GRACE_SECONDS = 10.0  # to put everything away; then the process ends as it is
AGAIN_SECONDS = 0.05
WHO: dict[int | None, str] = {
    signal.SIGINT: "by the keyboard",
    signal.SIGTERM: "by the signal SIGTERM",
    HANGUP: "because its terminal is gone (SIGHUP)",
}
GOES_ON = "run the same command again: it goes on from here"
REMARKS = {
    "propagate": GOES_ON,
    "reproduce": GOES_ON,
    "search": GOES_ON,
    "train": "nothing was saved",
}


class Stopped(BaseException):
    """A signal asks the command to end."""


class Stopping:
    """What is known of the signal, if there was one."""

    number: int | None = None
    remark = ""  # what the signal means for the command's results
    imported = False  # the command line is there, and what it imports now, it can do without
    over = False  # the command has ended, and nothing is left to interrupt
    _deadline = 0.0

    def listen(self, words: list[str]) -> None:
        """Begin, for a command of these words; what ``nohup`` and others ignore stays ignored."""
        command = next((word for word in words if not word.startswith("-")), "")
        self.remark = REMARKS.get(command, "")
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)
        if ALARMS:
            signal.signal(signal.SIGALRM, self._raise)

    def finish(self) -> None:
        """Put away what waits for the interpreter's end, tell why it ends, and end."""
        self.over = True
        atexit._run_exitfuncs()  # but no thread is waited for
        self._end()

    def _end(self) -> None:
        _alarm(0)
        number = signal.Signals(self.number or signal.SIGTERM)
        try:
            with contextlib.suppress(OSError):  # the terminal may be gone
                _tell(f"stopped {WHO[number]}{self.remark and '; '}{self.remark}.")
        finally:
            os._exit(128 + number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.number is None and not self.over:
            self.number = number
            self._deadline = time.monotonic() + GRACE_SECONDS
            logging.disable()
            warnings.simplefilter("ignore")
            sys.unraisablehook = self._unraisable
            threading.excepthook = lambda _: None
            self._raise(number, frame)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() > self._deadline:
            self._end()
        if self.over:
            return
        if not _imports(frame):
            _alarm(GRACE_SECONDS)
            raise Stopped
        if self.imported:  # what is imported by half breaks in ways of its own
            _alarm(GRACE_SECONDS)
            self.finish()
        if not ALARMS:  # nothing can come back to it
            raise Stopped
        _alarm(AGAIN_SECONDS)

    def _unraisable(self, found: Any) -> None:
        if isinstance(found.exc_value, Stopped):  # raised where nothing can be, as in a __del__
            _alarm(AGAIN_SECONDS)


def _alarm(seconds: float) -> None:
    """Come back after ``seconds``, where the system has alarms; 0: no more."""
    if ALARMS:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _tell(sentence: str) -> None:
    """As the command line tells errors, which may not be imported yet."""
    sys.stderr.write(f"error: {sentence}\n")
    sys.stderr.flush()
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": sentence}, indent=2) + "\n")
    sys.stdout.flush()


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


stopping = Stopping()
