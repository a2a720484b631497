"""Particles of a part of the state, with a Kalman filter of the rest for each."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import NotPositiveDefiniteError, statespace
from cgp.statespace import ConditionallyLinear, LinearGaussian
from tests.reference import grid, kalman
from tests.statespace.problems import problem
from tests.statespace.test_particle_filter import (
    assert_covariances,
    assert_mean,
    assert_unbiased,
    copies,
)

PATH = {"Q": [[0.05]], "initial_mean": [0.2], "initial_covariance": [[0.3]]}


def walking(u):
    return 0.9 * u


def test_are_particles_that_matter_nothing_the_kalman_filter():
    """Matrices that do not depend on u, of which some are returned all the same."""
    given = problem(2, 2, holes="own", inputs=1, varying="Q", batch=2)
    own = given.matrices

    def matrices(u):
        ones = tf.ones_like(u[..., None], tf.complex128)
        return {name: ones * own[name] for name in "FHR"}

    wrong = given.model().replace(F=np.eye(2), H=np.ones((2, 2)), R=np.eye(2))
    model = ConditionallyLinear(wrong, matrices, walking, **PATH)
    found = statespace.particle_filter(model, given.z, 30, seed=1, inputs=given.inputs)
    expected = given.expected(kalman.filter)
    np.testing.assert_allclose(found.filtered_means, expected.filtered_means, atol=1e-10)
    np.testing.assert_allclose(
        found.filtered_covariances, expected.filtered_covariances, atol=1e-10
    )
    np.testing.assert_allclose(found.filtered_pseudo_covariances, 0.0, atol=1e-10)
    np.testing.assert_allclose(found.log_likelihoods, expected.log_likelihoods, atol=1e-10)
    np.testing.assert_allclose(found.effective_sizes, 30.0)
    assert found.chols.shape == (2, 30, 2, 2)


@pytest.mark.parametrize("places", [(25, 27), pytest.param((51, 65), marks=pytest.mark.long)])
def test_do_particles_tend_to_the_integrals_of_bayes(places):
    """All matrices depend on u; the reference integrates over both parts, on a grid."""
    linear = LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.5], [[0.4]])

    def matrices(u):
        u = u[..., None]
        return {"F": 0.8 * tf.cos(u), "H": 1.0 + 0.5 * tf.sin(2.0 * u)}

    model = ConditionallyLinear(linear.replace(Q=[[0.2]], R=[[0.3]]), matrices, walking, **PATH)
    z = np.array([1.2, 0.4, np.nan, -0.7, 0.3, 1.0])[:, None]
    found = statespace.particle_filter(model, copies(z), 400, seed=2)
    axes = tuple(np.linspace(-end, end, n) for end, n in zip((2.5, 4.0), places, strict=True))

    def f(x):
        return np.stack([0.9 * x[:, 0], 0.8 * np.cos(x[:, 0]) * x[:, 1]], axis=1)

    def h(x):
        return ((1.0 + 0.5 * np.sin(2.0 * x[:, 0])) * x[:, 1])[:, None]

    expected = grid.filtered(
        *(f, h, np.diag([0.05, 0.2]), np.array([[0.3]])),
        *(np.array([0.2, 0.5]), np.diag([0.3, 0.4]), z, axes),
    )
    assert_mean(found.nonlinear_means[..., 0], expected.means[:, 0])
    assert_mean(found.filtered_means[..., 0], expected.means[:, 1])
    assert_covariances(found.nonlinear_covariances[..., 0, 0], expected.covariances[:, 0, 0])
    assert_covariances(found.filtered_covariances[..., 0, 0], expected.covariances[:, 1, 1])
    assert_unbiased(found.log_likelihood, expected.log_likelihood)
    assert found.filtered_pseudo_covariances is None
    assert found.nonlinear_pseudo_covariances is None


@pytest.mark.long
def test_has_an_improper_path_a_pseudo_covariance():
    """u[1] = u[0] + ½ u[0]* + w, of u[0] and w proper, beside a state that tells nothing of it."""
    linear = LinearGaussian([[0.7]], [[1.0]], [[1.0]], [[1.0]], [0.5], [[0.4]])
    start = {"Q": [[0.05]], "initial_mean": [0.2j], "initial_covariance": [[0.3]]}

    def matrices(u):
        return {"H": tf.ones_like(tf.math.real(u))[..., None]}

    model = ConditionallyLinear(linear, matrices, lambda u: u + 0.5 * tf.math.conj(u), **start)
    found = statespace.particle_filter(model, [0.3, 0.1], 20000, seed=1)
    pseudo = found.nonlinear_pseudo_covariances.numpy()[:, 0, 0]
    np.testing.assert_allclose(pseudo, [0.0, 0.3], atol=0.015)
    variances = found.nonlinear_covariances.numpy()[:, 0, 0]
    np.testing.assert_allclose(variances, [0.3, 1.25 * 0.3 + 0.05], atol=0.015)


@pytest.mark.long
def test_may_noises_depend_on_the_path():
    """Against integrals over the path of two steps."""
    linear = LinearGaussian([[0.7]], [[1.0]], [[1.0]], [[1.0]], [0.5], [[0.4]])

    def matrices(u):
        size = tf.exp(u[..., None])
        return {"Q": 0.2 * size, "R": 0.1 * size**2}

    model = ConditionallyLinear(linear, matrices, walking, **PATH)
    z = np.array([1.2, 0.4, np.nan, -0.7, 0.3, 1.0])
    found = statespace.particle_filter(model, copies(z[:, None]), 400, seed=3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    u = 0.2 + np.sqrt(0.3) * nodes[:, None]
    following = 0.9 * u + np.sqrt(0.05) * nodes[None]
    likelihoods, means = np.zeros((2, 40, 40)), np.zeros((2, 40, 40))
    m, P, total = np.full_like(following, 0.5), np.full_like(following, 0.4), 1.0
    for t, path in enumerate((u + 0.0 * following, following)):
        R = 0.1 * np.exp(path) ** 2
        S = P + R
        total = total * np.exp(-0.5 * (z[t] - m) ** 2 / S) / np.sqrt(2 * np.pi * S)
        m, P = m + P / S * (z[t] - m), P * R / S
        likelihoods[t], means[t] = total, m
        m, P = 0.7 * m, 0.49 * P + 0.2 * np.exp(path)
    for t in range(2):
        posterior = weights[:, None] * weights * likelihoods[t]
        evidence = posterior.sum()
        assert_mean(found.filtered_means[:, t, 0], np.sum(posterior * means[t]) / evidence)
        so_far = np.sum(found.log_likelihoods[:, : t + 1], axis=1)
        assert_unbiased(so_far, np.log(evidence))


def phasor(widely=False):
    """A fading complex amplitude on a carrier whose phase walks."""
    linear = LinearGaussian([[0.95]], [[0.1]], [[1.0]], [[0.2]], [1.0 + 0j], [[0.5]])
    if widely:
        linear = statespace.widely_linear(linear, pseudo_Q=[[0.06j]])

    def matrices(u):
        c, s = (f(u)[..., None] for f in (tf.cos, tf.sin))
        if widely:
            return {"H": tf.concat([tf.concat([c, -s], -1), tf.concat([s, c], -1)], axis=-2)}
        return {"H": tf.complex(c, s)}

    return ConditionallyLinear(linear, matrices, lambda u: u + 0.2, **PATH)


def whole(pseudo):
    """The same, of one complex state [u, v]."""
    return statespace.NonlinearGaussian(
        lambda x: tf.stack([x[..., 0] + 0.2, 0.95 * x[..., 1]], axis=-1),
        lambda x: tf.exp(1j * tf.cast(tf.math.real(x[..., :1]), x.dtype)) * x[..., 1:],
        Q=np.diag([0.05, 0.1]),
        R=[[0.2]],
        pseudo_Q=np.diag([0.05, pseudo]),
        initial_mean=[0.2, 1.0 + 0j],
        initial_covariance=np.diag([0.3, 0.5]),
        initial_pseudo_covariance=np.diag([0.3, 0.0]),
    )


@pytest.mark.long
@pytest.mark.parametrize("widely", [False, True])
def test_are_moments_those_of_particles_of_the_whole_state(widely):
    rng = np.random.default_rng(0)
    z = np.exp(0.2j * np.arange(8)) + 0.3 * rng.normal(size=(8, 2)).view(complex)[:, 0]
    z[4] = np.nan
    found = statespace.particle_filter(phasor(widely), copies(z[:, None]), 300, seed=4)
    other = statespace.particle_filter(
        whole(0.06j if widely else 0.0), copies(z[:, None]), 3000, seed=5
    )

    def mean(a):
        return np.mean(a, axis=0)

    for a, b in (
        (found.nonlinear_means[..., 0], np.real(other.filtered_means)[..., 0]),
        (found.filtered_means, other.filtered_means[..., 1:]),
        (found.filtered_covariances, other.filtered_covariances[..., 1:, 1:]),
        (found.filtered_pseudo_covariances, other.filtered_pseudo_covariances[..., 1:, 1:]),
    ):
        np.testing.assert_allclose(mean(a), mean(b), atol=0.03)
    np.testing.assert_allclose(
        mean(np.exp(found.log_likelihood - np.mean(other.log_likelihood))), 1.0, atol=0.1
    )
    assert found.chols.shape[-2:] == ((2, 2) if widely else (1, 1))
    # With a tenth of the particles.
    assert np.std(found.log_likelihood) < 1.5 * np.std(other.log_likelihood)


@pytest.mark.long
def test_is_a_graph_the_same_as_eager():
    model, z = phasor(), np.exp(0.2j * np.arange(6))
    found = statespace.particle_filter(model, z, 100, seed=1)
    in_graph = tf.function(lambda z: statespace.particle_filter(model, z, 100, seed=1))(z)
    for a, b in zip(found, in_graph, strict=True):
        if a is None:
            assert b is None  # the path is real
            continue
        np.testing.assert_allclose(a, b, atol=1e-9)
    weights = np.exp(found.log_weights)
    np.testing.assert_allclose(weights @ found.means.numpy(), found.filtered_means[-1])
    np.testing.assert_allclose(weights @ found.particles.numpy(), found.nonlinear_means[-1])


@pytest.mark.long
def test_is_single_precision_kept():
    one = np.ones((1, 1), "complex64")
    linear = LinearGaussian(0.9 * one, one, one, one, one[0], one)
    path = {name: np.asarray(a, "float32") for name, a in PATH.items()}
    model = ConditionallyLinear(linear, lambda u: {}, walking, **path)
    z = np.linspace(0, 1, 5).astype("complex64")
    found = statespace.particle_filter(model, z, 50, seed=1)
    assert found.filtered_means.dtype == tf.complex64
    assert found.nonlinear_means.dtype == tf.float32
    expected = statespace.filter(linear, z)
    np.testing.assert_allclose(found.filtered_means, expected.filtered_means, atol=1e-5)


# --- what is refused ------------------------------------------------------------------------------

WALK = LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"linear": 3}, TypeError, "model must be a LinearGaussian"),
        ({"matrices": 3}, TypeError, "matrices must be a function, got int"),
        ({"transition": lambda u: u[..., :0]}, ValueError, r"transition must return \[..., 1\]"),
        ({"transition": lambda u: tf.cast(u, "float32")}, TypeError, "transition must return flo"),
        ({"matrices": lambda u: u}, TypeError, "matrices must return a dictionary, got"),
        ({"matrices": lambda u: {"B": u}}, ValueError, "may return F, Q, H and R, but returned B"),
        ({"matrices": lambda u: {"F": u}}, ValueError, r"F of u must be \[..., 1, 1\], but for u"),
        (
            {"matrices": lambda u: {"F": tf.complex(u, u)[..., None]}},
            TypeError,
            "F of u must be float64, got complex",
        ),
        (
            {"matrices": lambda u: {"R": -tf.ones_like(u)[..., None]}},
            NotPositiveDefiniteError,
            "R of u at initial_mean",
        ),
        ({"initial_mean": 0.0}, ValueError, r"initial_mean must be \[k\], got shape \(\)"),
        ({"Q": np.eye(2)}, ValueError, r"Q must be \[1, 1\], got shape \(2, 2\)"),
        ({"Q": [[-1.0]]}, NotPositiveDefiniteError, "Q"),
        ({"Q": [[np.nan]]}, ValueError, "Q"),
    ],
)
def test_an_impossible_model_is_refused(changes, error, message):
    arguments = {"linear": WALK, "matrices": lambda u: {}, "transition": walking, **PATH}
    with pytest.raises(error, match=message):
        ConditionallyLinear(**{**arguments, **changes})


@pytest.mark.usefixtures("execution")
def test_what_a_model_cannot_do_is_refused():
    model = phasor()
    with pytest.raises(AttributeError, match="cannot be changed"):
        model.transition = walking
    with pytest.raises(TypeError, match="z must be complex"):
        statespace.particle_filter(model, [1.0])
    with pytest.raises(TypeError, match="model must be a LinearGaussian"):
        statespace.filter(model, [1.0 + 0j])
    certain = LinearGaussian([[1.0]], [[0.0]], [[1.0]], [[0.0]], [0.0], [[0.0]])
    model = ConditionallyLinear(certain, lambda u: {}, walking, **PATH)
    with pytest.raises(ValueError, match="no particle has any weight at step 1"):
        statespace.particle_filter(model, [0.0, 1.0], 10)
