"""Data far from zero: what scales, starts and priors come from, and what a fit says of them."""

import warnings

import numpy as np
import pytest

import cgp
from cgp.gp.means import Polynomial, Rational
from cgp.gp.starts import residual_power, scales_of
from cgp.kernels import (
    RBF,
    Constant,
    IntegratedRandomWalk,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RandomWalk,
    Rotation,
)
from tests.gp.problems import complex_normals, started
from tests.long_cases import eagerly_or_in_a_graph, long_except

X = np.linspace(0.0, 30.0, 60)
BETWEEN = np.linspace(0.3, 29.7, 50)
NOISE = complex_normals(np.random.default_rng(0), 60)


def tone(x):
    return np.exp(0.2j * np.pi * x)


def fitted(gp, z, x=X):
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)
    return gp


def error(gp, offset):
    return np.sqrt(np.mean(np.abs(gp.predict(BETWEEN)["mean"] - tone(BETWEEN) - offset) ** 2))


MODELS = {
    "polynomial": lambda: cgp.ExactGP(RBF(), mean=Polynomial(0)),
    "marginalised": lambda: cgp.ExactGP(
        RBF(), mean=Polynomial(1, marginalized=True, center=15, scale=15)
    ),
    "state space": lambda: cgp.StateSpaceGP(Matern52(), mean=cgp.means.Constant()),
    "state space, kernel": lambda: cgp.StateSpaceGP(Matern52() + Constant()),
}


@pytest.mark.parametrize(
    ("name", "offset"),
    long_except(
        [(name, offset) for name in MODELS for offset in (1e5, 1e-3, 1e6)],
        ("state space", 1e5),
    ),
)
def test_is_noise_beside_a_mean_that_of_the_signal_without_it(name, offset):
    gp = fitted(MODELS[name](), tone(X) + offset + 0.005 * NOISE)
    assert error(gp, offset) < 0.01
    assert 0.001 < np.sqrt(gp.parameters()["noise_variance"]) < 0.008


@pytest.mark.long
def test_is_the_optimum_beside_a_learned_mean_the_same_at_any_offset():
    """From a frequency that is far off, which a fit has to move by a third."""
    x = 3.0 * np.arange(120)
    truth = cgp.StateSpaceGP(Matern12(6400.0, 1000.0) * Rotation(1 / 433), 25.0)
    z = truth.sample(x, observed=True, seed=3)[0]
    optima = []
    for offset in (0.0, 1e5 * (1 + 0.5j), 1e8):
        gp = fitted(
            cgp.StateSpaceGP(Matern12() * Rotation(0.003), mean=Polynomial(0)), z + offset, x
        )
        optima.append(list(gp.parameters().values())[:4])
        optima[-1].append(gp.parameters()["mean.coefficients"][0] - offset)
    np.testing.assert_allclose(optima[1:], [optima[0]] * 2, rtol=2e-3)


def test_is_a_dense_constant_told_where_its_rounding_hides_the_noise():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # L-BFGS sees no decrease
        gp = fitted(cgp.ExactGP(RBF() + Constant()), tone(X) + 1e5 + 0.005 * NOISE)
    assert error(gp, 1e5) < 0.02
    with pytest.warns(RuntimeWarning, match=r"near what rounding of a covariance with so large"):
        started(gp, X, tone(X) + 1e5 + 0.005 * NOISE)


@pytest.mark.parametrize(
    ("mean", "trend"),
    [
        (None, lambda x: 0.0 * x),
        (cgp.means.Constant(), lambda x: 0.0 * x),
        (cgp.means.Constant(fixed="value"), lambda x: 0.0 * x),
        (Polynomial(0), lambda x: 0.0 * x),
        (Polynomial(1), lambda x: 3e4j * x),
        (Polynomial(2), lambda x: 3e4j * x + 1e3 * x**2),
        (Polynomial(2, marginalized=True), lambda x: 3e4j * x + 1e3 * x**2),
        (Rational(1), lambda x: 1e5 / (1.0 + 2j * (x - 15.0))),
    ],
)
def test_is_the_power_of_the_weak_prior_what_a_mean_leaves(mean, trend):
    """Whatever its coefficients are, and of each series alike."""
    z = np.stack([tone(X), 1j * tone(X)]) + 1e5 * (1 + 1j) + trend(X)
    z[1, :7] = np.nan
    gp = cgp.ExactGP(RBF(1.0, 3.0), 0.1, mean=mean)
    if mean is not None:
        mean.prepare(X[None, :, None], z)
        for parameter in mean.own_parameters:  # which were left out
            parameter.assign(parameter.numpy())
    data = gp._validated(X, z, None, gp.noise_arguments())
    power = float(residual_power(gp.observation_model, data))
    assert 0.2 < power < 1.2
    for parameter in [] if mean is None else mean.own_parameters:
        if not parameter.fixed:
            parameter.assign(parameter.numpy() + 7.0)
            assert float(residual_power(gp.observation_model, data)) == power


@eagerly_or_in_a_graph
def test_have_siblings_one_loss_of_one_process(eagerly):
    z = tone(X) + 1e5 + 0.005 * NOISE
    losses = []
    for kind in (cgp.ExactGP, cgp.StateSpaceGP):
        gp = kind(Matern32(1.0, 5.0), mean=cgp.means.Constant(1e5))
        gp.noise_variance.assign(1e-4)
        gp._noise_floor = 1e-10
        gp.compile(cgp.optimizers.LBFGS(), run_eagerly=eagerly)
        losses.append(gp.evaluate(X, z, verbose=0))
    np.testing.assert_allclose(*losses, rtol=1e-8)


def test_do_kernels_start_from_what_their_slow_terms_leave():
    z = tone(X) + 1e5 + 1e3j * (X - 15.0)
    kernel = RBF() + Constant() + IntegratedRandomWalk()
    gp = cgp.StateSpaceGP(Matern52() + Constant() + IntegratedRandomWalk())
    scales = scales_of(cgp.ExactGP(kernel), gp._validated(X, z, None, gp.noise_arguments()))
    assert scales.total == pytest.approx(1.0, rel=0.1)
    started(gp, X, z)
    found = gp.parameters()
    assert found["constant.variance"] == pytest.approx(1e10, rel=1e-3)
    assert found["integratedrandomwalk.slope_variance"] == pytest.approx(1e6 / 12.0, rel=0.1)
    assert found["matern52.variance"] < 1.0
    assert found["noise_variance"] < 0.1


def test_is_a_constant_signal_no_rounding():
    gp = cgp.ExactGP(RBF(1.0, 3.0), 0.1)
    data = gp._validated(X, 0j * X + 1 + 1j, None, gp.noise_arguments())
    assert float(residual_power(gp.observation_model, data)) == pytest.approx(2.0)


FAR = tone(X) + 1000.0 + 0.05 * NOISE


@pytest.mark.parametrize(
    "make",
    [
        lambda: cgp.ExactGP(Matern32() * Rotation()),
        lambda: cgp.StateSpaceGP(Matern32() * Rotation() + RandomWalk()),
        lambda: cgp.StateSpaceGP(Constant() * Rotation()),
        lambda: cgp.RecursiveGP(Matern32() * Rotation(), capacity=8),
        lambda: cgp.ExactGP(RBF(), mean=cgp.means.Constant(1.0, fixed="value")),
    ],
)
def test_is_an_offset_that_no_term_is_for_told(make):
    gp = make()
    with pytest.warns(
        RuntimeWarning, match=r"far from zero: its mean is (1000|999).*add.*Constant"
    ) as all_:
        started(gp, X, FAR)
    assert not any("run to zero" in str(one.message) for one in all_)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cgp.ExactGP(Matern32() * Rotation(), mean=Polynomial(0)),
        lambda: cgp.ExactGP(Matern32() * Rotation(), mean=Polynomial(0, marginalized=True)),
        lambda: cgp.StateSpaceGP(Matern32() * Rotation() + 2.0 * Constant()),
        lambda: cgp.StateSpaceGP(RandomWalk(start=-100.0)),
        lambda: cgp.ExactGP(Periodic()),
        lambda: cgp.ExactGP(Constant() * Rotation(0.0, fixed="frequency") + RBF()),
        lambda: cgp.RecursiveGP(Matern32() + Constant(), capacity=8),
        lambda: cgp.RecursiveGP(
            Matern32() + RBF(1e6, 1e5, fixed=("variance", "lengthscale")), capacity=8
        ),
        lambda: cgp.ExactGP(cgp.kernels.TappedDelays([0.0, 0.1], fixed="delays")),
    ],
)
def test_is_an_offset_that_a_term_is_for_not_told(make):
    gp = make()
    started(gp, X, FAR)


def test_are_offsets_of_series_told_one_by_one():
    """One mean is not that of all: a constant term of the kernel is."""
    z = np.stack([FAR, FAR - 2000.0])
    for mean in (None, Polynomial(0)):
        gp = cgp.ExactGP(Matern32() * Rotation(), mean=mean)
        with pytest.warns(RuntimeWarning, match=r"of series \d, is .*: add cgp.kernels.Constant"):
            started(gp, X, z)
    gp = cgp.ExactGP(Matern32() * Rotation() + Constant())
    started(gp, X, z)


def test_is_a_line_far_from_zero_told():
    z = FAR + 50.0 * X
    said = r"a straight line.*Polynomial\(1, center=15, scale=15\), or .*Walk\(start=0\) to the"
    gp = cgp.ExactGP(Matern32() * Rotation())
    with pytest.warns(RuntimeWarning, match=said):
        started(gp, X, z)


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        lambda: cgp.ExactGP(Matern32() * Rotation(), mean=Polynomial(1, center=15, scale=15)),
        lambda: cgp.StateSpaceGP(
            Matern32() * Rotation() + Constant() + IntegratedRandomWalk(start=0.0)
        ),
    ],
)
def test_do_the_remedies_forecast(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the tone is pure, the walk has no bend
        gp = fitted(make(), FAR + 50.0 * X)
    ahead = np.linspace(30.5, 33.0, 6)
    np.testing.assert_allclose(gp.predict(ahead)["mean"], tone(ahead) + 1000 + 50 * ahead, atol=0.1)


@pytest.mark.long
def test_says_a_fit_of_zeros_nothing_of_gradients():
    gp = cgp.ExactGP(RBF())
    gp.compile(cgp.optimizers.LBFGS())
    with pytest.warns(RuntimeWarning) as told:
        gp.fit(X[:12], 0j * X[:12], verbose=0)
    messages = [str(one.message) for one in told]
    assert any("nothing to learn from" in message for message in messages)
    assert not any("gradient" in message for message in messages)
