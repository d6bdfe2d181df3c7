"""Types of the C++ core. Dense operands are addresses (0 for none), checked by the callers."""

import numpy as np

threading: str

class Basis:
    """From the table of a :class:`hoplite.bases.Basis`: (hops, 3), float64."""

    def __init__(self, table: np.ndarray, /) -> None: ...

class Csr:
    def __init__(
        self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, columns: int, /
    ) -> None: ...
    def spmm(
        self,
        x: int,
        y: int,
        width: int,
        scale: float,
        z: int,
        a: int,
        w: int,
        b: float,
        u: int,
        c: float,
        threads: int,
        /,
    ) -> None: ...
    def dropout_spmm(
        self,
        transposed: bool,
        dense: int,
        dense_row: int,
        dense_run: int,
        out: int,
        runs: int,
        width: int,
        row_numbers: int,
        rules: int,
        scales: int,
        threads: int,
        /,
    ) -> None: ...
    def polynomial(
        self,
        basis: Basis,
        hops: int,
        width: int,
        signal: int,
        scales: int,
        out: int,
        other: int,
        dots: int,
        threads: int,
        /,
    ) -> None: ...
    def move_hops(
        self,
        scatter: bool,
        basis: Basis,
        hops: int,
        width: int,
        rows: int,
        count: int,
        source: int,
        out: int,
        threads: int,
        /,
    ) -> None: ...

def drop_dense(
    single: bool,
    x: int,
    out: int,
    n: int,
    d: int,
    row_numbers: int,
    key0: int,
    key1: int,
    threshold: int,
    scale: float,
    threads: int,
    /,
) -> None: ...
def adam(
    single: bool,
    runs: int,
    size: int,
    gradient: int,
    weight: int,
    mean: int,
    square: int,
    lr: int,
    decay: int,
    steps: int,
    threads: int,
    /,
) -> None: ...
def architectures() -> list[str]: ...
def architecture() -> str: ...
def set_architecture(name: str, /) -> None: ...
