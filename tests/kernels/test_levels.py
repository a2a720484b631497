"""The kernel of an axis of labels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Along, Coregionalized, Levels, Matern32, Rotation

FACTOR = np.array([[1.0, 0.0, 0.0], [0.4 - 0.5j, 0.7, 0.0], [-0.3j, 0.2 + 0.6j, 1.3]])
LABELS = np.arange(3.0)


def test_is_the_covariance_a_hermitian_matrix_over_labels():
    kernel = Levels(3, FACTOR)
    wanted = FACTOR @ FACTOR.conj().T
    np.testing.assert_allclose(kernel.covariance(LABELS), wanted, atol=1e-15)
    np.testing.assert_allclose(kernel.covariance([2, 0], LABELS), wanted[[2, 0]], atol=1e-15)
    assert not kernel.is_real
    assert not kernel.is_stationary


def test_is_it_the_process_of_outputs_of_as_many_sources():
    x = np.array([0.0, 0.3, 1.1])
    pairs = np.stack([np.repeat(x, 3), np.tile(LABELS, 3)], axis=-1)
    inner = RBF(1.5, 1.0) * Rotation(0.2)
    product = Along(inner, 0) * Along(Levels(3, FACTOR), 1)
    outputs = Coregionalized(inner, 3, rank=3, mixing=FACTOR)
    np.testing.assert_allclose(product.covariance(pairs), outputs.covariance(pairs), atol=1e-14)


def test_does_a_fit_of_a_grid_find_the_matrix():
    t = np.arange(400.0)

    def make(factor):
        return Along(Matern32(1.0, 3.0), 0) * Along(Levels(3, factor), 1)

    z = cgp.GridGP(make(FACTOR), 0.05).sample((t, LABELS), seed=3, observed=True)[0]
    gp = cgp.GridGP(make(None))
    gp.fit((t, LABELS), z, verbose=0)
    factor = gp.parameters()["levels.factor"]
    errors = gp.parameter_errors(verbose=0)["levels.factor"]
    deviations = (factor - FACTOR)[np.tril_indices(3, -1)]
    assert np.abs(deviations).max() < 0.2
    # Real and imaginary parts over their standard errors.
    of_parts = errors[np.tril_indices(3, -1)]
    z_scores = np.concatenate([deviations.real / of_parts.real, deviations.imag / of_parts.imag])
    assert np.abs(z_scores).max() < 4.0


def test_does_a_start_take_the_moments_of_the_data():
    t, rng = np.arange(4000.0), np.random.default_rng(0)
    draws = (rng.normal(size=(4000, 3)) + 1j * rng.normal(size=(4000, 3))) / np.sqrt(2.0)
    z = draws @ FACTOR.T
    gp = cgp.GridGP(Along(Matern32(), 0) * Along(Levels(3), 1))
    gp.compile(keras.optimizers.SGD(0.0))
    gp.fit((t, LABELS), z, epochs=1, verbose=0)
    correlation = np.asarray(gp.kernel.parts[1].kernel.covariance(LABELS))
    wanted = FACTOR @ FACTOR.conj().T
    assert np.abs(correlation - wanted).max() < 0.15


def test_does_a_file_keep_it(tmp_path):
    gp = cgp.GridGP(Along(RBF(1.0, 1.0), 0) * Along(Levels(3, FACTOR), 1), 0.1)
    z = np.ones((2, 3)) + 1j * LABELS
    gp.condition(([0.0, 1.0], LABELS), z)
    gp.save(tmp_path / "gp.keras")
    again = cgp.load_model(tmp_path / "gp.keras")
    at = ([0.5], LABELS)
    np.testing.assert_array_equal(again.predict(at)["mean"], gp.predict(at)["mean"])


@pytest.mark.parametrize("label", [-1.0, 0.5, 3.0])
def test_is_a_coordinate_that_is_no_label_refused(label):
    with pytest.raises(ValueError, match="must be labels, whole numbers from 0 to 2"):
        Levels(3, FACTOR).check_points(tf.constant([[label]], tf.float64))
