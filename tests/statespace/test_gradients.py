"""Gradients against central differences of the reference, in random complex directions."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from tests.linalg.problems import random
from tests.long_cases import long_except
from tests.reference import kalman
from tests.statespace.problems import (
    Problem,
    improper_parts,
    problem,
    random_covariance,
    reference_augmented,
)

HERMITIAN = ("Q", "R", "initial_covariance")
SYMMETRIC = ("pseudo_Q", "pseudo_R", "initial_pseudo_covariance")


def direction(rng, name, value):
    """Of the size of one in each element, such that `name` stays what it is."""
    d = random(rng, value.shape, value.dtype)
    if name in HERMITIAN:
        d = (d + kalman.adjoint(d)) / 2
    if name in SYMMETRIC:
        d = (d + np.swapaxes(d, -1, -2)) / 2
    d[np.isnan(value)] = 0.0
    return d


def slopes(f, arguments, h=3e-5):
    """Of `f(arguments)`, a dict of arrays, for each name a `(name, d, slope)`, to fourth order."""
    rng = np.random.default_rng(17)
    for name, value in arguments.items():
        d = direction(rng, name, value)
        near, far = (
            f(arguments | {name: value + s * h * d}) - f(arguments | {name: value - s * h * d})
            for s in (1, 2)
        )
        yield name, d, (8 * near - far) / (12 * h)


def assert_gradients(f, expected, arguments, rtol=1e-6, atol=1e-6):
    """`f` of a dict of tensors, TensorFlow's; `expected` of one of arrays, the reference's."""
    tensors = {name: tf.constant(value) for name, value in arguments.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = f(tensors)
    np.testing.assert_allclose(y, expected(arguments), rtol=1e-9)
    gradients = tape.gradient(y, tensors)
    for name, gradient in gradients.items():
        assert gradient is not None, f"no gradient by {name}"
        assert gradient.dtype == tensors[name].dtype
        assert np.isfinite(gradient).all(), name
        assert np.any(gradient), name
    for name, d, slope in slopes(expected, arguments):
        found = np.sum(np.conj(gradients[name]) * d).real
        np.testing.assert_allclose(found, slope, rtol=rtol, atol=atol, err_msg=name)


def arguments_of(p, leave=()):
    arguments = p.matrices | {"z": p.z}
    if p.inputs is not None:
        arguments["inputs"] = p.inputs
    return {name: a for name, a in arguments.items() if name not in leave}


def split(arguments):
    matrices = dict(arguments)
    return matrices, matrices.pop("z"), matrices.pop("inputs", None)


def weights(batch):
    """One for each series, so that a gradient that mixes them is seen."""
    return np.linspace(0.5, -1.5, batch) if batch else np.float64(1.0)


def weighted_likelihood(arguments):
    matrices, z, inputs = split(arguments)
    value = statespace.log_likelihood(statespace.LinearGaussian(**matrices), z, inputs=inputs)
    return tf.reduce_sum(value * tf.constant(weights(len(value) if value.shape.rank else 0)))


def reference_likelihood(arguments):
    matrices, z, inputs = split(arguments)
    parts = Problem(matrices, z, inputs).expected(kalman.filter).log_likelihoods
    values = parts.sum(axis=-1)
    return np.sum(values * weights(len(values) if values.ndim else 0))


def singular(p, **ranks):
    rng = np.random.default_rng(5)
    dtype = p.z.dtype
    return p.changed(
        **{
            name: random_covariance(rng, (), len(p.matrices[name]), dtype, rank=rank)
            if rank
            else np.zeros_like(p.matrices[name])
            for name, rank in ranks.items()
        }
    )


def all_varying(p):
    steps = len(p.z)
    return p.changed(**{name: np.repeat(p.matrices[name][None], steps, axis=0) for name in "FQHRB"})


CASES = {
    "holes": lambda: problem(2, 2, holes="own"),
    "real": lambda: problem(2, 2, holes="own", dtype="float64"),
    "varying": lambda: problem(2, 3, holes="own", inputs=2, varying="FQHRB"),
    "singular Q": lambda: singular(problem(2, 2, holes="own"), Q=1),
    "no Q": lambda: singular(problem(2, 2, holes="own"), Q=0),
    "singular start": lambda: singular(problem(2, 2, holes="own"), initial_covariance=1),
    "known start and singular Q": lambda: singular(
        problem(2, 2, holes="own"), initial_covariance=0, Q=1
    ),
    "nothing random but the noise": lambda: singular(
        problem(2, 2, holes="own"), initial_covariance=0, Q=0
    ),
    "diagonal R": lambda: problem(2, 2, holes="own").changed(R=np.diag([0.3, 0.7]) + 0j),
    "singular R": lambda: singular(problem(2, 2, holes="own"), R=1),
    "singular and varying": lambda: all_varying(
        singular(problem(2, 3, holes="own", inputs=2), Q=1, initial_covariance=0)
    ),
    "a batch with holes": lambda: problem(2, 2, batch=4, holes="own", inputs=2),
    "a batch of varying models": lambda: problem(
        3, 2, batch=4, models=True, holes="own", varying="FQHR"
    ),
    "two steps": lambda: problem(2, 2, steps=2),
}


@pytest.mark.parametrize("name", CASES)
def test_is_the_gradient_of_the_likelihood_that_of_the_reference(name):
    p = CASES[name]()
    assert_gradients(weighted_likelihood, reference_likelihood, arguments_of(p))


def test_has_a_series_of_one_step_a_gradient():
    """By all but what leads on from it."""
    p = problem(2, 2, steps=1)
    arguments = arguments_of(p)
    onward = {name: arguments.pop(name) for name in "FQ"}
    assert_gradients(
        lambda a: weighted_likelihood(a | onward),
        lambda a: reference_likelihood(a | onward),
        arguments,
    )


def test_are_there_gradients_by_all_else_where_nothing_is_noisy():
    """Those by the covariances of noise that is not there have no meaning one by one."""
    p = singular(problem(2, 2, holes="own"), R=0)
    arguments = arguments_of(p)
    R = {"R": arguments.pop("R")}
    assert_gradients(
        lambda a: weighted_likelihood(a | R), lambda a: reference_likelihood(a | R), arguments
    )


def test_are_gradients_at_what_is_missing_zero():
    p = problem(2, 2, holes="own")
    z = tf.constant(p.z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        y = statespace.log_likelihood(p.model(), z)
    gradient = tape.gradient(y, z).numpy()
    np.testing.assert_array_equal(gradient[np.isnan(p.z)], 0.0)
    assert (gradient[~np.isnan(p.z)] != 0.0).all()


def test_is_the_gradient_by_the_data_the_score_of_the_dense_normal():
    """−2 K⁻¹ (z − m), in the sense dL = Re⟨gradient, dz⟩."""
    p = problem(2, 2, holes="own")
    z = tf.constant(p.z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        y = statespace.log_likelihood(p.model(), z)
    joint, seen = kalman.joint(p.reference()), ~np.isnan(p.z.ravel())
    covariance = joint.observation_covariance[np.ix_(seen, seen)]
    score = np.linalg.solve(covariance, (p.z.ravel() - joint.observation_mean)[seen])
    np.testing.assert_allclose(
        tape.gradient(y, z).numpy().ravel()[seen], -2 * score, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
@pytest.mark.parametrize("rank", [2, 1])
def test_is_there_a_gradient_through_a_stationary_start(rank, dtype):
    p = problem(2, 2, holes="own", dtype=dtype)
    p = singular(p, Q=rank)

    def f(arguments):
        return weighted_likelihood(arguments | {"initial_covariance": "stationary"})

    def expected(arguments):
        covariance = kalman.stationary_covariance(arguments["F"], arguments["Q"])
        return reference_likelihood(arguments | {"initial_covariance": covariance})

    assert_gradients(f, expected, arguments_of(p, leave=["initial_covariance"]))


def test_is_there_a_gradient_through_the_stationary_starts_of_a_batch():
    p = problem(2, 2, batch=4, models=True, holes="own")

    def f(arguments):
        return weighted_likelihood(arguments | {"initial_covariance": "stationary"})

    def expected(arguments):
        covariances = [
            kalman.stationary_covariance(F[0], Q[0])
            for F, Q in zip(arguments["F"], arguments["Q"], strict=True)
        ]
        return reference_likelihood(arguments | {"initial_covariance": np.array(covariances)})

    assert_gradients(f, expected, arguments_of(p, leave=["initial_covariance"]))


def test_is_there_a_gradient_through_a_diffuse_start():
    p = problem(2, 2, holes="own")

    def f(arguments):
        return weighted_likelihood(arguments | {"initial_covariance": "diffuse"})

    arguments = arguments_of(p, leave=["initial_covariance", "initial_mean"])

    def with_matrices(arguments):
        matrices, z, _ = split(arguments)
        matrices["initial_mean"] = p.matrices["initial_mean"]
        matrices["initial_covariance"] = p.matrices["initial_covariance"]
        model = Problem(matrices, z).reference()
        return kalman.diffuse_log_likelihood(model, z, 1e10)[0]

    assert_gradients(
        lambda a: f(a | {"initial_mean": tf.constant(p.matrices["initial_mean"])}),
        with_matrices,
        arguments,
        rtol=2e-6,
    )


def wide_arguments(m=2, **setting):
    p = problem(2, m, holes="own", inputs=1, **setting)
    matrices, parts = improper_parts(2, m, k=1)
    own = {name: a for name, a in matrices.items() if p.matrices[name].ndim == 2}
    p = p.changed(**own)
    if set(own) != set(matrices):
        parts = {name: parts[name] for name in ("F_conj", "H_conj", "B_conj")}
    return p, parts


@pytest.mark.parametrize("setting", [{}, {"m": 1, "varying": "FQHR"}], ids=str)
def test_is_the_gradient_of_an_improper_likelihood_that_of_the_parts(setting):
    p, parts = wide_arguments(**setting)

    def f(arguments):
        matrices, z, inputs = split(arguments)
        wide = {name: matrices.pop(name) for name in parts}
        model = statespace.widely_linear(statespace.LinearGaussian(**matrices), **wide)
        return statespace.log_likelihood(model, z, inputs=inputs)

    def expected(arguments):
        matrices, z, inputs = split(arguments)
        wide = {name: matrices.pop(name) for name in parts}
        reference = kalman.bivariate(reference_augmented(Problem(matrices, z, inputs), wide))
        return kalman.filter(reference, kalman.composite(z)).log_likelihoods.sum()

    assert_gradients(f, expected, arguments_of(p) | parts)


def test_is_there_a_gradient_through_an_improper_stationary_start():
    p, parts = wide_arguments()
    del parts["initial_pseudo_covariance"]

    def f(arguments):
        matrices, z, inputs = split(arguments)
        wide = {name: matrices.pop(name) for name in parts}
        model = statespace.LinearGaussian(**matrices, initial_covariance="stationary")
        model = statespace.widely_linear(model, **wide)
        return statespace.log_likelihood(model, z, inputs=inputs)

    def expected(arguments):
        matrices, z, inputs = split(arguments)
        wide = {name: matrices.pop(name) for name in parts}
        matrices["initial_covariance"] = p.matrices["initial_covariance"]
        reference = kalman.bivariate(reference_augmented(Problem(matrices, z, inputs), wide))
        covariance = kalman.stationary_covariance(reference.F[0], reference.Q[0])
        reference = reference._replace(covariance=covariance)
        return kalman.filter(reference, kalman.composite(z)).log_likelihoods.sum()

    assert_gradients(f, expected, arguments_of(p, leave=["initial_covariance"]) | parts)


def random_weights(shape, dtype, seed):
    return random(np.random.default_rng(seed), shape, dtype)


OUTPUTS = (
    "predicted_means",
    "predicted_covariances",
    "filtered_means",
    "filtered_covariances",
    "innovations",
    "innovation_covariances",
    "log_likelihoods",
)


def tensor_score(found, z, names):
    """A number that depends on all elements of the named outputs."""
    total = 0.0
    for seed, name in enumerate(OUTPUTS):
        if name not in names:
            continue
        if name in ("predicted_covariances", "filtered_covariances"):
            chol = getattr(found, name.replace("covariances", "chols"))
            value = chol @ tf.linalg.adjoint(chol)
        else:
            value = getattr(found, name)
        if name == "innovations":
            value = tf.where(np.isnan(z), tf.zeros_like(value), value)
        weight = random_weights(value.shape, value.dtype.as_numpy_dtype, seed)
        total += tf.math.real(tf.reduce_sum(np.conj(weight) * value))
    return total


def array_score(found, z, names):
    total = 0.0
    for seed, name in enumerate(OUTPUTS):
        if name not in names:
            continue
        value = getattr(found, name)
        if name == "innovations":
            value = np.where(np.isnan(z), 0.0, value)
        weight = random_weights(value.shape, value.dtype, seed)
        total += np.sum(np.conj(weight) * value).real
    return total


MOMENTS = {
    "holes": lambda: problem(2, 2, holes="own"),
    "varying": lambda: problem(2, 2, holes="own", inputs=2, varying="FQHRB"),
    "a batch with one pattern": lambda: problem(2, 2, batch=4, holes="shared"),
}


def assert_gradients_of_moments(p, names):
    missing = p.z

    def f(arguments):
        matrices, z, inputs = split(arguments)
        found = statespace.filter(statespace.LinearGaussian(**matrices), z, inputs=inputs)
        return tensor_score(found, missing, names)

    def expected(arguments):
        found = Problem(*split(arguments)).expected(kalman.filter)
        return array_score(found, missing, names)

    assert_gradients(f, expected, arguments_of(p))


@pytest.mark.parametrize("name", MOMENTS)
def test_are_the_gradients_of_all_moments_those_of_the_reference(name):
    assert_gradients_of_moments(MOMENTS[name](), OUTPUTS)


@pytest.mark.parametrize("output", OUTPUTS)
def test_is_the_gradient_of_one_moment_that_of_the_reference(output):
    p = problem(2, 2, holes="own")

    def f(arguments):
        matrices, z, inputs = split(arguments)
        found = statespace.filter(statespace.LinearGaussian(**matrices), z, inputs=inputs)
        return tensor_score(found, p.z, [output])

    def expected(arguments):
        found = Problem(*split(arguments)).expected(kalman.filter)
        return array_score(found, p.z, [output])

    arguments = arguments_of(p)
    own = dict(arguments)
    if output.endswith("covariances"):  # which no mean enters
        for name in ("z", "initial_mean"):
            del own[name]
    assert_gradients(lambda a: f(arguments | a), lambda a: expected(arguments | a), own)


@pytest.mark.parametrize("steps", long_except([1100, 2500], 1100))
def test_is_the_gradient_of_a_long_series_that_of_the_reference(steps):
    """Through several blocks of whatever length."""
    p = problem(2, 2, steps=steps, holes="own")
    assert_gradients(weighted_likelihood, reference_likelihood, arguments_of(p), atol=1e-5)


@pytest.mark.long
def test_are_the_gradients_of_the_moments_of_a_long_series_those_of_the_reference():
    assert_gradients_of_moments(problem(2, 2, steps=1500, holes="own"), OUTPUTS)


def test_does_a_variable_learn():
    """A step along the gradient of a factor of Q finds a greater likelihood."""
    p = problem(2, 2, holes="own")
    factor = tf.Variable(np.linalg.cholesky(p.matrices["Q"]))

    def value():
        Q = tf.linalg.matmul(factor, factor, adjoint_b=True)
        return statespace.log_likelihood(p.changed(Q=Q).model(), p.z)

    with tf.GradientTape() as tape:
        before = value()
    gradient = tape.gradient(before, factor)
    size = tf.reduce_sum(tf.abs(gradient) ** 2)
    factor.assign_add(1e-6 * gradient)
    np.testing.assert_allclose(value() - before, 1e-6 * size, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("by_core", [True, False])
def test_rounding_does_not_grow_in_gradients_of_unstable_transitions(dtype, by_core, request):
    """Observations keep the filter in bounds, and its gradient through a hundred steps."""
    if not by_core:
        request.getfixturevalue("without_core")
    rng = np.random.default_rng(5)
    F = np.array([[1.8, 0.3], [0.2, 1.1]]) * (np.exp(0.2j) if dtype == "complex128" else 1.0)
    z = random(rng, (100, 2), dtype)
    model = statespace.LinearGaussian(
        F, 0.3 * np.eye(2), [[1.0, 0.5], [0.3, 1.0]], 0.4 * np.eye(2), [0.0, 0.0], np.eye(2)
    )
    variable = tf.Variable(model.F)

    def likelihood(F):
        return statespace.log_likelihood(model.replace(F=F), z)

    with tf.GradientTape() as tape:
        total = likelihood(variable)
    gradient = tape.gradient(total, variable).numpy()
    d, h = random(rng, (2, 2), dtype), 1e-5
    slope = (likelihood(F + h * d) - likelihood(F - h * d)).numpy() / (2 * h)
    np.testing.assert_allclose(np.sum(np.conj(gradient) * d).real, slope, rtol=1e-6)
