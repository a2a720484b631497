"""Gaussian processes that take in one sample after another: refitted at each step, and in moments.

Augmented complex form throughout: `f_a = [f; f̄]`, `K_a = [[K, C], [C̄, K̄]]`. The covariance and
pseudo-covariance given are those of the signal, without noise. A signal that is forgotten,
`f_n = √λ f_{n−1} + √(1−λ) (another draw of the prior)`, is a process of input and time whose
covariance is that of the prior times λ^{|n−n'|/2}.
"""

import copy
from typing import NamedTuple

import numpy as np

from tests.reference import gaussian_process
from tests.reference.complex_normal import augmented, augmented_covariance, log_prob


class Moments(NamedTuple):
    mean: np.ndarray
    variance: np.ndarray
    pseudo_variance: np.ndarray


class Steps(NamedTuple):
    """The moments of each step of a stream, `[T]`."""

    predicted: Moments
    """Of the observation, before it is seen."""
    innovation: np.ndarray
    """Observation less predicted mean; NaN where missing."""
    filtered: Moments
    """Of the signal, after."""


def stacked(steps):
    """The steps of a stream, from steps of one sample each."""
    return Steps(
        Moments(*(np.array(m) for m in zip(*(s.predicted for s in steps), strict=True))),
        np.array([s.innovation for s in steps]),
        Moments(*(np.array(m) for m in zip(*(s.filtered for s in steps), strict=True))),
    )


def forgotten(covariance, forgetting):
    """The covariance of a signal `[T, T]`, one input for each step, that is forgotten."""
    n = np.arange(len(covariance))
    return covariance * forgetting ** (np.abs(n[:, None] - n) / 2)


def with_noise(covariance, pseudo_covariance, noise_variance, noise_pseudo_variance):
    identity = np.eye(len(covariance))
    return (
        covariance + noise_variance * identity,
        pseudo_covariance + noise_pseudo_variance * identity,
    )


def last_seen(z, window):
    """The positions of the last `window` values that are not missing; of all if None."""
    observed = np.flatnonzero(~np.isnan(z))
    return observed if window is None else observed[max(len(observed) - window, 0) :]


def conditional(new, observed, z, covariance, pseudo_covariance, noise):
    """Mean, covariance and pseudo-covariance of the signal at `new` given z at `observed`."""

    def among(rows, columns):
        return covariance[np.ix_(rows, columns)], pseudo_covariance[np.ix_(rows, columns)]

    return gaussian_process.posterior(
        z[observed],
        *with_noise(*among(observed, observed), *noise),
        *among(new, observed),
        *among(new, new),
    )


def refitted(z, covariance, pseudo_covariance, noise, window=None, forgetting=1.0, mean=None):
    """`Steps` of an exact process refitted at each step on the last `window` observations.

    Args:
        z: `[T]`, NaN where missing.
        covariance: Of the signal at the inputs of all steps, `[T, T]`.
        pseudo_covariance: `[T, T]`.
        noise: (variance, pseudo-variance).
        window: None for all that came before.
        forgetting: λ.
        mean: Mean function at the inputs of all steps, `[T]`.
    """
    k, c = forgotten(covariance, forgetting), forgotten(pseudo_covariance, forgetting)
    mean = np.zeros(len(z), complex) if mean is None else mean
    residual = z - mean
    steps = []
    for n in range(len(z)):
        m, p, q = conditional([n], last_seen(residual[:n], window), residual, k, c, noise)
        predicted = Moments(m[0] + mean[n], p[0, 0].real + noise[0], q[0, 0] + noise[1])
        m, p, q = conditional([n], last_seen(residual[: n + 1], window), residual, k, c, noise)
        filtered = Moments(m[0] + mean[n], p[0, 0].real, q[0, 0])
        steps.append(Steps(predicted, z[n] - predicted.mean, filtered))
    return stacked(steps)


def block_log_density(z, covariance, pseudo_covariance, noise, start, window=None, forgetting=1.0):
    """log p(z[start:] | the last `window` observations of z[:start]); arguments of `refitted`."""
    k, c = forgotten(covariance, forgetting), forgotten(pseudo_covariance, forgetting)
    block = start + np.flatnonzero(~np.isnan(z[start:]))
    m, p, q = conditional(block, last_seen(z[:start], window), z, k, c, noise)
    return log_prob(z[block], m, *with_noise(p, q, *noise))


class Tracker:
    """The kernel recursive least-squares tracker, in the moments of the signal at its basis.

    Van Vaerenbergh, Lázaro-Gredilla & Santamaría, IEEE Trans. Neural Netw. Learn. Syst. 23(8),
    2012. The basis holds f_ε = f + e, where e, independent at each point, is the ten thousandth
    part of the noise: K_ε = K + ε. With μ, Σ the posterior moments of f_ε at the basis,

        f(x):        mean kᴴ K_ε⁻¹ μ,  variance k_xx − kᴴ K_ε⁻¹ (K_ε − Σ) K_ε⁻¹ k,
        forgetting:  μ ← √λ μ,  Σ ← λ Σ + (1−λ) K_ε,
        pruning:     the point left out whose |a_i|² / [K_ε⁻¹]_ii, a = K_ε⁻¹ μ, is least.

    Args:
        pair: (x1, x2), each `[N, D]` -> (K, C), each `[N1, N2]`.
        noise: (variance, pseudo-variance).
        capacity: Points that are kept; None for all.
        forgetting: λ.
    """

    nugget_share = 1e-4

    def __init__(self, pair, noise, capacity=None, forgetting=1.0):
        self.pair, self.capacity, self.forgetting = pair, capacity, forgetting
        self.noise = augmented_covariance(*(np.array([[a]]) for a in noise))
        self.basis = None
        self.mean, self.covariance = np.zeros(0, complex), np.zeros((0, 0), complex)

    @property
    def size(self):
        return len(self.mean) // 2

    def prior(self, x1, x2):
        return augmented_covariance(*self.pair(x1, x2))

    def prior_of_basis(self):
        """K_ε of the basis."""
        nugget = self.nugget_share * np.kron(self.noise, np.eye(self.size))
        return self.prior(self.basis, self.basis) + nugget

    def at(self, x):
        """The augmented moments of f at one point `[1, D]`, and its covariance with the basis."""
        variance = self.prior(x, x)
        if not self.size:
            return np.zeros(2, complex), variance, np.zeros((0, 2), complex)
        # f(x) = kᴴ K_ε⁻¹ f_ε + what does not depend on the basis
        regression = np.linalg.solve(self.prior_of_basis(), self.prior(self.basis, x))
        reduction = self.prior_of_basis() - self.covariance
        return (
            np.conj(regression.T) @ self.mean,
            variance - np.conj(regression.T) @ reduction @ regression,
            self.covariance @ regression,
        )

    def marginal(self, x, with_noise=False):
        m, p, _ = self.at(x)
        p = p + self.noise if with_noise else p
        return Moments(m[0], p[0, 0].real, p[0, 1])

    def predict(self, x):
        """`Moments` of the signal at `[N, D]`."""
        return Moments(*(np.array(m) for m in zip(*map(self.marginal, x[:, None]), strict=True)))

    def step(self, x, z):
        """One sample at the input `[D]`; NaN for a missing one."""
        x = x[None]
        if self.size:
            self.mean = np.sqrt(self.forgetting) * self.mean
            prior = self.prior_of_basis()
            self.covariance = self.forgetting * self.covariance + (1 - self.forgetting) * prior
        predicted = self.marginal(x, with_noise=True)
        if not np.isnan(z):
            self.extend(x)
            self.observe(z)
            if self.capacity is not None and self.size > self.capacity:
                self.leave_out(self.least_costly())
        return Steps(predicted, z - predicted.mean, self.marginal(x))

    def extend(self, x):
        """Appends a point to the basis."""
        m, p, cross = self.at(x)
        n = self.size
        old_and_new = np.block(
            [[self.covariance, cross], [np.conj(cross.T), p + self.nugget_share * self.noise]]
        )
        # from [f; f̄; f_new; f̄_new] to [f; f_new; f̄; f̄_new]
        order = [*range(n), 2 * n, *range(n, 2 * n), 2 * n + 1]
        self.mean = np.concatenate([self.mean, m])[order]
        self.covariance = old_and_new[np.ix_(order, order)]
        self.basis = x if self.basis is None else np.concatenate([self.basis, x])

    def observe(self, z):
        """Conditions on an observation of the last point of the basis, in noise without e."""
        h = np.eye(2 * self.size)[[self.size - 1, -1]]
        innovation = augmented(np.array([z])) - h @ self.mean
        variance = h @ self.covariance @ h.T + (1 - self.nugget_share) * self.noise
        gain = self.covariance @ h.T @ np.linalg.inv(variance)
        self.mean = self.mean + gain @ innovation
        self.covariance = self.covariance - gain @ variance @ np.conj(gain.T)

    def costs(self):
        """The cost of leaving out each point of the basis, `[n]`."""
        inverse = np.linalg.inv(self.prior_of_basis())
        weights = inverse @ self.mean
        costs = []
        for i in range(self.size):
            indices = [i, self.size + i]
            block = inverse[np.ix_(indices, indices)]
            costs.append(
                (np.conj(weights[indices]) @ np.linalg.solve(block, weights[indices])).real
            )
        return np.array(costs)

    def least_costly(self):
        return int(np.argmin(self.costs()))

    def leave_out(self, i):
        indices = [i, self.size + i]
        self.mean = np.delete(self.mean, indices)
        self.covariance = np.delete(np.delete(self.covariance, indices, 0), indices, 1)
        self.basis = np.delete(self.basis, i, 0)

    def process(self, x, z):
        """`Steps` of a stream, inputs `[T, D]`."""
        return stacked([self.step(*sample) for sample in zip(x, z, strict=True)])

    def block_log_density(self, x, z):
        """log p(z | all before): by the chain rule, nothing being left out on the way."""
        growing = copy.deepcopy(self)
        growing.capacity = None
        total = 0.0
        for steps in (growing.step(*sample) for sample in zip(x, z, strict=True)):
            if not np.isnan(steps.innovation):
                m, k, c = (np.array([moment]) for moment in steps.predicted)
                total += log_prob(m + steps.innovation, m, k[None], c[None])
        return total
