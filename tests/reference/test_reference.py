"""The reference against brute numbers: integrals on grids, draws, limits."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

from tests.reference import complex_normal, gaussian_process, kernels


def grid(half_width, steps):
    axis = np.linspace(-half_width, half_width, steps)
    return axis[:, None] + 1j * axis, (axis[1] - axis[0]) ** 2


IMPROPER = (np.array([0.3 - 0.2j]), np.array([[1.5 + 0j]]), np.array([[0.6 - 0.7j]]))


@pytest.mark.long
def test_a_density_integrates_to_one_and_has_its_moments():
    mean, k, c = IMPROPER
    z, cell = grid(9.0, 101)
    p = np.exp([[complex_normal.log_prob(v[None], mean, k, c) for v in row] for row in z])
    d = z - mean
    np.testing.assert_allclose(np.sum(p) * cell, 1.0, rtol=1e-8)
    np.testing.assert_allclose(np.sum(p * np.abs(d) ** 2) * cell, k[0, 0], rtol=1e-8)
    np.testing.assert_allclose(np.sum(p * d**2) * cell, c[0, 0], rtol=1e-8)
    np.testing.assert_allclose(
        -np.sum(p * np.log(p)) * cell, complex_normal.entropy(k, c), rtol=1e-8
    )
    other = (np.array([-0.1j]), np.array([[2.0 + 0j]]), np.array([[0.5j]]))
    q = np.exp([[complex_normal.log_prob(v[None], *other) for v in row] for row in z])
    kl = complex_normal.kl_divergence(mean, k, c, *other)
    np.testing.assert_allclose(np.sum(p * np.log(p / q)) * cell, kl, rtol=1e-8)


def test_the_augmented_form_is_the_real_normal_of_both_parts():
    rng = np.random.default_rng(1)
    k, c = complex_normal.random_pair(3, rng)
    mean, z = (rng.normal(size=3) + 1j * rng.normal(size=3) for _ in range(2))
    s = gaussian_process.composite_covariance(k, c)
    real = scipy.stats.multivariate_normal(np.r_[mean.real, mean.imag], s)
    expected = real.logpdf(np.r_[z.real, z.imag])
    np.testing.assert_allclose(complex_normal.log_prob(z, mean, k, c), expected, rtol=1e-11)
    np.testing.assert_allclose(complex_normal.entropy(k, c), real.entropy(), rtol=1e-11)


def test_without_pseudo_covariance_the_augmented_form_is_the_proper_one():
    rng = np.random.default_rng(2)
    k, _ = complex_normal.random_pair(3, rng)
    z, mean = (rng.normal(size=3) + 1j * rng.normal(size=3) for _ in range(2))
    np.testing.assert_allclose(
        complex_normal.log_prob(z, mean, k, np.zeros((3, 3))),
        complex_normal.proper_log_prob(z, mean, k),
        rtol=1e-12,
    )


def test_the_composite_covariance_is_that_of_the_parts():
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(2, 2)) + 1j * rng.normal(size=(2, 2)) for _ in range(2))
    k = a @ a.conj().T + b @ b.conj().T
    c = a @ b.T + b @ a.T
    # z = A w + B w̄ with w = (u + iv)/√2: the parts of z are linear in the unit normals u, v.
    root = np.block([[(a + b).real, (b - a).imag], [(a + b).imag, (a - b).real]]) / np.sqrt(2)
    np.testing.assert_allclose(gaussian_process.composite_covariance(k, c), root @ root.T)


X1 = np.array([[0.0, 0.3], [0.5, -1.0], [2.0, 0.3]])
X2 = np.array([[0.5, -1.0], [1.1, 0.0]])
LENGTHSCALES = [0.7, np.array([0.7, 1.9])]


@pytest.mark.parametrize("lengthscale", LENGTHSCALES, ids=["one", "each"])
@pytest.mark.parametrize(
    ("kernel", "nu"),
    [(kernels.matern12, 0.5), (kernels.matern32, 1.5), (kernels.matern52, 2.5)],
)
def test_matern_kernels_are_those_of_bessel_functions(kernel, nu, lengthscale):
    r = np.linalg.norm((X1[:, None] - X2) / lengthscale, axis=-1)
    s = np.sqrt(2 * nu) * np.maximum(r, 1e-12)
    expected = 2.5 * 2 ** (1 - nu) / scipy.special.gamma(nu) * s**nu * scipy.special.kv(nu, s)
    np.testing.assert_allclose(kernel(X1, X2, 2.5, lengthscale), expected, rtol=1e-9)


@pytest.mark.parametrize("lengthscale", LENGTHSCALES, ids=["one", "each"])
def test_a_rational_quadratic_of_large_alpha_is_an_rbf(lengthscale):
    rbf = kernels.rbf(X1, X2, 2.5, lengthscale)
    np.testing.assert_allclose(rbf[1, 0], 2.5)
    np.testing.assert_allclose(
        kernels.rational_quadratic(X1, X2, 2.5, lengthscale, 1e8), rbf, rtol=1e-5
    )
    half = kernels.rational_quadratic(X1, X2, 1.0, lengthscale, 0.5)
    r = np.linalg.norm((X1[:, None] - X2) / lengthscale, axis=-1)
    np.testing.assert_allclose(half, 1 / np.sqrt(1 + r**2), rtol=1e-14)


def test_simple_kernels_take_their_values_by_hand():
    x1, x2 = np.array([[0.0], [0.25]]), np.array([[0.25], [2.0], [0.0]])
    np.testing.assert_allclose(
        kernels.rotation(x1, x2, 1.0), [[-1j, 1, 1], [1, 1j, 1j]], atol=1e-14
    )
    np.testing.assert_allclose(
        kernels.periodic(x1, x2, 3.0, 0.5, 1.0),
        3 * np.exp([[-4, 0, 0], [0, -4, -4]]),
        rtol=1e-13,
    )
    np.testing.assert_allclose(
        kernels.rbf(x1, x2, 2.0, 0.25)[0], 2 * np.exp([-0.5, -32.0, 0.0]), rtol=1e-14
    )
    np.testing.assert_array_equal(kernels.constant(x1, x2, 2.0), np.full((2, 3), 2.0))
    np.testing.assert_array_equal(kernels.white(x1, x2, 2.0), [[0, 0, 2], [2, 0, 0]])


def test_widely_linear_and_conjugate_covariances_are_those_of_transformed_draws():
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=(2, 2)) + 1j * rng.normal(size=(2, 2)) for _ in range(2))
    k, c = a @ a.conj().T + b @ b.conj().T, a @ b.T + b @ a.T
    # u = A w + B w̄, so z = u + γ ū = (A + γ B̄) w + (B + γ Ā) w̄, w proper and white.
    g = 0.3 + 0.4j
    a2, b2 = a + g * b.conj(), b + g * a.conj()
    k2, c2 = kernels.widely_linear(k, c, g)
    np.testing.assert_allclose(k2, a2 @ a2.conj().T + b2 @ b2.conj().T)
    np.testing.assert_allclose(c2, a2 @ b2.T + b2 @ a2.T)
    k3, c3 = kernels.conjugate(k, c)
    np.testing.assert_allclose(k3, b.conj() @ b.T + a.conj() @ a.T)
    np.testing.assert_allclose(c3, b.conj() @ a.conj().T + a.conj() @ b.conj().T)


def problem(n, rng):
    k, c = complex_normal.random_pair(n, rng)
    z = rng.normal(size=n) + 1j * rng.normal(size=n)
    return z, k, c


def test_a_posterior_density_is_joint_over_marginal():
    rng = np.random.default_rng(5)
    z, k, c = problem(5, rng)
    old, new = slice(0, 3), slice(3, 5)
    mean, k_new, c_new = gaussian_process.posterior(
        z[old], k[old, old], c[old, old], k[new, old], c[new, old], k[new, new], c[new, new]
    )
    joint = gaussian_process.log_marginal_likelihood(z, k, c)
    marginal = gaussian_process.log_marginal_likelihood(z[old], k[old, old], c[old, old])
    conditional = complex_normal.log_prob(z[new], mean, k_new, c_new)
    np.testing.assert_allclose(conditional, joint - marginal, rtol=1e-9)


@pytest.mark.long
def test_a_missing_point_is_one_integrated_out():
    rng = np.random.default_rng(6)
    z, k, c = problem(2, rng)
    k = k + np.eye(2)
    values, cell = grid(20.0, 121)
    joint = [
        [complex_normal.log_prob(np.array([z[0], v]), np.zeros(2), k, c) for v in row]
        for row in values
    ]
    missing = gaussian_process.log_marginal_likelihood(np.array([z[0], np.nan]), k, c)
    np.testing.assert_allclose(np.sum(np.exp(joint)) * cell, np.exp(missing), rtol=1e-6)


def test_leave_one_out_densities_are_ratios_of_likelihoods():
    z, k, c = problem(4, np.random.default_rng(7))
    mean, variance, pseudo = gaussian_process.leave_one_out(z, k, c)
    for i in range(4):
        without = z.copy()
        without[i] = np.nan
        ratio = gaussian_process.log_marginal_likelihood(
            z, k, c
        ) - gaussian_process.log_marginal_likelihood(without, k, c)
        one = complex_normal.log_prob(
            z[[i]], mean[[i]], variance[[i], None] + 0j, pseudo[[i], None]
        )
        np.testing.assert_allclose(one, ratio, rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("proper", [True, False])
def test_a_marginal_trend_is_an_integral_over_its_coefficient(proper):
    rng = np.random.default_rng(8)
    z, k, c = problem(3, rng)
    k = k + 2 * np.eye(3)
    c = np.zeros_like(c) if proper else c
    trend = rng.normal(size=(3, 1)) + 1j * rng.normal(size=(3, 1))
    betas, cell = grid(15.0, 101)
    p = np.exp(
        [[complex_normal.log_prob(z, trend[:, 0] * beta, k, c) for beta in row] for row in betas]
    )
    integral = np.log(np.sum(p) * cell)
    ours = gaussian_process.improper_trend_log_likelihood(z, k, c, trend)
    np.testing.assert_allclose(ours, integral, rtol=1e-6)
    if proper:
        ours = gaussian_process.trend_log_likelihood(z, k, trend)
        np.testing.assert_allclose(ours, integral, rtol=1e-6)


def test_a_marginal_trend_of_several_columns_does_not_see_the_trend():
    rng = np.random.default_rng(9)
    z, k, c = problem(6, rng)
    trend = gaussian_process.polynomial(np.linspace(0.0, 1.0, 6), 2)
    np.testing.assert_allclose(trend[:, 2], np.linspace(0.0, 1.0, 6) ** 2)
    shifted = z + trend @ [1.0 + 2.0j, -1.0, 0.5j]
    proper = [gaussian_process.trend_log_likelihood(v, k, trend) for v in (z, shifted)]
    np.testing.assert_allclose(proper[0], proper[1], rtol=1e-9)
    zero = np.zeros_like(c)
    improper = gaussian_process.improper_trend_log_likelihood(z, k, zero, trend)
    np.testing.assert_allclose(improper, proper[0], rtol=1e-9)
    both = [gaussian_process.improper_trend_log_likelihood(v, k, c, trend) for v in (z, shifted)]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-9)
