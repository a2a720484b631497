"""Arrangements of the poles of a rational function: anywhere, or in conjugate pairs.

A pole of an arrangement, which stands for itself or for a pair, has fractions of its own: functions
of s = i2πf with it as the denominator's root. A linear model has a coefficient for each of them,
complex or real.
"""

import numpy as np
import tensorflow as tf


class FreePoles:
    """Poles anywhere in the left half plane: the fraction `1/(s − p)`, a complex coefficient."""

    has_real_coefficients = False
    fractions_of_each = 1
    lowest = -np.inf
    """The lowest place of a pole, in cycles."""

    def band(self, x: np.ndarray) -> tuple[float, float]:
        """The least and the largest place of poles inside the band of x, in cycles."""
        return float(x.min()), float(x.max())

    def all(self, poles: np.ndarray) -> np.ndarray:
        """All poles, in the order of their places."""
        return poles[np.argsort(poles.imag)]

    def fractions(self, s: np.ndarray, poles: np.ndarray) -> np.ndarray:
        """The fractions of poles `[..., order]` at `[..., N, 1]`: `[..., N, columns]`."""
        return 1.0 / (s - poles[..., None, :])

    def slopes(self, s: np.ndarray, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The derivatives of a model by real parts of poles and then by places in radians.

        But for what fractions of the same poles amount to.

        Args:
            s: `[N, 1]`.
            poles: `[order]`.
            coefficients: Those of the fractions, `[columns]`.

        Returns:
            `[N, 2 order]`.
        """
        by_pole = coefficients / (s - poles) ** 2
        return np.concatenate([by_pole, 1j * by_pole], axis=-1)

    def zeros(self, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The zeros of 1 plus fractions `[..., order]` with coefficients `[..., columns]`."""
        return np.linalg.eigvals(
            poles[..., None, :] * np.eye(poles.shape[-1]) - coefficients[..., None, :]
        )

    def sections(self, s: tf.Tensor, poles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Fractions, to one length over the whole axis, and the all-pass function of each pole.

        Args:
            s: `[..., N, 1]`.
            poles: `[order]`.

        Returns:
            `[..., N, order, fractions of each]`, `[..., N, order]`.
        """
        lengths = tf.cast(tf.sqrt(-2.0 * tf.math.real(poles)), s.dtype)
        return (lengths / (s - poles))[..., None], (s + tf.math.conj(poles)) / (s - poles)


class ConjugatePairs:
    """Pairs p, p̄ with Im p ≥ 0, whose model has a real impulse response.

    The fractions are `s/D` and `|p|/D` with `D = (s − p)(s − p̄)`, which are independent where the
    two are one, too; their coefficients are real.
    """

    has_real_coefficients = True
    fractions_of_each = 2
    lowest = 0.0

    def band(self, x: np.ndarray) -> tuple[float, float]:
        """The least and the largest place of poles inside the band of x, in cycles."""
        low, high = float(x.min()), float(x.max())
        return max(low, -high, 0.0), max(high, -low)

    def all(self, poles: np.ndarray) -> np.ndarray:
        """All poles and their conjugates, in the order of their places."""
        return FreePoles().all(np.concatenate([poles, poles.conj()]))

    def fractions(self, s: np.ndarray, poles: np.ndarray) -> np.ndarray:
        """The fractions of pairs `[..., order]` at `[..., N, 1]`: `[..., N, 2 order]`."""
        poles = poles[..., None, :]
        denominators = (s - poles) * (s - poles.conj())
        return np.concatenate([s / denominators, np.abs(poles) / denominators], axis=-1)

    def slopes(self, s: np.ndarray, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The derivatives of a model by real parts and imaginary parts of poles, `[N, 2 order]`."""
        by_s, by_one = np.split(coefficients, 2)
        numerators = by_s * s + by_one * np.abs(poles)
        # D = (s − Re p)² + (Im p)²
        by_square = numerators / ((s - poles) * (s - poles.conj())) ** 2
        slopes = [2.0 * (s - poles.real) * by_square, -2.0 * poles.imag * by_square]
        return np.concatenate(slopes, axis=-1)

    def zeros(self, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The zeros of 1 plus fractions `[..., order]` with coefficients `[..., columns]`."""
        # (c₁ s + c₀ |p|)/D is c (s − A)⁻¹ b with A = [[0, |p|], [−|p|, 2 Re p]], b = [0, 1].
        order = poles.shape[-1]
        modulus, diagonal = np.abs(poles)[..., None, :] * np.eye(order), np.eye(order)
        above = np.concatenate([np.zeros_like(modulus), modulus], axis=-1)
        below = np.concatenate([-modulus, 2.0 * poles.real[..., None, :] * diagonal], axis=-1)
        by_s, by_one = np.split(coefficients, 2, axis=-1)
        below = below - np.concatenate([by_one, by_s], axis=-1)[..., None, :]
        zeros = np.linalg.eigvals(np.concatenate([above, below], axis=-2)).astype(complex)
        by_place = np.argsort(-zeros.imag, axis=-1, kind="stable")
        return np.take_along_axis(zeros, by_place, axis=-1)[..., :order]

    def sections(self, s: tf.Tensor, poles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Fractions of unit length, and the all-pass function of each pair."""
        conjugates = tf.math.conj(poles)
        denominators = (s - poles) * (s - conjugates)
        fractions = tf.stack([s / denominators, tf.cast(tf.abs(poles), s.dtype) / denominators], -1)
        lengths = tf.cast(tf.sqrt(-2.0 * tf.math.real(poles)), s.dtype)
        return lengths[:, None] * fractions, (s + poles) * (s + conjugates) / denominators


Arrangement = FreePoles | ConjugatePairs
