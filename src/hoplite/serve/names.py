"""Names that are looked up by people: exactly, by how they begin, or by what they hold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

MOST_SORTED = 2_000_000  # names that are sorted for a search; more are found exactly alone
MOST_SCANNED = 100_000  # names that are read through for what they hold


class Names:
    """The texts of ``names``; of equal ones the first is found.

    >>> names = Names(["Zoë", "bob", "Bea", 7])
    >>> names.index("7"), names.index("Bob"), names.search("B", 5), names.search("o", 5)
    (3, None, [2, 1], [0, 1])
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self._numbered = isinstance(names, range)  # 0 to n - 1, which need no table
        self._names = names
        texts = [] if len(names) > MOST_SORTED else [str(name) for name in names]
        self._place: dict[str, int] = {}
        if not self._numbered:
            for place, name in enumerate(names):
                self._place.setdefault(str(name), place)
        folded = [text.casefold() for text in texts]
        order = sorted(range(len(texts)), key=folded.__getitem__)
        self._order, self._sorted = order, [folded[place] for place in order]

    @property
    def repeated(self) -> str | None:
        """The first text that two names have; None if all differ."""
        if self._numbered or len(self._place) == len(self._names):
            return None
        texts = ((place, str(name)) for place, name in enumerate(self._names))
        return next(text for place, text in texts if self._place[text] != place)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: int) -> str:
        return str(self._names[place])

    def index(self, text: str) -> int | None:
        """Where the name is exactly this text; None if it is nowhere."""
        if not self._numbered:
            return self._place.get(text)
        known = text.isascii() and text.isdecimal() and str(int(text[:20])) == text
        return int(text) if known and int(text) < len(self._names) else None

    def search(self, text: str, limit: int) -> list[int]:
        """Where names begin with ``text``, in alphabetical order; else where they hold it."""
        wanted = text.casefold()
        start = bisect_left(self._sorted, wanted)
        near = range(start, min(start + limit, len(self._sorted)))
        found = [self._order[i] for i in near if self._sorted[i].startswith(wanted)]
        if not found and len(self._sorted) <= MOST_SCANNED:
            pairs = zip(self._sorted, self._order, strict=True)
            found = sorted(place for name, place in pairs if wanted in name)[:limit]
        exact = self.index(text)
        if exact is not None:  # the very name comes first
            found = [exact, *(place for place in found if place != exact)][:limit]
        return found
