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
    found = ellipses(np.zeros(1, complex), np.ones(1), np.ones(1) + 0j, 0.5)
    np.testing.assert_allclose(found.semi_major, np.sqrt(squared_radius(0.5)), rtol=1e-14)
    np.testing.assert_array_equal(found.semi_minor, [0.0])


def test_the_squared_radius_is_the_quantile_of_chi_squared():
    assert squared_radius(0.95) == pytest.approx(5.991464547107979, rel=1e-14)
    assert squared_radius(1e-12) == pytest.approx(2e-12, rel=1e-11)


@pytest.mark.parametrize("probability", [0.0, 1.0, -1, 95, np.nan])
def test_what_is_no_probability_is_refused(probability):
    with pytest.raises(ValueError, match=f"between 0 and 1, got {probability}"):
        squared_radius(probability)
