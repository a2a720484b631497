"""Estimators of banks, samples of their keys, and an estimator for each key as the reference."""

import numpy as np

import cgp
from cgp.kernels import Matern12, Matern32, Rotation
from cgp.statespace.linearization.linearized_model import noise_of
from tests.layers.models import made, normals

KERNEL = Matern32(1.0, 3.0) * Rotation(0.2) + Matern12(0.5, 8.0)


def kalman(kind):
    return lambda: cgp.KalmanFilter(made(kind)[0])


def process(pseudo_variance=0.0, **arguments):
    return lambda: cgp.StateSpaceGP(KERNEL, 0.1, pseudo_variance, **arguments)


def window(pseudo_variance=0.0, **arguments):
    return lambda: cgp.RecursiveGP(KERNEL, 0.1, pseudo_variance, capacity=3, **arguments)


MAKE = {
    "filter": kalman("proper"),
    "widely linear filter": kalman("improper"),
    "filter in single precision": kalman("single"),
    "real filter": kalman("real"),
    "process": process(),
    "improper process": process(0.05 + 0.02j),
    "windows": window(),
    "improper windows that forget": window(0.05 + 0.02j, forgetting=0.95),
}


class Samples:
    """Calls of random samples: keys come again, are absent, and new; some values are missing."""

    def __init__(self, estimator, keys, seed=0):
        self.estimator, self.keys = estimator, list(keys)
        self.rng, self.last = np.random.default_rng(seed), {}

    def __call__(self, count):
        """Keys, observations and, of a process, inputs, irregular and in the order of each key."""
        rng = self.rng
        keys = [self.keys[i] for i in rng.integers(0, len(self.keys), count)]
        is_filter = isinstance(self.estimator, cgp.KalmanFilter)
        model = noise_of(self.estimator.model) if is_filter else None
        shape = (count, model.observation_size) if is_filter else (count,)
        z = normals(rng, *shape)
        if is_filter:
            dtype = model.series_dtype.as_numpy_dtype
            z = (z if np.dtype(dtype).kind == "c" else z.real).astype(dtype)
        z[rng.uniform(size=shape) < 0.2] = np.nan
        if is_filter:
            return keys, z
        x = []
        for key in keys:  # in the order of each key, some at one place
            self.last[key] = self.last.get(key, 0.0) + rng.choice([0.0, rng.exponential()])
            x.append(self.last[key])
        return keys, z, np.array(x)


class Alone:
    """An estimator for each key."""

    def __init__(self, make):
        self.make, self.estimators = make, {}

    def update(self, keys, z, x=None):
        steps = []
        for i, key in enumerate(keys):
            if key not in self.estimators:
                self.estimators[key] = self.make()
            estimator = self.estimators[key]
            steps.append(estimator.step(z[i]) if x is None else estimator.step(x[i], z[i]))
        return steps


def flat(step):
    return (*step.predicted, step.innovation, *step.filtered)


def assert_same(steps, expected, tolerance=None):
    """Steps of a bank equal those of each key alone: to the last bit, or to a tolerance."""
    for i, step in enumerate(expected):
        for a, b in zip(flat(steps), flat(step), strict=True):
            assert a[i].shape == np.shape(b)
            assert a.dtype == np.asarray(b).dtype
            if tolerance is None:
                assert a[i].tobytes() == np.asarray(b).tobytes(), (i, a[i], b)
            else:
                np.testing.assert_allclose(a[i], b, rtol=tolerance, atol=tolerance)
