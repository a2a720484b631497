"""Filters against the recursions of the textbooks and against one dense normal."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from tests.linalg.problems import random
from tests.long_cases import eagerly_and_in_a_graph
from tests.reference import kalman
from tests.statespace.problems import (
    Problem,
    assert_filtered,
    problem,
    random_covariance,
    square,
    tolerances,
)

KINDS = {
    "constant": {"inputs": 1, "holes": "own"},
    "varying": {"varying": "FQHRB", "inputs": 2, "holes": "own"},
}
SIZES = {
    "constant": [(1, 1), (3, 2), (5, 1), (6, 3)],
    "varying": [(1, 3), (2, 1), (3, 2), (4, 3)],
}
SIZED = [(kind, *size) for kind, sizes in SIZES.items() for size in sizes]
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def usual(kind="constant", n=3, **setting):
    """A problem of shapes that most tests have: what is compiled for one serves all."""
    return problem(n, 2, **(KINDS[kind] | setting))


@pytest.mark.parametrize(("kind", "n", "m"), SIZED)
def test_are_moments_and_likelihood_those_of_the_textbook_and_of_the_dense_normal(kind, n, m):
    p = problem(n, m, **KINDS[kind])
    found = p.filter()
    assert_filtered(found, p.expected(kalman.filter), p.z)
    dense = p.expected(kalman.joint_log_likelihood)
    np.testing.assert_allclose(found.log_likelihood, dense, **TIGHT)
    np.testing.assert_allclose(p.log_likelihood(), dense, **TIGHT)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("complex128", "constant"),
        ("complex64", "varying"),
        ("float64", "varying"),
        ("float32", "constant"),
    ],
)
def test_is_every_dtype_kept(dtype, kind):
    p = usual(kind, n=2, dtype=dtype)
    found = p.filter()
    assert_filtered(found, p.expected(kalman.filter), p.z)
    np.testing.assert_allclose(p.log_likelihood(), found.log_likelihood, **tolerances(dtype))
    assert found.log_likelihood.dtype == np.asarray(0, dtype).real.dtype
    for part in (found.filtered_means, found.predicted_chols, found.innovation_covariances):
        assert np.asarray(part).dtype == dtype


@pytest.mark.parametrize("varying", ["F", "Q", "H", "R", "B"])
def test_may_each_matrix_vary_alone(varying):
    p = usual(n=2, varying=varying)
    assert_filtered(p.filter(), p.expected(kalman.filter), p.z)


BATCHES = {
    "one pattern": {"holes": "shared"},
    "a pattern each": {"holes": "own"},
    "a model each": {"models": True, "holes": "own"},
    "a varying model each": {"models": True, "varying": "FHR", "holes": "own"},
    "one varying model": {"varying": "FQ", "holes": "shared"},
}


@pytest.mark.parametrize("name", BATCHES)
def test_is_a_batch_the_loop_over_its_members(name):
    p = problem(2, 2, batch=4, inputs=1, **BATCHES[name])
    found = p.filter()
    assert_filtered(found, p.expected(kalman.filter), p.z)
    dense = p.expected(kalman.joint_log_likelihood)
    np.testing.assert_allclose(found.log_likelihood, dense, **TIGHT)
    assert found.predicted_chols.shape == (4, *p.z.shape[1:2], 2, 2)


@pytest.mark.parametrize("name", ["F", "Q", "H", "R", "initial_mean", "initial_covariance"])
def test_may_one_matrix_alone_differ_within_a_batch(name):
    own = problem(2, 1, batch=3, models=True, seed=1).matrices[name]
    p = problem(2, 1, batch=3).changed(**{name: own})
    assert_filtered(p.filter(), p.expected(kalman.filter), p.z)


def test_may_a_batch_have_several_axes():
    p = usual(n=2, batch=4)
    folded = p._replace(z=p.z.reshape(2, 2, *p.z.shape[1:]), inputs=p.inputs.reshape(2, 2, -1, 1))
    found, expected = folded.filter(), p.filter()
    for name in ("filtered_means", "predicted_chols", "innovations", "log_likelihood"):
        a, b = np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))
        np.testing.assert_allclose(a, b.reshape(2, 2, *b.shape[1:]), rtol=1e-12, atol=1e-12)
    one_model_a_row = folded.changed(
        F=p.matrices["F"] * np.array([1.0, 0.5])[:, None, None, None, None]
    )
    found = one_model_a_row.filter()
    for row, factor in enumerate((1.0, 0.5)):
        expected = p.changed(F=factor * p.matrices["F"]).filter()
        np.testing.assert_allclose(
            np.asarray(found.filtered_means)[row],
            np.asarray(expected.filtered_means)[2 * row : 2 * row + 2],
            **TIGHT,
        )


def test_does_one_series_meet_several_models():
    p = problem(2, 2, batch=4, models=True)
    found = statespace.filter(p.model(), p.z[0])
    for b, member in enumerate(p.members()):
        expected = kalman.filter(member.reference(), p.z[0])
        np.testing.assert_allclose(found.filtered_means[b], expected.filtered_means, **TIGHT)
        np.testing.assert_allclose(found.log_likelihoods[b], expected.log_likelihoods, **TIGHT)


def without(**matrices):
    return lambda rng: matrices


SINGULAR = {
    "Q of rank one": lambda rng: {"Q": random_covariance(rng, (), 3, "complex128", rank=1)},
    "Q of rank two": lambda rng: {"Q": random_covariance(rng, (), 3, "complex128", rank=2)},
    "no Q": without(Q=np.zeros((3, 3), complex)),
    "no R": without(R=np.zeros((2, 2), complex)),
    "R of rank one": lambda rng: {"R": random_covariance(rng, (), 2, "complex128", rank=1)},
    "R of one element": without(R=np.diag([0.0, 0.3]) + 0j),
    "known at first": without(initial_covariance=np.zeros((3, 3), complex)),
    "known for ever": without(
        Q=np.zeros((3, 3), complex), initial_covariance=np.zeros((3, 3), complex)
    ),
    "known at first, Q of rank one": lambda rng: {
        "Q": random_covariance(rng, (), 3, "complex128", rank=1),
        "initial_covariance": np.zeros((3, 3), complex),
    },
    "an idle transition": without(F=np.zeros((3, 3), complex)),
    "a transition that forgets a state": without(F=np.diag([0.5j, 0.0, -0.3])),
    "a Jordan block": without(F=0.8j * np.eye(3) + np.eye(3, k=1)),
    "an observation of nothing": without(H=np.zeros((2, 3), complex)),
    "one observation twice": without(H=np.array([[1, 1j, 0.5], [1, 1j, 0.5]])),
}


@pytest.mark.parametrize("varying", ["", "FQHRB"])
@pytest.mark.parametrize("name", SINGULAR)
def test_may_a_matrix_be_singular(name, varying):
    p = usual().changed(**SINGULAR[name](np.random.default_rng(3)))
    p = p.changed(**{a: np.repeat(p.matrices[a][None], len(p.z), axis=0) for a in varying})
    assert_filtered(p.filter(), p.expected(kalman.filter), p.z)


@pytest.mark.parametrize("gone", ["all", "all but one", "all but the last"])
def test_may_almost_everything_be_missing(gone):
    p = usual()
    p = p._replace(z=usual(holes="").z)
    z = np.full_like(p.z, np.nan)
    if gone != "all":
        t = -1 if gone == "all but the last" else 4
        z[t, 1] = p.z[t, 1]
    p = p._replace(z=z)
    found = p.filter()
    assert_filtered(found, p.expected(kalman.filter), p.z)
    if gone == "all":
        np.testing.assert_array_equal(found.log_likelihood, 0.0)


@pytest.mark.parametrize("batch", [None, 4])
def test_is_what_is_called_missing_as_good_as_nan(batch):
    p = usual(n=2, batch=batch)
    missing = np.isnan(p.z)
    some = missing & (np.arange(2) == 0)
    filled = np.where(some, 1e6 - 3j, p.z)
    given = {"missing": missing, "inputs": p.inputs}
    found = statespace.filter(p.model(), filled, **given)
    expected = p.filter()
    for field in dataclasses.fields(found):
        if not field.name.startswith("log_") and getattr(found, field.name) is not None:
            np.testing.assert_array_equal(*(getattr(r, field.name) for r in (found, expected)))
    np.testing.assert_array_equal(
        statespace.log_likelihood(p.model(), filled, **given), p.log_likelihood()
    )


def test_is_half_a_nan_missing():
    p = usual(holes="")
    z = p.z.copy()
    z[3, 1] = complex(np.nan, 1.0)
    z[5, 0] = complex(1.0, np.nan)
    found = p._replace(z=z).filter()
    assert_filtered(found, kalman.filter(p.reference(), z), z)
    absent = found.innovations.numpy()[np.isnan(z)]
    assert np.isnan(absent.real).all()  # no number in either part, that looks like an innovation
    assert np.isnan(absent.imag).all()


def test_may_a_series_of_numbers_go_without_an_axis_of_elements():
    p = problem(5, 1, **KINDS["constant"])
    found = statespace.filter(p.model(), p.z[:, 0], inputs=p.inputs[:, 0])
    expected = p.filter()
    assert found.innovations.shape == p.z[:, 0].shape
    assert found.innovation_variances.shape == p.z[:, 0].shape
    np.testing.assert_array_equal(found.innovations, np.asarray(expected.innovations)[:, 0])
    np.testing.assert_array_equal(found.filtered_means, expected.filtered_means)
    np.testing.assert_array_equal(found.log_likelihood, expected.log_likelihood)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_may_a_series_be_short(steps):
    for p in (
        problem(2, 2, steps=3, seed=1),
        usual("varying", steps=3, seed=1),
    ):
        varying = {name: a[:steps] for name, a in p.matrices.items() if a.ndim == 3}
        p = Problem(
            p.matrices | varying, p.z[:steps], p.inputs if p.inputs is None else p.inputs[:steps]
        )
        assert_filtered(p.filter(), p.expected(kalman.filter), p.z)
        np.testing.assert_allclose(
            p.log_likelihood(), p.expected(kalman.joint_log_likelihood), **TIGHT
        )


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_is_a_stationary_start_the_covariance_that_stays(dtype):
    p = usual(n=2, dtype=dtype)
    covariance = kalman.stationary_covariance(p.matrices["F"], p.matrices["Q"])
    expected = p.changed(initial_covariance=covariance).expected(kalman.filter)
    assert_filtered(p.changed(initial_covariance="stationary").filter(), expected, p.z)
    unsaid = {k: v for k, v in p.matrices.items() if k != "initial_covariance"}
    assert_filtered(p._replace(matrices=unsaid).filter(), expected, p.z)


def test_has_a_batch_of_models_a_stationary_start_each():
    p = usual(n=2, batch=4, models=True)
    covariances = [
        kalman.stationary_covariance(member.matrices["F"], member.matrices["Q"])
        for member in p.members()
    ]
    expected = p.changed(initial_covariance=np.array(covariances)).expected(kalman.filter)
    assert_filtered(p.changed(initial_covariance="stationary").filter(), expected, p.z)


def test_is_a_slow_pole_stationary_too():
    """P is 1e6 times Q: a fixed number of doublings would stop short."""
    F = np.array([[(1 - 1e-6) * np.exp(0.3j), 0.1], [0.0, 0.5]])
    Q = np.diag([1e-3, 1.0]) + 0j
    model = statespace.LinearGaussian(F, Q, np.ones((1, 2)), [[1.0]])
    expected = kalman.stationary_covariance(F, Q)
    np.testing.assert_allclose(model.initial_covariance, expected, rtol=1e-9)


def test_does_the_mean_start_at_zero_unless_given():
    p = problem(3, 2)
    zero = p.changed(initial_mean=np.zeros(3, complex))
    unsaid = {k: v for k, v in p.matrices.items() if k != "initial_mean"}
    found = statespace.filter(statespace.LinearGaussian(**unsaid), p.z)
    assert_filtered(found, zero.expected(kalman.filter), p.z)


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
@pytest.mark.parametrize("holes", ["", "own"])
def test_is_a_diffuse_start_a_prior_of_ten_to_the_ten(holes, dtype):
    p = problem(2, 2, dtype=dtype, holes=holes)
    found = p.changed(initial_covariance="diffuse").smooth()
    log_prob, mean, covariance = kalman.diffuse_log_likelihood(p.reference(), p.z, 1e10)
    np.testing.assert_allclose(
        p.changed(initial_covariance="diffuse").log_likelihood(), log_prob, rtol=1e-9
    )
    # What is left of a prior of 1e10 after rounding is good to about 1e-16 × 1e10.
    np.testing.assert_allclose(found.smoothed_means[0], mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(square(found.smoothed_chols)[0], covariance, rtol=1e-5, atol=1e-5)


def test_is_a_state_that_stands_still_from_a_diffuse_start_the_least_squares_fit():
    rng = np.random.default_rng(5)
    H = random(rng, (30, 1, 3), "complex128")
    z = random(rng, (30, 1), "complex128")
    model = statespace.LinearGaussian(
        np.eye(3), np.zeros((3, 3)), H, [[0.3]], initial_covariance="diffuse"
    )
    found = statespace.filter(model, z)
    fit = np.linalg.lstsq(H[:, 0], z[:, 0])[0]
    np.testing.assert_allclose(found.filtered_means[-1], fit, rtol=1e-7)
    gram = np.conj(H[:, 0].swapaxes(0, 1)) @ H[:, 0]
    covariance = 0.3 * np.linalg.inv(gram)
    np.testing.assert_allclose(square(found.filtered_chols)[-1], covariance, rtol=1e-6, atol=1e-9)


def test_is_a_turned_series_of_a_turned_model_as_likely():
    p = usual(inputs=2)
    turn = np.exp(1.1j)
    turned = Problem(
        p.matrices | {"initial_mean": turn * p.matrices["initial_mean"]},
        turn * p.z,
        turn * p.inputs,
    )
    found, expected = turned.filter(), p.filter()
    np.testing.assert_allclose(found.log_likelihoods, expected.log_likelihoods, **TIGHT)
    np.testing.assert_allclose(
        found.filtered_means, turn * np.asarray(expected.filtered_means), **TIGHT
    )


@pytest.mark.parametrize("varying", ["", "FQHRB"])
def test_are_the_coordinates_of_the_state_a_matter_of_taste(varying):
    p = usual(varying=varying, inputs=2)
    rng = np.random.default_rng(2)
    change = random(rng, (3, 3), "complex128")
    back = np.linalg.inv(change)
    own = p.matrices
    other = p.changed(
        F=change @ own["F"] @ back,
        Q=change @ own["Q"] @ kalman.adjoint(change),
        H=own["H"] @ back,
        B=change @ own["B"],
        initial_mean=change @ own["initial_mean"],
        initial_covariance=change @ own["initial_covariance"] @ kalman.adjoint(change),
    )
    found, expected = other.filter(), p.filter()
    np.testing.assert_allclose(found.log_likelihoods, expected.log_likelihoods, **TIGHT)
    np.testing.assert_allclose(
        np.asarray(found.filtered_means) @ np.swapaxes(back, 0, 1),
        expected.filtered_means,
        **TIGHT,
    )
    np.testing.assert_allclose(
        back @ square(found.filtered_chols) @ kalman.adjoint(back),
        square(expected.filtered_chols),
        **TIGHT,
    )


def test_does_the_order_of_the_observations_not_matter():
    p = problem(4, 3, **KINDS["varying"])
    order = [2, 0, 1]
    H, R = (p.matrices[name][:, order] for name in "HR")
    other = p.changed(H=H, R=R[..., order])
    found = other._replace(z=p.z[:, order]).filter()
    expected = p.filter()
    np.testing.assert_allclose(found.log_likelihoods, expected.log_likelihoods, **TIGHT)
    np.testing.assert_allclose(found.filtered_means, expected.filtered_means, **TIGHT)
    np.testing.assert_allclose(
        square(found.filtered_chols), square(expected.filtered_chols), **TIGHT
    )


REFUSED = {
    "F not square": ({"F": np.ones((3, 2))}, "F"),
    "Q of another size": ({"Q": np.eye(2)}, "Q"),
    "H of another state": ({"H": np.ones((2, 4))}, r"H must be \[m, 3\].*column for each state"),
    "B of another state": ({"B": np.ones((2, 4))}, r"B must be \[3, k\].*row for each state"),
    "B a number": ({"B": np.array(1.0)}, r"B must be \[3, k\].*got shape \(\)"),
    "R of another observation": ({"R": np.eye(3)}, "R"),
    "a mean of another size": ({"initial_mean": np.zeros(2)}, "initial_mean"),
    "a start of another size": ({"initial_covariance": np.eye(2)}, "initial_covariance"),
    "Q not Hermitian": ({"Q": np.array([[1, 1j, 0], [1j, 1, 0], [0, 0, 1]])}, "Q"),
    "Q symmetric": ({"Q": np.diag([1, 1 + 0.1j, 1])}, "Q"),
    "Q indefinite": ({"Q": np.diag([1.0, -1e-3, 1.0])}, "Q"),
    "R indefinite": ({"R": np.array([[1.0, 2.0], [2.0, 1.0]])}, "R"),
    "R of one step indefinite": (
        {"R": np.eye(2) * np.where(np.arange(14) == 9, -1.0, 1.0)[:, None, None]},
        "R",
    ),
    "a start indefinite": ({"initial_covariance": -np.eye(3)}, "initial_covariance"),
    "NaN in F": ({"F": np.full((3, 3), np.nan)}, "F"),
    "NaN in the mean": ({"initial_mean": np.full(3, np.nan)}, "initial_mean"),
    "NaN in Q": ({"Q": np.full((3, 3), np.nan)}, "Q"),
    "NaN in the start": (
        {"initial_covariance": np.full((3, 3), np.nan)},
        "initial_covariance",
    ),
    "infinity in H": ({"H": np.full((2, 3), np.inf)}, "H"),
    "an unknown start": ({"initial_covariance": "steady"}, "steady"),
    "a transition that grows": (
        {"F": 1.01 * np.eye(3), "initial_covariance": "stationary"},
        "stationary",
    ),
    "times that disagree": ({"F": np.zeros((14, 3, 3)), "H": np.ones((13, 2, 3))}, "14|13"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_an_impossible_model_refused_at_once(name):
    matrices, words = REFUSED[name]
    # The message begins with the name of what is wrong; others may be named later on.
    begins = words in ("F", "Q", "H", "R", "initial_mean", "initial_covariance")
    with pytest.raises((ValueError, TypeError), match=rf"^{words}\b" if begins else words):
        problem(3, 2).changed(**matrices).model()


def test_is_an_impossible_series_refused():
    p, real = problem(3, 2), problem(3, 2, dtype="float64")
    model = p.model()
    with pytest.raises(TypeError, match=r"float64|real"):
        statespace.filter(real.model(), p.z)
    with pytest.raises(TypeError, match=r"float64|complex"):
        statespace.filter(model, real.z)
    for z in (p.z[:, :1], p.z[:, 0], np.concatenate([p.z, p.z], axis=-1)):
        with pytest.raises(ValueError, match=r"z must be \[\.\.\., T, 2\]"):
            statespace.filter(model, z)
    with pytest.raises(ValueError, match="the series is empty"):
        statespace.filter(model, p.z[:0])
    with pytest.raises(ValueError, match=r"missing must be broadcast .* got \(2, 14, 2\)"):
        statespace.filter(model, p.z, missing=np.zeros((2, 14, 2), bool))
    with pytest.raises(TypeError, match="z must be numbers"):
        statespace.filter(model, ["a"])
    with pytest.raises(TypeError, match="model must be a LinearGaussian, got list"):
        statespace.filter([1], p.z)
    with pytest.raises(ValueError, match="got None"):
        p.changed(initial_covariance=None).model()
    with pytest.raises((ValueError, TypeError), match="missing"):
        statespace.filter(model, p.z, missing=np.zeros((5, 2), bool))
    with pytest.raises(ValueError, match="B"):
        statespace.filter(model, p.z, inputs=np.ones((14, 1), complex))
    with_inputs = problem(3, 2, inputs=2)
    with pytest.raises(ValueError, match="inputs"):
        statespace.filter(with_inputs.model(), with_inputs.z)
    for inputs in (with_inputs.inputs[:-2], with_inputs.inputs[:, :1]):
        with pytest.raises(ValueError, match="inputs"):
            statespace.filter(with_inputs.model(), with_inputs.z, inputs=inputs)
    varying = problem(3, 2, varying="F")
    with pytest.raises(ValueError, match="14"):
        statespace.filter(varying.model(), varying.z[:9])


def test_is_an_infinite_observation_refused():
    p = problem(3, 2)
    p.z[4, 0] = np.inf
    with pytest.raises(ValueError, match=r"infinit|finite"):
        p.filter()


def test_are_data_that_are_not_small_beside_a_diffuse_start_refused():
    p = problem(3, 2).changed(initial_covariance="diffuse")
    with pytest.raises(ValueError, match="diffuse"):
        p._replace(z=1e7 * p.z).filter()


@eagerly_and_in_a_graph(
    ("shape", "holes"),
    [*itertools.product([(6,), (2, 3), ()], ["", "shared", "own"])],
    [((2, 3), "own")],
    [((), ""), ((6,), "shared"), ((2, 3), "own")],
)
def test_covariances_are_of_each_series_in_and_out_of_a_graph(shape, holes, eagerly):
    """Series that share them hold them once."""
    batch = int(np.prod(shape)) if shape else None
    p = problem(2, 2, inputs=1, batch=batch, holes=holes)
    z, inputs = (a.reshape(*shape, *a.shape[-2:]) for a in (p.z, p.inputs))
    model = p.model()

    def filtered(z, inputs):
        return statespace.filter(model, z, inputs=inputs)

    call = filtered if eagerly else tf.function(filtered, autograph=False)
    results = [
        filtered(z, inputs),
        call(tf.constant(z), tf.constant(inputs)),
        dataclasses.replace(filtered(z, inputs), innovations=None),
    ]
    names = ("predicted_chols", "filtered_chols", "innovation_covariances")
    for name in names:
        own = [getattr(result, name) for result in results]
        assert own[0].shape == (*shape, *z.shape[-2:], 2)
        for other in own[1:]:
            np.testing.assert_allclose(other, own[0], rtol=1e-12, atol=1e-14)
        for i in np.ndindex(shape):
            alone = getattr(filtered(z[i], inputs[i]), name)
            np.testing.assert_allclose(own[0][i], alone, rtol=1e-12, atol=1e-14)
    assert results[1].innovation_pseudo_covariances is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        results[0].log_likelihood = 0.0


def test_do_gradients_flow_through_covariances_that_series_share():
    p = usual(batch=3, holes="")
    F = tf.constant(p.matrices["F"])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(F)
        found = statespace.filter(p.model().replace(F=F), p.z, inputs=p.inputs)
        with tape.stop_recording():
            assert found.innovation_covariances.shape[0] == 3  # a look, which takes nothing away
        shared = tf.reduce_sum(tf.abs(found.innovation_covariances))
        first = tf.reduce_sum(tf.abs(found.innovation_covariances[1]))
    assert np.abs(tape.gradient(first, F)).max() > 0.1
    np.testing.assert_allclose(tape.gradient(shared, F), 3 * tape.gradient(first, F), rtol=1e-12)


def test_may_the_means_of_a_result_be_replaced_by_an_array():
    p = usual(batch=3, holes="")
    found = p.filter()
    other = dataclasses.replace(found, predicted_means=np.asarray(found.predicted_means))
    np.testing.assert_array_equal(other.filtered_chols, found.filtered_chols)
    assert [part.shape[0] for part in tf.nest.flatten(found) if part is not None] == [3] * 9


@pytest.mark.long
def test_is_the_likelihood_of_any_number_of_series_traced_once():
    model = problem(3, 2).model()
    unknown = tf.TensorSpec([None, None, 2], tf.complex128)
    traced = tf.function(
        lambda z: statespace.log_likelihood(model, z), input_signature=[unknown], autograph=False
    )
    for batch in (1, 3):
        z = problem(3, 2, batch=batch).z
        expected = statespace.log_likelihood(model, z)
        np.testing.assert_allclose(traced(tf.constant(z)), expected, rtol=1e-12)
    assert traced.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(("dtype", "angle"), [("float32", 0.0), ("complex64", 0.3)])
def test_does_a_slow_filter_keep_a_signal_far_from_zero(dtype, angle, batch):
    """A rounding error that is the same at each step would add up to many standard deviations."""
    rng = np.random.default_rng(0)
    gain, level, steps = 1e-3, 1e4, 20_000
    turn = np.exp(1j * angle * np.arange(steps))
    noise = rng.normal(size=steps) + 1j * rng.normal(size=steps)
    z = level * turn + noise
    wide = "complex128"
    if dtype == "float32":
        z, wide = z.real, "float64"
    z = z.astype(dtype)[:, None]
    z = z if batch is None else np.stack([z] * batch)

    def means(dtype):
        step = np.exp(1j * angle) if "complex" in dtype else 1.0
        matrices = ([[step]], [[gain**2]], [[1.0]], [[1.0]], [level], [[gain]])
        rounded = (np.array(a).astype(z.dtype).astype(dtype) for a in matrices)
        model = statespace.LinearGaussian(*rounded)
        return np.asarray(statespace.filter(model, z.astype(dtype)).filtered_means)

    error = np.abs(means(dtype) - means(wide)).max()
    assert error < np.sqrt(gain)  # about the posterior's standard deviation
