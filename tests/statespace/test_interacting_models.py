"""The filter of interacting models: against the textbook, single filters and differences."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from cgp.statespace import InteractingModels, Iterated, NonlinearGaussian, SigmaPoints, Taylor
from tests.linalg.problems import random
from tests.long_cases import long_except
from tests.reference import kalman, switching
from tests.statespace.nonlinear_problems import PROBLEMS
from tests.statespace.problems import (
    assert_factors,
    improper_parts,
    problem,
    reference_augmented,
    square,
)

SWITCH = np.array([[0.9, 0.1], [0.3, 0.7]])
NAMES = (
    "predicted_means",
    "predicted_chols",
    "filtered_means",
    "filtered_chols",
    "innovations",
    "innovation_covariances",
    "log_likelihoods",
)


def assert_same(found, expected, atol=1e-12):
    for name in NAMES:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=atol)


def pair(m=2, **options):
    """Two problems of one series, which differ in all matrices."""
    return [problem(2, m, seed=seed, **options) for seed in (0, 5)]


# --- against the textbook -------------------------------------------------------------------------


def assert_textbook(found, expected, z):
    np.testing.assert_allclose(found.predicted_means, expected.predicted_means, atol=1e-10)
    np.testing.assert_allclose(found.filtered_means, expected.filtered_means, atol=1e-10)
    np.testing.assert_allclose(
        square(found.predicted_chols), expected.predicted_covariances, atol=1e-10
    )
    np.testing.assert_allclose(
        square(found.filtered_chols), expected.filtered_covariances, atol=1e-10
    )
    assert_factors(found.predicted_chols)
    assert_factors(found.filtered_chols)
    np.testing.assert_allclose(found.innovations, z - expected.observation_means, atol=1e-10)
    np.testing.assert_allclose(
        found.innovation_covariances, expected.observation_covariances, atol=1e-10
    )
    np.testing.assert_allclose(found.log_likelihoods, expected.log_likelihoods, atol=1e-10)
    np.testing.assert_allclose(found.mode_probabilities, expected.probabilities, atol=1e-10)


ALL_OPTIONS = {"varying": "FQHR", "inputs": 1, "holes": "shared"}


@pytest.mark.parametrize(
    ("which", "options"),
    long_except(
        [
            ("QR", {"holes": "shared"}),
            ("FH", {"varying": "FQHR", "inputs": 1}),
            ("FQHR", ALL_OPTIONS),
        ],
        ("FQHR", ALL_OPTIONS),
    ),
    ids=str,
)
def test_is_the_filter_that_of_the_textbook(which, options):
    """What switches is noise, transition and observation, or all."""
    first, second = pair(**options)
    second = first.changed(**{name: second.matrices[name] for name in which})
    bank = InteractingModels([first.model(), second.model()], SWITCH, [0.2, 0.8])
    found = statespace.filter(bank, first.z, inputs=first.inputs)
    models = [p.reference() for p in (first, second)]
    expected = switching.filtered(models, SWITCH, [0.2, 0.8], first.z)
    assert_textbook(found, expected, first.z)
    np.testing.assert_allclose(found.log_likelihood, np.sum(expected.log_likelihoods))
    assert np.ptp(expected.probabilities[:, 0]) > 0.2


@pytest.mark.long
def test_is_a_real_bank_that_of_the_textbook():
    several = [problem(2, 1, "float64", seed=seed) for seed in range(3)]
    switch = np.array([[0.8, 0.1, 0.1], [0.2, 0.8, 0.0], [0.0, 0.5, 0.5]])
    bank = InteractingModels([p.model() for p in several], switch)
    z = several[0].z
    expected = switching.filtered([p.reference() for p in several], switch, np.ones(3) / 3, z)
    assert_textbook(statespace.filter(bank, z), expected, z)


def test_are_pseudo_covariances_of_improper_models_mixed_too():
    models, references, z = [], [], None
    for seed, given in enumerate(pair(holes="shared")):
        matrices, parts = improper_parts(2, 2, seed=seed)
        given = given.changed(**matrices)
        z = given.z if z is None else z
        models.append(statespace.widely_linear(given.model(), **parts))
        references.append(kalman.bivariate(reference_augmented(given, parts)))
    found = statespace.filter(InteractingModels(models, SWITCH), z)
    expected = switching.filtered(references, SWITCH, [0.5, 0.5], kalman.composite(z))
    composite = expected.filtered_means
    means = composite[:, :2] + 1j * composite[:, 2:]
    np.testing.assert_allclose(found.filtered_means, means, atol=1e-10)
    np.testing.assert_allclose(
        square(found.filtered_chols), expected.filtered_covariances, atol=1e-10
    )
    K, C = kalman.pair(expected.observation_covariances)
    np.testing.assert_allclose(found.innovation_covariances, K, atol=1e-10)
    np.testing.assert_allclose(found.innovation_pseudo_covariances, C, atol=1e-10)
    np.testing.assert_allclose(found.mode_probabilities, expected.probabilities, atol=1e-10)


# --- where it is exact ----------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "m"), long_except([(1, 3), (3, 3), (3, 1)], (3, 1)))
def test_are_equal_models_one(count, m):
    given = problem(2, m, holes="own", inputs=1, batch=2)
    model, switch = given.model(), np.full((count, count), 1.0 / count)
    found = statespace.filter(
        InteractingModels([model] * count, switch), given.z, None, given.inputs
    )
    assert_same(found, given.filter())
    np.testing.assert_allclose(found.mode_probabilities, np.full((2, 14, count), 1.0 / count))
    np.testing.assert_allclose(found.innovation_variances, given.filter().innovation_variances)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        pytest.param("carrier", None, marks=pytest.mark.long),
        pytest.param("improper", SigmaPoints("unscented"), marks=pytest.mark.long),
        ("power", Iterated(Taylor(), 2, 0.3)),
    ],
    ids=str,
)
def test_is_a_bank_of_one_nonlinear_model_that_model(kind, rule):
    given = PROBLEMS[kind]()
    model = given.model(jit_compile=False)
    expected = statespace.filter(model, given.z, rule=rule)
    assert_same(
        statespace.filter(InteractingModels([model], [[1.0]]), given.z, rule=rule), expected
    )
    if kind == "carrier":
        both = InteractingModels([model, model], SWITCH)
        assert_same(statespace.filter(both, given.z, rule=rule), expected)


@pytest.mark.long
def test_do_linear_and_nonlinear_models_interact():
    first, second = pair(holes="shared")
    second = first.changed(**second.matrices)
    linear = [statespace.widely_linear(p.model()) for p in (first, second)]
    own = second.matrices
    F, H = (tf.constant(own[name]) for name in "FH")
    names = ("Q", "R", "initial_mean", "initial_covariance")
    functions = NonlinearGaussian(
        lambda x: tf.linalg.matvec(F, x),
        lambda x: tf.linalg.matvec(H, x),
        **{name: own[name] for name in names},
        jit_compile=False,
    )
    found, expected = (
        statespace.filter(InteractingModels([linear[0], other], SWITCH), first.z)
        for other in (functions, linear[1])
    )
    assert_same(found, expected, atol=1e-10)
    np.testing.assert_allclose(found.mode_probabilities, expected.mode_probabilities, atol=1e-10)


def test_do_models_that_alternate_make_one_that_varies():
    """A switch that is certain leaves nothing to approximate."""
    first, second = pair()
    bank = InteractingModels([first.model(), second.model()], [[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0])
    steps = len(first.z)
    chosen = [(first, second)[t % 2].matrices for t in range(steps + 1)]
    varying = {name: np.array([m[name] for m in chosen[1:]]) for name in "FQ"}
    varying |= {name: np.array([m[name] for m in chosen[:-1]]) for name in "HR"}
    expected = first.changed(**varying).filter()
    found = statespace.filter(bank, first.z)
    assert_same(found, expected)
    np.testing.assert_allclose(found.mode_probabilities[:, 0], np.arange(steps) % 2 == 0)


@pytest.mark.long
def test_is_a_batch_a_loop_over_its_series():
    first, second = pair(holes="own", batch=2)
    bank = InteractingModels([first.model(), second.model()], SWITCH)
    found = statespace.filter(bank, first.z)
    for b in range(2):
        alone = statespace.filter(bank, first.z[b])
        for name in (*NAMES, "mode_probabilities", "log_likelihood"):
            np.testing.assert_allclose(getattr(found, name)[b], getattr(alone, name), atol=1e-12)


# --- what it is for -------------------------------------------------------------------------------


@pytest.mark.long
def test_is_a_switch_found():
    """A rotation that turns the other way for a while, in noise."""
    rng = np.random.default_rng(0)
    ways = np.repeat([0, 1, 0], 40)
    models = [
        statespace.LinearGaussian([[np.exp(1j * w)]], [[0.01]], [[1.0]], [[0.05]], [1.0], [[0.1]])
        for w in (0.4, -0.4)
    ]
    x, z = 1.0, []
    for way in ways:
        z.append(x + np.sqrt(0.025) * random(rng, (), "complex128"))
        x = x * np.exp((0.4j, -0.4j)[way]) + np.sqrt(0.005) * random(rng, (), "complex128")
    bank = InteractingModels(models, [[0.97, 0.03], [0.03, 0.97]])
    found = statespace.filter(bank, np.array(z))
    probable = np.argmax(found.mode_probabilities, axis=-1)
    settled = np.r_[5:40, 45:80, 85:120]  # a switch takes a few steps to be seen
    assert np.mean(probable[settled] == ways[settled]) > 0.97
    alone = [float(statespace.log_likelihood(model, z)) for model in models]
    assert float(found.log_likelihood) > max(alone) + 20.0


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["complex64", "float32"])
def test_is_single_precision_kept(dtype):
    first, second = pair(dtype=dtype)
    bank = InteractingModels([first.model(), second.model()], SWITCH)
    assert bank.transition.dtype == tf.float32
    found = statespace.filter(bank, first.z)
    assert found.filtered_means.dtype == dtype
    assert found.mode_probabilities.dtype == tf.float32
    models = [p.reference() for p in (first, second)]
    expected = switching.filtered(models, SWITCH, [0.5, 0.5], first.z)
    np.testing.assert_allclose(found.filtered_means, expected.filtered_means, atol=1e-3)
    np.testing.assert_allclose(found.mode_probabilities, expected.probabilities, atol=1e-3)


@pytest.mark.long
def test_is_a_graph_the_same_as_eager():
    first, second = pair(m=1, holes="own")
    bank = InteractingModels([first.model(), second.model()], SWITCH)
    in_graph = tf.function(lambda z: statespace.filter(bank, z))(first.z)
    expected = statespace.filter(bank, first.z)
    assert_same(in_graph, expected)
    assert tuple(in_graph.mode_probabilities.shape) == (14, 2)


@pytest.mark.parametrize("kind", long_except(["linear", "batch", "carrier"], "linear"))
def test_are_steps_one_at_a_time_those_of_the_filter(kind):
    rule = None
    if kind in PROBLEMS:
        given = PROBLEMS[kind]()
        models = [
            given.model(jit_compile=False),
            given.model(Q=2 * given.noise["Q"], jit_compile=False),
        ]
        z, rule = given.z, SigmaPoints()
    else:
        first, second = pair(holes="own", **({"batch": 3} if kind == "batch" else {}))
        models, z = [first.model(), second.model()], first.z
    bank = InteractingModels(models, SWITCH)
    found = statespace.filter(bank, z, rule=rule)
    state = None
    for t in range(5):
        state, step = statespace.step(bank, state, z[..., t, :], rule=rule)
        np.testing.assert_allclose(step.filtered.mean, found.filtered_means[..., t, :], atol=1e-10)
        np.testing.assert_allclose(step.innovation, found.innovations[..., t, :], atol=1e-10)
        np.testing.assert_allclose(
            step.predicted.variance, found.innovation_variances[..., t, :], atol=1e-10
        )
        np.testing.assert_allclose(
            step.mode_probabilities, found.mode_probabilities[..., t, :], atol=1e-10
        )
        if found.innovation_pseudo_covariances is not None:
            pseudo = tf.linalg.diag_part(found.innovation_pseudo_covariances[..., t, :, :])
            np.testing.assert_allclose(step.predicted.pseudo_variance, pseudo, atol=1e-10)
    assert state.mean.shape == (*z.shape[:-2], 2, models[0].state_size)
    np.testing.assert_allclose(state.mode_probabilities.sum(axis=-1), 1.0)


# --- gradients ------------------------------------------------------------------------------------


def differences(value, tensors, step=1e-5):
    """Central differences in random directions, which keep covariances Hermitian."""
    rng, ways, found = np.random.default_rng(3), {}, {}
    for name, tensor in tensors.items():
        way = random(rng, tensor.shape, tensor.dtype.as_numpy_dtype().dtype.name)
        if name in ("Q", "R", "initial_covariance"):
            way = way + np.conj(way).T
        ways[name] = way
        up, down = (value({**tensors, name: tensor + h * way}) for h in (step, -step))
        found[name] = (float(up) - float(down)) / (2 * step)
    return ways, found


@pytest.mark.long
def test_is_the_gradient_that_of_differences():
    """By all matrices of the first model, by the switch and by the series."""
    first, second = pair(m=1, steps=6, holes="own")
    other = second.model()
    tensors = {name: tf.constant(a) for name, a in first.matrices.items()}
    tensors["z"] = tf.constant(first.z)
    tensors["odds"] = tf.constant(np.log(SWITCH))
    tensors["start"] = tf.constant([0.3, -0.2], tf.float64)

    def value(now):
        now = dict(now)
        z, odds, start = (now.pop(name) for name in ("z", "odds", "start"))
        bank = InteractingModels(
            [statespace.LinearGaussian(**now), other], tf.nn.softmax(odds), tf.nn.softmax(start)
        )
        return statespace.log_likelihood(bank, z)

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = value(tensors)
    gradients = tape.gradient(total, tensors)
    ways, expected = differences(value, tensors)
    for name, gradient in gradients.items():
        found = np.real(np.vdot(ways[name], np.nan_to_num(gradient)))
        np.testing.assert_allclose(found, expected[name], rtol=1e-6, atol=1e-8, err_msg=name)
        assert abs(expected[name]) > 1e-4


@pytest.mark.long
def test_is_the_gradient_by_variables_of_functions_that_of_differences():
    given, rule = PROBLEMS["power"](steps=5), SigmaPoints()
    gain = tf.Variable(1.1, dtype=tf.complex128)
    noise = given.noise | {"jit_compile": False}
    fast = NonlinearGaussian(lambda x: gain * given.transition(x), given.observation, **noise)
    bank = InteractingModels([given.model(jit_compile=False), fast], SWITCH)
    with tf.GradientTape() as tape:
        total = statespace.log_likelihood(bank, given.z, rule=rule)
    gradient = tape.gradient(total, gain)
    ends = []
    for value in (1.1 + 1e-5, 1.1 - 1e-5):
        gain.assign(value)
        ends.append(float(statespace.log_likelihood(bank, given.z, rule=rule)))
    np.testing.assert_allclose(np.real(gradient), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


@pytest.mark.usefixtures("execution")
def test_are_gradients_by_noise_observation_switch_and_series_those_of_differences():
    """Of one state, whose programs are the smallest."""
    first, second = (problem(1, 1, steps=2, seed=seed) for seed in (0, 5))
    tensors = {name: tf.constant(first.matrices[name]) for name in "HR"}
    tensors["z"] = tf.constant(first.z)
    tensors["odds"] = tf.constant(np.log(SWITCH))
    tensors["start"] = tf.constant([0.3, -0.2], tf.float64)

    def value(now):
        moved = first.changed(H=now["H"], R=now["R"])
        odds, start = (np.exp(now[name]) for name in ("odds", "start"))
        switch = odds / odds.sum(axis=-1, keepdims=True), start / start.sum()
        models = [moved.reference(), second.reference()]
        return np.sum(switching.filtered(models, *switch, np.array(now["z"])).log_likelihoods)

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        changed = first.model().replace(H=tensors["H"], R=tensors["R"])
        switch = tf.nn.softmax(tensors["odds"]), tf.nn.softmax(tensors["start"])
        bank = InteractingModels([changed, second.model()], *switch)
        total = statespace.log_likelihood(bank, tensors["z"])
    np.testing.assert_allclose(total, value(tensors), rtol=1e-12)
    gradients = tape.gradient(total, tensors)
    ways, expected = differences(value, tensors)
    for name, gradient in gradients.items():
        found = np.real(np.vdot(ways[name], gradient))
        np.testing.assert_allclose(found, expected[name], rtol=1e-6, err_msg=name)
        assert abs(expected[name]) > 1e-2


@pytest.mark.long
def test_is_the_gradient_finite_where_models_are_impossible():
    """A model that cannot be entered, and one that observations exclude."""
    first, second = pair(m=1, steps=6)
    F = tf.constant(second.matrices["F"])
    with tf.GradientTape() as tape:
        tape.watch(F)
        models = [first.model(), second.model().replace(F=F)]
        bank = InteractingModels(models, np.eye(2), [1.0, 0.0])
        value = statespace.log_likelihood(bank, first.z)
    np.testing.assert_allclose(value, first.log_likelihood(), rtol=1e-12)
    np.testing.assert_array_equal(tape.gradient(value, F), 0.0)
    found = statespace.filter(bank, first.z)
    np.testing.assert_array_equal(found.mode_probabilities[:, 1], 0.0)


def test_a_model_that_an_observation_excludes_has_no_part():
    walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])
    certain = statespace.LinearGaussian([[1.0]], [[0.0]], [[1.0]], [[0.0]], [0.0], [[0.0]])
    found = statespace.filter(InteractingModels([walk, certain], SWITCH), [3.0])
    np.testing.assert_allclose(found.mode_probabilities, [[1.0, 0.0]])
    np.testing.assert_allclose(found.filtered_means, statespace.filter(walk, [3.0]).filtered_means)
    # Nothing is learnt from what none of them can explain; the likelihood is zero.
    found = statespace.filter(InteractingModels([certain, certain], SWITCH, [0.4, 0.6]), [3.0])
    assert found.log_likelihood == -np.inf
    np.testing.assert_allclose(found.mode_probabilities, [[0.4, 0.6]])


# --- what is refused ------------------------------------------------------------------------------

WALK = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])
TWO = problem(2, 1, "float64").model()
COMPLEX = statespace.LinearGaussian([[1j]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], [[1.0]]), ValueError, "models must be at least one, got none"),
        ((WALK, [[1.0]]), TypeError, "models must be a sequence of models, got LinearGaussian"),
        (([3], [[1.0]]), TypeError, "model must be a LinearGaussian"),
        (([WALK, TWO], SWITCH), ValueError, r"models\[1\] 2 states of float64"),
        (([WALK, COMPLEX], SWITCH), ValueError, r"models\[1\] 1 states of complex128"),
        (
            ([COMPLEX, statespace.widely_linear(COMPLEX)], SWITCH),
            ValueError,
            r"models\[1\] 1 states of complex128 \(real composite\)",
        ),
        (([WALK, WALK], [[1.0]]), ValueError, r"transition must be \[2, 2\], for 2 models, got"),
        (
            ([WALK, WALK], [[0.9, 0.2], [0.5, 0.5]]),
            ValueError,
            "each row of transition must be probabilities that sum to one, .* are .1.1 1. .",
        ),
        (([WALK, WALK], [[1.1, -0.1], [0.5, 0.5]]), ValueError, "the least is -0.1"),
        (([WALK, WALK], [[np.nan, 0.1], [0.5, 0.5]]), ValueError, "transition"),
        (([WALK, WALK], 1j * SWITCH), TypeError, "transition must be real"),
        (([WALK, WALK], SWITCH, [0.5, 0.6]), ValueError, "initial must be probabilities"),
        (([WALK, WALK], SWITCH, [1.0]), ValueError, r"initial must be \[2\], for 2 models"),
    ],
)
def test_an_impossible_bank_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        InteractingModels(*arguments)


def test_what_a_bank_cannot_do_is_refused():
    bank = InteractingModels([WALK, WALK], SWITCH)
    with pytest.raises(AttributeError, match="cannot be changed"):
        bank.transition = SWITCH
    with pytest.raises(TypeError, match="must be real, got complex128"):
        statespace.filter(bank, [1j])
    with pytest.raises(ValueError, match="inputs were given, but no model has inputs"):
        statespace.filter(bank, [1.0], inputs=[1.0])
    with pytest.raises(TypeError, match=r"rule must be a Taylor\(\)"):
        statespace.filter(bank, [1.0], rule="taylor")
    with pytest.raises(TypeError, match="model must be a LinearGaussian"):
        statespace.smooth(bank, [1.0])
    with pytest.raises(ValueError, match="arrived is for one model"):
        statespace.step(bank, None, 1.0, arrived=True)
    with pytest.raises(TypeError, match=r"state must be \(mean, chol, mode_probabilities\)"):
        statespace.step(bank, (np.zeros((2, 1)), np.zeros((2, 1, 1))), 1.0)
    with pytest.raises(ValueError, match=r"mean of the state must have the axes \[2\]"):
        statespace.step(bank, (np.zeros(1), np.zeros((2, 1, 1)), [0.5, 0.5]), 1.0)
    several = problem(2, 1, "float64", batch=3, models=True)
    with pytest.raises(ValueError, match="the batch axes of z with each model must be the same"):
        statespace.filter(InteractingModels([TWO, several.model()], SWITCH), several.z[0])
    varying = problem(2, 1, "float64", varying="F").model()
    with pytest.raises(ValueError, match="the matrices of the models vary over time"):
        statespace.step(InteractingModels([TWO, varying], SWITCH), None, 1.0)


@pytest.mark.parametrize("jit", long_except([False, True], False))
def test_a_function_that_leaves_its_domain_is_named_with_the_step(jit):
    noise = {"Q": [[1e-3]], "R": [[1e-2]], "initial_mean": [1.0], "initial_covariance": [[1e-2]]}
    model = NonlinearGaussian(lambda x: x, tf.math.log, **noise, jit_compile=jit)
    with pytest.raises(ValueError, match="moments of the state are not finite at step 2: the cov"):
        statespace.filter(InteractingModels([model, model], SWITCH), [0.0, -40.0, 0.0])


@pytest.mark.parametrize("name", ["F", "Q", "H", "R"])
def test_takes_a_step_of_several_models_no_matrices_of_its_own(name):
    model = statespace.LinearGaussian([[0.9]], [[0.1]], [[1.0]], [[0.2]])
    bank = InteractingModels([model, model], SWITCH)
    with pytest.raises(ValueError, match=f"{name} is for one model, not for a bank"):
        statespace.step(bank, None, 1.0, **{name: [[0.5]]})
