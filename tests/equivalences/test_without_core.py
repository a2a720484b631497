"""Online filters give the same without the compiled core: steps then are graphs of TensorFlow."""

import numpy as np
import pytest

import cgp
from cgp import native, statespace
from cgp.kernels import Matern12, Matern32, Rotation
from tests.layers.models import made, normals

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)


def assert_same(found, expected, tolerance=1e-11):
    for a, b in zip(found, expected, strict=True):
        for x, y in zip(
            (*a.predicted, a.innovation, *a.filtered),
            (*b.predicted, b.innovation, *b.filtered),
            strict=True,
        ):
            assert x.shape == y.shape
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "streams"),
    [
        ("improper", 3),
        pytest.param("single", None, marks=pytest.mark.long),
        pytest.param("proper", 3, marks=pytest.mark.long),
        pytest.param("improper", None, marks=pytest.mark.long),
    ],
)
def test_is_a_step_of_a_kalman_filter_the_same(kind, streams, without_core):
    model, z = made(kind, series=streams or 1)
    z = np.swapaxes(z, 0, 1) if streams else z[0]
    dtype = "float32" if kind == "single" else None

    def steps():
        kf = cgp.KalmanFilter(model, learn=("Q", "R"), dtype=dtype)
        found = [kf.step(value) for value in z[:4]]
        for variable in kf.trainable_variables:
            variable.assign(0.5 * np.asarray(variable) + 0.3)
        found += [kf.step(value) for value in z[4:8]]
        return [*found, *map(np.asarray, kf.state)]

    *found, mean, chol = steps()
    *expected, other_mean, other_chol = without_core(steps)
    tolerance = 1e-4 if kind == "single" else 1e-11
    assert_same(found, expected, tolerance)
    np.testing.assert_allclose(mean, other_mean, atol=tolerance)
    np.testing.assert_allclose(chol, other_chol, atol=tolerance)


@pytest.mark.parametrize("streams", [2, pytest.param(None, marks=pytest.mark.long)])
def test_are_known_inputs_the_same(streams, without_core):
    rng = np.random.default_rng(0)
    F = 0.9 * np.exp([0.3j, -0.4j])
    model = statespace.LinearGaussian(
        np.diag(F), np.eye(2), normals(rng, 1, 2), [[0.5]], B=normals(rng, 2, 3)
    )
    shape = (6,) if streams is None else (6, streams)
    z, u = normals(rng, *shape, 1), normals(rng, *shape, 3)

    def steps():
        kf = cgp.KalmanFilter(model)
        return [kf.step(*given) for given in zip(z, [None] * 6, u, strict=True)]

    assert_same(steps(), without_core(steps))


@pytest.mark.parametrize(
    ("streams", "pseudo_variance"),
    [
        pytest.param(None, 0.0, marks=pytest.mark.long),
        (3, 0.05 + 0.02j),
        pytest.param(None, 0.05 + 0.02j, marks=pytest.mark.long),
        pytest.param(3, 0.0, marks=pytest.mark.long),
    ],
)
def test_is_a_step_of_a_state_space_process_the_same(pseudo_variance, streams, without_core):
    rng = np.random.default_rng(1)
    x = np.concatenate([np.arange(4.0), 3.0 + np.cumsum(rng.uniform(0.0, 2.0, 6))])
    z = normals(rng, len(x)) if streams is None else normals(rng, len(x), streams)
    z[2] = np.nan

    def steps():
        kernel = Matern32(1.0, 3.0) * Rotation(0.1) + Matern12(0.5, 8.0)
        gp = cgp.StateSpaceGP(
            kernel, 0.1, pseudo_variance, cgp.means.Polynomial(1, [0.3 + 0.1j, 0.02j])
        )
        found = [gp.step(*sample) for sample in zip(x[:7], z[:7], strict=True)]
        gp.noise_variance.assign(0.2)
        found += [gp.step(*sample) for sample in zip(x[7:], z[7:], strict=True)]
        return [*found, *gp.state]

    *found, mean, chol = steps()
    *expected, other_mean, other_chol = without_core(steps)
    assert_same(found, expected)
    np.testing.assert_allclose(mean, other_mean, atol=1e-11)
    np.testing.assert_allclose(chol, other_chol, atol=1e-11)
