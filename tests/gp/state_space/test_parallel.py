"""A process computed in parallel over its points, against one that goes from point to point."""

import keras
import numpy as np
import pytest

import cgp
from tests.long_cases import eagerly_or_in_a_graph, long_except


def data(spacing, count=40):
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.0, 2 * spacing, count))
    t[7] = t[6]  # two samples at one place
    z = np.exp(3j * t) + 0.1 * rng.normal(size=2 * count).view(complex)
    z[11] = np.nan
    return t, z


def processes(improper):
    kernel = cgp.kernels.Matern32(1.0, 5.0) * cgp.kernels.Rotation(0.5)
    if improper:
        kernel = cgp.kernels.WidelyLinear(kernel, coefficient=0.3 + 0.1j)
    return [cgp.StateSpaceGP(kernel, 0.02, parallel=parallel) for parallel in (True, False)]


@pytest.mark.parametrize(
    ("spacing", "improper", "count"),
    long_except(
        [(0.1, True, 13), (0.1, False, 40), (0.1, True, 40), (1e-6, False, 40)], (0.1, True, 13)
    ),
    ids=str,
)
def test_are_likelihood_and_predictions_the_same(spacing, improper, count):
    t, z = data(spacing, count)
    found, expected = processes(improper)
    for gp in (found, expected):
        gp.condition(t, z)
    likelihoods = [gp.log_marginal_likelihood(t, z) for gp in (found, expected)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-10)
    x = np.array([t[count // 2], t[0] - 0.3, t[-1] + 0.7, (t[3] + t[4]) / 2])
    for method, argument in (("predict", x), ("forecasts", [0.0, 0.4])):
        results = [getattr(gp, method)(argument) for gp in (found, expected)]
        for key, value in results[1].items():
            np.testing.assert_allclose(results[0][key], value, rtol=1e-9, atol=1e-10, err_msg=key)
    covariances = [gp.posterior(x).covariance() for gp in (found, expected)]
    np.testing.assert_allclose(*covariances, rtol=1e-9, atol=1e-10)


@eagerly_or_in_a_graph
def test_is_the_same_learned(eagerly):
    t, z = data(0.1, count=13 if eagerly else 20)
    losses = []
    for parallel in (True, False):
        gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 2.0), 0.1, parallel=parallel)
        gp.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=eagerly)
        losses.append(gp.fit(t, z, epochs=2 if eagerly else 3, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-9)


def test_is_it_kept_in_a_config_and_settled():
    gp, _ = processes(False)
    again = cgp.StateSpaceGP.from_config(gp.get_config())
    assert again.parallel
    with pytest.raises(AttributeError, match="parallel"):
        again.parallel = False
