"""How many files of cgp a call passes through: a reader follows it through all of them."""

import sys
from pathlib import Path

import numpy as np

import cgp
from cgp.kernels import RBF, Rotation

ROOT = Path(cgp.__file__).parent


def files_of(call) -> set[str]:
    """The files of cgp whose functions a call runs, tracing of graphs included."""
    seen = set()

    def profile(frame, event, _):
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    inside = (Path(name) for name in seen)
    return {str(p.relative_to(ROOT)) for p in inside if p.is_relative_to(ROOT)}


def test_does_an_iteration_of_a_fit_pass_few_files():
    x = np.arange(5.0)
    gp = cgp.ExactGP(RBF() * Rotation(0.1), 0.1)
    gp.compile(cgp.optimizers.LBFGS())
    files = files_of(lambda: gp.fit(x, np.exp(1j * x), epochs=1, verbose=0))
    assert "gp/exact/exact_gp.py" in files
    assert len(files) <= 24, sorted(files)
