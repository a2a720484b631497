"""Covariance functions, one pair of points at a time.

`x1` is `[N1, D]` and `x2` `[N2, D]`; every function returns `[N1, N2]`. `widely_linear` and
`conjugate` take and return covariances already evaluated.
"""

import numpy as np
from scipy.special import gamma, kv


def _each_pair(function, x1, x2, dtype=float):
    k = np.empty((len(x1), len(x2)), dtype)
    for i, a in enumerate(x1):
        for j, b in enumerate(x2):
            k[i, j] = function(a, b)
    return k


def _distance(a, b, lengthscale):
    """|a − b| / lengthscale; a lengthscale may be given for each dimension."""
    return np.sqrt(np.sum(((a - b) / lengthscale) ** 2))


def rbf(x1, x2, variance, lengthscale):
    def k(a, b):
        r = _distance(a, b, lengthscale)
        return variance * np.exp(-(r**2) / 2)

    return _each_pair(k, x1, x2)


def matern12(x1, x2, variance, lengthscale):
    def k(a, b):
        r = _distance(a, b, lengthscale)
        return variance * np.exp(-r)

    return _each_pair(k, x1, x2)


def matern32(x1, x2, variance, lengthscale):
    def k(a, b):
        s = np.sqrt(3) * _distance(a, b, lengthscale)
        return variance * (1 + s) * np.exp(-s)

    return _each_pair(k, x1, x2)


def matern52(x1, x2, variance, lengthscale):
    def k(a, b):
        s = np.sqrt(5) * _distance(a, b, lengthscale)
        return variance * (1 + s + s**2 / 3) * np.exp(-s)

    return _each_pair(k, x1, x2)


def matern(x1, x2, variance, lengthscale, smoothness):
    def k(a, b):
        s = np.sqrt(2 * smoothness) * _distance(a, b, lengthscale)
        if s == 0:
            return variance
        return (
            variance * 2 ** (1 - smoothness) / gamma(smoothness) * s**smoothness * kv(smoothness, s)
        )

    return _each_pair(k, x1, x2)


def rational_quadratic(x1, x2, variance, lengthscale, alpha):
    def k(a, b):
        r = _distance(a, b, lengthscale)
        return variance * (1 + r**2 / (2 * alpha)) ** (-alpha)

    return _each_pair(k, x1, x2)


def periodic(x1, x2, variance, lengthscale, frequency):
    """The exponents of several dimensions add."""

    def k(a, b):
        sine = np.sin(np.pi * frequency * (a - b))
        return variance * np.exp(-2 * np.sum((sine / lengthscale) ** 2))

    return _each_pair(k, x1, x2)


def constant(x1, x2, variance):
    return _each_pair(lambda a, b: variance, x1, x2)


def white(x1, x2, variance):
    return _each_pair(lambda a, b: variance if np.array_equal(a, b) else 0.0, x1, x2)


def rotation(x1, x2, frequency):
    """e^{+i2π f·(x−x')}, a frequency for each dimension or one for all."""

    def k(a, b):
        cycles = np.sum(frequency * (a - b))
        return np.exp(2j * np.pi * cycles)

    return _each_pair(k, x1, x2, complex)


def arma(x1, x2, ar, ma, innovation_variance, step):
    """Sums of products of the impulse response of z[t] = Σ a z[t−k] + w[t] + Σ b w[t−j]."""
    response = np.zeros(4000, complex)
    response[0], response[1 : len(ma) + 1] = 1.0, ma
    for t in range(1, len(response)):
        for k, a in enumerate(ar[:t], 1):
            response[t] += a * response[t - k]
    assert abs(response[-1]) < 1e-16

    def k(a, b):
        lag = round((a[0] - b[0]) / step)
        total = np.vdot(response[: len(response) - abs(lag)], response[abs(lag) :])
        return innovation_variance * (total if lag >= 0 else np.conj(total))

    return _each_pair(k, x1, x2, complex)


def szego(x1, x2, variance, decay):
    """∫ h(t) e^{−i2πft} dt for white h of envelope e^{−decay t}: the integral of e^{−pt}, t > 0."""

    def k(a, b):
        return variance * 2 * decay / (2 * decay + 2j * np.pi * (a[0] - b[0]))

    return _each_pair(k, x1, x2, complex)


def relaxation_times(x1, x2, variance, exponent, reference):
    """K and C of ∫ γ(τ)/(1 + i2πfτ) d log τ, E[γ γ'] ∝ τ^{2 exponent} δ, by the trapezoidal rule.

    The integrand is analytic and decays at both ends, where the rule converges exponentially.
    """
    ends = 40.0 / (2 * exponent), 40.0 / (2 - 2 * exponent)
    u = np.arange(-ends[0] - 10.0, ends[1] + 10.0, 0.04)

    def integral(p, q):
        return np.sum(np.exp(2 * exponent * u) / ((1 + p * np.exp(u)) * (1 + q * np.exp(u))))

    unit = variance / integral(2j * np.pi * reference, -2j * np.pi * reference)

    def moment(sign):
        def k(a, b):
            return unit * integral(2j * np.pi * a[0], sign * 2j * np.pi * b[0])

        return _each_pair(k, x1, x2, complex)

    return moment(-1), moment(+1)


def delay_profile(x1, x2, profile, longest):
    """∫ p(τ) e^{−i2πτ(f − f')} dτ by Gauss-Legendre quadrature over 0 < τ < longest."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    delays = longest * (nodes + 1) / 2
    powers = longest / 2 * weights * profile(delays)

    def k(a, b):
        return np.sum(powers * np.exp(-2j * np.pi * delays * (a[0] - b[0])))

    return _each_pair(k, x1, x2, complex)


def taps(x1, x2, delays, powers):
    def k(a, b):
        return sum(
            power * np.exp(-2j * np.pi * delay * (a[0] - b[0]))
            for delay, power in zip(delays, powers, strict=True)
        )

    return _each_pair(k, x1, x2, complex)


def widely_linear(covariance, pseudo_covariance, coefficient):
    """The covariances of z = u + c ū, from those of u.

    E[z z̄'] = E[(u + c ū)(ū' + c̄ u')]  = K + c̄ C + c C̄ + |c|² K̄
    E[z z'] = E[(u + c ū)(u' + c ū')]   = C + c K + c K̄ + c² C̄
    """
    k, c = np.asarray(covariance, complex), np.asarray(pseudo_covariance, complex)
    k_bar, c_bar = np.conj(k), np.conj(c)
    w, w_bar = coefficient, np.conj(coefficient)
    return (
        k + w_bar * c + w * c_bar + abs(w) ** 2 * k_bar,
        c + w * (k + k_bar) + w**2 * c_bar,
    )


def conjugate(covariance, pseudo_covariance):
    """The covariances of z = ū."""
    return np.conj(covariance), np.conj(pseudo_covariance)
