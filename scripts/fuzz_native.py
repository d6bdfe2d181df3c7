"""Call every entry point of the C++ core with random operands and compare with NumPy and SciPy.

    python scripts/fuzz_native.py [--seconds 60] [--seed 0]

Random are the shapes (also 0, 1, and around the widths of vectors), strides, alignment, types of
numbers and indices, instruction sets and threads. A finding is a crash, a report of the sanitizers
(see scripts/sanitize.py), a result that differs from NumPy's, bits that depend on the threads or on
the other columns, or a number written outside of an output. The calls are made in a process of
their own, which is started again after a crash. Ends with 1 if there were findings.
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
from random_operands import GROWTH, Finding, Random, core

CHILD = "HOPLITE_FUZZ_CHILD"
CASE_SECONDS = 120  # until a call counts as hanging


def check_columns(
    r: Random, whole: np.ndarray, compute: Callable[[slice, np.ndarray], Any]
) -> None:
    """A few columns alone have the same bits; ``compute(columns, out)`` fills ``out``."""
    width = whole.shape[-1]
    first, last = sorted(int(at) for at in r.rng.integers(0, width + 1, 2))
    part = np.full((*whole.shape[:-1], last - first), 54321, whole.dtype)
    compute(slice(first, last), part)
    if part.tobytes() != whole[..., first:last].tobytes():
        raise Finding("its bits depend on the other columns")


def spmm(r: Random) -> None:
    n, m, w = r.nodes(), r.nodes(), r.size(150)
    matrix, exact, absolute = r.csr(n, m)
    x = r.array(m, w)
    Z, W, U = (r.array(n, w) if r.chance(0.5) else None for _ in range(3))
    a = None if Z is None else r.array(w)
    scale, b, c = (float(r.real(v)) for v in r.rng.standard_normal(3))
    y = r.output(n, w)
    r.call(lambda out, threads: matrix.spmm(x, out, scale, Z, a, W, b, U, c, threads), y)
    expected, size = scale * (exact @ x.astype(float)), abs(scale) * (absolute @ abs(x))
    for term in (
        None if Z is None or a is None else Z * a.astype(float),
        None if W is None else b * W,
        None if U is None else c * U,
    ):
        if term is not None:
            expected, size = expected + term, size + abs(term)
    r.compare(y, expected, size, n)


def mask_of(r: Random) -> Any:
    from hoplite.engine.dropout import Mask

    rate = r.pick([0.0, 0.2, 0.5, 0.97])
    return Mask(rate, int(r.rng.integers(-(2**31), 2**31)), int(r.rng.integers(2**40)))


def row_numbers(r: Random, n: int) -> np.ndarray | None:
    largest = r.pick([1 << 8, 1 << 31, 1 << 45])
    return r.rng.integers(0, largest, n) if r.chance(0.5) else None


def factors(mask: Any, n: int, d: int, numbers: np.ndarray | None) -> np.ndarray:
    """What dropout multiplies the elements of an n x d matrix by."""
    rows = np.arange(n) if numbers is None else numbers
    return mask.keeps(rows[:, None] * d + np.arange(d)) * mask.scale


def times(r: Random) -> None:
    n, d, m = r.nodes(), r.size(70), r.size(90)
    transposed = r.chance(0.5)
    both = not transposed and r.chance(0.5)
    matrix, exact, absolute = r.csr(n, d)
    mask, numbers = mask_of(r), row_numbers(r, n)
    dense = r.columns(n if transposed else d, m)
    rows = d if transposed else n
    left, gap, right = r.size(5), r.size(5), r.size(5)
    wide = r.output(rows, left + m + gap + m + right)  # out, and next to it whole

    def parts(array: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        whole = array[:, left + m + gap :][:, :m]
        return array[:, left : left + m], whole if both else None

    def call(array: np.ndarray, threads: int) -> None:
        array[:] = 12345  # which must remain outside of out and whole
        out, whole = parts(array)
        matrix.times(transposed, dense, out, numbers, *mask.rule, whole, threads)

    r.call(call, wide)
    out, whole = parts(wide)
    kept = factors(mask, n, d, numbers)
    x, dropped, size = dense.astype(float), exact.toarray() * kept, absolute.toarray() * kept
    dropped, size = (dropped.T, size.T) if transposed else (dropped, size)
    r.compare(out, dropped @ x, size @ abs(x), n + d)
    if whole is not None:
        r.compare(whole, exact @ x, absolute @ abs(x), n + d)

    def some_columns(chosen: slice, part: np.ndarray) -> None:
        matrix.times(transposed, dense[:, chosen], part, numbers, *mask.rule, None, 2)

    check_columns(r, out, some_columns)
    outside = np.ones(wide.shape, bool)
    for inside in parts(outside):
        if inside is not None:
            inside[:] = False
    if not np.all(wide[outside] == 12345):
        raise Finding("it wrote to other columns")


def hops_of(matrix: Any, table: np.ndarray, signal: np.ndarray) -> list[np.ndarray]:
    """p_0(S) x .. p_k(S) x."""
    hops = [signal.astype(float)]
    for i, (a, b, g) in enumerate(table):
        step = a * (matrix @ hops[-1]) + b * hops[-1]
        hops.append(step - g * hops[-2] if i else step)
    return hops


def polynomial(r: Random) -> None:
    n, w, hops = r.nodes(), r.size(90), int(r.rng.integers(0, 8))
    table = r.recurrence(hops)
    matrix, exact, _ = r.csr(n, n, square=True)
    basis = core().Basis(table)
    gradient, signal, scales = r.array(n, w), r.array(n, w), r.array(hops + 1, w)
    out, dots = r.output(n, w), r.output(hops + 1, w, dtype=np.float64)
    # Clenshaw's sums of alternating hops are larger than the hops
    largest = max(abs(signal).max(initial=0), abs(gradient).max(initial=0))
    size = GROWTH**hops * (largest * abs(scales).sum(axis=0) * n + 1)

    def expected(terms: list[np.ndarray]) -> np.ndarray:
        return sum((t * s for t, s in zip(terms, scales, strict=True)), np.zeros((n, w)))

    def columns(array: np.ndarray, chosen: slice) -> np.ndarray:
        return np.ascontiguousarray(array[:, chosen])

    r.call(lambda y, threads: matrix.polynomial(basis, signal, scales, y, threads), out)
    r.compare(out, expected(hops_of(exact, table, signal)), size, n)
    check_columns(
        r, out, lambda c, part: matrix.polynomial(
            basis, columns(signal, c), columns(scales, c), part, 2
        ),
    )  # fmt: skip

    def adjoint(y: np.ndarray, sums: np.ndarray, threads: int) -> None:
        matrix.polynomial_adjoint(basis, gradient, signal, scales, y, sums, threads)

    r.call(adjoint, out, dots)
    terms = hops_of(exact, table, gradient)
    r.compare(out, expected(terms), size, n)
    sums = np.array([(t * signal).sum(axis=0) for t in terms]).reshape(hops + 1, w)
    r.compare(dots, sums, n * size * (abs(signal).max(initial=0) + 1), n)
    check_columns(
        r, dots, lambda c, part: matrix.polynomial_adjoint(
            basis, columns(gradient, c), columns(signal, c), columns(scales, c),
            np.empty((n, part.shape[1]), r.real), part, 2,
        ),
    )  # fmt: skip


def move_hops(r: Random) -> None:
    n, w, hops = r.nodes(), r.size(90), int(r.rng.integers(0, 7))
    table = r.recurrence(hops)
    matrix, exact, _ = r.csr(n, n, square=True)
    basis = core().Basis(table)
    rows = r.rng.integers(0, n, r.size(30)) if n and r.chance(0.7) else None
    listed = np.arange(n) if rows is None else rows
    signal, stack = r.array(n, w), r.array(hops + 1, len(listed), w)
    out, hops_out = r.output(n, w), r.output(hops + 1, len(listed), w)
    largest = max(abs(signal).max(initial=0), abs(stack).max(initial=0))
    size = GROWTH**hops * (largest * (n + len(listed)) * (hops + 1) + 1)
    r.call(lambda y, threads: matrix.gather_hops(basis, rows, signal, y, threads), hops_out)
    expected = [hop[listed] for hop in hops_of(exact, table, signal)]
    r.compare(hops_out, np.array(expected).reshape(stack.shape), size, n)
    r.call(lambda y, threads: matrix.scatter_hops(basis, rows, stack, y, threads), out)
    total = np.zeros((n, w))
    for i, hop in enumerate(stack):
        spread = np.zeros((n, w))
        np.add.at(spread, listed, hop)
        total += hops_of(exact, table[:i], spread)[-1]
    r.compare(out, total, size, n)


def accepts(function: Callable[[], Any]) -> bool:
    try:
        function()
    except (TypeError, ValueError):
        return False
    return True


def expect(valid: bool, function: Callable[[], Any]) -> None:
    if accepts(function) != valid:
        raise Finding(f"it {'refused valid' if valid else 'accepted invalid'} arguments")


def basis(r: Random) -> None:
    """Valid and damaged tables, and arrays for another number of hops."""
    n, w, hops = 3, 2, int(r.rng.integers(0, 6))
    matrix, *_ = r.csr(n, n, square=True)
    table, terms, valid = r.recurrence(hops), hops + 1, True
    case = r.rng.random()
    if case < 0.3:
        terms, valid = r.pick([hops + 2, hops]), False
    elif case < 0.6 and hops:
        table[r.rng.integers(hops), r.rng.integers(3)] = r.pick([np.nan, np.inf, -np.inf])
        valid = False
    elif case < 0.8 and hops:
        table[0, 2], valid = 1.0, False
    elif case < 0.9:
        table, valid = table[:, :2].copy(), False
    signal, scales, out = r.array(n, w), r.array(terms, w), r.output(n, w)
    stack = r.output(terms, n, w)
    make = core().Basis
    expect(valid, lambda: matrix.polynomial(make(table), signal, scales, out, 1))
    expect(valid, lambda: matrix.gather_hops(make(table), None, signal, stack, 1))


def damaged(r: Random, array: np.ndarray) -> Any:
    """Something that no kernel may take for ``array``."""
    other = np.float64 if array.dtype == np.float32 else np.float32
    return r.pick(
        [
            array[:-1],
            array[None],
            array.astype(other),
            array.astype(array.dtype.newbyteorder()),
            np.repeat(array, 2, axis=-1)[..., ::2],
            array.tolist(),
        ]
    )


def operands(r: Random) -> None:
    """Arrays of the wrong shape, type or layout."""
    n, w = 5, 3
    matrix, *_ = r.csr(n, n, square=True)
    basis = core().Basis(r.recurrence(1))
    rows, rule = np.array([4, 0, 4]), (1, 2, 3, 1.0)
    calls = [
        (matrix.polynomial, [basis, r.array(n, w), r.array(2, w), r.output(n, w)]),
        (matrix.gather_hops, [basis, rows, r.array(n, w), r.output(2, 3, w)]),
        (matrix.scatter_hops, [basis, rows, r.array(2, 3, w), r.output(n, w)]),
        (matrix.times, [False, r.array(n, w), r.output(n, w), np.arange(n), *rule, None]),
        (core().drop_dense, [r.array(n, w), r.output(n, w), np.arange(n), *rule]),
    ]
    function, arguments = r.pick(calls)
    function(*arguments, 1)
    places = [i for i, value in enumerate(arguments) if isinstance(value, np.ndarray)]
    place = r.pick(places)
    arguments[place] = damaged(r, arguments[place])
    expect(False, lambda: function(*arguments, 1))


def drop_dense(r: Random) -> None:
    n, d = r.nodes(), r.size(300)
    x, out = r.array(n, d), r.output(n, d)
    numbers, mask = row_numbers(r, n), mask_of(r)
    r.call(lambda y, threads: core().drop_dense(x, y, numbers, *mask.rule, threads), out)
    r.compare(out, x.astype(float) * factors(mask, n, d, numbers), abs(x) * 40.0)


def adam(r: Random) -> None:
    size = int(r.rng.integers(60_000, 600_000)) if r.chance(0.05) else r.size(300)
    gradient, start, means = r.array(size), r.array(size), r.array(size)
    squares = np.abs(r.array(size))
    lr, decay = (float(v) for v in abs(r.rng.standard_normal(2)))
    step = int(r.rng.integers(1, 1000))

    def call(weight: np.ndarray, mean: np.ndarray, square: np.ndarray, threads: int) -> None:
        weight[:], mean[:], square[:] = start, means, squares
        core().adam(gradient, weight, mean, square, lr, decay, step, threads)

    outputs = [r.output(size) for _ in range(3)]
    r.call(call, *outputs)
    g = gradient + decay * start.astype(float)
    m, v = 0.9 * means.astype(float) + 0.1 * g, 0.999 * squares.astype(float) + 0.001 * g * g
    rate = lr / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    terms = abs(gradient) + decay * abs(start)  # of g, which may cancel
    rounding = rate * (abs(means) + terms + abs(m) * terms / (abs(g) + 1e-30))
    r.compare(outputs[0], start - rate * m, abs(start) + rounding)
    r.compare(outputs[1], m, abs(means) + terms)
    r.compare(outputs[2], v, squares + terms**2)


def softmax(r: Random) -> None:
    n, m = r.nodes(), 1 + r.size(40)
    logits, targets = 5 * r.array(n, m), r.rng.integers(0, m, n)
    weights = abs(r.array(n)) if r.chance(0.5) else None
    scale, gradient, loss = float(r.rng.random()), r.output(n, m), r.output(1, dtype=np.float64)

    def call(out: np.ndarray, total: np.ndarray, threads: int) -> None:
        total[0] = core().softmax_cross_entropy(logits, targets, weights, scale, out, threads)

    r.call(call, gradient, loss)
    z = logits.astype(float)
    rows, each = np.arange(n), np.ones(n) if weights is None else weights.astype(float)
    shifted = np.exp(z - z.max(axis=1, keepdims=True, initial=-np.inf))
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    losses = -each * np.log(shares[rows, targets])
    r.compare(loss, np.array([losses.sum()]), (losses + each).sum() * 10 + 1, n)
    shares[rows, targets] -= 1
    r.compare(gradient, scale * each[:, None] * shares, 10 * each[:, None] + 0 * shares, m)
    right = int((logits.argmax(axis=1) == targets).sum()) if n else 0
    if core().count_right(logits, targets) != right:
        raise Finding(f"it did not count {right} right rows")


def csr(r: Random) -> None:
    """Valid and damaged arrays: the core takes what hoplite.csr takes."""
    from hoplite.csr import check_csr

    rows, columns = r.size(40), r.size(40)
    lengths = r.rng.integers(0, 4, rows) if columns else np.zeros(rows, int)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = r.rng.integers(0, max(columns, 1), indptr[-1])
    values = r.array(indptr[-1])
    for array in (indptr, indices):
        if array.size and r.chance(0.4):
            odd = [-1, 0, columns, columns - 1, 10**6, 2**31 - 1, -(2**31), int(indptr[-1])]
            array[r.rng.integers(array.size, size=int(r.rng.integers(1, 3)))] = r.pick(odd)
    if r.chance(0.2):
        values = values[: r.size(values.size)]
    if r.chance(0.1):
        indptr = indptr[: r.size(indptr.size)]
    arrays = (indptr, indices.astype(r.pick([np.int32, np.int64])), values)
    valid = accepts(lambda: check_csr(*arrays, (len(indptr) - 1, columns)))
    expect(valid, lambda: core().Csr(*arrays, columns))


ENTRIES: dict[str, Callable[[Random], None]] = {
    "Csr": csr,
    "Csr.spmm": spmm,
    "Csr.times": times,
    "Csr.polynomial": polynomial,
    "Csr.gather_hops": move_hops,
    "Basis": basis,
    "operands": operands,
    "drop_dense": drop_dense,
    "adam": adam,
    "softmax": softmax,
}


def run_case(name: str, seed: int) -> None:
    """Call one entry point with one of the instruction sets."""
    r = Random(seed)
    core().set_architecture(r.pick(core().architectures()))
    ENTRIES[name](r)
    r.check_guards()


def child(seconds: float, seed: int) -> None:
    """Print every case before it is called, and its finding."""
    if path := os.environ.get("HOPLITE_SANITIZED_CORE"):
        from sanitize import use_core

        use_core(path)
    end, names = time.monotonic() + seconds, list(ENTRIES)
    while time.monotonic() < end:
        name = names[seed % len(names)]
        print(f"call\t{name}\t{seed}", flush=True)
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
        try:
            run_case(name, seed)
        except Finding as finding:
            print(f"finding\t{name}\t{seed}\t{finding}", flush=True)
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    print("end", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Random calls of the C++ core.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first case; each has the next")
    options = parser.parse_args()
    if CHILD in os.environ:
        return child(options.seconds, options.seed)
    calls: Counter[str] = Counter()
    findings: list[str] = []
    seed, left = options.seed, options.seconds
    while left > 0:
        start = time.monotonic()
        command = [sys.executable, __file__, "--seconds", str(left), "--seed", str(seed)]
        env = os.environ | {CHILD: "1", "OPENBLAS_NUM_THREADS": "1"}
        result = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
        left -= time.monotonic() - start
        name = "none"
        for line in result.stdout.splitlines():
            event, *rest = line.split("\t")
            if event == "call":
                name, seed = rest[0], int(rest[1]) + 1
                calls[name] += 1
            elif event == "finding":
                findings.append(f"{rest[0]}, seed {rest[1]}: {rest[2]}")
        if result.returncode or not result.stdout.endswith("end\n"):
            findings.append(f"{name}, seed {seed - 1}: ended with {result.returncode}")
    for name in ENTRIES:
        print(f"{name:20} {calls[name]:>9,} calls")
    print(f"{'all':20} {calls.total():>9,} calls, {len(findings)} findings")
    print("\n".join(findings))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
