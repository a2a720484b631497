"""Factors that are hard to update, and the ways to run a function, shared by the tests here."""

import numpy as np
import tensorflow as tf

DTYPES = ["complex128", "complex64", "float64", "float32"]
MODES = ["eager", "graph", "xla"]


def is_single(dtype):
    return np.finfo(dtype).eps > 1e-10


def in_mode(mode, f):
    """`f` as it is, in a graph, or compiled by XLA; NumPy arguments become tensors."""
    if mode != "eager":
        f = tf.function(f, jit_compile=mode == "xla", autograph=False)
    return lambda *args: f(*[tf.convert_to_tensor(np.asarray(a)) for a in args])


def random(rng, shape, dtype):
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def random_chol(rng, n, dtype, batch=()):
    """A well-conditioned factor."""
    chol = 0.5 * np.tril(random(rng, (*batch, n, n), dtype), -1) / np.sqrt(n)
    return (chol + np.eye(n) * rng.uniform(0.5, 1.5, (*batch, n, 1))).astype(dtype)


def hard_chol(kind, n, dtype, rng):
    """A factor of a matrix of condition 1e12 (1e6 in single precision), in `dtype`."""
    root = 1e3 if is_single(dtype) else 1e6
    if kind == "spectrum":
        q = np.linalg.qr(random(rng, (n, n), "complex128"))[0]
        a = q * np.logspace(0, -np.log10(root), n)
        if np.dtype(dtype).kind == "f":
            q = np.linalg.qr(random(rng, (n, n), "float64"))[0]
            a = q * np.logspace(0, -np.log10(root), n)
        chol = np.linalg.qr(a.conj().T)[1].conj().T
    elif kind == "rbf":
        lag = np.subtract.outer(np.linspace(0, 1, n), np.linspace(0, 1, n))
        gram = np.exp(-0.5 * (lag / 0.2) ** 2) + np.eye(n) * n / root**2
        if np.dtype(dtype).kind == "c":
            gram = gram * np.exp(6j * np.pi * lag)
        chol = np.linalg.cholesky(gram)
    else:  # a tiny pivot in the middle
        chol = np.tril(random(rng, (n, n), "complex128"), -1) / np.sqrt(n) + np.eye(n)
        chol[n // 2, n // 2] = 1 / root
        chol = chol if np.dtype(dtype).kind == "c" else chol.real
    diagonal = np.diag(chol)
    chol = np.tril(chol * (np.abs(diagonal) / diagonal))
    chol[np.diag_indices(n)] = np.abs(diagonal)
    return chol.astype(dtype)
