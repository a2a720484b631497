"""Covariances of values, derivatives and exposures of a stationary process, by quadrature.

The correlation is a function k of the lag d > 0 with its derivatives, times a rotation,
`K(x1, x2) = k(|d|) e^{iωd}`, d = x1 − x2. Exposures are cut at the ends and places of all samples;
Gauss-Legendre quadrature over the pieces is exact to rounding, as k has its kinks at d = 0 alone.
"""

import itertools

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def matern32(variance, lengthscale):
    """k, k' and k'' of the Matérn-3/2 kernel at lags of at least 0."""
    a = np.sqrt(3.0) / lengthscale
    return (
        lambda d: variance * (1 + a * d) * np.exp(-a * d),
        lambda d: -variance * a**2 * d * np.exp(-a * d),
        lambda d: -variance * a**2 * (1 - a * d) * np.exp(-a * d),
    )


def matern52(variance, lengthscale):
    """k, k' and k'' of the Matérn-5/2 kernel."""
    a = np.sqrt(5.0) / lengthscale
    return (
        lambda d: variance * (1 + a * d + (a * d) ** 2 / 3) * np.exp(-a * d),
        lambda d: -variance * a**2 / 3 * d * (1 + a * d) * np.exp(-a * d),
        lambda d: -variance * a**2 / 3 * (1 + a * d - (a * d) ** 2) * np.exp(-a * d),
    )


def rbf(variance, lengthscale):
    """k, k' and k'' of the squared exponential kernel."""

    def k(d):
        return variance * np.exp(-0.5 * (d / lengthscale) ** 2)

    return (
        k,
        lambda d: -d / lengthscale**2 * k(d),
        lambda d: (d**2 / lengthscale**2 - 1) / lengthscale**2 * k(d),
    )


def rational_quadratic(variance, lengthscale, alpha):
    """k, k' and k'' of the rational quadratic kernel."""

    def base(d):
        return 1 + d**2 / (2 * alpha * lengthscale**2)

    return (
        lambda d: variance * base(d) ** -alpha,
        lambda d: -variance * d / lengthscale**2 * base(d) ** (-alpha - 1),
        lambda d: (
            -variance / lengthscale**2 * base(d) ** (-alpha - 1)
            + variance * (alpha + 1) / alpha * d**2 / lengthscale**4 * base(d) ** (-alpha - 2)
        ),
    )


def turning(functions, frequency):
    """`K(d)` with how often each point is differentiated, for lags of either sign."""
    k, slope, bend = functions
    i_omega = 2j * np.pi * frequency

    def covariance(d, first=0, second=0):
        r, sign = np.abs(d), np.where(d < 0, -1.0, 1.0)
        turn = np.exp(i_omega * d)
        by_lag = {
            0: k(r),
            1: sign * slope(r) + i_omega * k(r),
            2: bend(r) + 2 * i_omega * sign * slope(r) + i_omega**2 * k(r),
        }[first + second]
        return (-1.0) ** second * by_lag * turn

    return covariance


def covariance(kernel, x1, derivative1, width1, x2, derivative2, width2):
    """`E[L1 z conj(L2 z)]` between samples, `[N1, N2]`; widths are zero for instants."""
    begin1, end1, begin2, end2 = (
        x1 - width1 / 2, x1 + width1 / 2, x2 - width2 / 2, x2 + width2 / 2
    )  # fmt: skip
    cuts = np.unique(np.concatenate([begin1, end1, begin2, end2]))
    result = np.empty((len(x1), len(x2)), complex)
    for i in range(len(x1)):
        for j in range(len(x2)):
            total = 0.0
            for piece1 in _pieces(begin1[i], end1[i], cuts):
                for piece2 in _pieces(begin2[j], end2[j], cuts):
                    total += _of_pieces(kernel, piece1, derivative1[i], piece2, derivative2[j])
            result[i, j] = total / ((width1[i] or 1.0) * (width2[j] or 1.0))
    return result


def _pieces(begin, end, cuts):
    """The pieces of an exposure; an instant is one, without a length."""
    inside = cuts[(cuts >= begin) & (cuts <= end)]
    return [(begin, end)] if begin == end else list(itertools.pairwise(inside))


def _quadrature(piece):
    low, high = piece
    if low == high:
        return np.array([low]), np.ones(1)
    return (low + high) / 2 + (high - low) / 2 * NODES, (high - low) / 2 * WEIGHTS


def _of_pieces(kernel, piece1, derivative1, piece2, derivative2):
    u, weight = _quadrature(piece1)
    if piece1 == piece2 and piece1[0] < piece1[1]:
        # Over the triangle below the diagonal, v = low + (u − low) t; above it is the conjugate.
        t, inner = (NODES + 1) / 2, WEIGHTS / 2
        length = u - piece1[0]
        below = np.sum((weight * length)[:, None] * inner * kernel(length[:, None] * (1 - t)))
        return below + np.conj(below)
    v, other_weight = _quadrature(piece2)
    values = kernel(u[:, None] - v, int(derivative1), int(derivative2))
    return np.sum(weight[:, None] * other_weight * values)


def widely_linear(k, coefficient):
    """Covariance and pseudo-covariance of `L u + c conj(L u)` from the covariance of `L u`."""
    return k + abs(coefficient) ** 2 * np.conj(k), coefficient * (k + np.conj(k))


def polynomial(coefficients, x, derivative, width):
    """What samples measure of a polynomial, coefficients from the constant on."""
    p = np.polynomial.Polynomial(coefficients)
    integral, slope = p.integ(), p.deriv()
    means = [
        (integral(a + w / 2) - integral(a - w / 2)) / w if w > 0 else p(a)
        for a, w in zip(x, width, strict=True)
    ]
    return np.where(derivative, slope(x), means)
