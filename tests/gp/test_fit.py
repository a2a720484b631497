"""Learning hyperparameters: one factorisation a step, the same optimum by every road."""

import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
import cgp.gp.exact_gp
from cgp.kernels import RBF, Matern12, Matern32, Rotation, WidelyLinear
from cgp.training import Objective
from tests.gp.problems import complex_normals, problems, series
from tests.long_cases import eagerly_and_in_a_graph

X_NEW = np.linspace(-1.0, 12.0, 7)


def tone(seed=0, n=60):
    """A carrier that loses its phase, in noise."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 20.0, n))
    process = cgp.ExactGP(Matern32(1.0, 3.0) * Rotation(0.31), 0.08)
    return x, process.sample(x, seed=seed, observed=True)[0]


def model(**kwargs):
    return cgp.ExactGP(Matern32(1.0, 5.0) * Rotation(0.3), noise_variance=0.1, **kwargs)


def fresh_copy(gp, x, z):
    """A model with the same hyperparameters that has never been trained."""
    other = cgp.clone_model(gp)
    other.set_weights(gp.get_weights())
    other.condition(x, z)
    return other


def data_of(kind):
    x, z = tone()
    if kind == "holes":
        z[3:7] = np.nan
    elif kind == "own holes":
        z = np.stack([z, 1j * z])
        z[0, 2] = np.nan
    return x, z


@pytest.fixture
def factorizations(monkeypatch):
    """Counts factorisations as they are executed, in graphs too."""
    count = []

    def counted(a):
        token = tf.py_function(lambda: count.append(1) or 0.0, [], tf.float64)
        with tf.control_dependencies([token]):
            return cgp.linalg.cholesky(a)

    for module in (cgp.gp.exact_gp, cgp.gp.signal_plus_noise):
        monkeypatch.setattr(module, "cholesky", counted)
    return count


@pytest.mark.parametrize(
    ("kind", "eagerly"),
    [
        ("own holes", True),
        *(
            pytest.param(kind, False, marks=pytest.mark.long)
            for kind in ("whole", "holes", "own holes")
        ),
    ],
)
def test_does_a_training_step_factorize_once(factorizations, kind, eagerly):
    x, z = data_of(kind)
    gp = model()
    gp.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    gp.fit(x, z, epochs=5, verbose=0)
    assert len(factorizations) == 1 + 5  # to take the data in, and after each gradient step
    gp.predict(X_NEW)
    gp.predict(X_NEW, observed=True)
    gp.loo()
    gp.log_marginal_likelihood(x, z)
    assert len(factorizations) == 6


@pytest.mark.long
def test_does_an_evaluation_of_lbfgs_factorize_once(factorizations):
    x, z = tone()
    gp = model()
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)
    # one to take the data in, one at the end where the last evaluation was not the best point
    assert gp.optimizer.result.nfev <= len(factorizations) <= gp.optimizer.result.nfev + 2
    before = len(factorizations)
    gp.predict(X_NEW)
    assert len(factorizations) == before


PROBLEMS = {problem.name: problem for problem in problems()}


@eagerly_and_in_a_graph(("name",), PROBLEMS, PROBLEMS, ["all improper"])
def test_is_the_loss_the_negative_log_likelihood_per_point(name, eagerly):
    x, z = series(missing=[1, 4])
    gp = PROBLEMS[name].gp()
    before = gp.log_marginal_likelihood(x, z)
    gp.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    history = gp.fit(x, z, verbose=0)
    np.testing.assert_allclose(history.history["loss"], [-before / 23], rtol=1e-12)
    np.testing.assert_allclose(gp.evaluate(x, z, verbose=0), -before / 23, rtol=1e-12)


@pytest.mark.long
def test_do_adam_and_lbfgs_meet():
    x, z = tone()
    first, second = model(), model()
    first.compile(optimizer=cgp.optimizers.LBFGS())
    history = first.fit(x, z, verbose=0)
    assert history.history["loss"][-1] == min(history.history["loss"])
    second.compile(optimizer=keras.optimizers.Adam(0.05))
    second.fit(x, z, epochs=400, verbose=0)
    for name, value in first.parameters().items():
        np.testing.assert_allclose(second.parameters()[name], value, rtol=1e-4)
    assert np.abs(_gradient(first, x, z)).max() < 1e-4 * len(x)
    assert abs(first.parameters()["rotation.frequency"] - 0.31) < 0.03


def _gradient(gp, x, z):
    with tf.GradientTape() as tape:
        y = gp.log_marginal_likelihood(x, z)
    return np.hstack([g.numpy().ravel() for g in tape.gradient(y, gp.trainable_variables)])


@pytest.mark.parametrize(
    ("optimizer", "run_eagerly"),
    [
        pytest.param(cgp.optimizers.LBFGS, True, marks=pytest.mark.long),
        (lambda: keras.optimizers.Adam(0.05), True),
        pytest.param(cgp.optimizers.LBFGS, False, marks=pytest.mark.long),
        pytest.param(lambda: keras.optimizers.Adam(0.05), False, marks=pytest.mark.long),
    ],
)
def test_is_the_factor_current_after_training(optimizer, run_eagerly):
    x, z = tone()
    gp = model()
    gp.compile(optimizer=optimizer(), run_eagerly=run_eagerly)
    gp.fit(x, z, epochs=6, verbose=0)
    expected = fresh_copy(gp, x, z).predict(X_NEW)
    for name, value in gp.predict(X_NEW).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("eagerly", [True, False])
def test_can_other_data_be_fitted_next(eagerly):
    gp = model()
    gp.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=eagerly)
    for n in (20, 33, 20):
        x, z = tone(n, n)
        gp.fit(x, z, epochs=3, verbose=0)
        expected = fresh_copy(gp, x, z).predict(X_NEW)["mean"]
        np.testing.assert_allclose(gp.predict(X_NEW)["mean"], expected, rtol=1e-12)


@pytest.mark.parametrize("n_series", [(3,), (2, 2)])
@pytest.mark.long
def test_are_series_of_a_batch_learned_together(n_series):
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0.0, 20.0, 40))
    z = np.exp(2j * np.pi * 0.31 * x) * complex_normals(rng, *n_series, 1)
    z = z + 0.2 * complex_normals(rng, *n_series, 40)
    gp = model()
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)
    total = sum(gp.log_marginal_likelihood(x, one).numpy() for one in z.reshape(-1, 40))
    np.testing.assert_allclose(gp.evaluate(x, z, verbose=0), -total / z.size, rtol=1e-10)
    assert np.abs(_gradient_of_sum(gp, x, z)).max() < 1e-3


def _gradient_of_sum(gp, x, z):
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(gp.log_marginal_likelihood(x, z)) / z.size
    return np.hstack([g.numpy().ravel() for g in tape.gradient(y, gp.trainable_variables)])


def test_is_the_loss_of_a_batch_that_of_its_series():
    x, z = tone(n=12)
    z = np.stack([z, 2j * z.conj(), z + 1.0]).reshape(3, 1, 12)
    gp = model()
    gp.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    total = sum(gp.log_marginal_likelihood(x, one).numpy() for one in z[:, 0])
    np.testing.assert_allclose(gp.evaluate(x, z, verbose=0), -total / z.size, rtol=1e-10)


def test_does_a_prior_pull_and_a_fixed_parameter_stay():
    x, z = tone()
    prior = tfp.distributions.LogNormal(np.log(2.0), 0.01)
    kernel = Matern32(1.0, 5.0, priors={"lengthscale": prior}, fixed=["variance"]) * Rotation(0.3)
    gp = cgp.ExactGP(kernel, 0.1)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    history = gp.fit(x, z, verbose=0)
    found = gp.parameters()
    assert found["matern32.variance"] == pytest.approx(1.0, abs=1e-15)
    assert found["matern32.lengthscale"] == pytest.approx(2.0, rel=0.03)
    exact = tfp.distributions.LogNormal(np.float64(np.log(2.0)), np.float64(0.01))
    log_density = gp.log_marginal_likelihood(x, z) + exact.log_prob(found["matern32.lengthscale"])
    np.testing.assert_allclose(history.history["loss"][-1], -log_density / len(x), rtol=1e-9)


@pytest.mark.parametrize(
    "optimizer",
    [
        cgp.optimizers.LBFGS,
        pytest.param(lambda: keras.optimizers.Adam(0.05), marks=pytest.mark.long),
    ],
)
def test_do_callbacks_and_history_work_as_in_keras(optimizer):
    x, z = tone()
    gp = model()
    gp.compile(optimizer=optimizer())
    epochs = []
    record = keras.callbacks.LambdaCallback(on_epoch_end=lambda e, logs: epochs.append(e))
    history = gp.fit(x, z, epochs=4, callbacks=[record], verbose=0)
    assert epochs == history.epoch == [0, 1, 2, 3]
    stop = keras.callbacks.EarlyStopping(monitor="loss", min_delta=10.0, patience=1)
    history = gp.fit(x, z, epochs=50, callbacks=[stop], verbose=0)
    assert len(history.history["loss"]) == 2


@pytest.mark.long
def test_is_progress_shown(capsys):
    x, z = tone(n=20)
    gp = model()
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, z, epochs=3, verbose=1)
    assert "loss" in capsys.readouterr().out
    gp.fit(x, z, epochs=3, verbose=0)
    assert capsys.readouterr().out == ""


@pytest.mark.long
def test_does_a_failed_line_search_step_not_end_the_fit(monkeypatch):
    """Steps of L-BFGS to a covariance that cannot be factorised are turned back."""
    x, z = tone()

    def fitted():
        gp = cgp.ExactGP(RBF(1.0, 1.0), 0.1)
        gp.compile(optimizer=cgp.optimizers.LBFGS())
        gp.fit(x, z, verbose=0)
        return gp.parameters()

    expected, evaluate, calls = fitted(), Objective.__call__, []

    def failing(self, point):
        calls.append(point)
        if len(calls) in (2, 6):
            raise cgp.NotPositiveDefiniteError("the matrix is not positive definite")
        return evaluate(self, point)

    monkeypatch.setattr(Objective, "__call__", failing)
    for name, value in fitted().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, err_msg=name)
    assert len(calls) > 6


@pytest.mark.parametrize(
    ("optimizer", "z", "said"),
    [
        (
            lambda: keras.optimizers.Adam(1e3),
            tone(n=12)[1],
            ["diverged, to noise_variance = inf, "],
        ),
        pytest.param(
            cgp.optimizers.LBFGS,
            np.zeros(12),
            [r"stopped before.*matern12\.variance = \d\S*e-\d", "nothing to learn from"],
            marks=pytest.mark.long,
        ),
    ],
    ids=["Adam", "LBFGS"],
)
def test_does_a_fit_that_diverges_keep_the_data_and_the_best_parameters(optimizer, z, said):
    x, other = np.linspace(0.0, 5.0, 12), tone(n=12)[1]
    gp, z = cgp.ExactGP(Matern12(1.0, 1.0), 0.1), z.astype(complex)
    gp.compile(optimizer=optimizer(), run_eagerly=optimizer is not cgp.optimizers.LBFGS)
    gp.condition(x, other)
    before = gp.parameters()
    with contextlib.ExitStack() as warned:
        for words in said:
            warned.enter_context(pytest.warns(RuntimeWarning, match=words))
        history = gp.fit(x, z, verbose=0, epochs=None if np.all(z == 0) else 8)
    assert all(0.0 < value < np.inf for value in gp.parameters().values())
    if history.diverged:  # in its first step
        assert gp.parameters() == before
    else:
        loss = -gp.log_marginal_likelihood(x, z) / len(x)
        np.testing.assert_allclose(loss, min(history.history["loss"]), rtol=1e-9)
    expected = fresh_copy(gp, x, z).predict(X_NEW)["mean"]
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("run_eagerly", [pytest.param(False, marks=pytest.mark.long), True])
def test_are_predictions_after_a_divergence_those_of_the_best_parameters_and_the_new_data(
    run_eagerly,
):
    class Leap(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            starts.append(self.model.parameters())
            self.model.optimizer.learning_rate = 0.05 if epoch < 3 else 1e3

    gp, starts = model(), []
    gp.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=run_eagerly)
    gp.condition(*tone(1, 33))  # other data, of another number
    gp.predict(X_NEW)
    x, z = tone(n=20)
    z[4] = np.nan
    with pytest.warns(RuntimeWarning, match="has diverged.*again those of the start of epoch 3"):
        gp.fit(x, z, epochs=9, callbacks=[Leap()], verbose=0)
    assert gp.parameters() == starts[3] != starts[0]
    restored = gp.parameters()
    fresh = cgp.ExactGP(
        Matern32(restored["matern32.variance"], restored["matern32.lengthscale"])
        * Rotation(restored["rotation.frequency"]),
        restored["noise_variance"],
    )
    fresh.condition(x, z)
    for observed in (False, True):
        expected = fresh.predict(X_NEW, observed=observed)
        for name, value in gp.predict(X_NEW, observed=observed).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        gp.log_marginal_likelihood(), fresh.log_marginal_likelihood(), rtol=1e-12
    )
    np.testing.assert_allclose(gp.loo()["mean"], fresh.loo()["mean"], rtol=1e-9)


@pytest.mark.long
def test_is_laplaces_covariance_the_inverse_hessian():
    x, z = tone(n=120)
    kernel = WidelyLinear(Matern32(1.0, 5.0, fixed=["variance"]) * Rotation(0.31), 0.3 + 0.2j)
    gp = cgp.ExactGP(kernel, 0.1)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    rng = np.random.default_rng(0)
    z = z + (0.3 + 0.2j) * z.conj() + 0.05 * complex_normals(rng, 120)
    gp.fit(x, z, verbose=0)
    names = list(gp.parameters())
    assert names == [
        "noise_variance",
        "widelylinear.coefficient",
        "matern32.variance",
        "matern32.lengthscale",
        "rotation.frequency",
    ]
    before = gp.predict(X_NEW)["mean"]
    covariance = gp.parameter_covariance()
    np.testing.assert_array_equal(gp.predict(X_NEW)["mean"], before)
    assert covariance.shape == (6, 6)  # the coefficient has two parts
    of_coefficient = gp.parameter_covariance(name="widelylinear.coefficient")
    np.testing.assert_allclose(of_coefficient, covariance[1:3, 1:3])
    with pytest.raises(ValueError, match="name must be one of noise_variance, "):
        gp.parameter_covariance(name="x")
    assert np.all(covariance[3] == 0)
    assert np.all(covariance[:, 3] == 0)

    # In constrained values, where the gradient vanishes too, by differences of the value alone.
    found = gp.parameters()
    coefficient = found[names[1]]
    rest = [found[name] for name in (names[0], *names[3:])]
    point = np.array([rest[0], coefficient.real, coefficient.imag, *rest[1:]])

    def loss(p):
        kernel = WidelyLinear(Matern32(1.0, p[3]) * Rotation(p[4]), p[1] + 1j * p[2])
        return -float(cgp.ExactGP(kernel, p[0]).log_marginal_likelihood(x, z))

    free = np.delete(np.delete(covariance, 3, 0), 3, 1)
    h = 0.02 * np.sqrt(np.diag(free))
    hessian = np.zeros((5, 5))
    steps = np.diag(h)
    for i in range(5):
        for j in range(i + 1):
            signs = [
                loss(point + a * steps[i] + b * steps[j]) * a * b for a in (1, -1) for b in (1, -1)
            ]
            hessian[i, j] = hessian[j, i] = sum(signs) / (4 * h[i] * h[j])
    np.testing.assert_allclose(
        free / np.outer(h, h),
        np.linalg.inv(hessian) / np.outer(h, h),
        rtol=0.02,
        atol=0.01 / 0.02**2,
    )
    errors = gp.parameter_errors()
    assert list(errors) == names
    np.testing.assert_allclose(errors["matern32.lengthscale"], np.sqrt(covariance[4, 4]))
    expected = np.sqrt(covariance[1, 1]) + 1j * np.sqrt(covariance[2, 2])
    np.testing.assert_allclose(errors["widelylinear.coefficient"], expected)
    assert errors["matern32.variance"] == 0.0


def test_are_errors_of_a_mean_and_the_noise_beside_it_those_of_their_closed_form():
    """Of N samples: σ²/√N of the noise variance σ², σ/√(2N) of each part of the mean."""
    z = 2.0 - 1j + complex_normals(np.random.default_rng(0), 9)
    noise = np.mean(np.abs(z - z.mean()) ** 2)
    gp = cgp.ExactGP(cgp.kernels.Zero(), noise, mean=cgp.means.Constant(z.mean()))
    gp.condition(np.arange(9.0), z)
    errors = gp.parameter_errors(verbose=0)
    np.testing.assert_allclose(errors["noise_variance"], noise / 3.0, rtol=1e-4)
    np.testing.assert_allclose(errors["mean.value"], np.sqrt(noise / 18.0) * (1 + 1j), rtol=1e-4)
    assert gp.parameter_covariance().shape == (3, 3)


def test_does_laplace_say_what_the_data_do_not_determine():
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 30)
    gp = cgp.ExactGP(RBF(1.0, 1.0) * cgp.kernels.Constant(1.0), 0.1)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, complex_normals(rng, 30) + 3 * np.exp(4j * x), verbose=0)
    with pytest.raises(cgp.NotPositiveDefiniteError, match=r"constant\.variance, rbf\.variance"):
        gp.parameter_covariance()


def test_has_a_coefficient_at_the_edge_of_its_disk_no_standard_error():
    """A real signal: z = u + c conj(u) with |c| = 1."""
    rng = np.random.default_rng(0)
    x = np.arange(20.0)
    z = cgp.ExactGP(Matern32(1.0, 3.0), 1e-9).sample(x, seed=0)[0].real * np.exp(0.3j)
    gp = cgp.ExactGP(WidelyLinear(Matern32(1.0, 3.0), 0.9 * np.exp(0.6j)), 0.1)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    with pytest.warns(RuntimeWarning, match=r"coefficient has run to the edge of the unit disk"):
        gp.fit(x, z + 0.2 * complex_normals(rng, 20), verbose=0)
    assert abs(gp.parameters()["widelylinear.coefficient"]) > 1 - 1e-4
    with pytest.warns(UserWarning, match=r"widelylinear\.coefficient = .* at the edge of its set"):
        errors = gp.parameter_errors(verbose=0)
    edge = errors.pop("widelylinear.coefficient")
    assert np.isnan(edge.real)
    assert np.isnan(edge.imag)
    assert all(0 < error < np.inf for error in errors.values())


@pytest.mark.long
@pytest.mark.parametrize("learned", [False, True])
def test_have_powers_of_taps_that_are_not_there_no_standard_errors(learned):
    """The other powers have the errors of the model without those taps."""
    delays, x = np.array([0.0, 0.11, 0.23]), np.arange(32.0)
    there = cgp.kernels.TappedDelays(delays[:2], [1.0, 0.5], fixed="delays")
    z = cgp.ExactGP(there, 0.01).sample(x, 5, observed=True, seed=1)
    errors = []
    for powers in ([1.0, 0.5], [1.0, 0.5, 1e-12]):
        kernel = cgp.kernels.TappedDelays(delays[: len(powers)], powers, fixed="delays")
        gp = cgp.ExactGP(kernel, 0.01)
        if learned:
            gp.fit(x, z, verbose=0)
        else:
            gp.condition(x, z)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            errors.append(gp.parameter_errors(verbose=0)["tappeddelays.powers"])
    assert "tappeddelays.powers" in str(warned[0].message)
    assert np.isnan(errors[1][2])
    np.testing.assert_allclose(errors[1][:2], errors[0], rtol=1e-4)


def test_is_a_gp_trained_inside_another_model():
    """A learned map of the inputs before the process: gradients pass to both."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1, 1, (4, 15, 1)), complex_normals(rng, 4, 15)
    inputs = keras.Input((15, 1), dtype="float64"), keras.Input((15,), dtype="complex128")
    features = keras.layers.Dense(2, dtype="float64")(inputs[0])
    gp = cgp.ExactGP(RBF(1.0, [1.0, 2.0]), 0.1)
    outer = cgp.Functional(inputs, gp((features, inputs[1])))
    outer.compile(optimizer=keras.optimizers.SGD(2.0**-7))
    dense = next(layer for layer in outer.layers if isinstance(layer, keras.layers.Dense))

    def loss():
        inner = dense(tf.constant(x))
        return -tf.reduce_sum(gp.log_marginal_likelihood(inner, z)) / z.size

    with tf.GradientTape() as tape:
        value = loss()
    variables = outer.trainable_variables
    expected = [
        v.numpy() - 2.0**-7 * g.numpy()
        for v, g in zip(variables, tape.gradient(value, variables), strict=True)
    ]
    history = outer.fit((x, z), epochs=1, batch_size=4, verbose=0)
    np.testing.assert_allclose(history.history["loss"], [value], rtol=1e-12)
    for variable, after in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable, after, rtol=1e-10, atol=1e-14)
