"""Filters as layers, series for them, and the expected outputs."""

import dataclasses
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.reference import kalman
from tests.statespace.problems import problem

SERIES, STEPS = 3, 14

WITH_CORE = pytest.param(True, id="core")
# To trace and compile a step takes seconds.
WITHOUT_CORE = pytest.param(False, id="tensorflow", marks=pytest.mark.long)
cores = pytest.mark.parametrize("has_core", [WITH_CORE, WITHOUT_CORE])
KINDS = ("proper", "improper", "single", "real")
_DTYPES = {"single": "complex64", "real": "float64"}


def made(kind="proper", n=2, m=2, series=SERIES, steps=STEPS, seed=0):
    """A model, and data `[B, T, M]` with holes."""
    p = problem(n, m, _DTYPES.get(kind, "complex128"), steps, holes="own", batch=series, seed=seed)
    return (widely_linear(p) if kind == "improper" else p.model()), p.z


def widely_linear(p):
    """The model of a problem with noise, initial state and dynamics that prefer a direction."""

    def pseudo(name, coefficient):
        root = np.linalg.cholesky(p.matrices[name])
        return coefficient * root @ np.swapaxes(root, -1, -2)  # G E[eeᵀ] Gᵀ

    return statespace.widely_linear(
        p.model(),
        pseudo_Q=pseudo("Q", 0.5 - 0.3j),
        pseudo_R=pseudo("R", 0.7j),
        initial_pseudo_covariance=pseudo("initial_covariance", -0.4),
        F_conj=0.1 * np.conj(p.matrices["F"]),
    )


def variances(chols, improper):
    """Variances and pseudo-variances of states, from their factors."""
    square = chols @ kalman.adjoint(chols)
    diagonal = np.diagonal(square, axis1=-2, axis2=-1).real
    if not improper:
        return diagonal, None
    n = diagonal.shape[-1] // 2
    cross = np.diagonal(square[..., :n, n:], axis1=-2, axis2=-1)
    real, imaginary = diagonal[..., :n], diagonal[..., n:]
    return real + imaginary, real - imaginary + 2j * cross


def expected(model, z, **kwargs):
    """The expected dictionary of the layer, and the log likelihoods of the series."""
    result = statespace.filter(model, z, **kwargs)
    names = (field.name for field in dataclasses.fields(result))
    arrays = (None if array is None else np.asarray(array) for array in result)
    result = SimpleNamespace(**dict(zip(names, arrays, strict=True)))
    pseudo = result.innovation_pseudo_covariances
    values = {
        "predicted_mean": result.predicted_means,
        "filtered_mean": result.filtered_means,
        "observation_mean": result.observation_means,
        "innovation": result.innovations,
        "innovation_variance": np.diagonal(result.innovation_covariances, axis1=-2, axis2=-1).real,
    }
    if pseudo is not None:
        values["innovation_pseudo_variance"] = np.diagonal(pseudo, axis1=-2, axis2=-1)
    for name, chols in (("predicted", result.predicted_chols), ("filtered", result.filtered_chols)):
        variance, pseudo_variance = variances(chols, pseudo is not None)
        values[f"{name}_variance"] = variance
        if pseudo is not None:
            values[f"{name}_pseudo_variance"] = pseudo_variance
    return values, result.log_likelihood


def tolerances(dtype):
    size = 3e-4 if np.dtype(dtype).itemsize * (2 if np.dtype(dtype).kind == "f" else 1) == 8 else 0
    return {"rtol": size or 1e-11, "atol": size or 1e-11}


def assert_same(outputs, values, **kwargs):
    """Dictionaries of equal arrays, with NaN in the same places."""
    assert outputs.keys() == values.keys()
    for name, expected_output in values.items():
        np.testing.assert_allclose(outputs[name], expected_output, err_msg=name, **kwargs)


def central_differences(variables, loss, h=1e-5):
    """Central differences of a loss, by each element of each variable."""
    differences = []
    for variable in variables:
        was = np.asarray(variable)
        for index in np.ndindex(was.shape):
            sides = []
            for sign in (1, -1):
                step = np.zeros(was.shape)
                step[index] = sign * h
                variable.assign(was + step)
                sides.append(float(loss()))
            differences.append((sides[0] - sides[1]) / (2 * h))
        variable.assign(was)
    return np.array(differences)


def flat(gradients):
    return np.hstack([np.ravel(tf.convert_to_tensor(g)) for g in gradients])


def assert_gradients_along(directions, variables, gradients, loss, h=1e-5):
    """Compares gradients with central differences in random directions, which are returned."""
    rng, was = np.random.default_rng(7), [np.asarray(v) for v in variables]
    differences = []
    for _ in range(directions):
        way = [rng.normal(size=a.shape) for a in was]
        sides = []
        for sign in (1, -1):
            for variable, a, w in zip(variables, was, way, strict=True):
                variable.assign(a + sign * h * w)
            sides.append(float(loss()))
        differences.append((sides[0] - sides[1]) / (2 * h))
        expected = sum(np.sum(w * np.asarray(g)) for w, g in zip(way, gradients, strict=True))
        np.testing.assert_allclose(expected, differences[-1], rtol=1e-6, atol=1e-8)
    for variable, a in zip(variables, was, strict=True):
        variable.assign(a)
    return np.array(differences)


def assert_gradients(kf, z, eagerly):
    """Compares the gradients of a filter's loss with central differences, which are returned."""

    def value_and_gradients():
        with tf.GradientTape() as tape:
            kf(z)
            loss = kf.losses[0]
        return loss, tape.gradient(loss, kf.trainable_variables)

    if not eagerly:
        value_and_gradients = tf.function(value_and_gradients)
    _, gradients = value_and_gradients()
    differences = central_differences(kf.trainable_variables, lambda: value_and_gradients()[0])
    np.testing.assert_allclose(flat(gradients), differences, rtol=1e-6, atol=1e-8)
    return differences


def normals(rng, *shape):
    """Proper complex normals of variance 1."""
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def simulated(model, series, steps, seed):
    """Observations `[B, T, M]` of a proper model with constant matrices, by NumPy alone."""
    rng = np.random.default_rng(seed)
    f, q, h, r, mean, covariance = (
        np.asarray(getattr(model, name))
        for name in ("F", "Q", "H", "R", "initial_mean", "initial_covariance")
    )

    def draw(a):
        values, vectors = np.linalg.eigh(a)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.einsum("ij,bj->bi", root, normals(rng, series, len(a)))

    x, z = mean + draw(covariance), []
    for _ in range(steps):
        z.append(np.einsum("ij,bj->bi", h, x) + draw(r))
        x = np.einsum("ij,bj->bi", f, x) + draw(q)
    return np.stack(z, axis=1)


@keras.saving.register_keras_serializable(package="layers_tests")
class Rotation(cgp.training.Shareable, keras.layers.Layer):
    """A transition of a user's own: two modes that turn, each with a damping of its own."""

    def __init__(self, dtype="float64", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        start = keras.initializers.Constant([0.3125, -0.40625])  # exact in float32
        self.angles = self.add_weight(shape=(2,), initializer=start, name="angles")
        self.built = True

    def call(self):
        angles = tf.convert_to_tensor(self.angles)
        turns = tf.complex(tf.cos(angles), tf.sin(angles))
        return tf.linalg.diag(tf.constant([0.95, 0.8], turns.dtype) * turns)


@keras.saving.register_keras_serializable(package="layers_tests")
class Gain(keras.layers.Layer):
    """A complex gain, learned: a front end."""

    def __init__(self, dtype="float64", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        start = keras.initializers.Constant([0.8, 0.3])
        self.gain = self.add_weight(shape=(2,), initializer=start, name="gain")
        self.built = True

    def call(self, z):
        return tf.complex(self.gain[0], self.gain[1]) * z

    def compute_output_spec(self, z):
        return keras.KerasTensor(z.shape, z.dtype)


@keras.saving.register_keras_serializable(package="layers_tests")
class Features(keras.layers.Layer):
    """Real features of all outputs of the filter."""

    def call(self, said):
        mean = said["filtered_mean"]
        observed = tf.math.is_finite(tf.math.real(said["innovation"]))
        innovation = tf.where(observed, said["innovation"], tf.zeros_like(said["innovation"]))
        features = [tf.math.real(mean), tf.math.imag(mean), said["filtered_variance"]]
        features += [tf.abs(innovation) ** 2, said["innovation_variance"]]
        features += [tf.math.imag(said["predicted_mean"]), said["predicted_variance"]]
        return tf.concat(features, axis=-1)

    def compute_output_spec(self, said):
        n, m = (said[name].shape[-1] for name in ("filtered_mean", "innovation"))
        return keras.KerasTensor((*said["innovation"].shape[:-1], 5 * n + 2 * m), "float64")


def two_modes():
    """A model to be learned: two modes seen as one sum."""
    modes = np.array([0.95, 0.8]) * np.exp(1j * np.array([0.3125, -0.40625]))
    return statespace.LinearGaussian(
        np.diag(modes), np.diag([0.1, 0.3]) + 0j, np.ones((1, 2)) + 0j, np.array([[0.5 + 0j]])
    )


def guess():
    """The same model with other covariances of the noise."""
    true = two_modes()
    return statespace.LinearGaussian(
        true.F,
        np.eye(2) + 0j,
        true.H,
        np.eye(1) + 0j,
        initial_covariance=true.initial_covariance,
    )


def filter_of(kind="proper", **kwargs):
    model, z = made(kind)
    return cgp.KalmanFilter(model, **kwargs), z
