"""Innovation diagnostics: consistency tests of a state-space model against a series.

If the model is right, the innovations of different steps are independent and normal, with the
covariances that the filter predicted. Normalised by the Cholesky factors of these covariances, they
are white noise of variance 1, which is tested here. The tests follow Y. Bar-Shalom, X. R. Li
& T. Kirubarajan, *Estimation with Applications to Tracking and Navigation*, 2001, §5.4, and
G. M. Ljung & G. E. P. Box, Biometrika 65(2), 1978, extended to complex signals.

The tests of complex and real signals differ in the real degrees of freedom d of an element, 2 or 1.
For N elements e of white noise of variance 1, and ρ a mean of n independent products,

    d Σ|e|² ~ χ²_{dN},    d n |ρ|² → χ²_d .

The modulus of a complex autocorrelation is thus Rayleigh distributed, and its 95 % bound is
√(−ln 0.05) = 1.73 times 1/√n, not 1.96. Since ρ is divided by the sample power, not by 1, its exact
variance follows from products of coordinates of a point on a sphere: E|ρ|² = N/(N + 3 − d) / n. For
real innovations this is the (N + 2) of Ljung and Box, for complex ones N + 1.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cgp.distributions.complex_normal import check_probability
from cgp.linalg import NotPositiveDefiniteError, to_composite
from cgp.statespace.results import Filtered

_Bounds = tuple[Any, Any]
_Verdicts = tuple[str, str, str]


class Diagnostics(NamedTuple):
    """Test statistics of a filter's innovations, NumPy arrays; `print` shows a table with verdicts.

    For series of M elements and T steps, with the batch axes `[...]` of the series. If the model
    is right, each value lies within its bounds with probability `level`. Lower and upper bounds are
    the last axis.
    """

    normalized_innovations: np.ndarray
    """The innovations L⁻¹ v, of variance 1: `[..., T, M]`, complex or real; NaN where missing."""
    nis: np.ndarray
    """The normalised innovation squared of each step, `[..., T]`, as `Step.nis`: `vᵀ S⁻¹ v` of a
    real model, `2 vᴴ S⁻¹ v` of a complex one, `v_aᴴ S_a⁻¹ v_a` with v_a = [v; v̄] of an improper
    one; NaN where every element is missing. If the model is right it is χ², with a degree of
    freedom for each real element observed and two for each complex one."""
    nis_bounds: np.ndarray
    """Bounds of `nis`, `[..., T, 2]`."""
    fraction_inside: np.ndarray
    """The fraction of steps whose NIS lies within its bounds, `[...]`."""
    fraction_inside_bounds: np.ndarray
    """Bounds of `fraction_inside`, `[..., 2]`."""
    average_nis: np.ndarray
    """The mean of `nis` over the steps, `[...]`."""
    average_nis_bounds: np.ndarray
    """Bounds of `average_nis`, `[..., 2]`."""
    autocorrelations: np.ndarray
    """The autocorrelations of each normalised element at lags from 1 on, `[..., lags, M]`, complex
    or real: the mean over observed pairs, divided by the mean power."""
    autocorrelation_bounds: np.ndarray
    """Bounds of the moduli of `autocorrelations`, `[..., lags, M]`."""
    portmanteau: np.ndarray
    """The statistic of Ljung and Box over all lags and all pairs of elements, `[...]`."""
    portmanteau_degrees: np.ndarray
    """The degrees of freedom of its χ² distribution, d · lags · M², `[...]`."""
    portmanteau_p_value: np.ndarray
    """The probability of a larger statistic if the innovations are white, `[...]`."""
    pseudo_variances: np.ndarray | None
    """The relative pseudo-variance `Σ e² / Σ|e|²` of each normalised element, `[..., M]`, complex:
    0 for circular noise, of modulus 1 for noise on a line; None for a real model."""
    pseudo_variance_bounds: np.ndarray | None
    """Bounds of the moduli of `pseudo_variances`, `[..., M]`; None for a real model."""
    level: float
    """The probability of the bounds."""

    def __repr__(self) -> str:
        return _table(self)


def diagnostics(result: Filtered, *, lags: int | None = None, level: float = 0.95) -> Diagnostics:
    """Tests a state-space model by the innovations of its filter.

    Innovations v are normalised as L⁻¹ v, where `S = L Lᴴ` is the covariance of the elements
    observed at that step. Innovations of an improper model are normalised in the real composite
    `[Re v; Im v]`, which gives proper ones of variance 1. The model is assumed to be known: if
    parameters were learned from the same series, the bounds are slightly too wide.

    The test that fails shows what is wrong. NIS too large: process noise Q or observation noise R
    is too small. Not white: the innovations could have been predicted; F, H, or the ratio of Q to R
    is wrong. Not circular: the signal is improper in a way that the model is not
    (`widely_linear`).

    Args:
        result: The result of `statespace.filter`, of one series or a batch of them.
        lags: Number of lags of the autocorrelation, fewer than there are steps. If None, 20, or as
            many as a shorter series has.
        level: The probability of the bounds, between 0 and 1.

    Returns:
        `Diagnostics`; statistics of a series without any observation are NaN.

    Raises:
        TypeError: `result` is not from a filter, `lags` not an integer, or `level` not a number.
        ValueError: `lags` or `level` out of range, or a series of one step.
        NotPositiveDefiniteError: An innovation variance is zero, as in a model without noise.

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
    check_probability(level, "level")
    steps = innovations.shape[-2]
    if steps < 2:
        raise ValueError(f"diagnostics need a series of at least two steps, got {steps}")
    lags = min(20, steps - 1) if lags is None else lags
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
    is_observed = ~np.isnan(e)
    squares = np.where(is_observed, np.abs(e) ** 2, 0.0)
    # Statistics of a series without observations are 0/0, hence NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = is_observed.sum(axis=-1)
        elements = np.arange(innovations.shape[-1] + 1)
        per_step = np.where(elements, d * elements, np.nan)[:, None]
        bounds_of = np.asarray(stats.chi2.ppf(tails, per_step))
        nis, nis_bounds = np.where(observed, d * squares.sum(axis=-1), np.nan), bounds_of[observed]
        counted = (observed > 0).sum(axis=-1)
        inside = (nis_bounds[..., 0] <= nis) & (nis <= nis_bounds[..., 1])
        n_steps = np.where(counted, counted, np.nan)
        total = np.where(counted, d * observed.sum(axis=-1), np.nan)
        auto, auto_variance, all_, all_variance = _correlations(e, is_observed, squares, lags, d)
        terms = d * np.abs(all_) ** 2 / all_variance
        finite = np.isfinite(terms)
        portmanteau = np.where(finite, terms, 0.0).sum(axis=(-3, -2, -1))
        degrees = d * finite.sum(axis=(-3, -2, -1))
        p_value = stats.chi2.sf(portmanteau, np.where(degrees, degrees, np.nan))
        pseudo_variances, pseudo_bounds = None, None
        if d == 2:
            pseudo_variances = np.where(is_observed, e**2, 0.0).sum(axis=-2) / squares.sum(axis=-2)
            # On a sphere in N complex dimensions E|Σ e²|² / (Σ|e|²)² = N E|e|⁴ = 2/(N + 1).
            count = np.where(is_observed.any(axis=-2), is_observed.sum(axis=-2), np.nan)
            pseudo_bounds = np.sqrt(-np.log1p(-level) * 2.0 / (count + 1))
        return Diagnostics(
            normalized_innovations=e,
            nis=nis,
            nis_bounds=nis_bounds,
            fraction_inside=inside.sum(axis=-1) / counted,
            fraction_inside_bounds=stats.binom.ppf(tails, n_steps[..., None], level)
            / n_steps[..., None],
            average_nis=d * squares.sum(axis=(-2, -1)) / counted,
            average_nis_bounds=stats.chi2.ppf(tails, total[..., None]) / n_steps[..., None],
            autocorrelations=auto,
            autocorrelation_bounds=np.sqrt(stats.chi2.ppf(level, d) / d * auto_variance),
            portmanteau=np.where(degrees, portmanteau, np.nan),
            portmanteau_degrees=degrees,
            portmanteau_p_value=np.asarray(p_value),
            pseudo_variances=pseudo_variances,
            pseudo_variance_bounds=pseudo_bounds,
            level=float(level),
        )


def _of_filter(result: Filtered) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Innovations `[..., T, M]`, their covariances, and pseudo-covariances (or None), in double."""
    names = ("innovations", "innovation_covariances", "innovation_pseudo_covariances")
    if not all(hasattr(result, name) for name in names):
        raise TypeError(
            "result must be that of statespace.filter: expected a Filtered, "
            f"got {type(result).__name__}"
        )
    innovations, covariances = (np.asarray(getattr(result, name)) for name in names[:2])
    precise = np.complex128 if np.iscomplexobj(innovations) else np.float64
    if innovations.ndim == covariances.ndim - 2:  # a series [T]
        innovations = innovations[..., None]
    pseudo = result.innovation_pseudo_covariances
    pseudo = None if pseudo is None else np.asarray(pseudo).astype(precise)
    return innovations.astype(precise), covariances.astype(precise), pseudo


def _normalized(
    innovations: np.ndarray, covariances: np.ndarray, pseudo: np.ndarray | None
) -> np.ndarray:
    """Normalised innovations L⁻¹ v, `[..., T, M]`; NaN where missing."""
    is_observed = pairs_observed = ~np.isnan(innovations)
    v = np.where(is_observed, innovations, 0.0)
    if pseudo is not None:
        # Twice the composite, so that both parts of the normalised innovations have variance ½.
        covariances = 2.0 * to_composite(covariances, pseudo).numpy()
        v = np.concatenate([v.real, v.imag], axis=-1)
        pairs_observed = np.concatenate([is_observed, is_observed], axis=-1)
    # Missing elements get unit variance and no correlation, which does not affect the others.
    pairs = pairs_observed[..., :, None] & pairs_observed[..., None, :]
    covariances = np.where(pairs, covariances, np.eye(pairs_observed.shape[-1]))
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
    return np.where(is_observed, e, np.nan)


def _correlations(
    e: np.ndarray, is_observed: np.ndarray, squares: np.ndarray, lags: int, d: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Autocorrelations of normalised innovations e, all correlations, and the variances of each.

    Element i is correlated with element j of `lag` steps before, by the mean over the observed
    pairs. `squares` are |e|², 0 where missing; d is the real degrees of freedom of an
    element. The result is twice `[..., lags, M]`, then twice `[..., lags, M, M]`.
    """
    count = is_observed.sum(axis=-2)
    scale = np.sqrt(squares.sum(axis=-2, keepdims=True) / count[..., None, :])
    e, weight = np.where(is_observed, e / scale, 0.0), is_observed.astype(float)
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
    # The exact variance of the module docstring; it holds for products of an element with itself.
    same = np.eye(e.shape[-1], dtype=bool)
    sphere = np.where(same, (count / (count + 3 - d))[..., None, None, :], 1.0)
    variances = np.where(pairs, sphere / pairs, np.nan)
    correlations = np.where(pairs, sums / pairs, np.nan)
    auto, auto_variances = (
        np.diagonal(x, axis1=-2, axis2=-1).copy() for x in (correlations, variances)
    )
    return auto, auto_variances, correlations, variances


def _table(of: Diagnostics) -> str:
    """A table of statistics, their expected range and verdicts; medians and counts for a batch."""
    *batch, steps, m = of.normalized_innovations.shape
    missing = np.mean(np.isnan(of.normalized_innovations))
    title = f"Innovations: {steps} steps of {m} element{'s' * (m > 1)}, {missing:.1%} missing"
    series = np.sum(~np.isnan(of.average_nis))  # those with observations
    if not series:
        return f"{title}\nnothing was observed"
    title += f"; {series} series, medians of these" if batch else ""
    lines = [title, f"{'':34}{'median':>9}   {f'expected ({of.level:.0%})':18}"]
    for name, form, statistic, (low, high), verdicts in _rows(of):
        below, above = statistic < low, statistic > high
        median, bottom, top = (float(np.nanmedian(x)) for x in (statistic, low, high))
        expected = f"{bottom:{form}} to {top:{form}}"
        if bottom == -np.inf or top == np.inf:
            expected = f"at most {top:{form}}" if bottom == -np.inf else f"at least {bottom:{form}}"
        too_low, good, too_high = verdicts
        verdict = too_low if np.any(below) else too_high if np.any(above) else good
        if batch:
            verdict = f"{good}: {series - np.sum(below | above)} of {series}"
        lines.append(f"{name:34}{median:>9{form}}   {expected:18}   {verdict}")
    return "\n".join(lines)


def _rows(of: Diagnostics) -> Iterator[tuple[str, str, np.ndarray, _Bounds, _Verdicts]]:
    """Rows of the table: name, format, value, (lower, upper), verdicts (below, within, above)."""
    from scipy import stats

    *_, lags, m = of.autocorrelations.shape
    average, fraction = (
        (bounds[..., 0], bounds[..., 1])
        for bounds in (of.average_nis_bounds, of.fraction_inside_bounds)
    )
    verdicts = ("too small: Q or R is too large", "as expected", "too large: Q or R is too small")
    yield "mean NIS", ".3f", of.average_nis, average, verdicts
    verdicts = ("too few: other noise than Q and R say", "as expected", "more than expected")
    yield "steps with NIS inside its bounds", ".1%", of.fraction_inside, fraction, verdicts

    verdicts = ("not white: F or H, or Q beside R, is wrong", "white", "")
    outside = np.sum(np.abs(of.autocorrelations) > of.autocorrelation_bounds, axis=(-2, -1))
    inside = np.where(np.isnan(of.average_nis), np.nan, lags * m - outside)
    fewest = stats.binom.ppf(1 - of.level, lags * m, of.level)
    name = f"autocorrelations inside, of {lags * m}"
    yield name, ".0f", inside, (fewest, np.inf), verdicts
    probable = (1 - of.level, np.inf)
    yield "Ljung and Box, p value", ".3f", of.portmanteau_p_value, probable, verdicts
    if of.pseudo_variances is not None and of.pseudo_variance_bounds is not None:
        statistic, limits = np.abs(of.pseudo_variances), of.pseudo_variance_bounds
        # The bound of the largest of m moduli, each of whose squares is exponential.
        bound = np.sqrt(np.log1p(-(of.level ** (1 / m))) / np.log1p(-of.level))
        statistic, bound = np.fmax.reduce(statistic, -1), bound * np.fmax.reduce(limits, -1)
        name = "pseudo-variance" + ", largest modulus" * (m > 1)
        verdicts = ("", "circular", "not circular: a pseudo-covariance is missing or wrong")
        yield name, ".3f", statistic, (-np.inf, bound), verdicts
