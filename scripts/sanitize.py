"""Run the kernels' tests and fuzzer on a build of the C++ core with AddressSanitizer and UBSan.

    python scripts/sanitize.py [--fuzz SECONDS] [further pytest arguments]

Needs GCC or Clang with their sanitizer libraries. The installed core is not touched.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "sanitize"
TESTS = ["tests/engine"]
INSIDE = "HOPLITE_SANITIZED_CORE"


def build() -> Path:
    """Configure and compile; the path of the extension."""
    command = [sys.executable, "-m", "nanobind", "--cmake_dir"]
    nanobind = subprocess.check_output(command, text=True).strip()
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja"]
    configure += [f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += ["-DHOPLITE_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", str(BUILD)], check=True)
    return next(BUILD.glob("_native*.so"))


def library(name: str) -> str:
    """The path of one of the compiler's runtime libraries."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def use_core(core: str) -> None:
    """In the process that has the sanitizers loaded: put this build of the core in place."""
    spec = importlib.util.spec_from_file_location("hoplite._native", core)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["hoplite._native"] = module
    from hoplite.engine import backend

    assert backend.native is module  # otherwise nothing would be tested


def run_tests(core: str, arguments: list[str]) -> int:
    import pytest

    use_core(core)
    print(f"testing {core}", flush=True)
    return pytest.main(["-p", "no:cacheprovider", *TESTS, *arguments])


def main() -> None:
    if INSIDE in os.environ:
        sys.exit(run_tests(os.environ[INSIDE], sys.argv[1:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fuzz", type=float, default=60, metavar="SECONDS")
    options, arguments = parser.parse_known_args()
    preload = " ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so"))
    environment = os.environ | {
        INSIDE: str(build()),
        "LD_PRELOAD": preload,
        # Python keeps memory until the end on purpose; overruns are what is looked for
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    fuzz = [str(ROOT / "scripts" / "fuzz_native.py"), "--seconds", str(options.fuzz)]
    ended = [
        subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, check=False
        ).returncode
        for command in ([__file__, *arguments], fuzz)
    ]
    sys.exit(max(map(abs, ended)))


if __name__ == "__main__":
    main()
