"""The compiled smoother gives what that of TensorFlow gives, which these take as known."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import native, statespace
from cgp.statespace.engines import differentiable_smoother
from tests.long_cases import long_except
from tests.statespace.problems import assert_same, improper_parts, problem

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)

DTYPES = ["complex128", "complex64", "float64", "float32"]


@pytest.fixture(autouse=True)
def served(monkeypatch):
    """Whether the op served, in the order of the calls."""
    found, by_core = [], differentiable_smoother._by_core

    def noted(steps):
        values = by_core(steps)
        found.append(values is not None)
        return values

    monkeypatch.setattr(differentiable_smoother, "_by_core", noted)
    return found


def assert_equivalent(given, served, without_core, tolerance=1e-12):
    found = given.smooth()
    expected = without_core(given.smooth)
    assert served == [True, False]
    served.clear()
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
    assert_same(*zip(*pairs, strict=True), given.z.dtype, tolerance)


@pytest.mark.parametrize("n", long_except([1, 2, 3, 7], 2))  # unrolled up to 2
def test_one_series(n, served, without_core):
    assert_equivalent(problem(n, 2, holes="own"), served, without_core)


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
def test_series_that_share_covariances(dtype, served, without_core):
    given = problem(3, 2, dtype, batch=21, holes="shared", inputs=1)
    assert_equivalent(given, served, without_core)


@pytest.mark.parametrize(
    ("models", "varying", "dtype"),
    long_except(
        [(*kind, dtype) for kind in [(False, ""), (True, "FQHR")] for dtype in DTYPES],
        (True, "FQHR", "complex128"),
    ),
)
def test_series_with_covariances_of_their_own(models, varying, dtype, served, without_core):
    kinds = {"varying": varying, "models": models, "holes": "own"}
    given = problem(3, 1, dtype, batch=19, **kinds)
    assert_equivalent(given, served, without_core)


@pytest.mark.long
def test_matrices_that_vary(served, without_core):
    given = problem(3, 2, varying="FQHRB", inputs=2, holes="own")
    assert_equivalent(given, served, without_core)


@pytest.mark.long
@pytest.mark.parametrize("name", ["Q", "R", "initial_covariance"])
def test_singular_covariances(name, served, without_core):
    given = problem(3, 2)
    given = given.changed(**{name: np.zeros_like(given.matrices[name])})
    # Without noise the way back is by the inverse of F, which magnifies at each step.
    tolerance = 1e-7 if name == "Q" else 1e-12
    assert_equivalent(given, served, without_core, tolerance)


@pytest.mark.long
@pytest.mark.parametrize("batch", [None, 40])
def test_many_steps_on_threads_and_with_settled_covariances(batch, served, without_core):
    assert_equivalent(problem(4, 1, batch=batch, steps=700), served, without_core)


@pytest.mark.long
def test_a_widely_linear_model(served, without_core):
    given, (covariances, parts) = problem(2, 1, holes="own"), improper_parts(2, 1)
    model = statespace.widely_linear(given.changed(**covariances).model(), **parts)
    found = statespace.smooth(model, given.z)
    expected = without_core(statespace.smooth, model, given.z)
    assert served == [True, False]
    assert_same(found, expected, "complex128", 1e-12)


@pytest.mark.long
def test_a_graph_takes_the_other_path(served):
    given = problem(2, 1)
    traced = tf.function(statespace.smooth)(given.model(), tf.constant(given.z))
    np.testing.assert_allclose(traced.smoothed_means, given.smooth().smoothed_means, rtol=1e-12)
    assert served == [False, True]


def test_covariances_that_overflow_are_those_without_the_core(served, without_core):
    """The op refuses what is not finite."""
    model = statespace.LinearGaussian([[1e30]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])
    z = np.full(12, np.nan)
    results = []
    for call in (lambda f, *a: f(*a), without_core):
        try:
            results.append(
                [np.asarray(a) for a in call(statespace.smooth, model, z) if a is not None]
            )
        except ValueError as error:
            results.append(str(error))
    np.testing.assert_equal(*results)
