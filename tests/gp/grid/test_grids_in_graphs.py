"""Grids in compiled functions, whose sizes and missing cells change from call to call."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import NotPositiveDefiniteError
from cgp.gp.grid import grid_gp
from cgp.kernels import RBF, Along, Matern12, Rotation

T, F = np.arange(8.0), np.array([0.0, 0.5, 1.7])


def kernel():
    along_time = RBF(1.2, 2.0) * Rotation(0.1)
    return Along(along_time, 0) * Along(Matern12(1.0, 2.0, fixed="variance"), 1)


def cells(missing=False, seed=0, sizes=(8, 3)):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=sizes) + 1j * rng.normal(size=sizes)
    if missing:
        z[1, 1] = np.nan
    return z


def process(noise=0.1):
    return cgp.GridGP(kernel(), noise)


@pytest.mark.parametrize("missing", [False, True])
def test_is_the_likelihood_in_a_graph_that_outside(missing):
    gp, z = process(), cells(missing)
    gp.condition((T, F), z)
    outside = gp.log_marginal_likelihood().numpy()
    of_stored = tf.function(lambda: gp.log_marginal_likelihood())
    of_arguments = tf.function(lambda t, f, z: gp.log_marginal_likelihood((t, f), z))
    assert of_stored().numpy() == pytest.approx(outside, rel=1e-12)
    found = of_arguments(tf.constant(T), tf.constant(F), tf.constant(z))
    assert found.numpy() == pytest.approx(outside, rel=1e-12)


def test_does_a_dataset_of_grids_with_and_without_gaps_teach():
    pairs = [((T, F), cells(seed=1)), ((T, F), cells(True, seed=2))]

    def generate():
        yield from (((t, f), z) for (t, f), z in pairs)

    spec = tuple(tf.TensorSpec([None], tf.float64) for _ in range(2))
    signature = spec, tf.TensorSpec([None, None], tf.complex128)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(pairs)))
    gp = process()
    found = gp.evaluate(dataset, verbose=0)
    values = [float(gp.log_marginal_likelihood(x, z)) for x, z in pairs]
    assert found == pytest.approx(-sum(values) / (2 * T.size * F.size - 1), rel=1e-6)
    before = gp.parameters()["noise_variance"]
    gp.compile(keras.optimizers.Adam(0.01))
    gp.fit(dataset, epochs=1, verbose=0)
    assert gp.parameters()["noise_variance"] != before


def test_does_a_process_take_grids_of_other_sizes_one_after_the_other():
    gp = process()
    gp.compile(keras.optimizers.SGD(0.0))
    for size, missing in ((8, False), (4, False), (6, True), (8, True), (5, False)):
        z = cells(missing, size, (size, len(F)))
        gp.fit((T[:size], F), z, epochs=1, verbose=0)
        exact = cgp.ExactGP(kernel(), 0.1)
        points = np.stack(np.meshgrid(T[:size], F, indexing="ij"), -1).reshape(-1, 2)
        wanted = exact.log_marginal_likelihood(points, z.ravel()).numpy()
        loss = gp.evaluate((T[:size], F), z, verbose=0)
        assert loss == pytest.approx(-wanted / np.sum(~np.isnan(z)), rel=1e-6)


def test_are_derivatives_that_it_does_not_have_no_wrong_ones():
    gp = process()
    gp.condition((T, F), cells(True))
    noise = gp.noise_variance.variable.value
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            value = gp.log_marginal_likelihood()
        first = inner.gradient(value, noise)
    with pytest.raises(LookupError, match="first derivatives alone"):
        outer.gradient(first, noise)
    with tf.GradientTape() as tape:
        prediction = gp.posterior((T[:2] + 0.3, F), observed=True)
        moments = tf.reduce_sum(tf.abs(prediction.mean())) + tf.reduce_sum(prediction.variance())
    values = [v.value for v in gp.trainable_variables]
    assert tape.gradient(moments, values) == [None] * len(values)


@pytest.mark.long
def test_are_hyperparameters_drawn_and_averaged_over():
    gp = process()
    z = process().sample((T, F), seed=3, observed=True)[0]
    gp.condition((T, F), z)
    with pytest.warns(RuntimeWarning, match="take more draws"):
        draws = gp.sample_parameters(chains=2, draws=30, warmup=60, seed=0, verbose=0)
    averaged = draws.predict((T, F), count=10)
    assert averaged["mean"].shape == z.shape
    assert np.abs(averaged["mean"] - gp.predict((T, F))["mean"]).max() < 1.0


def test_is_noise_below_the_rounding_of_the_covariance_refused():
    with pytest.raises(NotPositiveDefiniteError, match="below the rounding"):
        process(1e-16).log_marginal_likelihood((T, F), cells())


def test_does_a_long_line_stay_one_where_a_coordinate_is_missing():
    times = np.arange(600.0)
    z = cells(sizes=(600, len(F)))
    z[300], z[:4] = np.nan, np.nan
    gp = process()
    gp.condition((times, F), z)
    grid = gp.stored_data().grid
    assert (grid.sizes, grid.line, len(grid.missing)) == ([596, 3], 0, 3)
    points = np.stack(np.meshgrid(times, F, indexing="ij"), -1).reshape(-1, 2)
    kept = ~np.isnan(z.ravel())
    exact = cgp.ExactGP(kernel(), 0.1)
    wanted = exact.log_marginal_likelihood(points[kept], z.ravel()[kept]).numpy()
    assert gp.log_marginal_likelihood().numpy() == pytest.approx(wanted, rel=1e-10)


def test_is_an_axis_refused_that_would_take_hours(monkeypatch):
    monkeypatch.setattr(grid_gp, "_MOST_DIAGONALISED", 6)
    with pytest.raises(ValueError, match=r"x\[0\] has 8 coordinates, and more than 6"):
        process().condition((T, F), cells())
