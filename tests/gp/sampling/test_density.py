"""The log density of hyperparameters against NumPy, and what it leaves alone."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import cgp
from cgp.kernels import RBF, Matern12, Rotation, TwoScale, WidelyLinear
from tests.long_cases import long_except
from tests.reference import gaussian_process, kernels

FIRST, SECOND = 0.2, -0.5  # where the weights are moved


def series():
    """Places and values, one of which is missing."""
    rng = np.random.default_rng(3)
    x, z = np.sort(rng.uniform(0.0, 4.0, 9)), rng.normal(size=(9, 2)) @ [1.0, 1.0j]
    z[4] = np.nan
    return x, z


X, Z = series()


def improper():
    """A process whose hyperparameters have all kinds of constraints, and two priors."""
    priors = {"lengthscale": tfp.distributions.LogNormal(np.log(2.0), 0.5)}
    kernel = WidelyLinear(RBF(1.3, 1.7, priors=priors) * Rotation(0.4), 0.3 - 0.2j)
    noise = {"noise_variance": tfp.distributions.Gamma(2.0, 3.0)}
    gp = cgp.ExactGP(kernel, 0.3, priors=noise)
    gp.condition(X, Z)
    return gp


def moved(gp, by, seed=0):
    """Values of the weights near the present ones."""
    rng = np.random.default_rng(seed)
    return [v.numpy() + by * rng.normal(size=v.shape) for v in gp.trainable_variables]


def onto_disk(raw):
    """The map of the plane onto the disk, and the determinant of its Jacobian by differences."""

    def value(w):
        r = np.hypot(*w)
        return np.sin(r) / r * np.asarray(w)

    h = 1e-6
    rows = [(value(raw + h * e) - value(raw - h * e)) / (2 * h) for e in np.eye(2)]
    return value(raw) @ [1.0, 1.0j], np.log(abs(np.linalg.det(rows)))


def reference(gp, weights):
    """By name of the weights: values, log Jacobian, likelihood and priors, all in NumPy."""
    raw = {v.name: w for v, w in zip(gp.trainable_variables, weights, strict=True)}
    positive = {name: np.exp(raw[name]) for name in ("noise_variance", "variance", "lengthscale")}
    rotation = gp.named_hyperparameters()["rotation.frequency"]
    step = float(rotation.step.numpy())
    coefficient, log_disk = onto_disk(raw["coefficient"])
    x = X[:, None]
    k = kernels.rbf(x, x, positive["variance"], positive["lengthscale"])
    k = k * kernels.rotation(x, x, step * raw["frequency"])
    k, c = kernels.widely_linear(k, np.zeros_like(k), coefficient)
    k = k + positive["noise_variance"] * np.eye(len(X))
    return (
        gaussian_process.log_marginal_likelihood(Z, k, c)
        + stats.lognorm(0.5, scale=2.0).logpdf(positive["lengthscale"])
        + stats.gamma(2.0, scale=1 / 3.0).logpdf(positive["noise_variance"])
        + sum(raw[name] for name in positive)
        + np.log(step)
        + log_disk
    )


@pytest.fixture(scope="module")
def gp():
    return improper()


@pytest.mark.parametrize("by", [FIRST, SECOND])
def test_is_the_density_likelihood_priors_and_jacobian_of_numpy(gp, by):
    weights = moved(gp, by)
    np.testing.assert_allclose(gp.log_density(weights), reference(gp, weights), rtol=1e-8)


def assert_gradient(gp, weights):
    weights = [tf.constant(w) for w in weights]
    with tf.GradientTape() as tape:
        tape.watch(weights)
        value = gp.log_density(weights)
    found = tape.gradient(value, weights)
    rng = np.random.default_rng(4)
    directions = [rng.normal(size=w.shape) for w in weights]
    h = 1e-5
    above, below = (
        gp.log_density([w + s * d for w, d in zip(weights, directions, strict=True)])
        for s in (h, -h)
    )
    expected = sum(np.sum(g * d) for g, d in zip(found, directions, strict=True))
    np.testing.assert_allclose(expected, (above - below) / (2 * h), rtol=1e-6)
    assert abs(expected) > 1e-2


def test_is_its_gradient_that_of_differences(gp):
    assert_gradient(gp, moved(gp, FIRST))


@pytest.mark.parametrize("rows", [1, pytest.param(2, marks=pytest.mark.long)])
def test_is_a_batch_of_weights_one_at_a_time(gp, rows):
    points = [moved(gp, FIRST, seed) for seed in range(3 * rows)]
    together = [
        np.stack(parts).reshape(rows, 3, *parts[0].shape) for parts in zip(*points, strict=True)
    ]
    found = gp.log_density(together)
    assert found.shape == (rows, 3)
    alone = [float(gp.log_density(point)) for point in points]
    np.testing.assert_allclose(np.ravel(found), alone, rtol=1e-12)


def test_does_the_density_leave_the_process_as_it_is(gp):
    before = [v.numpy() for v in gp.weights], gp.predict([1.5, 7.0])["variance"]
    gp.log_density(moved(gp, SECOND))
    after = [v.numpy() for v in gp.weights], gp.predict([1.5, 7.0])["variance"]
    assert all(np.array_equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    np.testing.assert_array_equal(before[1], after[1])


def test_is_the_density_zero_where_the_plane_covers_the_disk_once_more(gp):
    weights = moved(gp, 0.0)
    number = [v.name for v in gp.trainable_variables].index("coefficient")
    inside = float(gp.log_density(weights))
    # Another radius, of the same value of the coefficient.
    radius = np.hypot(*weights[number])
    weights[number] = weights[number] * (np.pi - radius) / radius
    assert float(gp.log_density(weights)) == -np.inf
    assert np.isfinite(inside)


@pytest.mark.long
def test_is_the_density_the_same_in_the_graph_of_another_function(gp):
    weights = [tf.constant(w) for w in moved(gp, FIRST)]
    found = tf.function(gp.log_density, autograph=False)(weights)
    np.testing.assert_allclose(found, gp.log_density(weights), rtol=1e-10)


def test_do_an_exact_and_a_state_space_process_have_one_density():
    prior = {"share": tfp.distributions.Beta(2.0, 3.0)}
    arguments = 1.2, 2.0, 0.3, 0.4
    both = [
        made(TwoScale(*arguments, priors=prior), 0.3) for made in (cgp.ExactGP, cgp.StateSpaceGP)
    ]
    for gp in both:
        gp.condition(X, Z)
    weights = moved(both[0], FIRST)
    first, second = (gp.log_density(weights) for gp in both)
    np.testing.assert_allclose(first, second, rtol=1e-9)
    share = both[0].kernel.share
    place = [v.name for v in both[0].trainable_variables].index("share")
    value = 1.0 / (1.0 + np.exp(-weights[place]))
    # What the priors and the Jacobian add.
    for v, w in zip(both[0].trainable_variables, weights, strict=True):
        v.assign(w)
    assert float(share) == pytest.approx(value)
    added = stats.beta(2.0, 3.0).logpdf(value)
    for variable, w in zip(both[0].trainable_variables, weights, strict=True):
        one = 1.0 / (1.0 + np.exp(-w))
        added += np.log(one * (1.0 - one)) if variable.name in ("share", "ratio") else w
    expected = float(both[0].log_marginal_likelihood()) + added
    np.testing.assert_allclose(first, expected, rtol=1e-9)


def test_is_the_gradient_of_a_state_space_process_that_of_differences():
    gp = cgp.StateSpaceGP(Matern12(1.2, 2.0) * Rotation(0.3), 0.3)
    gp.condition(X, Z)
    assert_gradient(gp, moved(gp, FIRST))


def smooth(coefficient=None):
    """A process whose covariance is singular to rounding where the noise is small."""
    kernel = RBF(1.0, 50.0, fixed=("variance", "lengthscale"))
    if coefficient is not None:
        kernel = WidelyLinear(kernel, coefficient, fixed="coefficient")
    gp = cgp.ExactGP(kernel, 0.3)
    gp.condition(X, Z)
    return gp


@pytest.mark.parametrize(
    ("has_core", "coefficient"),
    long_except(
        [(core, coefficient) for core in (True, False) for coefficient in (None, 0.5j)],
        (True, 0.5j),
    ),
)
def test_is_a_covariance_without_a_factor_nan_and_no_error(coefficient, has_core, without_core):
    gp = smooth(coefficient)
    weights = [np.log([0.3, 1e-40, 0.1])]
    found = gp.log_density(weights) if has_core else without_core(gp.log_density, weights)
    assert np.isnan(found[1])
    np.testing.assert_allclose(found[0], gp.log_density(gp.trainable_variables), rtol=1e-12)
    assert np.isfinite(found[2])


def test_are_weights_that_do_not_fit_refused(gp):
    weights = moved(gp, FIRST)
    with pytest.raises(ValueError, match="the 5 values of trainable_variables, got 4"):
        gp.log_density(weights[:-1])
    with pytest.raises(ValueError, match=r"noise_variance must be|variance must be|must be \["):
        gp.log_density([np.zeros(3) if w.shape == (2,) else w for w in weights])
    with pytest.raises(ValueError, match="same batch axes"):
        gp.log_density([weights[0][None], *weights[1:]])
    with pytest.raises(ValueError, match="no data"):
        cgp.ExactGP(RBF(1.0, 1.0), 0.1).log_density([np.zeros(())] * 3)


def test_are_hyperparameters_in_place_of_weights_refused(gp):
    """They convert to constrained values, which would be taken for weights."""
    rbf = gp.named_hyperparameters()["rbf.lengthscale"]
    weights = [rbf if v is rbf.variable else v for v in gp.trainable_variables]
    with pytest.raises(TypeError, match=r"weights, .* got the hyperparameter rbf.lengthscale: .*"):
        gp.log_density(weights)
