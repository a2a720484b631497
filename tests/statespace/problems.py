"""Models with series, as cgp builds them and as the reference computes them."""

from typing import Any, NamedTuple

import numpy as np

from cgp import statespace
from tests.linalg.problems import is_single, random
from tests.reference import kalman

STEPS = 14


class Problem(NamedTuple):
    matrices: dict[str, Any]
    """Of `LinearGaussian`, NumPy: batch axes before that of time."""
    z: np.ndarray
    inputs: np.ndarray | None = None

    def model(self):
        return statespace.LinearGaussian(**self.matrices)

    def filter(self):
        return statespace.filter(self.model(), self.z, inputs=self.inputs)

    def smooth(self):
        return statespace.smooth(self.model(), self.z, inputs=self.inputs)

    def log_likelihood(self):
        return statespace.log_likelihood(self.model(), self.z, inputs=self.inputs)

    def changed(self, **matrices):
        return self._replace(matrices=self.matrices | matrices)

    def members(self):
        """The problems of one series each, of a batch with one axis."""
        for b in range(len(self.z)):
            matrices = {}
            for name, array in self.matrices.items():
                per_series = array.ndim > {"initial_mean": 1, "initial_covariance": 2}.get(name, 3)
                array = array[b] if per_series else array
                matrices[name] = array[0] if per_series and array.shape[0] == 1 else array
            inputs = self.inputs
            yield Problem(matrices, self.z[b], inputs if inputs is None else inputs[b])

    def reference(self):
        """The `kalman.Model` of one series."""
        names = dict(self.matrices)
        mean, covariance = names.pop("initial_mean"), names.pop("initial_covariance")
        return kalman.model(
            **names, mean=mean, covariance=covariance, steps=len(self.z), inputs=self.inputs
        )

    def expected(self, verb):
        """The result of `verb(model, z)` of the reference, stacked over the batch."""
        if self.z.ndim == 2:
            return verb(self.reference(), self.z)
        results = [p.expected(verb) for p in self.members()]
        if not isinstance(results[0], tuple):
            return np.array(results)
        return type(results[0])(*(np.array(arrays) for arrays in zip(*results, strict=True)))


def random_covariance(rng, shape, n, dtype, rank=None):
    a = random(rng, (*shape, n, n + 2 if rank is None else rank), dtype)
    return a @ kalman.adjoint(a) / a.shape[-1]


def random_transition(rng, shape, n, dtype, radius=0.9):
    a = random(rng, (*shape, n, n), dtype)
    largest = np.abs(np.linalg.eigvals(a)).max(axis=-1)
    return (a * (radius / largest[..., None, None])).astype(dtype)


def random_holes(rng, shape):
    """Masks a third of all elements, and the first, two middle and the last steps entirely."""
    missing = rng.random(shape) < 0.3
    middle = shape[-2] // 2
    missing[..., 1, :] = False
    missing[..., [0, middle, middle + 1, -1][:: 1 if middle > 2 else 3], :] = True
    missing[..., 2, 1:] = True
    missing[..., 2, :1] = False
    return missing


def problem(
    n,
    m,
    dtype="complex128",
    steps=STEPS,
    varying="",
    holes="",
    inputs=0,
    batch=None,
    models=False,
    seed=0,
):
    """A random model with random data.

    Args:
        varying: Which of F, Q, H, R, B vary.
        holes: Empty, "shared" by a batch or "own".
        inputs: How many.
        batch: How many series, or None for one without a batch axis.
        models: Whether each series has a model of its own.
    """
    rng = np.random.default_rng([seed, n, m])
    several = () if batch is None else (batch,)
    own = several if models else ()

    def per(name):
        varies = (steps,) if name in varying else (1,) if own else ()
        return (*own, *varies)

    matrices = {
        "F": random_transition(rng, per("F"), n, dtype),
        "Q": random_covariance(rng, per("Q"), n, dtype),
        "H": random(rng, (*per("H"), m, n), dtype),
        "R": random_covariance(rng, per("R"), m, dtype),
        "initial_mean": random(rng, (*own, n), dtype),
        "initial_covariance": random_covariance(rng, own, n, dtype),
    }
    z = 2 * random(rng, (*several, steps, m), dtype)
    if holes:
        missing = random_holes(rng, (steps, m) if holes == "shared" else z.shape)
        z[np.broadcast_to(missing, z.shape)] = np.nan
    u = None
    if inputs:
        matrices["B"] = random(rng, (*per("B"), n, inputs), dtype)
        u = random(rng, (*several, steps, inputs), dtype)
    return Problem(matrices, z, u)


def is_double(dtype):
    return not is_single(np.asarray(0, dtype).real.dtype)


def square(chol):
    chol = np.asarray(chol)
    return chol @ kalman.adjoint(chol)


def tolerances(dtype, scale=1.0):
    size = 2e-4 if is_single(np.asarray(0, dtype).real.dtype) else 1e-10
    return {"rtol": size * scale, "atol": size * scale}


def assert_factors(chols):
    """Lower triangular, with a real diagonal that is nowhere negative."""
    chols = np.asarray(chols)
    np.testing.assert_array_equal(chols, np.tril(chols))
    diagonal = np.diagonal(chols, axis1=-2, axis2=-1)
    np.testing.assert_array_equal(diagonal.imag, 0.0)
    assert (diagonal.real >= 0.0).all()


def assert_same(arrays, expected, dtype, tolerance):
    """Compares arrays relative to the largest element of each, or to a hundredth of that of all.

    Arrays of single precision need to agree within 1e-5 only.
    """
    tolerance = tolerance if is_double(dtype) else 1e-5
    floor = 1e-2 * max(np.abs(b).max() for b in expected)
    for a, b in zip(arrays, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(np.abs(b).max(), floor))


def assert_filtered(result, expected, z, **tolerance):
    """`statespace.Filtered` of proper or real series against the reference's."""
    tolerance = tolerance or tolerances(z.dtype)

    def equal(a, b):
        np.testing.assert_allclose(a, b, **tolerance)

    equal(result.predicted_means, expected.predicted_means)
    equal(result.filtered_means, expected.filtered_means)
    equal(square(result.predicted_chols), expected.predicted_covariances)
    equal(square(result.filtered_chols), expected.filtered_covariances)
    assert_factors(result.predicted_chols)
    assert_factors(result.filtered_chols)
    missing = np.isnan(z)
    np.testing.assert_array_equal(np.isnan(result.innovations), missing)
    equal(np.asarray(result.innovations)[~missing], expected.innovations[~missing])
    equal(
        *np.broadcast_arrays(
            np.asarray(result.innovation_covariances), expected.innovation_covariances
        )
    )
    variances = np.diagonal(expected.innovation_covariances, axis1=-2, axis2=-1).real
    assert result.innovation_variances.shape == z.shape
    equal(result.innovation_variances, variances)
    assert result.innovation_pseudo_covariances is None
    equal(result.log_likelihoods, expected.log_likelihoods)
    equal(result.log_likelihood, np.sum(expected.log_likelihoods, axis=-1))
    assert np.asarray(result.log_likelihood).dtype == np.asarray(0, z.dtype).real.dtype


def assert_smoothed(result, expected, **tolerance):
    tolerance = tolerance or {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(result.smoothed_means, expected.means, **tolerance)
    np.testing.assert_allclose(square(result.smoothed_chols), expected.covariances, **tolerance)
    np.testing.assert_allclose(
        result.lag_one_covariances, expected.lag_one_covariances, **tolerance
    )
    assert_factors(result.smoothed_chols)


def improper_parts(n, m, seed=0, k=0):
    """Matrices of `widely_linear` for `problem(n, m)` that are valid together.

    Returns:
        `(matrices, parts)`: covariances that replace those of the model, and the other arguments.
    """
    rng = np.random.default_rng([seed, n, m, 9])

    def of_noise(size):
        a, b = (random(rng, (size, size), "complex128") for _ in range(2))
        b = 0.6 * b
        covariance = (a @ kalman.adjoint(a) + b @ kalman.adjoint(b)) / size
        pseudo = (a @ np.swapaxes(b, 0, 1) + b @ np.swapaxes(a, 0, 1)) / size
        return covariance, pseudo

    matrices, parts = {}, {}
    for name, pseudo, size in (
        ("Q", "pseudo_Q", n),
        ("R", "pseudo_R", m),
        ("initial_covariance", "initial_pseudo_covariance", n),
    ):
        matrices[name], parts[pseudo] = of_noise(size)
    parts["F_conj"] = 0.3 * random_transition(rng, (), n, "complex128")
    parts["H_conj"] = 0.5 * random(rng, (m, n), "complex128")
    if k:
        parts["B_conj"] = random(rng, (n, k), "complex128")
    return matrices, parts


def reference_augmented(problem, parts):
    """The reference model of `[x; x̄]`."""
    names = {
        "F_conj": "F",
        "pseudo_Q": "Q",
        "H_conj": "H",
        "pseudo_R": "R",
        "initial_pseudo_covariance": "covariance",
    }
    arguments = {names[key]: array for key, array in parts.items() if key in names}
    if "B_conj" in parts:
        arguments["drift"] = np.conj(problem.inputs) @ np.swapaxes(parts["B_conj"], -1, -2)
    return kalman.augmented(problem.reference(), **arguments)
