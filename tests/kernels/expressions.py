"""Kernel expressions, each beside its covariances in NumPy."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cgp.kernels import (
    ARMA,
    RBF,
    Autoregressive,
    Conjugate,
    Constant,
    EllipticalOU,
    ExponentialDelays,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    RelaxationTimes,
    Rotation,
    Sum,
    Szego,
    TappedDelays,
    TwoScale,
    UniformDelays,
    White,
    WidelyLinear,
)
from tests.reference import kernels as reference


class Expression(NamedTuple):
    name: str
    dimensions: int
    make: Callable
    """dtype -> kernel."""
    moments: Callable
    """(x1, x2), each [N, D] -> (K, C), each [N1, N2]."""
    is_proper: bool = True
    is_real: bool = True
    is_markov: bool = False
    step: float = 0.0
    """The spacing of the grid that x is on; 0 for any x."""
    is_positive: bool = False
    """Whether x must be positive."""

    def points(self, count, seed=0):
        """Points in the plane of the kernels' scales; the last repeats the first."""
        x = np.random.default_rng(seed).normal(size=(count, self.dimensions))
        x = np.exp(x) if self.is_positive else x
        x = self.step * np.rint(x / self.step) if self.step else x
        x[-1] = x[0]
        return x


def proper(covariance):
    """The covariance, and a pseudo-covariance of zero."""

    def moments(a, b):
        k = covariance(a, b)
        return k.astype(complex), np.zeros(k.shape, complex)

    return moments


def added(*pairs):
    return lambda a, b: tuple(sum(terms) for terms in zip(*(p(a, b) for p in pairs), strict=True))


def scaled(covariance, pair):
    """Both K and C times a real covariance."""

    def moments(a, b):
        k, c = pair(a, b)
        return covariance(a, b) * k, covariance(a, b) * c

    return moments


def multiplied(pair1, pair2):
    """The products of the covariances and of the pseudo-covariances."""

    def moments(a, b):
        (k1, c1), (k2, c2) = pair1(a, b), pair2(a, b)
        return k1 * k2, c1 * c2

    return moments


def widely_linear(pair, coefficient):
    return lambda a, b: reference.widely_linear(*pair(a, b), coefficient)


def conjugate(pair):
    return lambda a, b: reference.conjugate(*pair(a, b))


def rbf(variance, lengthscale):
    return lambda a, b: reference.rbf(a, b, variance, lengthscale)


def matern12(variance, lengthscale):
    return lambda a, b: reference.matern12(a, b, variance, lengthscale)


def rotation(frequency):
    return lambda a, b: reference.rotation(a, b, frequency)


def two_scale(variance, lengthscale, ratio, share):
    def covariance(a, b):
        long = reference.matern52(a, b, variance * (1 - share), lengthscale)
        return long + reference.matern52(a, b, variance * share, ratio * lengthscale)

    return covariance


def szego(variance, decay):
    return lambda a, b: reference.szego(a, b, variance, decay)


def times(f, g):
    return lambda a, b: f(a, b) * g(a, b)


def shared_twice(dtype):
    k = Matern12(0.7, 1.1, dtype=dtype)
    return k * Rotation(0.4, dtype=dtype) + k * Rotation(-0.9, dtype=dtype)


C1, C2 = 0.3 + 0.1j, -0.4 + 0.6j
TURNING = times(matern12(1.3, 0.8), rotation(0.7))

AR, MA = [0.5 + 0.4j, -0.2j, 0.1 - 0.3j], [0.4 - 0.3j, 0.2j]

ARD2, ARD3 = np.array([0.6, 1.7]), np.array([0.6, 1.7, 0.9])

EXPRESSIONS = [
    # leaves
    Expression("constant", 1, lambda d: Constant(1.7, dtype=d),
               proper(lambda a, b: reference.constant(a, b, 1.7)), is_markov=True),
    Expression("rbf", 1, lambda d: RBF(1.7, 0.6, dtype=d), proper(rbf(1.7, 0.6))),
    Expression("matern12", 1, lambda d: Matern12(1.7, 0.6, dtype=d), proper(matern12(1.7, 0.6)),
               is_markov=True),
    Expression("matern32", 1, lambda d: Matern32(1.7, 0.6, dtype=d),
               proper(lambda a, b: reference.matern32(a, b, 1.7, 0.6)), is_markov=True),
    Expression("matern52", 1, lambda d: Matern52(1.7, 0.6, dtype=d),
               proper(lambda a, b: reference.matern52(a, b, 1.7, 0.6)), is_markov=True),
    Expression("matern of any smoothness", 1, lambda d: Matern(1.7, 0.6, 1.1, dtype=d),
               proper(lambda a, b: reference.matern(a, b, 1.7, 0.6, 1.1))),
    Expression("matern of any smoothness in 2-D", 2, lambda d: Matern(1.7, ARD2, 0.4, dtype=d),
               proper(lambda a, b: reference.matern(a, b, 1.7, ARD2, 0.4))),
    Expression("rational quadratic", 1, lambda d: RationalQuadratic(1.7, 0.6, 2.3, dtype=d),
               proper(lambda a, b: reference.rational_quadratic(a, b, 1.7, 0.6, 2.3))),
    Expression("periodic", 1, lambda d: Periodic(1.7, 0.6, 0.4, dtype=d),
               proper(lambda a, b: reference.periodic(a, b, 1.7, 0.6, 0.4))),
    Expression("white", 1, lambda d: White(1.7, dtype=d),
               proper(lambda a, b: reference.white(a, b, 1.7)), is_markov=True),
    Expression("rotation", 1, lambda d: Rotation(0.7, dtype=d), proper(rotation(0.7)),
               is_real=False, is_markov=True),
    Expression("two scales", 1, lambda d: TwoScale(1.7, 1.6, 0.3, 0.4, dtype=d),
               proper(two_scale(1.7, 1.6, 0.3, 0.4)), is_markov=True),
    Expression("two scales in 2-D", 2, lambda d: TwoScale(1.7, ARD2, 0.3, 0.4, dtype=d),
               proper(two_scale(1.7, ARD2, 0.3, 0.4))),
    Expression("szego", 1, lambda d: Szego(1.7, 0.6, dtype=d), proper(szego(1.7, 0.6)),
               is_real=False),
    Expression("szego of a real response", 1,
               lambda d: Szego(1.7, 0.6, real_response=True, dtype=d),
               lambda a, b: (szego(1.7, 0.6)(a, b), szego(1.7, 0.6)(a, -b)),
               is_proper=False, is_real=False),
    Expression("szego behind a delay", 1,
               lambda d: Szego(1.7, 0.6, dtype=d) * Rotation(-0.7, dtype=d),
               proper(times(szego(1.7, 0.6), rotation(-0.7))), is_real=False),
    Expression("relaxation times", 1,
               lambda d: RelaxationTimes(1.7, 0.3, 0.5, dtype=d),
               lambda a, b: reference.relaxation_times(a, b, 1.7, 0.3, 0.5),
               is_proper=False, is_real=False, is_positive=True),
    Expression("relaxation times behind a resistance", 1,
               lambda d: WidelyLinear(Constant(0.4, dtype=d), 1.0)
               + RelaxationTimes(1.7, 0.8, 0.5, dtype=d),
               added(widely_linear(proper(lambda a, b: reference.constant(a, b, 0.4)), 1.0),
                     lambda a, b: reference.relaxation_times(a, b, 1.7, 0.8, 0.5)),
               is_proper=False, is_real=False, is_positive=True),
    Expression("delays that decay exponentially", 1,
               lambda d: ExponentialDelays(1.7, 0.3, dtype=d),
               proper(lambda a, b: reference.delay_profile(
                   a, b, lambda tau: 1.7 / 0.3 * np.exp(-tau / 0.3), 12.0)), is_real=False),
    Expression("uniform delays", 1, lambda d: UniformDelays(1.7, 0.6, dtype=d),
               proper(lambda a, b: reference.delay_profile(
                   a, b, lambda tau: 1.7 / 0.6 + 0 * tau, 0.6)), is_real=False),
    Expression("tapped delays", 1,
               lambda d: TappedDelays([0.0, 0.4, -0.9], [0.5, 1.0, 0.3], dtype=d),
               proper(lambda a, b: reference.taps(a, b, [0.0, 0.4, -0.9], [0.5, 1.0, 0.3])),
               is_real=False, is_markov=True),
    Expression("uniform delays behind a delay", 1,
               lambda d: UniformDelays(1.7, 0.6, dtype=d) * Rotation(-0.7, dtype=d),
               proper(times(lambda a, b: reference.delay_profile(
                   a, b, lambda tau: 1.7 / 0.6 + 0 * tau, 0.6), rotation(-0.7))), is_real=False),
    Expression("autoregressive", 1,
               lambda d: Autoregressive.from_coefficients(AR, 1.7, step=0.3, dtype=d),
               proper(lambda a, b: reference.arma(a, b, AR, [], 1.7, 0.3)),
               is_real=False, is_markov=True, step=0.3),
    Expression("autoregressive that turns", 1,
               lambda d: Autoregressive.from_coefficients([0.6], 1.0, step=0.3, dtype=d)
               * Rotation(0.7, dtype=d),
               proper(times(lambda a, b: reference.arma(a, b, [0.6], [], 1.0, 0.3), rotation(0.7))),
               is_real=False, is_markov=True, step=0.3),
    Expression("arma", 1,
               lambda d: ARMA.from_coefficients(AR[:1], MA, 1.7, step=0.3, dtype=d),
               proper(lambda a, b: reference.arma(a, b, AR[:1], MA, 1.7, 0.3)),
               is_real=False, is_markov=True, step=0.3),
    Expression("arma of a long past", 1,
               lambda d: ARMA.from_coefficients(AR, MA[:1], 1.7, step=0.3, dtype=d),
               proper(lambda a, b: reference.arma(a, b, AR, MA[:1], 1.7, 0.3)),
               is_real=False, is_markov=True, step=0.3),
    # several dimensions
    Expression("rbf in 3-D", 3, lambda d: RBF(1.7, 0.6, dtype=d), proper(rbf(1.7, 0.6))),
    Expression("rbf in 3-D, a length scale each", 3, lambda d: RBF(1.7, ARD3, dtype=d),
               proper(rbf(1.7, ARD3))),
    Expression("matern32 in 2-D, a length scale each", 2, lambda d: Matern32(1.7, ARD2, dtype=d),
               proper(lambda a, b: reference.matern32(a, b, 1.7, ARD2))),
    Expression("rational quadratic in 2-D, a length scale each", 2,
               lambda d: RationalQuadratic(1.7, ARD2, 0.8, dtype=d),
               proper(lambda a, b: reference.rational_quadratic(a, b, 1.7, ARD2, 0.8))),
    Expression("periodic in 2-D, a frequency each", 2,
               lambda d: Periodic(1.7, 0.9, np.array([0.2, 0.5]), dtype=d),
               proper(lambda a, b: reference.periodic(a, b, 1.7, 0.9, np.array([0.2, 0.5])))),
    Expression("rotation in 2-D, a frequency each", 2,
               lambda d: Rotation(np.array([0.7, -0.3]), dtype=d),
               proper(rotation(np.array([0.7, -0.3]))), is_real=False),
    Expression("rotation in 2-D, one frequency", 2, lambda d: Rotation(0.7, dtype=d),
               proper(rotation(0.7)), is_real=False, is_markov=True),
    Expression("white in 2-D", 2, lambda d: White(1.7, dtype=d),
               proper(lambda a, b: reference.white(a, b, 1.7)), is_markov=True),
    # sums, products and scalars
    Expression("number times kernel", 1, lambda d: 2.0 * RBF(1.7, 0.6, dtype=d),
               proper(rbf(3.4, 0.6))),
    Expression("kernel times number", 1, lambda d: Matern12(1.7, 0.6, dtype=d) * 2,
               proper(matern12(3.4, 0.6)), is_markov=True),
    Expression("sum of a list", 1,
               lambda d: sum([RBF(1.7, 0.6, dtype=d), Rotation(0.7, dtype=d), White(0.2, dtype=d)]),
               added(proper(rbf(1.7, 0.6)), proper(rotation(0.7)),
                     proper(lambda a, b: reference.white(a, b, 0.2))), is_real=False),
    Expression("product of real kernels", 1,
               lambda d: RBF(1.7, 0.6, dtype=d) * Periodic(1.0, 0.9, 0.4, dtype=d),
               proper(times(rbf(1.7, 0.6),
                            lambda a, b: reference.periodic(a, b, 1.0, 0.9, 0.4)))),
    Expression("turning signal", 1,
               lambda d: Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d), proper(TURNING),
               is_real=False, is_markov=True),
    Expression("turning signal and trend", 1,
               lambda d: RBF(0.1, 3.0, dtype=d)
               + Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d),
               added(proper(TURNING), proper(rbf(0.1, 3.0))), is_real=False),
    Expression("sum times rotation", 1,
               lambda d: (RBF(1.7, 0.6, dtype=d) + Constant(0.3, dtype=d)) * Rotation(0.7, dtype=d),
               proper(times(lambda a, b: reference.rbf(a, b, 1.7, 0.6) + 0.3, rotation(0.7))),
               is_real=False),
    Expression("two rotations multiplied", 1,
               lambda d: Rotation(0.7, dtype=d) * Rotation(-0.5, dtype=d) * RBF(1.7, 0.6, dtype=d),
               proper(times(rbf(1.7, 0.6), rotation(0.2))), is_real=False),
    Expression("one kernel shared by two terms", 1, shared_twice,
               proper(times(matern12(0.7, 1.1),
                            lambda a, b: rotation(0.4)(a, b) + rotation(-0.9)(a, b))),
               is_real=False, is_markov=True),
    Expression("conjugate of a turning signal", 1,
               lambda d: Conjugate(Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d)),
               proper(times(matern12(1.3, 0.8), rotation(-0.7))), is_real=False, is_markov=True),
    Expression("conjugate of a real kernel", 1, lambda d: Conjugate(RBF(1.7, 0.6, dtype=d)),
               proper(rbf(1.7, 0.6))),
    # improper
    Expression("improper", 1, lambda d: WidelyLinear(RBF(1.7, 0.6, dtype=d), C1),
               widely_linear(proper(rbf(1.7, 0.6)), C1), is_proper=False, is_real=False),
    Expression("improper, nearly proper", 1, lambda d: WidelyLinear(Matern12(1, 1, dtype=d), 0.0),
               proper(matern12(1.0, 1.0)), is_proper=False, is_real=False, is_markov=True),
    Expression("improper, on a line", 1, lambda d: WidelyLinear(RBF(1.7, 0.6, dtype=d), 1j),
               widely_linear(proper(rbf(1.7, 0.6)), 1j), is_proper=False, is_real=False),
    Expression("along an ellipse", 1,
               lambda d: WidelyLinear(Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d), C1),
               widely_linear(proper(TURNING), C1), is_proper=False, is_real=False, is_markov=True),
    Expression("elliptical ornstein-uhlenbeck", 1,
               lambda d: EllipticalOU(1.3 * (1 + abs(C2) ** 2), 1 / 0.8, 0.7, C2, dtype=d),
               widely_linear(proper(TURNING), C2), is_proper=False, is_real=False, is_markov=True),
    Expression("real times elliptical", 1,
               lambda d: Matern12(1.2, 0.9, dtype=d)
               * EllipticalOU(1.3 * (1 + abs(C1) ** 2), 1 / 0.8, 0.7, C1, dtype=d),
               scaled(matern12(1.2, 0.9), widely_linear(proper(TURNING), C1)),
               is_proper=False, is_real=False, is_markov=True),
    Expression("improper sum", 1,
               lambda d: WidelyLinear(
                   Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d) + RBF(1.7, 0.6, dtype=d), C2
               ),
               widely_linear(added(proper(TURNING), proper(rbf(1.7, 0.6))), C2),
               is_proper=False, is_real=False),
    Expression("improper plus proper", 1,
               lambda d: WidelyLinear(RBF(1.7, 0.6, dtype=d), C1) + Rotation(0.7, dtype=d),
               added(widely_linear(proper(rbf(1.7, 0.6)), C1), proper(rotation(0.7))),
               is_proper=False, is_real=False),
    Expression("real times improper", 1,
               lambda d: RBF(1.2, 0.9, dtype=d) * WidelyLinear(
                   Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d), C1
               ),
               scaled(rbf(1.2, 0.9), widely_linear(proper(TURNING), C1)),
               is_proper=False, is_real=False),
    Expression("number times improper", 1,
               lambda d: 0.5 * WidelyLinear(RBF(1.7, 0.6, dtype=d), C2),
               scaled(lambda a, b: 0.5, widely_linear(proper(rbf(1.7, 0.6)), C2)),
               is_proper=False, is_real=False),
    Expression("improper times improper", 1,
               lambda d: WidelyLinear(RBF(1.7, 0.6, dtype=d), C1)
               * WidelyLinear(Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d), C2),
               multiplied(widely_linear(proper(rbf(1.7, 0.6)), C1),
                          widely_linear(proper(TURNING), C2)),
               is_proper=False, is_real=False),
    Expression("conjugate of an improper one", 1,
               lambda d: Conjugate(
                   WidelyLinear(Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d), C2)
               ),
               conjugate(widely_linear(proper(TURNING), C2)),
               is_proper=False, is_real=False, is_markov=True),
    Expression("widely linear of widely linear", 1,
               lambda d: WidelyLinear(
                   WidelyLinear(Matern12(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d), C1), C2
               ),
               widely_linear(widely_linear(proper(TURNING), C1), C2),
               is_proper=False, is_real=False, is_markov=True),
    Expression("nested, in 2-D", 2,
               lambda d: Sum([
                   2.0 * WidelyLinear(
                       RBF(1.7, ARD2, dtype=d) * Conjugate(Rotation(np.array([0.7, -0.3]), dtype=d))
                       + White(0.3, dtype=d), C2),
                   Periodic(0.5, 0.9, 0.4, dtype=d),
               ]),
               added(
                   scaled(lambda a, b: 2.0, widely_linear(
                       added(proper(times(rbf(1.7, ARD2), rotation(np.array([-0.7, 0.3])))),
                             proper(lambda a, b: reference.white(a, b, 0.3))), C2)),
                   proper(lambda a, b: reference.periodic(a, b, 0.5, 0.9, 0.4)),
               ), is_proper=False, is_real=False),
]  # fmt: skip
