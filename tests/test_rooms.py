"""How many files of cgp a call passes through: a reader follows it through all of them."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import cgp
from cgp.kernels import RBF, Matern32, Rotation

PACKAGE = Path(cgp.__file__).parent


def rooms(call: Callable[[], object]) -> set[str]:
    """The files of cgp whose functions run during a call, the tracing of graphs included."""
    result: set[str] = set()

    def profile(frame, event, argument):
        if event == "call":
            result.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    paths = (Path(name) for name in result)
    return {str(p.relative_to(PACKAGE)) for p in paths if p.is_relative_to(PACKAGE)}


def assert_rooms(call: Callable[[], object], entry: str, bound: int) -> None:
    result = rooms(call)
    assert entry in result, "nothing was profiled"
    assert len(result) <= bound, f"{len(result)} files: {', '.join(sorted(result))}"


def test_how_many_files_does_the_first_step_of_a_window_pass():
    gp = cgp.RecursiveGP(Matern32(1.0, 20.0) * Rotation(0.1), noise_variance=0.05, capacity=4)
    assert_rooms(lambda: gp.step(0.0, 1j), "gp/recursive/recursive_gp.py", 24)


def test_how_many_files_does_the_first_step_of_a_state_space_process_pass():
    gp = cgp.StateSpaceGP(Matern32(1.0, 20.0) * Rotation(0.1), noise_variance=0.05)
    assert_rooms(lambda: gp.step(0.0, 1j), "gp/state_space/state_space_gp.py", 25)


def test_how_many_files_does_an_iteration_of_a_fit_pass():
    x, gp = np.arange(5.0), cgp.ExactGP(RBF(1.0, 1.0) * Rotation(0.1), 0.1)
    gp.compile(cgp.optimizers.LBFGS())
    cgp.linalg.cholesky(np.eye(2))  # the first call in a process looks for LAPACK
    fit = lambda: gp.fit(x, np.exp(1j * x), epochs=1, verbose=0)  # noqa: E731
    assert_rooms(fit, "gp/exact_gp.py", 34)
