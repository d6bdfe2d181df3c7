"""Ways to damage a file: any bytes, and what only a reader of that format would notice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from hoplite.files import CHECKSUM, to_json

NUMBERS = [10**18, 10**12, -1, 2**63, 2**64, 1e308, 0, 1.5, True]
VALUES = [*NUMBERS, None, "", "\x00", "x" * 10**5, [], {}, [[[]]], {"a": {"a": 1}}, [None] * 1000]
LITERALS = ["Infinity", "-Infinity", "NaN", "1e999", '"\\ud800"', "[" * 10**5 + "]" * 10**5, "tru"]
CELLS = ["", "nan", "1e400", "-1e39", "99999999999999999999", '"', "a,b", "\x00", "\ufeff",
         "é" * 9999, "=1+1", "\x1b]0;x\x07", "1970-01-01", "true", " ", "-0", "inf"]  # fmt: skip


def damage(target: Path, rng: Generator) -> str:
    """Change one file of ``target``, or ``target`` itself, in one of many ways; which, and how."""
    files = [target] if target.is_file() else sorted(p for p in target.rglob("*") if p.is_file())
    files = [path for path in files if not path.name.endswith(".lock")]
    small = [path for path in files if path.suffix == ".json"]  # they are few, and rule the rest
    files = small if small and rng.random() < 0.5 else files
    path = files[rng.integers(len(files))]
    ways = [flip, truncate, replace_range, insert, odd_file]
    special = {".json": edit_json, ".csv": edit_csv, ".toml": edit_toml, ".npy": edit_npy}
    if path.suffix in special:
        ways += 5 * [special[path.suffix]]
    way = ways[rng.integers(len(ways))]
    way(path, rng)
    return f"{way.__name__} {path.name}"


def flip(path: Path, rng: Generator) -> None:
    data = bytearray(path.read_bytes())
    for place in rng.integers(0, max(len(data), 1), int(rng.integers(1, 9))).tolist():
        if data:
            data[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def truncate(path: Path, rng: Generator) -> None:
    path.write_bytes(path.read_bytes()[: rng.integers(0, path.stat().st_size + 1)])


def replace_range(path: Path, rng: Generator) -> None:
    data = bytearray(path.read_bytes())
    start = int(rng.integers(0, len(data) + 1))
    fill = bytes([int(rng.choice([0, 255, 127, 128, 65]))])
    data[start : start + int(rng.integers(1, 64))] = fill * int(rng.integers(0, 64))
    path.write_bytes(data)


def insert(path: Path, rng: Generator) -> None:
    data = path.read_bytes()
    start = int(rng.integers(0, len(data) + 1))
    path.write_bytes(data[:start] + rng.bytes(int(rng.integers(1, 5000))) + data[start:])


def odd_file(path: Path, rng: Generator) -> None:
    """Something else under the file's name."""
    data = path.read_bytes()
    path.unlink()
    ways = [
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        path.mkdir,
        lambda: path.symlink_to(path.name),  # to itself
        lambda: path.write_bytes(2 * data),
        path.touch,
    ]
    ways[rng.integers(len(ways))]()


def edit_json(path: Path, rng: Generator) -> None:
    """Another value at one place of the document, its checksum made right or left wrong."""
    document = json.loads(path.read_text(encoding="utf-8"))
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(document)
    parent, key = places[rng.integers(len(places))]
    way = rng.random()
    if way < 0.15 and isinstance(parent, dict):
        del parent[key]
    elif way < 0.3:
        parent[key] = "@@"
    elif way < 0.4 and isinstance(parent[key], int | float):
        parent[key] = parent[key] + 1
    else:
        parent[key] = VALUES[rng.integers(len(VALUES))]
    if CHECKSUM in document and rng.random() < 0.7:
        del document[CHECKSUM]
        text = to_json(document)
    else:
        text = json.dumps(document)
    path.write_text(text.replace('"@@"', LITERALS[rng.integers(len(LITERALS))]))


def edit_csv(path: Path, rng: Generator) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    at = int(rng.integers(len(lines)))
    cells = lines[at].split(",")
    cell, value = int(rng.integers(len(cells))), CELLS[rng.integers(len(CELLS))]
    way = rng.random()
    if way < 0.6:
        cells[cell] = value
    elif way < 0.8:
        cells.insert(cell, value)
    else:
        del cells[cell]
    lines[at] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def edit_toml(path: Path, rng: Generator) -> None:
    words = ["1e400", "nan", "-1", "10" * 200, "[]", "[[1]]", '"x"', "{a = 1}", "1979-05-27",
             "true", "[" * 2000 + "]" * 2000, "[inf]", "1_000_000_000_000", '["\\u001b[2J"]',
             "[" + ", ".join(map(str, range(60000))) + "]", "'" + "x" * 10**6 + "'"]  # fmt: skip
    lines = path.read_text().splitlines()
    at = int(rng.integers(1, len(lines)))
    lines[at] = lines[at].split("=")[0] + "= " + words[rng.integers(len(words))]
    if rng.random() < 0.2:
        lines[0] = "[" + ".".join(["a"] * int(rng.integers(1, 3000))) + "]"
    path.write_text("\n".join(lines) + "\n")


def edit_npy(path: Path, rng: Generator) -> None:
    """A header that does not fit, or sound bytes with numbers that are out of range."""
    array = np.load(path, allow_pickle=False)
    if rng.random() < 0.5 and array.size:
        flat = array.reshape(-1).copy()
        wild = [np.nan, np.inf, 3e38, -1]
        if flat.dtype.kind in "iu":
            wild = [np.iinfo(np.int32).max, -1, array.size, -(2**31)]
        with np.errstate(all="ignore"):
            flat[rng.integers(flat.size)] = np.array(wild[rng.integers(4)]).astype(flat.dtype)
        np.save(path, flat.reshape(array.shape))
        return
    shapes = ["(1000000000000,)", "(-1,)", "()", "(3, 0)", f"({array.size}, 1)", "(" * 300]
    kinds = ["'|O'", "'<f8'", "'<i8'", "'|V8'", "[('a', '<i4')]", "'<U99999999'", "'<M8[s]'"]
    shape = shapes[rng.integers(len(shapes))] if rng.random() < 0.6 else repr(array.shape)
    kind = kinds[rng.integers(len(kinds))] if rng.random() < 0.6 else repr(array.dtype.str)
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(117) + b"\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    path.write_bytes(header + array.tobytes())
