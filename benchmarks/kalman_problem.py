"""The model that Kalman filters are timed on, its data, and its likelihood in 80-bit arithmetic.

A complex model of n states and one observation a step, all modes damped, noise in every state; the
same as a real composite; a textbook recursion, and its derivative in a random direction.
"""

import numpy as np
from kalman_peers import MATRICES
from scipy.linalg import solve_discrete_lyapunov


def problem(n, series, length):
    """A complex model by the names of its arguments, a direction, and data `[B, T, 1]`."""
    rng = np.random.default_rng(n)
    basis = _normal(rng, n, n)
    poles = np.linspace(0.9, 0.98, n) * np.exp(1j * rng.uniform(-np.pi, np.pi, n))
    f = basis @ np.diag(poles) @ np.linalg.inv(basis)
    root = _normal(rng, n, n) / n
    q = root @ root.conj().T + 0.01 * np.eye(n)
    h, r = _normal(rng, 1, n), np.array([[0.5 + 0j]])
    p0 = solve_discrete_lyapunov(f, q)
    p0 = (p0 + p0.conj().T) / 2
    direction = [_normal(rng, n, n) for _ in range(2)]
    d_q = direction[1] + direction[1].conj().T
    made = {"F": f, "Q": q, "H": h, "R": r, "initial_covariance": p0}
    made |= {"d_F": direction[0], "d_Q": d_q, "d_H": _normal(rng, 1, n), "d_R": r}
    x = _normal(rng, series, n) @ np.linalg.cholesky(p0).T  # drawn, not filtered: no adjoint
    noise_root, z = np.linalg.cholesky(q), np.empty((series, length, 1), complex)
    for t in range(length):
        z[:, t] = x @ h.T + np.sqrt(r[0, 0]) * _normal(rng, series, 1)
        x = x @ f.T + _normal(rng, series, n) @ noise_root.T
    return made | {"z": z}


def _normal(rng, *shape):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def composite(p):
    """The same for real and imaginary parts, `[Re; Im]`."""
    made = {"z": np.concatenate([p["z"].real, p["z"].imag], axis=-1)}
    for name in p.keys() - {"z"}:
        a = p[name]
        scale = 1.0 if name.endswith(("F", "H")) else 0.5
        made[name] = scale * np.block([[a.real, -a.imag], [a.imag, a.real]])
    return made


def reference(p, shift=0.0):
    """Log likelihoods `[B]` in 80-bit arithmetic, the matrices moved along the direction."""
    moved = {name: p[name].astype(np.clongdouble) for name in (*MATRICES, "initial_covariance")}
    for name in MATRICES:
        moved[name] += np.longdouble(shift) * p["d_" + name]
    f, q, h, r, cov = moved.values()
    mean = np.zeros((len(p["z"]), len(f)), np.clongdouble)
    total = np.zeros(len(p["z"]), np.longdouble)
    for t in range(p["z"].shape[1]):
        innovation = p["z"][:, t] - mean @ h.T  # rows are the means: H m, no adjoint
        s = (h @ cov @ h.conj().T + r)[0, 0].real
        gain = cov @ h.conj().T / s
        total -= np.log(np.longdouble(np.pi) * s) + np.abs(innovation[:, 0]) ** 2 / s
        mean = (mean + innovation * gain[:, 0]) @ f.T
        cov = f @ (cov - gain @ (h @ cov)) @ f.conj().T + q
        cov = (cov + cov.conj().T) / 2
    return total


def slope_of_reference(p, step=1e-6):
    """The derivative of their sum along the direction: central differences, extrapolated."""
    once, twice = (np.sum(reference(p, s) - reference(p, -s)) / (2 * s) for s in (step, 2 * step))
    return float((4 * once - twice) / 3)
