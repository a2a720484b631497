"""R-hat and bulk effective sizes of chains as Vehtari et al. (2021) define them, in loops."""

from statistics import NormalDist

import numpy as np


def split(draws):
    """Halves of chains `[C, n]`, those of an odd number without the draw in the middle."""
    half = len(draws[0]) // 2
    return [section for chain in draws for section in (chain[:half], chain[len(chain) - half :])]


def normal_scores(chains):
    """Φ⁻¹ of fractional ranks among all draws, ties with their mean rank."""
    pooled = [x for chain in chains for x in chain]
    scores = []
    for chain in chains:
        ranks = [sum(y < x for y in pooled) + (sum(y == x for y in pooled) + 1) / 2 for x in chain]
        scores.append([NormalDist().inv_cdf((r - 3 / 8) / (len(pooled) + 1 / 4)) for r in ranks])
    return np.array(scores)


def variances(chains):
    """Mean variance within a chain, and the estimate of that of all: (n − 1)/n W + B/n."""
    n = chains.shape[1]
    within = np.mean([np.sum((chain - chain.mean()) ** 2) / (n - 1) for chain in chains])
    means = [chain.mean() for chain in chains]
    between = n * np.sum((means - np.mean(means)) ** 2) / (len(means) - 1)
    return within, (n - 1) / n * within + between / n


def basic_r_hat(chains):
    within, total = variances(chains)
    return np.sqrt(total / within)


def r_hat(draws):
    halves = split(draws)
    median = np.median([x for chain in halves for x in chain])
    folded = [[abs(x - median) for x in chain] for chain in halves]
    return max(basic_r_hat(normal_scores(halves)), basic_r_hat(normal_scores(folded)))


def bulk_effective_size(draws):
    chains = normal_scores(split(draws))
    count, n = chains.shape
    within, total = variances(chains)

    def autocorrelation(lag):
        of_chains = [
            sum((chain[t] - chain.mean()) * (chain[t + lag] - chain.mean()) for t in range(n - lag))
            / n
            for chain in chains
        ]
        return 1 - (within - np.mean(of_chains)) / total if lag else 1.0

    pairs, k = [], 0
    while True:
        even = autocorrelation(2 * k)
        pair = even + autocorrelation(2 * k + 1)
        if pair < 0 or 2 * k + 3 > n - 2:
            break
        pairs.append(pair if not pairs else min(pair, pairs[-1]))
        k += 1
    time = -1 + 2 * sum(pairs) + max(even, 0)
    return count * n / max(time, 1 / np.log10(count * n))
