"""Text that a terminal only shows: names come from files, and a terminal obeys what it is sent.

Escape sequences can set the clipboard or the title, carriage returns overwrite what was said, and
marks of direction turn it around; so all of them are shown by their numbers instead.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata
from pathlib import Path

_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, formats, half characters, line separators
_JOINERS = "\u200c\u200d"  # some scripts are not written without them, and they only join letters
_PLAIN = {"\u00b1": "+-", "\u2013": "-", "\u2212": "-", "\u2026": "...", "\u2501": "-"}
FALLBACK = "hoplite"  # the name of an error handler of codecs, see below


def printable(text: str) -> str:
    r"""``text`` as one line that changes nothing on the terminal but what it shows.

    >>> print(printable("a\x1b]0;b\x07\n\u202ec é"))
    a\x1b]0;b\x07\n\u202ec é
    """
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    hidden = unicodedata.category(character) in _HIDDEN and character not in _JOINERS
    return ascii(character)[1:-1] if hidden else character


def _fall_back(error: UnicodeError) -> tuple[str, int]:
    """What an encoding cannot show: a plain sign that says the same, or the character's number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or ascii(c)[1:-1] for c in part), error.end


codecs.register_error(FALLBACK, _fall_back)


def prepare_streams() -> None:
    """Make standard output and error take any text, whatever their encoding, if they are open."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed from outside
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, name, nowhere)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=FALLBACK)
