"""Is the model right? What a filter's innovations say, beside what it expected of them.

If it is, the innovations of different steps are independent and normal, with the covariances that
the filter predicted. Divided by the Cholesky factor of these, they are white noise of variance 1,
which is what is tested here; after Y. Bar-Shalom, X. R. Li & T. Kirubarajan, *Estimation with
Applications to Tracking and Navigation*, 2001, §5.4, and G. M. Ljung & G. E. P. Box, Biometrika
65(2), 1978, for complex signals.

What is complex differs from what is real in one number, the real degrees of freedom d of an
element, 2 or 1. For white e of variance 1, N elements of them, and over independent pairs,

    d Σ|e|² ~ χ²_{dN},    d n |ρ|² → χ²_d,  ρ a mean of n products,

so that the modulus of a complex autocorrelation is Rayleigh distributed and its bound of 95 % is
√(−ln 0.05) = 1.73 of 1/√n, not 1.96. As ρ is divided by the power found, and not by 1, the exact
variance is that of products of coordinates of a point on a sphere: E|ρ|² = N/(N + 3 − d) / n. For
real innovations that is the (N + 2) of Ljung and Box, for complex ones it is N + 1.
"""

from typing import NamedTuple

import numpy as np

from cgp.linalg import NotPositiveDefiniteError


class Diagnostics(NamedTuple):
    """What the innovations of a filter say, NumPy; `print` shows it as a table with verdicts.

    For series of M elements and T steps; batch axes `[...]` are those of the series. Bounds hold
    each value by itself with probability `level` if the model is right; pairs of bounds, lower and
    upper, are the last axis.
    """

    normalized_innovations: np.ndarray
    """`[..., T, M]`, complex or real: L⁻¹ v, of variance 1; NaN where missing."""
    nis: np.ndarray
    """`[..., T]`: the normalised innovation squared of each step, `vᴴ S⁻¹ v`, or of an improper
    model `½ v_aᴴ S_a⁻¹ v_a` with v_a = [v; v̄]; NaN where all of it is missing. Its expectation is
    the number of elements observed."""
    nis_bounds: np.ndarray
    """`[..., T, 2]`, of `nis`."""
    fraction_inside: np.ndarray
    """`[...]`: of the steps, those whose NIS lies within its bounds."""
    fraction_inside_bounds: np.ndarray
    """`[..., 2]`, of `fraction_inside`."""
    average_nis: np.ndarray
    """`[...]`: the mean of `nis` over the steps."""
    average_nis_bounds: np.ndarray
    """`[..., 2]`, of `average_nis`."""
    autocorrelations: np.ndarray
    """`[..., lags, M]`, complex or real: of each normalised element with itself, lags from 1 on,
    the mean over the pairs observed, over the mean power."""
    autocorrelation_bounds: np.ndarray
    """`[..., lags, M]`: of their moduli."""
    portmanteau: np.ndarray
    """`[...]`: the statistic of Ljung and Box, of all lags and all pairs of elements."""
    portmanteau_degrees: np.ndarray
    """`[...]`: the degrees of freedom of its χ² distribution: d · lags · M²."""
    portmanteau_p_value: np.ndarray
    """`[...]`: how probable a larger one is if the innovations are white."""
    pseudo_variances: np.ndarray | None
    """`[..., M]`, complex: `Σ e² / Σ|e|²` of each normalised element, 0 of circular noise and of
    modulus 1 on a line; None of a real model."""
    pseudo_variance_bounds: np.ndarray | None
    """`[..., M]`: of their moduli; None of a real model."""
    level: float
    """The probability of the bounds."""

    def __str__(self) -> str:
        return _table(self)


def diagnostics(result, *, lags: int = 20, level: float = 0.95) -> Diagnostics:
    """Tests a model by the innovations that a filter with it leaves of a series.

    Innovations v are normalised as L⁻¹ v with `S = L Lᴴ` the covariance of those observed at that
    step. Those of an improper model are normalised in the real composite `[Re v; Im v]` and put
    together again: proper, of variance 1. The model is taken as known: if some of it was learned
    from the same series, bounds are a little wide for what it fits.

    Which test fails says what is wrong. NIS too large: the model expects too little of the noise,
    Q or R. Not white: what the filter left could have been predicted, F or H is wrong or the ratio
    of Q to R is. Not circular: the signal is improper in a way that the model is not
    (`widely_linear`).

    Args:
        result: What `statespace.filter` returned, of one series or a batch of them.
        lags: How many lags of the autocorrelation to look at, fewer than there are steps.
        level: The probability of the bounds, between 0 and 1.

    Returns:
        `Diagnostics`; statistics of a series without any observation are NaN.

    Raises:
        TypeError: Not the result of a filter, or `lags` is not an integer.
        ValueError: `lags` or `level` out of range.
        NotPositiveDefiniteError: An innovation whose variance is zero, as of a model without noise.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> pole = 0.98 * np.exp(0.4j)
        >>> model = statespace.LinearGaussian(F=[[pole]], Q=[[0.04]], H=[[1.0]], R=[[0.5]])
        >>> _, z = statespace.sample(model, steps=1000, seed=0)
        >>> result = statespace.diagnostics(statespace.filter(model, z))
        >>> low, high = result.average_nis_bounds
        >>> bool(low < result.average_nis < high), result.autocorrelations.shape
        (True, (20, 1))
    """
    innovations, covariances, pseudo = _of_filter(result)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    steps = innovations.shape[-2]
    if not isinstance(lags, int | np.integer):
        raise TypeError(f"lags must be an integer, got {lags!r}")
    if not 1 <= lags < steps:
        raise ValueError(
            f"lags must be at least 1 and fewer than the {steps} steps of the series, got {lags}"
        )
    from scipy import stats  # here: importing it takes long

    d = 2 if np.iscomplexobj(innovations) else 1
    tails = np.array([(1 - level) / 2, (1 + level) / 2])

    e = _normalized(innovations, covariances, pseudo)
    seen = ~np.isnan(e)
    squares = np.where(seen, np.abs(e) ** 2, 0.0)
    # Where nothing was observed there are no statistics: 0/0 gives the NaN that says so.
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = seen.sum(axis=-1)
        elements = np.arange(innovations.shape[-1] + 1)
        per_step = np.where(elements, d * elements, np.nan)[:, None]
        bounds_of = np.asarray(stats.chi2.ppf(tails, per_step)) / d
        nis, nis_bounds = np.where(observed, squares.sum(axis=-1), np.nan), bounds_of[observed]
        counted = (observed > 0).sum(axis=-1)
        inside = (nis_bounds[..., 0] <= nis) & (nis <= nis_bounds[..., 1])
        n_steps = np.where(counted, counted, np.nan)
        total = np.where(counted, d * observed.sum(axis=-1), np.nan)
        auto, auto_variance, all_, all_variance = _correlations(e, seen, squares, lags, d)
        terms = d * np.abs(all_) ** 2 / all_variance
        finite = np.isfinite(terms)
        portmanteau = np.where(finite, terms, 0.0).sum(axis=(-3, -2, -1))
        degrees = d * finite.sum(axis=(-3, -2, -1))
        pseudo_variances, pseudo_bounds = None, None
        if d == 2:
            pseudo_variances = np.where(seen, e**2, 0.0).sum(axis=-2) / squares.sum(axis=-2)
            # On a sphere in N complex dimensions E|Σ e²|² / (Σ|e|²)² = N E|e|⁴ = 2/(N + 1).
            count = np.where(seen.any(axis=-2), seen.sum(axis=-2), np.nan)
            pseudo_bounds = np.sqrt(-np.log1p(-level) * 2.0 / (count + 1))
        return Diagnostics(
            normalized_innovations=e,
            nis=nis,
            nis_bounds=nis_bounds,
            fraction_inside=inside.sum(axis=-1) / counted,
            fraction_inside_bounds=stats.binom.ppf(tails, n_steps[..., None], level)
            / n_steps[..., None],
            average_nis=squares.sum(axis=(-2, -1)) / counted,
            average_nis_bounds=stats.chi2.ppf(tails, total[..., None]) / d / n_steps[..., None],
            autocorrelations=auto,
            autocorrelation_bounds=np.sqrt(stats.chi2.ppf(level, d) / d * auto_variance),
            portmanteau=np.where(degrees, portmanteau, np.nan),
            portmanteau_degrees=degrees,
            portmanteau_p_value=np.asarray(
                stats.chi2.sf(portmanteau, np.where(degrees, degrees, np.nan))
            ),
            pseudo_variances=pseudo_variances,
            pseudo_variance_bounds=pseudo_bounds,
            level=float(level),
        )


def _of_filter(result):
    """Innovations `[..., T, M]`, their covariances and pseudo-covariances (or None), in double."""
    names = ("innovations", "innovation_covariances", "innovation_pseudo_covariances")
    if not all(hasattr(result, name) for name in names):
        raise TypeError(
            "diagnostics are of what statespace.filter returned: expected a Filtered, "
            f"got {type(result).__name__}"
        )
    innovations, covariances = (np.asarray(getattr(result, name)) for name in names[:2])
    precise = np.complex128 if np.iscomplexobj(innovations) else np.float64
    if innovations.ndim == covariances.ndim - 2:  # a series [T]
        innovations = innovations[..., None]
    pseudo = result.innovation_pseudo_covariances
    return (
        innovations.astype(precise),
        covariances.astype(precise),
        None if pseudo is None else np.asarray(pseudo).astype(precise),
    )


def _normalized(innovations, covariances, pseudo):
    """L⁻¹ v of the elements observed, NaN elsewhere."""
    seen = ~np.isnan(innovations)
    v = np.where(seen, innovations, 0.0)
    if pseudo is not None:
        # cgp.linalg.to_composite, in NumPy; times 2, so that both parts have ½ when whitened.
        upper = np.concatenate([(covariances + pseudo).real, (pseudo - covariances).imag], axis=-1)
        lower = np.concatenate([(covariances + pseudo).imag, (covariances - pseudo).real], axis=-1)
        covariances = np.concatenate([upper, lower], axis=-2)
        v = np.concatenate([v.real, v.imag], axis=-1)
        both = np.concatenate([seen, seen], axis=-1)
    else:
        both = seen
    # In the place of what is missing a unit variance, uncorrelated: it leaves the others alone.
    pairs = both[..., :, None] & both[..., None, :]
    covariances = np.where(pairs, covariances, np.eye(both.shape[-1]))
    try:
        chols = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            "an innovation covariance is singular: what has no noise cannot be normalised "
            "(give R some variance)"
        ) from None
    e = np.linalg.solve(chols, v[..., None])[..., 0]
    if pseudo is not None:
        m = innovations.shape[-1]
        e = e[..., :m] + 1j * e[..., m:]
    return np.where(seen, e, np.nan)


def _correlations(e, seen, squares, lags, d):
    """Autocorrelations `[..., lags, M]` and all correlations `[..., lags, M, M]`, with variances.

    Element i at a step with element j `lag` steps before, the mean over the pairs observed.
    """
    count = seen.sum(axis=-2)
    scale = np.sqrt(squares.sum(axis=-2, keepdims=True) / count[..., None, :])
    e, weight = np.where(seen, e / scale, 0.0), seen.astype(float)
    sums, pairs = (
        np.stack(
            [
                np.einsum("...ti,...tj->...ij", x[..., lag:, :], x[..., :-lag, :].conj())
                for lag in range(1, lags + 1)
            ],
            axis=-3,
        )
        for x in (e, weight)
    )
    # The exact variance (module docstring); two different elements are not on one sphere.
    same = np.eye(e.shape[-1], dtype=bool)
    sphere = np.where(same, (count / (count + 3 - d))[..., None, None, :], 1.0)
    variances = np.where(pairs, sphere / pairs, np.nan)
    correlations = np.where(pairs, sums / pairs, np.nan)
    auto, auto_variances = (
        np.diagonal(x, axis1=-2, axis2=-1).copy() for x in (correlations, variances)
    )
    return auto, auto_variances, correlations, variances


def _table(of: Diagnostics) -> str:
    """Rows of a value, what is expected of it, and a verdict; of a batch, medians and a count."""
    *batch, steps, m = of.normalized_innovations.shape
    missing = np.mean(np.isnan(of.normalized_innovations))
    title = f"Innovations: {steps} steps of {m} element{'s' * (m > 1)}, {missing:.1%} missing"
    series = np.sum(~np.isnan(of.average_nis))  # others have nothing to show
    if not series:
        return f"{title}\nnothing was observed"
    title += f"; {series} series, medians of these" if batch else ""
    lines = [title, f"{'':34}{'found':>9}   {f'expected ({of.level:.0%})':18}"]
    for name, form, value, (low, high), verdicts in _rows(of):
        below, above = value < low, value > high
        value, low, high = (float(np.nanmedian(x)) for x in (value, low, high))
        expected = f"{low:{form}} to {high:{form}}"
        if low == -np.inf or high == np.inf:
            expected = f"at most {high:{form}}" if low == -np.inf else f"at least {low:{form}}"
        too_low, good, too_high = verdicts
        verdict = too_low if np.any(below) else too_high if np.any(above) else good
        if batch:
            verdict = f"{good}: {series - np.sum(below | above)} of {series}"
        lines.append(f"{name:34}{value:>9{form}}   {expected:18}   {verdict}")
    return "\n".join(lines)


def _rows(of: Diagnostics):
    """Of each row name, format, value, (lower, upper) and what to say if below, within, above."""
    from scipy import stats

    *_, lags, m = of.autocorrelations.shape

    def pair(bounds):
        return bounds[..., 0], bounds[..., 1]

    verdicts = ("too small: Q or R is too large", "as expected", "too large: Q or R is too small")
    yield "mean NIS", ".3f", of.average_nis, pair(of.average_nis_bounds), verdicts
    verdicts = ("too few: other noise than Q and R say", "as expected", "more than expected")
    inside = pair(of.fraction_inside_bounds)
    yield "steps with NIS inside its bounds", ".1%", of.fraction_inside, inside, verdicts

    verdicts = ("not white: F or H, or Q beside R, is wrong", "white", "")
    outside = np.sum(np.abs(of.autocorrelations) > of.autocorrelation_bounds, axis=(-2, -1))
    inside = np.where(np.isnan(of.average_nis), np.nan, lags * m - outside)
    fewest = stats.binom.ppf(1 - of.level, lags * m, of.level)
    name = f"autocorrelations inside, of {lags * m}"
    yield name, ".0f", inside, (fewest, np.inf), verdicts
    probable = (1 - of.level, np.inf)
    yield "Ljung and Box, p value", ".3f", of.portmanteau_p_value, probable, verdicts
    if of.pseudo_variances is not None and of.pseudo_variance_bounds is not None:
        value, bounds = np.abs(of.pseudo_variances), of.pseudo_variance_bounds
        # The bound of the largest of m, the square of each of which is exponential.
        bound = np.sqrt(np.log1p(-(of.level ** (1 / m))) / np.log1p(-of.level))
        value, bound = np.fmax.reduce(value, -1), bound * np.fmax.reduce(bounds, -1)
        name = "pseudo-variance" + ", largest modulus" * (m > 1)
        verdicts = ("", "circular", "not circular: a pseudo-covariance is missing or wrong")
        yield name, ".3f", value, (-np.inf, bound), verdicts
