"""Learned matrices some of whose elements stay as they are, and errors of learned matrices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.layers import Matrix
from cgp.linalg import NotPositiveDefiniteError
from tests.reference import kalman

POLES = np.array([0.95 * np.exp(0.4j), 0.9 * np.exp(-1.1j)])
COMPANION = np.array([[POLES.sum(), -POLES.prod()], [1.0, 0.0]])
FIXED = np.array([[False, False], [True, True]])


def moments(dtype="complex128"):
    F = COMPANION if dtype == "complex128" else np.array([[1.6, -0.81], [1.0, 0.0]])
    return {
        "F": F,
        "Q": np.diag([0.3, 0.0]),
        "H": np.array([[1.0, 0.0]]),
        "R": np.array([[0.2]]),
        "initial_mean": np.zeros(2),
        "initial_covariance": np.eye(2),
    }


def series(model, steps=120):
    z = statespace.sample(model, steps, seed=3).observations.numpy().copy()
    z[10:14] = np.nan
    return z


def reference_log_likelihood(z, initial_mean, initial_covariance, **matrices):
    model = kalman.model(**matrices, mean=initial_mean, covariance=initial_covariance, steps=len(z))
    return kalman.filter(model, z).log_likelihoods.sum()


@pytest.mark.parametrize("value", [COMPANION, COMPANION.real], ids=["complex", "real"])
def test_fixed_elements_are_no_weights(value):
    layer = Matrix(value, fixed=FIXED)
    np.testing.assert_array_equal(layer.call(), value)
    assert layer.trainable_variables[0].shape[0] == 2
    direction = np.arange(1.0, 5.0).reshape(2, 2) * (1 + 2j if np.iscomplexobj(value) else 1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.math.real(tf.math.conj(tf.constant(direction)) * layer.call()))
    slope = tape.gradient(loss, layer.trainable_variables[0]).numpy()
    free = direction[~FIXED]
    expected = np.stack([free.real, free.imag], -1) if np.iscomplexobj(value) else free
    np.testing.assert_allclose(slope, expected)
    changed = np.where(FIXED, value, 2 * value)
    layer.value.assign(changed)
    np.testing.assert_array_equal(layer.call(), changed)
    with pytest.raises(ValueError, match="fixed elements as they are"):
        layer.value.assign(2 * value)


def test_a_fit_moves_the_other_elements_alone_to_the_maximum_and_is_saved(tmp_path):
    model = statespace.LinearGaussian(**moments())
    z = series(model)
    start = COMPANION * [[0.95, 0.9], [1.0, 1.0]]
    kf = cgp.KalmanFilter(model.replace(F=start), learn={"F": Matrix(start, fixed=FIXED)})
    kf.fit(z, verbose=0)
    np.testing.assert_array_equal(kf.F[1], [1.0, 0.0])
    assert np.all(np.abs(kf.F[0] - start[0]) > 1e-3)
    best = moments() | {"F": kf.F}
    value = reference_log_likelihood(z, **best)
    for direction in (np.outer([1, 0], [1, 0]), np.outer([1, 0], [0, 1j])):
        for step in (1e-3, -1e-3):
            changed = best | {"F": kf.F + step * direction}
            assert reference_log_likelihood(z, **changed) < value
    kf.save(tmp_path / "filter.keras")
    loaded = keras.saving.load_model(tmp_path / "filter.keras")
    np.testing.assert_array_equal(loaded.F, kf.F)
    assert [v.shape for v in loaded.trainable_variables] == [(2, 2)]


def test_a_mask_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"shaped like value, \[2, 2\]"):
        Matrix(COMPANION, fixed=[True, False])
    with pytest.raises(ValueError, match="nothing would be learned"):
        Matrix(COMPANION, fixed=np.ones((2, 2), bool))


def numerical_errors(z, matrices, coordinates):
    """Errors from the Hessian of the reference by the real coordinates of matrix elements.

    `coordinates` are matrices by name and direction of a change of one of them.
    """

    def at(change):
        changed = dict(matrices)
        for (name, direction), step in zip(coordinates, change, strict=True):
            changed[name] = changed[name] + step * direction
        return reference_log_likelihood(z, **changed)

    k, h = len(coordinates), 2e-3
    steps = h * np.eye(k)
    hessian = [
        [(at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / (4 * h * h) for a in steps]
        for b in steps
    ]
    return np.sqrt(np.diag(np.linalg.inv(-np.array(hessian))))


def unit(i, j, size=2):
    a = np.zeros((size, size))
    a[i, j] = 1.0
    return a


def test_errors_of_learned_matrices_are_those_of_the_hessian_of_the_reference():
    """By the elements of F, Q and R themselves, where the filter learns factors of Q and R."""
    model = statespace.LinearGaussian(**moments())
    z = series(model)
    kf = cgp.KalmanFilter(model, learn={"F": Matrix(COMPANION, fixed=FIXED), "Q": None, "R": None})
    kf.fit(z, verbose=0)
    before = [v.numpy() for v in kf.variables]
    errors = kf.parameter_errors(z, verbose=0)
    for variable, value in zip(kf.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    coordinates = [("F", unit(0, 0)), ("F", 1j * unit(0, 0)), ("F", unit(0, 1))]
    coordinates += [("F", 1j * unit(0, 1)), ("Q", unit(0, 0)), ("R", unit(0, 0, 1))]
    matrices = moments() | {"F": kf.F, "Q": kf.Q, "R": kf.R}
    expected = numerical_errors(z, matrices, coordinates)
    assert {name: a.shape for name, a in errors.items()} == {"F": (2, 2), "Q": (2, 2), "R": (1, 1)}
    reached = [*errors["F"][0].view(float), errors["Q"][0, 0].real, errors["R"][0, 0].real]
    np.testing.assert_allclose(reached, expected, rtol=1e-3)
    np.testing.assert_array_equal(errors["F"][1], 0.0)
    assert np.all(errors["Q"].ravel()[1:] == 0.0)


def test_errors_of_directions_that_the_data_do_not_determine_are_refused():
    model = statespace.LinearGaussian([[0.9]], [[0.2]], [[1.0]], [[0.1]], [0.0], [[1.0]])
    kf = cgp.KalmanFilter(model, learn=("H", "Q", "initial_covariance"))
    z = series(model)
    with pytest.raises(NotPositiveDefiniteError, match=r"Q\.scale"):
        kf.parameter_errors(z, verbose=0)
    with pytest.raises(ValueError, match="nothing is learned"):
        cgp.KalmanFilter(model).parameter_errors(z)
    with pytest.raises(TypeError, match="dataset"):
        kf.parameter_errors(tf.data.Dataset.from_tensors(z[None]))


def test_is_a_mask_of_numbers_refused():
    with pytest.raises(TypeError, match="fixed must be bool"):
        cgp.layers.Matrix(np.eye(2), fixed=[[0, 0], [1, 1]])


def test_is_a_gate_that_is_no_number_refused():
    kf = cgp.KalmanFilter(statespace.LinearGaussian([[0.9]], [[0.1]], [[1.0]], [[0.2 + 0j]]))
    for gate in ("0.9", np.array([0.9])):
        with pytest.raises(TypeError, match="probability of a gate must be a number"):
            kf.step(1j, gate=gate)
