"""A kernel of earlier series: against NumPy, and against the best of the stationary kernels."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Empirical, Rotation

N = 12
SUBCARRIERS = np.concatenate([np.arange(-6.0, 0.0), np.arange(1.0, 7.0)])


def draws(rng, *shape):
    """Proper complex normal numbers of variance 1."""
    return rng.normal(size=(*shape, 2)) @ [1.0, 1.0j] / np.sqrt(2.0)


def channels(count, x, seed=0):
    """Series of three paths of which two always come together."""
    paths = np.exp(-2j * np.pi * np.outer([0.01, 0.03, 0.06], x))
    paths = np.stack([paths[0] + 0.5j * paths[1], 0.7 * paths[2]])
    return draws(np.random.default_rng(seed), count, 2) @ paths


def noisy(count, seed=1):
    rng = np.random.default_rng(seed)
    weak = np.exp(-2j * np.pi * np.outer(np.linspace(-0.1, 0.1, 5), SUBCARRIERS))  # below the noise
    z = channels(count, SUBCARRIERS, seed) + 0.05 * draws(rng, count, 5) @ weak
    return z + 0.1 * draws(rng, count, N)


# --- against NumPy --------------------------------------------------------------------------------


def reference_stationary(z, noise):
    """The covariance of tones, from a loop over tones and inverses."""
    M = sum(np.outer(s, s.conj()) for s in z) / len(z)
    power = np.mean(np.abs(z) ** 2)
    tones = [np.exp(2j * np.pi * (k / 26 - 0.5) * SUBCARRIERS) for k in range(26)]
    powers = np.array([(a.conj() @ M @ a).real for a in tones])
    powers *= power / powers.sum()
    for _ in range(15):
        R = sum(p * np.outer(a, a.conj()) for p, a in zip(powers, tones, strict=True))
        inverse = np.linalg.inv(R + max(noise, 1e-6 * power) * np.eye(N))
        for k, a in enumerate(tones):
            b = inverse @ a
            powers[k] *= (b.conj() @ M @ b).real / (a.conj() @ b).real
    powers *= (power - noise) / powers.sum()
    return sum(p * np.outer(a, a.conj()) for p, a in zip(powers, tones, strict=True))


def reference_of_series(z, noise):
    """Eigenvalues l of the covariance from those of the moments, `l (1 + g noise/(l - noise))`."""
    M, g = z.T @ z.conj() / len(z), N / len(z)
    eigenvalues, U = np.linalg.eigh(M)
    if noise:
        edge = noise * (1 + np.sqrt(g)) ** 2
        assert edge < eigenvalues.max()
        assert edge > eigenvalues.min()
        roots = [np.roots([1, noise * (g - 1) - e, e * noise]).real.max() for e in eigenvalues]
        eigenvalues = np.where(eigenvalues > edge, np.array(roots) - noise, 0.0)
    return U @ np.diag(eigenvalues) @ U.conj().T


def reference(z, noise, shrink):
    M, T = reference_of_series(z, noise), reference_stationary(z, noise)
    hidden = 1.0 - np.trace(M).real / np.trace(T).real
    assert (hidden > 1e-3) == (noise > 0)
    return (1 - shrink) * (M + hidden * T) + shrink * T


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("shrink", [0.0, 0.3, 1.0])
def test_is_the_covariance_at_the_places_that_of_numpy(shrink, noise):
    z = noisy(8)
    kernel = Empirical.from_series(SUBCARRIERS, z, shrink=shrink, noise_variance=noise)
    expected = reference(z, noise, shrink)
    np.testing.assert_allclose(kernel.covariance(SUBCARRIERS).numpy(), expected, atol=1e-8)
    diagonal = kernel.moments_diagonal(SUBCARRIERS).k.numpy()
    np.testing.assert_allclose(diagonal, np.diag(expected), atol=1e-8)
    assert kernel.shrinkage == shrink
    assert not kernel.is_markov


def test_is_the_intensity_that_of_a_loop_over_series_left_out():
    z, noise = noisy(25), 0.01
    T = reference_stationary(z, noise) + noise * np.eye(N)
    white = 0.1 * np.mean(np.abs(z) ** 2)

    def score(intensity):
        total = 0.0
        for s in range(len(z)):
            others = np.delete(z, s, axis=0)
            M = others.T @ others.conj() / len(others)
            R = (1.0 - intensity) * M + intensity * T + white * np.eye(N)
            inverse = np.linalg.inv(R)
            distance = (z[s].conj() @ inverse @ z[s]).real + white * np.trace(inverse).real
            total -= distance + np.linalg.slogdet(R)[1]
        return total

    kernel = Empirical.from_series(SUBCARRIERS, z, noise_variance=noise)
    chosen = kernel.shrinkage
    assert 0.01 < chosen < 0.9
    factor = 10.0**0.25
    for other in (chosen / (chosen + (1 - chosen) * f) for f in (factor, 1.0 / factor)):
        assert score(chosen) > score(other)


def test_is_a_prediction_that_of_the_textbook():
    z = noisy(20)
    kernel = Empirical.from_series(SUBCARRIERS, z[:19], shrink=0.2, noise_variance=0.01)
    K = reference(z[:19], 0.01, 0.2)
    seen = [0, 3, 7, 10]
    gp = cgp.ExactGP(kernel, noise_variance=0.01)
    gp.condition(SUBCARRIERS[seen], z[19, seen])
    moments = gp.predict(SUBCARRIERS)
    gain = K[:, seen] @ np.linalg.inv(K[np.ix_(seen, seen)] + 0.01 * np.eye(4))
    np.testing.assert_allclose(moments["mean"], gain @ z[19, seen], atol=1e-8)
    variance = np.diag(K - gain @ K[seen]).real
    np.testing.assert_allclose(moments["variance"], variance, atol=1e-8)


# --- between the places ---------------------------------------------------------------------------


@pytest.mark.parametrize("shrink", [0.0, 0.4])
def test_is_it_positive_semidefinite_at_any_points(shrink):
    kernel = Empirical.from_series(SUBCARRIERS, noisy(5), shrink=shrink)
    x = np.random.default_rng(4).uniform(-6.0, 6.0, size=60)
    k = kernel.covariance(x).numpy()
    np.testing.assert_allclose(k, k.conj().T, atol=1e-12)
    assert np.linalg.eigvalsh(k).min() > -1e-12 * np.trace(k).real
    cross = kernel.covariance(x[:7], x[7:]).numpy()
    np.testing.assert_allclose(cross, k[:7, 7:], atol=1e-12)


def test_is_the_covariance_between_the_places_that_of_the_channel():
    x = np.arange(-6.0, 7.0)
    delayed = np.exp(-2j * np.pi * 0.2 * x)  # which cubic polynomials do not follow
    kernel = Empirical.from_series(x, channels(4000, x) * delayed, shrink=0.0)
    between = np.linspace(-5.5, 5.5, 23)
    paths = np.exp(-2j * np.pi * np.outer([0.01, 0.03, 0.06], between))
    paths = np.stack([paths[0] + 0.5j * paths[1], 0.7 * paths[2]])
    paths *= np.exp(-2j * np.pi * 0.2 * between)
    expected = paths.T @ paths.conj()
    assert np.abs(kernel.covariance(between).numpy() - expected).max() < 0.1


def test_do_order_and_unit_of_places_not_matter():
    z, order = noisy(6), np.random.default_rng(2).permutation(N)
    one = Empirical.from_series(SUBCARRIERS, z)
    other = Empirical.from_series(1e6 * SUBCARRIERS[order] + 5e9, z[:, order])
    x = np.array([-5.3, -1.0, 0.2, 6.0])
    np.testing.assert_allclose(
        other.covariance(1e6 * x + 5e9).numpy(), one.covariance(x).numpy(), atol=1e-7
    )
    np.testing.assert_array_equal(other.x, 1e6 * SUBCARRIERS[order] + 5e9)


def test_are_points_outside_refused_and_nan_in_graphs():
    kernel = Empirical.from_series(SUBCARRIERS, noisy(5))
    with pytest.raises(ValueError, match=r"known from -6 to 6, but x has 6\.5"):
        kernel.covariance([0.0, 6.5])
    k = tf.function(kernel.covariance)(tf.constant([0.0, 6.5, 6.0], tf.float64)).numpy()
    assert np.isnan(k[1]).all()
    assert np.isnan(k[:, 1]).all()
    inside = kernel.covariance([0.0, 6.0]).numpy()
    np.testing.assert_allclose(k[np.ix_([0, 2], [0, 2])], inside, atol=1e-12)


@pytest.mark.parametrize("places", [2, 3])
def test_interpolates_it_few_places(places):
    x = np.arange(float(places))
    z = np.array([[1.0, 2.0, 3.0], [2.0j, 1.0j, 0.0]])[:, :places]
    k = Empirical.from_series(x, z, shrink=0.0).covariance([0.5], x).numpy()
    M = z.T @ z.conj() / 2
    turn = np.angle(np.diag(M, -1).sum())
    half = (M * np.exp(1j * turn * (0.5 - x))[:, None])[:2].mean(axis=0)  # both lines are straight
    np.testing.assert_allclose(k[0], half, atol=1e-9)


# --- further series -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_is_an_updated_kernel_that_of_all_series(noise):
    z = noisy(34)
    kernel = Empirical.from_series(SUBCARRIERS, z[:25], noise_variance=noise)
    before = kernel.shrinkage
    assert before < 0.9
    kernel.update(z[25])
    kernel.update(z[26:])
    ratio = before / (1.0 - before) * 25 / 34  # T goes on to count as as many series
    np.testing.assert_allclose(kernel.shrinkage, ratio / (1.0 + ratio))
    fresh = Empirical.from_series(SUBCARRIERS, z, kernel.shrinkage, noise)
    x = np.linspace(-6.0, 6.0, 30)
    np.testing.assert_allclose(kernel.covariance(x), fresh.covariance(x), rtol=0, atol=1e-10)
    assert kernel.series_count == fresh.series_count == 34
    fresh.update(z[:3])
    assert fresh.shrinkage == kernel.shrinkage  # a number stays


def test_does_a_process_predict_from_further_series():
    z, seen = noisy(12), slice(None, None, 3)
    kernel = Empirical.from_series(SUBCARRIERS, z[:5], shrink=0.1)
    gp = cgp.ExactGP(kernel, noise_variance=0.01)
    gp.condition(SUBCARRIERS[seen], z[11, seen])
    before = gp.predict(SUBCARRIERS)
    kernel.update(z[5:11])
    after = gp.predict(SUBCARRIERS)
    fresh = cgp.ExactGP(Empirical.from_series(SUBCARRIERS, z[:11], shrink=0.1), 0.01)
    fresh.condition(SUBCARRIERS[seen], z[11, seen])
    assert np.abs(after["mean"] - before["mean"]).max() > 1e-2
    for name, moment in fresh.predict(SUBCARRIERS).items():
        np.testing.assert_allclose(after[name], moment, atol=1e-9)


def test_does_a_refused_update_leave_the_kernel_alone():
    kernel = Empirical.from_series(SUBCARRIERS, noisy(5))
    before = [w.numpy() for w in kernel.weights]
    with pytest.raises(ValueError, match="1 of 2 series have some"):
        kernel.update(np.stack([np.ones(N) + 0j, np.r_[np.nan, np.ones(N - 1)]]))
    for weight, value in zip(kernel.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


# --- as a kernel ----------------------------------------------------------------------------------


def test_is_a_saved_process_the_same(tmp_path):
    z = noisy(10)
    kernel = Empirical.from_series(SUBCARRIERS, z[:8], noise_variance=0.01)
    gp = cgp.ExactGP(kernel * Rotation(0.1, fixed="frequency"), noise_variance=0.01)
    gp.condition(SUBCARRIERS[::2], z[8, ::2])
    path = tmp_path / "gp.keras"
    gp.save(path)
    loaded = cgp.load_model(path)
    x = np.linspace(-6.0, 6.0, 9)
    np.testing.assert_array_equal(loaded.predict(x)["mean"], gp.predict(x)["mean"])
    revived = loaded.kernel.parts[0]
    assert repr(revived) == repr(kernel)
    for each in (kernel, revived):
        each.update(z[9])
    np.testing.assert_array_equal(revived.covariance(x), kernel.covariance(x))
    np.testing.assert_array_equal(loaded.predict(x)["mean"], gp.predict(x)["mean"])


def test_is_its_config_small_and_without_series():
    kernel = Empirical.from_series(SUBCARRIERS, noisy(5), name="room", shrink=0.2)
    config = json.dumps(keras.saving.serialize_keras_object(kernel))
    assert len(config) < 1000
    revived = keras.saving.deserialize_keras_object(json.loads(config))
    for use in (
        lambda: revived.covariance([0.0]),
        lambda: revived.update(noisy(1)),
        lambda: tf.function(revived.covariance)([0.0]),
        lambda: cgp.ExactGP(revived, 0.1).condition(SUBCARRIERS, noisy(1)[0]),
    ):
        with pytest.raises(ValueError, match=r"has no series yet: Empirical\.from_series"):
            use()
    revived.set_weights(kernel.get_weights())
    np.testing.assert_array_equal(revived.covariance(SUBCARRIERS), kernel.covariance(SUBCARRIERS))


def test_is_it_of_single_precision():
    z = noisy(8)
    double = Empirical.from_series(SUBCARRIERS, z)
    single = Empirical.from_series(SUBCARRIERS, z.astype("complex64"), dtype="float32")
    x = np.linspace(-6.0, 6.0, 9)
    k = single.covariance(x.astype("float32"))
    assert k.dtype == tf.complex64
    np.testing.assert_allclose(k, double.covariance(x), atol=1e-5)


@pytest.mark.parametrize("variance", [1.0, None])
def test_is_its_factor_learned(variance):
    z = noisy(40)
    kernel = Empirical.from_series(SUBCARRIERS, z[:30], noise_variance=0.01, variance=variance)
    gp = cgp.ExactGP(kernel, noise_variance=0.09, fixed="noise_variance")
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(SUBCARRIERS, 3.0 * z[30:40], verbose=0)
    assert 6.0 < float(kernel.variance) < 14.0
    assert all(np.isfinite(w).all() for w in kernel.weights)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x, z: Empirical.from_series(x, z[0]), ValueError, "at least 2 series.*got 1"),
        (lambda x, z: Empirical.from_series(x, 0 * z), ValueError, "samples that are not zero"),
        (lambda x, z: Empirical.from_series(x, z.real), TypeError, "complex"),
        (lambda x, z: Empirical.from_series(1j * x, z), TypeError, "x must be real"),
        (lambda x, z: Empirical.from_series(x // 2, z), ValueError, "must not repeat places"),
        (lambda x, z: Empirical.from_series(np.stack([x, x], -1), z), ValueError, "one dimension"),
        (lambda x, z: Empirical.from_series(x[:1], z[:, :1]), ValueError, r"\[N\], N > 1"),
        (lambda x, z: Empirical.from_series(x[1:], z), ValueError, r"\[S, 11\], got \(5, 12\)"),
        (lambda x, z: Empirical.from_series(x, z[None]), ValueError, r"got \(1, 5, 12\)"),
        (lambda x, z: Empirical.from_series(x, z, 1.5), ValueError, "shrink must be a number from"),
        (lambda x, z: Empirical.from_series(x, z, 0.1, -1.0), ValueError, "at least 0, got -1.0"),
        (lambda x, z: Empirical.from_series(x, z, None, 9.0), ValueError, "below the mean square"),
        (
            lambda x, z: Empirical.from_series(x, np.where(x == 2.0, np.nan, z)),
            ValueError,
            "5 of 5 series have some: leave these out",
        ),
        (
            lambda x, z: Empirical.from_series(x, z).covariance(np.ones((3, 2))),
            ValueError,
            "inputs of one dimension, got 2",
        ),
        (lambda x, z: Empirical.from_series(x, z).spectrum(), ValueError, "not stationary"),
        (
            lambda x, z: Empirical.from_series(2.4e9 + x, z, dtype="float32"),
            ValueError,
            "loses its steps",
        ),
    ],
)
def test_is_what_makes_no_sense_refused(make, error, match):
    with pytest.raises(error, match=match):
        make(SUBCARRIERS, noisy(5))


# --- channels -------------------------------------------------------------------------------------

WIFI = np.concatenate([np.arange(-26.0, 0.0), np.arange(1.0, 27.0)])


def room(rng):
    """The covariance over 52 subcarriers of clusters of fixed paths, behind a filter."""
    K = np.zeros((52, 52), complex)
    for delay, spread, power in [
        (1.0, 0.4, 1.0),
        (2.5, 0.5, 0.6),
        (4.0, 0.6, 0.4),
        (7.0, 0.8, 0.2),
    ]:
        delays = delay + rng.exponential(spread, 6)
        amplitudes = draws(rng, 6) * np.exp(-np.arange(6) / 4)
        u = np.exp(-2j * np.pi * np.outer(WIFI / 52, delays)) @ amplitudes
        K += power * np.outer(u, u.conj()) / np.mean(np.abs(u) ** 2)
    lag = (WIFI[:, None] - WIFI) / 52
    K += 0.05 * np.exp(-2j * np.pi * lag) / (1 + 4j * np.pi * lag)
    ripple = 1 + 0.3 * np.cos(2 * np.pi * WIFI / 40 + 0.4)
    K = ripple[:, None] * K * ripple
    return K / np.mean(np.diag(K).real)


def stationary_covariances():
    """Those of the kernels for channels, over grids of their hyperparameters."""
    lag = WIFI[:, None] - WIFI
    shapes = [1 / (1 + 2j * np.pi * s * lag) for s in np.geomspace(0.001, 0.1, 12)]
    for length in np.geomspace(2.0, 50.0, 12):
        r = np.sqrt(3.0) * np.abs(lag) / length
        shapes += [(1 + r) * np.exp(-r), np.exp(-0.5 * (lag / length) ** 2)]
    turns = [np.exp(-2j * np.pi * delay * lag) for delay in np.linspace(-0.02, 0.15, 18)]
    return [shape * turn for shape in shapes for turn in turns]


def expected_error(K, truth, seen, noise):
    """The expected error of interpolation with a covariance K over the power, in decibels."""
    W = K[:, seen] @ np.linalg.inv(K[np.ix_(seen, seen)] + noise * np.eye(len(seen)))
    E = truth - W @ truth[seen] - truth[:, seen] @ W.conj().T
    E += W @ (truth[np.ix_(seen, seen)] + noise * np.eye(len(seen))) @ W.conj().T
    return 10.0 * np.log10(np.trace(E).real / np.trace(truth).real)


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_predicts_it_channels_of_a_room_nearly_as_their_covariance_does(seed):
    rng = np.random.default_rng(seed)
    truth, noise = room(rng), 10.0**-1.5
    root = np.linalg.cholesky(truth + 1e-12 * np.eye(52))
    seen = np.sort(rng.permutation(52)[:13])
    earlier = draws(rng, 60, 52) @ root.T + np.sqrt(0.01) * draws(rng, 60, 52)
    kernel = Empirical.from_series(WIFI, earlier, noise_variance=0.01)
    error = expected_error(kernel.covariance(WIFI).numpy(), truth, seen, noise)
    assert error < expected_error(truth, truth, seen, noise) + 1.0
    best = min(expected_error(K, truth, seen, noise) for K in stationary_covariances())
    assert error < best - 1.0

    later = draws(rng, 400, 52) @ root.T
    gp = cgp.ExactGP(kernel, noise_variance=noise)
    gp.condition(WIFI[seen], later[:, seen] + np.sqrt(noise) * draws(rng, 400, 13))
    moments = gp.predict(WIFI)
    np.testing.assert_allclose(
        cgp.metrics.normalized_error_db(later, moments["mean"]), error, atol=0.5
    )
    assert 0.90 < cgp.metrics.coverage(later, moments) < 0.98


def test_predicts_it_stationary_channels_nearly_as_their_covariance_does():
    rng = np.random.default_rng(21)
    lag = WIFI[:, None] - WIFI
    truth = np.exp(-2j * np.pi * 0.02 * lag) / (1 + 2j * np.pi * 0.02 * lag)
    earlier = draws(rng, 20, 52) @ np.linalg.cholesky(truth).T
    kernel = Empirical.from_series(WIFI, earlier)
    assert kernel.shrinkage > 0.5
    seen = np.sort(rng.permutation(52)[:13])
    of_series = earlier.T @ earlier.conj() / 20
    errors = [
        expected_error(K, truth, seen, 10.0**-1.5)
        for K in (truth, kernel.covariance(WIFI).numpy(), of_series)
    ]
    assert errors[1] < errors[0] + 0.5
    assert errors[1] < errors[2] - 0.5


def test_adds_it_to_other_kernels():
    kernel = Empirical.from_series(SUBCARRIERS, noisy(5))
    k = (kernel + RBF(2.0, 1.0)).covariance(SUBCARRIERS).numpy()
    expected = kernel.covariance(SUBCARRIERS).numpy() + RBF(2.0, 1.0).covariance(SUBCARRIERS)
    np.testing.assert_allclose(k, expected)
