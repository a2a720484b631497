"""Learning while filtering: the loss of a block, its gradient, and the state it leaves."""

import keras
import numpy as np
import pytest
import tensorflow_probability as tfp

import cgp
from cgp.kernels import Matern32, Rotation
from tests.gp.recursive.streams import (
    CAPACITY,
    assert_predictions,
    assert_steps,
    assign,
    borrowed,
    by_core_or_eagerly,
    exact,
    named,
    stepped,
    stream,
    tracker,
)
from tests.long_cases import eagerly_or_in_a_graph
from tests.reference import kernels as reference_kernels
from tests.reference import recursive as reference

X_NEW = np.array([-1.0, 0.3, 2.2, 5.0, 11.0])
START = 22  # of the samples that are learned from: before it there are data already
HOLES = (0, 4, 25, 26)

long = pytest.mark.long
# On a budget to trace what takes samples in is longest; it is the same for each of them.
few_policies_by_default = pytest.mark.parametrize(
    "policy",
    ["sliding", pytest.param("growing", marks=long), pytest.param("budget", marks=long)],
)
improper_by_default = pytest.mark.parametrize(
    "name", [pytest.param("proper", marks=long), "all improper"]
)
EXACT = [
    ("growing", "all improper", 1.0),
    ("sliding", "proper", 1.0),
    ("sliding", "all improper", 0.93),
]
# What learns is traced for one of each policy.
exact_and_eagerly = pytest.mark.parametrize(
    ("policy", "name", "forgetting", "eagerly"),
    [
        (*EXACT[2], True),
        pytest.param(*EXACT[0], False, marks=long),
        pytest.param(*EXACT[2], False, marks=long),
    ],
)
budget_and_eagerly = pytest.mark.parametrize(
    ("name", "eagerly"),
    [
        ("all improper", True),
        pytest.param("all improper", False, marks=long),
        pytest.param("proper", True, marks=long),
    ],
)
# To trace a training step takes seconds: tests keep to a few of these.
NAMES = {"growing": "all improper", "sliding": "proper", "budget": "all improper"}
exact_ones = pytest.mark.parametrize("policy", ["sliding", pytest.param("growing", marks=long)])


def pair_of(values):
    """The reference's covariance functions under hyperparameters by name."""

    def pair(x1, x2):
        k = reference_kernels.matern32(
            x1, x2, values["matern32.variance"], values["matern32.lengthscale"]
        ) * reference_kernels.rotation(x1, x2, values["rotation.frequency"])
        k = k + reference_kernels.rbf(x1, x2, values["rbf.variance"], values["rbf.lengthscale"])
        coefficient = values.get("widelylinear.coefficient", 0.0)
        return reference_kernels.widely_linear(k, 0 * k, coefficient)

    return pair


def noise_of(values):
    variance = values["noise_variance"]
    return variance, values.get("noise_circularity", 0.0) * variance


def block_loss(values, x, z, start, window=None, forgetting=1.0):
    """The negative log density of z[start:] given what came before, per sample."""
    k, c = pair_of(values)(x[:, None], x[:, None])
    density = reference.block_log_density(
        z, k, c, noise_of(values), start, window=window, forgetting=forgetting
    )
    return -density / (~np.isnan(z[start:])).sum()


def values(gp):
    return np.hstack([np.ravel(v) for v in gp.parameters().values()])


def gradient_step(gp, fit):
    """The gradient that SGD has followed: by how much each variable has moved."""
    before, rate = [v.numpy() for v in gp.trainable_variables], 2.0**-12
    gp.optimizer.learning_rate = rate
    fit()
    after = [v.numpy() for v in gp.trainable_variables]
    return np.hstack([np.ravel(b - a) / rate for b, a in zip(before, after, strict=True)])


def central_differences(gp, loss, h=1e-5):
    """Of a function of the hyperparameters by name, for each element of each variable."""
    found = []
    for variable in gp.trainable_variables:
        was = variable.numpy()
        for index in np.ndindex(was.shape):
            sides = []
            for sign in (1, -1):
                step = np.zeros(was.shape)
                step[index] = sign * h
                variable.assign(was + step)
                sides.append(loss())
            found.append((sides[0] - sides[1]) / (2 * h))
        variable.assign(was)
    return np.array(found)


def central_difference(gp, loss, direction, h=1e-5):
    """In one direction of all variables, one after the other."""
    variables, start = gp.trainable_variables, 0
    was = [v.numpy() for v in variables]
    parts = []
    for value in was:
        parts.append(direction[start : start + value.size].reshape(value.shape))
        start += value.size
    sides = []
    for sign in (1, -1):
        for variable, value, part in zip(variables, was, parts, strict=True):
            variable.assign(value + sign * h * part)
        sides.append(loss())
    return (sides[0] - sides[1]) / (2 * h)


# --- the loss -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "name", "forgetting", "eagerly"),
    [
        (*EXACT[1], False),
        pytest.param(*EXACT[0], True, marks=long),
        pytest.param(*EXACT[0], False, marks=long),
        pytest.param(*EXACT[2], True, marks=long),
    ],
)
def test_is_the_loss_the_density_of_a_block_given_what_is_held(policy, name, forgetting, eagerly):
    end = START + 6 if eagerly else 40
    x, z = (a[:end] for a in stream(missing=HOLES))
    gp = borrowed(name, policy, forgetting, eagerly=eagerly)
    gp.process(x[:START], z[:START])
    expected = block_loss(gp.parameters(), x, z, START, CAPACITY[policy], forgetting)
    size, before = gp.size, gp.predict(X_NEW)
    np.testing.assert_allclose(gp.evaluate(x[START:], z[START:], verbose=0), expected, rtol=1e-9)
    assert gp.size == size
    assert_predictions(gp.predict(X_NEW), before, rtol=0, atol=0)
    history = gp.fit(x[START:], z[START:], batch_size=end - START, verbose=0)
    np.testing.assert_allclose(history.history["loss"], [expected], rtol=1e-9)


@budget_and_eagerly
def test_is_the_loss_on_a_budget_that_of_the_moments(name, eagerly):
    end = START + 6 if eagerly else 40
    x, z = (a[:end] for a in stream(missing=HOLES))
    gp = borrowed(name, "budget", eagerly=eagerly)
    other = reference.Tracker(
        pair_of(gp.parameters()), noise_of(gp.parameters()), CAPACITY["budget"], 0.93
    )
    gp.process(x[:START], z[:START])
    other.process(x[:START, None], z[:START])
    expected = -other.block_log_density(x[START:, None], z[START:]) / (end - START - 2)
    np.testing.assert_allclose(gp.evaluate(x[START:], z[START:], verbose=0), expected, rtol=1e-9)


@improper_by_default
@eagerly_or_in_a_graph
def test_is_the_loss_of_a_first_block_its_marginal_likelihood(name, eagerly):
    x, z = stream(n=17 if eagerly else 40)
    gp = borrowed(name, "growing", eagerly=eagerly)
    expected = -exact(gp, x, z).log_marginal_likelihood(x, z) / (~np.isnan(z)).sum()
    np.testing.assert_allclose(gp.evaluate(x, z, verbose=0), expected, rtol=1e-9)
    assert gp.size == 0


@few_policies_by_default
def test_are_blocks_consecutive_each_given_those_before(policy):
    """And the last one may be shorter."""
    x, z = stream(missing=())
    gp = borrowed(NAMES[policy], policy)
    sums = []
    for start in (10, 18, 26, 34):
        gp.reset()
        gp.process(x[:start], z[:start])
        block = np.s_[start : start + 8]
        sums.append(len(x[block]) * gp.evaluate(x[block], z[block], verbose=0))
    gp.reset()
    gp.process(x, z)
    expected = gp.predict(X_NEW)
    gp.reset()
    gp.process(x[:10], z[:10])
    history = gp.fit(x[10:], z[10:], batch_size=8, verbose=0)
    np.testing.assert_allclose(history.history["loss"], [np.sum(sums) / 30], rtol=1e-9)
    assert_predictions(gp.predict(X_NEW), expected)


@eagerly_or_in_a_graph
def test_is_the_loss_of_many_streams_the_mean_over_all_their_samples(eagerly):
    x, z = stream(missing=())
    z = np.stack([z, 1j * z + 0.5, -z])
    holes = [(0, 24), (1, 25), (1, 26)] if eagerly else [(0, 30), (1, 31), (1, 35)]
    z[tuple(np.transpose(holes))] = np.nan
    if eagerly:
        x, z = x[: START + 6], z[:, : START + 6]
    gp = borrowed("all improper", "sliding", shape="three streams", eagerly=eagerly)
    gp.process(x[:START], z[:, :START])
    sums = []
    for b in range(3):
        seen = (~np.isnan(z[b, START:])).sum()
        loss = block_loss(gp.parameters(), x, z[b], START, CAPACITY["sliding"])
        sums.append(seen * loss)
    expected = np.sum(sums) / (~np.isnan(z[:, START:])).sum()
    np.testing.assert_allclose(gp.evaluate(x[START:], z[:, START:], verbose=0), expected, rtol=1e-9)


# --- its gradient ---------------------------------------------------------------------------------


@exact_and_eagerly
def test_does_its_gradient_pass_through_the_stored_factor(policy, name, forgetting, eagerly):
    """It is that of the density whose every covariance depends on the hyperparameters."""
    end = START + 5 if eagerly else 40
    x, z = (a[:end] for a in stream(missing=HOLES))
    gp = borrowed(name, policy, forgetting, eagerly=eagerly)
    gp.process(x[:START], z[:START])
    expected = central_differences(
        gp, lambda: block_loss(gp.parameters(), x, z, START, CAPACITY[policy], forgetting)
    )
    losses, loss = [], block_loss(gp.parameters(), x, z, START, CAPACITY[policy], forgetting)

    def fit():
        history = gp.fit(x[START:], z[START:], batch_size=end - START, verbose=0)
        losses.extend(history.history["loss"])

    found = gradient_step(gp, fit)
    np.testing.assert_allclose(losses, [loss], rtol=1e-9)
    assert found.shape == ((6,) if name == "proper" else (10,))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@budget_and_eagerly
def test_is_the_gradient_on_a_budget_that_of_its_loss(name, eagerly):
    """In one direction of few samples eagerly, by each element of more of them in a graph."""
    x, z = stream(missing=HOLES)
    end = START + 2 if eagerly else 40
    block = x[START:end], z[START:end]
    gp = borrowed(name, "budget", eagerly=eagerly)
    gp.process(x[:START], z[:START])
    found = gradient_step(gp, lambda: gp.fit(*block, batch_size=end - START, verbose=0))
    gp = borrowed(name, "budget", eagerly=eagerly)
    gp.process(x[:START], z[:START])

    def loss():
        return gp.evaluate(*block, verbose=0)

    if eagerly:
        direction = np.random.default_rng(0).normal(size=found.shape)
        found, expected = found @ direction, central_difference(gp, loss, direction)
    else:
        expected = central_differences(gp, loss)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@eagerly_or_in_a_graph
def test_does_a_prior_weigh_as_one_of_the_samples_of_the_block_and_those_held(eagerly):
    x, z = stream(missing=())
    prior = tfp.distributions.LogNormal(np.log(0.5), 0.1)
    gp = tracker(named("proper"), policy="growing", capacity=40, priors={"noise_variance": prior})
    gp.compile(run_eagerly=eagerly)
    gp.process(x[:START], z[:START])
    density = tfp.distributions.LogNormal(np.float64(np.log(0.5)), np.float64(0.1))
    log_prior = float(density.log_prob(np.float64(0.2)))
    expected = block_loss(gp.parameters(), x, z, START) - log_prior / 40
    found = gp.evaluate(x[START:], z[START:], verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# --- what it leaves -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("sliding", "proper"),
        pytest.param("growing", "all improper", marks=long),
        pytest.param("budget", "proper", marks=long),
    ],
)
def test_do_hyperparameters_move_and_the_state_with_them(policy, name):
    """After learning the state is that of the same stream under the final hyperparameters."""
    x, z = stream()
    gp = borrowed(name, policy, capacity=40 if policy == "budget" else None)  # nothing is pruned
    gp.process(x[:10], z[:10])
    before = values(gp)
    gp.optimizer.learning_rate = 0.05
    gp.fit(x[10:], z[10:], batch_size=7, epochs=3, verbose=0)
    assert (np.abs(values(gp) / before - 1) > 1e-7).all()
    found, size = gp.predict(X_NEW), gp.size
    gp.reset()
    gp.process(x, z)
    assert gp.size == size
    assert_predictions(found, gp.predict(X_NEW), rtol=1e-8, atol=1e-8)


@few_policies_by_default
def test_does_each_epoch_start_from_the_state_before(policy):
    x, z = stream(missing=())
    gp = borrowed(NAMES[policy], policy)
    gp.process(x, z)
    expected, size = gp.predict(X_NEW), gp.size
    gp.reset()
    gp.process(x[:10], z[:10])
    history = gp.fit(x[10:], z[10:], batch_size=10, epochs=3, verbose=0)
    assert len(history.history["loss"]) == 3
    np.testing.assert_allclose(history.history["loss"], history.history["loss"][0], rtol=1e-12)
    assert gp.size == size
    assert_predictions(gp.predict(X_NEW), expected)


@exact_ones
def test_do_steps_after_learning_go_on_as_those_of_a_new_process(policy):
    x, z = stream(missing=HOLES)
    gp = borrowed(NAMES[policy], policy)
    gp.optimizer.learning_rate = 0.02
    before = gp.parameters()
    stepped(gp, x[:12], z[:12])
    gp.fit(x[12:START], z[12:START], batch_size=5, epochs=2, verbose=0)
    assert gp.parameters() != before
    now = {name.replace(".", "_"): value for name, value in gp.parameters().items()}
    fresh = assign(tracker(named(NAMES[policy]), policy=policy, capacity=CAPACITY[policy]), **now)
    with by_core_or_eagerly(fresh):
        fresh.process(x[:START], z[:START], verbose=0)
        expected = stepped(fresh, x[START:32], z[START:32])
    assert_steps(stepped(gp, x[START:32], z[START:32]), expected, rtol=1e-8, atol=1e-9)
    assert gp.size == fresh.size
    assert_predictions(gp.predict(X_NEW), fresh.predict(X_NEW), rtol=1e-8, atol=1e-8)


def test_does_a_second_fit_go_on_where_the_first_has_ended():
    x, z = stream()
    gp = borrowed("proper", "sliding")
    gp.optimizer.learning_rate = 0.02
    for block in (np.s_[:12], np.s_[12:20], np.s_[20:40]):
        gp.fit(x[block], z[block], batch_size=5, epochs=2, verbose=0)
    held = reference.last_seen(z, CAPACITY["sliding"])
    assert gp.size == len(held)
    assert_predictions(gp.predict(X_NEW), exact(gp, x[held], z[held]).predict(X_NEW))


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("sliding", "proper"),
        pytest.param("growing", "all improper", marks=long),
        pytest.param("growing", "proper", marks=long),
        pytest.param("sliding", "all improper", marks=long),
    ],
)
def test_does_a_hyperparameter_changed_by_hand_take_effect_at_once(name, policy):
    x, z = stream()
    gp = borrowed(name, policy)
    gp.process(x[:START], z[:START])
    held = reference.last_seen(z[:START], CAPACITY[policy])
    for changed in ({"rotation_frequency": 0.1}, {"noise_variance": 0.7}):
        assign(gp, **changed)
        assert_predictions(gp.predict(X_NEW), exact(gp, x[held], z[held]).predict(X_NEW))
    assign(gp, matern32_lengthscale=0.5)  # and not asked for before the next step
    now = gp.parameters()
    k, c = pair_of(now)(x[:, None], x[:, None])
    expected = reference.refitted(z, k, c, noise_of(now), CAPACITY[policy])
    step = gp.step(x[START], z[START])
    for part in ("predicted", "filtered"):
        moments = [m[START] for m in getattr(expected, part)]
        np.testing.assert_allclose(getattr(step, part), moments, rtol=1e-9, atol=1e-9)
    assign(gp, matern32_variance=3.0)
    expected = block_loss(gp.parameters(), x, z, START + 1, CAPACITY[policy])
    found = gp.evaluate(x[START + 1 :], z[START + 1 :], verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_does_a_custom_training_loop_leave_a_current_state():
    x, z = stream()
    gp = borrowed("all improper", "sliding")
    gp.process(x, z)
    for v in gp.trainable_variables:
        v.assign(v + 0.1)
    gp.apply_post_updates()
    held = reference.last_seen(z, CAPACITY["sliding"])
    assert_predictions(gp.predict(X_NEW), exact(gp, x[held], z[held]).predict(X_NEW))


@long
def test_does_learning_find_a_tone_and_its_offset_and_leave_what_is_fixed():
    x = 0.25 * np.arange(240)
    rng = np.random.default_rng(0)
    noise = 0.1 * (rng.normal(size=240) + 1j * rng.normal(size=240))
    z = np.exp(2j * np.pi * 0.33 * x) + (0.7 - 0.2j) + noise
    kernel = Matern32(1.0, 10.0, fixed=["variance"]) * Rotation(0.3)
    gp = cgp.RecursiveGP(kernel, 0.1, mean=cgp.means.Constant(), capacity=32)
    gp.compile()
    assert isinstance(gp.optimizer, keras.optimizers.Adam)
    gp.optimizer.learning_rate = 0.1
    history = gp.fit(x, z, epochs=12, verbose=0)
    assert int(gp.optimizer.iterations) == 12 * 8  # 32 samples to a step
    loss = history.history["loss"]
    assert loss[-1] < loss[0] - 0.3
    found = gp.parameters()
    assert found["matern32.variance"] == pytest.approx(1.0, abs=1e-15)
    assert abs(found["rotation.frequency"] - 0.33) < 0.01
    assert abs(found["mean.value"] - (0.7 - 0.2j)) < 0.1
    assert found["noise_variance"] < 0.06
    assert_predictions(gp.predict(x[-3:]), exact(gp, x[-32:], z[-32:]).predict(x[-3:]))


def test_are_samples_missing_by_the_argument_missing_by_nan():
    x, z = stream(missing=())
    missing = np.zeros(40, bool)
    missing[[2, 30]] = True
    found = []
    for target, argument in ((z, missing), (np.where(missing, np.nan, z), None)):
        gp = borrowed("proper", "sliding")
        gp.optimizer.learning_rate = 0.01
        gp.fit(x, target, missing=argument, verbose=0)
        found.append((values(gp), gp.predict(X_NEW)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert_predictions(found[0][1], found[1][1], rtol=1e-12)


@exact_ones
def test_is_nothing_learned_from_a_block_without_observations(policy):
    x, z = stream(missing=range(16, 24))
    gp = borrowed(NAMES[policy], policy)
    gp.optimizer.learning_rate = 0.01
    before = values(gp)
    gp.fit(x[16:24], z[16:24], batch_size=8, verbose=0)
    np.testing.assert_array_equal(values(gp), before)
    gp.fit(x, z, batch_size=8, epochs=2, verbose=0)
    assert np.isfinite(values(gp)).all()
    held = reference.last_seen(z, CAPACITY[policy])
    assert_predictions(gp.predict(X_NEW), exact(gp, x[held], z[held]).predict(X_NEW))


def test_do_callbacks_and_progress_work_as_in_keras(capsys):
    x, z = stream()
    gp = borrowed("proper", "sliding")
    epochs, batches = [], []
    record = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda e, logs: epochs.append(e),
        on_train_batch_end=lambda b, logs: batches.append(b),
    )
    history = gp.fit(x, z, batch_size=10, epochs=2, callbacks=[record], verbose=0)
    assert capsys.readouterr().out == ""
    assert epochs == history.epoch == [0, 1]
    assert batches == [0, 1, 2, 3] * 2
    gp.fit(x, z, batch_size=10, verbose=1)
    assert "loss" in capsys.readouterr().out


# --- and when it fails ----------------------------------------------------------------------------


def seen_of(gp):
    return {**gp.predict(X_NEW), **gp.parameters(), "size": gp.size}


def assert_unchanged(gp, before):
    for name, value in seen_of(gp).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@eagerly_or_in_a_graph
def test_is_a_stream_that_does_not_fit_refused_before_anything_is_learned(eagerly):
    start, size, epochs = (38, 2, 2) if eagerly else (20, 5, 3)
    x, z = stream(n=50, missing=())
    gp = borrowed(NAMES["growing"], "growing", eagerly=eagerly)
    gp.optimizer.learning_rate = 0.1
    gp.process(x[:start], z[:start])
    before = seen_of(gp)
    with pytest.raises(ValueError, match="capacity"):
        gp.fit(x[start:], z[start:], batch_size=5, verbose=0)
    assert_unchanged(gp, before)
    block = np.s_[start:40]
    gp.fit(x[block], z[block], batch_size=size, epochs=epochs, verbose=0)  # each epoch anew
    assert gp.size == 40


@pytest.mark.parametrize("epochs", [0, -1, 0.5])
def test_is_a_fit_for_no_epochs_refused(epochs):
    x, z = stream()
    gp = borrowed("proper", "sliding")
    gp.process(x, z)
    before = seen_of(gp)
    with pytest.raises(ValueError, match="epochs"):
        gp.fit(x, z, epochs=epochs, verbose=0)
    assert_unchanged(gp, before)


@exact_ones
@pytest.mark.parametrize("epoch", [0, 1])
def test_does_an_interrupted_fit_leave_the_data_of_before_and_what_was_learned(policy, epoch):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, number, logs=None):
            self.epoch = number

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (epoch, 1):
                raise KeyboardInterrupt

    x, z = stream(missing=())
    gp = borrowed(NAMES[policy], policy)
    gp.optimizer.learning_rate = 0.05
    gp.process(x[:10], z[:10])
    before = values(gp)
    with pytest.raises(KeyboardInterrupt):
        gp.fit(x[10:], z[10:], batch_size=10, epochs=4, verbose=0, callbacks=[Interrupt()])
    assert np.abs(values(gp) - before).max() > 1e-3
    held = np.arange(10)[-CAPACITY[policy] :]
    other = exact(gp, x[held], z[held]).predict(X_NEW)
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], other["mean"], rtol=0, atol=1e-8)


def test_does_a_fit_that_diverges_say_so_and_take_the_stream_in_at_the_best_parameters():
    x, z = stream(missing=())
    gp = borrowed("proper", "sliding")
    gp.process(x[:10], z[:10])
    gp.optimizer.learning_rate = 1e6
    before = gp.parameters()
    with pytest.warns(RuntimeWarning, match=r"has diverged, to noise_variance = .*matern"):
        gp.fit(x[10:], z[10:], batch_size=5, epochs=5, verbose=0)
    assert gp.parameters() == before  # the first step has led away
    assert gp.size == CAPACITY["sliding"]
    held = np.arange(len(x))[-CAPACITY["sliding"] :]
    other = exact(gp, x[held], z[held]).predict(X_NEW)
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], other["mean"], rtol=0, atol=1e-8)
    assert np.isfinite(gp.step(x[-1] + 0.5, 1j).filtered.mean)


def test_does_a_fit_that_cannot_begin_leave_the_data_and_can_it_be_put_right():
    x, z = stream(missing=())
    gp = borrowed("proper", "sliding")
    gp.process(x[:10], z[:10])
    gp.noise_variance.variable.assign(np.nan)
    with pytest.raises((ValueError, cgp.NotPositiveDefiniteError)):
        gp.fit(x[10:], z[10:], batch_size=5, epochs=5, verbose=0)
    for p in gp.named_hyperparameters().values():
        p.assign(1.0)
    assert gp.size == CAPACITY["sliding"]
    held = np.arange(10)[-CAPACITY["sliding"] :]
    other = exact(gp, x[held], z[held]).predict(X_NEW)
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], other["mean"], rtol=0, atol=1e-8)
    assert np.isfinite(gp.step(0.5, 1j).filtered.mean)
