"""Every wrong argument is refused by name, with what was expected and what came, and does no harm.

Kernels have their own table in tests/kernels/test_algebra.py.
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
    linalg,
    means,
    metrics,
    plotting,
)
from cgp.kernels import RBF, Rotation, White, WidelyLinear

matplotlib.use("Agg")

I2 = np.eye(2) + 0j
ZERO = np.zeros(2, complex)
X, Z = np.array([0.0, 0.4, 1.1]), np.array([1.0 + 1j, 0.5j, -0.2])
INDEFINITE = np.array([[1.0, 2.0j], [-2.0j, 1.0]])


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


def tracker(**arguments) -> RecursiveGP:
    return RecursiveGP(RBF(1.0, 1.0), 0.1, **{"capacity": 4, **arguments})


@functools.cache  # none of these calls may change it
def running(dimensions=None, series=None, **arguments) -> RecursiveGP:
    """A tracker that has seen data."""
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


LINALG = {
    "cholesky of integers": (
        lambda: linalg.cholesky(np.eye(2, dtype=int)), TypeError,
        r"a must be float32, float64, complex64 or complex128, got int64"),
    "cholesky of a vector": (
        lambda: linalg.cholesky(ZERO), ValueError, r"a must be a matrix.*got shape \(2,\)"),
    "cholesky of an oblong": (
        lambda: linalg.cholesky(np.ones((2, 3))), ValueError, r"a must be square.*\(2, 3\)"),
    "cholesky of no Hermitian matrix": (
        lambda: linalg.cholesky(np.array([[1.0, 0.5j], [0.5j, 1.0]])), ValueError,
        r"\(2, 2\) is not Hermitian.*differs from its adjoint by 1"),
    "cholesky of a complex diagonal": (
        lambda: linalg.cholesky(np.diag([1.0 + 1j, 1.0])), ValueError, "not Hermitian.*by 2"),
    "cholesky of NaN": (
        lambda: linalg.cholesky(np.nan * I2), ValueError, r"\(2, 2\) has elements that are NaN"),
    "cholesky of an indefinite complex matrix": (
        lambda: linalg.cholesky(INDEFINITE), NotPositiveDefiniteError,
        r"shape \(2, 2\) is not positive definite: a covariance was expected"),
    "cholesky of an indefinite real matrix": (
        lambda: linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])), NotPositiveDefiniteError,
        r"shape \(2, 2\) is not positive definite"),
    "solve with another dtype": (
        lambda: linalg.solve(I2, np.ones((2, 1))), TypeError,
        "chol is complex128 but b is float64: give both one dtype"),
    "solve with another length": (
        lambda: linalg.solve(I2, np.ones((3, 1)) + 0j), ValueError,
        r"b must be \[..., 2, k\].*got shape \(3, 1\)"),
    "solve with a vector": (
        lambda: linalg.solve(I2, ZERO), ValueError, r"b must be a matrix.*got shape \(2,\)"),
    "update by another dtype": (
        lambda: linalg.cholesky_update(I2, np.ones(2)), TypeError,
        "update_vector must have the dtype of chol, complex128, got float64"),
    "update by another length": (
        lambda: linalg.cholesky_update(I2, np.ones(3) + 0j), ValueError,
        r"update_vector must be \[..., 2\].*got shape \(3,\)"),
    "update by a complex multiple": (
        lambda: linalg.cholesky_update(I2, ZERO, 1j), TypeError,
        "multiplier must be real, got complex128"),
    "downdate out of the cone": (
        lambda: linalg.cholesky_update(I2, ZERO + 1, -1.0), NotPositiveDefiniteError,
        r"positive definite.*update_vector of shape \(2,\)"),
    "update by NaN": (
        lambda: linalg.cholesky_update(I2, ZERO + np.nan), ValueError,
        r"update_vector, of shape \(2,\), has elements that are NaN"),
    "update of unlike batches": (
        lambda: linalg.cholesky_update(np.stack([I2] * 3), np.zeros((2, 2), complex)), ValueError,
        r"batch axes.*chol \(3, 2, 2\), update_vector \(2, 2\)"),
    "condition on a negative noise variance": (
        lambda: linalg.cholesky_condition(I2, ZERO, -1.0), ValueError,
        "noise_variance must be finite and not negative"),
    "append a dependent row": (
        lambda: linalg.cholesky_append(I2, ZERO + 1, 1.0), NotPositiveDefiniteError,
        "depends on the rows before it.*duplicated point"),
    "append to a full buffer": (
        lambda: linalg.cholesky_append(I2, ZERO, 1.0, size=2), ValueError,
        "size is the number of rows in use: the buffer is full: expected 0 to 1, got 2"),
    "append a complex variance": (
        lambda: linalg.cholesky_append(I2, ZERO, 1 + 0j), TypeError,
        "variance must be real, got complex128"),
    "remove a row that is not there": (
        lambda: linalg.cholesky_remove(I2, 2), ValueError,
        "index is the row to remove: expected 0 to 1, got 2"),
    "remove half a row": (
        lambda: linalg.cholesky_remove(I2, 0.5), TypeError, "index must be an integer, got float"),
    "triangularize a tall matrix": (
        lambda: linalg.triangularize(np.ones((3, 2))), ValueError,
        r"a must be \[..., n, m\] with m >= n, got shape \(3, 2\)"),
    "triangularize NaN": (
        lambda: linalg.triangularize(np.nan * I2), ValueError, r"a, of shape \(2, 2\), has.*NaN"),
}  # fmt: skip

DISTRIBUTION = {
    "real mean": (
        lambda: ComplexNormal(np.zeros(2), I2), TypeError,
        "loc must be complex64 or complex128, got float64"),
    "scalar mean": (
        lambda: ComplexNormal(1j, I2), ValueError, r"loc must be a vector.*got a scalar"),
    "factor of another precision": (
        lambda: ComplexNormal(ZERO, np.complex64(I2)), TypeError,
        r"complex128 \(proper\) or float64 \(improper\).*got complex64"),
    "real factor that is not composite": (
        lambda: ComplexNormal(ZERO, np.eye(2)), ValueError,
        r"real, composite chol must be \[..., 4, 4\].*got shape \(2, 2\)"),
    "covariance for a factor": (
        lambda: ComplexNormal(ZERO, I2 + 0.1), ValueError,
        "chol must be lower triangular, and is Hermitian.*cgp.linalg.cholesky"),
    "factor with a negative diagonal": (
        lambda: ComplexNormal(ZERO, -I2), ValueError, "real diagonal that is not negative"),
    "NaN mean": (
        lambda: ComplexNormal(ZERO + np.nan, I2), ValueError, r"loc of shape \(2,\) has.*NaN"),
    "batches that do not fit": (
        lambda: ComplexNormal(np.zeros((3, 2), complex), np.stack([I2] * 4)), ValueError,
        r"batch shapes \(3,\) and \(4,\) do not broadcast"),
    "covariance that is not Hermitian": (
        lambda: ComplexNormal.from_covariance(ZERO, I2 + np.diag([1j], 1)), ValueError,
        "covariance must be Hermitian: it differs from its adjoint by 1"),
    "indefinite covariance": (
        lambda: ComplexNormal.from_covariance(ZERO, INDEFINITE), NotPositiveDefiniteError,
        r"\(2, 2\) is indefinite beyond rounding: its smallest eigenvalue is -1"),
    "pseudo-covariance that is not symmetric": (
        lambda: ComplexNormal.from_covariance(ZERO, I2, 0.1 * INDEFINITE), ValueError,
        "pseudo_covariance must be symmetric: it differs from its transpose by 0.4"),
    "pseudo-covariance that no process has": (
        lambda: ComplexNormal.from_covariance(ZERO, I2, 1.2j * I2), NotPositiveDefiniteError,
        "no process has this covariance and pseudo-covariance.*smallest eigenvalue is -0.1"),
    "real pseudo-covariance": (
        lambda: ComplexNormal.from_covariance(ZERO, I2, np.eye(2)), TypeError,
        "pseudo_covariance must be complex128 like loc, got float64"),
    "covariance of another size": (
        lambda: ComplexNormal.from_covariance(ZERO, np.eye(3) + 0j), ValueError,
        r"covariance must be \[..., 2, 2\].*got shape \(3, 3\)"),
    "density of a real value": (
        lambda: ComplexNormal(ZERO, I2).log_prob(np.zeros(2)), TypeError,
        "value must be complex.*got float64"),
    "density of a value of another length": (
        lambda: ComplexNormal(ZERO, I2).log_prob(np.zeros(3, complex)), ValueError,
        r"value must be \[..., 2\], got shape \(3,\)"),
    "density of NaN": (
        lambda: ComplexNormal(ZERO, I2).log_prob(ZERO + np.nan), ValueError, "value of shape.*NaN"),
    "density of a singular normal": (
        lambda: ComplexNormal(ZERO, np.diag([1.0, 0.0]) + 0j).log_prob(ZERO),
        NotPositiveDefiniteError, "singular"),
    "divergence from something else": (
        lambda: ComplexNormal(ZERO, I2).kl_divergence("normal"), TypeError,
        "other must be a ComplexNormal, got str"),
    "fractional seed": (
        lambda: ComplexNormal(ZERO, I2).sample(seed=0.5), ValueError,
        "seed must be one integer or two, got float32"),
}  # fmt: skip

EXACT_GP = {
    "no kernel": (lambda: ExactGP("rbf", 0.1), TypeError, "one of cgp.kernels, got 'rbf'"),
    "kernel class": (lambda: ExactGP(RBF, 0.1), TypeError, "one of cgp.kernels, got <class"),
    "no noise variance": (
        lambda: ExactGP(RBF(), 0.0), ValueError, "noise_variance must be positive, got 0.0"),
    "negative noise variance": (
        lambda: ExactGP(RBF(), -1.0), ValueError, "noise_variance must be positive, got -1.0"),
    "complex noise variance": (
        lambda: ExactGP(RBF(), 1j), TypeError, "noise_variance must be real and positive, got 1j"),
    "too large a noise pseudo-variance": (
        lambda: gp(noise_pseudo_variance=0.2j), ValueError,
        "noise_pseudo_variance must be at most noise_variance.*0.2j and 0.1"),
    "mean that is a number": (
        lambda: gp(mean=1j), TypeError, "mean must be one of cgp.means or None, got 1j"),
    "dtype of another kernel": (
        lambda: ExactGP(RBF(dtype="float32"), 0.1, dtype="float64"), TypeError,
        "the model is float64, but RBF.* is float32"),
    "dtype of another mean": (
        lambda: gp(mean=means.Constant(dtype="float32")), TypeError,
        "the model is float64, but .* is float32"),
    "fixing what is not there": (
        lambda: gp(fixed="variance"), ValueError,
        r"fixed names \['variance'\].*ExactGP are \['noise_variance'\]"),
    "prior that is no distribution": (
        lambda: gp(priors={"noise_variance": 0.1}), TypeError, "a prior must be.*got 0.1"),
    "real targets": (
        lambda: gp().condition(X, Z.real), TypeError, "z must be complex, got float64"),
    "complex inputs": (
        lambda: gp().condition(X + 1j, Z), TypeError, "x must be real, got complex128"),
    "targets of single precision": (
        lambda: gp().condition(X, np.complex64(Z)), TypeError,
        r'z is complex64, but the model is complex128: promote it, z.astype\("complex128"\)'),
    "targets of double precision": (
        lambda: ExactGP(RBF(1.0, 1.0, dtype="float32"), 0.1).condition(X, Z), TypeError,
        "z is complex128, but the model is complex64: round it"),
    "other number of targets": (
        lambda: gp().condition(X, Z[:2]), ValueError, r"points as x.*\(2,\) and x \(3, 1\)"),
    "inputs of a batch without their axis": (
        lambda: gp().condition(np.stack([X, X]), np.stack([Z, Z])), ValueError,
        r"2 series of 3 samples, each with inputs of its own, x\[..., None\]"),
    "unlike batches": (
        lambda: gp().condition(np.zeros((2, 3, 1)), np.stack([Z] * 4)), ValueError,
        r"batch axes of x, \(2,\), must be those of z, \(4,\)"),
    "scalar inputs": (
        lambda: gp().condition(0.0, Z), ValueError, r"x must be \[N\].*got a scalar"),
    "empty series": (
        lambda: gp().condition([], np.zeros(0, complex)), ValueError, "x and z are empty"),
    "nothing at all": (
        lambda: gp().condition([], []), ValueError, "x and z are empty"),
    "NaN input": (
        lambda: gp().condition([0.0, np.nan, 1.0], Z), ValueError, "x must be finite, but has NaN"),
    "infinite target": (
        lambda: gp().condition(X, [1j, np.inf, 0]), ValueError, "z has infinite elements"),
    "all targets missing": (
        lambda: gp().condition(X, Z + np.nan), ValueError, "every target is missing"),
    "all targets of a series missing": (
        lambda: gp().condition(X, np.stack([Z, Z + np.nan])), ValueError,
        r"every target of series 1 is missing.*leave it out: z\[~np\.isnan"),
    "all targets of some series missing": (
        lambda: gp().condition(X, np.stack([Z, Z + np.nan, Z + np.nan])), ValueError,
        "every target of series 1 and 1 more is missing"),
    "series in columns": (
        lambda: gp().condition(X, np.stack([Z, Z], axis=1)), ValueError,
        r"z must be \[\.\.\., N\].*got shapes \(3, 2\).*of 2 series of 3 samples, z\.T"),
    "values for missing, as by step(time, value) of a filter": (
        lambda: gp().condition(X, Z, missing=Z), TypeError,
        "missing must be bool.*got complex128: values come first, and a KalmanFilter takes no"),
    "missing that is not bool": (
        lambda: gp().condition(X, Z, missing=[0, 1, 0]), TypeError,
        "missing must be bool, True where missing, got int64"),
    "missing of another length": (
        lambda: gp().condition(X, Z, missing=[True, False]), ValueError,
        r"missing must be broadcast against z of shape \(3,\), got \(2,\)"),
    "dates": (
        lambda: gp().condition(np.array(["2020-01-01"] * 3, "M8[D]"), Z), TypeError,
        "x must be real numbers, got datetime64"),
    "a table of u and v in place of x and z": (
        lambda: compiled().fit(np.ones((3, 2))), ValueError,
        r"z is missing: fit\(x, z\) takes the points x and.*frame\[.u.\] \+ 1j"),
    "fit in batches": (
        lambda: compiled().fit(X, Z, batch_size=2), ValueError,
        "batch_size=2: the likelihood of ExactGP takes all data at once"),
    "fit for no epochs": (
        lambda: compiled().fit(X, Z, epochs=0), ValueError, "epochs=0 leaves no iteration"),
    "fit of real targets": (
        lambda: compiled().fit(X, Z.real), TypeError, "z must be complex, got float64"),
    "fit of everything fixed": (
        lambda: _everything_fixed().fit(X, Z), ValueError, "no trainable hyperparameters"),
    "likelihood of real targets": (
        lambda: gp().log_marginal_likelihood(X, Z.real), TypeError, "z must be complex"),
    "likelihood of other lengths": (
        lambda: gp().log_marginal_likelihood(X[:2], Z), ValueError, "as many points as x"),
    "evaluation of real targets": (
        lambda: compiled().evaluate(X, Z.real), TypeError, "z must be complex"),
    "prediction at NaN": (
        lambda: conditioned().predict([np.nan]), ValueError, "x must be finite"),
    "prediction at complex points": (
        lambda: conditioned().predict([1j]), TypeError, "x must be real, got complex128"),
    "prediction at a scalar": (
        lambda: conditioned().predict(0.5), ValueError, r"x must be \[N\].*got a scalar"),
    "posterior in other dimensions": (
        lambda: conditioned().posterior(np.zeros((4, 2))), ValueError,
        r"as many dimensions as the data, 1, got shape \(4, 2\)"),
    "posterior of a batch, of one series": (
        lambda: conditioned().posterior(np.zeros((5, 4, 1))), ValueError,
        r"must be \[M\] or \[M, D\].*got shape \(5, 4, 1\)"),
    "leaving one of none out": (lambda: gp().loo(), ValueError, "there are no data"),
    "errors without data": (lambda: gp().parameter_covariance(), ValueError, "there are no data"),
    "discrete prior": (
        lambda: gp(priors={"noise_variance": tfp.distributions.Poisson(2.0)}), ValueError,
        "a prior must be a continuous distribution, got Poisson, a discrete"),
    "targets whose squares underflow": (
        lambda: gp().condition(X, 1e-170 * Z), ValueError,
        r"z is too small, at most 1.41e-170: .* at least 1.5e-154.*Give z another unit"),
    "prior of a marginalised trend": (
        lambda: gp(mean=means.Polynomial(1, marginalized=True)).predict(X), ValueError,
        "a marginalised trend has no prior: condition on data first"),
    "fewer data than coefficients of a trend": (
        lambda: gp(mean=means.Polynomial(3, marginalized=True)).condition(X, Z), ValueError,
        "a trend of 4 coefficients .* 3 points determine 3 of them, it needs more different x"),
    "half a degree": (
        lambda: means.Polynomial(0.5), ValueError, "degree must be a whole number.*got 0.5"),
    "coefficients of another degree": (
        lambda: means.Polynomial(2, [1.0, 2.0]), ValueError, r"3 coefficients, got shape \(2,\)"),
    "kernel of another dimension": (
        lambda: ExactGP(RBF(1.0, [1.0, 2.0]), 0.1).condition(X, Z), ValueError,
        "lengthscale has 2 elements.*this x has 1: give as many"),
    "trend over a plane": (
        lambda: gp(mean=means.Polynomial(1)).condition(np.zeros((3, 2)), Z), ValueError,
        "polynomial trend needs inputs of one dimension, got 2"),
    "a matrix of noise variances": (
        lambda: ExactGP(RBF(), [[0.1, 0.2, 0.3]]), ValueError,
        r"noise_variance must be one number, got shape \(1, 3\)"),
    "a noise variance for each point, as one for each group": (
        lambda: ExactGP(RBF(1.0, 1.0), [0.1, 0.2, 0.3]).condition(X, Z), ValueError,
        "noise_groups"),
    "pseudo-variance of no noise": (
        lambda: ExactGP(RBF(), 0.0, 0.1), ValueError, "noise_variance must be positive, got 0.0"),
    "no pseudo-variance": (
        lambda: gp(noise_pseudo_variance=None), TypeError, "noise_pseudo_variance.*got None"),
    "pseudo-variance in letters": (
        lambda: gp(noise_pseudo_variance="0.1"), TypeError, "noise_pseudo_variance.*got '0.1'"),
    "call with real targets": (
        lambda: gp()((tf.constant(X), tf.constant(Z.real))), TypeError, "z must be complex"),
    "call with other lengths": (
        lambda: gp()((tf.constant(X), tf.constant(Z[:2]))), ValueError, "as many points as x"),
    "fewer than no draws": (
        lambda: conditioned().sample(X, -1), ValueError, "count.*got -1"),
}  # fmt: skip


def _everything_fixed():
    model = ExactGP(RBF(fixed=("variance", "lengthscale")), 0.1, fixed="noise_variance")
    model.compile(optimizer=cgp.optimizers.LBFGS())
    return model


RECURSIVE_GP = {
    "no kernel": (lambda: RecursiveGP("rbf", 0.1), TypeError, "one of cgp.kernels, got 'rbf'"),
    "no noise variance": (
        lambda: RecursiveGP(RBF(), 0.0), ValueError, "noise_variance must be positive, got 0.0"),
    "unknown policy": (
        lambda: tracker(policy="fifo"), ValueError,
        "policy must be one of sliding, growing, budget, got 'fifo'"),
    "policy that is no word": (
        lambda: tracker(policy=None), ValueError, "policy must be.*got None"),
    "no capacity": (lambda: tracker(capacity=0), ValueError, "capacity must be.*got 0"),
    "negative capacity": (lambda: tracker(capacity=-3), ValueError, "capacity must be.*got -3"),
    "half a point of capacity": (
        lambda: tracker(capacity=2.5), (ValueError, TypeError), "capacity must be.*got 2.5"),
    "capacity in letters": (
        lambda: tracker(capacity="64"), (ValueError, TypeError), "capacity must be.*got '64'"),
    "forgetting everything": (
        lambda: tracker(forgetting=0.0), ValueError, "forgetting must.*got 0.0"),
    "remembering more than all": (
        lambda: tracker(forgetting=1.01), ValueError, "forgetting must.*got 1.01"),
    "forgetting NaN": (
        lambda: tracker(forgetting=np.nan), ValueError, "forgetting must.*got nan"),
    "complex forgetting": (
        lambda: tracker(forgetting=0.9j), (ValueError, TypeError), "forgetting must.*got .*0.9j"),
    "marginalised trend": (
        lambda: tracker(mean=means.Polynomial(1, marginalized=True)), ValueError,
        "marginalised trend.*give Polynomial its coefficients, or add a kernel"),
    "capacity given by position": (
        lambda: RecursiveGP(RBF(), 0.1, 0.0, None, 64), TypeError, "positional arguments"),
    "LBFGS": (
        lambda: tracker().compile(optimizer=cgp.optimizers.LBFGS()), ValueError,
        "L-BFGS.*give it a Keras optimizer, or learn with an ExactGP"),
    "loss": (
        lambda: tracker().compile(loss="mse"), ValueError, "loss and metrics must be None"),
    "step to a complex input": (
        lambda: tracker().step(0.5j, 1j), TypeError, "x must be real, got complex128"),
    "step to NaN": (
        lambda: tracker().step(np.nan, 1j), ValueError, "x must be finite, but has NaN"),
    "step to a date": (
        lambda: tracker().step(np.datetime64("2020-01-01"), 1j), TypeError,
        "x must be real numbers, got datetime64"),
    "step of a real target": (
        lambda: tracker().step(0.5, 1.0), TypeError, "z must be complex, got float64"),
    "step of an infinite target": (
        lambda: tracker().step(0.5, complex(np.inf)), ValueError, "z has infinite elements"),
    "step of single precision": (
        lambda: tracker().step(0.5, np.complex64(1j)), TypeError,
        "z is complex64, but the model is complex128: promote it"),
    "step of double precision": (
        lambda: RecursiveGP(RBF(1.0, 1.0, dtype="float32"), 0.1).step(0.5, np.complex128(1j)),
        TypeError,
        "z is complex128, but the model is complex64: round it"),
    "step of a matrix": (
        lambda: tracker().step(0.5, np.ones((2, 2), complex)), ValueError, r"z.*\(2, 2\)"),
    "step to several inputs": (
        lambda: tracker().step(np.zeros((3, 2)), np.ones(2, complex)), ValueError, r"x.*\(3, 2\)"),
    "step in other dimensions": (
        lambda: running().step(np.zeros(2), 1j), ValueError,
        "x must have as many dimensions as its first data had, 1, got 2"),
    "step of other series": (
        lambda: running(series=2).step(0.5, np.ones(3, complex)), ValueError,
        "z must have a batch axis of 2, as its first data had, but has a batch axis of 3"),
    "step of one of many series": (
        lambda: running(series=2).step(0.5, 1j), ValueError,
        "z must have a batch axis of 2, as its first data had, but has no batch axis"),
    "step of many series after one": (
        lambda: running().step(0.5, np.ones(2, complex)), ValueError,
        "z must have no batch axis, as its first data had, but has a batch axis of 2"),
    "step whose missing is not bool": (
        lambda: tracker().step(0.5, 1j, missing=1), TypeError, "missing must be bool.*got int64"),
    "step in a tf.function": (
        lambda: tf.function(lambda: tracker().step(0.5, 1j).innovation)(), RuntimeError,
        "outside of a tf.function"),
    "block in a tf.function": (
        lambda: tf.function(lambda: tracker().process(X, Z).innovation)(), RuntimeError,
        "outside of a tf.function"),
    "step beyond a full capacity": (
        lambda: running(policy="growing", capacity=3).step(2.0, 1j), ValueError,
        "capacity.*3.*(sliding|budget)"),
    "block beyond a full capacity": (
        lambda: running(policy="growing", capacity=5).process(X, Z), ValueError,
        "capacity.*5.*(sliding|budget)"),
    "fit beyond a full capacity": (
        lambda: running(policy="growing", capacity=5).fit(X, Z), ValueError,
        "capacity.*5.*(sliding|budget)"),
    "block of real targets": (
        lambda: tracker().process(X, Z.real), TypeError, "z must be complex, got float64"),
    "block over complex inputs": (
        lambda: tracker().process(X + 0j, Z), TypeError, "x must be real, got complex128"),
    "block of other lengths": (
        lambda: tracker().process(X[:2], Z), ValueError, r"points as x.*\(3,\) and x \(2, 1\)"),
    "block with an infinite target": (
        lambda: tracker().process(X, [1j, np.inf, 0]), ValueError, "z has infinite elements"),
    "block with a NaN input": (
        lambda: tracker().process([0.0, np.nan, 1.0], Z), ValueError, "x must be finite"),
    "block of single precision": (
        lambda: tracker().process(X, np.complex64(Z)), TypeError, "promote it"),
    "empty block": (
        lambda: tracker().process([], np.zeros(0, complex)), ValueError, "x and z are empty"),
    "block of a batch of batches": (
        lambda: tracker().process(X, np.ones((2, 2, 3), complex)), ValueError,
        r"z must be \[T\], or \[B, T\] of B streams, got batch axes \[2, 2\]"),
    "block in other dimensions": (
        lambda: running(dimensions=2).process(X, Z), ValueError,
        "x must have as many dimensions as its first data had, 2, got 1"),
    "block of other series": (
        lambda: running(series=2).process(X, Z), ValueError,
        "z must have a batch axis of 2, as its first data had, but has no batch axis"),
    "missing of another length": (
        lambda: tracker().process(X, Z, missing=[True, False]), ValueError,
        r"missing must be broadcast against z of shape \(3,\), got \(2,\)"),
    "kernel of another dimension": (
        lambda: RecursiveGP(RBF(1.0, [1.0, 2.0]), 0.1).step(0.5, 1j), ValueError,
        "lengthscale has 2 elements.*this x has 1: give as many"),
    "fit of real targets": (lambda: running().fit(X, Z.real), TypeError, "z must be complex"),
    "fit in shuffled order": (lambda: running().fit(X, Z, shuffle=True), TypeError, "shuffle"),
    "fit with validation": (
        lambda: running().fit(X, Z, validation_split=0.5), TypeError, "validation_split"),
    "fit with validation data": (
        lambda: running().fit(X, Z, validation_data=(X, Z)), TypeError, "validation_data"),
    "fit with sample weights": (
        lambda: running().fit(X, Z, sample_weight=np.ones(3)), TypeError, "sample_weight"),
    "fit for no epochs": (lambda: running().fit(X, Z, epochs=0), ValueError, "epochs.*0"),
    "fit in batches of none": (
        lambda: running().fit(X, Z, batch_size=0), ValueError, "batch_size.*0"),
    "evaluation of real targets": (
        lambda: running().evaluate(X, Z.real), TypeError, "z must be complex"),
    "prediction at NaN": (lambda: running().predict([np.nan]), ValueError, "x must be finite"),
    "prediction at complex points": (
        lambda: running().predict([1j]), TypeError, "x must be real, got complex128"),
    "prediction at a scalar": (
        lambda: running().predict(0.5), ValueError, r"x must be \[N\].*got a scalar"),
    "posterior in other dimensions": (
        lambda: running().posterior(np.zeros((4, 2))), ValueError,
        r"as many dimensions as the data, 1, got shape \(4, 2\)"),
    "posterior of a batch, of one stream": (
        lambda: running().posterior(np.zeros((5, 4, 1))), ValueError,
        r"must be \[M\] or \[M, D\].*got shape \(5, 4, 1\)"),
}  # fmt: skip

METRICS_AND_PLOTS = {
    "real target": (
        lambda: metrics.mean_squared_modulus(Z.real, Z), TypeError,
        "the target must be complex, got float64"),
    "real prediction": (
        lambda: metrics.normalized_error_db(Z, Z.real), TypeError,
        "the prediction must be complex, got float64"),
    "target of another length": (
        lambda: metrics.mean_squared_modulus(Z, Z[:2]), ValueError, r"\(3,\) and \(2,\)"),
    "no targets": (
        lambda: metrics.mean_squared_modulus(Z + np.nan, Z), ValueError, "every target is missing"),
    "error beside zero": (
        lambda: metrics.normalized_error_db(0 * Z, Z), ValueError, "targets are all zero"),
    "density without variance": (
        lambda: metrics.negative_log_predictive_density(Z, prediction(variance=np.zeros(3))),
        ValueError, "3 of 3 points have no predictive density"),
    "density under an array": (
        lambda: metrics.negative_log_predictive_density(Z, Z), TypeError,
        "ComplexNormal, or a dict.*got ndarray"),
    "prediction without a pseudo-variance": (
        lambda: metrics.coverage(Z, prediction(pseudo_variance=None)), ValueError,
        "has no pseudo_variance; it has mean, variance"),
    "complex variance": (
        lambda: metrics.coverage(Z, prediction(variance=np.ones(3) + 0j)), TypeError,
        "variance must be real, got complex128"),
    "more than certain": (
        lambda: metrics.coverage(Z, prediction(), probability=95), ValueError,
        "probability must lie between 0 and 1, got 95"),
    "plot of real data": (
        lambda: plotting.series(X, Z.real), TypeError, "z must be complex, got float64"),
    "plot of nothing": (lambda: plotting.series(X), ValueError, "nothing to draw"),
    "plot over other points": (
        lambda: plotting.series(X[:2], Z), ValueError, "must have the 2 points of x, got 3"),
    "plot of a prediction elsewhere": (
        lambda: plotting.series(X[:2], Z[:2], prediction()), ValueError,
        "the posterior has 3 points but there are 2 inputs: give x_new"),
    "plot of other parts": (
        lambda: plotting.series(X, Z, parts="phase"), ValueError, "parts must be.*got 'phase'"),
    "plot over complex inputs": (
        lambda: plotting.series(X + 0j, Z), TypeError, "x must be real numbers, got complex128"),
    "plot of several series": (
        lambda: plotting.plane(np.stack([Z, Z])), ValueError, r"one series.*got shape \(2, 3\)"),
    "plane of nothing": (lambda: plotting.plane(), ValueError, "nothing to draw"),
}  # fmt: skip

TRAINING = {
    "Model built from tensors": (
        lambda: cgp.Model(keras.Input((1,)), keras.Input((1,))), TypeError,
        r"to be subclassed.*cgp.Functional\(inputs, outputs\)"),
    "Model built from tensors by name": (
        lambda: cgp.Model(inputs=keras.Input((1,)), outputs=None), TypeError, "cgp.Functional"),
    "complex data for a real input": (
        lambda: functional("float64")(np.ones((2, 1)) * 1j), TypeError,
        r"is float64 but was given complex data.*dtype=\"complex128\""),
    "arrays of unlike lengths": (
        lambda: averaging().fit(np.ones(3), np.ones(2), verbose=0), ValueError,
        "same number of samples, got x: 3, y: 2"),
    "LBFGS in batches": (
        lambda: averaging().fit(np.ones(3), batch_size=2), ValueError,
        "LBFGS needs the loss of all the data at once: batch_size=2 has no meaning"),
    "LBFGS by steps": (
        lambda: averaging().fit(np.ones(3), steps_per_epoch=2), ValueError,
        "LBFGS needs.*steps_per_epoch=2"),
    "LBFGS of several batches": (
        lambda: averaging().fit(tf.data.Dataset.from_tensors(np.ones(4)).repeat(2)), ValueError,
        "all the data in one batch, and the dataset has several: batch it by its length"),
    "LBFGS of a generator": (
        lambda: averaging().fit(iter([np.ones(3)])), TypeError, "LBFGS takes arrays or.*got x of"),
    "LBFGS of a loss that is NaN": (
        lambda: averaging().fit(np.array([np.nan]), verbose=0), ValueError,
        "loss at the initial variables is nan, and must be finite"),
    "LBFGS by hand": (
        lambda: cgp.optimizers.LBFGS().apply([], []), NotImplementedError,
        "LBFGS takes no single gradient steps: use it through the fit"),
    "LBFGS without memory": (
        lambda: cgp.optimizers.LBFGS(maxcor=0), ValueError,
        "maxcor must be a whole number, at least 1, got 0"),
    "LBFGS with a negative tolerance": (
        lambda: cgp.optimizers.LBFGS(gtol=-1.0), ValueError,
        "gtol must be finite and not negative, got -1.0"),
    "update of what is no layer's variable": (
        lambda: cgp.register_post_update(keras.layers.Layer(), [np.ones(2)], print), TypeError,
        "variable"),
}  # fmt: skip

TABLES = [LINALG, DISTRIBUTION, EXACT_GP, RECURSIVE_GP, METRICS_AND_PLOTS, TRAINING]
CASES = [pytest.param(*case, id=name) for table in TABLES for name, case in table.items()]


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    errors = error if isinstance(error, tuple) else (error,)
    assert type(caught.value) in (ValueError, TypeError, NotPositiveDefiniteError, *errors)
    assert not isinstance(caught.value, tf.errors.OpError)


# What was refused has changed nothing.

NEW = np.linspace(-1.0, 2.0, 5)


def states(model):
    """All that can be seen of a model."""
    found = {**model.predict(NEW), **{k: np.array(v) for k, v in model.parameters().items()}}
    found["observed"] = model.predict(NEW, observed=True)["variance"]
    found["covariance"] = model.posterior(NEW).covariance().numpy()
    if not model._stored.is_empty:
        found |= {f"loo {name}": value for name, value in model.loo().items()}
    return found


REFUSED = {
    "real targets": (X, Z.real, {}),
    "lengths": (X, Z[:2], {}),
    "NaN input": ([0.0, np.nan, 1.0], Z, {}),
    "infinite target": (X, np.array([1j, np.inf, 0]), {}),
    "all missing": (X, Z + np.nan, {}),
    "missing of another shape": (X, Z, {"missing": np.array([True, False])}),
    "precision": (X, np.complex64(Z), {}),
    "dimensions of the kernel": (np.zeros((3, 2)), Z, {}),
    "batch": (np.zeros((2, 3, 1)), np.stack([Z] * 3), {}),
}

KERNELS = {
    "proper": lambda: RBF(1.0, [0.7]) * Rotation([0.3]),
    "improper": lambda: WidelyLinear(RBF(1.0, [0.7]) * Rotation([0.3]), 0.4j),
}


@pytest.mark.parametrize("verb", ["condition", "fit with LBFGS", "fit with Adam"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", REFUSED)
def test_after_refused_data_a_model_predicts_as_before(case, kernel, verb):
    model = ExactGP(KERNELS[kernel](), 0.01)
    if verb != "condition":
        lbfgs = verb == "fit with LBFGS"
        model.compile(optimizer=cgp.optimizers.LBFGS() if lbfgs else keras.optimizers.Adam(0.1))
    model.condition(X, Z)
    before = states(model)
    x, z, arguments = REFUSED[case]
    with pytest.raises((ValueError, TypeError)):
        (model.condition if verb == "condition" else model.fit)(x, z, **arguments)
    after = states(model)
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.parametrize("why", ["epochs", "everything fixed"])
def test_after_a_refused_fit_the_data_are_those_of_before(why):
    model = compiled() if why == "epochs" else _everything_fixed()
    model.condition(X, Z)
    before = states(model)
    with pytest.raises(ValueError, match=r"no iteration|no trainable"):
        model.fit(X, 5 * Z, epochs=0 if why == "epochs" else None)
    after = states(model)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_noise_on_a_line_is_accepted_whatever_its_angle():
    for angle in np.linspace(0.0, 2 * np.pi, 100):
        ExactGP(RBF(1.0, 1.0), 0.3, noise_pseudo_variance=0.3 * np.exp(1j * angle))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_model_without_data_is_a_prior_still_after_refused_data(kernel):
    model = ExactGP(KERNELS[kernel](), 0.01)
    before = states(model)
    with pytest.raises(ValueError, match="as many points"):
        model.condition(X, Z[:2])
    after = states(model)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("verb", ["condition", "fit with LBFGS", "fit with Adam"])
def test_a_covariance_that_is_not_positive_definite_leaves_data_and_predictions(kernel, verb):
    """Duplicated inputs under no noise to speak of."""
    model = ExactGP(KERNELS[kernel](), 1e-300)
    if verb != "condition":
        lbfgs = verb == "fit with LBFGS"
        model.compile(optimizer=cgp.optimizers.LBFGS() if lbfgs else keras.optimizers.Adam(0.1))
    model.condition(X, Z)
    before = states(model)
    x, z = np.array([0.1, 0.1, 0.5, 0.5, 0.7]), np.arange(5) * 1j
    with pytest.raises(NotPositiveDefiniteError, match=r"not positive definite.*duplicated points"):
        (model.condition if verb == "condition" else model.fit)(x, z)
    after = states(model)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    model.noise_variance.assign(0.1)  # and it goes on from there
    model.condition(x, z)
    assert np.all(np.isfinite(model.predict(NEW)["mean"]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_hyperparameters_that_overflow_are_an_error_at_use_and_can_be_put_right(kernel):
    model = ExactGP(KERNELS[kernel](), 0.01)
    model.condition(X, Z)
    before = states(model)
    variance = next(p for name, p in model._parameters().items() if "variance" in name)
    was = variance.numpy()
    variance.variable.assign(800.0)  # e^800
    for use in (
        lambda: model.predict(NEW),
        lambda: model.loo(),
        lambda: model.log_marginal_likelihood(X, Z),
        lambda: model.condition(X + 1, Z),
    ):
        with pytest.raises(ValueError, match="NaN or infinite"):
            use()
    variance.assign(was)
    after = states(model)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12, err_msg=name)


def test_hyperparameters_that_make_the_data_singular_are_an_error_and_no_stale_prediction():
    model = ExactGP(RBF(1.0, 1.0, fixed="variance") + White(0.1), 0.1)
    model.condition([0.0, 0.0, 1.0], Z)
    before = states(model)
    model.noise_variance.assign(1e-300)
    with pytest.raises(NotPositiveDefiniteError, match="duplicated points"):
        model.predict(NEW)
    model.noise_variance.assign(0.1)
    after = states(model)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12, err_msg=name)


def test_a_fit_that_breaks_down_leaves_the_best_point_and_a_usable_model():
    """A prior pushes the noise under rounding; replicates then make the covariance singular."""
    down = tfp.distributions.Gamma(1e-3, 1e12)
    model = ExactGP(RBF(0.5, 2.0), 0.1, priors={"noise_variance": down})
    model.compile(optimizer=keras.optimizers.Adam(30.0))
    with pytest.warns(RuntimeWarning, match="has diverged"):
        model.fit([0.0, 0.0, 1.0], Z, epochs=50, verbose=0)
    assert all(np.all(np.isfinite(v)) for v in model.parameters().values())
    for p in model._parameters().values():
        p.assign(1.0)
    model.noise_variance.assign(0.1)
    expected = ExactGP(RBF(1.0, 1.0), 0.1)
    expected.condition([0.0, 0.0, 1.0], Z)
    np.testing.assert_allclose(
        model.predict(NEW)["mean"], expected.predict(NEW)["mean"], rtol=1e-10
    )


@pytest.mark.parametrize("optimizer", [cgp.optimizers.LBFGS, lambda: keras.optimizers.Adam(0.1)])
def test_an_interrupted_fit_leaves_state_and_hyperparameters_in_step(optimizer):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    rng = np.random.default_rng(9)
    x = np.linspace(0.0, 3.0, 12)
    z = np.exp(2j * x) + 0.1 * (rng.normal(size=12) + 1j * rng.normal(size=12))
    model = ExactGP(RBF(1.0, 1.0), 0.5)
    model.compile(optimizer=optimizer())
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, z, epochs=9, verbose=0, callbacks=[Interrupt()])
    fresh = ExactGP(RBF(1.0, 1.0), 0.5)
    for mine, theirs in zip(
        fresh._parameters().values(), model._parameters().values(), strict=True
    ):
        mine.assign(theirs.numpy())
    fresh.condition(x, z)
    assert float(model.noise_variance) != pytest.approx(0.5, rel=1e-3)
    for name, value in states(fresh).items():
        np.testing.assert_allclose(states(model)[name], value, rtol=1e-9, err_msg=name)
