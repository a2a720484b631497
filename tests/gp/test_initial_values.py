"""Hyperparameters that are left out start from the data; several fits, of which the best counts."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability  # noqa: F401 (its first import warns, which is not to be counted)

import cgp
from cgp.kernels import (
    RBF,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Rotation,
    WidelyLinear,
)
from cgp.kernels.data_scales import DataScales, StartRules
from cgp.kernels.walks import IntegratedRandomWalk
from tests.gp.problems import complex_normals, started


def tone_on_a_slow_part(n=60):
    """A tone that comes and goes, a slow part, and noise of variance 0.02."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 10.0, n)
    slow = np.exp(-((x - 3.0) ** 2) / 3.0) + 1j * np.exp(-((x - 6.0) ** 2) / 4.0)
    envelope = np.exp(-((x - 4.0) ** 2) / 9.0) + 0.5j * np.exp(-((x - 8.0) ** 2))
    z = 2.0 * envelope * np.exp(2j * np.pi * 1.3 * x) + slow
    return x, z + 0.1 * complex_normals(rng, n)


def fitted(x, z, kernel, restarts=4, **kwargs):
    gp = cgp.ExactGP(kernel, **kwargs)
    gp.compile(cgp.optimizers.LBFGS())
    return gp, gp.fit(x, z, restarts=restarts, verbose=0)


def to_the_optimum(gp, x, z):
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)


started_or_fitted = pytest.mark.parametrize(
    "fit",
    [started, pytest.param(to_the_optimum, marks=pytest.mark.long)],
    ids=["start", "optimum"],
)


def test_do_starts_follow_the_documented_rules():
    x, z = tone_on_a_slow_part()
    gp = started(cgp.ExactGP(RBF() + 0.5 * Matern32() * Rotation()), x, z)
    initial = gp.parameters()
    power, step, span = np.mean(np.abs(z) ** 2), x[1] - x[0], 10.0
    np.testing.assert_allclose(initial["rbf.variance"], power / 2)
    np.testing.assert_allclose(initial["matern32.variance"], power / 2)
    np.testing.assert_allclose(initial["rbf.lengthscale"], step ** (2 / 3) * span ** (1 / 3))
    np.testing.assert_allclose(initial["matern32.lengthscale"], step ** (1 / 3) * span ** (2 / 3))
    np.testing.assert_allclose(initial["rotation.frequency"], 1.3, atol=0.04)
    assert 0.005 < initial["noise_variance"] < 0.1


@pytest.mark.long
@pytest.mark.parametrize(("of_x", "of_z"), [(1e9, 1e-6), (1 / 86_400.0, 1e3)])
def test_does_a_fit_not_depend_on_units(of_x, of_z):
    x, z = tone_on_a_slow_part(40)
    kernel = lambda: RBF() + Matern32() * Rotation()  # noqa: E731
    one = fitted(x, z, kernel(), 3)[0].parameters()
    other = fitted(of_x * x, of_z * z, kernel(), 3)[0].parameters()
    assert_same_in_units(one, other, of_x, of_z)


def assert_same_in_units(one, other, of_x, of_z):
    units = {"variance": of_z**2, "lengthscale": of_x, "frequency": 1.0 / of_x}
    for name, value in one.items():
        unit = units[name.rpartition(".")[2].removeprefix("noise_")]
        np.testing.assert_allclose(other[name] / unit, value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "kernel", [lambda: RBF() + Matern32() * Rotation(), lambda: Periodic() + Matern12()]
)
def test_do_starts_not_depend_on_units(kernel):
    x, z = tone_on_a_slow_part(20)
    of_x, of_z = 2.0**30, 2.0**-20  # which round nothing
    one = started(cgp.ExactGP(kernel()), x, z).parameters()
    other = started(cgp.ExactGP(kernel()), of_x * x, of_z * z).parameters()
    lengths = one.pop("periodic.lengthscale", 1.0), other.pop("periodic.lengthscale", 1.0)
    np.testing.assert_allclose(*lengths, rtol=1e-12)  # a number without a unit
    assert_same_in_units(one, other, of_x, of_z)


@pytest.mark.long
def test_do_restarts_find_what_one_start_misses():
    """A start at a frequency where there is nothing."""
    x, z = tone_on_a_slow_part()
    with pytest.warns(RuntimeWarning, match="lengthscale = .* is far above the span"):
        stuck, _ = fitted(x, z, Matern32(1.0, 5.0) * Rotation(-2.0), restarts=1)
    gp, history = fitted(x, z, Matern32(1.0, 5.0) * Rotation(-2.0), restarts=6)
    assert gp.log_marginal_likelihood() > stuck.log_marginal_likelihood() + 50.0
    assert len(history.optima) == 6
    losses = [optimum["loss"] for optimum in history.optima]
    assert losses == sorted(losses)
    assert losses[-1] > losses[0] + 1.0  # the start that is given is among them
    np.testing.assert_allclose(history.history["loss"][-1], losses[0], rtol=1e-9)
    np.testing.assert_allclose(
        list(gp.parameters().values()),
        list(history.optima[0]["parameters"].values()),
        rtol=1e-3,
    )


@pytest.mark.long
def test_are_restarts_the_same_for_the_same_seed():
    x, z = tone_on_a_slow_part(20)
    runs = [fitted(x, z, RBF() * Rotation(), 3)[1].optima for _ in range(2)]
    assert runs[0] == runs[1]


def test_are_restarts_refused_that_cannot_be():
    x, z = tone_on_a_slow_part(20)
    gp = cgp.ExactGP(RBF() * Rotation())
    gp.compile(cgp.optimizers.LBFGS())
    before = gp.parameters()
    with pytest.raises(ValueError, match="restarts must be a whole number, at least 1, got 0"):
        gp.fit(x, z, restarts=0)
    gp.compile("adam")
    with pytest.raises(ValueError, match=r"restarts=2 needs compile.*the optimizer is Adam"):
        gp.fit(x, z, restarts=2)
    np.testing.assert_equal(gp.parameters(), before)  # NaN, as not learned yet


def test_is_a_value_that_is_given_kept_as_the_start():
    x, z = tone_on_a_slow_part(20)
    gp = cgp.ExactGP(RBF(3.0, fixed="lengthscale"), 0.2)
    started(gp, x, z)
    found = gp.parameters()
    assert found["rbf.variance"] == pytest.approx(3.0)
    assert found["rbf.lengthscale"] == 1.0  # fixed at its placeholder
    assert found["noise_variance"] == pytest.approx(0.2)
    assert gp.evaluate(x, z, verbose=0) == pytest.approx(-float(gp.log_marginal_likelihood()) / 20)


def test_does_a_second_fit_start_from_what_is_there(tmp_path):
    x, z = tone_on_a_slow_part(20)
    gp = cgp.ExactGP(RBF() * Rotation())
    started(gp, x, z)
    gp.save(tmp_path / "gp.keras")
    for model in (gp, cgp.training.load_model(tmp_path / "gp.keras")):
        assert not any(p.is_left_out for p in model.named_hyperparameters().values())
        before = model.parameters()
        model.fit(2.0 * x, 3.0 * z, verbose=0)
        assert model.parameters() == before


@pytest.mark.long
def test_does_the_second_fit_go_on_from_the_first(tmp_path):
    x, z = tone_on_a_slow_part(20)
    gp, _ = fitted(x, z, RBF() * Rotation(), 1)
    loaded_name = tmp_path / "gp.keras"
    gp.save(loaded_name)
    for model in (gp, cgp.training.load_model(loaded_name)):
        assert not any(p.is_left_out for p in model.named_hyperparameters().values())
        history = model.fit(x, z, verbose=0)
        assert len(history.history["loss"]) < 5
        assert model.evaluate(x, z, verbose=0) == pytest.approx(history.history["loss"][-1])


def test_are_weights_that_are_loaded_no_placeholders(tmp_path):
    x, z = tone_on_a_slow_part(20)
    gp, other = cgp.ExactGP(RBF() * Rotation()), cgp.ExactGP(RBF() * Rotation())
    other.compile("sgd", run_eagerly=True)
    started(gp, x, z)
    gp.save_weights(tmp_path / "gp.weights.h5")
    other.load_weights(tmp_path / "gp.weights.h5")
    assert not any(p.is_left_out for p in other.named_hyperparameters().values())
    assert other.evaluate(x, z, verbose=0) == gp.evaluate(x, z, verbose=0)


def test_does_a_config_say_what_is_left_out():
    gp = cgp.ExactGP(RBF(lengthscale=2.0), priors={"noise_variance": None})
    copy = cgp.ExactGP.from_config(gp.get_config())
    left = [name for name, p in copy.named_hyperparameters().items() if p.is_left_out]
    assert left == ["noise_variance", "rbf.variance"]
    x, z = tone_on_a_slow_part(10)
    copy.compile("sgd", run_eagerly=True)
    copy.fit(x, z, verbose=0)
    likelihood = float(copy.log_marginal_likelihood())
    assert copy.evaluate(x, z, verbose=0) == pytest.approx(-likelihood / 10)  # turned off
    copy.kernel.variance.assign(1.0)
    assert not copy.kernel.variance.is_left_out


@pytest.mark.long
def test_keeps_the_prior_noise_from_zero():
    """A rough signal without noise."""
    x = np.linspace(0.0, 4.0, 30)
    z = cgp.ExactGP(Matern12(1.0, 1.0), 1e-12).sample(x, seed=4)[0]
    free = cgp.ExactGP(Matern12(), priors={"noise_variance": None})
    free.compile(cgp.optimizers.LBFGS())
    with pytest.warns(RuntimeWarning, match="noise_variance = .* has run to zero"):
        free.fit(x, z, verbose=0)
    gp, _ = fitted(x, z, Matern12(), 1)
    assert 1e-4 < gp.noise_variance.numpy() < 0.1
    assert gp.log_marginal_likelihood() > free.log_marginal_likelihood() - 1.0


def test_does_a_mean_start_from_the_data():
    x = np.linspace(0.0, 4.0, 30)
    z = 3e-6 * (1.0 + 2j + (0.5 - 1j) * x + 0.01 * np.exp(8j * x))
    trend = cgp.means.Polynomial(1, center=2.0, scale=2.0)
    gp = cgp.ExactGP(RBF() * Rotation(), mean=trend)
    started(gp, x, z)
    np.testing.assert_allclose(trend.coefficients, [6e-6, 3e-6 - 6e-6j], rtol=0.05)
    assert gp.kernel.parts[0].variance.numpy() == pytest.approx(9e-16, rel=0.2)


@pytest.mark.parametrize(
    ("kernel", "fixed", "said"),
    [
        (RBF, {"lengthscale": 1e-3}, r"rbf\.lengthscale = 0\.001 is far below the spac"),
        (RBF, {"lengthscale": 1e6}, r"rbf\.lengthscale = 1e\+06 is far above the span"),
        (Periodic, {"lengthscale": 1e-3, "frequency": 0.11}, "neighbours are uncorrel"),
    ],
)
@started_or_fitted
def test_is_a_fit_that_learns_nothing_told(fit, kernel, fixed, said):
    x, z = tone_on_a_slow_part(12)
    gp = cgp.ExactGP(kernel(1.0, **fixed, fixed=tuple(fixed)))
    with pytest.warns(RuntimeWarning, match=said) as caught:
        fit(gp, x, z)
    assert len(caught) == 1


def test_is_a_fit_of_nothing_but_zeros_told():
    z = np.where(np.arange(12) < 3, np.nan, 0.0) + 0j
    gp = cgp.ExactGP(RBF())
    with pytest.warns(RuntimeWarning, match="all of z that is not missing is zero"):
        started(gp, np.arange(12.0), z)


def test_do_scales_come_from_what_is_measured():
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 10.0, 200)[:, None]
    z = np.stack([np.exp(2j * np.pi * f * x[:, 0]) for f in (1.5, 1.5)])
    z += 0.2 * complex_normals(rng, *z.shape)
    z[:, :20] = np.nan
    scales = DataScales(x, z)
    assert scales.span == pytest.approx(10.0 * 179 / 199)
    assert scales.spacing == pytest.approx(10.0 / 199)
    assert scales.noise == pytest.approx(0.08, rel=0.3)
    assert scales.tones[0][0] == pytest.approx(1.5, abs=0.01)
    assert scales.tones[1][0] > 0.8
    rules = StartRules(scales, draw=iter(rng.random(1000)))
    lengths = [rules.lengthscale() for _ in range(200)]
    assert scales.spacing < min(lengths) < 0.1
    assert 10.0 < max(lengths) < 2.0 * scales.span


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(lambda: WidelyLinear(RBF(1.0, 1.0), 0.0), marks=pytest.mark.long),
        lambda: Constant(1.0) + IntegratedRandomWalk(1.0, 1.0),
        lambda: 2.0 * RBF(1.0, 1.0) * Matern32(1.0, 1.0),
    ],
)
def test_does_the_closed_form_of_the_scale_hold(kernel):
    """At a covariance that is scaled by its best factor the slope by the scale is zero."""
    from cgp.gp.starts import overall_scale
    from cgp.training import Objective

    x, z = tone_on_a_slow_part(10)
    gp = cgp.ExactGP(kernel(), 0.5)
    gp.compile(cgp.optimizers.LBFGS())
    data = gp._validated(x, z, None, None)
    direction = overall_scale(gp, data)
    loss = Objective(gp, gp.training_batch(data))
    value, gradient = loss(loss.start)
    square = 1.0 - gradient @ direction
    best, slope = loss(loss.start + np.log(square) * direction)
    np.testing.assert_allclose(best, value + np.log(square) + 1.0 - square, rtol=1e-10)
    np.testing.assert_allclose(slope @ direction, 0.0, atol=1e-9)


def test_do_the_hyperparameters_of_a_tracker_start_from_the_stream():
    x, z = tone_on_a_slow_part(16)
    gp = cgp.RecursiveGP(Matern12(), capacity=8)
    started(gp, x, z, batch_size=8)
    np.testing.assert_allclose(gp.parameters()["matern12.variance"], np.mean(np.abs(z) ** 2))
    assert not gp.noise_variance.is_left_out
    gp.step(11.0, 1j)


def test_is_noise_that_is_left_out_and_needed_an_error():
    x, z = tone_on_a_slow_part(5)
    for kind in (cgp.ExactGP, cgp.StateSpaceGP):
        gp = kind(Matern12(1.0, 1.0))
        gp.predict(x)  # the prior of the signal needs none
        with pytest.raises(ValueError, match="left out, and not learned yet: noise_variance"):
            gp.log_marginal_likelihood(x, z)
        with pytest.raises(ValueError, match="left out, and not learned yet: noise_variance"):
            gp.predict(x, observed=True)
    tracker = cgp.RecursiveGP(Matern12(1.0, 1.0), capacity=4)
    with pytest.raises(ValueError, match="left out, and not learned yet: noise_variance"):
        tracker.step(0.0, 1j)
    with pytest.raises(ValueError, match="noise_variance is fixed, but was left out"):
        cgp.ExactGP(RBF(), fixed="noise_variance")
    with pytest.raises(ValueError, match=r"noise_pseudo_variance is 0\.1 of a noise"):
        cgp.ExactGP(RBF(), noise_pseudo_variance=0.1)


@pytest.mark.parametrize(
    "curve",
    ["tone", "constant", "response"],
)
@pytest.mark.long
@pytest.mark.parametrize("restarts", [1, 3])
def test_do_data_without_noise_keep_a_little(curve, restarts):
    x = np.linspace(0.0, 10.0, 30)
    z = {"tone": np.exp(1j * x), "constant": 0 * x + 1 + 1j, "response": 1 / (1 + 1j * (x - 5))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of data without noise, and constant ones
        gp, _ = fitted(x, z[curve], RBF(), restarts)
    assert 1e-11 < gp.noise_variance.numpy() / np.mean(np.abs(z[curve]) ** 2) < 1e-3
    np.testing.assert_allclose(gp.predict(x)["mean"], z[curve], atol=5e-3)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (lambda: Matern32() * Rotation() + RBF(), 1.5),
        (lambda: Matern32() * Rotation() + Constant() * Rotation(1.5, fixed="frequency"), 0.13),
        (lambda: Matern32() * Rotation(), 0.13),
        (lambda: Matern32() * Rotation() + cgp.kernels.White(), 0.13),
    ],
)
def test_does_a_frequency_start_at_a_tone_that_no_other_term_describes(kernel, expected):
    x = np.linspace(0.0, 10.0, 80)
    z = 5.0 * np.exp(0.26j * np.pi * x) + np.exp(3j * np.pi * x)  # slow and strong, and a tone
    gp = cgp.ExactGP(kernel())
    started(gp, x, z)
    found = [v for name, v in gp.parameters().items() if name == "rotation.frequency"]
    np.testing.assert_allclose(found, [expected], atol=0.02)


@pytest.mark.parametrize("restarts", [3, pytest.param(8, marks=pytest.mark.long)])
def test_has_white_noise_alone_one_optimum(restarts):
    x = np.arange(20.0)
    _, history = fitted(
        x, complex_normals(np.random.default_rng(0), 20), cgp.kernels.Zero(), restarts
    )
    assert len(history.optima) == 1


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("places", ["random", pytest.param("regular", marks=pytest.mark.long)])
def test_does_a_frequency_beside_a_rotation_start_from_that_of_the_rotation(turned, places):
    """The echo of a wave, over frequency: a second delay, by its distance from the first."""
    x = np.arange(64.0)
    if places == "random":
        x = np.sort(np.random.default_rng(0).uniform(0.0, 40.0, 64))
    first, echo = (0.3, 0.25) if places == "regular" else (0.3, 0.4)
    z = np.exp(2j * np.pi * first * x) * (1.0 + 0.3 * np.exp(2j * np.pi * echo * x))
    rotation = Rotation() if turned else Rotation(first, fixed="frequency")
    kernel = (Matern32() + Matern32() * Rotation(name="echo")) * rotation
    gp = cgp.ExactGP(kernel, noise_variance=1e-4)
    started(gp, x, z)
    np.testing.assert_allclose(gp.parameters()["rotation.frequency"], first, atol=0.01)
    np.testing.assert_allclose(gp.parameters()["echo.frequency"], echo, atol=0.01)


@pytest.mark.long
def test_is_an_echo_of_a_fixed_delay_found_by_restarts():
    """Its alias is that within half a turn per step of the delay: −0.2 − 0.4 turns, not 0.4."""
    x = np.arange(50.0)
    between = x[:-1] + 0.5

    def wave(x):
        first, echo = 1.0 + 0.2 * np.sin(x / 9.0), 0.1 * np.cos(x / 11.0)
        return np.exp(-0.4j * np.pi * x) * (first + echo * np.exp(-0.8j * np.pi * x))

    z = wave(x) + 1e-3 * complex_normals(np.random.default_rng(0), 50)
    first = Rotation.from_periodogram(x, z, fixed="frequency")
    gp, _ = fitted(x, z, (Matern52() + Matern52() * Rotation()) * first, 4)
    error = gp.predict(between)["mean"] - wave(between)
    assert np.mean(np.abs(error) ** 2) < 1e-5


def test_does_a_sum_start_beside_a_frequency_over_several_dimensions():
    rng = np.random.default_rng(0)
    x = rng.random((30, 2))
    z = np.exp(2j * np.pi * x @ [1.0, 2.0]) + x[:, 0] + 0.1 * complex_normals(rng, 30)
    gp = cgp.ExactGP(Matern32() * Rotation([1.0, 2.0], fixed="frequency") + Matern12())
    started(gp, x, z)
    assert not any(p.is_left_out for p in gp.named_hyperparameters().values())


@pytest.mark.long
def test_has_a_dense_process_the_higher_floor_of_noise():
    """Its covariance has a Cholesky factor where a state has none to need one.

    The floor is a share of what an offset leaves of the data.
    """
    x = np.random.default_rng(0).random((12, 2))
    gp = cgp.ExactGP(RBF() * Rotation([1.0, 2.0]) + RBF())
    gp.compile(cgp.optimizers.LBFGS())
    z = np.exp(2j * np.pi * x @ [1.0, 2.0]) + x[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of data without noise
        history = gp.fit(x, z, restarts=2, verbose=0)
    assert len(history.optima) == 2
    assert gp.noise_variance.numpy() > 2e-10 * np.var(z)
    np.testing.assert_allclose(gp.predict(x)["mean"], z, atol=1e-3)


@pytest.mark.parametrize("size", [12, 200])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_is_the_floor_of_noise_above_what_rounding_hides(dtype, size):
    """However large the variance of the signal, which smooth data without noise make large."""
    from cgp.gp.starts import log_weak_prior

    x = np.linspace(0.0, 1.0, size)
    gp = cgp.ExactGP(RBF(1e6, 100.0, dtype=dtype) * Rotation(0.3, dtype=dtype))
    data = gp._validated(x, np.exp(2j * np.pi * x).astype(np.result_type(dtype, 1j)), None, None)
    least = gp.rounding_noise(data)
    assert 0.0 < least < 1e6 * size * np.finfo(dtype).eps * 10.0
    signal = gp.observation_model.signal_covariance(data)
    noise = tf.cast(least, signal.dtype) * tf.eye(size, dtype=signal.dtype)
    assert np.isfinite(cgp.linalg.cholesky(signal + noise)).all()
    power = tf.constant(1.0, dtype)
    below, above = (
        log_weak_prior(tf.constant(v, dtype), power, gp._noise_floor, least).numpy()
        for v in (0.2 * float(least), 5.0 * float(least))
    )
    assert below < -500.0 < above


def test_is_noise_above_its_floor_left_alone_however_many_samples_there_are():
    """Few of them may tell of it, as those at the least of a wide spectrum."""
    from cgp.gp.starts import log_weak_prior

    power = tf.constant(1.0, tf.float64)
    found = [log_weak_prior(tf.constant(v, tf.float64), power, 1e-10) for v in (1e-8, 1e-9)]
    np.testing.assert_allclose(found, 0.5 * np.log([1e-8, 1e-9]), atol=1e-3)
    below, far = (
        float(log_weak_prior(tf.constant(v, tf.float64), power, 1e-10)) for v in (1e-11, 1e-13)
    )
    assert -1e5 < below < -1e3
    assert far < -1e9


@pytest.mark.parametrize("frequency", [0.0, 0.1, -5.0])
def test_does_a_frequency_move_that_is_near_zero(frequency):
    x = 1e-3 * np.arange(64)  # 0.1 is a hundredth of a cycle over all x
    truth = cgp.ExactGP(RBF(1.0, 5e-3) * Rotation(5.0), 0.05)
    z = truth.sample(x, 20, seed=0, observed=True)
    gp = cgp.ExactGP(RBF(1.0, 5e-3, trainable=False) * Rotation(frequency), 0.05)
    gp.fit(x, z, verbose=0)
    deviation = gp.parameters()["rotation.frequency"] - 5.0
    assert abs(deviation) < 3.0 * gp.parameter_errors(verbose=0)["rotation.frequency"]


@pytest.mark.parametrize(
    "make",
    [
        lambda k: k + k * k,
        pytest.param(lambda k: k + k, marks=pytest.mark.long),
        pytest.param(lambda k: k * k, marks=pytest.mark.long),
    ],
)
def test_may_a_kernel_be_there_twice(make):
    x, z = tone_on_a_slow_part(12)
    gp, history = fitted(x, z, make(RBF()), 2)
    assert not any(p.is_left_out for p in gp.named_hyperparameters().values())
    losses = [optimum["loss"] for optimum in history.optima]
    assert len(losses) == 2
    assert losses == sorted(losses)
    np.testing.assert_allclose(history.history["loss"][-1], losses[0], rtol=1e-9)
    found, best = gp.parameters(), history.optima[0]["parameters"]
    np.testing.assert_allclose(list(found.values()), list(best.values()), rtol=1e-3)


@pytest.mark.long
def test_does_the_noise_of_other_data_not_depend_on_the_first():
    x, z = tone_on_a_slow_part(40)
    again, _ = fitted(x, z / 1e3, RBF() * Rotation(), 1)
    again.fit(x, z, restarts=3, verbose=0)
    fresh, _ = fitted(x, z, RBF() * Rotation(), 3)
    loss = fresh.evaluate(x, z, verbose=0)
    assert again.evaluate(x, z, verbose=0) == pytest.approx(loss, abs=1e-6)


def test_leaves_a_fit_that_fails_nothing_behind():
    x, z = tone_on_a_slow_part(12)
    gp = cgp.ExactGP(cgp.kernels.Autoregressive(2, step=1.0) + RBF())
    gp.compile(cgp.optimizers.LBFGS())
    with pytest.raises(ValueError, match="no whole multiple"):
        gp.fit(x, z, verbose=0)
    assert all(p.is_left_out for p in gp.named_hyperparameters().values())


def test_is_a_dimension_that_does_not_vary_left_out_of_the_scales():
    x = np.linspace(0.0, 1e9, 40)
    scales = DataScales(np.stack([x, np.full(40, 7.0)], axis=-1), np.ones((1, 40), complex))
    assert scales.span == pytest.approx(1e9)
    assert scales.spacing == pytest.approx(1e9 / 40)


@pytest.mark.long
@pytest.mark.parametrize("of_x", [1e-9, 1e9])
def test_does_a_periodic_signal_not_depend_on_the_unit_of_its_period(of_x):
    x = np.linspace(0.0, 5.0, 40)
    z = np.exp(1j * np.sin(2 * np.pi * 0.8 * x)) + 0.1 * complex_normals(
        np.random.default_rng(0), 40
    )
    one, other = (fitted(unit * x, z, Periodic(), 1)[0].parameters() for unit in (1.0, of_x))
    assert one["periodic.frequency"] == pytest.approx(0.8, rel=0.02)
    assert of_x * other["periodic.frequency"] == pytest.approx(one["periodic.frequency"], rel=1e-6)


@started_or_fitted
def test_does_a_warning_show_the_lengthscales_of_a_vector(fit):
    rng = np.random.default_rng(4)
    x = rng.uniform(0.0, 10.0, (20, 2))
    z = np.exp(0.3j * x[:, 0])
    gp = cgp.ExactGP(RBF(1.0, [1e-3, 1.0], fixed="lengthscale"), 0.1)
    with pytest.warns(RuntimeWarning, match=r"rbf\.lengthscale = \[.* is far below the spacing"):
        fit(gp, x, z)
