"""Filters and smoothers of models that are not linear: against textbooks, and linear ones."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import NotPositiveDefiniteError, statespace
from cgp.statespace import Iterated, NonlinearGaussian, SigmaPoints, Taylor
from tests.long_cases import long_except
from tests.reference import nonlinear as reference
from tests.statespace.nonlinear_problems import PROBLEMS, RULES, joined, real_composite
from tests.statespace.problems import problem, square


def reference_rule(name, n):
    if name == "taylor":
        return reference.taylor
    points = {
        "unscented": lambda: reference.unscented(n, max(3.0 - n, 0.0)),
        "unscented, wide": lambda: reference.unscented(n, 1.5),
        "cubature": lambda: reference.cubature(n),
        "quadrature": lambda: reference.quadrature(n, 3),
    }
    return reference.by_points(*points[name]())


def as_composite(means):
    return real_composite(means) if np.iscomplexobj(means) else means


@pytest.mark.parametrize(
    ("kind", "name", "iterations", "damping", "jit"),
    [
        *long_except(
            [
                ("carrier", "taylor", 0, 0.0, True),
                *(("carrier", name, 0, 0.0, False) for name in RULES),
                *(("improper", name, 0, 0.0, False) for name in ("taylor", "unscented, wide")),
                *(("power", name, 0, 0.0, False) for name in ("taylor", "quadrature")),
                ("carrier", "cubature", 3, 0.0, True),
                ("improper", "taylor", 2, 0.3, False),
                ("power", "cubature", 3, 0.0, False),
            ],
            ("carrier", "taylor", 0, 0.0, False),
            ("improper", "unscented, wide", 0, 0.0, False),
            ("power", "cubature", 3, 0.0, False),
        )
    ],
)
def test_are_filter_and_smoother_those_of_textbooks(kind, name, iterations, damping, jit):
    given = PROBLEMS[kind]()
    Q, R, m, P, z = given.composite()
    rule = RULES[name]
    if iterations:
        rule = Iterated(rule, iterations, damping)
    options = (*given.of_composite, Q, R, m, P, z, reference_rule(name, len(m)))
    # Central differences are exact to about 1e-10 for derivatives of this size.
    tolerance = 1e-7 if name == "taylor" else 1e-10
    model = given.model(jit_compile=jit)

    found = statespace.filter(model, given.z, rule=rule)
    expected = reference.filtered(*options, iterations, damping)
    np.testing.assert_allclose(as_composite(found.filtered_means), expected.means, atol=tolerance)
    np.testing.assert_allclose(square(found.filtered_chols), expected.covariances, atol=tolerance)
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=tolerance)
    alone = statespace.log_likelihood(model, given.z, rule=rule)
    np.testing.assert_allclose(alone, expected.log_likelihood, rtol=tolerance)

    found = statespace.smooth(model, given.z, rule=rule)
    expected = reference.smoothed(*options, iterations, damping)
    np.testing.assert_allclose(as_composite(found.smoothed_means), expected.means, atol=tolerance)
    np.testing.assert_allclose(square(found.smoothed_chols), expected.covariances, atol=tolerance)


# --- linear functions -----------------------------------------------------------------------------


def linear_pair(holomorphic, jit=False, dtype="complex128", **options):
    """A linear model and the same by functions, with the working form of the latter."""
    given = problem(2, 3, dtype, **options)
    own = given.matrices
    F, H = tf.constant(own["F"]), tf.constant(own["H"])
    functions = [lambda x: tf.linalg.matvec(F, x), lambda x: tf.linalg.matvec(H, x)]
    size = 0
    if given.inputs is not None:
        B, size = tf.constant(own["B"]), own["B"].shape[-1]
        functions = [
            lambda x, u: tf.linalg.matvec(F, x) + tf.linalg.matvec(B, u),
            lambda x, u: tf.linalg.matvec(H, x),
        ]
    names = ("Q", "R", "initial_mean", "initial_covariance")
    model = NonlinearGaussian(
        *functions,
        **{name: own[name] for name in names},
        holomorphic=holomorphic,
        input_size=size,
        jit_compile=jit,
    )
    linear = given.model()
    if linear.dtype.is_complex and not holomorphic:
        linear = statespace.widely_linear(linear)
    return given, linear, model


LINEAR = {
    "complex": (False, {}),
    "holomorphic": (True, {}),
    "real": (False, {"dtype": "float64"}),
    "holes": (False, {"holes": "own", "batch": 2}),
    "inputs": (True, {"inputs": 2, "batch": 2}),
    "inputs, by XLA": (True, {"inputs": 2, "batch": 2, "jit": True}),
}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        *long_except(
            [
                *(
                    ("holomorphic", rule)
                    for rule in (*RULES.values(), Iterated(SigmaPoints(), 2, 0.2))
                ),
                *((kind, SigmaPoints()) for kind in LINEAR if kind != "holomorphic"),
            ],
            ("inputs", SigmaPoints()),
        )
    ],
    ids=str,
)
def test_is_every_rule_exact_for_linear_functions(kind, rule):
    holomorphic, options = LINEAR[kind]
    given, linear, model = linear_pair(holomorphic, **options)
    found = statespace.filter(model, given.z, inputs=given.inputs, rule=rule)
    expected = statespace.filter(linear, given.z, inputs=given.inputs)
    for name in ("predicted_means", "filtered_means", "innovations", "log_likelihoods"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-9)
    for name in ("predicted_chols", "filtered_chols", "innovation_covariances"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-9)
    found = statespace.smooth(model, given.z, inputs=given.inputs, rule=rule)
    expected = statespace.smooth(linear, given.z, inputs=given.inputs)
    for name in ("smoothed_means", "smoothed_chols", "lag_one_covariances"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-9)


@pytest.mark.long
def test_are_forecasts_and_samples_of_linear_functions_those_of_the_linear_model():
    holomorphic, options = LINEAR["complex"]
    given, linear, model = linear_pair(holomorphic, **options)
    rule = SigmaPoints()
    result = statespace.filter(linear, given.z)
    found = statespace.forecast(model, result, 4, rule=rule)
    for a, b in zip(found, statespace.forecast(linear, result, 4), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, atol=1e-9)
    for a, b in zip(*(statespace.sample(m, 5, (3,), seed=1) for m in (model, linear)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    # Taylor adds no noise, so that both draw the same.
    found, expected = (
        statespace.posterior_sample(m, given.z, (3,), seed=2) for m in (model, linear)
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.long
def test_are_steps_of_linear_functions_those_of_the_linear_model():
    holomorphic, options = LINEAR["complex"]
    given, linear, model = linear_pair(holomorphic, **options)
    rule = SigmaPoints()
    states = [None, None]
    for t in range(3):
        steps = []
        for i, m in enumerate((model, linear)):
            states[i], step = statespace.step(m, states[i], given.z[..., t, :], rule=rule)
            steps.append(step)
        for a, b in zip(tf.nest.flatten(steps[0]), tf.nest.flatten(steps[1]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
    for a, b in zip(*states, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("kind", long_except(["inputs", "inputs, by XLA"], "inputs"))
def test_inputs_lead_forecasts_and_samples_of_functions_too(kind):
    holomorphic, options = LINEAR[kind]
    given, linear, model = linear_pair(holomorphic, **options)
    result = statespace.filter(linear, given.z, inputs=given.inputs)
    ahead = given.inputs[:, :5]
    found = statespace.forecast(model, result, 4, inputs=ahead)
    expected = statespace.forecast(linear, result, 4, inputs=ahead[:, :4])
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, atol=1e-9)
    with pytest.raises(ValueError, match="the first is that of the last observation"):
        statespace.forecast(model, result, 4, inputs=ahead[:, :4])
    found, expected = (statespace.sample(m, 5, (3,), seed=1, inputs=ahead) for m in (model, linear))
    np.testing.assert_allclose(found.observations, expected.observations, atol=1e-9)


# --- steps, batches, precision --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rule", "jit"),
    [
        ("carrier", SigmaPoints(), False),
        pytest.param("carrier", SigmaPoints(), True, marks=pytest.mark.long),
        pytest.param("improper", Iterated(Taylor(), 2), False, marks=pytest.mark.long),
        pytest.param("power", Taylor(), False, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_are_steps_one_at_a_time_those_of_the_filter(kind, rule, jit):
    given = PROBLEMS[kind]()
    model = given.model(jit_compile=jit)
    found = statespace.filter(model, given.z, rule=rule)
    state = None
    for t, z in enumerate(given.z[:5]):
        state, step = statespace.step(model, state, z, rule=rule)
        np.testing.assert_allclose(step.filtered.mean, found.filtered_means[t], atol=1e-10)
        np.testing.assert_allclose(step.innovation, found.innovations[t], atol=1e-10)
        np.testing.assert_allclose(
            step.predicted.variance, np.diagonal(found.innovation_covariances[t]).real, atol=1e-10
        )
        np.testing.assert_allclose(state.chol, found.predicted_chols[t + 1], atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("rule", [Iterated(SigmaPoints(), 1)], ids=str)
def test_is_a_batch_a_loop_over_its_series(rule):
    given = PROBLEMS["improper"]()
    other = given.z + 0.3
    model = given.model(jit_compile=False)
    both = statespace.smooth(model, np.stack([given.z, other]), rule=rule)
    for i, z in enumerate((given.z, other)):
        alone = statespace.smooth(model, z, rule=rule)
        np.testing.assert_allclose(both.smoothed_means[i], alone.smoothed_means, atol=1e-9)
        np.testing.assert_allclose(both.smoothed_chols[i], alone.smoothed_chols, atol=1e-9)


@pytest.mark.long
def test_is_a_graph_the_same_as_eager():
    given = PROBLEMS["power"]()
    model, rule = given.model(jit_compile=False), Taylor()
    value = tf.function(lambda z: statespace.log_likelihood(model, z, rule=rule))(given.z)
    np.testing.assert_allclose(
        value, statespace.log_likelihood(model, given.z, rule=rule), rtol=1e-10
    )


@pytest.mark.long
def test_functions_that_xla_does_not_compile_give_the_same():
    given = PROBLEMS["carrier"]()

    def by_numpy(x):
        return tf.complex(*(tf.numpy_function(f, [x[..., :1]], x.dtype) for f in (np.cos, np.sin)))

    def observation(x):
        value = by_numpy(x)
        return tf.ensure_shape(value, [*x.shape[:-1], 1])

    slow = NonlinearGaussian(given.transition, observation, **given.noise, jit_compile=False)
    rule = SigmaPoints()
    np.testing.assert_allclose(
        statespace.log_likelihood(slow, given.z, rule=rule),
        statespace.log_likelihood(given.model(), given.z, rule=rule),
        rtol=1e-10,
    )


@pytest.mark.long
def test_is_single_precision_kept():
    given = PROBLEMS["improper"]()
    single = {k: np.asarray(v, "complex64") for k, v in given.noise.items()}
    model = NonlinearGaussian(given.transition, given.observation, **single, jit_compile=False)
    found = statespace.filter(model, given.z.astype("complex64"), rule=SigmaPoints())
    assert found.filtered_means.dtype == tf.complex64
    assert found.filtered_chols.dtype == tf.float32
    Q, R, m, P, z = given.composite()
    rule = reference.by_points(*reference.cubature(len(m)))
    expected = reference.filtered(*given.of_composite, Q, R, m, P, z, rule)
    np.testing.assert_allclose(as_composite(found.filtered_means), expected.means, atol=2e-4)


@pytest.mark.long
@pytest.mark.parametrize("rule", [SigmaPoints()], ids=str)
def test_a_series_of_several_chunks_is_one(rule):
    """A long series is filtered in chunks of 1024 steps."""
    given = PROBLEMS["carrier"](steps=1200)
    model = given.model(jit_compile=True)
    whole = statespace.filter(model, given.z, rule=rule)
    cut = 1020
    begin = statespace.filter(model, given.z[:cut], rule=rule)
    after = statespace.forecast(model, begin, 1, rule=rule)
    state = (after.state_means[0], after.state_chols[0])
    for t in range(cut, cut + 10):
        state, step = statespace.step(model, state, given.z[t], rule=rule)
        np.testing.assert_allclose(step.filtered.mean, whole.filtered_means[t], atol=1e-9)


@pytest.mark.long
def test_does_the_pseudo_covariance_of_noise_lower_the_error_of_a_demodulated_phase():
    """Noise along one axis: as in Dang & Scharf, arXiv 1105.5432, where it is used or left out."""
    improper = NonlinearGaussian(
        lambda x: x,
        lambda x: tf.exp(tf.complex(tf.zeros_like(x), x)),
        Q=[[0.01]],
        R=[[0.5]],
        pseudo_R=[[0.25]],
        initial_mean=[0.0],
        initial_covariance=[[0.1]],
        jit_compile=False,
    )
    states, z = statespace.sample(improper, 150, (300,), seed=1)

    def error(model):
        found = statespace.filter(model, z, rule=SigmaPoints("unscented")).filtered_means
        deviation = np.angle(np.exp(1j * (found.numpy() - states.numpy())))[:, 50:]
        return 10 * np.log10(np.mean(deviation**2))

    gain = error(improper.replace(pseudo_R=None)) - error(improper)
    # Of a phase that is uniform the information of a sample rises by 1 / (1 − ρ²), and the error
    # falls by its root, 0.6 dB, if the filter were linear.
    assert 0.3 < gain < 0.62


# --- holomorphic functions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "size", "inputs"),
    [
        (lambda x: tf.concat([1e6 * x[..., :1], tf.math.conj(x[..., 1:])], axis=-1), 2, 0),
        (lambda x: x[..., :1] * tf.math.conj(x[..., 1:]) + 1e4 * x, 2, 0),
        (lambda x, u: x + u * tf.math.conj(x), 1, 1),
        (lambda x: x / tf.cast(1.0 + tf.abs(x) ** 2, x.dtype), 1, 0),
        (lambda x: tf.cast(tf.math.real(x), x.dtype), 1, 0),
    ],
)
def test_are_functions_that_are_not_holomorphic_found(function, size, inputs):
    own = (np.diag([1.0, 1e-4][:size]), np.eye(size), np.full(size, 0.3 + 0.1j))
    with pytest.raises(TypeError, match="transition is not holomorphic"):
        NonlinearGaussian(
            function, lambda x, *_: x, *own, np.diag([1e4, 0.1][:size]),
            holomorphic=True, input_size=inputs,
        )  # fmt: skip


@pytest.mark.parametrize(("mean", "variance"), [(10.0, 0.01), (1e3, 1.0), (1.0, 1e-4), (0.0, 1e6)])
def test_are_holomorphic_functions_of_single_precision_found_to_be_so(mean, variance):
    values = (np.array([[v]], "complex64") for v in (1.0, 1.0, variance))
    Q, R, covariance = values
    start = np.array([mean], "complex64")
    given = (lambda x: 0.9 * x, lambda x: x**2 + tf.exp(0.1 * x))
    NonlinearGaussian(*given, Q, R, start, covariance, holomorphic=True)


# --- what is refused ------------------------------------------------------------------------------

IDENTITY = lambda x: x  # noqa: E731
ONE = {"Q": [[1.0]], "R": [[1.0]], "initial_mean": [0j], "initial_covariance": [[1.0]]}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"transition": 3}, TypeError, "transition must be a function, got int"),
        ({"transition": tf.math.real}, TypeError, "must return the dtype of the states, complex"),
        ({"transition": lambda x: x[0]}, ValueError, r"transition must return \[..., 1\]"),
        ({"transition": lambda x, u: x + u}, TypeError, "transition must be .* raises TypeError"),
        ({"input_size": 1.5}, ValueError, "input_size must be a whole number"),
        ({"initial_mean": None}, TypeError, "initial_mean must be an array, got None"),
        ({"initial_covariance": "diffuse"}, TypeError, "initial_covariance must be an array"),
        ({"input_size": 2}, TypeError, "inputs .* raises TypeError: .*2 were given"),
        ({"observation": lambda x: np.tanh(x)}, TypeError, "observation must be a function of Ten"),
        ({"observation": lambda x: x[..., 0]}, ValueError, r"observation must return \[..., m\]"),
        ({"observation": lambda x: tf.cast(x, "complex64")}, TypeError, "the precision of"),
        ({"R": np.eye(2)}, ValueError, r"R must be \[..., 1, 1\], got shape \(2, 2\)"),
        ({"Q": [[np.nan]]}, ValueError, "Q .*NaN|Q must be finite"),
        ({"Q": [[-1.0]]}, NotPositiveDefiniteError, "Q.*indefinite"),
        ({"pseudo_Q": [[2.0]]}, NotPositiveDefiniteError, "pseudo_Q is impossible"),
        ({"initial_mean": [0.0], "pseudo_Q": [[0.5]]}, ValueError, "complex initial_mean"),
        ({"observation": tf.abs, "pseudo_R": [[0.5]]}, ValueError, "observations are real"),
        ({"initial_mean": 0j}, ValueError, r"initial_mean must be \[..., n\]"),
        (
            {"holomorphic": True, "observation": lambda x: x * tf.math.conj(x)},
            TypeError,
            "observation is not holomorphic",
        ),
        (
            {"holomorphic": True, "initial_mean": [0.0]},
            ValueError,
            "holomorphic=True is for functions of complex states",
        ),
        ({"holomorphic": True, "pseudo_Q": [[0.1]]}, ValueError, "there are no pseudo-cov"),
    ],
)
def test_an_impossible_model_is_refused(changes, error, message):
    given = {"transition": IDENTITY, "observation": IDENTITY, **ONE, **changes}
    with pytest.raises(error, match=message):
        NonlinearGaussian(**given)


def test_has_a_replaced_model_what_was_given_and_all_else_as_before():
    given = PROBLEMS["carrier"](steps=4)
    model, Q = given.model(jit_compile=False), [[0.5, 0.0], [0.0, 0.1]]
    found, expected = model.replace(Q=Q), given.model(Q=Q, jit_compile=False)
    assert found.transition is model.transition
    assert found.observation is model.observation
    assert not found.jit_compile
    for name in ("Q", "R", "initial_mean", "initial_covariance"):
        a, b = (getattr(replaced.noise, name) for replaced in (found, expected))
        np.testing.assert_array_equal(a, b, err_msg=name)
    assert np.abs(found.noise.Q - model.noise.Q).max() > 0.1
    assert model.replace(transition=tf.sin).transition is tf.sin
    with pytest.raises(TypeError, match=r"replace knows transition, .* but was given F"):
        model.replace(F=1.0)


@pytest.mark.long
def test_a_replaced_model_is_as_a_new_one():
    given = PROBLEMS["carrier"]()
    model, Q = given.model(), [[0.5, 0.0], [0.0, 0.1]]
    statespace.filter(model, given.z)
    value = statespace.log_likelihood(model.replace(Q=Q), given.z)
    expected = statespace.log_likelihood(given.model(Q=Q), given.z)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert abs(value - statespace.log_likelihood(model, given.z)) > 1.0
    shifted = model.replace(transition=lambda x: given.transition(x) + 1.0)
    assert statespace.log_likelihood(shifted, given.z) < value
    with pytest.raises(TypeError, match=r"replace knows transition, .* but was given F"):
        model.replace(F=1.0)


def test_a_model_does_not_change():
    model = NonlinearGaussian(IDENTITY, IDENTITY, **ONE)
    with pytest.raises(AttributeError, match="cannot be changed"):
        model.transition = tf.sin
    assert model.transition is IDENTITY


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SigmaPoints("spread"), "kind must be one of unscented, cubature, gauss-hermite"),
        (lambda: SigmaPoints("unscented", kappa=-1.0), "kappa must be finite and not negative"),
        (lambda: SigmaPoints("gauss-hermite", order=1), "order must be a whole number, at least 2"),
        (lambda: SigmaPoints("unscented", kappa="1"), "kappa must be finite"),
        (lambda: SigmaPoints("gauss-hermite", order=3.0), "order must be a whole number"),
        (lambda: Iterated(Taylor(), 2.0), "iterations must be a whole number"),
        (lambda: Iterated(Taylor(), 0), "iterations must be a whole number, at least 1"),
        (lambda: Iterated(Taylor(), damping=1.0), "damping must be at least 0 and below 1"),
        (lambda: Iterated(Taylor(), damping="a"), "damping must be at least 0 and below 1"),
        (lambda: SigmaPoints("unscented", kappa=True), "kappa must be finite"),
        (lambda: SigmaPoints("cubature", kappa=1.0), 'kappa is of "unscented" points'),
        (lambda: SigmaPoints("unscented", order=5), 'order is of "gauss-hermite" points'),
    ],
)
def test_an_impossible_rule_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_numbers_of_numpy_are_numbers_of_a_rule():
    assert SigmaPoints("gauss-hermite", order=np.int64(3)) == SigmaPoints("gauss-hermite")
    assert SigmaPoints("unscented", kappa=np.float32(0.5)).kappa == 0.5
    assert Iterated(Taylor(), np.int64(3)) == Iterated(Taylor(), 3)


def test_rules_are_objects():
    model = NonlinearGaussian(IDENTITY, IDENTITY, **ONE)
    for rule in ("unscented", Taylor):
        with pytest.raises(TypeError, match=r"rule must be a Taylor\(\), SigmaPoints\(\)"):
            statespace.filter(model, [1j], rule=rule)
    with pytest.raises(TypeError, match=r"rule must be a Taylor\(\) or SigmaPoints\(\)"):
        Iterated(Iterated(Taylor()))
    with pytest.raises(TypeError, match="rule must be a Taylor"):
        statespace.filter(problem(1, 1).model(), problem(1, 1).z, rule="nonsense")
    wide = NonlinearGaussian(IDENTITY, IDENTITY, np.eye(6), np.eye(6), np.zeros(6), np.eye(6))
    with pytest.raises(ValueError, match="has 117649 points, more than 20000"):
        statespace.filter(wide, np.zeros([3, 6]), rule=SigmaPoints("gauss-hermite", order=7))


@pytest.mark.parametrize("rule", long_except([Taylor(), SigmaPoints()], Taylor()), ids=str)
def test_a_function_that_leaves_its_domain_is_named_with_the_step(rule):
    """The logarithm of a state that observations draw below zero."""
    model = NonlinearGaussian(IDENTITY, tf.math.log, [[1e-3]], [[1e-2]], [1.0], [[1e-2]])
    with pytest.raises(ValueError, match="the observation is not finite at step 2: its"):
        statespace.filter(model, [0.0, -40.0, 0.0], rule=rule)
    state, _ = statespace.step(model, None, 0.0, rule=rule)
    before = [a.copy() for a in state]
    bad = (np.array([-1.0]), state.chol)
    with pytest.raises(ValueError, match="the observation is not finite at step 0"):
        statespace.step(model, bad, 0.0, rule=rule)
    for a, b in zip(state, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_derivative_that_is_not_finite_is_named():
    model = NonlinearGaussian(IDENTITY, tf.sqrt, [[1.0]], [[1.0]], [0.0], [[1.0]])
    with pytest.raises(ValueError, match="the observation is not finite at step 0: its deriv"):
        statespace.filter(model, [0.0])


def test_a_series_of_another_dtype_is_refused():
    model = NonlinearGaussian(IDENTITY, lambda x: tf.abs(x) ** 2, **ONE)
    with pytest.raises(TypeError, match="complex"):
        statespace.filter(model, [1.0 + 1j])
    with pytest.raises(ValueError, match="inputs were given, but the model has none"):
        statespace.filter(model, [1.0], inputs=[1.0])


def test_what_a_complex_model_shows_is_complex():
    given = PROBLEMS["power"]()
    found = statespace.filter(given.model(jit_compile=False), given.z)
    assert found.filtered_means.dtype == tf.complex128
    assert found.filtered_chols.shape == (len(given.z), 2, 2)
    assert found.innovations.dtype == tf.float64
    assert found.innovation_pseudo_covariances is None
    sampled = statespace.sample(given.model(), 3, seed=0)
    assert sampled.states.dtype == tf.complex128
    assert sampled.observations.dtype == tf.float64
    assert joined(real_composite(np.array([1 + 2j])))[0] == 1 + 2j


def test_many_models_bring_no_warning_of_retracing(caplog):
    for n in range(1, 9):
        NonlinearGaussian(
            lambda x: 0.5 * x,
            lambda x: x[..., :1],
            Q=np.eye(n),
            R=[[1.0]],
            initial_mean=np.zeros(n),
            initial_covariance=np.eye(n),
        )
    assert "retracing" not in caplog.text
