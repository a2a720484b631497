"""Whatever happens to data or hyperparameters, and whoever compiled what before: never stale."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Rotation
from tests.gp.problems import complex_normals

T = 0.25 * np.arange(40)


def series(*shape, seed=0):
    rng = np.random.default_rng(seed)
    tone = np.exp(2j * np.pi * 0.84 * T) * rng.normal(size=(*shape, 1))
    return tone + 0.1 * complex_normals(rng, *shape, 40)


def model():
    return cgp.ExactGP(RBF(1.0, 1.0) * Rotation(0.84), noise_variance=0.01)


def assert_current(gp, z):
    fresh = cgp.ExactGP(gp.kernel, float(gp.noise_variance))
    fresh.condition(T, z)
    for name, value in fresh.predict(T).items():
        np.testing.assert_allclose(gp.predict(T)[name], value, rtol=1e-11, atol=1e-12)
    expected = fresh.log_marginal_likelihood(T, z)
    np.testing.assert_allclose(gp.log_marginal_likelihood(T, z), expected, rtol=1e-10)


def holes():
    z = series(3)
    z[0, 3] = z[1, 5] = np.nan
    return z


class MeanPower(cgp.Model):
    """Learns by the predictions of a process beside its likelihood, which has another factor."""

    def __init__(self, gp):
        super().__init__(dtype="float64")
        self.gp = gp

    def call(self, x):
        mean = self.gp.posterior(x).mean()
        self.gp(self.gp.stored_data())
        self.add_loss(tf.reduce_mean(tf.abs(mean) ** 2))
        return tf.math.real(mean)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_in_a_loss_that_predicts_along_a_line_search(run_eagerly):
    gp = model()
    gp.condition(T, series())
    reader = MeanPower(gp)
    reader.compile(cgp.optimizers.LBFGS(), run_eagerly=run_eagerly)
    loss = cgp.training.Objective(reader, (tf.constant([0.3, 4.1, 11.0], tf.float64), None, None))
    direction = np.array([1.0, -0.5, 0.3, 0.2])
    for point in (loss.start + 0.1 * direction, loss.start + 0.3 * direction):
        value, gradient = loss(point)
        fresh = cgp.ExactGP(gp.kernel, float(gp.noise_variance))
        fresh.condition(T, series())
        mean = fresh.predict([0.3, 4.1, 11.0])["mean"]
        expected = np.mean(np.abs(mean) ** 2) - fresh.log_marginal_likelihood() / len(T)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        slope = (loss(point + 1e-6 * direction)[0] - loss(point - 1e-6 * direction)[0]) / 2e-6
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-6)


@pytest.mark.parametrize("optimizer", [cgp.optimizers.LBFGS, lambda: keras.optimizers.Adam(0.3)])
@pytest.mark.long
def test_after_a_callback_has_restored_weights(optimizer):
    gp = model()
    gp.compile(optimizer())
    stop = keras.callbacks.EarlyStopping(
        "loss", patience=2, min_delta=10.0, restore_best_weights=True
    )
    gp.fit(T, series(), epochs=50, callbacks=[stop], verbose=0)
    assert_current(gp, series())
    gp.condition(T, series(seed=1))
    assert_current(gp, series(seed=1))


def test_after_weights_are_set():
    gp, other = model(), model()
    gp.condition(T, series())
    weights = gp.get_weights()
    gp.noise_variance.assign(5.0)
    gp.predict(T)
    gp.set_weights(weights)
    assert_current(gp, series())
    other.condition(T, series(seed=1))
    other.noise_variance.assign(0.3)
    other.predict(T)
    other.set_weights(weights)
    assert_current(other, series(seed=1))


@pytest.mark.parametrize(
    ("order", "eagerly"),
    [
        ([series(3), holes(), series()], True),
        pytest.param([series(), series(3), series()], False, marks=pytest.mark.long),
        pytest.param([series(3), holes(), series(3)], False, marks=pytest.mark.long),
        pytest.param([holes(), series(3), series(2, 3)], False, marks=pytest.mark.long),
    ],
)
def test_after_data_of_another_layout_are_fitted(order, eagerly):
    gp = model()
    gp.compile(keras.optimizers.Adam(0.1), run_eagerly=eagerly)
    for z in order:
        before = gp.log_marginal_likelihood(T, z)
        history = gp.fit(T, z, epochs=1 if eagerly else 3, verbose=0)
        expected = -np.sum(before) / np.isfinite(z).sum()
        np.testing.assert_allclose(history.history["loss"][0], expected, rtol=1e-10)
        assert_current(gp, z)


def test_is_a_loss_that_of_its_own_gaps():
    gp = model()
    gp.compile()
    gp.condition(T, series(3))
    z = series(3)
    z[1, 5:20] = np.nan
    expected = -np.sum(gp.log_marginal_likelihood(T, z)) / np.isfinite(z).sum()
    np.testing.assert_allclose(gp.evaluate(T, z, verbose=0), expected, rtol=1e-12)
    gp((tf.constant(T), tf.constant(z)))
    np.testing.assert_allclose(gp.losses[-1], expected, rtol=1e-12)


@pytest.mark.parametrize("change", ["x", "z", "a gap"])
def test_are_data_like_those_stored_told_from_them(change):
    gp, fresh = model(), model()
    gp.condition(T, series())
    x, z = T.copy(), series()
    if change == "x":
        x[3] += 0.1
    elif change == "z":
        z[3] += 0.1
    else:
        z[3] = np.nan
    expected = fresh.log_marginal_likelihood(x, z)
    np.testing.assert_allclose(gp.log_marginal_likelihood(x, z), expected, rtol=1e-12)
    gp((tf.constant(x), tf.constant(z)))
    np.testing.assert_allclose(gp.losses[-1], -expected / np.isfinite(z).sum(), rtol=1e-12)


def test_after_fixed_parameters_steps_and_plain_weights_of_a_kernel_have_changed():
    class Scaled(RBF):
        """A kernel with a weight that is no declared hyperparameter."""

        def __init__(self):
            super().__init__(1.0, 1.0, fixed=["variance"])
            self.stretch = self.add_weight(shape=(), initializer="ones", name="stretch")

        def moments(self, x1, x2):
            stretch = tf.convert_to_tensor(self.stretch.value)
            return super().moments(stretch * x1, stretch * x2)

    kernel, rotation = Scaled(), Rotation(0.84)
    gp = cgp.ExactGP(kernel * rotation, 0.01)
    gp.condition(T, series())
    for change in (
        lambda: kernel.variance.assign(3.0),
        lambda: rotation.frequency.step.assign(0.01),
        lambda: kernel.stretch.assign(1.7),
    ):
        gp.predict(T)
        change()
        assert_current(gp, series())


def test_does_a_posterior_not_mix_hyperparameters_of_two_times():
    gp = model()
    gp.condition(T, series())
    known, asked_later = gp.posterior(T[:5]), gp.posterior(T[:5])
    expected = known.covariance().numpy()
    gp.noise_variance.assign(0.5)
    np.testing.assert_array_equal(known.covariance(), expected)
    with pytest.raises(RuntimeError, match="hyperparameters have changed"):
        asked_later.sample()


def test_does_a_graph_of_before_any_data_see_them():
    gp = model()
    mean = tf.function(lambda x: gp(x)["mean"])
    x = tf.constant(T)
    np.testing.assert_array_equal(mean(x), np.zeros(40))
    for z in (series(), series(3), holes(), series(seed=4)):
        gp.condition(T, z)
        np.testing.assert_allclose(mean(x), gp.predict(T)["mean"], rtol=1e-11, atol=1e-12)


@pytest.mark.long
def test_does_a_functional_model_of_before_any_data_see_them():
    inputs = keras.Input((1,), dtype="float64")
    outer = cgp.Functional(inputs, model()(inputs))
    inner = outer.layers[-1]
    assert np.all(outer.predict(T[:, None], verbose=0)["mean"] == 0)
    inner.condition(T, series())
    found = outer.predict(T[:, None], verbose=0)["mean"]
    np.testing.assert_allclose(found, inner.predict(T)["mean"], rtol=1e-10)


@pytest.mark.long
def test_does_a_training_step_of_before_any_data_keep_them_current():
    gp = model()
    optimizer = keras.optimizers.Adam(0.1)

    @tf.function(autograph=False)
    def step(x, z):
        with tf.GradientTape() as tape:
            gp((x, z))
            loss = gp.losses[-1]
        variables = gp.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        gp.apply_post_updates()
        return loss

    step(tf.constant(T), tf.constant(series()))
    gp.condition(T, series(seed=1))
    step(tf.constant(T), tf.constant(series()))
    assert_current(gp, series(seed=1))


def test_is_a_process_not_split_between_devices(monkeypatch):
    class Two:
        num_replicas_in_sync = 2

    gp = model()
    gp.compile(keras.optimizers.Adam(0.1))
    gp.condition(T, series(seed=1))
    with monkeypatch.context() as patch:
        patch.setattr(cgp.ExactGP, "distribute_strategy", Two())
        for train in (gp.fit, gp.evaluate):
            with pytest.raises(ValueError, match="replica"):
                train(T, series(), verbose=0)
    assert_current(gp, series(seed=1))


def test_is_nothing_taken_in_by_a_fit_that_cannot_begin():
    gp = model()
    gp.compile()
    gp.condition(T, series())
    for arguments in ({"epochs": 2.5}, {"epochs": 0}, {"validation_split": 0.1}, {"batch_size": 3}):
        with pytest.raises((TypeError, ValueError), match=next(iter(arguments))):
            gp.fit(T[:5], series()[:5], verbose=0, **arguments)
    assert_current(gp, series())


def test_does_a_checkpoint_hold_hyperparameters_and_data(tmp_path):
    gp, other = model(), model()
    gp.condition(T, series())
    gp.noise_variance.assign(0.2)
    gp.kernel.parts[1].frequency.assign(0.9)
    path = tf.train.Checkpoint(model=gp).save(tmp_path / "gp")
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    assert other.parameters() == gp.parameters()
    assert_current(other, series())


def test_are_layers_that_a_kernel_builds_late_refused():
    class Warped(RBF):
        def __init__(self):
            super().__init__(1.0, 1.0)
            self.net = keras.layers.Dense(1, dtype="float64")

        def moments(self, x1, x2):
            return super().moments(self.net(x1), self.net(x2))

    gp = cgp.ExactGP(Warped(), 0.1)
    with pytest.raises(ValueError, match="too late to be watched"):
        gp.condition(T, series())


@pytest.mark.parametrize(
    ("improper", "of_several"),
    [
        pytest.param(True, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
        pytest.param(False, True, marks=pytest.mark.long),
    ],
)
def test_has_a_posterior_in_a_graph_all_that_it_has_outside(improper, of_several):
    kernel = RBF(1.0, 1.0) * Rotation(0.84)
    gp = cgp.ExactGP(cgp.kernels.WidelyLinear(kernel, 0.3j) if improper else kernel, 0.01)
    x = T[::9]

    def everything():
        p = gp.posterior(x, observed=True)
        value = p.log_prob(p.mean() + 0.1)
        return p.mean(), p.covariance(), p.pseudo_covariance(), value, p.sample(2, seed=1)

    # Each layout is traced anew.
    for z in (series(), series(3), holes()) if of_several else (holes(),):
        gp.condition(T, z)
        for found, expected in zip(
            tf.function(everything, autograph=False)(), everything(), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(lambda gp, x: gp(x)["mean"], marks=pytest.mark.long),
        lambda gp, x: gp.posterior(x).mean(),
    ],
)
def test_does_a_graph_without_data_say_so(asked):
    mean = cgp.means.Polynomial(1, marginalized=True)
    gp = cgp.ExactGP(RBF(1.0, 1.0), 0.1, mean=mean)
    graph = tf.function(lambda: asked(gp, tf.constant(T)), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no data"):
        graph()
