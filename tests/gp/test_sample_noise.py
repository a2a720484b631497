"""Noise as it was measured: a known part of each sample, and a learned one of each group."""

import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.noise import SampleNoise
from cgp.kernels import Matern12, Matern32, Rotation
from cgp.training.keras_private import saved_variables
from tests.gp.noisy_data import GROUPS, noisy_data
from tests.gp.problems import started
from tests.gp.recursive.streams import by_core_or_eagerly
from tests.long_cases import eagerly_or_in_a_graph, long_except
from tests.reference import gaussian_process as dense

KINDS = [("proper", True, False), ("all improper", True, True)]
LONG_IF_PROPER = [pytest.param(*KINDS[0], marks=pytest.mark.long), KINDS[1]]
AT = np.array([2.2, 11.0, -0.5])


def close(found, expected, tolerance=1e-10):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_is_posterior(found, data, observed=None, tolerance=1e-10):
    """Mean and variances of `predict` are those of the dense process."""
    mean, k, c = dense.posterior(data.z, *data.observed(), *data.at(AT))
    variance, pseudo = np.diag(k).real, np.diag(c)
    if observed is not None:
        noise, noise_pseudo = data.noise(*observed)
        variance, pseudo = variance + noise, pseudo + noise_pseudo
    close(found["mean"], mean, tolerance)
    close(found["variance"], variance, tolerance)
    close(found["pseudo_variance"], pseudo, tolerance)


@pytest.mark.parametrize(("name", "known", "grouped"), KINDS)
def test_exact_gp_is_the_dense_process(name, known, grouped):
    data = noisy_data(name, known, grouped)
    gp = data.model(cgp.ExactGP)
    gp.condition(data.x, data.z, **data.noise_arguments)
    expected = dense.log_marginal_likelihood(data.z, *data.observed())
    close(gp.log_marginal_likelihood(), expected)
    close(gp.log_marginal_likelihood(data.x, data.z, **data.noise_arguments), expected)
    assert_is_posterior(gp.predict(AT), data)
    for groups in (1, np.array([1, 0, 0])) if grouped else (None,):
        found = gp.predict(AT, observed=True, noise_variance=[0.3, 0.0, 1.0], noise_groups=groups)
        assert_is_posterior(found, data, ([0.3, 0.0, 1.0], groups))
        found = gp.posterior(AT, observed=True, noise_groups=groups)
        close(found.variance(), np.diag(found.covariance()).real)
    left_out = gp.loo()
    expected = dense.leave_one_out(data.z, *data.observed())
    seen = ~np.isnan(data.z)
    for found, value in zip(left_out.values(), expected, strict=True):
        close(found[seen], value[seen])


def test_series_with_noise_of_their_own_do_not_share_a_covariance():
    data = noisy_data("improper", True, True, batch=(2, 2))
    gp = data.model(cgp.ExactGP)
    gp.condition(data.x, data.z, **data.noise_arguments)
    value, found, left_out = gp.log_marginal_likelihood(), gp.predict(AT), gp.loo()
    for row in np.ndindex(2, 2):
        one = data._replace(z=data.z[row], known=data.known[row], groups=data.groups[row])
        close(value[row], dense.log_marginal_likelihood(one.z, *one.observed()))
        assert_is_posterior({name: a[row] for name, a in found.items()}, one)
        mean, *_ = dense.leave_one_out(one.z, *one.observed())
        close(left_out["mean"][row][:5], mean[:5])


def test_gradients_are_those_of_differences():
    data = noisy_data("improper noise", True, True)
    gp = data.model(cgp.ExactGP)

    def value():
        return gp.log_marginal_likelihood(data.x, data.z, **data.noise_arguments)

    variable = gp.noise_variance.variable
    with tf.GradientTape() as tape:
        loss = value()
    (found,) = tape.gradient(loss, [variable.value])
    assert_are_differences(value, variable, tf.convert_to_tensor(found))


def assert_are_differences(value, variable, gradient, tolerance=1e-6):
    start = variable.numpy()
    for i in range(len(start)):
        ends = []
        for step in (1e-5, -1e-5):
            moved = start.copy()
            moved[i] += step
            variable.assign(moved)
            ends.append(float(value()))
        close(gradient[i], (ends[0] - ends[1]) / 2e-5, tolerance)
    variable.assign(start)


def test_data_that_differ_in_noise_alone_are_other_data():
    data = noisy_data("proper", True, False)
    gp = data.model(cgp.ExactGP)
    gp.condition(data.x, data.z, **data.noise_arguments)
    before = gp.log_marginal_likelihood(data.x, data.z, **data.noise_arguments)
    other = data._replace(known=2.0 * data.known)
    found = gp.log_marginal_likelihood(data.x, data.z, **other.noise_arguments)
    close(found, dense.log_marginal_likelihood(data.z, *other.observed()))
    without = data._replace(known=None)
    found = gp.log_marginal_likelihood(data.x, data.z)
    close(found, dense.log_marginal_likelihood(data.z, *without.observed()))
    close(gp.log_marginal_likelihood(), before)
    gp.condition(data.x, data.z)
    close(gp.log_marginal_likelihood(), found)
    assert_is_posterior(gp.predict(AT), without)


@pytest.mark.long
def test_a_traced_posterior_sees_the_noise_of_later_data():
    data = noisy_data("proper", True, False)
    gp = data.model(cgp.ExactGP)
    gp.condition(data.x, data.z)
    variance = tf.function(lambda x: gp.posterior(x).variance())
    close(variance(tf.constant(AT)), gp.predict(AT)["variance"])
    gp.condition(data.x, data.z, **data.noise_arguments)
    close(variance(tf.constant(AT)), gp.predict(AT)["variance"])


def test_a_traced_likelihood_without_noise_refuses_that_of_later_data():
    data = noisy_data("proper", True, False)
    gp = data.model(cgp.ExactGP)
    gp.condition(data.x, data.z)
    likelihood = tf.function(gp.log_marginal_likelihood)
    close(likelihood(), gp.log_marginal_likelihood())
    gp.condition(data.x, data.z, **data.noise_arguments)
    with pytest.raises(tf.errors.InvalidArgumentError, match="had none when this function was"):
        likelihood()


@pytest.mark.parametrize(
    "kind", [cgp.ExactGP, pytest.param(cgp.StateSpaceGP, marks=pytest.mark.long)]
)
def test_is_noise_saved_with_the_data(kind, tmp_path):
    data = noisy_data("improper noise", True, True, batch=(2,))
    gp = data.model(kind)
    gp.condition(data.x, data.z, **data.noise_arguments)
    gp.save(path := tmp_path / "gp.keras")
    loaded = keras.saving.load_model(path)
    close(loaded.log_marginal_likelihood(), gp.log_marginal_likelihood())
    np.testing.assert_array_equal(loaded.noise_variance, GROUPS)
    found, expected = (a.predict(AT, observed=True, noise_groups=1) for a in (loaded, gp))
    for a, b in zip(found.values(), expected.values(), strict=True):
        close(a, b)


@pytest.mark.long
@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_fit_learns_what_is_not_known(kind):
    rng = np.random.default_rng(0)
    x = np.arange(120.0)
    known, groups = np.where(x < 60, 2.0, 0.0), (np.arange(120) % 2).astype(int)
    deviation = np.sqrt(0.5 * (np.array([0.05, 0.4])[groups] + known))
    z = np.exp(0.1j * x) + deviation * (rng.normal(size=120) + 1j * rng.normal(size=120))
    kernel = cgp.kernels.Matern32(1.0, 30.0) * cgp.kernels.Rotation(0.016)
    gp = kind(kernel, [0.1, 0.1])
    gp.compile()
    start = gp.log_marginal_likelihood(x, z, noise_variance=known, noise_groups=groups)
    loss = gp.fit(x, z, epochs=12, verbose=0, noise_variance=known, noise_groups=groups)
    end = gp.log_marginal_likelihood()
    assert float(end) > float(start) + 1.0
    close(min(loss.history["loss"]), -float(end) / 120)
    close(gp.evaluate(x, z, verbose=0, noise_variance=known, noise_groups=groups), -end / 120)
    low, high = gp.noise_variance.numpy()
    assert 0.02 < low < 0.1
    assert 0.25 < high < 0.6


@pytest.mark.parametrize(
    "kind", [cgp.ExactGP, pytest.param(cgp.StateSpaceGP, marks=pytest.mark.long)]
)
def test_does_noise_of_groups_that_was_left_out_start_from_the_data(kind):
    data = noisy_data("improper", True, True)
    gp = kind(data.problem.kernel, [None, None], priors={"noise_variance": None})
    with pytest.raises(ValueError, match=r"left out, and not learned yet: .*noise_variance"):
        gp.log_marginal_likelihood(data.x, data.z, **data.noise_arguments)
    gp = kind.from_config(gp.get_config())
    assert gp.noise_variance.is_left_out
    started(gp, data.x, data.z, **data.noise_arguments)
    noise = gp.noise_variance.numpy()
    assert np.all((noise > 1e-4) & (noise < 10.0))
    k, c = data.problem.pair(data.x[:, None], data.x[:, None])
    k += np.diag(noise[data.groups] + np.nan_to_num(data.known))
    expected = dense.log_marginal_likelihood(data.z, k, c)
    close(gp.log_marginal_likelihood(), expected)
    close(gp.evaluate(data.x, data.z, verbose=0, **data.noise_arguments), -expected / 11)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_is_noise_left_out_of_all_groups_or_of_none(kind):
    kernel = Matern12(1.0, 1.0)
    assert kind(kernel, np.array([None, None])).noise_variance.is_left_out
    for wrong, message in (
        ([None, 0.1], "every group or for none"),
        ([], "a number, or one for each group"),
    ):
        with pytest.raises(ValueError, match=message):
            kind(kernel, wrong)
    with pytest.raises(ValueError, match="fixed, but was left out"):
        kind(kernel, [None, None], fixed="noise_variance")


@pytest.mark.long
@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_is_noise_of_groups_that_was_left_out_learned(kind, tmp_path):
    """Each group has the weak prior, which keeps the one without noise above rounding."""
    rng = np.random.default_rng(0)
    x, groups = np.arange(80.0), np.arange(80) // 40
    z = np.exp(0.1j * x) + np.array([0.5, 0.0])[groups] * (rng.normal(size=(80, 2)) @ [1, 1j])
    gp = kind(cgp.kernels.Matern52() * cgp.kernels.Rotation(), [None, None])
    again = kind.from_config(gp.get_config())
    again.compile(cgp.optimizers.LBFGS())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again.fit(x, z, noise_groups=groups, restarts=2, verbose=0)
    noisy, clean = again.noise_variance.numpy()
    assert 0.3 < noisy < 0.8
    assert 0.0 < clean < 1e-3
    assert not any("leave it out" in str(one.message) for one in said)
    again.save(path := tmp_path / "groups.keras")
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded.noise_variance, again.noise_variance)
    close(loaded.log_marginal_likelihood(), again.log_marginal_likelihood())


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_bad_noise_is_refused_and_changes_nothing(kind):
    data = noisy_data("proper", True, False)
    gp = data.model(kind)
    gp.condition(data.x, data.z, **data.noise_arguments)
    before = gp.log_marginal_likelihood()
    for bad, error, message in (
        (-0.1, ValueError, "finite and not negative, got -0.1"),
        (np.where(np.arange(12) == 4, np.nan, 0.1), ValueError, "got nan"),
        (np.inf, ValueError, "got inf"),
        (1j, TypeError, "must be real numbers, got complex128"),
        ("much", TypeError, "must be real numbers"),
        (np.ones(11), ValueError, r"against z of shape \(12,\), got shape \(11,\)"),
        (np.ones((2, 12)), ValueError, r"got shape \(2, 12\)"),
    ):
        with pytest.raises(error, match=message):
            gp.condition(data.x, -data.z, noise_variance=bad)
    with pytest.raises(ValueError, match="the model has one noise variance"):
        gp.condition(data.x, data.z, noise_groups=np.zeros(12, int))
    with pytest.raises(ValueError, match="x and z belong together"):
        gp.log_marginal_likelihood(noise_variance=0.1)
    with pytest.raises(ValueError, match="give observed=True"):
        gp.predict(AT, noise_variance=0.1)
    with pytest.raises(ValueError, match=r"\[3\] for as many new points, got shape \(2,\)"):
        gp.predict(AT, observed=True, noise_variance=[0.1, 0.2])
    close(gp.log_marginal_likelihood(), before)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_bad_groups_are_refused(kind):
    data = noisy_data("proper", False, True)
    gp = data.model(kind)
    for bad, error, message in (
        (None, ValueError, "a noise variance for each of 2 groups: give noise_groups"),
        (2, ValueError, "from 0 to 1, as noise_variance has 2 values, got 2"),
        (-1, ValueError, "got -1"),
        (0.0, TypeError, "must be integers, got float64"),
        (np.zeros(3, int), ValueError, r"against z of shape \(12,\), got shape \(3,\)"),
    ):
        with pytest.raises(error, match=message):
            gp.condition(data.x, data.z, noise_groups=bad)
    gp.condition(data.x, data.z, noise_groups=data.groups)
    with pytest.raises(ValueError, match="give noise_groups"):
        gp.predict(AT, observed=True)
    with pytest.raises(ValueError, match="give noise_groups"):
        gp((data.x, data.z))
    with pytest.raises(ValueError, match="positive"):
        kind(data.problem.kernel, [0.1, 0.0])
    with pytest.raises(ValueError, match="at most noise_variance in modulus"):
        kind(data.problem.kernel, [0.1, 1.0], 0.2)


@pytest.mark.parametrize(("name", "known", "grouped"), KINDS)
def test_state_space_gp_is_the_dense_process(name, known, grouped):
    data = noisy_data(name, known, grouped)
    gp = data.model(cgp.StateSpaceGP)
    gp.condition(data.x, data.z, **data.noise_arguments)
    expected = dense.log_marginal_likelihood(data.z, *data.observed())
    close(gp.log_marginal_likelihood(), expected)
    assert_is_posterior(gp.predict(AT), data)
    observed = {"noise_variance": [0.3, 0.0, 1.0], "noise_groups": [1, 0, 0] if grouped else None}
    found = gp.predict(AT, observed=True, **observed)
    assert_is_posterior(found, data, (observed["noise_variance"], observed["noise_groups"]))
    drawn = gp.sample(AT, 4000, seed=0, observed=True, **observed)
    close(drawn.var(axis=0), found["variance"], 0.1)
    variable = gp.noise_variance.variable
    if grouped:
        with tf.GradientTape() as tape:
            value = gp.log_marginal_likelihood()
        gradient = tf.convert_to_tensor(tape.gradient(value, variable.value))
        assert_are_differences(gp.log_marginal_likelihood, variable, gradient)


def test_series_with_noise_of_their_own_have_states_of_their_own():
    data = noisy_data("improper", True, True, batch=(2,))
    gp = data.model(cgp.StateSpaceGP)
    gp.condition(data.x, data.z, **data.noise_arguments)
    value, found = gp.log_marginal_likelihood(), gp.predict(AT)
    later = gp.step(11.5, data.z[:, 0], noise_variance=[0.1, 2.0], noise_groups=[1, 0])
    for i in range(2):
        one = data._replace(z=data.z[i], known=data.known[i], groups=data.groups[i])
        close(value[i], dense.log_marginal_likelihood(one.z, *one.observed()))
        assert_is_posterior({name: a[i] for name, a in found.items()}, one)
        mean, k, _ = dense.posterior(one.z, *one.observed(), *one.at(np.array([11.5])))
        noise, _ = one.noise([0.1, 2.0][i], [1, 0][i])
        close(later.predicted.mean[i], mean[0])
        close(later.predicted.variance[i], k[0, 0].real + noise)


def one_step(data, i):
    """Predicted and filtered moments of sample i of a series in order, by dense algebra."""
    before, upto = data.where(slice(0, i)), data.where(slice(0, i + 1))
    at = data.x[i : i + 1]
    found = [dense.posterior(d.z, *d.observed(), *d.at(at)) for d in (before, upto)]
    (mean, k, c), (filtered, k_after, c_after) = found
    noise, pseudo = data.noise(*(None if a is None else a[i] for a in data.noise_of_samples))
    predicted = mean[0], k[0, 0].real + noise, c[0, 0] + pseudo
    return predicted, (filtered[0], k_after[0, 0].real, c_after[0, 0])


def assert_are_steps(found, data, first, tolerance=1e-10):
    """The steps are the dense ones from sample `first` on; `found` is a list of `Step`s."""
    for i, step in enumerate(found, first):
        predicted, filtered = one_step(data, i)
        if not np.isnan(data.z[i]):
            close(step.predicted, predicted, tolerance)
            close(step.filtered, filtered, tolerance)


def in_order(data):
    return data.where(np.argsort(data.x, kind="stable"))


def unstacked(step):
    return [step.map(lambda a, t=t: a[t]) for t in range(len(step.innovation))]


def one_by_one(gp, data, chosen):
    """Steps with the samples `chosen`."""
    found = []
    for i in chosen:
        own = {name: value[i] for name, value in data.noise_arguments.items()}
        found.append(gp.step(data.x[i], data.z[i], **own))
    return found


@pytest.mark.parametrize(("name", "known", "grouped"), LONG_IF_PROPER)
@pytest.mark.parametrize("without_core_too", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_stream_of_a_state_space_gp_is_the_dense_process(
    name, known, grouped, without_core_too, without_core
):
    data = in_order(noisy_data(name, known, grouped))

    def steps():
        gp = data.model(cgp.StateSpaceGP)
        head = data.where(slice(0, 4))
        gp.condition(head.x, head.z, **head.noise_arguments)
        found = one_by_one(gp, data, range(4, 7))
        block = data.where(slice(7, 10))
        found += unstacked(gp.process(block.x, block.z, **block.noise_arguments))
        return found + one_by_one(gp, data, range(10, 12)), gp

    found, gp = steps()
    assert_are_steps(found, data, 4)
    close(gp.log_marginal_likelihood(), dense.log_marginal_likelihood(data.z, *data.observed()))
    close(gp.predict([12.0])["variance"], variance_at_the_end(data))
    lower = data._replace(level=0.9)  # the stream goes on from the samples and their noise
    gp.noise_variance.assign(lower.learned)
    close(gp.predict([12.0])["variance"], variance_at_the_end(lower))
    if without_core_too:
        assert_are_steps(without_core(steps)[0], data, 4)


def variance_at_the_end(data):
    _, k, _ = dense.posterior(data.z, *data.observed(), *data.at(np.array([12.0])))
    return k[0].real


def test_a_stream_takes_in_samples_with_and_without_noise_of_their_own():
    data = in_order(noisy_data("proper", True, False))
    data.known[[1, 5, 6, 10]] = 0.0
    gp = data.model(cgp.StateSpaceGP)
    found = []
    for i, known in enumerate(data.known):
        own = {"noise_variance": known} if known else {}
        found.append(gp.step(data.x[i], data.z[i], **own))
    assert_are_steps(found[1:], data, 1)
    close(gp.log_marginal_likelihood(), dense.log_marginal_likelihood(data.z, *data.observed()))
    gp.noise_variance.assign(data.learned)
    close(gp.predict([12.0])["variance"], variance_at_the_end(data))
    with pytest.raises(ValueError, match="must be a number, as z is, got shape"):
        gp.step(13.0, 1j, noise_variance=[0.1, 0.2])
    with pytest.raises(ValueError, match="not negative"):
        gp.process([13.0], [1j], noise_variance=-0.1)
    close(gp.predict([12.0])["variance"], variance_at_the_end(data))


def test_noise_is_dropped_with_its_samples():
    data = in_order(noisy_data("proper", True, False, n=40))
    gp = data.model(cgp.StateSpaceGP)
    short = pytest.MonkeyPatch()
    with short.context() as patch:
        patch.setattr(cgp.gp.state_space.history.History, "kept", 8)
        found = one_by_one(gp, data, range(40))
        assert_are_steps(found[1:], data, 1)
        held = gp._history.data
        assert held.z.shape[1] < 40
        close(held.noise.variance[0], np.nan_to_num(data.known[-held.z.shape[1] :]))


def assert_window_is_dense(gp, data, tolerance=1e-10):
    """The posterior is that of the samples."""
    mean, k, c = dense.posterior(data.z, *data.observed(), *data.at(np.array([12.0])))
    found = gp.predict([12.0])
    close(found["mean"], mean, tolerance)
    close(found["variance"], k[0].real, tolerance)
    close(found["pseudo_variance"], c[0], tolerance)


@pytest.mark.parametrize(
    ("policy", "name", "known", "grouped", "traced", "without_core_too"),
    [
        ("growing", *KINDS[0], False, False),
        ("growing", *KINDS[1], False, False),
        ("sliding", *KINDS[1], False, False),
        ("budget", *KINDS[1], False, False),
        pytest.param("sliding", *KINDS[0], True, True, marks=pytest.mark.long),
        pytest.param("sliding", *KINDS[1], True, True, marks=pytest.mark.long),
        pytest.param("budget", *KINDS[0], True, False, marks=pytest.mark.long),
        pytest.param("budget", *KINDS[1], True, False, marks=pytest.mark.long),
    ],
)
def test_a_window_with_room_is_the_dense_process(
    name, known, grouped, policy, traced, without_core_too, without_core
):
    data = in_order(noisy_data(name, known, grouped))

    def steps():
        gp = data.model(cgp.RecursiveGP, capacity=12, policy=policy)
        block = data.where(slice(5, 12))
        with contextlib.nullcontext() if traced else by_core_or_eagerly(gp):
            found = one_by_one(gp, data, range(5))
            return found + unstacked(gp.process(block.x, block.z, **block.noise_arguments)), gp

    found, gp = steps()
    assert_are_steps(found[1:], data, 1)
    assert_window_is_dense(gp, data)
    close(
        gp.predict([12.0], observed=True, noise_groups=1 if grouped else None)["variance"],
        variance_at_the_end(data) + data.noise(None, 1 if grouped else None)[0],
    )
    other = data._replace(level=0.7)
    gp.noise_variance.assign(other.learned)  # what is known of the noise stays
    assert_window_is_dense(gp, other)
    if without_core_too:
        assert_are_steps(without_core(steps)[0][1:], data, 1)


@pytest.mark.parametrize(("name", "known", "grouped"), LONG_IF_PROPER)
def test_a_sliding_window_is_the_dense_process_of_the_last_samples(name, known, grouped):
    data = in_order(noisy_data(name, known, grouped))
    seen = np.flatnonzero(~np.isnan(data.z))
    gp = data.model(cgp.RecursiveGP, capacity=4)
    one_by_one(gp, data, range(7))
    block = data.where(slice(7, 12))
    gp.process(block.x, block.z, **block.noise_arguments)
    last = data.where(seen[-4:])
    assert_window_is_dense(gp, last)
    other = last._replace(level=0.7)
    gp.noise_variance.assign(other.learned)
    assert_window_is_dense(gp, other)


def test_a_window_takes_in_samples_with_and_without_noise_of_their_own():
    data = in_order(noisy_data("proper", True, False))
    data.known[[1, 5, 6, 10]] = 0.0
    gp = data.model(cgp.RecursiveGP, capacity=5)
    for i, known in enumerate(data.known):
        gp.step(data.x[i], data.z[i], **({"noise_variance": known} if known else {}))
    last = data.where(np.flatnonzero(~np.isnan(data.z))[-5:])._replace(level=0.7)
    gp.noise_variance.assign(last.learned)
    assert_window_is_dense(gp, last)
    gp.process([10.5, 11.0, 11.5], [1j, 1.0 + 0j, -1j])
    x, z = np.append(last.x[3:], [10.5, 11.0, 11.5]), np.append(last.z[3:], [1j, 1.0, -1j])
    last = last._replace(x=x, z=z, known=np.append(last.known[3:], [0.0] * 3))
    assert_window_is_dense(gp, last)
    last = last._replace(level=0.8)
    gp.noise_variance.assign(last.learned)
    assert_window_is_dense(gp, last)
    gp.reset()
    gp.step(0.0, 1j)
    alone = last._replace(x=np.zeros(1), z=np.array([1j]), known=None)
    assert_window_is_dense(gp, alone)


def test_streams_with_noise_of_their_own():
    data = in_order(noisy_data("improper noise", True, True))
    z, known = np.stack([data.z, -1j * data.z]), np.stack([data.known, data.known[::-1]])
    known, groups = np.nan_to_num(known), np.stack([data.groups, 1 - data.groups])
    gp = data.model(cgp.RecursiveGP, capacity=4)
    gp.process(data.x[:6], z[:, :6], noise_variance=known[:, :6], noise_groups=groups[:, :6])
    for i in range(6, 12):
        gp.step(data.x[i], z[:, i], noise_variance=known[:, i], noise_groups=groups[:, i])
    found = gp.predict([12.0])["variance"]
    for row in range(2):
        one = data._replace(z=z[row], known=known[row], groups=groups[row])
        close(found[row], variance_at_the_end(one.where(np.flatnonzero(~np.isnan(z[row]))[-4:])))


@pytest.mark.parametrize("policy", ["sliding", pytest.param("budget", marks=pytest.mark.long)])
def test_is_noise_saved_with_the_window(policy, tmp_path):
    data = in_order(noisy_data("improper noise", True, True))
    gp = data.model(cgp.RecursiveGP, capacity=6, policy=policy)
    gp.process(data.x, data.z, **data.noise_arguments)
    gp.save(path := tmp_path / "gp.keras")
    loaded = keras.saving.load_model(path)
    for model in (gp, loaded):
        model.noise_variance.assign(0.7 * GROUPS)
    for a, b in zip(loaded.predict(AT).values(), gp.predict(AT).values(), strict=True):
        close(a, b)


def test_a_window_saved_before_points_had_noise_loads():
    data = in_order(noisy_data("proper", False, False))
    gp, other = (data.model(cgp.RecursiveGP, capacity=6) for _ in range(2))
    for model in (gp, other):
        model.process(data.x, data.z)
    other.reset()
    store = {}
    gp.save_own_variables(store)
    own = saved_variables(gp)
    before = [store[str(i)] for i, v in enumerate(own) if v.name != "window_noise_variance"]
    assert len(before) == len(own) - 1
    other.load_own_variables({str(i): value for i, value in enumerate(before)})
    close(other.predict(AT)["variance"], gp.predict(AT)["variance"])


@eagerly_or_in_a_graph
def test_a_stream_is_fitted_with_its_noise(eagerly):
    data = in_order(noisy_data("proper", True, True))
    if eagerly:
        data = data.where(slice(0, 5))
    gp = data.model(cgp.RecursiveGP, capacity=12)
    gp.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    likelihood = dense.log_marginal_likelihood(data.z, *data.observed())
    loss = gp.evaluate(data.x, data.z, verbose=0, **data.noise_arguments)
    close(loss, -likelihood / np.sum(~np.isnan(data.z)))
    history = gp.fit(
        data.x, data.z, batch_size=3 if eagerly else 4, verbose=0, **data.noise_arguments
    )
    close(history.history["loss"], [loss])
    assert_window_is_dense(gp, data)
    with pytest.raises(ValueError, match="give noise_groups"):
        gp.step(13.0, 1j)
    with pytest.raises(ValueError, match="give noise_groups"):
        gp((data.x[:, None], data.z))
    assert_window_is_dense(gp, data)


@pytest.mark.parametrize(
    ("name", "count", "traced"),
    long_except(
        [("improper", 8, False), ("improper", 16, True), ("proper", 16, True)],
        ("improper", 8, False),
    ),
)
def test_a_budget_counts_known_noise_as_learned_noise(name, count, traced):
    data = in_order(noisy_data(name, False, False, n=count))
    gp, known = (data.model(cgp.RecursiveGP, capacity=5, policy="budget") for _ in range(2))
    gp.noise_variance.assign(0.5)
    with contextlib.nullcontext() if traced else by_core_or_eagerly(known):
        for i in range(0, count, 4):
            block = data.where(slice(i, i + 4))
            expected = gp.process(block.x, block.z)
            found = known.process(block.x, block.z, noise_variance=0.3)
            close(found.predicted.variance, expected.predicted.variance)
            close(found.filtered.mean, expected.filtered.mean)
    gp.noise_variance.assign(0.9)
    known.noise_variance.assign(0.6)
    for a, b in zip(known.predict(AT).values(), gp.predict(AT).values(), strict=True):
        close(a, b)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP, cgp.RecursiveGP])
def test_single_precision(kind):
    data = in_order(noisy_data("proper", True, True))
    kernel = Matern32(1.3, 2.0, dtype="float32") * Rotation(0.4, dtype="float32")
    kernel += Matern12(0.5, 1.5, dtype="float32")
    own = {} if kind is not cgp.RecursiveGP else {"capacity": 12}
    gp = kind(kernel, data.learned, **own)
    take = gp.process if kind is cgp.RecursiveGP else gp.condition
    take(data.x.astype("float32"), data.z.astype("complex64"), **data.noise_arguments)
    assert gp.predict(AT)["variance"].dtype == np.float32
    assert_is_posterior(gp.predict(AT), data, tolerance=1e-4)


exact_and_state_space = pytest.mark.parametrize(
    ("kind", "grouped"), [(cgp.ExactGP, False), (cgp.StateSpaceGP, True)]
)


@pytest.mark.long
@exact_and_state_space
def test_graphs_see_the_noise_of_each_series_of_the_data(kind, grouped):
    data = noisy_data("improper noise", True, grouped, batch=(2,))
    gp = data.model(kind)
    gp.condition(data.x, data.z, **data.noise_arguments)
    expected = gp.log_marginal_likelihood()
    close(tf.function(gp.log_marginal_likelihood)(), expected)
    close(
        tf.function(lambda x: gp.posterior(x).variance())(tf.constant(AT)),
        gp.predict(AT)["variance"],
    )


@pytest.mark.long
@exact_and_state_space
def test_a_graph_takes_the_noise_of_each_series(kind, grouped):
    data = noisy_data("improper noise", True, grouped, batch=(2,))
    gp = data.model(kind)
    expected = gp.log_marginal_likelihood(data.x, data.z, **data.noise_arguments)

    @tf.function
    def likelihood(z, known):
        own = {"noise_groups": data.groups} if grouped else {}
        return gp.log_marginal_likelihood(data.x, z, noise_variance=known, **own)

    close(likelihood(tf.constant(data.z), tf.constant(data.known)), expected)


@pytest.mark.parametrize("name", ["proper", "all improper"])
@pytest.mark.long
def test_a_budget_of_one_group_is_that_of_its_noise_variance(name):
    data = in_order(noisy_data(name, False, True, n=16))
    for group in (0, 1):
        alone = data._replace(groups=None, level=GROUPS[group] / GROUPS[0])
        gp = data.model(cgp.RecursiveGP, capacity=5, policy="budget")
        pseudo = data.pseudo * alone.level
        one = cgp.RecursiveGP(
            data.problem.kernel, GROUPS[group], pseudo, capacity=5, policy="budget"
        )
        found = gp.process(data.x, data.z, noise_groups=group)
        expected = one.process(data.x, data.z)
        close(found.predicted.variance, expected.predicted.variance)
        gp.noise_variance.assign(0.6 * GROUPS)
        one.noise_variance.assign(0.6 * GROUPS[group])
        for a, b in zip(gp.predict(AT).values(), one.predict(AT).values(), strict=True):
            close(a, b)


@eagerly_or_in_a_graph
def test_gradients_of_a_stream_are_those_of_differences(eagerly):
    data = in_order(noisy_data("proper", True, True))
    gp = data.model(cgp.RecursiveGP, capacity=12)
    gp.process(
        data.x[:6],
        data.z[:6],
        noise_variance=np.nan_to_num(data.known[:6]),
        noise_groups=data.groups[:6],
    )
    gp.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    rest = data.where(slice(6, 9 if eagerly else 12))
    variable = gp.noise_variance.variable

    def value():
        return gp.evaluate(rest.x, rest.z, verbose=0, **rest.noise_arguments)

    with tf.GradientTape() as tape:
        noise = (
            tf.constant(np.nan_to_num(rest.known))[None],
            tf.constant(rest.groups, tf.int32)[None],
        )
        gp((tf.constant(rest.x[:, None]), tf.constant(rest.z), SampleNoise(*noise)))
        loss = gp.losses[0]
    gradient = tf.convert_to_tensor(tape.gradient(loss, variable.value))
    assert_are_differences(value, variable, gradient)
