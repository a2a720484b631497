"""Spectral densities, against Fourier transforms of covariances and back."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

from cgp import kernels
from cgp.kernels import (
    ARMA,
    RBF,
    Along,
    Autoregressive,
    Conjugate,
    Constant,
    Driven,
    EllipticalOU,
    Empirical,
    ExponentialDelays,
    MarkovApproximation,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RandomWalk,
    RationalQuadratic,
    RelaxationTimes,
    Rotation,
    Szego,
    TappedDelays,
    TwoScale,
    UniformDelays,
    White,
    WidelyLinear,
    Zero,
)
from tests.kernels.damped_oscillator import DampedOscillator
from tests.long_cases import long_except

F = np.array([-1.3, -0.31, -0.05, 0.02, 0.27, 0.9])


def turning():
    return Matern32(1.3, 0.8) * Rotation(0.7)


def resonance():
    return Matern12(1.0, 2.0, fixed="variance") * Rotation(0.4)


DENSITIES = {
    "rbf": lambda: RBF(1.7, 0.6),
    "matern 1/2": lambda: Matern12(1.7, 0.6),
    "matern 3/2": lambda: Matern32(1.7, 0.6),
    "matern 5/2": lambda: Matern52(1.7, 0.6),
    "matern of any smoothness": lambda: Matern(1.7, 0.6, 1.1),
    "rational quadratic": lambda: RationalQuadratic(1.7, 0.6, 2.3),
    "two scales": lambda: TwoScale(1.7, 1.6, 0.3, 0.4),
    "turning": turning,
    "turning the other way": lambda: Conjugate(turning()),
    "sum": lambda: turning() + 0.5 * RBF(0.4, 1.1),
    "sum that turns": lambda: (Matern32(0.6, 0.5) + RBF(0.4, 1.1)) * Rotation(0.2),
    "product of Markov processes": lambda: Matern32(1.3, 0.8) * Matern52(0.7, 1.5) * Rotation(0.7),
    "product of a sum with a constant": lambda: (Matern32(1.3, 0.8) + Constant(0.4)) * Matern52(),
    "quasi-periodic": lambda: RBF(1.2, 1.9) * Periodic(0.8, 0.9, 0.4),
    "envelope of taps": lambda: Matern32(1.2, 0.9) * TappedDelays([0.3, -0.4], [0.5, 0.2]),
    "improper": lambda: WidelyLinear(turning(), 0.4 - 0.3j),
    "improper twice": lambda: WidelyLinear(WidelyLinear(turning(), 0.4 - 0.3j), 0.2j),
    "conjugate of an improper one": lambda: Conjugate(WidelyLinear(turning(), 0.4 - 0.3j)),
    "real times improper": lambda: Matern32() * WidelyLinear(turning(), 0.4 - 0.3j),
    "elliptical": lambda: EllipticalOU(1.5, 0.7, 0.3, 0.4j),
    "driven": lambda: Driven(resonance(), Matern32(0.5, 0.6)),
    "driven by an ellipse": lambda: Driven(resonance(), WidelyLinear(turning(), 0.4j)),
    "approximation": lambda: MarkovApproximation(RBF(1.5, 0.7), 4),
    "linear sde": lambda: DampedOscillator(0.5, 0.3, 0.5),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long)
        if name in ("driven by an ellipse", "matern of any smoothness", "matern 5/2", "turning")
        else name
        for name in DENSITIES
    ],
)
def test_is_the_density_the_transform_of_the_covariance(name):
    """By the trapezoidal rule over lags from −40 to 40, of which negative ones are conjugates."""
    kernel, dx = DENSITIES[name](), 1e-3
    x = dx * np.arange(40_001)
    k = kernel.covariance(x, [0.0]).numpy()[:, 0]
    k[0] *= 0.5
    expected = 2 * dx * np.real(np.exp(-2j * np.pi * F[:, None] * x) @ k)
    found = kernel.spectral_density(F)
    assert found.dtype == np.float64
    assert found.shape == F.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        *(DENSITIES[name]() for name in ("matern 5/2", "improper", "quasi-periodic", "driven")),
        RationalQuadratic(1.7, 0.6, 0.4),
        Szego(1.7, 2.6),
        Szego(1.7, 2.6, real_response=True),
        ExponentialDelays(1.7, 0.3) * Rotation(-0.5),
        Along(ExponentialDelays(1.7, 0.3), 0),
        UniformDelays(1.7, 0.6),
        Autoregressive.from_coefficients([0.5 + 0.4j, -0.2j], 1.7, step=0.25),
        ARMA.from_coefficients([0.5 + 0.4j], [0.4 - 0.3j, 0.2j], 1.7, step=0.25),
    ],
    ids=repr,
)
def test_is_the_covariance_the_integral_of_the_density(kernel):
    """At 0, which is the variance, and at a lag."""
    edges = [-200.0, -20.0, -2.0, -1.0, -0.6, -0.5, 0.0, 0.3, 0.7, 1.0, 2.0, 20.0, 200.0]
    nodes, weights = np.polynomial.legendre.leggauss(400)
    for lag in (0.0, 0.25):
        total = 0.0
        for low, high in itertools.pairwise(edges):
            # In the square of a variable, for what is infinite at 0.
            root = (nodes + 1) / 2
            if high == 0.0:
                f, w = high - (high - low) * root**2, weights * (high - low) * root
            else:
                f, w = low + (high - low) * root**2, weights * (high - low) * root
            total += np.sum(w * kernel.spectral_density(f) * np.exp(2j * np.pi * f * lag))
        expected = kernel.covariance([lag], [0.0]).numpy().item()
        assert total == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("alpha", long_except([0.3, 0.5, 0.7, 1.5, 60.0], 0.3, 60.0))
def test_is_the_density_of_a_rational_quadratic_a_mixture_of_gaussians(alpha):
    """Of rates of a gamma distribution (Rasmussen & Williams, §4.2)."""
    for f in (1e-6, 0.02, 0.4):

        def mixed(log_rate, f=f):
            rate = np.exp(log_rate)
            share = np.exp(alpha * np.log(alpha * rate) - alpha * rate - gammaln(alpha))
            return share * np.sqrt(2 * np.pi / rate) * np.exp(-2 * (np.pi * f) ** 2 / rate)

        expected = quad(mixed, -80.0, 6.0, points=[-20.0, -5.0, 0.0], epsrel=1e-10, limit=500)[0]
        found = RationalQuadratic(1.0, 1.0, alpha).spectral_density(f)
        assert found == pytest.approx(expected, rel=1e-6)


def test_does_a_real_response_have_the_density_of_its_covariance():
    f = -np.array([0.1, 0.9])
    found = Szego(1.5, 0.8, real_response=True).spectral_density(f)
    np.testing.assert_allclose(found, 1.5 * 1.6 * np.exp(1.6 * f))


def test_is_the_density_of_a_channel_its_profile():
    tau = np.array([-0.2, 0.2, 0.5, 1.2])
    kernel = UniformDelays(1.5, 0.6) * Rotation(-0.4)
    np.testing.assert_allclose(kernel.spectral_density(-tau), [0.0, 0.0, 2.5, 0.0])
    decaying = ExponentialDelays(1.5, 0.3).spectral_density(-tau)
    np.testing.assert_allclose(decaying, [0.0, *(5.0 * np.exp(-tau[1:] / 0.3))])


def test_has_a_density_the_shape_of_its_frequencies():
    for kernel in (Matern32(), turning(), DampedOscillator(0.5, 0.3), Zero()):
        grid = kernel.spectral_density(F.reshape(2, 3))
        assert grid.shape == (2, 3)
        np.testing.assert_allclose(grid.ravel(), [kernel.spectral_density(f) for f in F])
        assert kernel.spectral_density(F[0]).shape == ()


def test_is_a_density_of_single_precision_close():
    k, other = (
        Matern32(1.3, 0.8, dtype=d) * Rotation(0.7, dtype=d) for d in ("float32", "float64")
    )
    np.testing.assert_allclose(k.spectral_density(F), other.spectral_density(F), rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Constant(2.0), r"lines, at 0, where a density is infinite: multiply by an envelope"),
        (Rotation(0.3), r"lines, at 0\.3"),
        (Periodic(1.0, 1.0, 0.4), "lines, at"),
        (TappedDelays([0.5], [1.0]), r"lines, at -0\.5"),
        (Matern32() + Constant(1.0) * Rotation(0.2), r"lines, at 0\.2"),
        (White(1.0) + RBF(), "white noise, which has no density"),
        (RandomWalk(1.0, -1.0), "no spectral density of RandomWalk.*is known"),
        (RBF() + RandomWalk(1.0, -1.0), "no spectral density of RandomWalk"),
        (RBF(1.0, [1.0, 2.0]), "several dimensions"),
        (Rotation([1.0, 2.0]) * RBF(), "several dimensions"),
        (RBF() * Matern32(), "convolution of which no closed form is known"),
        (White(1.0) * RBF(), "white noise, which has no density"),
        (Autoregressive(1, 1.0, [1j]), "made of tones"),
        (Empirical.from_series([0.0, 1.0], [[1.0, 1j], [1j, 2.0]]), "it is not stationary"),
        (RelaxationTimes(1.0, 0.5, 1.0), "it is not stationary"),
        (MarkovApproximation(Periodic(), 3), "no spectral density of MarkovApproximation"),
    ],
    ids=repr,
)
def test_what_has_no_density_is_refused_with_a_way_on(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel.spectral_density(F)


def test_frequencies_that_are_none_are_refused():
    with pytest.raises(ValueError, match="frequencies must be finite"):
        RBF().spectral_density([0.0, np.nan])
    with pytest.raises(TypeError, match="frequencies must be real"):
        RBF().spectral_density([1j])


def test_is_an_inherited_density_not_that_of_other_moments():
    class Flipped(RBF):
        def moments(self, x1, x2):
            return super().moments(-x1, 2.0 * x2)

    with pytest.raises(ValueError, match="implement spectrum"):
        Flipped().spectral_density(0.0)


def test_is_every_kernel_of_one_dimension_tried_here():
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    abstract = {"Generator", "Kernel", "MarkovForm", "linear_sde", "IntegratedRandomWalk"}
    abstract |= {"Coregionalized", "Outputs", "Levels"}  # of several signals
    names = set(kernels.__all__) - abstract - {"Sum", "Product"}  # as + and *
    assert [name for name in names if f"{name}(" not in text and f"{name}." not in text] == []
