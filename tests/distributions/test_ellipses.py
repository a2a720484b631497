import numpy as np
import pytest
import tensorflow as tf

from cgp.distributions import ellipses, principal_axes, squared_radius


@pytest.mark.parametrize("as_array", [np.asarray, tf.constant], ids=["numpy", "tensorflow"])
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_principal_axes_diagonalise_the_covariance_of_the_parts(dtype, as_array):
    rng = np.random.default_rng(1)
    w = np.asarray(rng.normal(size=5) + 1j * rng.normal(size=5), dtype)
    v = (np.abs(w) + rng.uniform(0.1, 1.0, 5)).astype(w.real.dtype)
    larger, smaller, angle = principal_axes(as_array(v), as_array(w))
    assert larger.dtype == smaller.dtype == angle.dtype == w.real.dtype
    tolerance = 1e-5 if dtype == "complex64" else 1e-12
    for i in range(5):
        plane = 0.5 * np.array([[v[i] + w[i].real, w[i].imag], [w[i].imag, v[i] - w[i].real]])
        axes = np.array(
            [[np.cos(angle[i]), -np.sin(angle[i])], [np.sin(angle[i]), np.cos(angle[i])]]
        )
        rebuilt = axes @ np.diag([larger[i], smaller[i]]) @ axes.T
        np.testing.assert_allclose(rebuilt, plane, atol=tolerance)


def test_a_segment_has_no_negative_width():
    _, smaller, _ = principal_axes(np.array([1.0, 0.0]), np.array([1.0 + 1e-16j, 1e-17]))
    np.testing.assert_array_equal(smaller, [0.0, 0.0])
    result = ellipses(np.zeros(1, complex), np.ones(1), np.ones(1) + 0j, 0.5)
    np.testing.assert_allclose(result.semi_major, np.sqrt(squared_radius(0.5)), rtol=1e-14)
    np.testing.assert_array_equal(result.semi_minor, [0.0])


def test_the_squared_radius_is_the_quantile_of_chi_squared():
    assert squared_radius(0.95) == pytest.approx(5.991464547107979, rel=1e-14)
    assert squared_radius(1e-12) == pytest.approx(2e-12, rel=1e-11)


@pytest.mark.parametrize("probability", [0.0, 1.0, -1, 95, np.nan])
def test_what_is_no_probability_is_refused(probability):
    with pytest.raises(ValueError, match=f"between 0 and 1, got {probability}"):
        squared_radius(probability)


Z, V, W = np.zeros(3, complex), np.ones(3), 0.5j * np.ones(3)


@pytest.mark.parametrize(
    ("variance", "pseudo_variance", "error", "message"),
    [
        (V[:2], W, ValueError, r"must have one shape, got \(2,\) and \(3,\)"),
        (V, W[0], ValueError, r"must have one shape, got \(3,\) and \(\)"),
        ([1.0, -1.0, 1.0], W, ValueError, "1 of 3 points have a variance that is negative"),
        ([-1.0, -1.0, 1.0], 0 * W, ValueError, "2 of 3 points have a variance that is negative"),
        (V, 3 * W, ValueError, "3 of 3 points .* less than the modulus of their pseudo-variance"),
        (V + 1j, W, TypeError, "variance must be real, got complex128"),
        (V, ["a"] * 3, TypeError, "pseudo_variance must be numbers"),
    ],
)
def test_what_are_no_variances_is_refused(variance, pseudo_variance, error, message):
    for call in (principal_axes, lambda v, w: ellipses(Z, v, w, 0.9)):
        with pytest.raises(error, match=message):
            call(variance, pseudo_variance)
    with pytest.raises(ValueError, match=r"center must have .* variances, \(3,\), got \(2,\)"):
        ellipses(Z[:2], V, W, 0.9)


def test_rounding_beside_a_large_variance_is_none_of_a_variance():
    """A posterior variance far below the prior one may come out below zero."""
    for v, w in (([1.0, -1e-9], [0, 0]), (np.float32([1, -1e-5]), np.zeros(2, "complex64"))):
        axes = ellipses(Z[:2], v, w, 0.9)
        np.testing.assert_array_equal([axes.semi_major[1], axes.semi_minor[1]], 0.0)


def test_unknown_shapes_and_values_of_a_graph_are_left_alone():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
    def larger(v):
        return principal_axes(v, tf.zeros_like(tf.cast(v, tf.complex128))).larger

    np.testing.assert_array_equal(larger(V), 0.5 * V)
