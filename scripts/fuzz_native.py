"""Call every entry point of the C++ core with random operands and compare with NumPy and torch.

    python scripts/fuzz_native.py [--seconds 60] [--seed 0]

Random are the shapes (also none, one, and around the widths of vectors), strides, alignment, types
of numbers and indices, instruction sets and threads. A finding is a crash, a report of the
sanitizers (see scripts/sanitize.py), a result that NumPy does not confirm, bits that depend on the
threads, or a number written outside of an output. The calls are made in a process of their own,
which is started again after a crash. Ends with 1 if there were findings.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from random_operands import GROWTH, Finding, Random, at, core

INSIDE = "HOPLITE_FUZZ_CHILD"
CASE_SECONDS = 120  # until a call counts as hanging
# More threads than cores must not spin, and what is compared with needs none.
QUIET = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def nodes(r: Random) -> int:
    """Of a graph; from about 2000 on a product is shared by threads."""
    return int(r.rng.integers(1500, 4000)) if r.rng.random() < 0.06 else r.size(70)


def spmm(r: Random) -> None:
    n, m, w = nodes(r), nodes(r), r.size(150)
    matrix, exact, size = r.csr(n, m)
    x, a = r.array(m, w), r.array(w)
    z, other, own = (r.array(n, w) if r.rng.random() < 0.5 else None for _ in range(3))
    scale, b, c = (float(r.real(v)) for v in r.rng.standard_normal(3))

    def call(threads: int, outs: Any) -> None:
        matrix.spmm(at(x), at(outs[0]), w, scale, at(z), at(a), at(other), b, at(own), c, threads)

    y = r.array(n, w, out=True)
    r.alike(call, y)
    wanted = scale * (exact @ x.astype(float))
    total = abs(scale) * (size @ abs(x))
    if z is not None:
        wanted, total = wanted + z * a.astype(float), total + abs(z * a)
    if other is not None:
        wanted, total = wanted + b * other, total + abs(b * other)
    if own is not None:
        wanted, total = wanted + c * own, total + abs(c * own)
    r.compare(y, wanted, total, n)


def dropping(*arguments: Any) -> Any:
    from hoplite.propagation.dropout import Dropout

    return Dropout(*arguments)


def masked(dropout: Any, run: int, n: int, d: int, numbers: Any) -> Any:
    """What a run multiplies the elements of an n x d matrix by."""
    import torch

    rows = np.arange(n) if numbers is None else numbers
    elements = torch.from_numpy(rows[:, None] * d + np.arange(d))
    return dropout.mask(elements, run).numpy() * dropout.scale(run)


def dropout_spmm(r: Random) -> None:
    n, d, runs, m = nodes(r), r.size(70), r.size(40), r.size(40)
    transposed = bool(r.rng.random() < 0.5)
    matrix, *found = r.csr(d, n) if transposed else r.csr(n, d)
    dense, size = (part.toarray() for part in found)
    rates = tuple(r.pick([0.0, 0.5, 0.3, 0.97]) for _ in range(runs))
    seeds = tuple(int(s) for s in r.rng.integers(-(2**31), 2**31, runs))
    dropout = dropping(rates, seeds, int(r.rng.integers(2**40)))
    numbers = (
        r.rng.integers(0, r.pick([1 << 8, 1 << 31, 1 << 45]), n) if r.rng.random() < 0.5 else None
    )
    rows = n if transposed else d
    # [rows, runs, m] or [runs, rows, m], with room between them
    by_row = bool(r.rng.random() < 0.5)
    pad = r.size(5)
    memory = r.array(rows if by_row else runs, runs if by_row else rows, m + pad)[:, :, :m]
    operand = memory if by_row else memory.transpose(1, 0, 2)  # [rows, runs, m]
    strides = [s // memory.itemsize for s in operand.strides[:2]]
    rules, scales = dropout.rules, dropout.scales

    def call(threads: int, outs: Any) -> None:
        matrix.dropout_spmm(
            transposed, at(memory), *strides, at(outs[0]), runs, m, at(numbers), at(rules),
            at(scales), threads,
        )  # fmt: skip

    out = r.array(*((runs, d, m) if transposed else (n, runs, m)), out=True)
    r.alike(call, out)
    for run in range(runs):
        kept = masked(dropout, run, n, d, numbers)
        kept = kept.T if transposed else kept
        found = out[run] if transposed else out[:, run]
        x = operand[:, run].astype(float)
        r.compare(found, (dense * kept) @ x, (size * kept) @ abs(x), rows)


def hops_of(matrix: Any, table: Any, hops: int, signal: Any) -> list[Any]:
    """p_0(S) x .. p_k(S) x."""
    found = [signal.astype(float)]
    for i, (a, b, g) in enumerate(table[:hops]):
        step = a * (matrix @ found[-1]) + b * found[-1]
        found.append(step - g * found[-2] if i else step)
    return found


def polynomial(r: Random) -> None:
    n, w, hops = nodes(r), r.size(90), int(r.rng.integers(0, 8))
    table, adjoint = r.recurrence(hops), bool(r.rng.random() < 0.5)
    matrix, exact, _ = r.csr(n, n, symmetric=True)
    signal, scales, other = r.array(n, w), r.array(hops + 1, w), r.array(n, w)
    out, dots = r.array(n, w, out=True), r.array(hops + 1, w, dtype=np.float64, out=True)

    def call(threads: int, outs: Any) -> None:
        extra = (at(other), at(outs[1])) if adjoint else (0, 0)
        matrix.polynomial(basis, hops, w, at(signal), at(scales), at(outs[0]), *extra, threads)

    basis = core().Basis(table)
    r.alike(call, *([out, dots] if adjoint else [out]))
    terms = hops_of(exact, table, hops, signal)
    wanted = sum(t * s for t, s in zip(terms, scales, strict=True))
    # Clenshaw's sums of alternating hops are larger than the hops
    size = GROWTH**hops * (abs(signal).max(initial=0) * abs(scales).sum(axis=0) * n + 1)
    r.compare(out, wanted, size, n)
    if adjoint:
        found = np.array([(t * other).sum(axis=0) for t in terms]).reshape(hops + 1, w)
        r.compare(dots, found, n * size * (abs(other).max(initial=0) + 1), n)


def move_hops(r: Random) -> None:
    n, w, hops = nodes(r), r.size(90), int(r.rng.integers(0, 7))
    table, scatter = r.recurrence(hops), bool(r.rng.random() < 0.5)
    matrix, exact, _ = r.csr(n, n, symmetric=True)
    rows = r.rng.integers(0, n, r.size(30)) if n and r.rng.random() < 0.7 else None
    count = n if rows is None else len(rows)
    listed = np.arange(n) if rows is None else rows
    shapes = (n, w), (hops + 1, count, w)
    source = r.array(*shapes[scatter])
    out = r.array(*shapes[not scatter], out=True)
    out[:] = 0  # without nodes nothing is written

    def call(threads: int, outs: Any) -> None:
        matrix.move_hops(scatter, basis, hops, w, at(rows), count, at(source), at(outs[0]), threads)

    basis = core().Basis(table)
    r.alike(call, out) if n and w else call(2, [out])
    size = GROWTH**hops * (abs(source).max(initial=0) * (n + count) * (hops + 1) + 1)
    if scatter:
        wanted = np.zeros((n, w))
        for i, hop in enumerate(source):
            spread = np.zeros((n, w))
            np.add.at(spread, listed, hop)
            wanted += hops_of(exact, table, i, spread)[-1]
    else:
        found = hops_of(exact, table, hops, source)
        wanted = np.array([hop[listed] for hop in found]).reshape(out.shape)
    r.compare(out, wanted, size, n)


def basis(r: Random) -> None:
    """Sound and damaged tables, and wrong numbers of hops: refused before anything is written."""
    n, w, hops = 3, 2, int(r.rng.integers(0, 6))
    matrix, *_ = r.csr(n, n, symmetric=True)
    table, given, sound = r.recurrence(hops), hops, True
    kind = r.rng.random()
    if kind < 0.3:
        given, sound = r.pick([hops + 1, hops - 1, -1, 2**40]), False
    elif kind < 0.6 and hops:
        table[r.rng.integers(hops), r.rng.integers(3)] = r.pick([np.nan, np.inf, -np.inf])
        sound = False
    elif kind < 0.8 and hops:
        table[0, 2], sound = 1.0, False
    elif kind < 0.9:
        table, sound = table[:, :2].copy(), False
    signal, scales = r.array(n, w), r.array(hops + 1, w)
    out, stack = r.array(n, w, out=True), r.array(hops + 1, n, w, out=True)

    def combine() -> None:
        made = core().Basis(table)
        matrix.polynomial(made, given, w, at(signal), at(scales), at(out), 0, 0, 1)

    def gather() -> None:
        made = core().Basis(table)
        matrix.move_hops(False, made, given, w, 0, n, at(signal), at(stack), 1)

    for call in (combine, gather):
        try:
            call()
            taken = True
        except (TypeError, ValueError):
            taken = False
        if taken != sound:
            raise Finding(f"taken is {taken} but sound is {sound}")


def drop_dense(r: Random) -> None:
    n, d = nodes(r), r.size(300)
    x, out = r.array(n, d), r.array(n, d, out=True)
    numbers = r.rng.integers(0, 1 << 45, n) if r.rng.random() < 0.5 else None
    dropout = dropping((r.pick([0.0, 0.2, 0.9]),), (int(r.rng.integers(1 << 60)),), 3)

    def call(threads: int, outs: Any) -> None:
        core().drop_dense(
            r.real is np.float32, at(x), at(outs[0]), n, d, at(numbers),
            *dropout.rules[0].tolist(), dropout.scale(0), threads,
        )  # fmt: skip

    r.alike(call, out)
    r.compare(out, x.astype(float) * masked(dropout, 0, n, d, numbers), abs(x) * 40.0)


def adam(r: Random) -> None:
    runs = r.size(20)
    size = int(r.rng.integers(60_000, 300_000)) if r.rng.random() < 0.05 else r.size(300)
    gradient, start = r.array(runs, size), r.array(runs, size)
    means, squares = r.array(runs, size), np.abs(r.array(runs, size))
    lr, decay = abs(r.array(runs, dtype=np.float64)), abs(r.array(runs, dtype=np.float64))
    steps = int(r.rng.integers(1, 1000))

    def call(threads: int, outs: Any) -> None:
        for out, value in zip(outs, (start, means, squares), strict=True):
            out[:] = value
        core().adam(
            r.real is np.float32, runs, size, at(gradient), *(at(out) for out in outs), at(lr),
            at(decay), steps, threads,
        )  # fmt: skip

    outs = [r.array(runs, size, out=True) for _ in range(3)]
    r.alike(call, *outs)
    g = gradient + decay[:, None] * start.astype(float)
    m, v = 0.9 * means.astype(float) + 0.1 * g, 0.999 * squares.astype(float) + 0.001 * g * g
    root = np.sqrt(v / (1 - 0.999**steps)) + 1e-8
    rate = lr[:, None] / (1 - 0.9**steps) / root
    terms = abs(gradient) + decay[:, None] * abs(start)  # of g, which may cancel
    rounding = rate * (abs(means) + terms + abs(m) * terms / (abs(g) + 1e-30))
    r.compare(outs[0], start - rate * m, abs(start) + rounding)
    r.compare(outs[1], m, abs(means) + terms)
    r.compare(outs[2], v, squares + terms**2)


def csr(r: Random) -> None:
    """Sound and damaged arrays: the core takes what hoplite.sparse_checks takes."""
    from hoplite.sparse_checks import check_csr

    rows, columns = r.size(40), r.size(40)
    lengths = r.rng.integers(0, 4, rows) if columns else np.zeros(rows, int)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = r.rng.integers(0, max(columns, 1), indptr[-1])
    values = r.array(indptr[-1])
    kind = r.pick([np.int32, np.int64])
    for array in (indptr, indices):
        if array.size and r.rng.random() < 0.4:
            odd = [-1, 0, columns, columns - 1, 10**6, 2**31 - 1, -(2**31), int(indptr[-1])]
            array[r.rng.integers(array.size, size=int(r.rng.integers(1, 3)))] = r.pick(odd)
    if r.rng.random() < 0.2:
        values = values[: r.size(values.size)]
    if r.rng.random() < 0.1:
        indptr = indptr[: r.size(indptr.size)]
    arguments = (indptr, indices.astype(kind), values)
    try:
        check_csr(*arguments, (len(indptr) - 1, columns))
        sound = True
    except ValueError:
        sound = False
    try:
        core().Csr(*arguments, columns)
        taken = True
    except ValueError:
        taken = False
    if taken != sound:
        raise Finding(f"taken is {taken} but sound is {sound}")


ENTRIES: dict[str, Callable[[Random], None]] = {
    "Csr": csr,
    "Csr.spmm": spmm,
    "Csr.dropout_spmm": dropout_spmm,
    "Csr.polynomial": polynomial,
    "Csr.move_hops": move_hops,
    "Basis": basis,
    "drop_dense": drop_dense,
    "adam": adam,
}


def one(name: str, seed: int) -> None:
    """One call of an entry point, with one of the instruction sets."""
    r = Random(seed)
    core().set_architecture(r.pick(core().architectures()))
    ENTRIES[name](r)
    r.check_guards()


def child(seconds: float, seed: int) -> None:
    """Print every case before it is called, and what was found in it."""
    if core_path := os.environ.get("HOPLITE_SANITIZED_CORE"):
        from sanitize import use_core

        use_core(core_path)
    core()  # torch takes seconds to load
    end, names = time.monotonic() + seconds, list(ENTRIES)
    while time.monotonic() < end:
        name = names[seed % len(names)]
        print(f"call\t{name}\t{seed}", flush=True)
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
        try:
            one(name, seed)
        except Finding as finding:
            print(f"found\t{name}\t{seed}\t{finding}", flush=True)
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    print("end", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first case; each has the next")
    options = parser.parse_args()
    if INSIDE in os.environ:
        return child(options.seconds, options.seed)
    calls: Counter[str] = Counter()
    findings: list[str] = []
    seed, left = options.seed, options.seconds
    while left > 0:
        begun = time.monotonic()
        command = [sys.executable, __file__, "--seconds", str(left), "--seed", str(seed)]
        ended = subprocess.run(
            command,
            env=os.environ | QUIET | {INSIDE: "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        left -= time.monotonic() - begun
        name = "none"
        for line in ended.stdout.splitlines():
            kind, *rest = line.split("\t")
            if kind == "call":
                name, seed = rest[0], int(rest[1]) + 1
                calls[name] += 1
            elif kind == "found":
                findings.append(f"{rest[0]}, seed {rest[1]}: {rest[2]}")
        if ended.returncode or not ended.stdout.endswith("end\n"):
            findings.append(f"{name}, seed {seed - 1}: ended with {ended.returncode}")
    for name in ENTRIES:
        print(f"{name:20} {calls[name]:>9,} calls")
    print(f"{'all':20} {calls.total():>9,} calls, {len(findings)} findings")
    print("\n".join(findings))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
