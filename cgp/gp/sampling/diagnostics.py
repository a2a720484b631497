"""The convergence of chains: R-hat, effective sizes, and the problems they reveal.

After Vehtari, Gelman, Simpson, Carpenter & Bürkner, Rank-normalization, folding, and localization:
an improved R̂, Bayesian Analysis 16, 2021. Chains are split in halves, so that one that drifts
disagrees with itself. All S draws are replaced by the normal scores of their ranks r,

    z = Φ⁻¹((r − 3/8) / (S + 1/4)) ,

which have moments even where the moments of the draws are infinite.
"""

import numpy as np

from cgp.gp.sampling.nuts import Chains

# Both bounds are from the paper above.
_MOST_R_HAT = 1.01
_LEAST_SIZE = 100  # effective draws, for each chain
_LEAST_ACCEPTANCE = 0.2


def r_hat(draws: np.ndarray) -> float:
    """R-hat of real draws `[chains, draws]`, at least 4 of each: near 1 if all chains agree.

    The larger of the R-hat of the draws, which reveals chains of different location, and the R-hat
    of their distances from the median, `|x − median|`, which reveals chains of different width. NaN
    for draws that are all equal.
    """
    halves = _halves(draws)
    return float(np.max([_ratio(_scores(a)) for a in (halves, np.abs(halves - np.median(halves)))]))


def effective_size(draws: np.ndarray) -> float:
    """The bulk effective size: the number of independent draws that would tell as much.

    Draws are real, `[chains, draws]`, at least 4 of each; NaN if they are all equal. With ρ_t the
    autocorrelation of the scores at a lag t, to which the variance between chains adds, it is
    S/τ, `τ = −1 + 2 Σ_k P_k`, over the sums of pairs `P_k = ρ_2k + ρ_2k+1`. These are positive and
    fall in a reversible chain: the sum ends before the first negative one, and one that is larger
    than those before it counts as the least of them (Geyer, Statistical Science 7, 1992). As τ of
    chains that alternate may be about zero, it is at least 1/log₁₀ S.
    """
    scores = _scores(_halves(draws))
    n = scores.shape[1]
    covariances = np.mean(_autocovariances(scores), axis=0)
    within = covariances[0] * n / (n - 1)
    total = covariances[0] + np.var(np.mean(scores, axis=1), ddof=1)
    with np.errstate(invalid="ignore"):  # of draws that are all equal
        correlations = 1.0 - (within - covariances) / total
    correlations[0] = 1.0
    count = max(1, (n - 1) // 2)  # a last lag or two have hardly a product to average
    pairs = correlations[: 2 * count].reshape(count, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0.0)
    last = negative[0] if negative.size else count - 1
    # The even lag of the pair where the sum ends counts once.
    time = -1.0 + 2.0 * np.sum(np.minimum.accumulate(pairs[:last]))
    time += np.maximum(correlations[2 * last], 0.0)
    return float(scores.size / np.maximum(time, 1.0 / np.log10(scores.size)))


def _halves(draws: np.ndarray) -> np.ndarray:
    """`[chains, draws]` -> `[2 chains, draws / 2]`, without the middle draw of an odd number."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]]).astype(float)


def _scores(draws: np.ndarray) -> np.ndarray:
    """The normal scores of the ranks of all draws; equal ones share the mean of their ranks."""
    from scipy.special import ndtri  # here: `import cgp` does without SciPy

    _, place, counts = np.unique(draws, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1))[place].reshape(draws.shape)
    return ndtri((ranks - 0.375) / (draws.size + 0.25))


def _ratio(chains: np.ndarray) -> float:
    """R-hat without ranks or folding: √(variance of all draws / mean variance of a chain)."""
    n = chains.shape[1]
    within = np.mean(np.var(chains, axis=1, ddof=1))
    between = np.var(np.mean(chains, axis=1), ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # of draws that are all equal
        return float(np.sqrt((n - 1) / n + between / within))


def _autocovariances(chains: np.ndarray) -> np.ndarray:
    """The autocovariances of chains `[C, n]` at lags 0 to n − 1: sums of products, over n."""
    n = chains.shape[1]
    spectrum = np.fft.rfft(chains - np.mean(chains, axis=1, keepdims=True), 2 * n)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * n)[:, :n] / n


def convergence_problems(
    chains: Chains, r_hat: dict[str, np.ndarray], effective_sizes: dict[str, np.ndarray]
) -> list[str]:
    """Signs that chains have not converged, in words, from diagnostics by name."""
    problems = []
    stuck = np.all(chains.points == chains.points[:, :1], axis=(1, 2))
    if stuck.any():
        problems.append(
            f"{_numbered(stuck)} never moved: take a longer warm-up, which finds the size of steps"
        )
    refused = ~stuck & ~(np.mean(chains.acceptance, axis=1) >= _LEAST_ACCEPTANCE)
    if refused.any():
        problems.append(
            f"{_numbered(refused)} accepted less than {_LEAST_ACCEPTANCE} of their proposals: take "
            "a longer warm-up, which finds the size of steps"
        )
    # NaN, of draws that are all equal, is no good sign either: it is within no bound. But a vector
    # may have elements that are constant, as the gain of a reference.
    r_hat, effective_sizes = map(_of_varying_elements, (r_hat, effective_sizes))
    worst = {name: float(np.max(a)) for name, a in r_hat.items()}
    apart = [f"{name} ({r:.3f})" for name, r in worst.items() if not r <= _MOST_R_HAT]
    if apart:
        problems.append(
            f"chains disagree, R-hat is above {_MOST_R_HAT} of {', '.join(apart)}: take more draws "
            "and a longer warm-up; where they stay apart there are several maxima, or data that do "
            "not determine these"
        )
    least = _LEAST_SIZE * len(chains.points)
    sizes = {name: float(np.min(a)) for name, a in effective_sizes.items()}
    few = [f"{name} ({size:.0f})" for name, size in sizes.items() if not size >= least]
    if few:
        problems.append(
            f"they are worth fewer than {least} independent ones, {_LEAST_SIZE} a chain, of "
            f"{', '.join(few)}: take more draws"
        )
    diverged = int(np.sum(chains.diverged))
    if diverged:
        problems.append(
            f"{diverged} of {chains.diverged.size} steps diverged: draws may be missing where "
            "the posterior is narrow or has no value; give priors that exclude such places"
        )
    return problems


def _of_varying_elements(by_name: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Diagnostics by name, those of the elements that are no number left out if others are."""
    return {n: a if np.isnan(a).all() else a[~np.isnan(a)] for n, a in by_name.items()}


def _numbered(chosen: np.ndarray) -> str:
    numbers = np.flatnonzero(chosen)
    return f"chain{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
