"""Expected log densities against SciPy's densities and integrals, and sites against their laws."""

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf

from cgp.likelihoods import Magnitude, OneBit, StudentT, VonMises
from cgp.likelihoods.base import Moments, Site, between, distance, inverse

VARIANCE = 0.3
MEAN = np.array([0.8, -0.5])
COVARIANCE = np.array([[0.2, 0.05], [0.05, 0.1]])
KINDS = (Magnitude(), StudentT(3.0), VonMises())


def expected(likelihood, z, mean, covariance, variance=VARIANCE):
    given = [np.atleast_1d(a).astype(float) for a in (z, mean)]
    covariance = np.reshape(covariance, [np.size(mean)] * 2).astype(float)
    given = map(tf.constant, (*given, covariance, np.float64(variance)))
    return likelihood.expected_log_density(*given).numpy()


def complex_t(error, variance, nu):
    """The density of a scale mixture of circular normals, by its integral."""

    def integrand(w):
        return scipy.stats.gamma.pdf(w, nu / 2, scale=2 / nu) * (
            w / (np.pi * variance) * np.exp(-w * abs(error) ** 2 / variance)
        )

    return scipy.integrate.quad(integrand, 0, np.inf, epsabs=1e-14, limit=200)[0]


@pytest.mark.parametrize("error", [0.1, 1.0 - 0.4j, 4.0j])
def test_is_a_students_t_the_mixture_of_normals(error):
    z = np.array([np.real(error), np.imag(error)]) + MEAN
    result = expected(StudentT(3.0), z, MEAN, np.zeros((2, 2)))
    assert result == pytest.approx(np.log(complex_t(error, VARIANCE, 3.0)), abs=1e-8)


@pytest.mark.parametrize("nu", [1e4, 1e16, 1e300])
def test_tends_students_t_to_the_normal_density(nu):
    result = expected(StudentT(nu), [0.4], [0.5], 0.0)
    wanted = scipy.stats.norm.logpdf(-0.1, scale=np.sqrt(VARIANCE))
    assert result == pytest.approx(wanted, abs=1.0 / nu + 1e-13)


@pytest.mark.parametrize("error", [0.1, 3.0])
def test_is_a_students_t_of_real_noise_that_of_scipy(error):
    result = expected(StudentT(3.0), 0.5 + error, 0.5, 0.0)
    wanted = scipy.stats.t.logpdf(error, 3.0, scale=np.sqrt(VARIANCE))
    assert result == pytest.approx(wanted, abs=1e-12)


@pytest.mark.long
def test_is_the_bound_of_students_t_below_its_expectation():
    z = np.array([3.0, 1.0])
    points = np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, 20000).T
    values = [expected(StudentT(3.0), z, p, np.zeros((2, 2))) for p in points.T[:2000]]
    bound = expected(StudentT(3.0), z, MEAN, COVARIANCE)
    assert 0.0 < np.mean(values) - bound < 0.2


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_is_the_evidence_of_a_sign_a_probit_of_its_cavity(sign):
    def integrand(g):
        return scipy.stats.norm.pdf(g, 0.8, 0.7) * scipy.stats.norm.cdf(sign * g / 0.4)

    wanted = np.log(scipy.integrate.quad(integrand, -np.inf, np.inf, epsabs=1e-13)[0])
    result = OneBit().log_evidence(*(tf.constant(a, tf.float64) for a in (sign, 0.8, 0.49, 0.16)))
    assert result.numpy() == pytest.approx(wanted, abs=1e-10)


def test_has_a_sign_that_is_next_to_impossible_a_finite_evidence():
    result = OneBit().log_evidence(*(tf.constant(a, tf.float64) for a in (-1.0, 30.0, 1e-6, 0.01)))
    assert result.numpy() == pytest.approx(scipy.stats.norm.logcdf(-300.0), rel=1e-3)


def test_has_a_site_of_a_sign_the_moments_of_its_posterior():
    """The cavity times the site, against the integral of the cavity times the density."""
    mean, variance, noise = -0.6, 0.5, 0.04
    last = Site(tf.constant([0.3], tf.float64), tf.constant([[0.8]], tf.float64))
    precision = 1.0 / variance + 0.8
    mean_of_q = (mean / variance + 0.8 * 0.3) / precision
    q = Moments(tf.constant([mean_of_q], tf.float64), tf.constant([[1.0 / precision]], tf.float64))
    given = (tf.constant([1.0], tf.float64), q)
    site = OneBit().site(*given, last, tf.constant(noise, tf.float64))

    def moment(power):
        def integrand(g):
            density = scipy.stats.norm.pdf(g, mean, np.sqrt(variance))
            return g**power * density * scipy.stats.norm.cdf(g / np.sqrt(noise))

        return scipy.integrate.quad(integrand, -10.0, 10.0, epsabs=1e-13, points=[0.0])[0]

    total, first, second = (moment(k) for k in range(3))
    after = 1.0 / variance + float(site.precision[0, 0])
    result = (mean / variance + float(site.precision[0, 0] * site.target[0])) / after
    assert result == pytest.approx(first / total, abs=1e-9)
    assert 1.0 / after == pytest.approx(second / total - (first / total) ** 2, abs=1e-9)
    q = Moments(tf.constant([result], tf.float64), tf.constant([[1.0 / after]], tf.float64))
    value = OneBit().correction(*(given[0], q), site, tf.constant(noise, tf.float64))
    spread = np.sqrt(variance + 1.0 / float(site.precision[0, 0]))
    of_site = scipy.stats.norm.logpdf(float(site.target[0]), mean, spread)
    assert float(value) + of_site == pytest.approx(np.log(total), abs=1e-9)


@pytest.mark.parametrize("turn", [0.0, 2.5])
def test_is_a_phase_of_von_mises_density(turn):
    phase = 0.4 + turn
    result = expected(
        VonMises(), [np.cos(phase), np.sin(phase)], MEAN, np.zeros((2, 2)) + 1e-12 * np.eye(2)
    )
    mean = complex(*MEAN)
    wanted = scipy.stats.vonmises.logpdf(phase, 2 * abs(mean) / VARIANCE, loc=np.angle(mean))
    assert result == pytest.approx(wanted, abs=1e-9)
    doubled = expected(VonMises(), [7 * np.cos(phase), 7 * np.sin(phase)], MEAN, 1e-12 * np.eye(2))
    assert doubled == pytest.approx(result, abs=1e-9)  # the modulus tells nothing


def test_is_the_expectation_of_a_phase_its_integral():
    normal = scipy.stats.multivariate_normal(MEAN, COVARIANCE)

    def integrand(b, a):
        density = normal.pdf([a, b])
        x = 2 * np.hypot(a, b) / VARIANCE
        return density * (np.log(scipy.special.i0e(x)) + x)

    spread = 8 * np.sqrt(np.diag(COVARIANCE))
    limits = [
        *(MEAN[0] + s * spread[0] for s in (-1, 1)),
        *(MEAN[1] + s * spread[1] for s in (-1, 1)),
    ]
    normalizer = scipy.integrate.dblquad(integrand, *limits, epsabs=1e-6)[0]
    wanted = 2 / VARIANCE * MEAN[0] - normalizer - np.log(2 * np.pi)
    assert expected(VonMises(), [1.0, 0.0], MEAN, COVARIANCE) == pytest.approx(wanted, abs=2e-3)


def test_is_a_modulus_of_rices_density():
    result = expected(Magnitude(), [0.0, -1.7], MEAN, np.zeros((2, 2)) + 1e-14 * np.eye(2))
    scale = np.sqrt(VARIANCE / 2)
    wanted = scipy.stats.rice.logpdf(1.7, np.hypot(*MEAN) / scale, scale=scale)
    assert result == pytest.approx(wanted, abs=1e-9)


def test_has_a_modulus_a_site_along_the_mean_alone():
    z, u = np.array([0.9, 0.6]), MEAN / np.linalg.norm(MEAN)
    q = Moments(tf.constant(MEAN), tf.constant(COVARIANCE))
    last = Site(q.mean, tf.eye(2, dtype=tf.float64))
    site = Magnitude().site(tf.constant(z), q, last, tf.constant(VARIANCE, tf.float64))
    precision, h = site.precision.numpy(), 1e-5

    def slope(mean, covariance):
        ends = (
            expected(Magnitude(), z, MEAN + s * mean, COVARIANCE + s * covariance) for s in (1, -1)
        )
        return np.subtract(*ends) / (2 * h)

    along = -2.0 * slope(0.0, h * np.outer(u, u))
    assert u @ precision @ u == pytest.approx(along, rel=1e-4)
    pull = precision @ (site.target.numpy() - MEAN)
    assert u @ pull == pytest.approx(slope(h * u, 0.0), rel=1e-4)
    across = np.array([-u[1], u[0]])
    assert across @ pull == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < across @ precision @ across < 1e-4 * along


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("radians", "is_lost"), [(0.9, False), (1.1, True)])
def test_is_a_phase_of_moduli_lost_beyond_a_radian(axis, radians, is_lost):
    """Whatever is not known along the mean."""
    mean, variances = 2.0 * np.eye(2)[axis], np.full(2, (2.0 * radians) ** 2)
    variances[axis] = 30.0
    q = Moments(tf.constant(mean), tf.constant(np.diag(variances)))
    site = Site(q.mean, tf.eye(2, dtype=tf.float64))
    z, noise = tf.constant([2.0, 0.0], tf.float64), tf.constant(VARIANCE, tf.float64)
    assert np.isnan(Magnitude().correction(z, q, site, noise)) == is_lost


@pytest.mark.parametrize("likelihood", KINDS[1:], ids=lambda k: type(k).__name__)
def test_has_a_site_the_derivatives_of_the_expectation(likelihood):
    z = np.array([0.9, 0.6])
    q = Moments(tf.constant(MEAN), tf.constant(COVARIANCE))
    last = Site(q.mean, tf.eye(2, dtype=tf.float64))
    site = likelihood.site(tf.constant(z), q, last, tf.constant(VARIANCE, tf.float64))
    precision, h = site.precision.numpy(), 1e-5
    np.testing.assert_array_less(0.0, np.linalg.eigvalsh(precision))

    def slope(*directions):
        up, down = (
            expected(
                likelihood, z, MEAN + s * h * directions[0], COVARIANCE + s * h * directions[1]
            )
            for s in (1.0, -1.0)
        )
        return (up - down) / (2 * h)

    by_mean = precision @ (site.target.numpy() - MEAN)
    for i, one in enumerate(np.eye(2)):
        assert slope(one, 0.0) == pytest.approx(by_mean[i], rel=1e-6, abs=1e-8)
        for j, other in enumerate(np.eye(2)):
            both = np.outer(one, other) + np.outer(other, one)
            assert slope(0.0, both) == pytest.approx(-precision[i, j], rel=1e-6, abs=1e-8)


def test_adds_a_site_nothing_where_the_observation_is_normal():
    """`correction` is the expected log density less that of the site."""
    site = Site(tf.constant([1.0, 2.0]), tf.constant([[2.0, 0.3], [0.3, 1.0]]))
    q = Moments(tf.constant(MEAN, tf.float32), tf.constant(COVARIANCE, tf.float32))
    z = tf.constant([1.0, 1.0])
    value = VonMises().correction(z, q, site, tf.constant(VARIANCE))
    precision = site.precision.numpy().astype(float)
    deviation = site.target.numpy() - MEAN
    normal = scipy.stats.multivariate_normal.logpdf(deviation, cov=np.linalg.inv(precision))
    normal -= 0.5 * np.trace(precision @ COVARIANCE)
    wanted = expected(VonMises(), [1.0, 1.0], MEAN, COVARIANCE) - normal
    assert value.numpy() == pytest.approx(wanted, rel=1e-5)


def test_lie_sites_between_others_in_their_natural_parameters():
    a = Site(tf.constant([[1.0], [0.0]]), tf.constant([[[2.0], [0.0]], [[0.0], [1.0]]]))
    b = Site(tf.constant([[0.0], [3.0]]), tf.constant([[[1.0], [0.5]], [[0.5], [4.0]]]))
    result = between(a, b, 0.7)
    precision = 0.3 * a.precision + 0.7 * b.precision
    np.testing.assert_allclose(result.precision, precision, rtol=1e-6)
    linear = sum(
        share * s.precision.numpy()[..., 0] @ s.target.numpy()[:, 0]
        for share, s in ((0.3, a), (0.7, b))
    )
    np.testing.assert_allclose(
        precision.numpy()[..., 0] @ result.target.numpy()[:, 0], linear, rtol=1e-5
    )
    np.testing.assert_allclose(
        inverse(result.precision)[..., 0], np.linalg.inv(precision.numpy()[..., 0]), rtol=1e-5
    )


def test_is_the_distance_of_sites_how_far_a_normal_moves():
    q = Moments(tf.constant(MEAN), tf.constant(COVARIANCE))
    eye = np.eye(2)
    before = Site(tf.constant(MEAN), tf.constant(0.5 * eye))
    target = MEAN + np.array([1e-4, 2e-4])
    precision = 0.5 * eye + np.array([[1e-5, 2e-5], [2e-5, 3e-5]])
    result = distance(before, Site(tf.constant(target), tf.constant(precision)), q)
    last = np.linalg.inv(COVARIANCE)
    moved = np.linalg.solve(last, 0.5 * (target - MEAN))
    share = (precision - 0.5 * eye) @ COVARIANCE
    wanted = np.sqrt(moved @ last @ moved + np.sum(share**2))
    assert result.numpy() == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("nu", [0.0, -2.0, np.inf, np.nan, True, "4"])
def test_are_impossible_degrees_of_freedom_refused(nu):
    with pytest.raises(ValueError, match="degrees_of_freedom must be positive and finite"):
        StudentT(nu)


@pytest.mark.parametrize(
    "likelihood", [VonMises(), Magnitude(), OneBit()], ids=lambda k: type(k).__name__
)
def test_are_observations_that_cannot_be_refused(likelihood):
    with pytest.raises(ValueError, match="zero"):
        likelihood.check(np.array([1.0 + 1j, 0.0, complex(np.nan, np.nan)]))
    likelihood.check(np.array([1.0 + 1j, complex(np.nan, np.nan)]))
