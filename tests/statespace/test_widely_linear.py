"""Improper noise and conjugate terms against the real filter of the parts."""

import numpy as np
import pytest

from cgp import NotPositiveDefiniteError, statespace
from tests.linalg.problems import random
from tests.reference import kalman
from tests.statespace.problems import (
    Problem,
    assert_factors,
    assert_filtered,
    improper_parts,
    problem,
    reference_augmented,
    square,
)

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
PARTS = ["pseudo_Q", "pseudo_R", "initial_pseudo_covariance", "F_conj", "H_conj", "B_conj"]


def wide(n=2, m=2, only=None, **setting):
    """A problem, the improper parts of its model, and the reference's real model."""
    p = problem(n, m, inputs=2, **setting)
    matrices, parts = improper_parts(n, m, k=2)
    p = p.changed(**matrices)
    if only is not None:
        parts = {name: parts[name] for name in only}
    return p, parts


def bivariate(p, parts):
    return kalman.bivariate(reference_augmented(p, parts))


def assert_wide(found, expected, z):
    """`statespace.Filtered` against the real reference's."""

    def equal(a, b):
        np.testing.assert_allclose(a, b, **TIGHT)

    for name in ("predicted", "filtered"):
        means, chols = (np.asarray(getattr(found, f"{name}_{what}")) for what in ("means", "chols"))
        assert means.dtype == complex
        assert chols.dtype == float
        equal(kalman.composite(means), getattr(expected, f"{name}_means"))
        equal(square(chols), getattr(expected, f"{name}_covariances"))
        assert_factors(chols)
    missing = np.isnan(z)
    innovations = np.asarray(found.innovations)
    np.testing.assert_array_equal(np.isnan(innovations), missing)
    seen = np.concatenate([~missing, ~missing], axis=-1)
    equal(kalman.composite(innovations)[seen], expected.innovations[seen])
    covariance, pseudo = kalman.pair(expected.innovation_covariances)
    equal(found.innovation_covariances, covariance)
    equal(found.innovation_pseudo_covariances, pseudo)
    equal(found.innovation_variances, np.diagonal(covariance, axis1=-2, axis2=-1).real)
    equal(found.log_likelihoods, expected.log_likelihoods)
    equal(found.log_likelihood, expected.log_likelihoods.sum())


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (3, 2)])
def test_is_a_widely_linear_filter_the_real_filter_of_the_parts(n, m):
    p, parts = wide(n, m, holes="own")
    model = statespace.widely_linear(p.model(), **parts)
    found = statespace.filter(model, p.z, inputs=p.inputs)
    expected = kalman.filter(bivariate(p, parts), kalman.composite(p.z))
    assert_wide(found, expected, p.z)
    for which in ("predicted", "filtered"):
        of_parts = np.diagonal(getattr(expected, f"{which}_covariances"), axis1=-2, axis2=-1)
        variances = of_parts[:, :n] + of_parts[:, n:]
        np.testing.assert_allclose(getattr(found, f"{which}_variances"), variances, **TIGHT)
    likelihood = statespace.log_likelihood(model, p.z, inputs=p.inputs)
    np.testing.assert_allclose(likelihood, found.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("part", PARTS)
def test_may_each_part_stand_alone(part):
    p, parts = wide(only=[part], holes="own")
    found = statespace.filter(statespace.widely_linear(p.model(), **parts), p.z, inputs=p.inputs)
    assert_wide(found, kalman.filter(bivariate(p, parts), kalman.composite(p.z)), p.z)


def test_may_every_part_vary():
    p, parts = wide(varying="FQHRB", holes="own")
    steps, rng = len(p.z), np.random.default_rng(4)
    scale = rng.uniform(0.2, 1.0, (steps, 1, 1))
    p = p.changed(Q=scale * p.matrices["Q"], R=(2 - scale) * p.matrices["R"])
    parts |= {
        "pseudo_Q": scale * parts["pseudo_Q"],
        "pseudo_R": (2 - scale) * parts["pseudo_R"] * np.exp(2j * scale),
        "F_conj": scale * parts["F_conj"],
        "H_conj": random(rng, (steps, 2, 2), "complex128"),
        "B_conj": random(rng, (steps, 2, 2), "complex128"),
    }
    found = statespace.filter(statespace.widely_linear(p.model(), **parts), p.z, inputs=p.inputs)
    augmented = reference_augmented(p, {k: v for k, v in parts.items() if k != "B_conj"})
    drift = np.einsum("tnk,tk->tn", parts["B_conj"], np.conj(p.inputs))
    augmented = augmented._replace(
        drift=augmented.drift + np.concatenate([drift, np.conj(drift)], axis=-1)
    )
    assert_wide(found, kalman.filter(kalman.bivariate(augmented), kalman.composite(p.z)), p.z)


@pytest.mark.parametrize("varying", [(), ("pseudo_R",), ("F_conj",)])
def test_may_a_part_vary_beside_constants(varying):
    p, parts = wide(holes="own")
    scale = np.random.default_rng(4).uniform(0.2, 1.0, (len(p.z), 1, 1))
    parts |= {name: scale * parts[name] for name in varying}
    found = statespace.filter(statespace.widely_linear(p.model(), **parts), p.z, inputs=p.inputs)
    assert_wide(found, kalman.filter(bivariate(p, parts), kalman.composite(p.z)), p.z)


@pytest.mark.parametrize("said", ["not at all", "as zeros"])
def test_is_a_model_without_improper_parts_the_proper_one(said):
    p = problem(2, 2, holes="own", inputs=2)
    parts = {}
    if said == "as zeros":
        shapes = improper_parts(2, 2, k=2)[1]
        parts = {name: np.zeros_like(part) for name, part in shapes.items()}
    model = statespace.widely_linear(p.model(), **parts)
    found, proper = statespace.filter(model, p.z, inputs=p.inputs), p.filter()
    for name in ("predicted_means", "filtered_means", "innovation_covariances", "log_likelihoods"):
        np.testing.assert_allclose(getattr(found, name), getattr(proper, name), **TIGHT)
    np.testing.assert_allclose(found.innovation_pseudo_covariances, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.filtered_variances, proper.filtered_variances, **TIGHT)
    covariance, pseudo = kalman.pair(square(found.filtered_chols))
    np.testing.assert_allclose(covariance, square(proper.filtered_chols), **TIGHT)
    np.testing.assert_allclose(pseudo, 0.0, atol=1e-12)


@pytest.mark.parametrize("varying", ["", "F"])
def test_is_a_widely_linear_smoother_the_conditional_of_the_parts(varying):
    p, parts = wide(holes="own", varying=varying)
    model = statespace.widely_linear(p.model(), **parts)
    found = statespace.smooth(model, p.z, inputs=p.inputs)
    expected = kalman.conditional_smoothed(bivariate(p, parts), kalman.composite(p.z))
    np.testing.assert_allclose(
        kalman.composite(np.asarray(found.smoothed_means)), expected.means, **TIGHT
    )
    np.testing.assert_allclose(square(found.smoothed_chols), expected.covariances, **TIGHT)
    covariance, _ = kalman.pair(expected.covariances)
    variances = np.diagonal(covariance, axis1=-2, axis2=-1).real
    np.testing.assert_allclose(found.smoothed_variances, variances, **TIGHT)
    covariance, pseudo = kalman.pair(expected.lag_one_covariances)
    np.testing.assert_allclose(found.lag_one_covariances, covariance, **TIGHT)
    np.testing.assert_allclose(found.lag_one_pseudo_covariances, pseudo, **TIGHT)


def test_is_a_batch_the_loop_over_its_members():
    p, parts = wide(batch=3, holes="own")
    model = statespace.widely_linear(p.model(), **parts)
    found = statespace.filter(model, p.z, inputs=p.inputs)
    for b, member in enumerate(p.members()):
        one = statespace.filter(model, member.z, inputs=member.inputs)
        for a, e in zip(found, one, strict=True):
            np.testing.assert_allclose(np.asarray(a)[b], e, rtol=1e-11, atol=1e-11)


def test_is_half_a_nan_missing_as_a_whole():
    p, parts = wide()
    z = p.z.copy()
    z[3, 1] = complex(np.nan, 1.0)
    z[5, 0] = complex(1.0, np.nan)
    model = statespace.widely_linear(p.model(), **parts)
    found = statespace.filter(model, z, inputs=p.inputs)
    assert_wide(found, kalman.filter(bivariate(p, parts), kalman.composite(z)), z)


def test_is_a_turned_series_as_likely_when_its_pseudo_parts_turn_twice():
    p, parts = wide(holes="own")
    turn = np.exp(0.7j)
    turned = Problem(
        p.matrices | {"initial_mean": turn * p.matrices["initial_mean"]},
        turn * p.z,
        turn * p.inputs,
    )

    def likelihoods(p, parts):
        model = statespace.widely_linear(p.model(), **parts)
        return np.asarray(statespace.filter(model, p.z, inputs=p.inputs).log_likelihoods)

    twice = {name: turn**2 * part for name, part in parts.items()}
    np.testing.assert_allclose(likelihoods(turned, twice), likelihoods(p, parts), **TIGHT)
    assert np.abs(likelihoods(turned, parts) - likelihoods(p, parts)).max() > 0.1


def test_is_a_real_signal_in_complex_clothes_a_real_signal():
    """`|C| = K`: the imaginary part is certain, and the likelihood of it is that of a constant."""
    real = problem(2, 1, dtype="float64", holes="own")
    matrices = {name: value + 0j for name, value in real.matrices.items()}
    noise = 0.3
    matrices["R"] = matrices["R"] + noise
    model = statespace.widely_linear(
        statespace.LinearGaussian(**matrices),
        pseudo_Q=matrices["Q"],
        pseudo_R=matrices["R"] - 2 * noise,
        initial_pseudo_covariance=matrices["initial_covariance"],
    )
    found = statespace.filter(model, real.z + 0j)
    expected = kalman.filter(real.reference(), real.z)
    np.testing.assert_allclose(found.filtered_means, expected.filtered_means, **TIGHT)
    seen = (~np.isnan(real.z)).sum(axis=-1)
    # The imaginary part of the noise has the variance `noise`, and nothing else has any.
    likelihoods = expected.log_likelihoods - 0.5 * np.log(2 * np.pi * noise) * seen
    np.testing.assert_allclose(found.log_likelihoods, likelihoods, **TIGHT)


IMPOSSIBLE = {
    "pseudo_Q": lambda a: 1.5 * a,
    "pseudo_R": lambda a: 3.0 * a,
    "initial_pseudo_covariance": lambda a: 4.0 * a,
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_is_a_pseudo_covariance_that_nothing_has_refused(name):
    covariance = {"pseudo_Q": "Q", "pseudo_R": "R"}.get(name, "initial_covariance")
    p, _ = wide()
    size = len(p.matrices[covariance])
    p = p.changed(**{covariance: np.eye(size) + 0j})
    statespace.widely_linear(p.model(), **{name: np.eye(size) * np.exp(0.4j)})
    with pytest.raises(NotPositiveDefiniteError, match=name):
        statespace.widely_linear(p.model(), **{name: 1.001 * np.eye(size) * np.exp(0.4j)})
    unsymmetric = np.zeros((size, size), complex)
    unsymmetric[0, 1], unsymmetric[1, 0] = 0.2j, -0.2j
    with pytest.raises(ValueError, match=name):
        statespace.widely_linear(p.model(), **{name: unsymmetric})


@pytest.mark.parametrize("name", PARTS)
def test_is_a_part_of_another_shape_refused(name):
    p, parts = wide()
    with pytest.raises(ValueError, match=name):
        statespace.widely_linear(p.model(), **{name: parts[name][:, :1]})


@pytest.mark.parametrize("name", PARTS)
def test_is_a_part_that_is_no_number_refused(name):
    p, parts = wide()
    with pytest.raises(ValueError, match="NaN"):
        statespace.widely_linear(p.model(), **{name: np.full_like(parts[name], np.nan)})


def test_is_a_real_model_not_made_widely_linear():
    with pytest.raises(TypeError, match="complex"):
        statespace.widely_linear(problem(3, 2, dtype="float64").model())


def test_is_a_stationary_start_that_of_the_parts():
    p, parts = wide(holes="own")
    del parts["initial_pseudo_covariance"]
    model = statespace.widely_linear(p.changed(initial_covariance="stationary").model(), **parts)
    found = statespace.filter(model, p.z, inputs=p.inputs)
    reference = bivariate(p, parts)
    covariance = kalman.stationary_covariance(reference.F[0], reference.Q[0])
    reference = reference._replace(covariance=covariance)
    assert_wide(found, kalman.filter(reference, kalman.composite(p.z)), p.z)


@pytest.mark.parametrize("parts", [{"pseudo_Q": [[0.8j]]}, {"H_conj": [[0.5]]}], ids=str)
def test_is_an_improper_series_likelier_under_the_model_it_is_drawn_from(parts):
    """On the whole: 200 draws, each filtered by the proper model too."""
    proper = statespace.LinearGaussian([[0.8j]], [[1.0]], [[1.0]], [[0.1]])
    improper = statespace.widely_linear(proper, **parts)
    z = statespace.sample(improper, 30, (200,), seed=2).observations
    gain = statespace.log_likelihood(improper, z) - statespace.log_likelihood(proper, z)
    assert np.mean(gain) > 6 * np.std(gain) / np.sqrt(200)


def test_is_a_plain_model_still_proper_beside_it():
    p, parts = wide(holes="own")
    proper = p.model()
    statespace.widely_linear(proper, **parts)
    found = statespace.filter(proper, p.z, inputs=p.inputs)
    assert_filtered(found, kalman.filter(p.reference(), p.z), p.z)
