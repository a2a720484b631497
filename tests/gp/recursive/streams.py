"""Streams of samples, and trackers that take them one by one."""

import contextlib
import functools

import keras
import numpy as np
import tensorflow as tf

import cgp
from tests.gp.problems import NOISE, complex_normals, problems
from tests.reference import recursive as reference

HOLES = (0, 4, 11, 12, 13)
CAPACITY = {"growing": 40, "sliding": 7, "budget": 9}
FORGETTING = {"growing": 1.0, "sliding": 1.0, "budget": 0.93}
_USED = {}


def named(name):
    """The problem of that name, with a kernel of its own."""
    return next(problem for problem in problems() if problem.name == name)


def tracker(problem, **kwargs):
    return cgp.RecursiveGP(problem.kernel, NOISE, problem.noise_pseudo_variance, **kwargs)


def borrowed(name, policy, forgetting=None, shape=None, capacity=None, eagerly=False):
    """A shared tracker without data, of the problem of that name.

    `shape` distinguishes trackers whose first data had other shapes. A tracker of few samples is
    faster eagerly than traced.
    """
    forgetting = FORGETTING[policy] if forgetting is None else forgetting
    capacity = CAPACITY[policy] if capacity is None else capacity

    def make():
        gp = tracker(named(name), policy=policy, capacity=capacity, forgetting=forgetting)
        gp.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
        return gp

    gp = as_new((name, policy, forgetting, shape, capacity, eagerly), make)
    gp.optimizer.learning_rate = 0.0
    return gp


def as_new(key, make):
    """The tracker of `make`, made once for each key, without data and with its first values.

    Tests share it: to trace a step takes longer than most tests.
    """
    if key not in _USED:
        gp = make()
        _USED[key] = gp, [v.numpy() for v in gp.trainable_variables]
    gp, start = _USED[key]
    for variable, initial in zip(gp.trainable_variables, start, strict=True):
        variable.assign(initial)
    gp.reset()
    return gp


@contextlib.contextmanager
def by_core_or_eagerly(gp):
    """Takes samples in by the compiled core, where it is there and serves, else eagerly.

    Of a tracker of one stream over one dimension, if it is new. For few samples: to trace a step
    takes longer.
    """
    if gp.stream is None:
        gp._make_window(None, 1)
    stream = gp.stream
    stream._take_traced = functools.partial(taken_eagerly, stream)
    try:
        yield
    finally:
        del stream._take_traced


def taken_eagerly(stream, sample, is_block):
    """Takes a sample or a block into a stream without a graph."""
    if stream.streams is None:
        sample = sample.map(lambda a: np.asarray(a)[None])
    samples = sample if is_block else sample.map(lambda a: a[:, None])
    state, step = stream.cell.scan(stream.read(), samples.map(tf.constant))
    if not bool(stream.cell.is_sound(state, step)):
        return None
    stream.write(state)
    step = tf.nest.map_structure(np.asarray, step)
    step = step if is_block else step.map(lambda a: a[:, 0])
    return step.map(lambda a: a[0]) if stream.streams is None else step


def assign(gp, **values):
    """Hyperparameters by name, an underscore for the dot: `matern32_variance=2.0`."""
    parameters = gp.named_hyperparameters()
    for name, value in values.items():
        prefix, _, rest = name.partition("_")
        parameters[name if name in parameters else f"{prefix}.{rest}"].assign(value)
    return gp


def noise(problem):
    return NOISE, problem.noise_pseudo_variance


def stream(seed=0, n=40, missing=HOLES):
    """Irregular inputs in no order, with replicates near and far, and targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    x[3], x[9] = x[7], x[8]
    z = complex_normals(rng, n)
    z[list(missing)] = np.nan
    return x, z


def refitted(problem, x, z, **kwargs):
    """Reference steps at inputs `[T]`."""
    return reference.refitted(z, *problem.pair(x[:, None], x[:, None]), noise(problem), **kwargs)


def stepped(gp, x, z, **kwargs):
    """The steps of a stream taken one by one, stacked over time, which is the last axis."""
    return cgp.distributions.Step.stack(
        gp.step(x[n], z[..., n], **kwargs) for n in range(z.shape[-1])
    )


def assert_steps(steps, expected, rtol=1e-9, atol=1e-9):
    """Steps equal those expected, and are NaN where an observation is missing."""
    for name in ("predicted", "filtered"):
        for moment in ("mean", "variance", "pseudo_variance"):
            np.testing.assert_allclose(
                getattr(getattr(steps, name), moment),
                getattr(getattr(expected, name), moment),
                rtol=rtol,
                atol=atol,
                err_msg=f"{name} {moment}",
            )
    np.testing.assert_allclose(
        steps.innovation, expected.innovation, rtol=rtol, atol=atol, err_msg="innovation"
    )


def steps_at(steps, index):
    """The steps at an index of their arrays."""
    return reference.Steps(
        reference.Moments(*(m[index] for m in steps.predicted)),
        steps.innovation[index],
        reference.Moments(*(m[index] for m in steps.filtered)),
    )


def assert_predictions(prediction, expected, rtol=1e-9, atol=1e-9):
    """Dictionaries as `predict` returns them, or named tuples of moments."""
    if not isinstance(expected, dict):
        expected = expected._asdict()
    assert prediction.keys() == expected.keys()
    for name, moment in expected.items():
        np.testing.assert_allclose(prediction[name], moment, rtol=rtol, atol=atol, err_msg=name)


def exact(gp, x, z):
    """An exact GP with the kernel, noise and mean that `gp` has at present, given data."""
    values = gp.parameters()
    exact_gp = cgp.ExactGP(
        gp.kernel,
        values["noise_variance"],
        values.get("noise_circularity", 0.0) * values["noise_variance"],
        gp.mean,
    )
    exact_gp.condition(x, z)
    return exact_gp


def assert_valid(steps):
    """Moments are finite, and those of some distribution."""
    for moments in (steps.predicted, steps.filtered):
        assert all(np.isfinite(m).all() for m in moments)
        assert (moments.variance >= 0).all()
        assert (np.abs(moments.pseudo_variance) <= moments.variance * (1 + 1e-9)).all()
