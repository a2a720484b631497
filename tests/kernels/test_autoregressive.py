"""Autoregressions against NumPy: their recursions, their filter, and what is learned of them."""

import numpy as np
import pytest
import scipy.signal
import tensorflow as tf

import cgp
from cgp.gp.state_space import collapsing
from cgp.kernels import ARMA, Autoregressive, Rotation
from cgp.kernels.autoregressive import burg, lattice, levinson, reflections_of
from cgp.training import Objective

RNG = np.random.default_rng(5)
REFLECTIONS = 0.6 * (RNG.uniform(-1, 1, 16) + 1j * RNG.uniform(-1, 1, 16)) / np.arange(1, 17) ** 0.3


def simulated(a, b, variance, count, seed=0):
    """z[t] = Σ a z[t−k] + w[t] + Σ b w[t−j], after its start is forgotten."""
    rng = np.random.default_rng(seed)
    w = np.sqrt(variance / 2) * (rng.normal(size=count + 500) + 1j * rng.normal(size=count + 500))
    z = np.zeros_like(w)
    for t in range(len(w)):
        past, recent = z[max(t - len(a), 0) : t][::-1], w[max(t - len(b), 0) : t][::-1]
        z[t] = w[t] + np.dot(a[: len(past)], past) + np.dot(b[: len(recent)], recent)
    return z[500:]


def companion_log_likelihood(z, gaps, a, b, variance, noise):
    """The Kalman filter of Harvey's form: s' = C s + (1, b) w, z = s[0] + n, started in NumPy."""
    n = max(len(a), len(b) + 1)
    C = np.eye(n, k=1, dtype=complex)
    C[: len(a), 0] = a
    g = np.zeros(n, complex)
    g[0], g[1 : len(b) + 1] = 1.0, b
    W = variance * np.outer(g, g.conj())
    eye = np.eye(n)
    P = np.linalg.solve(np.eye(n * n) - np.kron(C, C.conj()), W.ravel()).reshape(n, n)
    m, total = np.zeros(n, complex), 0.0
    for value, gap in zip(z, [0, *gaps], strict=True):
        for _ in range(gap):
            m, P = C @ m, C @ P @ C.conj().T + W
        s = P[0, 0].real + noise
        total -= np.log(np.pi * s) + abs(value - m[0]) ** 2 / s
        K = P[:, 0] / s
        m = m + K * (value - m[0])
        J = eye - np.outer(K, eye[0])
        P = J @ P @ J.conj().T + noise * np.outer(K, K.conj())
    return total


@pytest.mark.parametrize("order", [1, 4, 16])
def test_do_coefficients_and_reflections_lead_to_each_other(order):
    found = levinson(tf.constant(REFLECTIONS[:order]))
    a = found.coefficients.numpy()
    np.testing.assert_allclose(reflections_of(a, "a"), REFLECTIONS[:order], atol=1e-13)
    assert np.all(np.abs(np.roots(np.r_[1.0, -a])) < 1.0)
    # The Yule-Walker equations.
    kernel = Autoregressive(order, 1.0, REFLECTIONS[:order], step=1.0)
    r = kernel.covariance(np.arange(order + 1.0), [0.0]).numpy()[:, 0]
    lags = np.subtract.outer(np.arange(1, order + 1), np.arange(1, order + 1))
    toeplitz = np.where(lags >= 0, r[np.abs(lags)], r[np.abs(lags)].conj())
    np.testing.assert_allclose(toeplitz @ a, r[1:], atol=1e-13)
    innovation = 1.0 - np.vdot(r[1:], a).real
    np.testing.assert_allclose(found.innovation, innovation, rtol=1e-10)


@pytest.mark.parametrize("ma", [(), (0.5 - 0.3j, 0.2j, -0.1)], ids=["AR", "ARMA"])
def test_is_the_likelihood_at_order_16_that_of_the_filter_of_its_companion_form(ma):
    a = levinson(tf.constant(REFLECTIONS)).coefficients.numpy()
    gaps = np.random.default_rng(1).choice([0, 1, 1, 1, 2, 30], 59)
    z = simulated(a, ma, 0.7, 60)
    x = 100.0 + 0.1 * np.r_[0, np.cumsum(gaps)]
    if ma:
        kernel = ARMA.from_coefficients(a, ma, 0.7, step=0.1)
    else:
        kernel = Autoregressive.from_coefficients(a, 0.7, step=0.1)
    assert kernel.innovation_variance == pytest.approx(0.7, rel=1e-11)
    expected = companion_log_likelihood(z, gaps, a, ma, 0.7, 0.05)
    for gp in (cgp.StateSpaceGP(kernel, 0.05), cgp.ExactGP(kernel, 0.05)):
        np.testing.assert_allclose(gp.log_marginal_likelihood(x, z), expected, rtol=1e-10)


@pytest.mark.parametrize("missing", [[], [3, 90, 91]])
def test_is_the_loss_of_a_short_line_that_of_the_filter(missing, monkeypatch):
    z = simulated(levinson(tf.constant(REFLECTIONS)).coefficients.numpy(), (), 0.7, 260)
    z[missing] = np.nan
    gp = cgp.StateSpaceGP(Autoregressive(16, 2.0, REFLECTIONS, step=0.5), 0.05)
    data = gp.data_of(0.5 * np.arange(260.0), z)
    batch = gp.training_batch(data)
    assert batch[0].on_line is not None
    assert gp.training_batch(gp.data_of(0.5 * np.arange(260.0) ** 2, z))[0].on_line is None
    monkeypatch.setattr(collapsing, "as_line", lambda data: data)
    filtered = gp.training_batch(data)
    assert filtered[0].on_line is None
    start = Objective(gp, batch).start
    (value, gradient), expected = Objective(gp, batch)(start), Objective(gp, filtered)(start)
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-8, atol=1e-11)


def test_is_the_loss_of_a_line_in_little_noise_that_of_the_filter(monkeypatch):
    reflections = 0.98 * np.exp(1j * np.arange(8.0))
    z = simulated(levinson(tf.constant(reflections)).coefficients.numpy(), (), 1e-8, 300)

    def loss():
        gp = cgp.StateSpaceGP(Autoregressive(8, 1.0, reflections, step=1.0), 1e-12)
        batch = gp.training_batch(gp.data_of(np.arange(300.0), z))
        objective = Objective(gp, batch)
        return batch[0].on_line is not None, *objective(objective.start)

    has_line, value, gradient = loss()
    monkeypatch.setattr(collapsing, "_LARGEST_CONDITION_NUMBER", np.inf)
    _, _, of_toeplitz = loss()
    monkeypatch.setattr(collapsing, "as_line", lambda data: data)
    is_filtered, *expected = loss()
    assert (has_line, is_filtered) == (True, False)
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9)
    assert np.abs(of_toeplitz - expected[1]).max() > 1e-4 * np.abs(expected[1]).max()


def test_are_few_states_filtered_rather_than_a_line():
    gp = cgp.StateSpaceGP(Autoregressive(7, 2.0, REFLECTIONS[:7], step=1.0), 0.05)
    matern = cgp.StateSpaceGP(cgp.kernels.Matern32(1.0, 3.0), 0.05)
    x, z = np.arange(345.0), RNG.normal(size=345) + 1j
    for process, count in ((gp, 345), (matern, 256)):
        batch = process.training_batch(process.data_of(x[:count], z[:count]))
        assert batch[0].on_line is None
    assert gp.training_batch(gp.data_of(x[:343], z[:343]))[0].on_line is not None


def narrow_band_reflections(order):
    """Burg's reflections of a narrow band in little noise, whose innovations are weak."""
    rng, n = np.random.default_rng(0), 1500
    white = rng.normal(size=n) + 1j * rng.normal(size=n)
    z = scipy.signal.lfilter(scipy.signal.firwin(61, 0.12), [1.0], white)[100:]
    z /= np.std(z)
    return burg([z + 0.01 * (rng.normal(size=len(z)) + 1j * rng.normal(size=len(z)))], order)


def test_has_the_covariance_all_digits_where_innovations_are_weak():
    # By Levinson's recursion of the lags in longer numbers.
    reflections = narrow_band_reflections(16)
    a, r = np.zeros(0, np.clongdouble), np.ones(1, np.clongdouble)
    innovation = np.longdouble(1.0)
    for k in np.append(reflections, np.zeros(384)).astype(np.clongdouble):
        r = np.append(r, k * innovation + np.sum(a * r[:0:-1][: len(a)]))
        if k != 0:
            a = np.append(a - k * a[::-1].conj(), k)
            innovation *= 1 - np.abs(k) ** 2
        else:
            a = np.append(a, 0)
    assert innovation < 2e-3
    kernel = Autoregressive(16, 1.0, reflections, step=1.0)
    found = kernel.covariance(np.arange(401.0), [0.0]).numpy()[:, 0]
    assert np.abs(found - r).max() < 1e-14


def test_has_the_lattice_a_state_of_covariance_one():
    C, g = (a.numpy() for a in lattice(tf.constant(REFLECTIONS)))
    np.testing.assert_allclose(C @ C.conj().T + np.outer(g, g.conj()), np.eye(len(g)), atol=1e-14)


def test_is_a_long_gap_forgotten_and_a_tone_kept():
    step = tf.constant([1e5], tf.float64)
    (F,), (Q,) = (
        Autoregressive(3, 2.0, REFLECTIONS[:3], step=1.0).markov_form().discretize(step, step)
    )
    np.testing.assert_allclose(F, np.zeros((3, 3)), atol=1e-15)
    P = Autoregressive(3, 2.0, REFLECTIONS[:3], step=1.0).markov_form().covariance(step)[0]
    np.testing.assert_allclose(Q, P, rtol=1e-12, atol=1e-13)
    tone = Autoregressive(1, 2.0, [np.exp(0.3j)], step=1.0)
    found = tone.covariance([1e5, 3.0], [0.0]).numpy()[:, 0]
    np.testing.assert_allclose(found, 2.0 * np.exp([0.3e5j, 0.9j]), rtol=1e-9)
    assert tone.innovation_variance == pytest.approx(0.0, abs=1e-15)


def test_is_the_noise_of_k_steps_the_sum_of_those_of_each():
    form = Autoregressive(3, 2.0, REFLECTIONS[:3], step=0.5).markov_form()
    C, W = (a.numpy()[0] for a in form.discretize(*tf.constant([[0.0], [0.5]], tf.float64)))
    expected_F, expected_Q = np.eye(3), np.zeros((3, 3))
    for k in range(12):
        steps = tf.constant([[0.0], [0.5 * k]], tf.float64)
        F, Q = (a.numpy()[0] for a in form.discretize(*steps))
        np.testing.assert_allclose(F, expected_F, atol=1e-13)
        np.testing.assert_allclose(Q, expected_Q, atol=1e-13)
        np.testing.assert_array_equal(Q, Q.conj().T)
        expected_F, expected_Q = C @ expected_F, C @ expected_Q @ C.conj().T + W


def test_does_burg_find_the_coefficients_of_a_series_with_gaps():
    a = np.array([0.9 * np.exp(0.4j), -0.3, 0.2j])
    z, x = simulated(a, [], 0.5, 6000), 3.0 + 0.2 * np.arange(6000)
    z[np.random.default_rng(2).integers(0, 6000, 300)] = np.nan
    keep = np.r_[0:2000, 2050:6000]
    order = np.random.default_rng(3).permutation(len(keep))
    kernel = Autoregressive.from_data(x[keep][order], z[keep][order], 3)
    assert kernel.step == pytest.approx(0.2, rel=1e-9)
    np.testing.assert_allclose(kernel.coefficients, a, atol=0.04)
    assert kernel.innovation_variance == pytest.approx(0.5, rel=0.05)
    # A tone without noise is on the unit circle.
    tone = Autoregressive.from_data(np.arange(9.0), np.exp(0.7j * np.arange(9)), 1)
    np.testing.assert_allclose(tone.coefficients, [np.exp(0.7j)], rtol=1e-12)


@pytest.mark.long
def test_are_learned_coefficients_as_good_as_the_true_ones():
    """One-step predictions of unseen data, within one percent of the innovation variance."""
    a = levinson(tf.constant(REFLECTIONS)).coefficients.numpy()
    z, x = simulated(a, [], 1.0, 7000), np.arange(7000.0)
    gp = cgp.StateSpaceGP(Autoregressive.from_data(x[:4000], z[:4000], 16), noise_variance=1e-4)
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(x[:4000], z[:4000], epochs=1, verbose=0)
    found = gp.process(x[4000:], z[4000:]).innovation
    past = np.lib.stride_tricks.sliding_window_view(z, 16)[4000 - 16 : -1, ::-1]
    assert np.mean(np.abs(found) ** 2) < 1.01 * np.mean(np.abs(z[4000:] - past @ a) ** 2)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Autoregressive(2.0), "order must be a whole number of at least 1, got 2.0"),
        (lambda: ARMA(1, True), "ma_order must be a whole number"),
        (lambda: Autoregressive(2, 1.0, [0.1]), r"reflections must have shape \[2\], got \[1\]"),
        (lambda: Autoregressive(1, 1.0, [1.1]), "modulus at most 1"),
        (lambda: Autoregressive(1, step=0.0), "step must be a positive number"),
        (lambda: Autoregressive(1, step=1j), "step must be a positive number"),
        (lambda: Autoregressive.from_coefficients([1.2]), "outside the unit circle"),
        (lambda: Autoregressive.from_coefficients([]), "coefficients must be numbers"),
        (lambda: ARMA.from_coefficients([0.5], [2.0]), "-ma_coefficients must have all roots"),
        (
            lambda: Autoregressive(1, step=1.0).covariance([0.0, 0.4]),
            "0.4 apart, which is no whole mult",
        ),
        (lambda: Autoregressive(1).check_points(tf.ones([3, 2])), "inputs of one dimension"),
        (
            lambda: Autoregressive(1, step=1.0).covariance(np.ones((3, 2))),
            "inputs of one dimension",
        ),
        (lambda: Autoregressive.from_data([0, 1, 1], [1j, 1, 2j], 1), "must not repeat points"),
        (lambda: Autoregressive.from_data([0, 1, 2.5], [1j, 1, 2j], 1, step=1.0), "whole multip"),
        (lambda: Autoregressive.from_data([0, 1], [1j, 1], 2), "more than 2 samples"),
        (lambda: Autoregressive.from_data([0, 1], [0j, 0], 1), "not zero"),
        (lambda: Autoregressive.from_data([0, 1], [1j], 1), r"x and z must be \[N\]"),
    ],
)
def test_what_makes_no_sense_is_refused(make, error):
    with pytest.raises(ValueError, match=error):
        make()


def test_are_points_off_the_grid_refused_by_a_process_and_nan_in_graphs():
    gp = cgp.StateSpaceGP(Autoregressive(2, 1.0, [0.5, 0.2j], step=0.1), 0.1)
    with pytest.raises(ValueError, match="whole multiple"):
        gp.condition([0.0, 0.1, 0.25], [1j, 2, 3])
    gp.condition(5.0 + 0.1 * np.array([0.0, 0.0, 1.0, 7.0]), [1j, 2, np.nan, 3])
    assert np.isfinite(gp.predict([5.3, 4.9])["mean"]).all()
    with pytest.raises(ValueError, match="whole multiple"):
        gp.predict([5.33])
    k = tf.function(gp.kernel.covariance)(tf.constant([0.0, 0.1, 0.25], tf.float64)).numpy()
    np.testing.assert_array_equal(np.isnan(k), [[0, 0, 1], [0, 0, 1], [1, 1, 0]])


def test_does_an_autoregression_turn():
    a = np.array([0.6, -0.2j])
    turned = Autoregressive.from_coefficients(a * np.exp([0.5j, 1.0j]))
    x = np.arange(6.0)
    product = Autoregressive.from_coefficients(a) * Rotation(0.5 / (2 * np.pi))
    np.testing.assert_allclose(product.covariance(x), turned.covariance(x), atol=1e-13)
