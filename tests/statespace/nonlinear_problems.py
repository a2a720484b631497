"""Models that are not linear, as cgp builds them and, in NumPy, as the reference computes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp import statespace

RULES = {
    "taylor": statespace.Taylor(),
    "unscented": statespace.SigmaPoints("unscented"),
    "unscented, wide": statespace.SigmaPoints("unscented", kappa=1.5),
    "cubature": statespace.SigmaPoints("cubature"),
    "quadrature": statespace.SigmaPoints("gauss-hermite", order=3),
}


class Problem(NamedTuple):
    transition: Callable[..., Any]
    observation: Callable[..., Any]
    noise: dict[str, Any]
    """The further arguments of `NonlinearGaussian`."""
    z: np.ndarray
    of_composite: tuple[Callable, Callable]
    """Transition and observation of real composites, NumPy."""

    def model(self, **changes):
        return statespace.NonlinearGaussian(
            self.transition, self.observation, **{**self.noise, **changes}
        )

    def composite(self):
        """Q, R, initial moments and z in the real composite."""
        noise, is_complex = self.noise, np.iscomplexobj(self.noise["initial_mean"])

        def covariance(K, C, complex_valued):
            K = np.asarray(K)
            if not complex_valued:
                return K
            C = np.zeros_like(K) if C is None else np.asarray(C)
            return 0.5 * np.block([[(K + C).real, (C - K).imag], [(C + K).imag, (K - C).real]])

        mean, z = noise["initial_mean"], self.z
        return (
            covariance(noise["Q"], noise.get("pseudo_Q"), is_complex),
            covariance(noise["R"], noise.get("pseudo_R"), np.iscomplexobj(z)),
            real_composite(mean) if is_complex else np.asarray(mean),
            covariance(
                noise["initial_covariance"], noise.get("initial_pseudo_covariance"), is_complex
            ),
            real_composite(z) if np.iscomplexobj(z) else z,
        )


def real_composite(z):
    return np.concatenate([np.real(z), np.imag(z)], axis=-1)


def joined(x):
    return x[..., : x.shape[-1] // 2] + 1j * x[..., x.shape[-1] // 2 :]


def carrier(steps=12, seed=0):
    """Phase and rate, real, of a complex carrier of known amplitude."""
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    rng = np.random.default_rng(seed)
    phase = 0.3 * np.arange(steps) + 0.2 * rng.normal(size=steps)
    noise = rng.normal(size=(steps, 2)).view(complex)
    z = np.exp(1j * phase[:, None]) + 0.3 * noise
    z[3] = complex(np.nan, np.nan)
    return Problem(
        lambda x: tf.linalg.matvec(tf.constant(F), x),
        lambda x: tf.complex(tf.cos(x[..., :1]), tf.sin(x[..., :1])),
        {
            "Q": np.array([[0.02, 0.005], [0.005, 0.01]]),
            "R": [[0.2]],
            "pseudo_R": [[0.05 + 0.1j]],
            "initial_mean": [0.1, 0.2],
            "initial_covariance": np.diag([0.3, 0.1]),
        },
        z,
        (lambda x: x @ F.T, lambda x: np.stack([np.cos(x[:, 0]), np.sin(x[:, 0])], axis=1)),
    )


def improper(steps=10, seed=1):
    """A complex state that saturates, with its conjugate; observed itself and by its power."""

    def f(x):
        return 0.9 * x / (1.0 + 0.2 * abs(x) ** 2) + 0.2j * np.conj(x)

    def saturating(x):
        size = tf.cast(1.0 + 0.2 * tf.abs(x) ** 2, x.dtype)
        return 0.9 * x / size + 0.2j * tf.math.conj(x)

    def observed(x):
        power = tf.cast(tf.abs(x[..., :1]) ** 2, x.dtype)
        return tf.concat([x[..., :1] * x[..., 1:], power], axis=-1)

    def h(x):
        return np.stack([x[:, 0] * x[:, 1], np.abs(x[:, 0]) ** 2], axis=1)

    rng = np.random.default_rng(seed)
    z = rng.normal(size=(steps, 2, 2)).view(complex)[..., 0]
    z[2, 1] = z[5] = complex(np.nan, np.nan)
    return Problem(
        saturating,
        observed,
        {
            "Q": np.array([[0.2, 0.05j], [-0.05j, 0.1]]),
            "pseudo_Q": np.array([[0.1j, 0.02], [0.02, -0.05]]),
            "R": np.array([[0.3, 0.1j], [-0.1j, 0.5]]),
            "initial_mean": np.array([1.0 + 0.5j, 0.8j]),
            "initial_covariance": np.array([[0.2, 0.05], [0.05, 0.3]]) + 0j,
            "initial_pseudo_covariance": np.array([[0.1, 0.05j], [0.05j, 0.0]]),
        },
        z,
        (lambda x: real_composite(f(joined(x))), lambda x: real_composite(h(joined(x)))),
    )


def power(steps=9, seed=2):
    """A complex state of which a real power is observed."""
    rng = np.random.default_rng(seed)
    z = np.abs(1.0 + 0.3 * rng.normal(size=(steps, 1, 2)).view(complex)[..., 0]) ** 2
    turn = 0.95 * np.exp(0.2j)
    return Problem(
        lambda x: turn * x,
        lambda x: tf.abs(x) ** 2,
        {
            "Q": [[0.1]],
            "R": [[0.3]],
            "initial_mean": np.array([1.0 + 0.2j]),
            "initial_covariance": [[0.3]],
        },
        z,
        (
            lambda x: real_composite(turn * joined(x)),
            lambda x: np.abs(joined(x)) ** 2,
        ),
    )


PROBLEMS = {"carrier": carrier, "improper": improper, "power": power}
