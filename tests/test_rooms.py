"""How many files of cgp a call passes through: a reader has to know that many to follow it."""

import sys
from collections.abc import Callable
from pathlib import Path

import cgp

PACKAGE = Path(cgp.__file__).parent


def rooms(call: Callable[[], object]) -> set[str]:
    """The files of cgp, relative to it, whose functions run during a call."""
    found: set[str] = set()

    def profile(frame, event, argument):
        if event == "call":
            found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    paths = (Path(name) for name in found)
    return {str(p.relative_to(PACKAGE)) for p in paths if p.is_relative_to(PACKAGE)}


def assert_rooms(call: Callable[[], object], bound: int) -> None:
    found = rooms(call)
    assert found, "nothing was profiled"
    assert len(found) <= bound, f"{len(found)} files: {', '.join(sorted(found))}"


def test_how_many_files_does_the_first_step_of_a_window_pass():
    kernel = cgp.kernels.Matern32(1.0, 20.0) * cgp.kernels.Rotation(0.1)
    gp = cgp.RecursiveGP(kernel, noise_variance=0.05, capacity=4)
    assert_rooms(lambda: gp.step(0.0, 1j), 22)
