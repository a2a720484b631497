"""Progress bars where somebody watches, and silence in a pipe."""

import io
import sys

import numpy as np
import pytest

import cgp
from cgp.training.batches import where_watched

X, Z = np.arange(6.0), np.exp(1j * np.arange(6.0))


class Terminal(io.StringIO):
    def isatty(self):
        return True


class OutStream(io.StringIO):
    """What a notebook has in place of a terminal."""

    __module__ = "ipykernel.iostream"


def process():
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 3.0, fixed="lengthscale"), noise_variance=0.1)
    gp.compile(cgp.optimizers.LBFGS(), run_eagerly=True)
    return gp


def kalman_filter():
    model = cgp.statespace.LinearGaussian([[0.9j]], [[0.5]], [[1.0]], [[0.5]])
    kf = cgp.KalmanFilter(model, learn="Q")
    kf.compile("adam", run_eagerly=True)
    return kf


def shown(output, monkeypatch, call, **verbose):
    monkeypatch.setattr(sys, "stdout", output)
    call(**verbose)
    return output.getvalue()


@pytest.mark.parametrize("output", [Terminal, OutStream])
def test_is_a_bar_shown_in_a_terminal_and_in_a_notebook(output, monkeypatch):
    monkeypatch.setattr(sys, "stdout", output())
    assert where_watched("auto") == "auto"


@pytest.mark.parametrize("given", [0, 1, 2])
def test_is_what_was_asked_for_shown_everywhere(given, monkeypatch):
    for output in (io.StringIO(), Terminal(), None):
        monkeypatch.setattr(sys, "stdout", output)
        assert where_watched(given) == given


def test_is_anything_else_an_error():
    with pytest.raises(ValueError, match='must be 0, 1, 2 or "auto", got 3'):
        where_watched(3)


def test_do_fits_print_nothing_into_a_pipe_unless_asked(monkeypatch):
    gp, kf = process(), kalman_filter()
    calls = [
        lambda **verbose: gp.fit(X, Z, epochs=1, restarts=2, **verbose),
        lambda **verbose: gp.parameter_covariance(**verbose),
        lambda **verbose: kf.fit(Z[:, None], epochs=1, **verbose),
        lambda **verbose: kf.evaluate(Z[:, None], **verbose),
    ]
    for call in calls:
        assert shown(io.StringIO(), monkeypatch, call) == ""
        assert "━" in shown(io.StringIO(), monkeypatch, call, verbose=1)
        assert "━" in shown(Terminal(), monkeypatch, call)


@pytest.mark.long
def test_do_draws_and_comparisons_print_nothing_into_a_pipe_unless_asked(monkeypatch):
    gp = process()
    gp.condition(X, Z)
    monkeypatch.setattr("cgp.gp.sampling.parameter_draws._PATIENCE", -1.0)  # at once

    def draw(**verbose):
        with pytest.warns(RuntimeWarning, match="R-hat|diverged"):
            gp.sample_parameters(chains=2, draws=4, warmup=0, seed=1, **verbose)

    def compare(**verbose):
        cgp.compare({"one": process()}, X, Z, folds=2, restarts=1, **verbose)

    for call in (draw, compare):
        assert shown(io.StringIO(), monkeypatch, call) == ""
        assert "━" in shown(Terminal(), monkeypatch, call)
