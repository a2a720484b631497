"""Linear Gaussian models in covariance form: the recursions of the textbooks, and one joint normal.

`x[t+1] = F[t] x[t] + d[t] + w[t]`, `z[t] = H[t] x[t] + v[t]`, `x[0] ~ (mean, covariance)` being the
state at the first observation; `w ~ (0, Q)`, `v ~ (0, R)`: proper complex, or real. Anderson &
Moore, *Optimal Filtering*, 1979, ch. 3 and 7; Rauch, Tung & Striebel, 1965, for the smoother.

What is improper has two forms of twice the size, each a model as above: `augmented`, of
`[x; x̄]`, complex, and `bivariate`, of `[Re x; Im x]`, real.
"""

import decimal
from typing import NamedTuple

import numpy as np


class Model(NamedTuple):
    """A linear Gaussian model, with each matrix once per step."""

    F: np.ndarray  # [T, n, n]
    Q: np.ndarray  # [T, n, n]
    H: np.ndarray  # [T, m, n]
    R: np.ndarray  # [T, m, m]
    mean: np.ndarray  # [n]
    covariance: np.ndarray  # [n, n]
    drift: np.ndarray  # [T, n]


class Filtered(NamedTuple):
    predicted_means: np.ndarray
    predicted_covariances: np.ndarray
    filtered_means: np.ndarray
    filtered_covariances: np.ndarray
    innovations: np.ndarray
    """NaN where missing."""
    innovation_covariances: np.ndarray
    """Of all elements, missing or not."""
    log_likelihoods: np.ndarray


class Smoothed(NamedTuple):
    means: np.ndarray
    covariances: np.ndarray
    lag_one_covariances: np.ndarray
    """`E[(x[t+1] − ·)(x[t] − ·)ᴴ]`, `[T−1, n, n]`."""


class Joint(NamedTuple):
    """All states, `[T n]`, and all observations, `[T m]`, in the order of time."""

    state_mean: np.ndarray
    observation_mean: np.ndarray
    state_covariance: np.ndarray
    cross_covariance: np.ndarray
    """Of states and observations, `[T n, T m]`."""
    observation_covariance: np.ndarray


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def model(F, Q, H, R, mean, covariance, steps, B=None, inputs=None):
    """A `Model`; matrices `[·, ·]` or one per step, inputs `[T, k]`."""
    matrices = (np.broadcast_to(a, (steps, *np.shape(a)[-2:])) for a in (F, Q, H, R))
    n = np.shape(F)[-1]
    drift = np.zeros((steps, n), np.result_type(F, 0.0))
    if B is not None:
        B = np.broadcast_to(B, (steps, *np.shape(B)[-2:]))
        drift = np.array([b @ u for b, u in zip(B, inputs, strict=True)])
    return Model(*matrices, np.asarray(mean), np.asarray(covariance), drift)


def normal_log_prob(z, mean, covariance):
    """Proper complex normal of complex z, real normal of real z."""
    if not len(z):
        return 0.0
    d = z - mean
    log_determinant = np.linalg.slogdet(covariance)[1]
    distance = (np.conj(d) @ np.linalg.solve(covariance, d)).real
    if np.iscomplexobj(z):
        return -len(z) * np.log(np.pi) - log_determinant - distance
    return -0.5 * (len(z) * np.log(2 * np.pi) + log_determinant + distance)


def filter(model, z):
    """`Filtered` of a series `[T, m]`, NaN where missing."""
    steps = []
    mean, covariance = model.mean, model.covariance
    for F, Q, H, R, drift, observation in zip(*model[:4], model.drift, z, strict=True):
        predicted = mean, covariance
        innovation = observation - H @ mean
        innovation_covariance = H @ covariance @ adjoint(H) + R
        observed = ~np.isnan(observation)
        h, s, e = (
            H[observed],
            innovation_covariance[np.ix_(observed, observed)],
            innovation[observed],
        )
        if observed.any():
            gain = adjoint(np.linalg.solve(s, h @ covariance))
            mean = mean + gain @ e
            covariance = covariance - gain @ s @ adjoint(gain)
        log_likelihood = normal_log_prob(e, np.zeros(len(e)), s)
        steps.append(
            (*predicted, mean, covariance, innovation, innovation_covariance, log_likelihood)
        )
        mean = F @ mean + drift
        covariance = F @ covariance @ adjoint(F) + Q
    return Filtered(*(np.array(arrays) for arrays in zip(*steps, strict=True)))


def smooth(model, z):
    """`Smoothed`, by the backward recursion of Rauch, Tung and Striebel."""
    f = filter(model, z)
    means, covariances = [f.filtered_means[-1]], [f.filtered_covariances[-1]]
    lag_one = []
    for t in reversed(range(len(z) - 1)):
        gain = f.filtered_covariances[t] @ adjoint(model.F[t])
        gain = gain @ np.linalg.pinv(f.predicted_covariances[t + 1], rcond=1e-12, hermitian=True)
        more = means[0] - f.predicted_means[t + 1]
        change = covariances[0] - f.predicted_covariances[t + 1]
        lag_one.insert(0, covariances[0] @ adjoint(gain))
        means.insert(0, f.filtered_means[t] + gain @ more)
        covariances.insert(0, f.filtered_covariances[t] + gain @ change @ adjoint(gain))
    n = len(model.mean)
    return Smoothed(np.array(means), np.array(covariances), np.reshape(lag_one, (-1, n, n)))


def stationary_covariance(F, Q):
    """The solution of `P = F P Fᴴ + Q`, as one system for its n² elements."""
    n = len(F)
    system = np.eye(n * n) - np.kron(F, np.conj(F))
    return np.linalg.solve(system, np.ravel(Q)).reshape(n, n)


def riccati(F, Q, H, R, iterations=10_000):
    """The filtered covariance of the steady state, by iterating from Q."""
    predicted = Q
    for _ in range(iterations):
        s = H @ predicted @ adjoint(H) + R
        filtered = predicted - predicted @ adjoint(H) @ np.linalg.solve(s, H @ predicted)
        predicted = F @ filtered @ adjoint(F) + Q
    return filtered


def block_diagonal(blocks):
    rows, columns = np.shape(blocks)[1:]
    whole = np.zeros((len(blocks) * rows, len(blocks) * columns), np.result_type(*blocks))
    for t, block in enumerate(blocks):
        whole[t * rows : (t + 1) * rows, t * columns : (t + 1) * columns] = block
    return whole


def joint(model):
    """All states and observations as one normal: the states are `A [x₀; w₀ + d₀; w₁ + d₁; …]`."""
    steps, n = model.drift.shape
    dtype = np.result_type(*model)
    A = np.zeros((steps * n, steps * n), dtype)
    for s in range(steps):
        block = np.eye(n, dtype=dtype)
        for t in range(s, steps):
            A[t * n : (t + 1) * n, s * n : (s + 1) * n] = block
            block = model.F[t] @ block
    sources = block_diagonal([model.covariance, *model.Q[:-1]])
    state_mean = A @ np.concatenate([model.mean, *model.drift[:-1]])
    state_covariance = A @ sources @ adjoint(A)
    H = block_diagonal(model.H)
    return Joint(
        state_mean,
        H @ state_mean,
        state_covariance,
        state_covariance @ adjoint(H),
        H @ state_covariance @ adjoint(H) + block_diagonal(model.R),
    )


def joint_log_likelihood(model, z):
    """The log density of all observed elements of `[T, m]`, as one vector."""
    j, z = joint(model), np.ravel(z)
    observed = ~np.isnan(z)
    return normal_log_prob(
        z[observed],
        j.observation_mean[observed],
        j.observation_covariance[np.ix_(observed, observed)],
    )


def conditional(model, z):
    """Mean `[T n]` and covariance `[T n, T n]` of all states given all observed elements."""
    j, z = joint(model), np.ravel(z)
    observed = ~np.isnan(z)
    covariance, cross = (
        j.observation_covariance[np.ix_(observed, observed)],
        j.cross_covariance[:, observed],
    )
    gain = adjoint(np.linalg.solve(covariance, adjoint(cross)))
    mean = j.state_mean + gain @ (z[observed] - j.observation_mean[observed])
    return mean, j.state_covariance - gain @ adjoint(cross)


def conditional_smoothed(model, z):
    """`Smoothed`, read off the dense conditional."""
    steps, n = model.drift.shape
    mean, covariance = conditional(model, z)
    blocks = covariance.reshape(steps, n, steps, n).swapaxes(1, 2)
    t = np.arange(steps)
    return Smoothed(mean.reshape(steps, n), blocks[t, t], blocks[t[1:], t[:-1]])


def diffuse_log_likelihood(model, z, variance):
    """The log density under the prior covariance `variance × 1`, however large, without cancelling.

    z = A x₀ + e, and with Σ the covariance of e the determinant lemma and the identity of Woodbury
    leave matrices of ordinary size, `Σ` and `1/variance + Aᴴ Σ⁻¹ A`. Also the mean and covariance
    of x₀ given z.
    """
    n = len(model.mean)
    given_start = joint(model._replace(covariance=np.zeros((n, n))))
    observations = block_diagonal(model.H)
    transition, A = np.eye(n), []
    for F in model.F:
        A.append(transition)
        transition = F @ transition
    A = observations @ np.concatenate(A)
    observed = ~np.isnan(np.ravel(z))
    A, sigma = A[observed], given_start.observation_covariance[np.ix_(observed, observed)]
    e = np.ravel(z)[observed] - given_start.observation_mean[observed]
    precision = np.eye(n) / variance + adjoint(A) @ np.linalg.solve(sigma, A)
    weighted = np.linalg.solve(sigma, e)
    shift = np.linalg.solve(precision, adjoint(A) @ weighted)
    log_determinant = np.linalg.slogdet(sigma)[1] + np.linalg.slogdet(precision)[1]
    log_determinant += n * np.log(variance)
    distance = (np.conj(e) @ weighted - np.conj(adjoint(A) @ weighted) @ shift).real
    log_prob = -len(e) * np.log(np.pi) - log_determinant - distance
    if not np.iscomplexobj(z):
        log_prob = -0.5 * (len(e) * np.log(2 * np.pi) + log_determinant + distance)
    return log_prob, model.mean + shift, np.linalg.inv(precision)


def augmented_map(a, conjugate=None):
    """The map `x -> a x + conjugate x̄` as one of `[x; x̄]`; moments (K, C) likewise."""
    conjugate = np.zeros_like(a) if conjugate is None else conjugate
    return np.block([[a, conjugate], [np.conj(conjugate), np.conj(a)]])


def augmented(model, F=0.0, Q=0.0, H=0.0, R=0.0, covariance=0.0, drift=0.0):
    """The model of `[x; x̄]` and `[z; z̄]`.

    Args:
        model: The `Model` of the terms without conjugates.
        F, H: Factors of the conjugate state, per step or one for all.
        Q, R, covariance: Pseudo-covariances, likewise.
        drift: What conjugate inputs add, `[T, n]`.
    """
    conjugate_parts = {"F": F, "Q": Q, "H": H, "R": R, "covariance": covariance}
    wide = {
        name: augmented_map(a, np.broadcast_to(conjugate, a.shape))
        for name, conjugate in conjugate_parts.items()
        for a in [getattr(model, name) + 0j]
    }
    drift = model.drift + drift
    return Model(
        mean=np.concatenate([model.mean, np.conj(model.mean)]),
        drift=np.concatenate([drift, np.conj(drift)], axis=-1),
        **wide,
    )


def bivariate(augmented):
    """The real model of `[Re x; Im x]`, from that of `[x; x̄]`."""

    def from_parts(size):
        identity = np.eye(size // 2)
        return np.block([[identity, 1j * identity], [identity, -1j * identity]])

    def real(a):
        rows, columns = (from_parts(size) for size in a.shape[-2:])
        a = np.linalg.inv(rows) @ a @ columns
        np.testing.assert_allclose(a.imag, 0.0, atol=1e-12 * max(1.0, np.abs(a).max()))
        return a.real

    def covariance(a):
        half = np.linalg.inv(from_parts(a.shape[-1]))
        return (half @ a @ adjoint(half)).real

    def vector(a):
        a = a[..., : a.shape[-1] // 2]
        return np.concatenate([a.real, a.imag], axis=-1)

    return Model(
        real(augmented.F),
        covariance(augmented.Q),
        real(augmented.H),
        covariance(augmented.R),
        vector(augmented.mean),
        covariance(augmented.covariance),
        vector(augmented.drift),
    )


def composite(z):
    """`[..., m]` complex -> `[..., 2m]` real, both NaN where it is missing."""
    z = np.where(np.isnan(z), np.nan + 1j * np.nan, z)
    return np.concatenate([z.real, z.imag], axis=-1)


def pair(composite):
    """(K, C) of the real covariance of `[Re; Im]`, from `K = E[z zᴴ]`, `C = E[z zᵀ]`."""
    n = composite.shape[-1] // 2
    rr, ri = composite[..., :n, :n], composite[..., :n, n:]
    ir, ii = composite[..., n:, :n], composite[..., n:, n:]
    return rr + ii + 1j * (ir - ri), rr - ii + 1j * (ir + ri)


def filter_in_sixty_digits(model, z):
    """`Filtered` means and covariances and the log likelihood of a real model with diagonal R.

    Where covariances cancel in double precision: one element at a time, in decimal arithmetic.

    Returns:
        `(filtered_means, filtered_covariances, log_likelihood)`, rounded to float64.
    """
    with decimal.localcontext() as context:
        context.prec = 60
        exact = np.vectorize(decimal.Decimal, otypes=[object])
        F, Q, H, R, mean, covariance, drift = (exact(np.asarray(a, float)) for a in model)
        log_likelihood, log_2pi = decimal.Decimal(0), decimal.Decimal(float(np.log(2 * np.pi)))
        means, covariances = [], []
        for t in range(len(z)):
            for i in np.flatnonzero(~np.isnan(z[t])):
                h = H[t, i]
                cross = covariance @ h
                s = h @ cross + R[t, i, i]
                e = decimal.Decimal(float(z[t, i])) - h @ mean
                mean = mean + cross * (e / s)
                covariance = covariance - np.outer(cross, cross) / s
                log_likelihood -= (log_2pi + s.ln() + e * e / s) / 2
            means.append(mean.astype(float))
            covariances.append(covariance.astype(float))
            mean = F[t] @ mean + drift[t]
            covariance = F[t] @ covariance @ np.swapaxes(F[t], 0, 1) + Q[t]
        return np.array(means), np.array(covariances), float(log_likelihood)
