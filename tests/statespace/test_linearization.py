"""Moments that rules give functions of uncertain states, against quadrature."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from cgp.statespace import NonlinearGaussian, SigmaPoints, Taylor
from cgp.statespace.engines.filter_step import State
from tests.reference import nonlinear as reference
from tests.statespace.nonlinear_problems import joined, real_composite

MEAN = np.array([0.4 + 0.3j, -0.2 + 0.5j])
COVARIANCE = np.array([[0.5, 0.1 + 0.2j], [0.1 - 0.2j, 0.4]])
PSEUDO = np.array([[0.2 + 0.1j, 0.05j], [0.05j, -0.1 + 0.2j]])


def composite(K, C):
    return 0.5 * np.block([[(K + C).real, (C - K).imag], [(C + K).imag, (K - C).real]])


def batch_last(function):
    """A function `[B, K, n]` -> `[B, K, m]`, as one `[n, K, B]` -> `[m, K, B]`."""
    return lambda x: tf.einsum("bkm->mkb", function(tf.einsum("nkb->bkn", x)))


def moments(rule, function, size, pseudo=True, **options):
    """What a rule says of E f, E (f−m)(f−m)ᴴ, E (f−m)(f−m)ᵀ and E (f−m)(x−μ)ᴴ, complex."""
    mean, K = MEAN[:size], COVARIANCE[:size, :size]
    C = PSEUDO[:size, :size] if pseudo else None
    model = NonlinearGaussian(
        lambda x: x,
        function,
        K,
        np.eye(len(function(tf.constant(mean)))),
        mean,
        K,
        initial_pseudo_covariance=C,
        **options,
    )
    noise = model.noise
    state = State(noise.initial_mean[:, None], noise.initial_chol[..., None])
    affine = rule.linearize(batch_last(model.working("observation", None)), state)
    A, b = affine.matrix.numpy()[..., 0], affine.offset.numpy()[..., 0]
    P = noise.initial_covariance.numpy()
    covariance = A @ P @ A.conj().T
    if affine.residual is not None:
        E = affine.residual.numpy()[..., 0]
        covariance = covariance + E @ E.conj().T
    return A @ noise.initial_mean.numpy() + b, covariance, A @ P


def quadrature(function, size, order, pseudo=True):
    """The same of the real composite, by Gauss and Hermite's rule."""
    C = PSEUDO[:size, :size] if pseudo else np.zeros([size, size])
    P = composite(COVARIANCE[:size, :size], C)
    points, weights = reference.quadrature(2 * size, order)
    x = points @ np.linalg.cholesky(P).T
    y = np.asarray(function(tf.constant(MEAN[:size] + joined(x))))
    y = real_composite(y) if np.iscomplexobj(y) else y
    mean = weights @ y
    centred = (weights[:, None] * (y - mean)).T
    return mean, centred @ (y - mean), centred @ x


def power(x):
    return tf.abs(x[..., :1]) ** 2


def turned(x):
    return tf.exp(1j * tf.cast(3.0 * tf.math.real(x[..., :1]), x.dtype))


def saturated(x):
    return x[..., :1] / tf.cast(1.0 + tf.abs(x[..., :1]) ** 2, x.dtype)


def product(x):
    return tf.concat([x[..., :1] * x[..., 1:], x[..., :1] * tf.math.conj(x[..., 1:])], axis=-1)


def cubic(x):
    return x[..., :1] ** 2 * tf.math.conj(x[..., :1]) + 1j * x[..., :1]


def widely_linear(x):
    return (1.0 + 2j) * x[..., :1] - 0.5j * tf.math.conj(x[..., :1]) + 0.3


CUBATURE, UNSCENTED = SigmaPoints("cubature"), SigmaPoints("unscented")
QUADRATURE = SigmaPoints("gauss-hermite", order=3)


@pytest.mark.parametrize("rule", [CUBATURE, UNSCENTED, SigmaPoints("unscented", kappa=0.7)])
@pytest.mark.parametrize(
    ("function", "size", "exact"),
    [
        # Degree 3: means of cubics, covariances with the state of quadratics, all of linear ones.
        (cubic, 1, (True, False, False)),
        (power, 1, (True, False, True)),
        (product, 2, (True, False, True)),
        (widely_linear, 1, (True, True, True)),
    ],
)
def test_are_moments_by_points_exact_to_degree_three(rule, function, size, exact):
    found, expected = moments(rule, function, size), quadrature(function, size, 8)
    for a, b, is_exact in zip(found, expected, exact, strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-10) == is_exact


def test_is_the_unscented_rule_exact_to_degree_five_along_one_axis():
    """Of a single real state, whose fourth moment it has too."""
    found = UNSCENTED.linearize(
        lambda x: tf.concat([x**2, x**3], axis=0),
        State(tf.constant([[0.3]], tf.float64), tf.constant([[[0.8]]], tf.float64)),
    )
    points, weights = reference.quadrature(1, 8)
    x = 0.3 + 0.8 * points
    y = np.hstack([x**2, x**3])
    mean = weights @ y
    A, b, E = (a.numpy()[..., 0] for a in found)
    np.testing.assert_allclose(A @ [0.3] + b, mean, atol=1e-12)
    expected = (weights * (y[:, 0] - mean[0])) @ (y[:, 0] - mean[0])
    np.testing.assert_allclose((0.64 * A @ A.T + E @ E.T)[0, 0], expected, atol=1e-12)


@pytest.mark.parametrize(("function", "size"), [(power, 1), (product, 2)])
def test_are_covariances_of_quadratics_exact_by_three_points_an_axis(function, size):
    """Pseudo-covariances included: they are in the covariance of the composite."""
    for a, b in zip(
        moments(QUADRATURE, function, size), quadrature(function, size, 8), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("function", [power, turned, saturated])
def test_do_moments_by_quadrature_become_those_of_64_points(function):
    expected = quadrature(function, 1, 64)
    errors = []
    for order in (3, 6, 12, 24, 48):
        found = moments(SigmaPoints("gauss-hermite", order=order), function, 1)
        errors.append(max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True)))
    if function is power:
        assert max(errors) < 1e-12
    else:
        assert errors[0] > 1e-3
        assert errors[-1] < (1e-10 if function is turned else 1e-5)  # saturation has poles nearby
        assert all(b < 0.5 * a for a, b in itertools.pairwise(errors) if a > 1e-10)


def test_is_the_pseudo_covariance_of_what_is_turned_that_of_theory():
    """θ ~ N(μ, s²): E exp(iθ) = exp(iμ − s²/2), E exp(2iθ) = exp(2iμ − 2s²)."""
    mean, deviation = 0.7, 0.4
    state = State(tf.constant([[mean]], tf.float64), tf.constant([[[deviation]]], tf.float64))
    model = NonlinearGaussian(
        lambda x: x,
        lambda x: tf.complex(tf.cos(x), tf.sin(x)),
        [[0.0]],
        [[1.0]],
        [mean],
        [[deviation**2]],
    )
    rule = SigmaPoints("gauss-hermite", order=20)
    affine = rule.linearize(batch_last(model.working("observation", None)), state)
    A, b, E = (a.numpy()[..., 0] for a in affine)
    first = np.exp(1j * mean - deviation**2 / 2)
    np.testing.assert_allclose(joined(A @ [mean] + b), [first], atol=1e-12)
    covariance = deviation**2 * A @ A.T + E @ E.T
    (rr, ri), (_, ii) = covariance
    np.testing.assert_allclose(rr + ii, 1.0 - abs(first) ** 2, atol=1e-12)
    second = np.exp(2j * mean - 2 * deviation**2)
    np.testing.assert_allclose(rr - ii + 2j * ri, second - first**2, atol=1e-12)


def test_is_the_derivative_by_real_and_imaginary_parts_that_of_wirtinger():
    """∂f/∂x = 2x x̄ + i and ∂f/∂x̄ = x² of `cubic`."""
    _, _, cross = moments(Taylor(), cubic, 1)
    x = MEAN[0]
    by_x, by_conjugate = 2 * abs(x) ** 2 + 1j, x**2
    K, C = COVARIANCE[0, 0], PSEUDO[0, 0]
    with_state = by_x * K + by_conjugate * np.conj(C)  # E f x̄
    with_conjugate = by_x * C + by_conjugate * K
    (rr, ri), (ir, ii) = cross
    np.testing.assert_allclose(rr + ii + 1j * (ir - ri), with_state, atol=1e-12)
    np.testing.assert_allclose(rr - ii + 1j * (ir + ri), with_conjugate, atol=1e-12)


@pytest.mark.parametrize("rule", [Taylor(), CUBATURE, UNSCENTED, QUADRATURE], ids=str)
def test_is_a_holomorphic_function_of_a_proper_state_the_same_in_complex_numbers(rule):
    """Its mean is its value at the mean, and the best slope its derivative there."""

    def square(x):
        return x[..., :1] * x[..., 1:] + 0.5 * x[..., :1] ** 2

    mean, covariance, cross = moments(rule, square, 2, pseudo=False, holomorphic=True)
    slope = np.array([MEAN[1] + MEAN[0], MEAN[0]])
    np.testing.assert_allclose(mean, [MEAN[0] * MEAN[1] + 0.5 * MEAN[0] ** 2], atol=1e-12)
    np.testing.assert_allclose(cross, slope[None] @ COVARIANCE, atol=1e-12)
    real_mean, real_covariance, _ = moments(rule, square, 2, pseudo=False)
    np.testing.assert_allclose(real_composite(mean), real_mean, atol=1e-12)
    if rule in (Taylor(), QUADRATURE):  # others are not exact to the degree of covariances
        np.testing.assert_allclose(covariance.real, [[np.trace(real_covariance)]], atol=1e-12)


@pytest.mark.parametrize("rule", [CUBATURE, UNSCENTED, QUADRATURE], ids=str)
def test_a_state_known_along_some_directions_is_linearised_along_the_others(rule):
    chol = np.array([[0.5, 0.0], [0.0, 0.0]])
    state = State(tf.constant([[1.0], [2.0]], tf.float64), tf.constant(chol[..., None]))
    A, b, E = rule.linearize(lambda x: x[:1] ** 2 * x[1:], state)
    np.testing.assert_allclose(A[0, :, 0], [4.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(A[0, 0, 0] * 1.0 + b[0, 0], 2.0 * 1.25, atol=1e-12)
    assert np.isfinite(E).all()
