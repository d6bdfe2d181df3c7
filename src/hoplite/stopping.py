"""The command line and the signals that end it: one sentence, a known exit code, nothing left.

SIGINT, SIGTERM and SIGHUP raise :class:`Stopped` wherever the main thread is, so that files and
processes are put away on its way up, and the exit code is 128 + the signal's number. What others
make of it on that way, errors, warnings and logs of what was cut off, is no news and is not shown.
A command that goes on where it was, if it is given again, is told with its words.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from types import FrameType
from typing import Any

from hoplite.strategies import STRATEGIES

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
NOTHING = "nothing was saved"
RESUMED = ("propagate", "search")  # however they are called


class Stopped(BaseException):
    """A signal asks the command to end."""


class Stopping:
    """What is known of the signal, if there was one."""

    number: int | None = None
    remark = ""  # what the signal means for the command's results
    again = ""  # what to type to go on
    imported = False  # the command line is there, and what it imports now, it can do without
    over = False  # the command has ended, and nothing is left to interrupt
    _deadline = 0.0

    def listen(self, words: list[str]) -> None:
        """Begin, for a command of these words; what ``nohup`` and others ignore stays ignored."""
        command = next((word for word in words if not word.startswith("-")), "")
        if goes_on(command, words):
            self.remark, self.again = GOES_ON, as_typed(["hoplite", *words])
        else:
            self.remark = NOTHING if command == "train" else ""
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
                sentence = f"stopped {WHO[number]}{self.remark and '; '}{self.remark}."
                _tell(sentence, self.again if self.remark == GOES_ON else "")
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


def goes_on(command: str, words: list[str]) -> bool:
    """Whether ``command``, given again with the same words, goes on where it was stopped.

    >>> goes_on("search", []), goes_on("train", ["cora", "--out", "m"])
    (True, False)
    >>> goes_on("train", ["cora", "--model=auto", "--out", "m"])
    True
    """
    pairs = [word.partition("=")[::2] if "=" in word else (word, "") for word in words]
    named = {
        option: value or following
        for (option, value), following in zip(pairs, [*words[1:], ""], strict=False)
    }
    chosen = command == "train" and named.get("--model") in STRATEGIES and "--out" in named
    return command in RESUMED or chosen or (command == "datasets" and "--fetch" in named)


def as_typed(words: list[str]) -> str:
    """The words as one types them into a shell, on one line and in plain signs.

    >>> print(as_typed(["hoplite", "train", "my graph", "b\\n"]))
    hoplite train 'my graph' $'b\\x0a'
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    plain = [
        chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}"
        for byte in os.fsencode(word)
    ]
    return f"$'{''.join(plain)}'"


def _tell(sentence: str, again: str) -> None:
    """As the command line tells errors, which may not be imported yet."""
    sys.stderr.write(f"error: {sentence}\n" + (f"Again: {again}\n" if again else ""))
    sys.stderr.flush()
    if "--json" in sys.argv:
        told = {"error": sentence} | ({"command": again} if again else {})
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    sys.stdout.flush()


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


stopping = Stopping()
