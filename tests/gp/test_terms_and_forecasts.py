"""The share of one term of a sum in the posterior, and forecasts from every sample."""

import numpy as np
import pytest

import cgp
from cgp.kernels import Constant, Matern12, Matern32, Rotation, WidelyLinear
from tests.gp.problems import complex_normals

X = np.array([0.3, 0.0, 1.1, 2.0, 2.6, 3.3])
X_NEW = np.array([0.5, 1.5, 4.0])


def targets(seed=0):
    return complex_normals(np.random.default_rng(seed), len(X))


def composite(k, c):
    return 0.5 * np.block([[(k + c).real, (c - k).imag], [(k + c).imag, (k - c).real]])


def dense(kernel, part, noise, z, basis=None):
    """Mean, covariance and pseudo-covariance of a part, from the joint normal of everything."""

    def moments(of, x1, x2=None):
        return composite(of.covariance(x1, x2).numpy(), of.pseudo_covariance(x1, x2).numpy())

    K = moments(kernel, X) + 0.5 * noise * np.eye(2 * len(X))
    if basis is not None:  # a flat prior, as one of great variance
        K = K + 1e7 * composite(basis @ basis.conj().T, np.zeros((len(X), len(X))))
    cross = moments(part, X_NEW, X)
    y = np.concatenate([z.real, z.imag])
    mean = cross @ np.linalg.solve(K, y)
    covariance = moments(part, X_NEW) - cross @ np.linalg.solve(K, cross.T)
    m = len(X_NEW)
    rr, ri, ii = covariance[:m, :m], covariance[:m, m:], covariance[m:, m:]
    return mean[:m] + 1j * mean[m:], rr + ii + 1j * (ri.T - ri), rr - ii + 1j * (ri + ri.T)


PROPER = (Matern32(1.0, 2.0) * Rotation(0.3), Matern12(0.5, 1.0), Constant(0.3))
IMPROPER = (WidelyLinear(Matern32(1.0, 2.0) * Rotation(0.3), 0.3 - 0.4j), Matern12(0.5, 1.0))


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
@pytest.mark.parametrize("terms", [PROPER, IMPROPER], ids=["proper", "improper"])
def test_is_the_posterior_of_a_part_that_of_the_joint_normal(kind, terms):
    kernel = sum(terms)
    gp = kind(kernel, 0.1, mean=cgp.means.Constant(0.5 + 1j))
    z = targets()
    gp.condition(X, z + 0.5 + 1j)
    total = 0.0
    for part in kernel.parts:
        found = gp.posterior(X_NEW, part=part)
        mean, covariance, pseudo = dense(kernel, part, 0.1, z)
        np.testing.assert_allclose(found.mean(), mean, atol=1e-10)
        np.testing.assert_allclose(found.covariance(), covariance, atol=1e-10)
        np.testing.assert_allclose(found.pseudo_covariance(), pseudo, atol=1e-10)
        np.testing.assert_allclose(found.variance(), np.diag(covariance).real, atol=1e-10)
        total = total + found.mean().numpy()
    np.testing.assert_allclose(total + 0.5 + 1j, gp.posterior(X_NEW).mean(), atol=1e-10)


def test_learns_a_part_less_beside_a_trend():
    kernel = Matern32(1.0, 2.0) + Matern12(0.5, 1.0)
    gp = cgp.ExactGP(kernel, 0.1, mean=cgp.means.Polynomial(1, marginalized=True))
    gp.condition(X, targets())
    basis = np.stack([np.ones_like(X), X], axis=-1).astype(complex)
    found = gp.posterior(X_NEW, part=kernel.parts[1])
    mean, covariance, _ = dense(kernel, kernel.parts[1], 0.1, targets(), basis)
    np.testing.assert_allclose(found.mean(), mean, atol=1e-5)
    np.testing.assert_allclose(found.covariance(), covariance, atol=1e-5)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_is_a_part_of_a_sum_inside_a_sum_a_part(kind):
    inner = cgp.kernels.Sum([Matern12(0.5, 1.0), Matern32(0.2, 3.0)], name="slow")
    kernel = PROPER[0] + inner
    gp = kind(kernel, 0.1)
    gp.condition(X, targets())
    for part in (inner, inner.parts[1], kernel):
        mean, _, _ = dense(kernel, part, 0.1, targets())
        np.testing.assert_allclose(gp.posterior(X_NEW, part=part).mean(), mean, atol=1e-10)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
@pytest.mark.parametrize("terms", [PROPER, (*IMPROPER, Constant(0.3))], ids=["proper", "improper"])
def test_is_a_sum_of_terms_a_part(kind, terms):
    kernel = sum(terms)
    gp = kind(kernel, 0.1)
    gp.condition(X, targets())
    part = terms[2] + terms[0]
    found = gp.posterior(X_NEW, part=part)
    mean, covariance, pseudo = dense(kernel, part, 0.1, targets())
    np.testing.assert_allclose(found.mean(), mean, atol=1e-10)
    np.testing.assert_allclose(found.covariance(), covariance, atol=1e-10)
    np.testing.assert_allclose(found.pseudo_covariance(), pseudo, atol=1e-10)
    for other in (terms[0] + Matern12(0.5, 1.0), terms[0] + terms[0]):
        with pytest.raises(ValueError, match="or a sum of some"):
            gp.posterior(X_NEW, part=other)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_is_what_is_no_part_refused(kind):
    gp = kind(PROPER[0] + PROPER[1], 0.1)
    with pytest.raises(ValueError, match=r"part must be one of the terms.*the same object"):
        gp.posterior(X_NEW, part=Matern12(0.5, 1.0))
    with pytest.raises(ValueError, match="observed must be False for a part"):
        gp.posterior(X_NEW, part=PROPER[1], observed=True)
    prior = gp.posterior(X_NEW, part=PROPER[1])
    np.testing.assert_allclose(prior.variance(), 0.5 * np.ones(3))


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param(PROPER, id="proper", marks=pytest.mark.long),
        pytest.param(IMPROPER, id="improper"),
    ],
)
@pytest.mark.parametrize("observed", [False, True])
def test_are_forecasts_those_of_the_samples_so_far(terms, observed):
    kernel, z = sum(terms), targets()
    z[4] = np.nan
    gp = cgp.StateSpaceGP(kernel, 0.1, mean=cgp.means.Polynomial(1, [0.5, 1j]))
    gp.condition(X, z)
    horizons = [0.0, 0.7, 2.0]
    found = gp.forecasts(horizons, observed=observed)
    assert found["mean"].shape == (6, 3)
    exact = cgp.ExactGP(kernel, 0.1, mean=gp.mean)
    for i in range(len(X)):
        so_far = X[i] >= X
        if np.isnan(z[so_far]).all():
            continue
        exact.condition(X[so_far], z[so_far])
        expected = exact.predict(X[i] + np.array(horizons), observed=observed)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name][i], value, atol=1e-9, err_msg=name)


def test_have_series_of_a_batch_forecasts_of_their_own():
    z = np.stack([targets(0), targets(1)])
    gp = cgp.StateSpaceGP(PROPER[0], 0.1)
    gp.condition(X, z)
    both = gp.forecasts(0.5)
    for series, own in zip(z, both["mean"], strict=True):
        gp.condition(X, series)
        np.testing.assert_allclose(gp.forecasts([0.5])["mean"], own, atol=1e-12)
    for horizons, said in ((-1.0, "not negative"), ([[1.0, 2.0]], r"must be \[H\]")):
        with pytest.raises(ValueError, match=said):
            gp.forecasts(horizons)
    with pytest.raises(ValueError, match="there are no data"):
        cgp.StateSpaceGP(Matern12(1.0, 1.0), 0.1).forecasts(1.0)
