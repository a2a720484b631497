"""Steps of processes one after another, and predictions from their streams."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native
from cgp.gp import base
from cgp.kernels import Matern32, Rotation, WidelyLinear
from cgp.training import post_updates

VARIANCE, LENGTHSCALE, FREQUENCY, NOISE, COEFFICIENT = 1.3, 4.0, 0.3, 0.2, 0.5j


def kernel(improper=False):
    rotating = Matern32(VARIANCE, LENGTHSCALE) * Rotation(FREQUENCY)
    return WidelyLinear(rotating, COEFFICIENT) if improper else rotating


MAKE = {
    "state space": lambda k: cgp.StateSpaceGP(k, NOISE),
    "window": lambda k: cgp.RecursiveGP(k, NOISE, capacity=32, policy="growing"),
}


def series(*streams, count=12, seed=0):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.1, 0.6, count))
    z = rng.normal(size=(count, *streams)) + 1j * rng.normal(size=(count, *streams))
    z[(3, *[0] * len(streams))] = z[(7, *[-1] * len(streams))] = np.nan
    return x, z


def covariances(x1, x2, improper):
    """k and c of the kernel between places, by its definition."""
    r = np.sqrt(3) * np.abs(x1[:, None] - x2) / LENGTHSCALE
    k = VARIANCE * (1 + r) * np.exp(-r) * np.exp(2j * np.pi * FREQUENCY * (x1[:, None] - x2))
    if improper:  # u + c conj(u)
        return k + abs(COEFFICIENT) ** 2 * k.conj(), COEFFICIENT * (k + k.conj())
    return k, 0 * k


def conditional(x, z, ahead, improper):
    """The signal at places ahead given samples, by the dense augmented covariance."""
    x, z = x[~np.isnan(z)], z[~np.isnan(z)]

    def augmented(x1, x2):
        k, c = covariances(x1, x2, improper)
        return np.block([[k, c], [c.conj(), k.conj()]])

    gain = augmented(ahead, x) @ np.linalg.inv(augmented(x, x) + NOISE * np.eye(2 * len(x)))
    mean = gain @ np.concatenate([z, z.conj()])
    covariance = augmented(ahead, ahead) - gain @ augmented(x, ahead)
    m = len(ahead)
    return mean[:m], np.diag(covariance)[:m].real, np.diag(covariance[:m, m:])


@pytest.mark.parametrize("core", ["core", pytest.param("no core", marks=pytest.mark.long)])
@pytest.mark.parametrize("streams", [(), pytest.param((1,), marks=pytest.mark.long), (3,)], ids=str)
@pytest.mark.parametrize("improper", [False, True], ids=["proper", "improper"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_is_a_prediction_from_a_stream_the_conditional_of_its_samples(
    make, improper, streams, core, monkeypatch
):
    gp = make(kernel(improper))
    x, z = series(*streams)
    for place, sample in zip(x, z, strict=True):
        gp.step(float(place), sample)
    if core == "no core":
        monkeypatch.setattr(native, "core", lambda: native.Core(None, "off"))
    else:  # it takes no posterior, which takes milliseconds
        monkeypatch.setattr(base, "as_dict", None)
    state = gp.state
    ahead = x[-1] + np.array([0.0, 0.4, 9.0])
    signal, observed = gp.predict(ahead), gp.predict(ahead.tolist(), observed=True)
    for before, after in zip(state, gp.state, strict=True):
        np.testing.assert_array_equal(before, after)
    by_stream = z.reshape(len(x), -1)
    moments = [conditional(x, column, ahead, improper) for column in np.moveaxis(by_stream, -1, 0)]
    for name, arrays in zip(signal, zip(*moments, strict=True), strict=True):
        expected = np.reshape(arrays, (*streams, 3))
        np.testing.assert_allclose(signal[name], expected, rtol=1e-10, atol=1e-10)
        noise = NOISE if name == "variance" else 0.0
        np.testing.assert_allclose(observed[name], expected + noise, rtol=1e-10, atol=1e-10)
        assert observed[name].dtype == expected.dtype


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_is_a_prediction_from_a_stream_of_the_present_hyperparameters(make):
    gp = make(kernel())
    x, z = series()
    for place, sample in zip(x, z, strict=True):
        gp.step(place, sample)
    gp.predict([x[-1] + 0.4])
    gp.noise_variance.assign(0.7)
    exact = cgp.ExactGP(gp.kernel, 0.7)
    exact.condition(x, z)
    for name, expected in exact.predict([x[-1] + 0.4]).items():
        np.testing.assert_allclose(gp.predict([x[-1] + 0.4])[name], expected, rtol=1e-9, atol=1e-12)


def test_does_a_stream_that_forgets_predict_as_its_posterior():
    gp = cgp.RecursiveGP(kernel(), NOISE, capacity=8, forgetting=0.9)
    x, z = series()
    for place, sample in zip(x, z, strict=True):
        gp.step(place, sample)
    at = x[-1] + np.array([0.2, 0.4])
    np.testing.assert_allclose(gp.predict(at)["mean"], gp.posterior(at).mean(), rtol=1e-12)


@pytest.mark.parametrize("places", [["a"], [None], [[1.0, 2.0]], [np.nan], 1.0, [1e300], [1j]])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_are_places_refused_as_by_the_posterior(make, places):
    gp = make(kernel())
    gp.step(0.0, 1j)
    with pytest.raises((TypeError, ValueError)) as of_posterior:
        gp.posterior(places)
    with pytest.raises(of_posterior.type) as of_stream:
        gp.predict(places)
    assert str(of_stream.value) == str(of_posterior.value)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_are_hyperparameters_read_once_in_a_step(make, monkeypatch):
    gp = make(kernel())
    x, z = series()
    for place, sample in zip(x[:3], z, strict=False):
        gp.step(place, sample)
    names, execute = [], post_updates.execute_op

    def counted(context, name, *arguments):
        names.append(name)
        return execute(context, name, *arguments)

    monkeypatch.setattr(post_updates, "execute_op", counted)
    gp.step(x[3], 1j)
    assert names == ["_ReadVariablesOp"]


def learned_filter():
    model = cgp.statespace.LinearGaussian([[0.2 + 0j]], [[0.1]], [[1.0]], [[0.5]])
    return cgp.KalmanFilter(model, learn=("F", "R"))


RUN = {
    **{kind: (lambda make=make: make(kernel()), True) for kind, make in MAKE.items()},
    "filter": (learned_filter, False),
}


@pytest.mark.parametrize("kind", RUN)
def test_is_a_write_of_any_weight_between_two_steps_noticed(kind):
    """By an op on the memory of the variable, of which neither Keras nor cgp is told."""
    make, has_places = RUN[kind]
    x, z = series(count=8)
    stream, fresh = make(), make()

    def take(run, t):
        return run.step(x[t], z[t]) if has_places else run.step([z[t]])

    for weight, changed in zip(stream.trainable_variables, fresh.trainable_variables, strict=True):
        for t in range(4):
            take(stream, t)
        tf.raw_ops.AssignAddVariableOp(
            resource=weight.value.handle,
            value=tf.fill(weight.shape, tf.constant(0.3, weight.dtype)),
        )
        changed.assign(changed + 0.3)
        if kind == "filter":  # whose state goes on with the present matrices
            fresh.set_state(*stream.state)
        else:
            for t in range(4):
                take(fresh, t)
        step, expected = take(stream, 4), take(fresh, 4)
        np.testing.assert_allclose(step.predicted.variance, expected.predicted.variance, rtol=1e-10)
        np.testing.assert_allclose(step.filtered.mean, expected.filtered.mean, rtol=1e-10)
        stream.reset()
        fresh.reset()


@pytest.mark.parametrize("streams", [(), (3,)], ids=str)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_has_a_sample_one_result_whatever_its_types(make, streams):
    """Numbers of Python and of NumPy, arrays without axes and strided ones, and with `missing`."""
    x, z = series(*streams)
    plain, other = make(kernel()), make(kernel())
    for t, (place, sample) in enumerate(zip(x, z, strict=True)):
        of_place = [lambda a: a, float, lambda a: np.array([a]), lambda a: tf.constant(a)][t % 4]
        of_z = sample.tolist() if t % 3 else np.repeat(sample, 2)[::2].reshape(streams)
        missing = np.zeros(streams, bool) if t % 2 else None
        for a, b in zip(
            tf.nest.flatten(plain.step(place, sample)),
            tf.nest.flatten(other.step(of_place(place), of_z, missing)),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
            assert np.shape(a) == streams
            assert type(a) is type(b)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_does_a_stream_keep_no_array_of_its_user(make):
    x, z = series(3)
    gp, expected = make(kernel()), make(kernel())
    buffer = np.empty(3, complex)
    for place, sample in zip(x, z, strict=True):
        buffer[:] = sample
        gp.step(place, buffer)
        buffer[:] = 99.0
        expected.step(place, sample)
    at = x[4:6] + 0.01
    np.testing.assert_array_equal(gp.predict(at)["mean"], expected.predict(at)["mean"])


@pytest.mark.parametrize("make", [cgp.StateSpaceGP, cgp.RecursiveGP])
def test_does_a_step_of_a_model_of_several_groups_need_a_group(make):
    gp = make(kernel(), [0.1, 0.2])
    gp.step(0.0, 1j, noise_groups=1)
    with pytest.raises(ValueError, match="noise_groups"):
        gp.step(0.5, 1j)
