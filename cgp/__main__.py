"""Says what is installed, and checks in some seconds that it computes right: `python -m cgp`.

Results are compared with textbook formulas, written out in NumPy.
"""

import importlib.metadata
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import scipy
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.gp import ExactGP, StateSpaceGP
from cgp.kernels import Matern32, Rotation
from cgp.layers import KalmanFilter
from cgp.linalg import cholesky, cholesky_update
from cgp.native import core
from cgp.training import load_model
from cgp.training.optimizers import LBFGS

_LENGTHSCALE, _FREQUENCY, _NOISE = 1.5, 0.3, 0.2
_STEPS = 50


class Check(NamedTuple):
    """A comparison."""

    name: str
    error: Callable[[], float]
    """Computes the largest difference, relative to the size of the compared values."""
    limit: float  # the bound that the error must be below


def _update() -> float:
    rng = np.random.default_rng(1)
    a, v = _normal(rng, 8, 12), _normal(rng, 8)
    covariance = a @ a.conj().T
    updated = cholesky_update(cholesky(covariance), v)
    return _difference(updated, np.linalg.cholesky(covariance + np.outer(v, v.conj())))


def _filter() -> float:
    model, z = _model_and_series()
    F, Q, H, R = (np.asarray(a) for a in (model.F, model.Q, model.H, model.R))
    mean, covariance = np.zeros(2, complex), np.eye(2, dtype=complex)
    means, likelihood = [], 0.0
    for value in z:
        innovation = value - H @ mean
        S = H @ covariance @ H.conj().T + R
        gain = covariance @ H.conj().T @ np.linalg.inv(S)
        distance = np.real(innovation.conj() @ np.linalg.solve(S, innovation))
        likelihood -= len(value) * np.log(np.pi) + np.log(np.linalg.det(S).real) + distance
        mean, covariance = mean + gain @ innovation, covariance - gain @ H @ covariance
        means.append(mean)
        mean, covariance = F @ mean, F @ covariance @ F.conj().T + Q
    filtered, kf = statespace.filter(model, z), KalmanFilter(model)
    online = np.stack([kf.step(value).filtered.mean for value in z])
    errors = [_difference(result, np.array(means)) for result in (filtered.filtered_means, online)]
    errors.append(_difference(filtered.log_likelihood, np.array(likelihood)))
    return float(np.max(errors))  # NaN where one is


def _fit() -> float:
    """The increase of the loss in a fit, which is negative if the fit lowers it."""
    gp = StateSpaceGP(Matern32(0.3, 5.0), noise_variance=1.0)
    gp.compile(LBFGS())
    losses = gp.fit(*_data(), epochs=5, verbose=0).history["loss"]
    return losses[-1] - losses[0]


def _save_and_load() -> float:
    x, z = _data()
    gp = ExactGP(_kernel(), noise_variance=_NOISE)
    gp.condition(x, z)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        gp.save(path)
        loaded = load_model(path)
    return _difference(loaded.predict(x + 0.1)["mean"], gp.predict(x + 0.1)["mean"])


CHECKS = (
    Check("a rank-one update against a fresh factor", _update, 1e-13),
    Check("an ExactGP against NumPy", lambda: _difference_of_process(ExactGP), 1e-10),
    Check("a StateSpaceGP against NumPy", lambda: _difference_of_process(StateSpaceGP), 1e-10),
    Check("a Kalman filter, whole and online, against NumPy", _filter, 1e-10),
    Check("the change of the loss by a fit", _fit, 0.0),
    Check("a model saved and loaded against itself", _save_and_load, 1e-12),
)


def _difference_of_process(kind: type[ExactGP] | type[StateSpaceGP]) -> float:
    """The largest difference between a process and the formulas of textbooks."""
    x, z = _data()
    new = np.array([-0.5, 1.03, 7.2])

    def covariance(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
        apart = x1[:, None] - x2
        scaled = np.sqrt(3.0) * np.abs(apart) / _LENGTHSCALE
        return (1 + scaled) * np.exp(-scaled) * np.exp(2j * np.pi * _FREQUENCY * apart)

    observed = covariance(x, x) + _NOISE * np.eye(len(x))
    cross = covariance(new, x)
    weights = np.linalg.solve(observed, z)
    mean = cross @ weights
    variance = 1.0 - np.sum(cross * np.linalg.solve(observed, cross.conj().T).T, axis=1).real
    log_determinant = np.linalg.slogdet(observed)[1]
    likelihood = -len(x) * np.log(np.pi) - log_determinant - np.vdot(z, weights).real

    gp = kind(_kernel(), noise_variance=_NOISE)
    gp.condition(x, z)
    predicted = gp.predict(new)
    pairs = [(gp.log_marginal_likelihood(), likelihood), (predicted["mean"], mean)]
    pairs.append((predicted["variance"], variance))
    return float(np.max([_difference(*pair) for pair in pairs]))


def _kernel() -> Matern32:
    return Matern32(1.0, _LENGTHSCALE) * Rotation(_FREQUENCY)


def _data() -> tuple[np.ndarray, np.ndarray]:
    """Irregular times of a turning signal in noise."""
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0.0, 10.0, _STEPS))
    return x, np.exp(2j * np.pi * _FREQUENCY * x) + _NOISE * _normal(rng, _STEPS)


def _model_and_series() -> tuple[statespace.LinearGaussian, np.ndarray]:
    F = np.array([[0.9 * np.exp(0.4j), 0.1], [0.0, 0.7j]])
    Q, R = np.array([[0.5, 0.1j], [-0.1j, 0.2]]), 0.3 * np.eye(2)
    H = np.array([[1.0, 0.5j], [0.0, 1.0]])
    model = statespace.LinearGaussian(F, Q, H, R, np.zeros(2), np.eye(2))
    return model, _normal(np.random.default_rng(3), _STEPS, 2)


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def _difference(result: object, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest expected modulus; NaN where there is one."""
    return float(np.max(np.abs(np.asarray(result) - expected)) / np.max(np.abs(expected)))


def main() -> int:
    """Prints versions, the compiled core, devices and checks; returns 1 if a check has failed."""
    compiled = core()
    # In a clone Python takes the cgp that lies there, and not the installed one.
    print(f"cgp {cgp.__version__} in {Path(cgp.__file__).parent},")
    print(f"Python {platform.python_version()} on {platform.platform()}")
    print(
        f"TensorFlow {tf.__version__}, Keras {keras.version()}, "
        f"TensorFlow Probability {_version('tensorflow-probability')}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    print(f"compiled core: {'active' if compiled.ops else 'not active'}, {compiled.reason}")
    devices = (d.name.removeprefix("/device:") for d in tf.config.list_logical_devices())
    print("devices:", ", ".join(devices))
    start = time.monotonic()
    passed = [_passes(check) for check in CHECKS]
    seconds = time.monotonic() - start
    failed = len(passed) - sum(passed)
    verdict = f"{failed} of {len(passed)} checks FAILED" if failed else "all checks passed"
    print(f"{verdict}, in {seconds:.0f} s")
    return 1 if failed else 0


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _passes(check: Check) -> bool:
    """Makes a check, and prints a line about it."""
    try:
        error = check.error()
    except Exception as problem:  # the other checks say whether only this one fails
        print(f"{check.name:50} FAILED: {type(problem).__name__}: {problem}", flush=True)
        return False
    passes = error < check.limit  # not if it is NaN
    print(f"{check.name:50} {error:9.1e}  {'ok' if passes else 'FAILED'}", flush=True)
    return passes


if __name__ == "__main__":
    sys.exit(main())
