"""Textbook NumPy: covariances in, covariances out, in extended precision where it is asked for."""

import numpy as np


def extended(a):
    """The same numbers in 80-bit arithmetic; of single precision in double, which is faster."""
    a = np.asarray(a)
    single = a.dtype in (np.float32, np.complex64)
    real, complex_ = (np.float64, np.complex128) if single else (np.longdouble, np.clongdouble)
    return a.astype(complex_ if np.iscomplexobj(a) else real)


def covariance_of(chol):
    """L Lᴴ in extended arithmetic, which has no BLAS: a triangle of it, and its mirror image."""
    chol, rows = extended(chol), 64
    n = chol.shape[-2]
    adjoint = np.conj(np.swapaxes(chol, -1, -2))
    covariance = np.zeros((*chol.shape[:-1], n), chol.dtype)
    for first in range(0, n, rows):
        last = first + rows
        used = last if not chol[..., first:last, last:].any() else n  # zeros, if L is triangular
        covariance[..., first:last, :last] = (
            chol[..., first:last, :used] @ adjoint[..., :used, :last]
        )
    above = np.conj(np.swapaxes(np.tril(covariance, -1), -1, -2))
    return np.tril(covariance) + above


def updated(covariance, v, multiplier=1.0):
    """A + α v vᴴ."""
    v, multiplier = extended(v), extended(multiplier)
    return covariance + multiplier[..., None, None] * v[..., :, None] * np.conj(v[..., None, :])


def conditioned(covariance, h, noise_variance):
    """(covariance, gain, innovation variance) after y = h x + n."""
    h = extended(h)
    ph = covariance @ np.conj(h)
    s = (h @ ph).real + noise_variance
    return covariance - np.outer(ph, np.conj(ph)) / s, ph / s, s


def appended(covariance, cross, variance):
    """[[A, c], [cᴴ, κ]]."""
    cross = extended(cross)[:, None]
    return np.block([[covariance, cross], [np.conj(cross.T), extended([[variance]])]])


def removed(covariance, index):
    """A without one row and column."""
    return np.delete(np.delete(covariance, index, axis=-1), index, axis=-2)


def cholesky(a):
    """The factor of one matrix by the textbook recursion, in 80-bit arithmetic."""
    a = extended(a)
    chol = np.zeros_like(a)
    for j in range(len(a)):
        chol[j, j] = np.sqrt((a[j, j] - np.sum(np.abs(chol[j, :j]) ** 2)).real)
        chol[j + 1 :, j] = (a[j + 1 :, j] - chol[j + 1 :, :j] @ np.conj(chol[j, :j])) / chol[j, j]
    return chol


def directional_derivative(f, x, direction, step=1e-6):
    """df/dt at x + t·direction for a real f, by central differences of fourth order."""
    near = f(x + step * direction) - f(x - step * direction)
    far = f(x + 2 * step * direction) - f(x - 2 * step * direction)
    return (8 * near - far) / (12 * step)
