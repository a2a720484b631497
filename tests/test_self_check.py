"""`python -m cgp`: what it prints, and whether its checks find what is wrong."""

import os
import subprocess
import sys

import pytest

import cgp
from cgp import __main__ as command
from cgp.__main__ import CHECKS, Check
from cgp.gp import ExactGP, StateSpaceGP
from cgp.kernels import Rotation
from cgp.linalg import cholesky_update
from tests.test_house import ROOT


@pytest.mark.long
@pytest.mark.parametrize("native", ["0", "1"])
def test_passes_it_with_and_without_the_compiled_core(native):
    found = subprocess.run(
        [sys.executable, "-m", "cgp"],
        cwd=ROOT,
        env={**os.environ, "CGP_NATIVE": native},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    lines = found.stdout.splitlines()
    assert lines.pop(0) == f"cgp {cgp.__version__} in {ROOT / 'cgp'},"
    assert lines[0].startswith("Python ")
    for name in ("TensorFlow ", "Keras ", "TensorFlow Probability ", "NumPy ", "SciPy "):
        assert name in lines[1]
    assert lines[2].startswith("compiled core: ")
    assert ("CGP_NATIVE=0" in lines[2]) == (native == "0")
    assert "CPU:0" in lines[3]
    assert [line.rpartition(" ")[2] for line in lines[4:-1]] == ["ok"] * len(CHECKS)
    assert lines[-1].startswith("all checks passed, in ")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_does_each_check_pass(check):
    assert check.error() < check.limit


def test_says_it_which_check_has_failed(monkeypatch, capsys):
    def raises():
        raise RuntimeError("no such device")

    checks = (
        Check("good", lambda: 1e-12, 1e-10),
        Check("bad", lambda: 1e-9, 1e-10),
        Check("no number", lambda: float("nan"), 1e-10),
        Check("no result", raises, 1e-10),
    )
    monkeypatch.setattr(command, "CHECKS", checks)
    assert command.main() == 1
    *_, good, bad, nan, none, verdict = capsys.readouterr().out.splitlines()
    assert good.split() == ["good", "1.0e-12", "ok"]
    assert bad.split() == ["bad", "1.0e-09", "FAILED"]
    assert nan.endswith("FAILED")
    assert none.endswith("FAILED: RuntimeError: no such device")
    assert verdict.startswith("3 of 4 checks FAILED")


def conjugated(chol, v):
    return cholesky_update(chol, v.conj())


def forgetful(path):
    return ExactGP(command._kernel(), noise_variance=0.2)


class Reluctant(StateSpaceGP):
    """A process whose fit goes nowhere."""

    def fit(self, *args, **kwargs):
        history = super().fit(*args, **kwargs)
        history.history["loss"] = history.history["loss"][:1]
        return history


class Blind(command.KalmanFilter):
    """A filter that sees the real part alone."""

    def step(self, z):
        return super().step(z.real + 0j)


@pytest.mark.parametrize(
    ("number", "name", "wrong"),
    [
        (0, "cholesky_update", conjugated),
        (1, "Rotation", lambda frequency: Rotation(-frequency)),
        (2, "Rotation", lambda frequency: Rotation(-frequency)),
        (3, "KalmanFilter", Blind),
        (4, "StateSpaceGP", Reluctant),
        (5, "load_model", forgetful),
    ],
)
def test_finds_each_check_what_is_wrong(monkeypatch, number, name, wrong):
    monkeypatch.setattr(command, name, wrong)
    check = CHECKS[number]
    assert not check.error() < check.limit
