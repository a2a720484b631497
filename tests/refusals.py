"""What each public name refuses: the call, the class of the error, and words of its message.

A key is the public name, and what was wrong where the name has several entries. The first of each
name is a quick test, in tests/test_quick.py; all are tests of tests/test_bad_input.py.
"""

import functools

import keras
import matplotlib
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp import (
    ComplexNormal,
    ExactGP,
    NotPositiveDefiniteError,
    RecursiveGP,
    distributions,
    kernels,
    layers,
    likelihoods,
    linalg,
    means,
    metrics,
    plotting,
    statespace,
    training,
)
from cgp.kernels import RBF, Rotation

matplotlib.use("Agg")

I2 = np.eye(2) + 0j
ZERO = np.zeros(2, complex)
X, Z = np.array([0.0, 0.4, 1.1]), np.array([1.0 + 1j, 0.5j, -0.2])
INDEFINITE = np.array([[1.0, 2.0j], [-2.0j, 1.0]])
WALK = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])


def prediction(**changes):
    moments = {"mean": Z, "variance": np.ones(3), "pseudo_variance": 0 * Z}
    return {name: m for name, m in {**moments, **changes}.items() if m is not None}


def gp(**arguments) -> ExactGP:
    return ExactGP(RBF(1.0, 1.0), 0.1, **arguments)


def conditioned() -> ExactGP:
    model = gp()
    model.condition(X, Z)
    return model


def compiled(optimizer=None) -> ExactGP:
    model = gp()
    model.compile(optimizer=optimizer or cgp.optimizers.LBFGS())
    return model


def everything_fixed():
    model = ExactGP(RBF(fixed=("variance", "lengthscale")), 0.1, fixed="noise_variance")
    model.compile(optimizer=cgp.optimizers.LBFGS())
    return model


def tracker(**arguments) -> RecursiveGP:
    return RecursiveGP(RBF(1.0, 1.0), 0.1, **{"capacity": 4, **arguments})


def near() -> cgp.VecchiaGP:
    model = cgp.VecchiaGP(RBF(1.0, 1.0), 0.1)
    model.condition(X, Z)
    return model


CELLS = np.outer(Z, Z)


def grid(**arguments) -> cgp.GridGP:
    kernel = kernels.Along(RBF(1.0, 1.0), 0) * kernels.Along(RBF(1.0, 1.0), 1)
    return cgp.GridGP(kernel, **{"noise_variance": 0.1, **arguments})


def hidden(z):
    """Cells of which one is missing."""
    z = z.copy()
    z.flat[1] = np.nan
    return z


@functools.cache  # none of these calls may change it
def running(dimensions=None, series=None, **arguments) -> RecursiveGP:
    """A tracker with data."""
    model = tracker(**arguments)
    model.compile()
    x = X if dimensions is None else np.stack([X] * dimensions, axis=-1)
    model.process(x, Z if series is None else np.stack([Z] * series), verbose=0)
    return model


class Mean(cgp.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mean = self.add_weight(shape=(), initializer="zeros")

    def call(self, x):
        self.add_loss(tf.reduce_mean((x - self.mean) ** 2))
        return x - self.mean


def averaging(optimizer=None) -> Mean:
    model = Mean()
    model.compile(optimizer=optimizer or cgp.optimizers.LBFGS())
    return model


def functional(dtype):
    x = keras.Input((1,), dtype=dtype)
    return cgp.Functional(x, keras.layers.Dense(1, dtype="float64")(x))


def without_weights():
    """Not one whose output is its input, which Keras 3.10 refuses."""
    x = keras.Input((1,))
    return cgp.Functional(x, keras.layers.ReLU()(x))


def assert_refused(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert type(caught.value) is error  # not a subclass, such as NumPy's LinAlgError


REFUSALS = {
    # --- linear algebra
    "linalg.cholesky: indefinite": (lambda: linalg.cholesky(INDEFINITE), NotPositiveDefiniteError,
        r"shape \(2, 2\) is not positive definite: a covariance was expected"),
    "linalg.cholesky: integers": (lambda: linalg.cholesky(np.eye(2, dtype=int)), TypeError,
        r"a must be float32, float64, complex64 or complex128, got int64"),
    "linalg.cholesky: a vector": (
        lambda: linalg.cholesky(ZERO), ValueError, r"a must be a matrix.*got shape \(2,\)"),
    "linalg.cholesky: an oblong": (
        lambda: linalg.cholesky(np.ones((2, 3))), ValueError, r"a must be square.*\(2, 3\)"),
    "linalg.cholesky: not Hermitian": (
        lambda: linalg.cholesky(np.array([[1.0, 0.5j], [0.5j, 1.0]])), ValueError,
        r"\(2, 2\) is not Hermitian.*differs from its adjoint by 1"),
    "linalg.cholesky: a complex diagonal": (
        lambda: linalg.cholesky(np.diag([1.0 + 1j, 1.0])), ValueError, "not Hermitian.*by 2"),
    "linalg.cholesky: NaN": (
        lambda: linalg.cholesky(np.nan * I2), ValueError, r"\(2, 2\) has elements that are NaN"),
    "linalg.cholesky: indefinite and real": (
        lambda: linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])), NotPositiveDefiniteError,
        r"shape \(2, 2\) is not positive definite"),
    "linalg.solve: a vector": (
        lambda: linalg.solve(I2, ZERO), ValueError, r"b must be a matrix.*got shape \(2,\)"),
    "linalg.solve: another dtype": (lambda: linalg.solve(I2, np.ones((2, 1))), TypeError,
        "chol is complex128 but b is float64: give both one dtype"),
    "linalg.solve: another length": (lambda: linalg.solve(I2, np.ones((3, 1)) + 0j), ValueError,
        r"b must be \[..., 2, k\].*got shape \(3, 1\)"),
    "linalg.cholesky_update: a downdate out of the cone": (
        lambda: linalg.cholesky_update(I2, ZERO + 1, -1.0), NotPositiveDefiniteError,
        r"is not positive definite.*update_vector of shape \(2,\)"),
    "linalg.cholesky_update: another dtype": (
        lambda: linalg.cholesky_update(I2, np.ones(2)), TypeError,
        "update_vector must have the dtype of chol, complex128, got float64"),
    "linalg.cholesky_update: another length": (
        lambda: linalg.cholesky_update(I2, np.ones(3) + 0j), ValueError,
        r"update_vector must be \[..., 2\].*got shape \(3,\)"),
    "linalg.cholesky_update: a complex multiple": (
        lambda: linalg.cholesky_update(I2, ZERO, 1j), TypeError,
        "multiplier must be real, got complex128"),
    "linalg.cholesky_update: NaN": (lambda: linalg.cholesky_update(I2, ZERO + np.nan), ValueError,
        r"update_vector, of shape \(2,\), has elements that are NaN"),
    "linalg.cholesky_update: unlike batches": (
        lambda: linalg.cholesky_update(np.stack([I2] * 3), np.zeros((2, 2), complex)), ValueError,
        r"batch axes.*chol \(3, 2, 2\), update_vector \(2, 2\)"),
    "linalg.cholesky_condition": (lambda: linalg.cholesky_condition(I2, ZERO, -1.0), ValueError,
        "noise_variance must be finite and not negative"),
    "linalg.cholesky_append: another length": (
        lambda: linalg.cholesky_append(I2, np.zeros(3) + 0j, 1.0), ValueError,
        r"cross must be \[..., 2\].*got shape \(3,\)"),
    "linalg.cholesky_append: a dependent row": (
        lambda: linalg.cholesky_append(I2, ZERO + 1, 1.0), NotPositiveDefiniteError,
        "depends on the rows before it.*duplicated point"),
    "linalg.cholesky_append: a full buffer": (
        lambda: linalg.cholesky_append(I2, ZERO, 1.0, size=2), ValueError,
        "size is the number of rows in use: the buffer is full: expected 0 to 1, got 2"),
    "linalg.cholesky_append: a complex variance": (
        lambda: linalg.cholesky_append(I2, ZERO, 1 + 0j), TypeError,
        "variance must be real, got complex128"),
    "linalg.cholesky_remove: a row that is not there": (
        lambda: linalg.cholesky_remove(I2, 2), ValueError,
        "index is the row to remove: expected 0 to 1, got 2"),
    "linalg.cholesky_remove: half a row": (
        lambda: linalg.cholesky_remove(I2, 0.5), TypeError, "index must be an integer, got float"),
    "linalg.triangularize: a vector": (
        lambda: linalg.triangularize(ZERO), ValueError, r"a must be a matrix.*got shape \(2,\)"),
    "linalg.triangularize: a tall matrix": (
        lambda: linalg.triangularize(np.ones((3, 2))), ValueError,
        r"a must be \[..., n, m\] with m >= n, got shape \(3, 2\)"),
    "linalg.triangularize: NaN": (
        lambda: linalg.triangularize(np.nan * I2), ValueError, r"a, of shape \(2, 2\), has.*NaN"),
    "linalg.from_composite": (lambda: linalg.from_composite(np.eye(3)), ValueError,
        r"composite must be \[..., 2m, 2n\], got shape \(3, 3\)"),
    "linalg.inverse": (
        lambda: linalg.inverse(np.ones((2, 3))), ValueError, r"chol must be square.*\(2, 3\)"),
    "linalg.join_parts": (lambda: linalg.join_parts(ZERO), TypeError,
        "parts must be float32 or float64, got complex128"),
    "linalg.log_det": (
        lambda: linalg.log_det(np.ones((2, 3))), ValueError, r"chol must be square.*\(2, 3\)"),
    "linalg.semidefinite_factor": (
        lambda: linalg.semidefinite_factor(INDEFINITE), NotPositiveDefiniteError,
        r"\(2, 2\) is indefinite beyond rounding: its smallest eigenvalue is -1"),
    "linalg.stack_parts": (
        lambda: linalg.stack_parts(X), TypeError, "z must be complex64 or complex128, got float64"),
    "linalg.stored_cholesky": (lambda: linalg.stored_cholesky(I2, np.eye(3) + 0j), ValueError,
        r"chol must be shaped like a, \(3, 3\), got shape \(2, 2\)"),
    "linalg.to_composite": (lambda: linalg.to_composite(I2, np.eye(3) + 0j), ValueError,
        r"covariance and pseudo_covariance must be of one shape.*\(2, 2\) and \(3, 3\)"),
    # --- distributions and likelihoods
    "ComplexNormal: factor of another size": (
        lambda: ComplexNormal(ZERO, np.eye(3) + 0j), ValueError,
        r"complex chol must be \[..., 2, 2\] for a loc of shape \(2,\), got shape \(3, 3\)"),
    "ComplexNormal: real mean": (lambda: ComplexNormal(np.zeros(2), I2), TypeError,
        "loc must be complex64 or complex128, got float64"),
    "ComplexNormal: scalar mean": (
        lambda: ComplexNormal(1j, I2), ValueError, r"loc must be a vector.*got a scalar"),
    "ComplexNormal: factor of another precision": (
        lambda: ComplexNormal(ZERO, np.complex64(I2)), TypeError,
        r"complex128 \(proper\) or float64 \(improper\).*got complex64"),
    "ComplexNormal: real factor that is not composite": (
        lambda: ComplexNormal(ZERO, np.eye(2)), ValueError,
        r"real, composite chol must be \[..., 4, 4\].*got shape \(2, 2\)"),
    "ComplexNormal: covariance for a factor": (lambda: ComplexNormal(ZERO, I2 + 0.1), ValueError,
        "chol must be lower triangular, and is Hermitian.*cgp.linalg.cholesky"),
    "ComplexNormal: factor with a negative diagonal": (
        lambda: ComplexNormal(ZERO, -I2), NotPositiveDefiniteError,
        "real diagonal that is not negative"),
    "ComplexNormal: NaN mean": (
        lambda: ComplexNormal(ZERO + np.nan, I2), ValueError, r"loc of shape \(2,\) has.*NaN"),
    "ComplexNormal: batches that do not fit": (
        lambda: ComplexNormal(np.zeros((3, 2), complex), np.stack([I2] * 4)), ValueError,
        r"batch shapes \(3,\) and \(4,\) do not broadcast"),
    "ComplexNormal: covariance that is not Hermitian": (
        lambda: ComplexNormal.from_covariance(ZERO, I2 + np.diag([1j], 1)), ValueError,
        "covariance must be Hermitian: it differs from its adjoint by 1"),
    "ComplexNormal: indefinite covariance": (
        lambda: ComplexNormal.from_covariance(ZERO, INDEFINITE), NotPositiveDefiniteError,
        r"\(2, 2\) is indefinite beyond rounding: its smallest eigenvalue is -1"),
    "ComplexNormal: pseudo-covariance that is not symmetric": (
        lambda: ComplexNormal.from_covariance(ZERO, I2, 0.1 * INDEFINITE), ValueError,
        "pseudo_covariance must be symmetric: it differs from its transpose by 0.4"),
    "ComplexNormal: pseudo-covariance that no process has": (
        lambda: ComplexNormal.from_covariance(ZERO, I2, 1.2j * I2), NotPositiveDefiniteError,
        "no process has this covariance and pseudo-covariance.*smallest eigenvalue is -0.1"),
    "ComplexNormal: real pseudo-covariance": (
        lambda: ComplexNormal.from_covariance(ZERO, I2, np.eye(2)), TypeError,
        "pseudo_covariance must be complex128 like loc, got float64"),
    "ComplexNormal: covariance of another size": (
        lambda: ComplexNormal.from_covariance(ZERO, np.eye(3) + 0j), ValueError,
        r"covariance must be \[..., 2, 2\].*got shape \(3, 3\)"),
    "ComplexNormal: density of a real value": (
        lambda: ComplexNormal(ZERO, I2).log_prob(np.zeros(2)), TypeError,
        "value must be complex.*got float64"),
    "ComplexNormal: density of a value of another length": (
        lambda: ComplexNormal(ZERO, I2).log_prob(np.zeros(3, complex)), ValueError,
        r"value must be \[..., 2\], got shape \(3,\)"),
    "ComplexNormal: density of NaN": (
        lambda: ComplexNormal(ZERO, I2).log_prob(ZERO + np.nan), ValueError, "value of shape.*NaN"),
    "ComplexNormal: density of a singular normal": (
        lambda: ComplexNormal(ZERO, np.diag([1.0, 0.0]) + 0j).log_prob(ZERO),
        NotPositiveDefiniteError, "singular"),
    "ComplexNormal: divergence from something else": (
        lambda: ComplexNormal(ZERO, I2).kl_divergence("normal"), TypeError,
        "other must be a ComplexNormal, got str"),
    "ComplexNormal: fractional seed": (lambda: ComplexNormal(ZERO, I2).sample(seed=0.5), ValueError,
        "seed must be one integer or two, got float32"),
    "distributions.ellipses": (lambda: distributions.ellipses(Z, X, Z, 95), ValueError,
        "probability must lie between 0 and 1, got 95: as a fraction, 0.95"),
    "distributions.marginals": (lambda: distributions.marginals(Z), TypeError,
        "prediction must be a ComplexNormal, or a dict.*got ndarray"),
    "distributions.principal_axes": (lambda: distributions.principal_axes(-X, 0 * Z), ValueError,
        "2 of 3 points have a variance that is negative"),
    "distributions.squared_radius": (lambda: distributions.squared_radius(95), ValueError,
        "probability must lie between 0 and 1, got 95: as a fraction, 0.95"),
    "likelihoods.Likelihood": (lambda: gp(likelihood="t"), TypeError,
        "likelihood must be one of cgp.likelihoods, got 't'"),
    "likelihoods.Magnitude": (lambda: gp(likelihood=likelihoods.Magnitude()), ValueError,
        r"Magnitude\(\) is for filters"),
    "likelihoods.OneBit": (
        lambda: gp(likelihood=likelihoods.OneBit()).condition(X, X + 0j), ValueError,
        "z must have signs, of its real and of its imaginary part, but some are zero"),
    "likelihoods.StudentT": (lambda: likelihoods.StudentT(-1.0), ValueError,
        "degrees_of_freedom must be positive and finite, got -1.0"),
    "likelihoods.VonMises": (
        lambda: statespace.filter(WALK, X, likelihood=likelihoods.VonMises()), ValueError,
        r"VonMises\(\) is of complex signals, but the observations are real"),
    # --- state-space models and filters
    "statespace.LinearGaussian": (
        lambda: statespace.LinearGaussian(I2, INDEFINITE, I2, I2), NotPositiveDefiniteError,
        r"Q, of shape \(2, 2\), must be a covariance, but it is indefinite"),
    "statespace.ConditionallyLinear": (
        lambda: statespace.ConditionallyLinear(WALK, dict, 3, [[1.0]], [0.0], [[1.0]]), TypeError,
        "transition must be a function, got int"),
    "statespace.NonlinearGaussian": (
        lambda: statespace.NonlinearGaussian(3, tf.sin, [[1.0]], [[1.0]], [0.0], [[1.0]]),
        TypeError, "transition must be a function, got int"),
    "statespace.InteractingModels": (lambda: statespace.InteractingModels([], [[1.0]]), ValueError,
        "models must be at least one, got none"),
    "statespace.Rule": (lambda: statespace.filter(WALK, X, rule="cubature"), TypeError,
        "rule must be a Taylor"),
    "statespace.widely_linear": (lambda: statespace.widely_linear(WALK), TypeError,
        "is of complex signals, but the model is float64"),
    "statespace.filter": (
        lambda: statespace.filter(WALK, Z), TypeError, "z must be real, got complex128"),
    "statespace.steady_state": (
        lambda: statespace.steady_state(statespace.LinearGaussian(
            [[1.0]], [[0.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])),
        ValueError, "no stabilising steady state"),
    "statespace.log_likelihood": (lambda: statespace.log_likelihood(WALK, []), ValueError,
        r"the series is empty: got z of shape \(0, 1\)"),
    "statespace.smooth": (lambda: statespace.smooth(WALK, X, inputs=X), ValueError,
        "inputs were given, but the model has none"),
    "statespace.step": (lambda: statespace.step(WALK, (X[:1], X), 1.0), ValueError,
        r"factor of the state must be \[..., 1, 1\], got shape \(3,\)"),
    "statespace.forecast": (
        lambda: statespace.forecast(WALK, statespace.filter(WALK, X), 0), ValueError,
        "steps must be a whole number, at least 1, got 0"),
    "statespace.from_kernel": (
        lambda: statespace.from_kernel(kernels.Matern12(1.0, 1.0), 0.0), ValueError,
        "spacing must be a positive number, got 0.0"),
    "statespace.sample": (lambda: statespace.sample(WALK, 0), ValueError,
        "steps must be a whole number, at least 1, got 0"),
    "statespace.posterior_sample": (
        lambda: statespace.posterior_sample(WALK, X, seed=0.5), ValueError,
        "seed must be one integer or two, got float32"),
    "statespace.particle_filter": (
        lambda: statespace.particle_filter(WALK, X, particles=0), ValueError,
        "particles must be a whole number, at least 1, got 0"),
    "statespace.diagnostics": (
        lambda: statespace.diagnostics(statespace.filter(WALK, X), level=95), ValueError,
        "level must lie between 0 and 1, got 95: as a fraction, 0.95"),
    "KalmanFilter": (lambda: cgp.KalmanFilter(WALK, learn="P"), ValueError,
        r"learn names \['P'\], but what can be learned is \['B', 'F', 'H', 'Q', 'R', "),
    "Bank": (lambda: cgp.Bank(cgp.KalmanFilter(WALK), capacity=0), ValueError,
        "capacity must be a whole number, at least 1, got 0"),
    "Clock": (lambda: cgp.Clock("year"), ValueError, "unit must be one of nanosecond.*got 'year'"),
    # --- kernels, which have a table of their own in tests/kernels/test_algebra.py, and means
    "kernels.Kernel": (lambda: RBF(1.0, 1.0).covariance(Z, X), TypeError,
        "x1 must be real, got complex128: embed a complex input"),
    "kernels.RBF": (lambda: RBF(-1.0), ValueError, "variance must be positive, got -1.0"),
    "kernels.ARMA": (
        lambda: kernels.ARMA(1, 0), ValueError, "ma_order must be a whole number.*got 0"),
    "kernels.Autoregressive": (
        lambda: kernels.Autoregressive(0), ValueError, "^order must be a whole number.*got 0"),
    "kernels.Along": (lambda: kernels.Along(RBF(), -1), ValueError,
        "axis must be a whole number, at least 0, got -1"),
    "kernels.Levels": (lambda: kernels.Levels(2, [[2.0, 0.0], [0.0, 1.0]]), ValueError,
        r"factor must be \[2, 2\], 1 for the reference"),
    "kernels.Levels: one": (lambda: kernels.Levels(1), ValueError,
        "levels must be a whole number, at least 2, got 1"),
    "kernels.Levels: a vector": (lambda: kernels.Levels(2, [1.0, 1.0]), ValueError,
        r"factor must be \[2, 2\], got shape \(2,\)"),
    "kernels.Conjugate": (
        lambda: kernels.Conjugate(1.0), TypeError, "Conjugate is made of kernels, got 1.0"),
    "kernels.Constant": (
        lambda: kernels.Constant(-1.0), ValueError, "variance must be positive, got -1.0"),
    "kernels.Coregionalized": (
        lambda: kernels.Coregionalized(RBF(), 3, rank=4), ValueError,
        "rank must be at most the number of outputs, 3, got 4"),
    "kernels.Driven": (lambda: kernels.Driven(RBF(), kernels.Matern12()), ValueError,
        r"resonance must be a product of a Matern12 and a Rotation, got RBF\("),
    "kernels.EllipticalOU": (
        lambda: kernels.EllipticalOU(damping=0.0), ValueError, "damping must be positive, got 0.0"),
    "kernels.Empirical": (lambda: kernels.Empirical.from_series(X, [Z]), ValueError,
        r"z must have at least 2 series, \[S, N\], got 1"),
    "kernels.ExponentialDelays": (lambda: kernels.ExponentialDelays(delay_spread=0.0), ValueError,
        "delay_spread must be positive, got 0.0"),
    "kernels.linear_sde": (
        lambda: kernels.linear_sde(kernels.Generator(np.eye(2), np.eye(2)), [1.0, 0.0]),
        ValueError, r"no stationary covariance: the eigenvalues of the drift A.*got \[1"),
    "kernels.IntegratedRandomWalk": (
        lambda: kernels.IntegratedRandomWalk(0.0), ValueError, "variance must be positive, got 0"),
    "kernels.MarkovApproximation": (lambda: kernels.MarkovApproximation(RBF(), 0), ValueError,
        "order must be a whole number from 1 to 8, got 0"),
    "kernels.Matern": (
        lambda: kernels.Matern(smoothness=0.0), ValueError, "smoothness must be positive, got 0.0"),
    "kernels.Matern12": (
        lambda: kernels.Matern12(lengthscale=0.0), ValueError, "lengthscale must be positive, got"),
    "kernels.Matern32": (
        lambda: kernels.Matern32(lengthscale=0.0), ValueError, "lengthscale must be positive, got"),
    "kernels.Matern52": (
        lambda: kernels.Matern52(lengthscale=0.0), ValueError, "lengthscale must be positive, got"),
    "kernels.Periodic": (
        lambda: kernels.Periodic(frequency=0.0), ValueError, "frequency must be positive, got 0.0"),
    "kernels.Product": (
        lambda: kernels.Product([]), ValueError, "Product needs at least one kernel, got none"),
    "kernels.RandomWalk": (lambda: kernels.RandomWalk(start=1j), ValueError,
        "start must be a finite real number, got 1j"),
    "kernels.RationalQuadratic": (
        lambda: kernels.RationalQuadratic(alpha=0.0), ValueError, "alpha must be positive, got 0"),
    "kernels.RelaxationTimes": (
        lambda: kernels.RelaxationTimes(1.0, 0.5, 1.0).covariance([-1.0, 2.0]), ValueError,
        "RelaxationTimes is over positive frequencies, got x = -1"),
    "kernels.Rotation": (lambda: Rotation(1j), TypeError, "frequency must be real, got 1j"),
    "kernels.Sum": (lambda: kernels.Sum([]), ValueError, "Sum needs at least one kernel, got none"),
    "kernels.Szego": (
        lambda: kernels.Szego(decay=-1.0), ValueError, "decay must be positive, got -1.0"),
    "kernels.TappedDelays": (lambda: kernels.TappedDelays([0.0, 1.0], [1.0]), ValueError,
        r"powers must be one for each of 2 delays, got \(1,\)"),
    "kernels.TwoScale": (
        lambda: kernels.TwoScale(ratio=1.0), ValueError, "ratio must be between 0 and 1, got 1.0"),
    "kernels.UniformDelays": (
        lambda: kernels.UniformDelays(width=-1.0), ValueError, "width must be positive, got -1.0"),
    "kernels.White": (
        lambda: kernels.White(-1.0), ValueError, "variance must be positive, got -1.0"),
    "kernels.Outputs": (
        lambda: kernels.Outputs(RBF()), TypeError,
        "Outputs takes a list, a kernel for each output"),
    "kernels.WidelyLinear": (lambda: kernels.WidelyLinear(RBF(), 2.0), ValueError,
        "coefficient must be complex of modulus at most 1, got 2.0"),
    "means.Mean: a real number": (
        lambda: gp(mean=1.0), TypeError, "mean must be one of cgp.means or None, got 1.0"),
    "means.Mean: a complex number": (
        lambda: gp(mean=1j), TypeError, "mean must be one of cgp.means or None, got 1j"),
    "means.Outputs": (
        lambda: means.Outputs([means.Constant()]), ValueError, "a mean for each of at least two"),
    "means.Polynomial: a negative degree": (
        lambda: means.Polynomial(-1), ValueError, "degree must be a whole number.*got -1"),
    "means.Polynomial: prior when marginalised": (
        lambda: gp(mean=means.Polynomial(1, marginalized=True)).predict(X), ValueError,
        "a marginalised trend has no prior: condition on data first"),
    "means.Polynomial: fewer data than coefficients": (
        lambda: gp(mean=means.Polynomial(3, marginalized=True)).condition(X, Z), ValueError,
        "a trend of 4 coefficients .* 3 points determine 3 of them, it needs more different x"),
    "means.Polynomial: half a degree": (
        lambda: means.Polynomial(0.5), ValueError, "degree must be a whole number.*got 0.5"),
    "means.Polynomial: coefficients of another degree": (
        lambda: means.Polynomial(2, [1.0, 2.0]), ValueError, r"3 coefficients, got shape \(2,\)"),
    "means.Polynomial: inputs of a plane": (
        lambda: gp(mean=means.Polynomial(1)).condition(np.zeros((3, 2)), Z), ValueError,
        "polynomial trend needs inputs of one dimension, got 2"),
    "means.Constant": (
        lambda: means.Constant(np.nan), ValueError, "value must be complex and finite, got nan"),
    "means.Exponentials": (
        lambda: means.Exponentials(0), ValueError, "order must be at least 1"),
    "means.Rational": (
        lambda: means.Rational(-1), ValueError, "order must be a whole number, at least 0, got -1"),
    # --- Gaussian processes
    "ExactGP: real targets": (
        lambda: gp().condition(X, Z.real), TypeError, "z must be complex, got float64"),
    "ExactGP: no kernel": (lambda: ExactGP("rbf", 0.1), TypeError, "one of cgp.kernels, got 'rbf'"),
    "ExactGP: kernel class": (
        lambda: ExactGP(RBF, 0.1), TypeError, "one of cgp.kernels, got <class"),
    "ExactGP: no noise variance": (
        lambda: ExactGP(RBF(), 0.0), ValueError, "noise_variance must be positive, got 0.0"),
    "ExactGP: negative noise variance": (
        lambda: ExactGP(RBF(), -1.0), ValueError, "noise_variance must be positive, got -1.0"),
    "ExactGP: complex noise variance": (
        lambda: ExactGP(RBF(), 1j), TypeError, "noise_variance must be real and positive, got 1j"),
    "ExactGP: too large a noise pseudo-variance": (
        lambda: gp(noise_pseudo_variance=0.2j), ValueError,
        "noise_pseudo_variance must be at most noise_variance.*0.2j and 0.1"),
    "ExactGP: dtype of another kernel": (
        lambda: ExactGP(RBF(dtype="float32"), 0.1, dtype="float64"), TypeError,
        "the model is float64, but RBF.* is float32"),
    "ExactGP: dtype of another mean": (lambda: gp(mean=means.Constant(dtype="float32")), TypeError,
        "the model is float64, but .* is float32"),
    "ExactGP: fixing what is not there": (lambda: gp(fixed="variance"), ValueError,
        r"fixed names \['variance'\].*ExactGP are \['noise_variance'\]"),
    "ExactGP: prior that is no distribution": (
        lambda: gp(priors={"noise_variance": 0.1}), TypeError, "a prior must be.*got 0.1"),
    "ExactGP: complex inputs": (
        lambda: gp().condition(X + 1j, Z), TypeError, "x must be real, got complex128"),
    "ExactGP: targets of single precision": (lambda: gp().condition(X, np.complex64(Z)), TypeError,
        r'z is complex64, but the model is complex128: promote it, z.astype\("complex128"\)'),
    "ExactGP: targets of double precision": (
        lambda: ExactGP(RBF(1.0, 1.0, dtype="float32"), 0.1).condition(X, Z), TypeError,
        "z is complex128, but the model is complex64: round it"),
    "ExactGP: other number of targets": (
        lambda: gp().condition(X, Z[:2]), ValueError, r"points as x.*\(2,\) and x \(3, 1\)"),
    "ExactGP: inputs of a batch without their axis": (
        lambda: gp().condition(np.stack([X, X]), np.stack([Z, Z])), ValueError,
        r"2 series of 3 samples, each with inputs of its own, x\[..., None\]"),
    "ExactGP: unlike batches": (
        lambda: gp().condition(np.zeros((2, 3, 1)), np.stack([Z] * 4)), ValueError,
        r"batch axes of x, \(2,\), must be those of z, \(4,\)"),
    "ExactGP: scalar inputs": (
        lambda: gp().condition(0.0, Z), ValueError, r"x must be \[N\].*got a scalar"),
    "ExactGP: empty series": (
        lambda: gp().condition([], np.zeros(0, complex)), ValueError, "x and z are empty"),
    "ExactGP: nothing at all": (lambda: gp().condition([], []), ValueError, "x and z are empty"),
    "ExactGP: NaN input": (
        lambda: gp().condition([0.0, np.nan, 1.0], Z), ValueError, "x must be finite, but has NaN"),
    "ExactGP: infinite target": (
        lambda: gp().condition(X, [1j, np.inf, 0]), ValueError, "z has infinite elements"),
    "ExactGP: all targets missing": (
        lambda: gp().condition(X, Z + np.nan), ValueError, "every target is missing"),
    "ExactGP: all targets of a series missing": (
        lambda: gp().condition(X, np.stack([Z, Z + np.nan])), ValueError,
        r"every target of series 1 is missing.*leave it out: z\[~np\.isnan"),
    "ExactGP: all targets of some series missing": (
        lambda: gp().condition(X, np.stack([Z, Z + np.nan, Z + np.nan])), ValueError,
        "every target of series 1 and 1 more is missing"),
    "ExactGP: series in columns": (lambda: gp().condition(X, np.stack([Z, Z], axis=1)), ValueError,
        r"z must be \[\.\.\., N\].*got shapes \(3, 2\).*of 2 series of 3 samples, z\.T"),
    "ExactGP: values for missing, as by step(time, value) of a filter": (
        lambda: gp().condition(X, Z, missing=Z), TypeError,
        "missing must be bool.*got complex128: values come first, and a KalmanFilter takes no"),
    "ExactGP: missing that is not bool": (
        lambda: gp().condition(X, Z, missing=[0, 1, 0]), TypeError,
        "missing must be bool, True where missing, got int64"),
    "ExactGP: missing of another length": (
        lambda: gp().condition(X, Z, missing=[True, False]), ValueError,
        r"missing must be broadcast against z of shape \(3,\), got \(2,\)"),
    "ExactGP: dates": (lambda: gp().condition(np.array(["2020-01-01"] * 3, "M8[D]"), Z), TypeError,
        "x must be real numbers, got datetime64"),
    "ExactGP: a table of u and v in place of x and z": (
        lambda: compiled().fit(np.ones((3, 2))), ValueError,
        r"z is missing: fit\(x, z\) takes the points x and.*frame\[.u.\] \+ 1j"),
    "ExactGP: fit in batches": (lambda: compiled().fit(X, Z, batch_size=2), ValueError,
        "batch_size=2: the likelihood of ExactGP takes all data at once"),
    "ExactGP: fit for no epochs": (
        lambda: compiled().fit(X, Z, epochs=0), ValueError, "epochs=0 leaves no iteration"),
    "ExactGP: fit of real targets": (
        lambda: compiled().fit(X, Z.real), TypeError, "z must be complex, got float64"),
    "ExactGP: fit of everything fixed": (
        lambda: everything_fixed().fit(X, Z), ValueError, "no trainable hyperparameters"),
    "ExactGP: likelihood of real targets": (
        lambda: gp().log_marginal_likelihood(X, Z.real), TypeError, "z must be complex"),
    "ExactGP: likelihood of other lengths": (
        lambda: gp().log_marginal_likelihood(X[:2], Z), ValueError, "as many points as x"),
    "ExactGP: evaluation of real targets": (
        lambda: compiled().evaluate(X, Z.real), TypeError, "z must be complex"),
    "ExactGP: prediction at NaN": (
        lambda: conditioned().predict([np.nan]), ValueError, "x must be finite"),
    "ExactGP: prediction at complex points": (
        lambda: conditioned().predict([1j]), TypeError, "x must be real, got complex128"),
    "ExactGP: prediction at a scalar": (
        lambda: conditioned().predict(0.5), ValueError, r"x must be \[N\].*got a scalar"),
    "ExactGP: posterior in other dimensions": (
        lambda: conditioned().posterior(np.zeros((4, 2))), ValueError,
        r"as many dimensions as the data, 1, got shape \(4, 2\)"),
    "ExactGP: posterior of a batch, of one series": (
        lambda: conditioned().posterior(np.zeros((5, 4, 1))), ValueError,
        r"must be \[M\] or \[M, D\].*got shape \(5, 4, 1\)"),
    "ExactGP: leaving one of none out": (lambda: gp().loo(), ValueError, "there are no data"),
    "ExactGP: errors without data": (
        lambda: gp().parameter_covariance(), ValueError, "there are no data"),
    "ExactGP: discrete prior": (
        lambda: gp(priors={"noise_variance": tfp.distributions.Poisson(2.0)}), ValueError,
        "a prior must be a continuous distribution, got Poisson, a discrete"),
    "ExactGP: targets whose squares underflow": (lambda: gp().condition(X, 1e-170 * Z), ValueError,
        r"z is too small, at most 1.41e-170: .* at least 1.5e-154.*Give z another unit"),
    "ExactGP: kernel of another dimension": (
        lambda: ExactGP(RBF(1.0, [1.0, 2.0]), 0.1).condition(X, Z), ValueError,
        "lengthscale has 2 elements.*this x has 1: give as many"),
    "ExactGP: a matrix of noise variances": (lambda: ExactGP(RBF(), [[0.1, 0.2, 0.3]]), ValueError,
        r"noise_variance must be one number, got shape \(1, 3\)"),
    "ExactGP: a noise variance for each point, as one for each group": (
        lambda: ExactGP(RBF(1.0, 1.0), [0.1, 0.2, 0.3]).condition(X, Z), ValueError,
        "noise_groups"),
    "ExactGP: pseudo-variance of no noise": (
        lambda: ExactGP(RBF(), 0.0, 0.1), ValueError, "noise_variance must be positive, got 0.0"),
    "ExactGP: no pseudo-variance": (
        lambda: gp(noise_pseudo_variance=None), TypeError, "noise_pseudo_variance.*got None"),
    "ExactGP: pseudo-variance in letters": (
        lambda: gp(noise_pseudo_variance="0.1"), TypeError, "noise_pseudo_variance.*got '0.1'"),
    "ExactGP: call with real targets": (
        lambda: gp()((tf.constant(X), tf.constant(Z.real))), TypeError, "z must be complex"),
    "ExactGP: call with other lengths": (
        lambda: gp()((tf.constant(X), tf.constant(Z[:2]))), ValueError, "as many points as x"),
    "ExactGP: fewer than no draws": (
        lambda: conditioned().sample(X, -1), ValueError, "count.*got -1"),
    "GridGP": (lambda: cgp.GridGP(RBF(1.0, 1.0)), ValueError,
        r"product of Along\(kernel, axis\).*got the factor RBF\("),
    "GridGP: a sum": (
        lambda: cgp.GridGP(kernels.Along(RBF(), 0) + kernels.Along(RBF(), 1)), ValueError,
        r"product of Along\(kernel, axis\), one for each axis.*take ExactGP"),
    "GridGP: an axis without a kernel": (lambda: cgp.GridGP(kernels.Along(RBF(), 1)), ValueError,
        r"no factor is along axis 0.*Along\(Constant\(1.0\), 0\)"),
    "GridGP: two improper axes": (
        lambda: cgp.GridGP(kernels.Along(kernels.WidelyLinear(RBF()), 0)
                           * kernels.Along(kernels.WidelyLinear(RBF()), 1)), ValueError,
        r"along axes \[0, 1\] are improper"),
    "GridGP: noise of each cell": (lambda: grid(noise_variance=[0.1, 0.2]), ValueError,
        r"noise variance of a GridGP is one number.*got \[0.1, 0.2\]"),
    "GridGP: another likelihood": (
        lambda: grid(likelihood=likelihoods.StudentT()), ValueError,
        "a GridGP has no likelihood.*take ExactGP"),
    "GridGP: a prediction between labels": (
        lambda: cgp.GridGP(kernels.Along(kernels.Levels(2, I2), 0), 0.1).predict(([0.5],)),
        ValueError, "must be labels, whole numbers from 0 to 1, got 0.5"),
    "GridGP: noise of each cell later": (
        lambda: grid().condition((X, X), CELLS, noise_variance=0.1), ValueError,
        "all cells of a GridGP have the one learned noise variance"),
    "GridGP: points": (lambda: grid().condition(np.stack([X, X], -1), CELLS), ValueError,
        "x must be a tuple of the coordinates of 2 axes.*got a ndarray"),
    "GridGP: one axis": (lambda: grid().condition((X,), CELLS), ValueError,
        r"coordinates of 2 axes, one for each axis that the kernel .* for, got 1 of them"),
    "GridGP: an axis of points": (
        lambda: grid().condition((X, np.stack([X, X], -1)), CELLS), ValueError,
        r"x\[1\] must be the coordinates of axis 1, \[n\], got shape \(3, 2\)"),
    "GridGP: a coordinate twice": (
        lambda: grid().condition((X, [0.0, 1.0, 1.0]), CELLS), ValueError,
        r"x\[1\] has the coordinate 1 more than once"),
    "GridGP: axes the other way round": (
        lambda: grid().condition((X, X[:2]), CELLS[:2]), ValueError,
        r"z must be \[..., 3, 2\].*got shape \(2, 3\): rearranged, z.T"),
    "GridGP: real cells": (lambda: grid().condition((X, X), CELLS.real), TypeError,
        "z must be complex"),
    "GridGP: derivatives": (
        lambda: grid().condition((X, X), CELLS, observed="derivative"), ValueError,
        "the cells of a GridGP are values"),
    "GridGP: other cells missing in each": (
        lambda: grid().condition((X, X), np.stack([CELLS, hidden(CELLS)])), ValueError,
        "other cells missing in one grid of the batch"),
    "GridGP: labels out of range": (
        lambda: cgp.GridGP(kernels.Along(kernels.Levels(2, I2), 0)).condition(([0, 1, 2],), Z),
        ValueError, "must be labels, whole numbers from 0 to 1, got 2"),
    "SparseGP": (lambda: cgp.SparseGP(RBF(), 0.1, inducing=0), ValueError,
        "inducing must be a whole number, at least 1, got 0"),
    "SparseGP: a row of points": (
        lambda: cgp.SparseGP(RBF(), 0.1, inducing=[0.0, 1.0]), ValueError,
        r"inducing must be the number of inducing points, or the points, \[m, D\].*\(2,\)"),
    "StateSpaceGP": (lambda: cgp.StateSpaceGP(RBF(), 0.1), ValueError,
        r"RBF\(.*is not Markov: no finite state-space form.*take ExactGP for others"),
    "VecchiaGP": (lambda: cgp.VecchiaGP(RBF(), 0.1, neighbours=0), ValueError,
        "neighbours must be a whole number, at least 1, got 0"),
    "VecchiaGP: another likelihood": (
        lambda: cgp.VecchiaGP(RBF(), 0.1, likelihood=likelihoods.StudentT()), ValueError,
        "a VecchiaGP has no likelihood.*take ExactGP"),
    "VecchiaGP: draws of several points": (
        lambda: near().sample(X), ValueError, "has no draws of them together.*a SparseGP"),
    "VecchiaGP: a covariance between points": (
        lambda: near().posterior(X).covariance(), ValueError, "has no covariance between them"),
    "metrics.RunningCalibration": (
        lambda: metrics.RunningCalibration(window=1), ValueError, "window .* at least 2, got 1"),
    "metrics.gate": (
        lambda: metrics.gate(np.zeros(2), 0.99), TypeError, "Step of a filter, got ndarray"),
    "RecursiveLeastSquares: no coefficients": (
        lambda: cgp.RecursiveLeastSquares(0), ValueError, "taps must be a whole number.*got 0"),
    "RecursiveGP: no capacity": (
        lambda: tracker(capacity=0), ValueError, "capacity must be.*got 0"),
    "RecursiveGP: no kernel": (
        lambda: RecursiveGP("rbf", 0.1), TypeError, "one of cgp.kernels, got 'rbf'"),
    "RecursiveGP: no noise variance": (
        lambda: RecursiveGP(RBF(), 0.0), ValueError, "noise_variance must be positive, got 0.0"),
    "RecursiveGP: unknown policy": (lambda: tracker(policy="fifo"), ValueError,
        "policy must be one of sliding, growing, budget, got 'fifo'"),
    "RecursiveGP: policy that is no word": (
        lambda: tracker(policy=None), ValueError, "policy must be.*got None"),
    "RecursiveGP: negative capacity": (
        lambda: tracker(capacity=-3), ValueError, "capacity must be.*got -3"),
    "RecursiveGP: half a point of capacity": (
        lambda: tracker(capacity=2.5), ValueError, "capacity must be.*got 2.5"),
    "RecursiveGP: capacity in letters": (
        lambda: tracker(capacity="64"), ValueError, "capacity must be.*got '64'"),
    "RecursiveGP: forgetting everything": (
        lambda: tracker(forgetting=0.0), ValueError, "forgetting must.*got 0.0"),
    "RecursiveGP: remembering more than all": (
        lambda: tracker(forgetting=1.01), ValueError, "forgetting must.*got 1.01"),
    "RecursiveGP: forgetting NaN": (
        lambda: tracker(forgetting=np.nan), ValueError, "forgetting must.*got nan"),
    "RecursiveGP: complex forgetting": (
        lambda: tracker(forgetting=0.9j), ValueError, "forgetting must.*got .*0.9j"),
    "RecursiveGP: marginalised trend": (
        lambda: tracker(mean=means.Polynomial(1, marginalized=True)), ValueError,
        "marginalised trend.*give Polynomial its coefficients, or add a kernel"),
    "RecursiveGP: capacity given by position": (
        lambda: RecursiveGP(RBF(), 0.1, 0.0, None, 64), TypeError, "positional arguments"),
    "RecursiveGP: LBFGS": (lambda: tracker().compile(optimizer=cgp.optimizers.LBFGS()), ValueError,
        "L-BFGS.*give it a Keras optimizer, or learn with an ExactGP"),
    "RecursiveGP: loss": (
        lambda: tracker().compile(loss="mse"), ValueError, "loss and metrics must be None"),
    "RecursiveGP: step to a complex input": (
        lambda: tracker().step(0.5j, 1j), TypeError, "x must be real, got complex128"),
    "RecursiveGP: step to NaN": (
        lambda: tracker().step(np.nan, 1j), ValueError, "x must be finite, but has NaN"),
    "RecursiveGP: step to a date": (
        lambda: tracker().step(np.datetime64("2020-01-01"), 1j), TypeError,
        "x must be real numbers, got datetime64"),
    "RecursiveGP: step of a real target": (
        lambda: tracker().step(0.5, 1.0), TypeError, "z must be complex, got float64"),
    "RecursiveGP: step of an infinite target": (
        lambda: tracker().step(0.5, complex(np.inf)), ValueError, "z has infinite elements"),
    "RecursiveGP: step of single precision": (
        lambda: tracker().step(0.5, np.complex64(1j)), TypeError,
        "z is complex64, but the model is complex128: promote it"),
    "RecursiveGP: step of double precision": (
        lambda: RecursiveGP(RBF(1.0, 1.0, dtype="float32"), 0.1).step(0.5, np.complex128(1j)),
        TypeError, "z is complex128, but the model is complex64: round it"),
    "RecursiveGP: step of a matrix": (
        lambda: tracker().step(0.5, np.ones((2, 2), complex)), ValueError, r"z.*\(2, 2\)"),
    "RecursiveGP: step to several inputs": (
        lambda: tracker().step(np.zeros((3, 2)), np.ones(2, complex)), ValueError, r"x.*\(3, 2\)"),
    "RecursiveGP: step in other dimensions": (lambda: running().step(np.zeros(2), 1j), ValueError,
        "x must have as many dimensions as its first data had, 1, got 2"),
    "RecursiveGP: step of other series": (
        lambda: running(series=2).step(0.5, np.ones(3, complex)), ValueError,
        "z must have a batch axis of 2, as its first data had, but has a batch axis of 3"),
    "RecursiveGP: step of one of many series": (lambda: running(series=2).step(0.5, 1j), ValueError,
        "z must have a batch axis of 2, as its first data had, but has no batch axis"),
    "RecursiveGP: step of many series after one": (
        lambda: running().step(0.5, np.ones(2, complex)), ValueError,
        "z must have no batch axis, as its first data had, but has a batch axis of 2"),
    "RecursiveGP: step whose missing is not bool": (
        lambda: tracker().step(0.5, 1j, missing=1), TypeError, "missing must be bool.*got int64"),
    "RecursiveGP: step in a tf.function": (
        lambda: tf.function(lambda: tracker().step(0.5, 1j).innovation)(), RuntimeError,
        "outside of a tf.function"),
    "RecursiveGP: block in a tf.function": (
        lambda: tf.function(lambda: tracker().process(X, Z).innovation)(), RuntimeError,
        "outside of a tf.function"),
    "RecursiveGP: step beyond a full capacity": (
        lambda: running(policy="growing", capacity=3).step(2.0, 1j), ValueError,
        "capacity.*3.*(sliding|budget)"),
    "RecursiveGP: block beyond a full capacity": (
        lambda: running(policy="growing", capacity=5).process(X, Z), ValueError,
        "capacity.*5.*(sliding|budget)"),
    "RecursiveGP: fit beyond a full capacity": (
        lambda: running(policy="growing", capacity=5).fit(X, Z), ValueError,
        "capacity.*5.*(sliding|budget)"),
    "RecursiveGP: block of real targets": (
        lambda: tracker().process(X, Z.real), TypeError, "z must be complex, got float64"),
    "RecursiveGP: block over complex inputs": (
        lambda: tracker().process(X + 0j, Z), TypeError, "x must be real, got complex128"),
    "RecursiveGP: block of other lengths": (
        lambda: tracker().process(X[:2], Z), ValueError, r"points as x.*\(3,\) and x \(2, 1\)"),
    "RecursiveGP: block with an infinite target": (
        lambda: tracker().process(X, [1j, np.inf, 0]), ValueError, "z has infinite elements"),
    "RecursiveGP: block with a NaN input": (
        lambda: tracker().process([0.0, np.nan, 1.0], Z), ValueError, "x must be finite"),
    "RecursiveGP: block of single precision": (
        lambda: tracker().process(X, np.complex64(Z)), TypeError, "promote it"),
    "RecursiveGP: empty block": (
        lambda: tracker().process([], np.zeros(0, complex)), ValueError, "x and z are empty"),
    "RecursiveGP: block of a batch of batches": (
        lambda: tracker().process(X, np.ones((2, 2, 3), complex)), ValueError,
        r"z must be \[T\], or \[B, T\] of B streams, got batch axes \[2, 2\]"),
    "RecursiveGP: block in other dimensions": (
        lambda: running(dimensions=2).process(X, Z), ValueError,
        "x must have as many dimensions as its first data had, 2, got 1"),
    "RecursiveGP: block of other series": (lambda: running(series=2).process(X, Z), ValueError,
        "z must have a batch axis of 2, as its first data had, but has no batch axis"),
    "RecursiveGP: missing of another length": (
        lambda: tracker().process(X, Z, missing=[True, False]), ValueError,
        r"missing must be broadcast against z of shape \(3,\), got \(2,\)"),
    "RecursiveGP: kernel of another dimension": (
        lambda: RecursiveGP(RBF(1.0, [1.0, 2.0]), 0.1).step(0.5, 1j), ValueError,
        "lengthscale has 2 elements.*this x has 1: give as many"),
    "RecursiveGP: fit of real targets": (
        lambda: running().fit(X, Z.real), TypeError, "z must be complex"),
    "RecursiveGP: fit in shuffled order": (
        lambda: running().fit(X, Z, shuffle=True), TypeError, "shuffle"),
    "RecursiveGP: fit with validation": (
        lambda: running().fit(X, Z, validation_split=0.5), TypeError, "validation_split"),
    "RecursiveGP: fit with validation data": (
        lambda: running().fit(X, Z, validation_data=(X, Z)), TypeError, "validation_data"),
    "RecursiveGP: fit with sample weights": (
        lambda: running().fit(X, Z, sample_weight=np.ones(3)), TypeError, "sample_weight"),
    "RecursiveGP: fit for no epochs": (
        lambda: running().fit(X, Z, epochs=0), ValueError, "epochs.*0"),
    "RecursiveGP: fit in batches of none": (
        lambda: running().fit(X, Z, batch_size=0), ValueError, "batch_size.*0"),
    "RecursiveGP: evaluation of real targets": (
        lambda: running().evaluate(X, Z.real), TypeError, "z must be complex"),
    "RecursiveGP: prediction at NaN": (
        lambda: running().predict([np.nan]), ValueError, "x must be finite"),
    "RecursiveGP: prediction at complex points": (
        lambda: running().predict([1j]), TypeError, "x must be real, got complex128"),
    "RecursiveGP: prediction at a scalar": (
        lambda: running().predict(0.5), ValueError, r"x must be \[N\].*got a scalar"),
    "RecursiveGP: posterior in other dimensions": (
        lambda: running().posterior(np.zeros((4, 2))), ValueError,
        r"as many dimensions as the data, 1, got shape \(4, 2\)"),
    "RecursiveGP: posterior of a batch, of one stream": (
        lambda: running().posterior(np.zeros((5, 4, 1))), ValueError,
        r"must be \[M\] or \[M, D\].*got shape \(5, 4, 1\)"),
    # --- layers, models and training
    "layers.Covariance": (lambda: layers.Covariance(INDEFINITE), NotPositiveDefiniteError,
        r"\(2, 2\) is indefinite beyond rounding: its smallest eigenvalue is -1"),
    "layers.GPInterpolator": (
        lambda: layers.GPInterpolator(RBF(1.0, 1.0), 0.1)(Z[None]), ValueError,
        r"the layer has no positions: call it on \(x, z, x_new\)"),
    "layers.Matrix": (
        lambda: layers.Matrix([np.nan]), ValueError, "value must be finite numbers, got.*nan"),
    "layers.RealImag": (
        lambda: layers.RealImag()(X), TypeError, "RealImag takes complex values, got float32"),
    "layers.Recursive": (lambda: layers.Recursive(RBF()), TypeError,
        "estimator must be a KalmanFilter.* or a cgp.online.Cell, got RBF"),
    "online.Cell": (lambda: cgp.online.Cell(), TypeError, "abstract"),
    "online.Online": (lambda: cgp.online.Online(3), TypeError,
        "cell must be a cgp.online.Cell, got int"),
    "online.step_of": (
        lambda: cgp.online.step_of(tf.constant(Z), tf.constant(Z[:2]), tf.constant(Z)), ValueError,
        "predicted_mean must have the shape of z"),
    "layers.ToComplex": (lambda: layers.ToComplex()(Z), TypeError,
        "takes real and imaginary parts, real numbers, got complex128"),
    "clone_model": (lambda: cgp.clone_model(3), TypeError, "model must be a Keras model, got 3"),
    "load_model": (lambda: cgp.load_model("nowhere.keras"), FileNotFoundError,
        "there is no file 'nowhere.keras' to load a model from"),
    "Model: tensors": (lambda: cgp.Model(keras.Input((1,)), keras.Input((1,))), TypeError,
        r"to be subclassed.*cgp.Functional\(inputs, outputs\)"),
    "Model: tensors by name": (
        lambda: cgp.Model(inputs=keras.Input((1,)), outputs=None), TypeError, "cgp.Functional"),
    "Model: arrays of unlike lengths": (
        lambda: averaging().fit(np.ones(3), np.ones(2), verbose=0), ValueError,
        "same number of samples, got x: 3, y: 2"),
    "Functional: outputs of other inputs": (
        lambda: cgp.Functional(keras.Input((1,), dtype="float64"), keras.Input((1,)))(Z),
        ValueError, "not connected to `inputs`|`inputs` not connected to `outputs`"),
    "Functional: complex data for a real input": (
        lambda: functional("float64")(np.ones((2, 1)) * 1j), TypeError,
        r"is float64 but was given complex data.*dtype=\"complex128\""),
    "optimizers.LBFGS: no memory": (lambda: cgp.optimizers.LBFGS(maxcor=0), ValueError,
        "maxcor must be a whole number, at least 1, got 0"),
    "optimizers.LBFGS: batches": (lambda: averaging().fit(np.ones(3), batch_size=2), ValueError,
        "LBFGS needs the loss of all the data at once: batch_size=2 has no meaning"),
    "optimizers.LBFGS: steps": (lambda: averaging().fit(np.ones(3), steps_per_epoch=2), ValueError,
        "LBFGS needs.*steps_per_epoch=2"),
    "optimizers.LBFGS: several batches": (
        lambda: averaging().fit(tf.data.Dataset.from_tensors(np.ones(4)).repeat(2)), ValueError,
        "all the data in one batch, and the dataset has several: batch it by its length"),
    "optimizers.LBFGS: a generator": (
        lambda: averaging().fit(iter([np.ones(3)])), TypeError, "LBFGS takes arrays or.*got x of"),
    "optimizers.LBFGS: a loss that is NaN": (
        lambda: averaging().fit(np.array([np.nan]), verbose=0), ValueError,
        "loss at the initial variables is nan, and must be finite"),
    "KalmanFilter: a fit that learns nothing": (
        lambda: cgp.KalmanFilter(WALK).fit(np.ones((1, 5, 1))), ValueError,
        r'learn nothing: name matrices, as in KalmanFilter\(model, learn=\("Q", "R"\)\)'),
    "optimizers.LBFGS: by hand": (lambda: cgp.optimizers.LBFGS().apply([], []), NotImplementedError,
        "LBFGS takes no single gradient steps: use it through the fit"),
    "optimizers.LBFGS: a negative tolerance": (lambda: cgp.optimizers.LBFGS(gtol=-1.0), ValueError,
        "gtol must be finite and not negative, got -1.0"),
    "register_post_update": (
        lambda: cgp.register_post_update(keras.layers.Layer(), [np.ones(2)], print), TypeError,
        r"variables must be Keras variables, got array\(\[1\., 1\.\]\)"),
    "training.Objective": (lambda: training.Objective(without_weights(), (X, Z, None)), ValueError,
        "the model has no trainable variables"),
    "training.declared": (
        lambda: training.declared(type("Power", (RBF,), {"degree": training.setting(int)})),
        TypeError, "fields of Power without a default must precede those with one"),
    "training.shard_spec": (lambda: training.shard_spec(tracker(), 1), TypeError,
        "a KalmanFilter, an ExactGP or a StateSpaceGP learns from shards, got RecursiveGP"),
    "training.value_and_gradient": (
        lambda: training.value_and_gradient(
            training.shard_spec(gp(), 1), np.zeros(3), (X, Z[:2])),
        ValueError, r"as many points as x, got shapes \(2,\) and x \(3, 1\)"),
    "callbacks.Parameters": (lambda: cgp.callbacks.Parameters("logs", X), ValueError,
        "x and z belong together: give both for pictures, or none"),
    # --- metrics, plots, frames and data
    "metrics.mean_squared_modulus: real prediction": (
        lambda: metrics.mean_squared_modulus(Z, X), TypeError,
        "the prediction must be complex, got float64"),
    "metrics.mean_squared_modulus: real target": (
        lambda: metrics.mean_squared_modulus(Z.real, Z), TypeError,
        "the target must be complex, got float64"),
    "metrics.mean_squared_modulus: target of another length": (
        lambda: metrics.mean_squared_modulus(Z, Z[:2]), ValueError, r"\(3,\) and \(2,\)"),
    "metrics.mean_squared_modulus: no targets": (
        lambda: metrics.mean_squared_modulus(Z + np.nan, Z), ValueError, "every target is missing"),
    "metrics.normalized_error_db: zero targets": (
        lambda: metrics.normalized_error_db(0 * Z, Z), ValueError, "targets are all zero"),
    "metrics.normalized_error_db: real prediction": (
        lambda: metrics.normalized_error_db(Z, Z.real), TypeError,
        "the prediction must be complex, got float64"),
    "metrics.negative_log_predictive_density: an array": (
        lambda: metrics.negative_log_predictive_density(Z, Z), TypeError,
        "prediction must be a ComplexNormal, or a dict.*got ndarray"),
    "metrics.negative_log_predictive_density: no variance": (
        lambda: metrics.negative_log_predictive_density(Z, prediction(variance=np.zeros(3))),
        ValueError, "3 of 3 points have no predictive density"),
    "metrics.coverage: more than certain": (
        lambda: metrics.coverage(Z, prediction(), probability=95), ValueError,
        "probability must lie between 0 and 1, got 95: as a fraction, 0.95"),
    "metrics.coverage: no pseudo-variance": (
        lambda: metrics.coverage(Z, prediction(pseudo_variance=None)), ValueError,
        "has no pseudo_variance; it has mean, variance"),
    "metrics.coverage: complex variance": (
        lambda: metrics.coverage(Z, prediction(variance=np.ones(3) + 0j)), TypeError,
        "variance must be real, got complex128"),
    "metrics.MeanSquaredModulus": (
        lambda: metrics.MeanSquaredModulus().update_state(Z, X), TypeError,
        "the prediction must be complex, got float64"),
    "metrics.NormalizedErrorDB": (lambda: metrics.NormalizedErrorDB().update_state(Z, X), TypeError,
        "the prediction must be complex, got float64"),
    "metrics.log_predictive_densities": (lambda: metrics.log_predictive_densities(Z, Z), TypeError,
        "prediction must be a ComplexNormal, or a dict.*got ndarray"),
    "plotting.waterfall": (
        lambda: plotting.waterfall((X, X), CELLS.real), TypeError, "z must be complex"),
    "plotting.waterfall: other sizes": (
        lambda: plotting.waterfall((X, X[:2]), CELLS), ValueError,
        r"z must be \[3, 2\], the cells of the coordinates in x, got \[3, 3\]"),
    "plotting.waterfall: out of order": (
        lambda: plotting.waterfall((X, X[[0, 2, 1]]), CELLS), ValueError,
        r"x\[1\] must be in order"),
    "plotting.waterfall: another quantity": (
        lambda: plotting.waterfall((X, X), CELLS, quantity="power"), ValueError,
        "quantity must be one of modulus, decibels.*got 'power'"),
    "plotting.series: real data": (
        lambda: plotting.series(X, Z.real), TypeError, "z must be complex, got float64"),
    "plotting.series: nothing": (lambda: plotting.series(X), ValueError, "nothing to draw"),
    "plotting.series: other points": (
        lambda: plotting.series(X[:2], Z), ValueError, "must have the 2 points of x, got 3"),
    "plotting.series: a prediction elsewhere": (
        lambda: plotting.series(X[:2], Z[:2], prediction()), ValueError,
        "the posterior has 3 points but there are 2 inputs: give x_new"),
    "plotting.series: other parts": (
        lambda: plotting.series(X, Z, parts="phase"), ValueError, "parts must be.*got 'phase'"),
    "plotting.series: complex inputs": (
        lambda: plotting.series(X + 0j, Z), TypeError, "x must be real numbers, got complex128"),
    "plotting.plane: nothing": (lambda: plotting.plane(), ValueError, "nothing to draw"),
    "plotting.plane: several series": (
        lambda: plotting.plane(np.stack([Z, Z])), ValueError, r"one series.*got shape \(2, 3\)"),
    "plotting.fit_health": (lambda: plotting.fit_health(Z), TypeError,
        "gp must be an ExactGP or a StateSpaceGP, got ndarray"),
    "plotting.innovations": (lambda: plotting.innovations(Z), TypeError,
        "must be a result of statespace.diagnostics, got ndarray"),
    "plotting.spectrum": (lambda: plotting.spectrum(RBF()), TypeError,
        "gp must be an ExactGP or a StateSpaceGP, or several by name, got RBF"),
    "compare": (lambda: cgp.compare({}, X, Z), ValueError,
        "models must be a dictionary of at least one, got {}"),
    "Comparison": (
        lambda: cgp.Comparison({}, {}).best, ValueError, "there is no model in this comparison"),
    "to_frame": (
        lambda: cgp.to_frame(Z), TypeError, "result must be a ComplexNormal, a dict.*got ndarray"),
    "to_xarray": (lambda: cgp.to_xarray(prediction(), X[:2]), ValueError,
        r"index must be \[3\], an element for each row.*got shape \(2,\)"),
    "datasets.channel_switch": (lambda: cgp.datasets.channel_switch("a"), TypeError,
        "seed must be one integer, 0 or more, got 'a'"),
    "datasets.polar_motion": (lambda: cgp.datasets.polar_motion(9e6), ValueError,
        "no sample from start=9000000.0 to before end=None: the series runs from"),
    "datasets.s_parameters": (lambda: cgp.datasets.s_parameters("a.s1p"), ValueError,
        "scikit-rf has no file 'a.s1p', only "),
    "datasets.soft_channel": (lambda: cgp.datasets.soft_channel(0, 0), ValueError,
        "n must be a whole number, at least 1, got 0"),
}  # fmt: skip
