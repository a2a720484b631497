"""Signs that draws are not yet those of the posterior, in words."""

import numpy as np

from cgp.gp.sampling.nuts import Chains

# Both bounds are those of Vehtari et al. 2021 (see `cgp.gp.sampling.diagnostics`).
_MOST_R_HAT = 1.01
_LEAST_SIZE = 100  # effective draws, for each chain
_LEAST_ACCEPTANCE = 0.2


def doubts(
    chains: Chains, r_hat: dict[str, np.ndarray], effective_sizes: dict[str, np.ndarray]
) -> list[str]:
    """What makes draws doubtful; nothing if all is well.

    Args:
        chains: The draws.
        r_hat: R-hat, by name of hyperparameters.
        effective_sizes: Their effective sizes, likewise.
    """
    found = []
    stuck = np.all(chains.points == chains.points[:, :1], axis=(1, 2))
    if stuck.any():
        found.append(
            f"{_numbered(stuck)} never moved: take a longer warm-up, which finds the size of steps"
        )
    refused = ~stuck & ~(np.mean(chains.acceptance, axis=1) >= _LEAST_ACCEPTANCE)
    if refused.any():
        found.append(
            f"{_numbered(refused)} accepted less than {_LEAST_ACCEPTANCE} of their proposals: take "
            "a longer warm-up, which finds the size of steps"
        )
    # NaN, of draws that are all equal, is no good sign either: it is within no bound.
    worst = {name: float(np.max(value)) for name, value in r_hat.items()}
    apart = [f"{name} ({value:.3f})" for name, value in worst.items() if not value <= _MOST_R_HAT]
    if apart:
        found.append(
            f"chains disagree, R-hat is above {_MOST_R_HAT} of {', '.join(apart)}: take more draws "
            "and a longer warm-up; where they stay apart there are several maxima, or data that do "
            "not determine these"
        )
    least = _LEAST_SIZE * len(chains.points)
    sizes = {name: float(np.min(value)) for name, value in effective_sizes.items()}
    few = [f"{name} ({value:.0f})" for name, value in sizes.items() if not value >= least]
    if few:
        found.append(
            f"they are worth fewer than {least} independent ones, {_LEAST_SIZE} a chain, of "
            f"{', '.join(few)}: take more draws"
        )
    diverged = int(np.sum(chains.diverged))
    if diverged:
        found.append(
            f"{diverged} of {chains.diverged.size} steps diverged: draws may be missing where "
            "the posterior is narrow or has no value; give priors that exclude such places"
        )
    return found


def _numbered(chosen: np.ndarray) -> str:
    numbers = np.flatnonzero(chosen)
    return f"chain{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
