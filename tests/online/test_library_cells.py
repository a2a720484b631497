"""The cells of cgp's estimators in drivers that know cells alone; currency, and refusals."""

import threading
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12, RandomWalk, Rotation
from cgp.layers import Recursive
from cgp.likelihoods import OneBit
from cgp.online import Cell, Online, Sample, step_of

X = np.array([0.0, 0.4, 1.1, 1.5, 2.6, 3.0])
Z = np.exp(1j * X) + np.array([0.1, -0.2j, 0.05, 0.1j, -0.1, 0.2])


def process(kind=cgp.StateSpaceGP, noise_variance=0.2, **settings):
    return kind(Matern12(1.0, 3.0) * Rotation(0.1), noise_variance, **settings)


def kalman(**settings):
    model = cgp.statespace.LinearGaussian([[0.8]], [[0.3]], [[1.0]], [[0.2]])
    return cgp.KalmanFilter(model, **settings)


def complex_kalman(**settings):
    model = cgp.statespace.LinearGaussian(
        [[0.8 + 0.1j]], [[0.3]], [[1.0]], [[0.2]], initial_covariance="stationary"
    )
    return cgp.KalmanFilter(model, **settings)


CASES = {
    "state space": lambda: process(),
    "window": lambda: process(cgp.RecursiveGP, capacity=4),
    "budget": lambda: process(cgp.RecursiveGP, capacity=4, policy="budget"),
    "filter": lambda: complex_kalman(learn=("Q",)),
}


def series(estimator, streams=1):
    """Tensors of series `[B, T, ...]`, as fields of a sample."""
    z, x = np.tile(Z, [streams, 1]), np.tile(X[:, None], [streams, 1, 1])
    if isinstance(estimator, cgp.KalmanFilter):
        return Sample(tf.constant(z[..., None]))
    return Sample(tf.constant(z), tf.constant(x))


def variable_of(estimator):
    return estimator.trainable_variables[0]


def difference(function, variable, h=1e-5):
    start = np.asarray(variable)
    values = []
    for step in (h, -h):
        variable.assign(start + step)
        values.append(float(function()))
    variable.assign(start)
    return (values[0] - values[1]) / (2 * h)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("as_arrays", [False, True])
def test_do_gradients_pass_the_initial_state_of_any_sample(name, as_arrays):
    estimator = CASES[name]()
    cell, samples = estimator.cell, series(estimator)
    cell = cell.sized_for(samples) if samples.x is not None else cell
    first = samples.map(lambda a: np.asarray(a)[:, 0] if as_arrays else a[:, 0])

    def loss():
        return cell.follow(cell.initial_state(1, first), samples).loss

    variable = variable_of(estimator)
    with tf.GradientTape() as tape:
        value = loss()
    gradient = np.asarray(tape.gradient(value, variable.value)).ravel()
    assert gradient.shape == (1,)
    np.testing.assert_allclose(gradient[0], difference(loss, variable), rtol=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n == "budget" else ()) for n in CASES]
)
def test_is_a_layer_of_a_cell_called_and_trained_as_its_estimator(name):
    estimator = CASES[name]()
    layer, samples = Online(estimator.cell), series(estimator, streams=2)
    arrays = samples.z if samples.x is None else (samples.x, samples.z)
    variable = variable_of(estimator)
    assert any(v is variable for v in layer.trainable_variables)

    def score():
        outputs = layer(arrays)
        return tf.reduce_mean(outputs["filtered_variance"]) + layer.losses[0]

    with tf.GradientTape() as tape:
        value = score()
    gradient = np.asarray(tape.gradient(value, variable.value)).ravel()
    np.testing.assert_allclose(gradient[0], difference(score, variable), rtol=1e-5)
    expected = Recursive(estimator)(arrays)
    for key, a in layer(arrays).items():
        np.testing.assert_allclose(a, expected[key], rtol=1e-12, equal_nan=True)
    in_graph = tf.function(lambda: layer(arrays)["filtered_mean"])()
    np.testing.assert_allclose(in_graph, expected["filtered_mean"], rtol=1e-12)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n != "filter" else ()) for n in CASES]
)
def test_does_a_saved_model_of_a_cell_predict_series_and_step(name, tmp_path):
    estimator = CASES[name]()
    layer, samples = Online(estimator.cell), series(estimator)
    arguments = {k: a for k, a in samples._asdict().items() if a is not None}
    first = {k: np.asarray(a)[0, 0] for k, a in arguments.items()}
    layer.step(**first)
    layer.export(tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    arrays = samples.z if samples.x is None else (samples.x, samples.z)
    for key, a in layer(arrays).items():
        np.testing.assert_allclose(loaded.predict(**arguments)[key], a, rtol=1e-12, equal_nan=True)
    second = {k: np.asarray(a)[0, 1] for k, a in arguments.items()}
    expected = layer.step(**second)
    is_line = "x" in second
    tensors = {k: tf.constant(a[0] if is_line and k == "x" else a) for k, a in second.items()}
    np.testing.assert_allclose(
        loaded.step(**tensors)["filtered_mean"], expected.filtered.mean, rtol=1e-12
    )


def test_are_the_variables_of_a_cell_those_of_its_estimator():
    mean = cgp.means.Constant(0.5)
    for estimator in (
        complex_kalman(learn=("Q", "R")),
        process(cgp.RecursiveGP, capacity=4, mean=mean),
        process(mean=mean),
    ):
        expected = {id(v) for v in estimator.trainable_variables}
        for layer in (Recursive(estimator.cell), Online(estimator.cell)):
            assert {id(v) for v in layer.trainable_variables} == expected


# --- currency -------------------------------------------------------------------------------------


class Level(NamedTuple):
    mean: tf.Tensor


class Gained(Cell):
    """A level plus a gain times the observation, whose compiled step has the gain as a number."""

    State = Level

    def __init__(self):
        self.gain = keras.Variable(2.0, dtype="float64", name="gain")

    @property
    def weights(self):
        return [self.gain]

    def sample_spec(self):
        return Sample(z=tf.TensorSpec([], tf.complex128, "z"))

    def initial_state(self, batch_size, sample=None):
        return Level(tf.zeros([batch_size], tf.complex128))

    def step(self, state, sample):
        after = Level(state.mean + tf.cast(self.gain.value, tf.complex128) * sample.z)
        return after, step_of(sample.z, state.mean, after.mean)

    def compiled(self, streams):
        gain = float(self.gain.numpy())

        class Compiled:
            def serves(self, arrays, sample, values):
                return True

            def __call__(self, arrays, sample):
                if np.isnan(arrays[0]).any():  # the stream has not begun
                    return None
                z = np.atleast_1d(sample.z)
                before = tf.constant(arrays[0].copy())
                arrays[0] += gain * z
                step = step_of(tf.constant(z), before, tf.constant(arrays[0].copy()))
                step = step.map(np.asarray)
                return step.map(lambda a: a[0]) if np.ndim(sample.z) == 0 else step

        return Compiled()


def test_is_a_compiled_step_made_again_for_other_weights():
    cell = Gained()
    layer, bank = Online(cell), cgp.Bank(cell)
    for driver in (layer.step, lambda z: bank.update(["a"], [z])):
        cell.gain.assign(2.0)
        assert driver(1j).filtered.mean == 2j
        cell.gain.assign(10.0)
        assert driver(1j).filtered.mean == 12j


def test_does_a_learned_noise_that_goes_to_zero_rule_observations_out():
    model = cgp.statespace.LinearGaussian(
        [[1.0]], [[0.0]], [[1.0]], [[1.0]], initial_covariance=[[0.0]]
    )
    R = cgp.layers.Matrix([[1.0]])
    kf = cgp.KalmanFilter(model, learn={"R": R})
    bank = cgp.Bank(kf)
    kf.step(0.0)
    bank.update(["a"], [0.0])
    for variable in R.variables:
        variable.assign(tf.zeros_like(variable))
    with pytest.raises(ValueError, match="would not be finite"):
        kf.step(1.0)
    with pytest.raises(ValueError, match="would not be finite"):
        bank.update(["a"], [1.0])


def test_goes_a_layer_on_when_refused_hyperparameters_are_taken_back():
    gp = process()
    layer, expected = Online(gp.cell), Online(process().cell)
    for t in range(3):
        layer.step(Z[t], X[t : t + 1])
        expected.step(Z[t], X[t : t + 1])
    gp.noise_variance.assign(0.3)
    with pytest.raises(ValueError, match="reset the bank or the layer"):
        layer.step(Z[3], X[3:4])
    gp.noise_variance.assign(0.2)
    step, other = layer.step(Z[3], X[3:4]), expected.step(Z[3], X[3:4])
    np.testing.assert_allclose(step.filtered.mean, other.filtered.mean, rtol=1e-12)


def test_is_a_state_that_is_set_one_of_the_present_hyperparameters():
    gp = process()
    layer = Online(gp.cell)
    layer.step(Z[0], X[:1])
    gp.noise_variance.assign(0.3)
    other = process(noise_variance=0.3)
    reference = Online(other.cell)
    reference.step(Z[0], X[:1])
    layer.set_state(reference.state)
    step, expected = layer.step(Z[1], X[1:2]), reference.step(Z[1], X[1:2])
    np.testing.assert_allclose(step.filtered.mean, expected.filtered.mean, rtol=1e-12)


def test_is_no_sample_lost_when_hyperparameters_change_in_another_thread():
    gp = process(cgp.RecursiveGP, capacity=64, policy="growing")
    gp.step(0.0, 1j)
    places = iter(0.5 * np.arange(1.0, 31.0))
    lock = threading.Lock()

    def take():
        for _ in range(10):
            with lock:
                x = next(places)
            gp.step(x, 1j)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    turn = 0
    while any(thread.is_alive() for thread in threads):
        turn += 1
        gp.noise_variance.assign(0.2 + 0.01 * (turn % 5))
    for thread in threads:
        thread.join()
    assert gp.size == 31


# --- refusals -------------------------------------------------------------------------------------


def test_leaves_a_refused_first_sample_nothing_behind():
    gp = process(cgp.RecursiveGP, capacity=4)
    before = [v.path for v in gp.variables]
    for call, error in (
        (lambda: gp.step(0.0, 1j, likelihood="bad"), TypeError),
        (lambda: gp.process([0.0, np.nan], [1j, 1j]), ValueError),
    ):
        with pytest.raises(error):
            call()
        assert gp.stream is None
        assert [v.path for v in gp.variables] == before
    assert gp.step([0.0, 1.0], 1j).filtered.mean.shape == ()
    assert gp.size == 1


def test_leaves_an_impossible_first_observation_the_number_of_streams_open():
    model = cgp.statespace.LinearGaussian(
        [[1.0]], [[0.0]], [[1.0]], [[0.0]], initial_covariance=[[0.0]]
    )
    kf = cgp.KalmanFilter(model)
    with pytest.raises(ValueError, match="would not be finite"):
        kf.step([[1.0], [2.0]])
    assert kf.stream is None
    assert kf.step([0.0]).filtered.mean.shape == (1,)


def test_are_inputs_forgotten_with_the_state_and_of_each_driver():
    kernel = Matern12(1.0, 3.0, dtype="float32")
    gp = cgp.StateSpaceGP(kernel, 0.2, dtype="float32")
    layer = Online(gp.cell)
    for t in range(10):
        layer.step(np.complex64(1j), [np.float32(1e-6 * t)])
    gp.step(np.float32(1000.1), np.complex64(1j))
    layer.reset()
    assert layer.step(np.complex64(1j), [np.float32(1000.1)]).filtered.mean.shape == ()


@pytest.mark.parametrize(
    ("estimator", "x"),
    [
        (lambda: cgp.RecursiveGP(RandomWalk(1.0, start=5.0), 0.1, capacity=4), np.zeros(0)),
        (lambda: kalman(likelihood=OneBit()), None),
    ],
)
def test_takes_a_bank_no_samples_of_models_that_refuse_some(estimator, x):
    z = np.zeros(0) if x is None else np.zeros(0, complex)
    bank = cgp.Bank(estimator())
    step = bank.update([], z, x)
    assert step.innovation.shape[0] == 0
    assert len(bank) == 0


def test_takes_a_bank_without_keys_a_state_of_other_dimensions():
    gp = process(cgp.RecursiveGP, capacity=4)
    bank, other = cgp.Bank(gp), cgp.Bank(gp)
    bank.update(["a"], [1j], [[0.0, 1.0]])
    other.update(["b"], [1j], [0.5])
    bank.evict("a")
    bank.set_state("b", other.state("b"))
    assert bank.state("b").x.shape == (4, 1)


def test_says_a_bank_that_a_window_is_not_positive_definite():
    gp = process(cgp.RecursiveGP, capacity=4)
    bank = cgp.Bank(gp)
    bank.update(["a"], [1j], [0.0])
    gp.noise_variance.variable.assign(np.nan)
    with pytest.raises(cgp.NotPositiveDefiniteError):
        bank.update(["a"], [1j], [1.0])


class Count(NamedTuple):
    number: tf.Tensor


class Counter(Gained):
    """Counts samples in an integer."""

    State = Count

    def initial_state(self, batch_size, sample=None):
        return Count(tf.zeros([batch_size], tf.int32))


def test_is_a_state_without_floating_point_numbers_refused():
    with pytest.raises(TypeError, match="floating-point"):
        Online(Counter()).step(1j)


def test_is_a_block_without_samples_refused():
    layer = Online(Gained())
    with pytest.raises(ValueError, match="at least one sample"):
        layer.process(np.zeros(0, complex))
    assert layer.stream is None


class Checked(Gained):
    """Notes the shapes of the arrays that its check is given."""

    streams_axis = -1

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def initial_state(self, batch_size, sample=None):
        return Level(tf.zeros([batch_size, 3], tf.complex128))

    def step(self, state, sample):
        after = Level(state.mean + sample.z[:, None])
        return after, step_of(sample.z, state.mean[:, 0], after.mean[:, 0])

    def compiled(self, streams):
        return None

    def check_against(self, state, sample):
        self.shapes.add(state[0].shape)


def test_has_the_state_that_is_checked_its_streams_first():
    cell = Checked()
    layer, bank = Online(cell), cgp.Bank(cell)
    for _ in range(2):
        layer.step([1j, 2j])
        bank.update(["a", "b"], [1j, 2j])
    assert cell.shapes == {(2, 3)}


@pytest.mark.parametrize("name", ["state space", "window", "filter"])
@pytest.mark.parametrize("streams", [None, 2])
def test_is_a_forecast_of_a_layer_of_a_cell_as_of_a_bank(name, streams):
    estimator = CASES[name]()
    layer, bank = Online(estimator.cell), cgp.Bank(estimator)
    samples = series(estimator, streams or 1).map(lambda a: a.numpy())
    axes = slice(None) if streams else 0
    layer.process(**{k: a[axes] for k, a in samples._asdict().items() if a is not None})
    for t in range(len(X)):
        bank.update(range(streams or 1), *(a[:, t] for a in samples[:2] if a is not None))
    ahead = 3 if name == "filter" else X[-1] + np.array([0.0, 1.3])
    before = layer.state
    for a, expected in zip(layer.forecast(ahead), bank.forecast(ahead), strict=True):
        if a is not None or expected is not None:
            np.testing.assert_allclose(a, expected[axes], rtol=1e-12, strict=True)
    for a, unchanged in zip(layer.state, before, strict=True):
        np.testing.assert_array_equal(a, unchanged)


def test_has_a_layer_of_a_filter_a_forecast_with_inputs_before_any_sample():
    model = cgp.statespace.LinearGaussian([[0.8j]], [[0.3]], [[1.0]], [[0.2]], B=[[0.5]])
    kf, inputs = cgp.KalmanFilter(model), np.array([[1.0], [2.0j]])
    expected = kf.forecast(2, inputs)
    assert not np.allclose(expected.state_means, kf.forecast(2, 0 * inputs).state_means)
    for a, b in zip(Online(kf.cell).forecast(2, inputs), expected, strict=True):
        if a is not None or b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12, strict=True)


@pytest.mark.parametrize("name", ["state space", "window"])
@pytest.mark.parametrize("after", ["nothing", "reset"])
def test_is_a_forecast_of_a_process_without_samples_its_prior(name, after):
    gp, x = CASES[name](), np.array([1.3, 0.2, 2.0])
    layer = Online(gp.cell)
    if after == "reset":
        layer.step(1j, [5.0])
        layer.reset()
    mean, variance, _ = layer.forecast(x)
    np.testing.assert_array_equal(mean, np.zeros(3))
    np.testing.assert_allclose(variance, np.ones(3), rtol=1e-12)


def test_is_a_forecast_of_a_walk_without_samples_its_prior():
    """Its variance grows with the place."""
    gp, x = cgp.StateSpaceGP(RandomWalk(0.5, start=-1.0), 0.2), np.array([1.3, 0.2, 2.0])
    np.testing.assert_allclose(
        Online(gp.cell).forecast(x).variance, gp.predict(x, verbose=0)["variance"], rtol=1e-12
    )


def test_has_a_window_of_places_in_the_plane_a_forecast_before_any_sample():
    gp = cgp.RecursiveGP(Matern12(1.0, 3.0), 0.2, capacity=4)
    mean, variance, _ = Online(gp.cell).forecast(np.ones((3, 2)))
    assert mean.shape == (3,)
    np.testing.assert_allclose(variance, np.ones(3), rtol=1e-12)


def test_is_a_layer_of_a_window_called_on_places_in_the_plane():
    gp = cgp.RecursiveGP(Matern12(1.0, 3.0), 0.2, capacity=4)
    x = np.random.default_rng(2).normal(size=(1, 6, 2))
    outputs = Online(gp.cell)((x, Z[None]))
    expected = gp.process(x[0], Z).filtered.mean
    np.testing.assert_allclose(outputs["filtered_mean"][0], expected, rtol=1e-12)


def test_speak_refusals_of_filters_of_their_matrices():
    model = cgp.statespace.LinearGaussian([[1e200]], [[0.3]], [[1.0]], [[0.2]], [1.0], [[1.0]])
    layer = Online(cgp.KalmanFilter(model).cell)
    with pytest.raises(ValueError, match="give R or Q a variance"):
        layer.step([1.0])


class Mixed(Gained):
    """Has observations of single, and inputs of double precision."""

    def sample_spec(self):
        return Sample(z=tf.TensorSpec([], "complex64"), inputs=tf.TensorSpec([], "float64"))

    def initial_state(self, batch_size, sample=None):
        return Level(tf.zeros([batch_size], tf.complex64))

    def step(self, state, sample):
        mean = state.mean + tf.cast(sample.inputs, tf.complex64)
        return Level(mean), step_of(sample.z, state.mean, mean)


def test_keep_series_of_a_layer_their_dtypes():
    z, inputs = Z.astype("complex64")[None], X[None]
    outputs = Online(Mixed())((z, inputs))
    np.testing.assert_allclose(outputs["filtered_mean"][0], np.cumsum(X), rtol=1e-6)


@pytest.mark.parametrize("noise_variance", [None, 0.3])
def test_does_the_state_that_a_window_shows_go_on_in_a_recurrent_layer(noise_variance):
    """A state shows the noise of its points only where samples came with one."""
    gp, x, z = process(cgp.RecursiveGP, capacity=3), X[:4], np.tile(Z[:4], [2, 1])
    gp.process(x, z, noise_variance=noise_variance)
    state = gp.state
    assert ("noise_variance" in state._fields) == (noise_variance is not None)
    x, z = np.tile(X[4:, None], [2, 1, 1]), np.tile(Z[4:], [2, 1])
    outputs = Recursive(gp)((x, z), initial_state=state)
    expected = gp.process(X[4:], z)
    np.testing.assert_allclose(outputs["filtered_mean"], expected.filtered.mean, rtol=1e-12)


def test_is_a_layer_of_a_cell_with_inputs_trained_on_pairs():
    model = cgp.statespace.LinearGaussian([[0.8j]], [[0.3]], [[1.0]], [[0.2]], B=[[0.5]])
    pair = np.tile(Z[:, None], [2, 1, 1]), np.tile(np.exp(2j * X)[:, None], [2, 1, 1])
    layers = [
        cgp.KalmanFilter(model, learn=("F",)),
        Online(cgp.KalmanFilter(model, learn=("F",)).cell),
    ]
    losses = []
    for layer in layers:
        layer.compile(optimizer=keras.optimizers.Adam(0.05))
        losses.append(layer.fit(pair, epochs=3, batch_size=2, verbose=0).history["loss"])
    assert losses[1][-1] < losses[1][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-10)
