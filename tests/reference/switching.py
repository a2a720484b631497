"""The filter of interacting models in covariance form, of one series.

Blom & Bar-Shalom, IEEE Trans. Autom. Control 33, 1988, in the steps of Bar-Shalom, Li &
Kirubarajan, *Estimation with Applications to Tracking and Navigation*, 2001, ch. 11.6.
"""

from typing import NamedTuple

import numpy as np

from tests.reference.kalman import adjoint, normal_log_prob


class Filtered(NamedTuple):
    predicted_means: np.ndarray
    predicted_covariances: np.ndarray
    filtered_means: np.ndarray
    filtered_covariances: np.ndarray
    observation_means: np.ndarray
    observation_covariances: np.ndarray
    log_likelihoods: np.ndarray
    probabilities: np.ndarray
    """Of the models after each observation, `[T, K]`."""


def mixture(weights, means, covariances):
    mean = sum(w * m for w, m in zip(weights, means, strict=True))
    covariance = sum(
        w * (P + np.outer(m - mean, np.conj(m - mean)))
        for w, m, P in zip(weights, means, covariances, strict=True)
    )
    return mean, covariance


def filtered(models, transition, initial, z):
    """`Filtered` of K `kalman.Model`s and a series `[T, m]`, NaN where missing."""
    count = len(models)
    means, covariances = ([getattr(model, n) for model in models] for n in ("mean", "covariance"))
    prior, steps = np.array(initial), []
    for t, observation in enumerate(z):
        present = ~np.isnan(observation)
        predicted = mixture(prior, means, covariances)
        after, likelihoods, observed = [], [], []
        for model, mean, P in zip(models, means, covariances, strict=True):
            H, R = model.H[t], model.R[t]
            S = H @ P @ adjoint(H) + R
            observed.append((H @ mean, S))
            h, s = H[present], S[np.ix_(present, present)]
            e = (observation - H @ mean)[present]
            gain = P @ adjoint(h) @ np.linalg.inv(s)
            after.append((mean + gain @ e, P - gain @ s @ adjoint(gain)))
            likelihoods.append(np.exp(normal_log_prob(e, np.zeros(len(e)), s)))
        total = prior @ likelihoods
        posterior = prior * likelihoods / total
        steps.append(
            (
                *predicted,
                *mixture(posterior, *zip(*after, strict=True)),
                *mixture(prior, *zip(*observed, strict=True)),
                np.log(total),
                posterior,
            )
        )
        prior = posterior @ transition
        means, covariances = [], []
        for j, model in enumerate(models):
            weights = transition[:, j] * posterior / prior[j]
            assert len(weights) == count
            mean, P = mixture(weights, *zip(*after, strict=True))
            F = model.F[t]
            means.append(F @ mean + model.drift[t])
            covariances.append(F @ P @ adjoint(F) + model.Q[t])
    return Filtered(*(np.array(arrays) for arrays in zip(*steps, strict=True)))
