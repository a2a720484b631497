"""Values worked out by hand: signs, halves and factors of 2π."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import (
    RBF,
    Conjugate,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    Rotation,
    White,
    WidelyLinear,
)


def between(kernel, x1, x2):
    """K and C between two points."""
    k, c = kernel.covariance([x1], [x2]), kernel.pseudo_covariance([x1], [x2])
    return complex(k.numpy()[0, 0]), complex(c.numpy()[0, 0])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Constant(3.0), 3.0),
        (Matern12(2.0, 4.0), 1.2130613194252668),  # 2 e^{-1/2}
        (RBF(2.0, 4.0), 1.7649938051691907),  # 2 e^{-1/8}
        (Matern32(2.0, 4.0), 1.5697753079149015),  # 2 (1 + √3/2) e^{-√3/2}
        (Matern52(2.0, 4.0), 1.6572982848362505),  # 2 (1 + √5/2 + 5/12) e^{-√5/2}
        (RationalQuadratic(2.0, 4.0, 2.0), 1.7716262975778547),  # 2 (17/16)^{-2}
        (Periodic(2.0, 0.5, 0.125), 0.03663127777746836),  # 2 e^{-2 sin²(π/4)/0.25} = 2 e^{-4}
        (Periodic(2.0, 0.5, 0.5), 2.0),  # a full period
        (Rotation(0.125), 1j),  # a quarter turn, the way of e^{+i2πft}
        (Rotation(-0.125), -1j),
        (Conjugate(Rotation(0.125)), -1j),
        (Rotation(1 / 3), np.exp(4j * np.pi / 3)),
        (Matern12(2.0, 4.0) * Rotation(0.125), 1.2130613194252668j),
        (2.0 * Rotation(0.125), 2j),  # a scalar scales the covariance, not the amplitude
    ],
    ids=repr,
)
def test_the_covariance_at_a_distance_of_two(kernel, expected):
    k, c = between(kernel, 2.5, 0.5)
    assert k == pytest.approx(expected, rel=1e-14, abs=1e-15)
    assert c == 0.0
    assert between(kernel, 0.5, 2.5)[0] == pytest.approx(np.conj(expected), rel=1e-14, abs=1e-15)


def test_white_noise_is_shared_by_replicates():
    k = White(0.5).covariance([1.0, 2.0, 1.0]).numpy()
    np.testing.assert_allclose(k, [[0.5, 0, 0.5], [0, 0.5, 0], [0.5, 0, 0.5]], rtol=1e-15)


def test_a_delay_is_a_negative_frequency_over_the_frequency_axis():
    tau, f = 0.37, np.array([1.0, 1.2, 1.9])
    response = np.exp(-2j * np.pi * f * tau)  # of unknown phase, which the product cancels
    expected = np.outer(response, response.conj())
    found = Rotation(frequency=-tau).covariance(f).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_a_tone_is_a_positive_frequency_over_time():
    t = np.array([0.0, 0.4, 1.3])
    tone = np.exp(2j * np.pi * 0.6 * t)
    found = Rotation(0.6).covariance(t).numpy()
    np.testing.assert_allclose(found, np.outer(tone, tone.conj()), atol=1e-14)


@pytest.mark.parametrize("coefficient", [0.5, 0.5j, 0.3 - 0.4j, np.exp(0.7j)])
def test_widely_linear_moments_are_those_of_u_plus_c_times_its_conjugate(coefficient):
    """u = A w for proper white w, so that E[u uᴴ] = A Aᴴ and E[u uᵀ] = 0, and z = A w + c Ā w̄."""
    kernel = Matern12(1.5, 0.7) * Rotation(0.4)
    x = np.array([0.0, 0.3, 1.4])
    a = np.linalg.cholesky(kernel.covariance(x).numpy())
    b = coefficient * a.conj()
    improper = WidelyLinear(kernel, coefficient)
    k, c = improper.covariance(x).numpy(), improper.pseudo_covariance(x).numpy()
    np.testing.assert_allclose(k, a @ a.conj().T + b @ b.conj().T, atol=1e-14)
    np.testing.assert_allclose(c, a @ b.T + b @ a.T, atol=1e-14)


def test_a_coefficient_of_modulus_one_puts_the_signal_on_a_line_at_half_its_angle():
    angle = 0.6
    kernel = WidelyLinear(RBF(), np.exp(2j * angle))
    k, c = between(kernel, 0.0, 0.0)
    turned = c * np.exp(-2j * angle)  # E[(z e^{-i angle})²]
    assert k == pytest.approx(2.0, rel=1e-15)
    assert turned == pytest.approx(2.0, rel=1e-15)  # all of the variance is real


def test_a_rotation_inside_widely_linear_has_a_stationary_pseudo_covariance():
    kernel = WidelyLinear(Rotation(0.125), 0.5)
    k, c = between(kernel, 2.5, 0.5)
    assert k == pytest.approx(1j + 0.25 * -1j, abs=1e-15)
    assert c == pytest.approx(0.5 * (1j - 1j), abs=1e-15)
    assert between(kernel, 12.5, 12.0)[1] == pytest.approx(np.cos(np.pi / 8), rel=1e-13)


def test_a_proper_kernel_has_half_of_its_variance_in_each_part():
    kernel = RBF(2.0) * Rotation(0.3)
    composite = cgp.linalg.to_composite(kernel.covariance([0.0]), kernel.pseudo_covariance([0.0]))
    np.testing.assert_allclose(composite, np.eye(2), atol=1e-15)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(1.0, 0.07),
        Matern12(1.0, 0.07),
        Matern32(1.0, 0.07),
        Matern52(1.0, 0.07),
        RationalQuadratic(1.0, 0.07),
        Periodic(1.0, 0.3, 13.3),
        Rotation(13.3),
        WidelyLinear(Matern12(1.0, 0.07) * Rotation(13.3), 0.5j),
    ],
    ids=repr,
)
def test_dates_lose_no_precision(kernel):
    """Modified Julian dates: the same differences, 60000 days later, give the same covariance."""
    x = np.round(np.random.default_rng(4).uniform(0, 0.3, 9) * 2**30) / 2**30  # exact at 6e4
    for moment in (kernel.covariance, kernel.pseudo_covariance):
        np.testing.assert_allclose(moment(x + 60_000.0), moment(x), rtol=0, atol=1e-14)


def test_integer_and_float32_inputs_are_read_in_the_dtype_of_the_kernel():
    kernel, expected = RBF(1.0, 3.0), RBF(1.0, 3.0).covariance([1.0, 2.0])
    for x in ([1, 2], np.array([1, 2], np.int32), np.float32([1, 2]), tf.constant([1.0, 2.0])):
        k = kernel.covariance(x)
        assert k.dtype == tf.complex128
        np.testing.assert_array_equal(k, expected)


def test_a_date_reaches_a_kernel_in_double_precision():
    x = np.array([60_000.0, 60_000.0 + 1e-5])
    k = Rotation(1e4).covariance(x).numpy()[1, 0]
    assert k == pytest.approx(np.exp(2j * np.pi * 1e4 * (x[1] - x[0])), abs=1e-12)


JULIAN = 2460000.5 + 1e-3 * np.arange(16)


@pytest.mark.parametrize(
    "x",
    [
        JULIAN,
        tf.constant(JULIAN),
        2460000.5 + np.random.default_rng(0).uniform(0, 30, 500),
        np.stack([np.arange(16.0), JULIAN], axis=-1),
        np.arange(2**40, 2**40 + 9),
        [1.0, 1.0 + 1e-9],
    ],
    ids=["dates", "tensor", "random dates", "one coordinate", "integers", "two points"],
)
def test_points_that_single_precision_cannot_tell_apart_are_refused_there(x):
    with pytest.raises(ValueError, match=r"x1 loses its steps of .* subtract an origin .*float64"):
        RBF(dtype="float32").covariance(x)
    assert RBF().covariance(x).dtype == tf.complex128
    with pytest.raises(ValueError, match="x loses its steps"):
        RBF(dtype="float32").moments_diagonal(x)
    origin = np.asarray(x)[0]
    assert RBF(dtype="float32").covariance(np.asarray(x) - origin).dtype == tf.complex64


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(1).uniform(size=3000),  # some pairs of which become equal
        2460000.5 + np.arange(16),
        1900.0 + np.arange(3000) / 24,
        np.concatenate([0.1 * np.arange(10), np.linspace(0.0, 0.9, 10), np.arange(0.0, 1.0, 0.1)]),
        JULIAN.astype(np.float32),  # whoever rounds them knows
        [2460000.123],
        np.zeros((0, 2)),
        np.zeros((2, 0, 1)),
        np.full(5, 0.1),
    ],
    ids=["random", "days", "months", "rounded", "float32", "one", "none", "no batch", "equal"],
)
def test_points_that_single_precision_tells_apart_are_taken(x):
    k = RBF(dtype="float32").covariance(x)
    assert k.dtype == tf.complex64


def test_one_axis_of_inputs_is_one_dimension():
    x = np.array([0.0, 0.5, 2.0])
    kernel = RBF() * Rotation(0.3)
    np.testing.assert_array_equal(kernel.covariance(x), kernel.covariance(x[:, None]))
    assert kernel.covariance(x, [1.0]).shape == (3, 1)


def test_no_points_make_an_empty_matrix():
    assert WidelyLinear(RBF(), 0.5).covariance([], [1.0, 2.0]).shape == (0, 2)
