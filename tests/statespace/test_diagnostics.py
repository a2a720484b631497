from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from cgp import NotPositiveDefiniteError, statespace
from cgp.statespace import diagnostics


class Result(NamedTuple):
    """As much of a filter's result as is looked at."""

    innovations: np.ndarray
    innovation_covariances: np.ndarray
    innovation_pseudo_covariances: np.ndarray | None = None


def noise(rng, *shape, real=False):
    if real:
        return rng.normal(size=shape)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def draw(kind, *batch, steps=200, m=1, missing=0.0, seed=0):
    """Innovations that are what their covariances say, these different at each step."""
    rng = np.random.default_rng(seed)
    root = noise(rng, steps, m, m, real=kind == "real") + 0.5 * np.eye(m)
    covariance = root @ np.conj(np.swapaxes(root, -1, -2))
    pseudo = None
    e = noise(rng, *batch, steps, m, real=kind == "real")
    if kind == "improper":  # a line in the plane and circular noise, mixed
        real, circular = rng.normal(size=e.shape), noise(rng, *e.shape)
        turn = np.exp(1j * rng.uniform(size=(steps, m)))
        e = np.sqrt(0.7) * turn * real + np.sqrt(0.3) * circular
        pseudo = root @ (0.7 * turn[..., None] ** 2 * np.swapaxes(root, -1, -2))
    v = np.einsum("tij,...tj->...ti", root, e)
    v[rng.random(v.shape) < missing] = np.nan
    return Result(v, covariance, pseudo)


# --- what is computed --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["real", "proper", "improper"])
def test_the_nis_is_the_quadratic_form_of_what_was_observed(kind):
    result = draw(kind, steps=60, m=3, missing=0.3)
    result.innovations[7] = np.nan
    found = diagnostics(result, lags=5)
    d, degrees = 1 if kind == "real" else 2, []
    for t, (v, s) in enumerate(zip(*result[:2], strict=True)):
        seen = ~np.isnan(v)
        degrees.append(seen.sum())
        v, s = v[seen], s[np.ix_(seen, seen)]
        if kind == "improper":  # the augmented form
            c = result.innovation_pseudo_covariances[t][np.ix_(seen, seen)]
            v, s = np.r_[v, v.conj()] / np.sqrt(2), np.block([[s, c], [c.conj(), s.conj()]])
        if seen.any():
            nis = d * (v.conj() @ np.linalg.solve(s, v)).real
            np.testing.assert_allclose(found.nis[t], nis)
        else:
            assert np.isnan(found.nis[t])
    degrees = np.array(degrees)
    assert set(degrees) == {0, 1, 2, 3}
    for side, tail in enumerate((0.025, 0.975)):
        expected = stats.chi2.ppf(tail, d * np.where(degrees, degrees, np.nan))
        np.testing.assert_allclose(found.nis_bounds[:, side], expected)
        total = stats.chi2.ppf(tail, d * degrees.sum()) / np.sum(degrees > 0)
        np.testing.assert_allclose(found.average_nis_bounds[side], total)
    np.testing.assert_allclose(found.average_nis, np.nanmean(found.nis))
    low, high = found.nis_bounds[degrees > 0].swapaxes(0, 1)
    nis = found.nis[degrees > 0]
    np.testing.assert_allclose(found.fraction_inside, np.mean((low <= nis) & (nis <= high)))


@pytest.mark.parametrize("kind", ["real", "proper"])
def test_innovations_are_normalised_by_the_factor_of_their_covariance(kind):
    result = draw(kind, steps=20, m=3, missing=0.2)
    found = diagnostics(result, lags=5)
    for v, s, e in zip(*result[:2], found.normalized_innovations, strict=True):
        seen = ~np.isnan(v)
        np.testing.assert_array_equal(np.isnan(e), ~seen)
        chol = np.linalg.cholesky(s[np.ix_(seen, seen)])
        np.testing.assert_allclose(chol @ e[seen], v[seen], rtol=1e-10, atol=1e-12)
    assert np.iscomplexobj(found.normalized_innovations) == (kind == "proper")


def test_improper_innovations_become_circular():
    found = diagnostics(draw("improper", 400, m=2, missing=0.1))
    e = found.normalized_innovations
    seen = ~np.isnan(e).any(axis=-1)
    both = np.concatenate([e[seen], e[seen].conj()], axis=-1)
    np.testing.assert_allclose(both.T @ both.conj() / len(both), np.eye(4), atol=0.015)


@pytest.mark.parametrize("kind", ["real", "proper"])
def test_the_portmanteau_is_that_of_ljung_and_box(kind):
    result = draw(kind, steps=50, seed=4)
    e = diagnostics(result, lags=7).normalized_innovations[:, 0]
    n, power = len(e), np.sum(np.abs(e) ** 2)
    r = np.array([np.sum(e[lag:] * e[:-lag].conj()) / power for lag in range(1, 8)])
    weights = 1 / (n - np.arange(1, 8))
    d = 1 if kind == "real" else 2
    expected = d * n * (n + 3 - d) * np.sum(weights * np.abs(r) ** 2)
    found = diagnostics(result, lags=7)
    np.testing.assert_allclose(found.portmanteau, expected)
    assert found.portmanteau_degrees == 7 * d
    np.testing.assert_allclose(found.portmanteau_p_value, stats.chi2.sf(expected, 7 * d))
    np.testing.assert_allclose(found.autocorrelations[:, 0], r * n * weights)
    radius = 1.959963985 if kind == "real" else np.sqrt(-np.log(0.05))
    bound = radius * np.sqrt(n / (n + 3 - d) * weights)
    np.testing.assert_allclose(found.autocorrelation_bounds[:, 0], bound)


def test_correlations_are_means_over_the_pairs_observed():
    found = diagnostics(draw("proper", steps=40, m=2, missing=0.3), lags=4)
    e = found.normalized_innovations
    statistic = 0.0
    n, power = np.sum(~np.isnan(e), axis=0), np.nanmean(np.abs(e) ** 2, axis=0)
    for lag in range(1, 5):
        for i in range(2):
            for j in range(2):
                products = e[lag:, i] * e[:-lag, j].conj()
                pairs = np.sum(~np.isnan(products))
                rho = np.nanmean(products) / np.sqrt(power[i] * power[j])
                sphere = (n[i] + 1) / n[i] if i == j else 1.0
                statistic += 2 * pairs * sphere * np.abs(rho) ** 2
                if i == j:
                    np.testing.assert_allclose(found.autocorrelations[lag - 1, i], rho)
    np.testing.assert_allclose(found.portmanteau, statistic)
    assert found.portmanteau_degrees == 2 * 4 * 2 * 2


def test_the_pseudo_variance_lies_between_a_circle_and_a_line():
    rng = np.random.default_rng(3)
    line = np.exp(0.3j) * rng.normal(size=(500, 1))
    ones = np.ones((500, 1, 1), complex)
    found = diagnostics(Result(line, ones))
    np.testing.assert_allclose(found.pseudo_variances, [np.exp(0.6j)])
    np.testing.assert_allclose(found.pseudo_variance_bounds, [np.sqrt(-np.log(0.05) * 2 / 501)])
    assert "not circular" in str(found)


# --- what the bounds hold ----------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    ("kind", "m"), [("real", 1), ("proper", 1), ("proper", 2), ("improper", 1)]
)
def test_bounds_hold_their_share_of_right_models(kind, m, missing, level):
    found = diagnostics(draw(kind, 1500, m=m, missing=missing), lags=10, level=level)

    def share(value, bounds):
        return np.mean((bounds[..., 0] <= value) & (value <= bounds[..., 1]))

    # 1500 series: a standard error of 0.008 at most; a bound of 1.96 in place of 1.73 gives 0.979.
    assert share(found.average_nis, found.average_nis_bounds) == pytest.approx(level, abs=0.025)
    assert share(found.fraction_inside, found.fraction_inside_bounds) > level - 0.02  # discrete
    inside = np.abs(found.autocorrelations) <= found.autocorrelation_bounds
    assert np.mean(inside) == pytest.approx(level, abs=0.007)
    probable = np.mean(found.portmanteau_p_value >= 1 - level)
    assert probable == pytest.approx(level, abs=0.025)
    assert np.median(found.portmanteau_p_value) == pytest.approx(0.5, abs=0.05)
    nis = found.nis[~np.isnan(found.nis)]
    assert share(nis, found.nis_bounds[~np.isnan(found.nis)]) == pytest.approx(level, abs=0.005)
    if kind == "real":
        assert found.pseudo_variances is None
        assert found.pseudo_variance_bounds is None
    else:
        circular = np.abs(found.pseudo_variances) <= found.pseudo_variance_bounds
        assert np.mean(circular) == pytest.approx(level, abs=0.025)


POLE = 0.9 * np.exp(0.5j)


def model(pole=POLE, q=0.19, r=0.5):
    return statespace.LinearGaussian(F=[[pole]], Q=[[q]], H=[[1.0]], R=[[r]])


def test_nothing_is_said_against_the_right_model():
    _, z = statespace.sample(model(), 3000, seed=1)
    found = diagnostics(statespace.filter(model(), z))
    verdicts = [line.split("  ")[-1].strip() for line in str(found).splitlines()[2:]]
    assert verdicts == ["as expected", "as expected", "white", "white", "circular"]


@pytest.mark.parametrize(
    ("wrong", "row", "verdict"),
    [
        (model(r=0.25), 0, "too large: Q or R is too small"),
        (model(r=1.0), 0, "too small: Q or R is too large"),
        (model(r=0.25), 1, "too few: other noise than Q and R say"),
        (model(pole=POLE.conjugate()), 2, "not white: F or H, or Q beside R, is wrong"),
        (model(q=0.02, r=0.9), 3, "not white: F or H, or Q beside R, is wrong"),
    ],
)
def test_verdicts_say_what_is_wrong_with_a_model(wrong, row, verdict):
    _, z = statespace.sample(model(), 3000, seed=1)
    table = str(diagnostics(statespace.filter(wrong, z)))
    assert table.splitlines()[2 + row].endswith(verdict)


def test_an_improper_signal_shows_in_a_proper_model_and_not_in_its_own():
    truth = statespace.widely_linear(model(), pseudo_Q=[[0.15j]])
    _, z = statespace.sample(truth, 3000, seed=2)
    assert "not circular" in str(diagnostics(statespace.filter(model(), z)))
    right = diagnostics(statespace.filter(truth, z))
    assert "not" not in str(right)
    assert right.average_nis == pytest.approx(2.0, abs=0.08)


def test_the_diagnostics_of_missing_data_are_of_what_is_there():
    _, z = statespace.sample(model(), 2000, seed=3)
    z = np.array(z)
    z[np.random.default_rng(0).random(z.shape) < 0.5] = np.nan
    found = diagnostics(statespace.filter(model(), z))
    np.testing.assert_array_equal(np.isnan(found.nis), np.isnan(z[:, 0]))
    assert "not" not in str(found)


def test_a_series_may_be_real():
    real = statespace.LinearGaussian(F=[[0.9]], Q=[[0.19]], H=[[1.0]], R=[[0.5]])
    _, z = statespace.sample(real, 2000, seed=4)
    found = diagnostics(statespace.filter(real, z))
    assert found.normalized_innovations.dtype == np.float64
    assert "pseudo" not in str(found)
    assert "not" not in str(found)


# --- shapes, table, errors ---------------------------------------------------------------------


def test_a_batch_is_a_loop():
    result = draw("proper", 2, 3, steps=30, m=2, missing=0.2)
    together = diagnostics(result, lags=5)
    for i in np.ndindex(2, 3):
        alone = diagnostics(result._replace(innovations=result.innovations[i]), lags=5)
        for name in set(alone._fields) - {"level"}:
            np.testing.assert_allclose(
                getattr(together, name)[i], getattr(alone, name), rtol=1e-12, err_msg=name
            )


def test_a_series_of_one_axis_has_one_element():
    result = draw("proper", steps=30)
    flat = diagnostics(result._replace(innovations=result.innovations[:, 0]), lags=5)
    np.testing.assert_array_equal(flat.nis, diagnostics(result, lags=5).nis)
    assert flat.normalized_innovations.shape == (30, 1)


def test_single_precision_is_tested_in_double():
    result = draw("proper", steps=30)
    single = Result(*(x.astype(np.complex64) for x in result[:2]))
    found = diagnostics(single, lags=5)
    assert found.normalized_innovations.dtype == np.complex128
    np.testing.assert_allclose(found.nis, diagnostics(result, lags=5).nis, rtol=1e-4)


def test_a_series_without_observations_has_no_statistics():
    result = draw("proper", 2, steps=30)
    result.innovations[1] = np.nan
    found = diagnostics(result, lags=5)
    for name in ("nis", "fraction_inside", "average_nis", "autocorrelations", "portmanteau"):
        assert np.isfinite(getattr(found, name)[0]).all()
        assert np.isnan(getattr(found, name)[1]).all()
    for bounds in ("nis", "fraction_inside", "average_nis", "autocorrelation", "pseudo_variance"):
        assert np.isnan(getattr(found, f"{bounds}_bounds")[1]).all()
    assert np.isnan([found.portmanteau_p_value[1], found.pseudo_variances[1, 0]]).all()
    assert "1 series" in str(found)
    assert "of 1" in str(found)
    alone = diagnostics(result._replace(innovations=result.innovations[1]), lags=5)
    assert str(alone).endswith("nothing was observed")


def test_the_table_of_one_series_and_of_a_batch():
    lines = str(diagnostics(draw("proper", steps=200, m=2, missing=0.1))).splitlines()
    assert lines[0].startswith("Innovations: 200 steps of 2 elements, ")
    assert "expected (95%)" in lines[1]
    assert [line[:34].strip() for line in lines[2:]] == [
        "mean NIS",
        "steps with NIS inside its bounds",
        "autocorrelations inside, of 40",
        "Ljung and Box, p value",
        "pseudo-variance, largest modulus",
    ]
    batch = str(diagnostics(draw("real", 40), level=0.9))
    assert "200 steps of 1 element, 0.0% missing; 40 series" in batch
    assert "of 40" in batch.splitlines()[-1]
    assert "expected (90%)" in batch


def test_the_table_of_a_batch_counts_the_series_that_are_as_expected():
    result = draw("proper", 40)
    result.innovations[:10] *= 2.0
    result.innovations[10:15] *= 0.5
    found = diagnostics(result)
    low, high = np.moveaxis(found.average_nis_bounds, -1, 0)
    right = np.sum((low <= found.average_nis) & (found.average_nis <= high))
    assert 20 < right <= 25
    assert str(found).splitlines()[2].endswith(f"as expected: {right} of 40")


@pytest.mark.parametrize("kind", ["real", "proper", "improper"])
@pytest.mark.parametrize(("steps", "lags"), [(2, 1), (4, 3), (20, 19), (21, 20), (30, 20)])
def test_a_short_series_has_as_many_lags_as_it_has(kind, steps, lags):
    found = diagnostics(draw(kind, steps=steps))
    assert found.autocorrelations.shape == (lags, 1)
    assert np.all(np.isfinite(found.autocorrelations))
    assert np.isfinite(found.portmanteau_p_value)
    assert f"autocorrelations inside, of {lags}" in str(found)


def test_what_has_no_noise_cannot_be_normalised():
    result = draw("proper", steps=30)
    result.innovation_covariances[7] = 0.0
    with pytest.raises(NotPositiveDefiniteError, match="has no noise"):
        diagnostics(result)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: diagnostics(r.innovations), TypeError, "expected a Filtered, got ndarray"),
        (lambda r: diagnostics(r, lags=30), ValueError, "fewer than the 30 steps .* got 30"),
        (lambda r: diagnostics(r, lags=0), ValueError, "at least 1"),
        (lambda r: diagnostics(draw("proper", steps=4), lags=20), ValueError, "4 steps .* got 20"),
        (lambda r: diagnostics(draw("real", steps=1)), ValueError, "at least two steps, got 1"),
        (lambda r: diagnostics(r, lags=2.5), TypeError, "lags must be an integer, got 2.5"),
        (lambda r: diagnostics(r, level=95), ValueError, "between 0 and 1, got 95"),
        (lambda r: diagnostics(r, level=float("nan")), ValueError, "between 0 and 1, got nan"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(draw("proper", steps=30))
