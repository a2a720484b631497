"""Says what is installed, and checks in some seconds that it computes right: `python -m cgp`."""

import importlib.metadata
import platform
import sys
import time
from pathlib import Path

import keras
import numpy as np
import scipy
import tensorflow as tf

import cgp
from cgp.native import core
from cgp.self_check import CHECKS, Check


def main() -> int:
    """Prints versions, the compiled core, devices and checks.

    Returns:
        0, or 1 if a check has failed.
    """
    found = core()
    # In a clone Python takes the cgp that lies there, and not the one that is installed.
    print(f"cgp {cgp.__version__} in {Path(cgp.__file__).parent},")
    print(f"Python {platform.python_version()} on {platform.platform()}")
    print(
        f"TensorFlow {tf.__version__}, Keras {keras.version()}, "
        f"TensorFlow Probability {_version('tensorflow-probability')}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    print(f"compiled core: {'active' if found.ops else 'not active'}, {found.reason}")
    devices = (d.name.removeprefix("/device:") for d in tf.config.list_logical_devices())
    print("devices:", ", ".join(devices))
    start = time.monotonic()
    passed = [_passes(check) for check in CHECKS]
    seconds = time.monotonic() - start
    failed = len(passed) - sum(passed)
    verdict = f"{failed} of {len(passed)} checks FAILED" if failed else "all checks passed"
    print(f"{verdict}, in {seconds:.0f} s")
    return 1 if failed else 0


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _passes(check: Check) -> bool:
    """Makes a check, and prints a line about it."""
    try:
        error = check.error()
    except Exception as problem:  # the other checks say whether only this one fails
        print(f"{check.name:50} FAILED: {type(problem).__name__}: {problem}", flush=True)
        return False
    passes = error < check.limit  # not if it is NaN
    print(f"{check.name:50} {error:9.1e}  {'ok' if passes else 'FAILED'}", flush=True)
    return passes


if __name__ == "__main__":
    sys.exit(main())
