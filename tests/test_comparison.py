"""Models compared on the same data: scores, weights, and their predictions together."""

import warnings

import numpy as np
import pytest

import cgp
from cgp.comparison import _eligible, _folds, mixture, shares
from cgp.distributions import Marginals
from cgp.kernels import (
    RBF,
    Coregionalized,
    Matern12,
    Matern32,
    Matern52,
    Outputs,
    Rotation,
    Zero,
)
from tests.gp.problems import complex_normals


def smooth(n=24):
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 4.0, n)
    return x, np.exp(2j * x) * (1.0 + 0.2 * x) + 0.05 * complex_normals(rng, n)


@pytest.fixture(scope="module", params=[(2, 1), pytest.param((3, 2), marks=pytest.mark.long)])
def folds_and_restarts(request):
    return request.param


@pytest.fixture(scope="module")
def compared(folds_and_restarts):
    folds, restarts = folds_and_restarts
    x, z = smooth()
    models = {
        "smooth": cgp.ExactGP(RBF() * Rotation()),
        "rough": cgp.StateSpaceGP(Matern12()),
    }
    return cgp.compare(models, x, z, folds=folds, restarts=restarts, verbose=0)


def test_are_scores_those_of_fits_without_the_fold(compared, folds_and_restarts):
    folds, _ = folds_and_restarts
    x, z = smooth()
    gp = compared.models["smooth"]
    fitted = gp.get_weights()
    densities, errors = [], []
    for k in range(folds):
        left_out = np.isin(np.arange(24), np.arange(1, 23)[k::folds])
        gp.fit(x[~left_out], z[~left_out], verbose=0)
        predicted = gp.predict(x[left_out], observed=True)
        assert not predicted["pseudo_variance"].any()
        error, v = z[left_out] - predicted["mean"], predicted["variance"]
        densities += list(-np.log(np.pi * v) - np.abs(error) ** 2 / v)
        errors += list(np.abs(error) ** 2)
        gp.set_weights(fitted)
    gp.condition(x, z)
    scores = compared["smooth"]
    np.testing.assert_allclose(scores.cv_density, np.mean(densities), atol=1e-5)
    power = np.mean(np.abs(z[1:-1]) ** 2)
    np.testing.assert_allclose(
        scores.cv_error_db, 10 * np.log10(np.mean(errors) / power), atol=1e-4
    )
    likelihood = float(gp.log_marginal_likelihood())
    np.testing.assert_allclose(scores.log_likelihood, likelihood)
    assert scores.parameters == 4
    np.testing.assert_allclose(scores.bic, 4 * np.log(24) - 2 * likelihood)
    residual, v = z - gp.loo()["mean"], gp.loo()["variance"]
    np.testing.assert_allclose(
        scores.loo_density, np.mean(-np.log(np.pi * v) - np.abs(residual) ** 2 / v)
    )


def test_is_the_better_model_found(compared):
    assert compared.best == "smooth"
    assert list(compared) == ["smooth", "rough"]
    assert compared["smooth"].cv_density > compared["rough"].cv_density + 0.3
    assert compared["smooth"].weight > 0.8
    assert np.isnan(compared["rough"].loo_density)
    table = str(compared).splitlines()
    assert len(table) == 3
    assert len({len(line) for line in table}) == 1
    assert table[0].split()[0] == "model"


def test_are_models_left_fitted_to_all_data(compared):
    x, z = smooth()
    for model in compared.models.values():
        np.testing.assert_allclose(
            model.log_marginal_likelihood(), model.log_marginal_likelihood(x, z), rtol=1e-10
        )


def test_are_predictions_those_of_the_mixture(compared):
    x_new = np.array([0.3, 1.7])
    result = compared.predict(x_new, observed=True)
    assert set(result) == {"mean", "variance", "pseudo_variance"}
    parts = [model.predict(x_new, observed=True) for model in compared.models.values()]
    weights = [compared[name].weight for name in compared]
    for name, part in zip(compared, parts, strict=True):
        part["variance"] = part["variance"] * compared[name].inflation
    mean = sum(w * p["mean"] for w, p in zip(weights, parts, strict=True))
    np.testing.assert_allclose(result["mean"], mean)
    second = sum(
        w * (p["variance"] + np.abs(p["mean"]) ** 2) for w, p in zip(weights, parts, strict=True)
    )
    np.testing.assert_allclose(result["variance"], second - np.abs(mean) ** 2, rtol=1e-6)


def test_has_a_mixture_the_moments_of_its_draws():
    rng = np.random.default_rng(0)
    parts = [
        (0.3, Marginals(np.array([1 + 1j]), np.array([2.0]), np.array([1j]))),
        (0.7, Marginals(np.array([-1j]), np.array([0.5]), np.array([0.2 + 0j]))),
    ]
    result = mixture(parts)
    draws = []
    for weight, (mean, v, w) in parts:
        c = 0.5 * np.array([[v[0] + w[0].real, w[0].imag], [w[0].imag, v[0] - w[0].real]])
        uv = rng.multivariate_normal(np.zeros(2), c, int(200_000 * weight))
        draws.append(mean + uv @ [1, 1j])
    draws = np.concatenate(draws)
    deviation = draws - draws.mean()
    np.testing.assert_allclose(result.mean[0], draws.mean(), atol=0.02)
    np.testing.assert_allclose(result.variance[0], np.mean(np.abs(deviation) ** 2), atol=0.02)
    np.testing.assert_allclose(result.pseudo_variance[0], np.mean(deviation**2), atol=0.02)


def test_are_weights_by_standard_errors_below_the_best_and_by_simplicity():
    rng = np.random.default_rng(0)
    densities = rng.normal(size=(4, 40)) + np.array([[0.0], [0.3], [-4.0], [0.1]])
    effective = np.array([3.0, 9.0, 0.0, 20.0])
    assert np.argmax(densities.sum(axis=1)) == 1
    expected = []
    for k in range(4):
        below = [densities[1, i] - densities[k, i] for i in range(40)]
        mean = sum(below) / 40
        error_of_sum = 40 * np.sqrt(sum((b - mean) ** 2 for b in below) / 39 / 40)
        likelihood = np.exp(-((40 * mean) ** 2) / (2 * (error_of_sum**2 + 1)))
        expected.append(likelihood / (1 + effective[k]))
    assert expected[2] < 1e-6  # and therefore left out
    expected[2] = 0.0
    weights = shares(densities, effective)
    np.testing.assert_allclose(weights, np.array(expected) / sum(expected), rtol=1e-12)
    np.testing.assert_allclose(shares(densities - 800.0, effective), weights, rtol=1e-9)


def test_have_models_that_predict_the_same_weights_of_their_simplicity():
    densities = np.random.default_rng(0).normal(size=40)
    nearly = np.stack([densities, densities + 1e-9, densities])
    np.testing.assert_allclose(shares(nearly, np.array([0.0, 1.0, 3.0])), [4 / 7, 2 / 7, 1 / 7])
    sure = np.array([[0.0, 0.0], [-800.0, -900.0]])
    np.testing.assert_array_equal(shares(sure, np.array([50.0, 0.0])), [1.0, 0.0])


def test_are_effective_parameters_the_trace_from_targets_to_predictions():
    x, z = smooth(20)
    missing, known = np.arange(20) == 7, np.linspace(1e-4, 4e-3, 20)
    models = {
        "process": cgp.ExactGP(RBF()),
        "line": cgp.ExactGP(Zero(), mean=cgp.means.Polynomial(1, marginalized=True)),
        "learned line": cgp.ExactGP(Zero(), mean=cgp.means.Polynomial(1)),
    }
    arguments = {"missing": missing, "noise_variance": known, "folds": 2, "restarts": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of noise above the known: no line fits
        result = cgp.compare(models, x, z, verbose=0, **arguments)
    found = models["process"].parameters()
    lag = np.subtract.outer(x[~missing], x[~missing])
    k = found["rbf.variance"] * np.exp(-0.5 * (lag / found["rbf.lengthscale"]) ** 2)
    to_predictions = k @ np.linalg.inv(k + np.diag(found["noise_variance"] + known[~missing]))
    np.testing.assert_allclose(
        result["process"].effective_parameters, np.trace(to_predictions), rtol=1e-6
    )
    for line in "line", "learned line":
        np.testing.assert_allclose(result[line].effective_parameters, 2.0, rtol=1e-3)


@pytest.mark.long
def test_has_a_model_no_share_whose_error_is_ten_times_that_of_another():
    f = np.linspace(0.0, 1.0, 31)
    poles, residues = np.array([-0.9 + 2j, -1.5 + 5j]), np.array([1.0, 0.8j])
    z = np.exp(-6j * f) * (1.0 + (1.0 / (2j * np.pi * f[:, None] - poles)) @ residues)
    poles = cgp.ExactGP(Zero(), mean=cgp.means.Rational(2))
    with pytest.warns(RuntimeWarning, match="run to zero, .*: the data have none"):
        result = cgp.compare({"poles": poles, "process": cgp.ExactGP(RBF())}, f, z, verbose=0)
    assert result["poles"].cv_error_db < result["process"].cv_error_db - 30.0
    assert (result["poles"].weight, result["process"].weight) == (1.0, 0.0)
    confident = result["process"]._replace(cv_density=result["poles"].cv_density + 1.0)
    scores = {"poles": result["poles"], "process": confident}
    assert cgp.Comparison(result.models, scores).best == "poles"


def test_is_a_model_eligible_up_to_ten_decibels_behind():
    errors = np.array([-30.0, -20.1, -19.9, np.nan, 5.0])
    np.testing.assert_array_equal(_eligible(errors), [True, True, False, False, False])


def test_is_the_calibrated_density_that_of_variances_times_the_calibration():
    rng = np.random.default_rng(0)
    z, variances = complex_normals(rng, 50), rng.uniform(0.01, 0.1, 50)
    over_predicted = np.abs(z) ** 2 / variances
    density, factor = np.mean(-np.log(np.pi * variances) - over_predicted), np.mean(over_predicted)
    scores = cgp.comparison.Scores(
        0.0, 1, 0.0, density, 0.0, np.nan, 0.5, 1.0, factor, 0.8 * factor
    )
    scaled = 0.8 * factor * variances
    expected = np.mean(-np.log(np.pi * scaled) - np.abs(z) ** 2 / scaled)
    np.testing.assert_allclose(scores.calibrated_density, expected, rtol=1e-12)


def test_is_a_good_model_best_that_is_too_sure():
    # Fixed noise far below the true one; the other model knows nothing of the phase.
    x, z = smooth(60)
    sure = RBF(1.0, 1.5, fixed=("variance", "lengthscale")) * Rotation(0.3)
    models = {
        "too sure": cgp.ExactGP(sure, noise_variance=1e-6, fixed="noise_variance"),
        "wide": cgp.ExactGP(Zero()),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the model that is wrong on purpose
        result = cgp.compare(models, x, z, folds=2, restarts=1, verbose=0)
    good = result["too sure"]
    assert good.cv_density < result["wide"].cv_density - 5.0
    assert good.calibration > 50.0
    assert (result.best, good.weight) == ("too sure", 1.0)
    x_new = np.linspace(0.1, 3.9, 200)
    truth = np.exp(2j * x_new) * (1.0 + 0.2 * x_new)
    alone = cgp.metrics.coverage(truth, models["too sure"].predict(x_new))
    assert cgp.metrics.coverage(truth, result.predict(x_new)) > 0.7 > 2.0 * alone


@pytest.mark.long
def test_has_a_model_no_leave_one_out_density_that_needs_each_point():
    x, z = np.array([0.0] * 11 + [1.0]), complex_normals(np.random.default_rng(0), 12)
    trend = cgp.means.Polynomial(1, marginalized=True)  # its slope is known from the last point
    gp = cgp.ExactGP(Zero(), mean=trend)
    result = cgp.compare({"trend": gp}, x, z, folds=2, restarts=1, verbose=0)
    with pytest.raises(ValueError, match="cannot be left out"):
        gp.loo()
    assert np.isnan(result["trend"].loo_density)
    assert np.isfinite(result["trend"].cv_density)


def test_do_folds_leave_the_ends_and_what_is_missing_alone():
    x, z = np.array([3.0, 0.0, 1.0, 2.0, 5.0, 4.0]), np.ones(6, complex)
    z[2] = np.nan
    result = _folds(x, z, 2, 0)
    np.testing.assert_array_equal(result, [[0, 0, 0, 1, 0, 1], [1, 0, 0, 0, 0, 0]])
    plane = _folds(np.zeros((6, 2)), z, 2, 0)
    np.testing.assert_array_equal(plane.sum(axis=0), [1, 1, 0, 1, 1, 1])


def test_do_folds_of_outputs_leave_out_each_at_places_of_its_own():
    x, z = np.arange(6.0), np.ones((6, 2), complex)
    z[2, 1] = np.nan
    result = _folds(x, z, 2, 0, outputs=2)
    np.testing.assert_array_equal(result[:, :, 0], [[0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0]])
    np.testing.assert_array_equal(result[:, :, 1], [[0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0]])
    plane = _folds(np.zeros((6, 2)), z, 3, 0, outputs=2)
    np.testing.assert_array_equal(plane.sum(axis=0), ~np.isnan(z))


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_are_outputs_compared_by_what_the_others_tell(kind):
    rng = np.random.default_rng(2)
    x, gains = np.linspace(0.0, 6.0, 24), np.array([1.0, 0.5j, -0.8])
    source = Coregionalized(Matern32(1.0, 0.5), outputs=3, mixing=gains)
    z = cgp.ExactGP(source, 0.01).sample(x, seed=1)[0] + 0.1 * complex_normals(rng, 24, 3)
    z[4:9, 1] = np.nan
    models = {
        "common": kind(Coregionalized(Matern32(), outputs=3)),
        "alone": kind(Outputs([Matern32()] * 3)),
    }
    result = cgp.compare(models, x, z, folds=3, restarts=1, verbose=0)
    assert result.best == "common"
    assert result["common"].cv_error_db < result["alone"].cv_error_db - 3.0
    assert result.predict(x[:2])["mean"].shape == (2, 3)
    gp, left_out = models["common"], _folds(x, z, 3, 0, outputs=3)
    fitted, errors, powers = gp.get_weights(), [], []
    size = np.sqrt(np.nanmean(np.abs(z) ** 2, axis=0))
    for fold in left_out:
        gp.set_weights(fitted)
        gp.fit(x, np.where(fold, np.nan, z), verbose=0)
        errors += list((np.abs(z - gp.predict(x)["mean"]) / size)[fold] ** 2)
        powers += list((np.abs(z) / size)[fold] ** 2)
    expected = 10 * np.log10(np.mean(errors) / np.mean(powers))
    np.testing.assert_allclose(result["common"].cv_error_db, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("models", "kwargs", "error", "said"),
    [
        ({}, {}, ValueError, "models must be a dictionary of at least one"),
        ({"a": RBF()}, {}, TypeError, "the model 'a' must be an ExactGP, StateSpaceGP,"),
        ({1: cgp.ExactGP(RBF())}, {}, TypeError, "name of a model must be a string, got 1"),
        ({"a": cgp.ExactGP(RBF())}, {"folds": 1}, ValueError, "folds must be .* at least 2, got 1"),
        ({"a": cgp.ExactGP(RBF())}, {"folds": 23}, ValueError, "23 folds need as many .* got 22"),
    ],
)
def test_is_what_cannot_be_compared_refused(models, kwargs, error, said):
    with pytest.raises(error, match=said):
        cgp.compare(models, *smooth(), verbose=0, **kwargs)


def test_are_data_that_do_not_belong_together_refused_before_any_fit():
    x, z = smooth()
    with pytest.raises(ValueError, match=r"as many points as x, got shapes \(24,\) and x \(5, 1\)"):
        cgp.compare({"a": cgp.ExactGP(RBF())}, x[:5], z, verbose=0)
    with pytest.raises(TypeError, match="x must be real"):
        cgp.compare({"a": cgp.ExactGP(RBF())}, x + 1j, z, verbose=0)
    with pytest.raises(ValueError, match="all zero or missing"):
        cgp.compare({"a": cgp.ExactGP(RBF())}, x, np.where(x > 1, 0j, np.nan), verbose=0)


def test_are_fits_to_folds_without_effect_where_one_fails(monkeypatch):
    x, z = smooth(10)
    gp = cgp.ExactGP(Matern52())
    gp.compile(cgp.optimizers.LBFGS())
    monkeypatch.setattr(gp, "predict", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cgp.compare({"a": gp}, x, z, folds=2, restarts=1, verbose=0)
    np.testing.assert_allclose(
        gp.log_marginal_likelihood(), gp.log_marginal_likelihood(x, z), rtol=1e-10
    )


def test_is_noise_that_is_known_part_of_a_comparison():
    x, z = smooth(12)
    errors = np.linspace(0.01, 0.3, 12)
    gp = cgp.StateSpaceGP(Matern12(1.0, 2.0), [0.01, 0.02])
    groups = np.arange(12) % 2
    noise = {"noise_variance": errors, "noise_groups": groups}
    result = cgp.compare({"a": gp}, x, z, folds=2, restarts=1, verbose=0, **noise)
    np.testing.assert_allclose(
        result["a"].log_likelihood, gp.log_marginal_likelihood(x, z, **noise), rtol=1e-10
    )
    here = {"noise_variance": 0.5, "noise_groups": 1}
    np.testing.assert_allclose(
        result.predict([0.5], observed=True, **here)["variance"],
        gp.predict([0.5], observed=True, **here)["variance"],
    )


@pytest.mark.long
def test_are_models_of_single_precision_compared():
    x, z = smooth(12)
    gp = cgp.ExactGP(Matern12(dtype="float32"))
    result = cgp.compare({"a": gp}, x, z, folds=2, restarts=1, verbose=0)
    assert np.isfinite(result["a"].cv_density)


def test_are_models_that_share_hyperparameters_refused():
    kernel = RBF()
    models = {"a": cgp.ExactGP(kernel), "b": cgp.ExactGP(kernel, mean=cgp.means.Constant())}
    with pytest.raises(ValueError, match=r"models 'a' and 'b' share .*give each kernels"):
        cgp.compare(models, *smooth(), verbose=0)


def test_does_an_error_say_of_which_model():
    x, z = smooth(12)
    models = {"grid": cgp.ExactGP(cgp.kernels.Autoregressive(1, step=0.1))}
    with pytest.raises(ValueError, match="no whole multiple") as caught:
        cgp.compare(models, x, z, folds=2, restarts=1, verbose=0)
    assert caught.value.__notes__ == ["in the comparison, of the model 'grid'"]
