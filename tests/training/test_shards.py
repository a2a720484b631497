"""Learning from data in shards, by whatever maps a function over them."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp import statespace
from cgp.kernels import Matern12, Rotation
from cgp.training import shard_spec, value_and_gradient
from tests.long_cases import eagerly_or_in_a_graph, long_except

RNG = np.random.default_rng(2)
LENGTHS = (30, 18, 18)  # shards of a length more are traced once more
PRIOR = {"noise_variance": tfp.distributions.LogNormal(np.float64(-1.0), np.float64(0.5))}
MODEL = statespace.LinearGaussian([[0.9 * np.exp(0.3j)]], [[0.1]], [[1.0]], [[1.0]])


def with_gap(z):
    z = np.array(z)
    z[4] = np.nan
    return z


def drawn(count, seed):
    x = np.sort(np.random.default_rng(seed).uniform(0.0, 20.0, count))
    gp = cgp.ExactGP(Matern12(2.0, 3.0) * Rotation(0.2), 0.2)
    return x[:, None], with_gap(gp.sample(x, 1, seed=seed, observed=True)[0])


PAIRS = [drawn(n, seed) for seed, n in enumerate(LENGTHS)]
SERIES = [with_gap(statespace.sample(MODEL, n, seed=i)[1]) for i, n in enumerate(LENGTHS)]
TWO = np.stack([SERIES[0], SERIES[0]])
OF_R = {"scale": tfp.distributions.LogNormal(np.float64(2.0), np.float64(0.1))}
TARGETS = sum(LENGTHS) - len(LENGTHS)


def process(kind=cgp.StateSpaceGP, eagerly=False):
    gp = kind(Matern12(1.0, 2.0) * Rotation(0.21), 0.3, priors=PRIOR)
    gp.compile(cgp.optimizers.LBFGS(), run_eagerly=eagerly)
    return gp


def kalman_filter():
    kf = cgp.KalmanFilter(MODEL, learn=("Q", "R"))
    kf.compile(cgp.optimizers.LBFGS())
    return kf


def flat(model):
    return np.concatenate([v.numpy().ravel() for v in model.trainable_variables])


def pairs_as_dataset(is_counted=True):
    specs = tf.TensorSpec([None, 1], tf.float64), tf.TensorSpec([None], tf.complex128)
    dataset = tf.data.Dataset.from_generator(lambda: iter(PAIRS), output_signature=specs)
    counted = tf.data.experimental.assert_cardinality(len(PAIRS))
    return dataset.apply(counted) if is_counted else dataset


# --- the function and its sum ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pytest.param(cgp.ExactGP, marks=pytest.mark.long), cgp.StateSpaceGP]
)
def test_is_the_sum_over_shards_the_loss_of_all_with_priors_counted_once(kind):
    gp = process(kind)
    spec = pickle.loads(pickle.dumps(shard_spec(gp, len(PAIRS))))
    parts = [value_and_gradient(spec, flat(gp), shard) for shard in PAIRS]
    with tf.GradientTape() as tape:
        log_likelihood = tf.add_n([gp.log_marginal_likelihood(*pair) for pair in PAIRS])
        loss = -log_likelihood - gp.noise_variance.log_prior()
    gradient = tape.gradient(loss, gp.trainable_variables)
    np.testing.assert_allclose(sum(p.value for p in parts), loss, rtol=1e-10)
    np.testing.assert_allclose(
        sum(p.gradient for p in parts), np.ravel(np.stack(gradient)), rtol=1e-9, atol=1e-12
    )
    assert [p.observations for p in parts] == [n - 1 for n in LENGTHS]


@pytest.mark.parametrize("epochs", long_except([2, 3], 2))
def test_is_a_filter_fitted_to_shards_that_of_all_series_in_one_batch(epochs):
    together = np.full((len(SERIES), max(LENGTHS), 1), np.nan + 0j)
    for row, series in zip(together, SERIES, strict=True):
        row[: len(series)] = series
    one, parts = kalman_filter(), kalman_filter()
    losses = [
        kf.fit(data, verbose=0, epochs=epochs, **own).history["loss"]
        for kf, data, own in ((one, together, {}), (parts, SERIES, {"engine": map}))
    ]
    np.testing.assert_allclose(*losses, rtol=1e-10)
    np.testing.assert_allclose(flat(one), flat(parts), rtol=1e-8)
    batches = tf.data.Dataset.from_generator(
        lambda: ((z[None],) for z in SERIES),
        output_signature=(tf.TensorSpec([1, None, 1], tf.complex128),),
    )
    again = kalman_filter()
    again.fit(batches, verbose=0, epochs=epochs)
    np.testing.assert_array_equal(flat(again), flat(parts))


class Gathering:
    """An engine whose `map` returns what is to be gathered, as that of Dask."""

    def map(self, function, items):
        return [lambda item=item: function(item) for item in items]

    def gather(self, found):
        return [result() for result in reversed(found)][::-1]


@pytest.mark.parametrize(
    ("kind", "epochs"),
    long_except([("threads", 3), ("gathering", 3), ("gathering", 1)], ("gathering", 1)),
)
def test_is_a_fit_the_same_whatever_the_engine(kind, epochs):
    """Threads take turns at the variables of one model, and shards may be made where they work."""
    expected, gp = process(), process()
    loss = expected.fit(PAIRS, engine=map, epochs=epochs, verbose=0).history["loss"]
    made = [lambda pair=pair: pair for pair in PAIRS]
    with ThreadPoolExecutor(3) as threads:
        engine = threads if kind == "threads" else Gathering()
        assert gp.fit(made, engine=engine, epochs=epochs, verbose=0).history["loss"] == loss
    np.testing.assert_array_equal(flat(gp), flat(expected))


def test_has_a_shard_without_a_value_a_nan_and_a_fit_goes_back():
    kf = kalman_filter()
    spec = shard_spec(kf, 1)
    part = value_and_gradient(spec, np.full(2, 1e6), SERIES[0])
    assert np.isnan(part.value)
    assert np.isnan(part.gradient).all()
    assert part.observations == LENGTHS[0] - 1
    gp = process(cgp.ExactGP)
    x = np.zeros(3)
    part = value_and_gradient(shard_spec(gp, 1), [-200.0, 0.0, 0.0, 0.0], (x, x + 1j))
    assert np.isnan(part.value)


# --- processes of many series ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "epochs"),
    long_except(
        [(cgp.ExactGP, 5), (cgp.StateSpaceGP, 5), (cgp.StateSpaceGP, 2)], (cgp.StateSpaceGP, 2)
    ),
)
def test_are_hyperparameters_learned_from_a_dataset_of_series(kind, epochs):
    gp = process(kind)
    gp.condition(*PAIRS[0])
    data = pairs_as_dataset()
    history = gp.fit(data, validation_data=PAIRS[1], epochs=epochs, verbose=0).history
    log_likelihood = sum(float(gp.log_marginal_likelihood(*pair)) for pair in PAIRS)
    prior = float(gp.noise_variance.log_prior())
    np.testing.assert_allclose(history["loss"][-1], -(log_likelihood + prior) / TARGETS, rtol=1e-10)
    np.testing.assert_allclose(gp.evaluate(pairs_as_dataset(), verbose=0), history["loss"][-1])
    own = gp.evaluate(*PAIRS[1], verbose=0)
    np.testing.assert_allclose(history["val_loss"][-1], own, rtol=1e-10)
    # The data taken in before are still those, at the new hyperparameters.
    np.testing.assert_allclose(
        gp.log_marginal_likelihood(), gp.log_marginal_likelihood(*PAIRS[0]), rtol=1e-12
    )


@eagerly_or_in_a_graph
def test_does_an_optimizer_of_keras_step_on_each_batch_and_report_the_mean(eagerly):
    gp = process()
    gp.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    history = gp.fit(pairs_as_dataset(), verbose=0).history["loss"]
    np.testing.assert_allclose(history[0], gp.evaluate(pairs_as_dataset(), verbose=0), rtol=1e-10)
    gp.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    history = gp.fit(pairs_as_dataset(), epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0] - 0.01


# What Keras says at the end of any dataset whose length it did not know.
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@eagerly_or_in_a_graph
def test_counts_a_prior_once_in_a_dataset_whose_length_is_not_known(eagerly):
    """Loss, gradient and score are those of all series and of one prior, as over shards."""
    known, unknown = pairs_as_dataset(), pairs_as_dataset(is_counted=False)
    expected = process().fit(PAIRS, engine=map, epochs=1, verbose=0).history["loss"][0]
    gp = process(eagerly=eagerly)
    start = gp.evaluate(known, verbose=0)
    np.testing.assert_allclose(gp.evaluate(unknown, verbose=0), start, rtol=1e-12)
    gp.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    history = gp.fit(unknown, validation_data=unknown, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], start, rtol=1e-12)
    np.testing.assert_allclose(history["val_loss"][0], start, rtol=1e-12)
    assert expected < start  # after an iteration, and of the same scale
    np.testing.assert_allclose(expected, start, rtol=0.5)


@pytest.mark.parametrize("epochs", long_except([2, None], 2))  # or as many as it takes
def test_do_parameters_that_were_left_out_start_from_the_first_series(epochs):
    gp = cgp.StateSpaceGP(Matern12() * Rotation())
    gp.compile(cgp.optimizers.LBFGS())
    data = pairs_as_dataset()
    history = gp.fit(data, validation_data=data, epochs=epochs, verbose=0).history
    assert abs(gp.parameters()["rotation.frequency"] - 0.2) < 0.1
    np.testing.assert_allclose(history["val_loss"][-1], history["loss"][-1], rtol=1e-9)


# --- what is refused ------------------------------------------------------------------------------


def adam(model):
    model.compile(keras.optimizers.Adam())
    return model


def test_counts_a_prior_once_where_a_shard_has_no_observations():
    def loss(shards):
        kf = cgp.KalmanFilter(MODEL, {"R": cgp.layers.Covariance([[1.0]], priors=OF_R)})
        kf.compile(cgp.optimizers.LBFGS())
        return kf.fit(shards, engine=map, epochs=1, verbose=0).history["loss"][0]

    empty = np.full((3, 1), np.nan + 0j)
    np.testing.assert_allclose(loss([SERIES[0], empty, empty]), loss(SERIES[:1]), rtol=1e-12)


def test_does_an_error_of_a_shard_say_which():
    with pytest.raises(TypeError, match="z must be complex") as caught:
        kalman_filter().fit([SERIES[0], SERIES[1].real], engine=map, verbose=0)
    assert caught.value.__notes__ == [
        f"It is the shard of arrays of the shapes [{SERIES[1].shape}]"
    ]


def drops(function, items):
    return [function(item) for item in items[1:]]


def in_batches(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(1)


LEFT_OUT = "noise_variance.* left out: values to start from"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: shard_spec(cgp.Functional(*[keras.Input((1,))] * 2), 1), TypeError, "a Kalman"),
        (lambda: shard_spec(kalman_filter(), -3), ValueError, "shards must be a whole.*got -3"),
        (lambda: kalman_filter().fit([], engine=map), ValueError, "there are no shards"),
        (lambda: kalman_filter().fit(SERIES, engine=3), TypeError, "engine must be map"),
        (
            lambda: process(cgp.ExactGP).fit(*PAIRS[0], engine="spark"),
            ValueError,
            r"engine='spark' takes a list of pairs \(x, z\)",
        ),
        (lambda: kalman_filter().fit(SERIES, engine=drops), ValueError, "2 results for 3 shards"),
        (
            lambda: kalman_filter().fit(SERIES, engine=map, missing=[True]),
            ValueError,
            "missing is for one array",
        ),
        (
            lambda: kalman_filter().fit(SERIES, engine=map, validation_split=0.5),
            ValueError,
            "validation_split is for one set",
        ),
        (
            lambda: kalman_filter().fit(SERIES, engine=map, sample_weight=np.ones(3)),
            ValueError,
            "sample_weight is for one set",
        ),
        (lambda: kalman_filter().fit(in_batches(TWO).repeat()), ValueError, "has no end"),
        (lambda: process().fit(pairs_as_dataset().repeat()), ValueError, "has no end"),
        (lambda: kalman_filter().fit(in_batches(TWO, TWO)), TypeError, "it has targets too"),
        (
            lambda: value_and_gradient(shard_spec(kalman_filter(), 1), np.zeros(3), SERIES[0]),
            ValueError,
            r"point must have 2 values, got shape \(3,\)",
        ),
        (lambda: kalman_filter().fit(np.ones(3), engine=map), TypeError, "one list, of shards"),
        (lambda: adam(kalman_filter()).fit(SERIES, engine=map), ValueError, "an engine sums"),
        (lambda: kalman_filter().fit([[np.nan + 1j]], engine=map), ValueError, "is missing"),
        (lambda: kalman_filter().fit([np.ones((3, 2)) + 0j], engine=map), ValueError, "shape"),
        (lambda: process().fit([PAIRS[0][0]], engine=map), TypeError, r"shard must be a pair \(x"),
        (lambda: process().fit(PAIRS, PAIRS, engine=map), ValueError, "are for one x and z"),
        (lambda: process().fit(PAIRS), ValueError, r"pairs \(x, z\) is taken with engine"),
        (lambda: process().fit(pairs_as_dataset(), restarts=2), ValueError, "are for one x and z"),
        (lambda: process().fit(pairs_as_dataset().take(0)), ValueError, "and is empty"),
        (lambda: process().fit(tf.data.Dataset.range(3)), ValueError, r"pairs \(x, z\).*has Tens"),
        (lambda: process().fit(*PAIRS[0], validation_data=3), ValueError, r"a pair \(x, z\)"),
    ],
)
def test_are_data_and_engines_that_do_not_fit_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_is_a_process_whose_starts_are_unknown_not_fitted_to_shards():
    gp = cgp.ExactGP(Matern12(1.0, 2.0))
    gp.compile(cgp.optimizers.LBFGS())
    with pytest.raises(ValueError, match=LEFT_OUT):
        gp.fit(PAIRS, engine=map)
