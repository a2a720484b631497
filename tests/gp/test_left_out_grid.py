"""A step that was left out of a kernel on a grid is that of the data."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import ARMA, Autoregressive
from tests.gp.problems import started

STEP = 0.08235
X = 3.0 + STEP * np.arange(200)
Z = np.exp(2j * np.pi * 1.3 * X) + 0.1 * np.random.default_rng(0).normal(size=(200, 2)) @ [1, 1j]
pytestmark = pytest.mark.filterwarnings("ignore:after this fit")


@pytest.mark.parametrize("make", [lambda: Autoregressive(2), lambda: ARMA(1, 1)])
def test_a_fit_starts_with_the_step_of_a_regular_grid(make):
    gp = cgp.StateSpaceGP(make())
    assert "step=to be learned" in repr(gp.kernel)
    keep = np.random.default_rng(1).permutation(np.r_[0:12, 15:24])
    started(gp, X[keep], Z[keep])
    assert gp.kernel.step == pytest.approx(STEP, rel=1e-9)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_a_step_of_a_regular_grid_is_saved(kind, tmp_path):
    gp = started(kind(Autoregressive(2)), X[:24], Z[:24])
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    assert loaded.kernel.step == gp.kernel.step
    new = [X[23] + STEP]
    np.testing.assert_allclose(loaded.predict(new)["mean"], gp.predict(new)["mean"])


@pytest.mark.long
@pytest.mark.parametrize("make", [lambda: Autoregressive(2), lambda: ARMA(1, 1)])
@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_a_fit_takes_the_step_of_a_regular_grid(make, kind, tmp_path):
    gp = kind(make())
    assert "step=to be learned" in repr(gp.kernel)
    keep = np.r_[0:60, 75:200]
    order = np.random.default_rng(1).permutation(len(keep))
    gp.fit(X[keep][order], Z[keep][order], epochs=20, verbose=0)
    assert gp.kernel.step == pytest.approx(STEP, rel=1e-9)
    found = gp.predict([X[-1] + STEP])["mean"]
    assert abs(found[0] - np.exp(2j * np.pi * 1.3 * (X[-1] + STEP))) < 0.3
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    assert loaded.kernel.step == gp.kernel.step
    np.testing.assert_allclose(loaded.predict([X[-1] + STEP])["mean"], found)


def test_a_step_that_was_given_stays():
    gp = started(cgp.StateSpaceGP(Autoregressive(2, step=STEP / 2)), X[:30], Z[:30])
    assert gp.kernel.step == STEP / 2


def test_a_step_that_nothing_tells_is_refused():
    kernel = Autoregressive(1, 1.0, [0.5j])
    with pytest.raises(
        ValueError, match=r"step of .* was left out.*fit\(x, z\) of a regular x, or"
    ):
        cgp.StateSpaceGP(kernel, noise_variance=0.1).condition(X, Z)
    with pytest.raises(ValueError, match=r"step of .* was left out"):
        cgp.ExactGP(kernel, noise_variance=0.1).predict(X)
    with pytest.raises(ValueError, match=r"median step is 1, but it has points 0\.4 apart"):
        cgp.ExactGP(kernel).fit([0.0, 1.0, 2.0, 2.4], Z[:4], verbose=0)
    assert kernel.step is None
