"""Rotation.near: a frequency that is known, but not exactly."""

import keras
import numpy as np
import pytest

import cgp
from cgp.gp.starts import candidates, scales_of
from cgp.kernels import Matern12, Rotation, WidelyLinear

INERTIAL, OTHER, WITHIN = -0.048, -0.2, 0.003


def two_oscillations():
    """A weak oscillation near a known frequency, and a stronger one elsewhere."""
    x = np.arange(150.0)
    signals = [
        cgp.StateSpaceGP(Matern12(variance, 20.0) * Rotation(frequency), 1e-3).sample(x, seed=1)[0]
        for variance, frequency in ((1.0, INERTIAL), (9.0, OTHER))
    ]
    return x, signals[0] + signals[1]


def test_restarts_do_not_exchange_the_terms():
    x, z = two_oscillations()
    learned = []
    for rotation in (Rotation.near(INERTIAL, WITHIN), Rotation(INERTIAL)):
        other = Matern12() * Rotation(OTHER)
        gp = cgp.StateSpaceGP(Matern12() * rotation + other)
        gp.fit(x, z, restarts=6, seed=3, verbose=0)
        learned.append([float(rotation.frequency), float(other.parts[1].frequency)])
    (near, elsewhere), (free, _) = learned
    assert abs(near - INERTIAL) < 2.0 * WITHIN
    assert abs(elsewhere - OTHER) < 0.01
    assert abs(free - OTHER) < 0.01  # the same likelihood, with the terms exchanged


def test_starts_are_drawn_from_the_prior():
    x, z = two_oscillations()
    gp = cgp.StateSpaceGP(Matern12() * Rotation.near(INERTIAL, WITHIN), 0.1)
    scales = scales_of(gp, gp.data_of(x, z))
    at = [v.path for v in gp.trainable_variables].index(gp.kernel.parts[1].frequency.variable.path)
    step = float(gp.kernel.parts[1].frequency.step)
    drawn = np.array([point[at] * step for point in candidates(gp, scales, 7, 0)])
    assert np.std((drawn - INERTIAL) / WITHIN) == pytest.approx(1.0, abs=0.1)
    assert np.mean((drawn - INERTIAL) / WITHIN) == pytest.approx(0.0, abs=0.1)


def test_the_prior_is_saved_and_of_each_dimension():
    rotation = Rotation.near([0.1, -0.2], [0.01, 0.02], name="turn")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(rotation))
    np.testing.assert_allclose(copy.frequency.prior.mean(), [0.1, -0.2])
    np.testing.assert_allclose(copy.frequency.prior.stddev(), [0.01, 0.02])
    single = Rotation.near(0.1, 0.01, dtype="float32")
    assert single.frequency.prior.dtype.name == "float32"


def test_priors_that_give_no_start_leave_restarts_as_they_are():
    """Of a complex value, and with mass where the value cannot be."""
    x, z = two_oscillations()
    normal = {"distribution": "Normal", "parameters": {"loc": [0.0, 0.0], "scale": [0.3, 0.3]}}
    outside = {"distribution": "Normal", "parameters": {"loc": 1.0, "scale": 30.0}}
    kernel = WidelyLinear(
        Matern12(9.0, 20.0, priors={"lengthscale": outside}) * Rotation(OTHER),
        0.1 + 0.1j,
        priors={"coefficient": normal},
    )
    gp = cgp.ExactGP(kernel, 0.1)
    history = gp.fit(x[:40], z[:40], restarts=4, epochs=2, verbose=0)
    assert len(history.optima) == 4


def test_errors():
    with pytest.raises(ValueError, match="frequency must be finite, where it is known"):
        Rotation.near(None, 0.1)
    for within in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="within must be positive and finite"):
            Rotation.near(0.1, within)
    prior = {"frequency": {"distribution": "Normal", "parameters": {"loc": 0.0, "scale": 1.0}}}
    with pytest.raises(ValueError, match="within is the prior of the frequency"):
        Rotation.near(0.1, 0.01, priors=prior)
