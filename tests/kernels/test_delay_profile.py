"""Channels over frequency by their power-delay profiles: composition, starts, refusals."""

import numpy as np
import pytest

import cgp
from cgp.kernels import (
    Along,
    Constant,
    ExponentialDelays,
    Matern32,
    Rotation,
    Szego,
    TappedDelays,
    UniformDelays,
)
from cgp.kernels.data_scales import DataScales, StartRules

CARRIERS = 15e3 * np.arange(72)


def test_is_an_exponential_profile_the_kernel_of_decaying_white_noise():
    k = ExponentialDelays(1.5, delay_spread=0.3).covariance(CARRIERS / 1e6).numpy()
    other = Szego(1.5, decay=1 / 0.6).covariance(CARRIERS / 1e6).numpy()
    np.testing.assert_allclose(k, other, rtol=1e-14)


def test_are_taps_constants_behind_delays():
    f = CARRIERS[::8]
    terms = Constant(1.0) * Rotation(0.0) + Constant(0.4) * Rotation(-2e-6)
    k = TappedDelays([0.0, 2e-6], [1.0, 0.4]).covariance(f).numpy()
    np.testing.assert_allclose(k, terms.covariance(f).numpy(), atol=1e-12)


def test_are_taps_filtered_as_they_are_inverted():
    rng = np.random.default_rng(2)
    z = rng.normal(size=72) + 1j * rng.normal(size=72)
    kernel = TappedDelays([0.0, 2e-6, -0.3e-6], [1.0, 0.4, 0.2]) * Matern32(1.0, 3e5)
    likelihoods = [
        gp(kernel, noise_variance=0.1).log_marginal_likelihood(CARRIERS, z)
        for gp in (cgp.ExactGP, cgp.StateSpaceGP)
    ]
    np.testing.assert_allclose(*likelihoods, rtol=1e-8)


def test_are_profiles_without_a_rational_form_not_markov():
    for kernel in (ExponentialDelays(), UniformDelays()):
        with pytest.raises(ValueError, match="not Markov"):
            cgp.StateSpaceGP(kernel)


@pytest.mark.parametrize("angle", [0.0, 0.999e-3, 1.001e-3])
def test_is_a_uniform_profile_smooth_where_its_quotient_is_a_series(angle):
    lag = angle / (np.pi * 0.7)
    k = UniformDelays(1.0, 0.7).covariance([lag], [0.0]).numpy().item()
    expected = np.exp(-1j * angle) * np.sinc(angle / np.pi)
    assert k == pytest.approx(expected, rel=1e-14)


@pytest.mark.long
@pytest.mark.parametrize(
    ("true", "left_out", "name", "value"),
    [
        (
            ExponentialDelays(2.0, 1e-6) * Rotation(-3e-6),
            lambda: ExponentialDelays() * Rotation(),
            "exponentialdelays.delay_spread",
            1e-6,
        ),
        (
            UniformDelays(2.0, 4e-6) * Rotation(-3e-6),
            lambda: UniformDelays() * Rotation(),
            "uniformdelays.width",
            4e-6,
        ),
    ],
    ids=["exponential", "uniform"],
)
@pytest.mark.parametrize("seed", [3, 21])  # of 3 the uniform profile needs the restarts
def test_do_left_out_profiles_start_near_enough_to_be_learned(true, left_out, name, value, seed):
    drawn = cgp.ExactGP(true, noise_variance=0.02).sample(CARRIERS, 4, seed=seed, observed=True)
    gp = cgp.ExactGP(left_out())
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(CARRIERS, drawn, restarts=4, verbose=0)
    found = gp.parameters()
    assert found[name] == pytest.approx(value, rel=0.2)
    assert found["rotation.frequency"] == pytest.approx(-3e-6, abs=0.2e-6)
    assert found["noise_variance"] == pytest.approx(0.02, rel=0.2)


def test_do_powers_of_taps_start_at_the_scale_of_the_data():
    """In a product too, where one factor has the scale."""
    z = 30.0 * np.exp(2j * np.pi * np.arange(72) ** 2 / 72)
    kernel = TappedDelays([0.0, 2e-6], fixed="delays") * Rotation()
    rules = StartRules(DataScales(CARRIERS[:, None], z[None]))
    starts = kernel.starts(rules, rules.scales.total, lambda parameter: parameter.is_left_out)
    values = {parameter.name: value for parameter, value in starts}
    np.testing.assert_allclose(values["powers"], [450.0, 450.0])


def test_are_several_coordinates_refused_with_a_remedy_that_works():
    x = np.stack(np.meshgrid([0.0, 1e-3], CARRIERS[:3], indexing="ij"), axis=-1).reshape(-1, 2)
    for kernel in (ExponentialDelays(), UniformDelays(), TappedDelays([0.0])):
        with pytest.raises(ValueError, match=r"but x has 2 dimensions: cgp.kernels.Along\("):
            kernel.covariance(x)

    k = Along(ExponentialDelays(1.5, 1e-6), 1).covariance(x).numpy()
    own = ExponentialDelays(1.5, 1e-6).covariance(CARRIERS[:3]).numpy()
    np.testing.assert_allclose(k, np.tile(own, (2, 2)), rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TappedDelays([]), ValueError, "delays must be numbers"),
        (lambda: TappedDelays([1j]), TypeError, "delays must be real"),
        (lambda: TappedDelays([0.0, 1.0], [1.0]), ValueError, "one for each of 2 delays"),
        (lambda: TappedDelays([0.0], [0.0]), ValueError, "powers must be positive"),
        (lambda: TappedDelays([np.inf], [1.0]), ValueError, "delays must be real"),
        (lambda: UniformDelays(width=0.0), ValueError, "width must be positive"),
    ],
)
def test_what_is_no_profile_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
