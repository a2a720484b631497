"""One gradient and one refusal of every public name; its value is the example of its docstring.

With the doctests this is the quick part of the tests, `python -m tests --quick`. A name that
becomes public needs an entry in a table of gradients here, and one in tests/refusals.py.
"""

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import (
    distributions,
    kernels,
    layers,
    likelihoods,
    linalg,
    means,
    metrics,
    online,
    plotting,
    statespace,
    training,
)
from cgp.training import optimizers
from tests.long_cases import eagerly_or_in_a_graph
from tests.refusals import REFUSALS, X, Z, assert_refused

SPACES = {
    "": cgp,
    "linalg.": linalg,
    "distributions.": distributions,
    "statespace.": statespace,
    "likelihoods.": likelihoods,
    "training.": training,
    "optimizers.": optimizers,
    "kernels.": kernels,
    "means.": means,
    "layers.": layers,
    "online.": online,
    "metrics.": metrics,
    "plotting.": plotting,
    "datasets.": cgp.datasets,
    "callbacks.": cgp.callbacks,
}


def public():
    """Functions and classes by name, each once, but for results and errors."""
    found = {}
    for prefix, space in SPACES.items():
        for name in getattr(space, "__all__", dir(space)):
            thing = getattr(space, name)
            is_class = inspect.isclass(thing)
            if not is_class and not inspect.isfunction(thing):
                continue
            is_result = hasattr(thing, "_fields") or dataclasses.is_dataclass(thing)
            if is_class and issubclass(thing, (likelihoods.Likelihood, cgp.Clock)):
                is_result = False
            if is_class and (is_result or issubclass(thing, Exception)):
                continue
            imported = not hasattr(space, "__all__") and thing.__module__ != space.__name__
            if not (imported or name.startswith("_") or thing in found.values()):
                found[prefix + name] = thing
    return found


PUBLIC = public()


# --- gradients ------------------------------------------------------------------------------------


def positive(root):
    return tf.linalg.matmul(root, root, adjoint_b=True)


def factor(root):
    return linalg.cholesky(positive(root))


def real(a):
    return tf.math.real(a)


def model(f, q):
    """One state and one observation, whatever the function."""
    return statespace.LinearGaussian(f, positive(q), [[1.0 + 0j]], [[0.5 + 0j]])


def expected(likelihood, mean, variance):
    """Of one observation, by the moments of the signal."""
    z, mean = (tf.stack([tf.math.real(a), tf.math.imag(a)]) for a in (tf.constant(ROOT), mean))
    covariance = tf.eye(2, dtype=z.dtype)[..., None, None] * (1.0 + tf.square(mean[0]))
    variance = tf.constant(variance, z.dtype)
    return likelihood.expected_log_density(z + tf.zeros_like(mean), mean, covariance, variance)


def evidence(likelihood, mean):
    """Of one sign, by the mean of the signal."""
    return likelihood.log_evidence(tf.ones_like(mean), mean, 1.0 + tf.square(mean), 0.3 + 0 * mean)


def saturating(f, q):
    """One state of which a part is seen."""
    gain = tf.convert_to_tensor(f)
    return statespace.NonlinearGaussian(
        lambda x: gain * tf.sin(x),
        lambda x: x + 0.1 * tf.math.conj(x) ** 2,
        Q=positive(q),
        R=[[0.5]],
        initial_mean=[0.3 + 0.1j],
        initial_covariance=[[1.0]],
        jit_compile=False,
    )


def switching(f, q):
    models = [model(f, q), model(0.5 * f, q)]
    return statespace.InteractingModels(models, [[0.9, 0.1], [0.3, 0.7]])


def normal(loc, root):
    return distributions.ComplexNormal(loc, factor(root))


A, B, V, W = (
    np.array([[1.0, 0.3j], [0.2 - 0.5j, 0.8]]),
    np.array([[0.4j, 1.0], [-0.7, 0.1 + 0.2j]]),
    np.array([0.3 + 0.2j, -0.6j]),
    np.array([0.5, 1.0 - 0.3j]),
)
F, ROOT = np.array([[0.8 * np.exp(0.4j)]]), np.array([[0.6 + 0.2j]])
Y = np.array([0.3 + 1j, -0.2, np.nan, 1j])

# A function of complex arrays, and the arrays.
FUNCTIONS = {
    "linalg.cholesky": (factor, A),
    "linalg.cholesky_append": (
        lambda a, v: linalg.cholesky_append(factor(a), v, 9.0 + real(v[0])),
        A,
        V,
    ),
    "linalg.cholesky_condition": (lambda a, v: linalg.cholesky_condition(factor(a), v, 0.3), A, V),
    "linalg.cholesky_remove": (lambda a: linalg.cholesky_remove(factor(a), 0), A),
    "linalg.cholesky_update": (lambda a, v: linalg.cholesky_update(factor(a), v, 0.7), A, V),
    "linalg.from_composite": (lambda a: linalg.from_composite(real(positive(a))), A),
    "linalg.inverse": (lambda a: linalg.inverse(factor(a)), A),
    "linalg.join_parts": (lambda v: linalg.join_parts(real(v)), V),
    "linalg.log_det": (lambda a: linalg.log_det(factor(a)), A),
    "linalg.semidefinite_factor": (lambda a: linalg.semidefinite_factor(positive(a)), A),
    "linalg.solve": (lambda a, b: linalg.solve(factor(a), b), A, B),
    "linalg.stack_parts": (linalg.stack_parts, V),
    "linalg.stored_cholesky": (lambda a: linalg.stored_cholesky(factor(a), positive(a)), A),
    "linalg.to_composite": (
        lambda a, b: linalg.to_composite(positive(a), b + tf.linalg.matrix_transpose(b)), A, B
    ),
    "linalg.triangularize": (linalg.triangularize, A),
    "linalg.with_gradient": (
        lambda a: linalg.with_gradient(
            lambda b, c: b * c, a, 2.0 * a, grad=lambda b, c, dy: dy * tf.math.conj(c)
        ),
        A,
    ),
    "ComplexNormal": (lambda v, a, w: normal(v, a).log_prob(w), V, A, W),
    "distributions.principal_axes": (
        lambda v, w: distributions.principal_axes(4.0 + tf.abs(v), w), V, W
    ),
    "distributions.ellipses": (
        lambda v, w: distributions.ellipses(v, 4.0 + tf.abs(v), w, 0.9), V, W
    ),
    "layers.RealImag": (lambda v: layers.RealImag(dtype="float64")(v), V),
    "layers.ToComplex": (lambda v: layers.ToComplex()(tf.abs(v)), V),
    "statespace.LinearGaussian": (lambda f, q: model(f, q).initial_covariance, F, ROOT),
    "kernels.linear_sde": (
        lambda f, q: kernels.linear_sde(
            kernels.Generator(f - 2.0, positive(q)), np.ones(1)
        ).covariance(tf.constant(0.0, tf.float64)), F, ROOT
    ),
    "statespace.filter": (
        lambda f, q: statespace.filter(model(f, q), Y).filtered_means, F, ROOT
    ),
    "statespace.log_likelihood": (
        lambda f, q: statespace.log_likelihood(model(f, q), Y), F, ROOT
    ),
    "statespace.NonlinearGaussian": (
        lambda f, q: statespace.log_likelihood(saturating(f, q), Y), F, ROOT
    ),
    "statespace.InteractingModels": (
        lambda f, q: statespace.log_likelihood(switching(f, q), Y), F, ROOT
    ),
    "likelihoods.Magnitude": (lambda f: expected(likelihoods.Magnitude(), f, 0.3), F),
    "likelihoods.OneBit": (lambda f: evidence(likelihoods.OneBit(), real(f)), F),
    "likelihoods.StudentT": (lambda f: expected(likelihoods.StudentT(), f, 0.3), F),
    "likelihoods.VonMises": (lambda f: expected(likelihoods.VonMises(), f, 0.3), F),
    "statespace.widely_linear": (
        lambda f, q: statespace.log_likelihood(
            statespace.widely_linear(model(f, q), F_conj=0.1 * f), Y
        ), F, ROOT,
    ),
}  # fmt: skip

# A layer, and a function of it.
TIMES = tf.constant(X[:, None])
KERNELS = {
    "ARMA": lambda: kernels.ARMA(1, 2, 1.5, [0.3j], [0.2, -0.1j], step=0.1),
    "Along": lambda: kernels.Along(rotating(), 0),
    "Autoregressive": lambda: kernels.Autoregressive(2, 1.5, [0.3j, -0.4], step=0.1),
    "Levels": lambda: kernels.Levels(
        len(X),
        np.tri(len(X)) * (0.5 + 0.2j) + np.diag([0.5 - 0.2j, *np.full(len(X) - 1, 0.3 - 0.2j)]),
    ),
    "RBF": lambda: kernels.RBF(1.5, 0.7),
    "Conjugate": lambda: kernels.Conjugate(rotating()),
    "Constant": lambda: kernels.Constant(1.5),
    "Coregionalized": lambda: kernels.Coregionalized(rotating(), 2, mixing=[1.0, 0.3 - 0.4j]),
    "Driven": lambda: kernels.Driven(resonance(), kernels.Matern12(0.5, 0.6)),
    "EllipticalOU": lambda: kernels.EllipticalOU(1.5, 0.7, 0.3, 0.4j),
    "Empirical": lambda: kernels.Empirical.from_series(X, [Z, 1j * Z[::-1]], variance=1.5),
    "ExponentialDelays": lambda: kernels.ExponentialDelays(1.5, 0.3),
    "IntegratedRandomWalk": lambda: kernels.IntegratedRandomWalk(0.3, 0.4, -1.0),
    "MarkovApproximation": lambda: kernels.MarkovApproximation(kernels.RBF(1.5, 0.7), 2),
    "Matern": lambda: kernels.Matern(1.5, 0.7, 0.8),
    "Matern12": lambda: kernels.Matern12(1.5, 0.7),
    "Matern32": lambda: kernels.Matern32(1.5, 0.7),
    "Matern52": lambda: kernels.Matern52(1.5, 0.7),
    "Outputs": lambda: kernels.Outputs([rotating(), kernels.Matern12(0.5, 0.6)]),
    "Periodic": lambda: kernels.Periodic(1.5, 0.7, 0.9),
    "Product": lambda: kernels.Product([kernels.RBF(1.5, 0.7), kernels.Rotation(0.3)]),
    "RandomWalk": lambda: kernels.RandomWalk(0.3, -1.0),
    "RationalQuadratic": lambda: kernels.RationalQuadratic(1.5, 0.7, 2.0),
    "RelaxationTimes": lambda: kernels.RelaxationTimes(1.5, 0.7, reference=0.5),
    "Rotation": lambda: kernels.Rotation(0.3),
    "Sum": lambda: kernels.Sum([kernels.RBF(1.5, 0.7), kernels.Constant(0.4)]),
    "Szego": lambda: kernels.Szego(1.5, 0.7, real_response=True),
    "TappedDelays": lambda: kernels.TappedDelays([0.0, 0.4], [1.5, 0.5]),
    "TwoScale": lambda: kernels.TwoScale(1.5, 0.7, 0.3, 0.4),
    "UniformDelays": lambda: kernels.UniformDelays(1.5, 0.7),
    "White": lambda: kernels.White(0.3),
    "WidelyLinear": lambda: kernels.WidelyLinear(rotating(), 0.3 - 0.4j),
}


def rotating():
    return kernels.Matern12(1.5, 0.7) * kernels.Rotation(0.3)


def resonance():
    return kernels.Matern12(1.0, 2.0, fixed="variance") * kernels.Rotation(0.4)


def second_moments(kernel):
    times = TIMES
    if isinstance(kernel, kernels.Levels):
        times = tf.range(kernel.levels, dtype=times.dtype)[:, None]
    if isinstance(kernel, kernels.RelaxationTimes):
        times = tf.exp(times)
    if kernel.outputs:
        times = tf.concat([times, tf.cast(tf.range(len(X))[:, None] % 2, times.dtype)], axis=1)
    points = times[:2]
    return kernel.covariance(times, points), kernel.pseudo_covariance(times, points)


def loss(layer):
    """What a layer adds for data."""
    layer((TIMES, tf.constant(Z)))
    return layer.losses[0]


def grid_loss(layer):
    """What a process adds for the cells of a grid of one axis."""
    layer(((X,), tf.constant(Z)))
    return layer.losses[0]


def between(layer):
    """What an interpolator says of two points."""
    return layer((TIMES, tf.constant(Z[None]), TIMES[:2] + 0.2))


def filter_loss(kf):
    kf(tf.constant(Z[None, :, None]))
    return kf.losses[0]


LAYERS = {
    **{f"kernels.{name}": (make, second_moments) for name, make in KERNELS.items()},
    "means.Constant": (lambda: means.Constant(0.3 - 1j), lambda mean: mean.evaluate(TIMES)),
    "means.Outputs": (
        lambda: means.Outputs([means.Constant(1.0, fixed="value"), None, means.Constant(0.3 - 1j)]),
        lambda mean: mean.evaluate(tf.pad(TIMES, [[0, 0], [0, 1]], constant_values=2.0)),
    ),
    "means.Polynomial": (
        lambda: means.Polynomial(1, [0.3, -1j]),
        lambda mean: mean.evaluate(TIMES),
    ),
    "layers.Covariance": (lambda: layers.Covariance(A @ A.conj().T), lambda layer: layer.call()),
    "layers.Matrix": (lambda: layers.Matrix(A), lambda layer: layer.call()),
    "layers.Recursive": (
        lambda: layers.Recursive(cgp.KalmanFilter(model(F, ROOT), learn=("F", "Q", "R"))),
        filter_loss,
    ),
    "statespace.from_kernel": (
        rotating,
        lambda kernel: statespace.log_likelihood(statespace.from_kernel(kernel, 0.3, 0.2), Y),
    ),
    "layers.GPInterpolator": (lambda: layers.GPInterpolator(rotating(), 0.2), between),
    "ExactGP": (lambda: cgp.ExactGP(rotating(), 0.2), loss),
    "GridGP": (lambda: cgp.GridGP(kernels.Along(rotating(), 0), 0.2), grid_loss),
    "RecursiveGP": (lambda: cgp.RecursiveGP(rotating(), 0.2, capacity=4), loss),
    "SparseGP": (lambda: cgp.SparseGP(rotating(), 0.2, inducing=[[0.1], [0.9]]), loss),
    "StateSpaceGP": (lambda: cgp.StateSpaceGP(kernels.Matern12(1.5, 0.7), 0.2), loss),
    "VecchiaGP": (lambda: cgp.VecchiaGP(rotating(), 0.2, neighbours=2), loss),
    "KalmanFilter": (lambda: cgp.KalmanFilter(model(F, ROOT), learn=("F", "Q", "R")), filter_loss),
}

# Draws, smoothers, steps, figures, plots, data; and what trains or is trained; no process at all,
# and a mean that is located, not trained.
NO_GRADIENT = {
    "RecursiveLeastSquares",
    "distributions.marginals",
    "distributions.squared_radius",
    "Bank",
    "Clock",
    "Comparison",
    "compare",
    "to_frame",
    "to_xarray",
    "kernels.Zero",
    "means.Exponentials",
    "means.Rational",
    "statespace.ConditionallyLinear",
    "statespace.diagnostics",
    "statespace.forecast",
    "statespace.particle_filter",
    "statespace.steady_state",
    "statespace.posterior_sample",
    "statespace.sample",
    "statespace.clear_cache",
    "statespace.smooth",
    "statespace.step",
    "optimizers.LBFGS",
    "kernels.Kernel",
    "likelihoods.Likelihood",
    "statespace.Rule",
    "means.Mean",
    "callbacks.Parameters",
    *(n for n in PUBLIC if n.startswith(("training.", "metrics.", "online."))),
    *(n for n in PUBLIC if n.startswith(("plotting.", "datasets."))),
    "Functional", "Model", "clone_model", "load_model", "refresh", "register_post_update",
    "sharing_scope",
}  # fmt: skip


def number(values):
    """A real number that depends on all elements of tensors."""
    total, rng = tf.zeros((), tf.float64), np.random.default_rng(1)
    for value in tf.nest.flatten(values):
        if value is None:
            continue
        value = tf.cast(value, tf.complex128)
        weight = rng.normal(size=value.shape) + 1j * rng.normal(size=value.shape)
        total += tf.math.real(tf.reduce_sum(weight * value))
    return total


def assert_gradient(f, gradients, start):
    """`f`, of arrays, changes in a random direction as its gradients say."""
    rng = np.random.default_rng(0)
    directions = [rng.normal(size=a.shape) + 1j * rng.normal(size=a.shape) for a in start]
    directions = [
        d if np.iscomplexobj(a) else d.real for a, d in zip(start, directions, strict=True)
    ]
    h = 1e-5
    above, below = (f([a + s * d for a, d in zip(start, directions, strict=True)]) for s in (h, -h))
    found = sum(np.sum(np.conj(g) * d).real for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(found, (above - below) / (2 * h), rtol=1e-6, atol=1e-8)
    assert abs(found) > 1e-3


@eagerly_or_in_a_graph
@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_a_gradient_by_arguments_that_of_central_differences(name, eagerly, request):
    if eagerly:
        request.getfixturevalue("eager_functions")
    function, *start = FUNCTIONS[name]
    arguments = [tf.constant(a) for a in start]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = number(function(*arguments))
    gradients = tape.gradient(value, arguments)
    assert_gradient(lambda at: number(function(*map(tf.constant, at))), gradients, start)


@pytest.mark.parametrize("name", LAYERS)
def test_is_a_gradient_by_hyperparameters_that_of_central_differences(name):
    make, function = LAYERS[name]
    layer = make()
    with tf.GradientTape() as tape:
        value = number(function(layer))
    variables = layer.trainable_variables
    gradients = tape.gradient(value, variables)
    start = [v.numpy() for v in variables]

    def at(values):
        for variable, a in zip(variables, values, strict=True):
            variable.assign(a)
        return number(function(layer))

    assert_gradient(at, [tf.convert_to_tensor(g) for g in gradients], start)


# --- refusals -------------------------------------------------------------------------------------

# The first entry of each name.
FIRST = {key.partition(":")[0]: refusal for key, refusal in reversed(REFUSALS.items())}

# To be subclassed; or what takes functions, layers, or numbers as they are.
NOTHING_TO_REFUSE = {
    "kernels.Zero", "linalg.with_gradient", "refresh", "sharing_scope", "statespace.clear_cache",
    "training.confirm", "training.invalidate", "training.setting",
    "training.Parameter", "training.Parameterized", "training.Shareable",
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_is_what_makes_no_sense_refused_by_name(name):
    assert_refused(*FIRST[name])


# --- all of them ----------------------------------------------------------------------------------


def test_has_every_public_name_an_example():
    shown_elsewhere = NOTHING_TO_REFUSE | {"means.Mean", "likelihoods.Likelihood", "clone_model"}
    assert {name for name, thing in PUBLIC.items() if ">>>" not in thing.__doc__} <= shown_elsewhere


def test_has_every_public_name_a_gradient_and_a_refusal():
    assert PUBLIC.keys() == FUNCTIONS.keys() | LAYERS.keys() | NO_GRADIENT
    assert PUBLIC.keys() == FIRST.keys() | NOTHING_TO_REFUSE
