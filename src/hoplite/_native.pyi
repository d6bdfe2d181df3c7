"""Types of the C++ core. Dense operands are addresses (0 for none), checked by the callers."""

import numpy as np

threading: str

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
        threads: int,
        /,
    ) -> None: ...
    def dropout_spmm(
        self,
        transposed: bool,
        dense: int,
        out: int,
        runs: int,
        width: int,
        row_numbers: int,
        rules: int,
        scales: int,
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
def architectures() -> list[str]: ...
def architecture() -> str: ...
def set_architecture(name: str, /) -> None: ...
