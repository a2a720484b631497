"""Are the state-space forms of kernels those of the same processes?"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import quad
from scipy.linalg import expm, solve_continuous_lyapunov

from cgp import ExactGP, StateSpaceGP
from cgp.kernels import (
    RBF,
    Conjugate,
    Constant,
    Driven,
    IntegratedRandomWalk,
    MarkovApproximation,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RandomWalk,
    RationalQuadratic,
    Rotation,
    White,
    WidelyLinear,
)
from tests.long_cases import long_except


def resonance(lengthscale=3.0, frequency=0.4):
    return Matern12(1.0, lengthscale, fixed="variance") * Rotation(frequency)


PROPER = {
    "matern12": lambda: Matern12(2.0, 0.7),
    "matern32": lambda: Matern32(2.0, 0.7),
    "matern52": lambda: Matern52(2.0, 0.7),
    "rotation": lambda: Rotation(-0.3),
    "constant": lambda: Constant(2.0),
    "white": lambda: White(0.4),
    "turning": lambda: Matern32(1.0, 2.0) * Rotation(0.3),
    "conjugate": lambda: Conjugate(Matern32(1.0, 2.0) * Rotation(0.3)),
    "two materns": lambda: Matern32(1.5, 2.0) * Matern52(2.0, 0.5),
    "sum": lambda: Matern12(1.5, 2.0) * Rotation(0.2) + White(0.3) + Matern52(0.5, 1.0),
    "random walk": lambda: RandomWalk(2.0, start=-1.0),
    "trend": lambda: IntegratedRandomWalk(2.0, 0.5, start=-1.0),
    "turning walk": lambda: RandomWalk(2.0, start=-1.0) * Matern12(1.0, 2.0) * Rotation(0.1),
    "walk second": lambda: Matern12(1.0, 2.0) * RandomWalk(2.0, start=-1.0),
    "conjugate walk": lambda: Conjugate(RandomWalk(2.0, start=-1.0) * Rotation(0.1)),
    "driven": lambda: Driven(resonance(), Matern32(1.0, 0.3)),
    "conjugate driven": lambda: Conjugate(Driven(resonance(), Matern12(1.0, 0.3) * Rotation(0.7))),
    "driven by a sum": lambda: Driven(
        resonance(), Matern12(1.0, 0.3) * Rotation(0.1) + Matern32(0.3, 0.2)
    ),
    "driven twice": lambda: Driven(resonance(2.0, -0.1), Driven(resonance(), Matern12(1.0, 0.3))),
    "driven product": lambda: Driven(resonance(), Matern12(1.0, 0.3) * Matern32(2.0, 0.5)),
    "periodic": lambda: MarkovApproximation(Periodic(1.5, 0.8, 0.4), 7),
    "rbf": lambda: MarkovApproximation(RBF(1.5, 0.8), 6) * Rotation(0.2),
}


@pytest.fixture(params=sorted(PROPER))
def kernel(request):
    return PROPER[request.param]()


def kernels_of(*names):
    """Those of these names, and all others in long tests."""
    return pytest.mark.parametrize("kernel", long_except(sorted(PROPER), *names), indirect=True)


@pytest.fixture
def x():
    x = np.sort(np.random.default_rng(0).uniform(0.0, 5.0, 9))
    x[4] = x[3]
    return tf.constant(x)


def test_is_the_covariance_of_the_form_that_of_the_kernel(kernel, x):
    found, pseudo = kernel.markov_form().moments(x[:, None], x[None, :])
    assert pseudo is None
    expected = kernel.covariance(x.numpy()).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * np.abs(expected).max())


def test_do_steps_lead_from_one_covariance_of_the_state_to_the_next(kernel, x):
    form = kernel.markov_form()
    F, Q = (a.numpy() for a in form.discretize(x[:-1], x[1:] - x[:-1]))
    P = form.covariance(x).numpy()
    assert form.is_stationary == np.array_equal(P[0], P[-1])
    moved = F @ P[:-1] @ F.conj().swapaxes(-1, -2) + Q
    np.testing.assert_allclose(moved, P[1:], rtol=1e-10, atol=1e-12 * np.abs(P).max())
    assert np.array_equal(np.triu(F, 1), np.zeros_like(F))
    # A step of zero, to a point at the same place, leaves all as it is.
    np.testing.assert_allclose(F[3], np.eye(form.size), atol=1e-15)
    np.testing.assert_array_equal(Q[3], np.zeros_like(Q[3]))


@kernels_of("driven product", "sum", "trend", "turning walk")
def test_are_two_steps_one_step(kernel):
    form = kernel.markov_form()
    start, a, b = (tf.constant(value, tf.float64) for value in (0.3, 0.4, 1.3))
    (F, Q), (G, R) = form.discretize(start, a), form.discretize(start + a, b)
    both, noise = form.discretize(start, a + b)
    np.testing.assert_allclose(both, G @ F, rtol=1e-10, atol=1e-13)
    scale = np.abs(form.covariance(start + a + b).numpy()).max()
    np.testing.assert_allclose(
        noise, G @ Q @ tf.linalg.adjoint(G) + R, rtol=1e-9, atol=1e-13 * scale
    )


@pytest.mark.parametrize("order", [0, 1, 2])
def test_is_the_noise_of_a_tiny_step_right_to_the_last_digits(order):
    kernel = [Matern12, Matern32, Matern52][order](2.0, 0.7)
    step = 1e-9
    Q = kernel.markov_form().discretize(*tf.constant([[0.0], [step]], tf.float64))[1][0].numpy()
    A, W = (a.numpy().real for a in kernel.markov_form().generator)
    rate, n = -A[0, 0], order + 1
    i, j = np.meshgrid(range(n), range(n), indexing="ij")
    fact = np.array([1.0, 1.0, 2.0])  # of 0, 1 and 2
    leading = W[0, 0] * rate ** (i + j) * step ** (i + j + 1.0) / (fact[i] * fact[j] * (i + j + 1))
    np.testing.assert_allclose(Q.real, leading, rtol=1e-8)


@pytest.mark.parametrize(
    ("kind", "lag"),
    long_except(
        [(kind, lag) for kind in ("real", "turning", "conjugate") for lag in (0.0, 0.3, -2.0)],
        *[("real", 0.0), ("turning", -2.0), ("conjugate", 0.3)],
    ),
)
def test_is_the_driven_process_what_its_resonance_makes_of_the_spectrum(kind, lag):
    pole, rate = -1 / 3.0 + 0.8j * np.pi, np.sqrt(3.0) / 0.3
    if kind == "real":
        kernel = Driven(resonance(3.0, 0.4), Matern32(1.3, 0.3))
        gain, excitation = 1.0, lambda w: 1.3 * 4.0 * rate**3 / (rate**2 + w**2) ** 2
    else:
        own = Matern12(2.5, 3.0) * Rotation(0.4) * Constant(0.5)
        kernel = Driven(
            Conjugate(own) if kind == "conjugate" else own, Matern12(1.3, 0.3) * Rotation(-0.7)
        )
        pole = np.conj(pole) if kind == "conjugate" else pole
        gain, excitation = 1.25, lambda w: 1.3 * 2.0 / 0.3 / (0.3**-2 + (w + 1.4 * np.pi) ** 2)

    def spectrum(w):
        response = gain * abs(pole) ** 2 / abs(1j * w - pole) ** 2
        return response * excitation(w) * np.exp(1j * w * lag)

    points = [-50.0, -5.0, -4.0, -3.0, -2.5, -2.0, 0.0, 2.0, 2.5, 3.0, 50.0]
    edges = [(-4000.0, points[0]), *itertools.pairwise(points), (points[-1], 4000.0)]
    expected = sum(
        quad(lambda w, part=part: part(spectrum(w)), low, high, limit=2000, epsabs=1e-12)[0] * unit
        for low, high in edges
        for part, unit in ((np.real, 1.0), (np.imag, 1j))
    ) / (2.0 * np.pi)
    found = kernel.covariance([lag], [0.0]).numpy()[0, 0]
    np.testing.assert_allclose(found, expected, rtol=2e-7)


@pytest.mark.parametrize("lag", long_except([0.0, 0.4, 2.5], 0.4))
def test_is_a_process_driven_by_an_improper_one_that_of_its_real_parts(lag):
    """Of (Re u, Im u, Re p, Im p): du = λ u dx + dη, dp/dx = s (p − χ), χ = u + c conj(u)."""
    pole, rate, c = -1 / 3.0 + 0.8j * np.pi, -1 / 0.3 - 1.4j * np.pi, 0.4 + 0.3j

    def parts(a, b=0.0):
        """The matrix of `a z + b conj(z)` on (Re z, Im z)."""
        return np.array([[(a + b).real, (b - a).imag], [(a + b).imag, (a - b).real]])

    drift = np.block([[parts(rate), np.zeros((2, 2))], [parts(-pole, -pole * c), parts(pole)]])
    diffusion = np.diag([1.3 / 0.3, 1.3 / 0.3, 0.0, 0.0])  # a half of 2 · variance / lengthscale
    S = (expm(lag * drift) @ solve_continuous_lyapunov(drift, -diffusion))[2:, 2:]
    inner = Matern12(1.3, 0.3) * Rotation(-0.7)
    kernel = Driven(resonance(3.0, 0.4), WidelyLinear(inner, c))
    assert not kernel.is_proper
    found = kernel.covariance([lag], [0.0]), kernel.pseudo_covariance([lag], [0.0])
    k = S[0, 0] + S[1, 1] + 1j * (S[1, 0] - S[0, 1])
    pseudo = S[0, 0] - S[1, 1] + 1j * (S[1, 0] + S[0, 1])
    np.testing.assert_allclose(found[0], [[k]], rtol=1e-11)
    np.testing.assert_allclose(found[1], [[pseudo]], rtol=1e-11)


def test_are_processes_driven_twice_by_an_improper_one_of_one_state_space_form():
    ellipse = WidelyLinear(Matern12(1.0, 0.3) * Rotation(0.1), 0.4 + 0.2j)
    kernel = Driven(resonance(2.0, -0.1), Driven(resonance(), ellipse) + Matern32(0.3, 0.2))
    form = kernel.markov_form()
    points = tf.constant([[0.0], [0.7]], tf.float64)
    F, Q = (a.numpy()[0] for a in form.discretize(*points))
    P = form.covariance(points)[0, 0].numpy()
    np.testing.assert_allclose(F @ P @ F.conj().T + Q, P, atol=1e-12 * np.abs(P).max())
    x = np.array([0.0, 0.3, 1.1, 1.1])
    z = np.array([1j, 0.2, -0.5, 0.1])
    found = StateSpaceGP(kernel, 0.1).log_marginal_likelihood(x, z)
    np.testing.assert_allclose(
        found, ExactGP(kernel, 0.1).log_marginal_likelihood(x, z), rtol=1e-10
    )


def test_what_an_improper_kernel_sees_of_its_state():
    inner = Matern32(1.0, 2.0) * Rotation(0.3)
    form = WidelyLinear(inner, 0.4 + 0.2j).markov_form()
    np.testing.assert_allclose(form.h, [0.0, 1.0])
    np.testing.assert_allclose(form.h_conj, [0.0, 0.4 + 0.2j])
    twice = WidelyLinear(WidelyLinear(inner, 0.5), 0.5j).markov_form()
    np.testing.assert_allclose(twice.h, [0.0, 1.0 + 0.25j])
    np.testing.assert_allclose(twice.h_conj, [0.0, 0.5 + 0.5j])
    turned = Conjugate(WidelyLinear(inner, 0.4 + 0.2j)).markov_form()
    np.testing.assert_allclose(turned.h_conj, [0.0, 0.4 - 0.2j])


@pytest.mark.parametrize("far", long_except([1e3, 1e9, 1e15], 1e9))
def test_is_a_step_the_same_beside_a_long_one(far):
    kernel = Driven(resonance(), Matern12(1.0, 0.3) * Rotation(0.7))
    form, start = kernel.markov_form(), tf.zeros([2], tf.float64)
    (F,), (Q,) = (a.numpy() for a in form.discretize(start[:1], tf.constant([0.1], tf.float64)))
    both = form.discretize(start, tf.constant([0.1, far], tf.float64))
    np.testing.assert_allclose(both[0][0], F, rtol=1e-14)
    np.testing.assert_allclose(both[1][0], Q, rtol=1e-14)
    np.testing.assert_allclose(F, expm(0.1 * form.generator.A.numpy()), rtol=1e-13)
    # The long one forgets all.
    P = form.covariance(start[0]).numpy()
    if far > 1e3:
        np.testing.assert_allclose(both[0][1], np.zeros_like(F), atol=1e-15)
        np.testing.assert_allclose(both[1][1], P, rtol=1e-12)


def test_do_slow_states_keep_their_digits_beside_fast_ones():
    slow = Matern12(1.0, 1e4, fixed="variance") * Rotation(0.0)
    form = Driven(slow, Matern12(0.5, 1e-9)).markov_form()
    F, _ = form.discretize(tf.zeros([2], tf.float64), tf.constant([1.0, 1e4], tf.float64))
    decay = F.numpy()[:, 1, 1].real
    np.testing.assert_allclose(np.log(decay), [-1e-4, -1.0], rtol=1e-11)


def test_is_a_fast_resonance_finite_in_single_precision():
    def made(dtype):
        fast = Matern12(1.0, 20.0, dtype=dtype) * Rotation(200.0, dtype=dtype)
        return Driven(fast, Matern12(0.5, 0.7, dtype=dtype)).covariance([0.0, 1.0]).numpy()

    np.testing.assert_allclose(made("float32"), made("float64"), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("order", long_except(range(1, 9), 1, 7))
def test_is_the_error_of_the_rbf_as_documented(order):
    documented = [0.42, 0.14, 0.053, 0.022, 0.0095, 0.0043, 0.0020, 0.00092][order - 1]
    found = MarkovApproximation(RBF(3.0, 0.7), order).error()
    assert 0.94 * documented < found < documented
    np.testing.assert_allclose(MarkovApproximation(RBF(3.0), order).covariance([0.0]), 3.0)


@pytest.mark.long
def test_does_the_periodic_kernel_lose_the_harmonics_above_alone():
    kernel = Periodic(2.0, 0.9, 0.3)
    errors = [MarkovApproximation(kernel, order).error() for order in (2, 4, 8)]
    assert errors[0] > 10 * errors[1] > 1000 * errors[2]
    lags = np.linspace(0.0, 30.0, 50)
    np.testing.assert_allclose(
        MarkovApproximation(kernel, 20).covariance(lags, [0.0]),
        kernel.covariance(lags, [0.0]),
        atol=1e-13,
    )


def test_an_approximation_shares_the_parameters_of_its_kernel():
    inner = RBF(2.0, 0.7, name="smooth")
    kernel = MarkovApproximation(inner, 4)
    inner.lengthscale.assign(1.4)
    lags = np.linspace(0.0, 4.0, 9)
    np.testing.assert_allclose(
        kernel.covariance(lags, [0.0]),
        MarkovApproximation(RBF(2.0, 1.4), 4).covariance(lags, [0.0]),
        rtol=1e-12,
    )
    assert sorted(kernel.parameters()) == ["smooth.lengthscale", "smooth.variance"]


@kernels_of("driven", "rbf", "trend", "white")
def test_does_a_kernel_survive_serialisation(kernel, x):
    config = keras.saving.serialize_keras_object(kernel)
    again = keras.saving.deserialize_keras_object(config)
    assert repr(again) == repr(kernel)
    np.testing.assert_array_equal(again.covariance(x), kernel.covariance(x))


@pytest.mark.parametrize(
    "kernel",
    [
        Matern32(1.0, 2.0) + RationalQuadratic(1.0),
        WidelyLinear(RationalQuadratic(1.0) * Rotation(0.1), 0.5),
        RationalQuadratic(1.0),
    ],
    ids=["sum", "inside", "alone"],
)
def test_a_kernel_that_is_not_markov_says_which_part_is_not(kernel):
    assert not kernel.is_markov
    with pytest.raises(ValueError, match=r"^RationalQuadratic\(.*\) is not Markov.*ExactGP"):
        kernel.markov_form()


@pytest.mark.parametrize("kernel", [RBF(), Periodic(), Matern32(1.0, [1.0, 2.0])], ids=repr)
def test_others_that_are_not_markov_say_so(kernel):
    with pytest.raises(ValueError, match="is not Markov"):
        kernel.markov_form()


def test_two_improper_kernels_have_no_product_of_states():
    kernel = WidelyLinear(Matern12(), 0.3) * WidelyLinear(Matern32(), 0.2j)
    assert not kernel.is_markov
    with pytest.raises(ValueError, match="is not Markov: a product of two improper"):
        kernel.markov_form()


def test_a_walk_has_no_past():
    kernel = RandomWalk(2.0, start=1.0)
    np.testing.assert_allclose(kernel.covariance([2.0, 4.0]).numpy().real, [[2, 2], [2, 6]])
    with pytest.raises(ValueError, match=r"starts at 1.0, but x goes back to 0.5"):
        kernel.covariance([0.5, 2.0])
    with pytest.raises(ValueError, match="one dimension"):
        kernel.covariance(np.ones((3, 2)))
    for walk in (kernel, IntegratedRandomWalk(2.0, start=1.0)):
        covariance = walk.markov_form().covariance(tf.constant([0.5, 2.0], tf.float64)).numpy()
        assert np.isnan(covariance[0]).all()
        assert np.isfinite(covariance[1]).all()
        assert "start=1" in repr(walk)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((Matern32() * Rotation(0.1), Matern12()), "a product of a Matern12 and a Rotation"),
        ((Rotation(0.84), Matern12()), "resonance must be damped"),
        ((resonance(), Constant()), "must forget its past"),
        ((resonance(), Rotation(0.1)), "must forget its past"),
        ((resonance(), White()), "stationary process in continuous time"),
        ((resonance(), RandomWalk()), "stationary process in continuous time"),
        ((resonance(), Matern12() + RBF()), r"^RBF\(.*is not Markov"),
    ],
    ids=["kind", "undamped", "constant", "tone", "white", "walk", "rbf"],
)
def test_a_drive_that_does_not_fit_is_refused(parts, error):
    with pytest.raises(ValueError, match=error):
        Driven(*parts)


@pytest.mark.parametrize("order", [0, 9, 1.5, True])
def test_an_order_that_is_none_is_refused(order):
    with pytest.raises(ValueError, match="order must be a whole number from 1 to 8"):
        MarkovApproximation(RBF(), order)


def test_what_cannot_be_approximated_says_so():
    with pytest.raises(TypeError, match="an RBF or a Periodic"):
        MarkovApproximation(RationalQuadratic())
    with pytest.raises(ValueError, match="several dimensions"):
        MarkovApproximation(RBF(1.0, [1.0, 2.0]))
