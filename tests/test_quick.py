"""One gradient and one refusal of every public name; its value is the example of its docstring.

With the doctests this is the quick part of the tests, `python -m tests --quick`. A name that
becomes public needs an entry in both tables.
"""

import dataclasses
import inspect

import keras
import matplotlib
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
    plotting,
    statespace,
    training,
)
from cgp.training import optimizers

matplotlib.use("agg")

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
I2 = np.eye(2) + 0j
ZERO = np.zeros(2, complex)
X, Z = np.array([0.0, 0.4, 1.1]), np.array([1.0 + 1j, 0.5j, -0.2])


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
    "Autoregressive": lambda: kernels.Autoregressive(2, 1.5, [0.3j, -0.4], step=0.1),
    "RBF": lambda: kernels.RBF(1.5, 0.7),
    "Conjugate": lambda: kernels.Conjugate(rotating()),
    "Constant": lambda: kernels.Constant(1.5),
    "Driven": lambda: kernels.Driven(resonance(), kernels.Matern12(0.5, 0.6)),
    "EllipticalOU": lambda: kernels.EllipticalOU(1.5, 0.7, 0.3, 0.4j),
    "ExponentialDelays": lambda: kernels.ExponentialDelays(1.5, 0.3),
    "IntegratedRandomWalk": lambda: kernels.IntegratedRandomWalk(0.3, 0.4, -1.0),
    "MarkovApproximation": lambda: kernels.MarkovApproximation(kernels.RBF(1.5, 0.7), 2),
    "Matern": lambda: kernels.Matern(1.5, 0.7, 0.8),
    "Matern12": lambda: kernels.Matern12(1.5, 0.7),
    "Matern32": lambda: kernels.Matern32(1.5, 0.7),
    "Matern52": lambda: kernels.Matern52(1.5, 0.7),
    "Periodic": lambda: kernels.Periodic(1.5, 0.7, 0.9),
    "Product": lambda: kernels.Product([kernels.RBF(1.5, 0.7), kernels.Rotation(0.3)]),
    "RandomWalk": lambda: kernels.RandomWalk(0.3, -1.0),
    "RationalQuadratic": lambda: kernels.RationalQuadratic(1.5, 0.7, 2.0),
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
    points = TIMES[:2]
    return kernel.covariance(TIMES, points), kernel.pseudo_covariance(TIMES, points)


def loss(layer):
    """What a layer adds for data."""
    layer((TIMES, tf.constant(Z)))
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
    "layers.GPInterpolator": (lambda: layers.GPInterpolator(rotating(), 0.2), between),
    "ExactGP": (lambda: cgp.ExactGP(rotating(), 0.2), loss),
    "RecursiveGP": (lambda: cgp.RecursiveGP(rotating(), 0.2, capacity=4), loss),
    "StateSpaceGP": (lambda: cgp.StateSpaceGP(kernels.Matern12(1.5, 0.7), 0.2), loss),
    "KalmanFilter": (lambda: cgp.KalmanFilter(model(F, ROOT), learn=("F", "Q", "R")), filter_loss),
}

# Draws, smoothers, steps, figures, plots, data; and what trains or is trained; no process at all,
# and a mean that is located, not trained.
NO_GRADIENT = {
    "distributions.marginals",
    "distributions.squared_radius",
    "Bank",
    "Clock",
    "Comparison",
    "compare",
    "to_frame",
    "to_xarray",
    "kernels.Zero",
    "means.Rational",
    "statespace.ConditionallyLinear",
    "statespace.diagnostics",
    "statespace.forecast",
    "statespace.particle_filter",
    "statespace.posterior_sample",
    "statespace.sample",
    "statespace.clear_cache",
    "statespace.smooth",
    "statespace.step",
    "optimizers.LBFGS",
    "kernels.Kernel",
    "likelihoods.Likelihood",
    "means.Mean",
    "callbacks.Parameters",
    *(n for n in PUBLIC if n.startswith(("training.", "metrics.", "plotting.", "datasets."))),
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_a_gradient_by_arguments_that_of_central_differences(name):
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

INDEFINITE = np.array([[1.0, 2.0j], [-2.0j, 1.0]])
WALK = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])
PREDICTION = {"mean": Z, "variance": np.ones(3), "pseudo_variance": 0 * Z}


def gp(**arguments):
    return cgp.ExactGP(kernels.RBF(1.0, 1.0), 0.1, **arguments)


def without_weights():
    """Not one whose output is its input, which Keras 3.10 refuses."""
    x = keras.Input((1,))
    return cgp.Functional(x, keras.layers.ReLU()(x))


# What is called, and the name that the message must contain.
REFUSALS = {
    "linalg.cholesky": (lambda: linalg.cholesky(INDEFINITE), "not positive definite"),
    "linalg.cholesky_append": (lambda: linalg.cholesky_append(I2, np.zeros(3) + 0j, 1.0), "cross"),
    "linalg.cholesky_condition": (lambda: linalg.cholesky_condition(I2, ZERO, -1.0), "noise"),
    "linalg.cholesky_remove": (lambda: linalg.cholesky_remove(I2, 2), "index"),
    "linalg.cholesky_update": (
        lambda: linalg.cholesky_update(I2, ZERO + 1, -1.0), "not positive definite"
    ),
    "linalg.from_composite": (lambda: linalg.from_composite(np.eye(3)), "composite"),
    "linalg.inverse": (lambda: linalg.inverse(np.ones((2, 3))), "chol"),
    "linalg.join_parts": (lambda: linalg.join_parts(ZERO), "parts"),
    "linalg.log_det": (lambda: linalg.log_det(np.ones((2, 3))), "chol"),
    "linalg.semidefinite_factor": (lambda: linalg.semidefinite_factor(INDEFINITE), "indefinite"),
    "linalg.solve": (lambda: linalg.solve(I2, ZERO), "b must"),
    "linalg.stack_parts": (lambda: linalg.stack_parts(X), "z must"),
    "linalg.stored_cholesky": (lambda: linalg.stored_cholesky(I2, np.eye(3) + 0j), "chol"),
    "linalg.to_composite": (lambda: linalg.to_composite(I2, np.eye(3) + 0j), "pseudo_covariance"),
    "linalg.triangularize": (lambda: linalg.triangularize(ZERO), "a must"),
    "ComplexNormal": (lambda: cgp.ComplexNormal(ZERO, np.eye(3) + 0j), "chol"),
    "distributions.ellipses": (lambda: distributions.ellipses(Z, X, Z, 95), "probability"),
    "distributions.marginals": (lambda: distributions.marginals(Z), "prediction"),
    "distributions.principal_axes": (lambda: distributions.principal_axes(-X, 0 * Z), "negative"),
    "distributions.squared_radius": (lambda: distributions.squared_radius(95), "probability"),
    "Bank": (lambda: cgp.Bank(cgp.KalmanFilter(WALK), capacity=0), "capacity"),
    "Clock": (lambda: cgp.Clock("year"), "unit must be one of"),
    "Comparison": (lambda: cgp.Comparison({}, {}).best, "there is no model"),
    "callbacks.Parameters": (lambda: cgp.callbacks.Parameters("logs", X), "x and z belong"),
    "compare": (lambda: cgp.compare({}, X, Z), "models must be a dictionary of at least one"),
    "clone_model": (lambda: cgp.clone_model(3), "model must be a Keras model, got 3"),
    "likelihoods.Likelihood": (lambda: gp(likelihood="t"), "one of cgp.likelihoods"),
    "likelihoods.Magnitude": (lambda: gp(likelihood=likelihoods.Magnitude()), "for filters"),
    "likelihoods.OneBit": (
        lambda: gp(likelihood=likelihoods.OneBit()).condition(X, X + 0j), "signs"
    ),
    "likelihoods.StudentT": (lambda: likelihoods.StudentT(-1.0), "degrees_of_freedom"),
    "likelihoods.VonMises": (
        lambda: statespace.filter(WALK, X, likelihood=likelihoods.VonMises()), "of complex signals"
    ),
    "statespace.LinearGaussian": (
        lambda: statespace.LinearGaussian(I2, INDEFINITE, I2, I2), "Q"
    ),
    "statespace.ConditionallyLinear": (
        lambda: statespace.ConditionallyLinear(WALK, dict, 3, [[1.0]], [0.0], [[1.0]]),
        "transition",
    ),
    "statespace.diagnostics": (
        lambda: statespace.diagnostics(statespace.filter(WALK, X), level=95), "level"
    ),
    "statespace.filter": (lambda: statespace.filter(WALK, Z), "z must be real, got complex128"),
    "statespace.forecast": (
        lambda: statespace.forecast(WALK, statespace.filter(WALK, X), 0), "steps"
    ),
    "statespace.log_likelihood": (lambda: statespace.log_likelihood(WALK, []), "empty"),
    "statespace.particle_filter": (
        lambda: statespace.particle_filter(WALK, X, particles=0), "particles"
    ),
    "statespace.posterior_sample": (
        lambda: statespace.posterior_sample(WALK, X, seed=0.5), "seed"
    ),
    "statespace.sample": (lambda: statespace.sample(WALK, 0), "steps"),
    "statespace.smooth": (lambda: statespace.smooth(WALK, X, inputs=X), "inputs"),
    "statespace.step": (lambda: statespace.step(WALK, (X[:1], X), 1.0), "factor of the state"),
    "statespace.NonlinearGaussian": (
        lambda: statespace.NonlinearGaussian(3, tf.sin, [[1.0]], [[1.0]], [0.0], [[1.0]]),
        "transition",
    ),
    "statespace.InteractingModels": (
        lambda: statespace.InteractingModels([], [[1.0]]), "models must be at least one"
    ),
    "statespace.widely_linear": (lambda: statespace.widely_linear(WALK), "complex"),
    "Functional": (
        lambda: cgp.Functional(keras.Input((1,), dtype="float64"), keras.Input((1,)))(Z), "inputs"
    ),
    "Model": (lambda: cgp.Model(keras.Input((1,)), keras.Input((1,))), "Functional"),
    "to_frame": (lambda: cgp.to_frame(Z), "result must be a ComplexNormal"),
    "to_xarray": (lambda: cgp.to_xarray(PREDICTION, X[:2]), r"index must be \[3\]"),
    "load_model": (lambda: cgp.load_model("nowhere.keras"), "nowhere.keras"),
    "register_post_update": (
        lambda: cgp.register_post_update(keras.layers.Layer(), [np.ones(2)], print), "variable"
    ),
    "training.Objective": (
        lambda: training.Objective(without_weights(), (X, Z, None)),
        "no trainable variables",
    ),
    "training.shard_spec": (
        lambda: training.shard_spec(cgp.RecursiveGP(kernels.RBF(1.0, 1.0), 0.1), 1), "RecursiveGP"
    ),
    "training.value_and_gradient": (
        lambda: training.value_and_gradient(
            training.shard_spec(cgp.ExactGP(kernels.RBF(1.0, 1.0), 0.1), 1), np.zeros(3), (X, Z[:2])
        ),
        "shapes",
    ),
    "optimizers.LBFGS": (lambda: optimizers.LBFGS(maxcor=0), "maxcor"),
    "kernels.RBF": (lambda: kernels.RBF(-1.0), "variance"),
    "kernels.ARMA": (lambda: kernels.ARMA(1, 0), "ma_order"),
    "kernels.Autoregressive": (lambda: kernels.Autoregressive(0), "order"),
    "kernels.Conjugate": (lambda: kernels.Conjugate(1.0), "kernel"),
    "kernels.Constant": (lambda: kernels.Constant(-1.0), "variance"),
    "kernels.Driven": (lambda: kernels.Driven(kernels.RBF(), kernels.Matern12()), "resonance"),
    "kernels.EllipticalOU": (lambda: kernels.EllipticalOU(damping=0.0), "damping"),
    "kernels.ExponentialDelays": (
        lambda: kernels.ExponentialDelays(delay_spread=0.0), "delay_spread"
    ),
    "kernels.linear_sde": (
        lambda: kernels.linear_sde(kernels.Generator(np.eye(2), np.eye(2)), [1.0, 0.0]),
        "stationary",
    ),
    "kernels.IntegratedRandomWalk": (lambda: kernels.IntegratedRandomWalk(0.0), "variance"),
    "kernels.Kernel": (lambda: kernels.RBF(1.0, 1.0).covariance(Z, X), "x1"),
    "kernels.MarkovApproximation": (
        lambda: kernels.MarkovApproximation(kernels.RBF(), 0), "order"
    ),
    "kernels.Matern": (lambda: kernels.Matern(smoothness=0.0), "smoothness"),
    "kernels.Matern12": (lambda: kernels.Matern12(lengthscale=0.0), "lengthscale"),
    "kernels.Matern32": (lambda: kernels.Matern32(lengthscale=0.0), "lengthscale"),
    "kernels.Matern52": (lambda: kernels.Matern52(lengthscale=0.0), "lengthscale"),
    "kernels.Periodic": (lambda: kernels.Periodic(frequency=0.0), "frequency"),
    "kernels.Product": (lambda: kernels.Product([]), "at least one"),
    "kernels.RandomWalk": (lambda: kernels.RandomWalk(start=1j), "start"),
    "kernels.RationalQuadratic": (lambda: kernels.RationalQuadratic(alpha=0.0), "alpha"),
    "kernels.Rotation": (lambda: kernels.Rotation(1j), "frequency"),
    "kernels.Sum": (lambda: kernels.Sum([]), "at least one"),
    "kernels.Szego": (lambda: kernels.Szego(decay=-1.0), "decay"),
    "kernels.TappedDelays": (lambda: kernels.TappedDelays([0.0, 1.0], [1.0]), "powers"),
    "kernels.TwoScale": (lambda: kernels.TwoScale(ratio=1.0), "ratio"),
    "kernels.UniformDelays": (lambda: kernels.UniformDelays(width=-1.0), "width"),
    "kernels.White": (lambda: kernels.White(-1.0), "variance"),
    "kernels.WidelyLinear": (lambda: kernels.WidelyLinear(kernels.RBF(), 2.0), "coefficient"),
    "means.Constant": (lambda: means.Constant(np.nan), "value"),
    "means.Mean": (lambda: gp(mean=1.0), "mean"),
    "means.Polynomial": (lambda: means.Polynomial(-1), "degree"),
    "means.Rational": (lambda: means.Rational(-1), "order"),
    "ExactGP": (lambda: gp().condition(X, Z.real), "complex"),
    "RecursiveGP": (lambda: cgp.RecursiveGP(kernels.RBF(), 0.1, capacity=0), "capacity"),
    "StateSpaceGP": (lambda: cgp.StateSpaceGP(kernels.RBF(), 0.1), "not Markov"),
    "layers.Covariance": (lambda: layers.Covariance(INDEFINITE), "definite"),
    "layers.GPInterpolator": (
        lambda: layers.GPInterpolator(kernels.RBF(1.0, 1.0), 0.1)(Z[None]), "has no positions"
    ),
    "layers.Matrix": (lambda: layers.Matrix([np.nan]), "finite"),
    "layers.RealImag": (lambda: layers.RealImag()(X), "complex"),
    "layers.Recursive": (lambda: layers.Recursive(kernels.RBF()), "KalmanFilter"),
    "layers.ToComplex": (lambda: layers.ToComplex()(Z), "real"),
    "KalmanFilter": (lambda: cgp.KalmanFilter(WALK, learn="P"), "learn"),
    "metrics.MeanSquaredModulus": (
        lambda: metrics.MeanSquaredModulus().update_state(Z, X), "complex"
    ),
    "metrics.NormalizedErrorDB": (
        lambda: metrics.NormalizedErrorDB().update_state(Z, X), "complex"
    ),
    "metrics.coverage": (lambda: metrics.coverage(Z, PREDICTION, 95), "probability"),
    "metrics.log_predictive_densities": (
        lambda: metrics.log_predictive_densities(Z, Z), "prediction"
    ),
    "metrics.mean_squared_modulus": (lambda: metrics.mean_squared_modulus(Z, X), "complex"),
    "metrics.negative_log_predictive_density": (
        lambda: metrics.negative_log_predictive_density(Z, Z), "prediction"
    ),
    "metrics.normalized_error_db": (lambda: metrics.normalized_error_db(0 * Z, Z), "zero"),
    "plotting.fit_health": (lambda: plotting.fit_health(Z), "ExactGP"),
    "plotting.innovations": (lambda: plotting.innovations(Z), "diagnostics"),
    "plotting.plane": (lambda: plotting.plane(), "nothing to draw"),
    "plotting.series": (lambda: plotting.series(X, Z.real), "complex"),
    "plotting.spectrum": (lambda: plotting.spectrum(kernels.RBF()), "ExactGP"),
    "datasets.channel_switch": (lambda: cgp.datasets.channel_switch("a"), "seed"),
    "datasets.polar_motion": (lambda: cgp.datasets.polar_motion(9e6), "start"),
    "datasets.s_parameters": (lambda: cgp.datasets.s_parameters("a.s1p"), "a.s1p"),
    "datasets.soft_channel": (lambda: cgp.datasets.soft_channel(0, 0), "n must be a whole number"),
}  # fmt: skip

# To be subclassed; or what takes functions, layers, or numbers as they are.
NOTHING_TO_REFUSE = {
    "kernels.Zero", "linalg.with_gradient", "refresh", "sharing_scope", "statespace.clear_cache",
    "training.confirm", "training.invalidate",
    "training.Parameter", "training.Parameterized", "training.Shareable",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_is_what_makes_no_sense_refused_by_name(name):
    call, words = REFUSALS[name]
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=words):
        call()


# --- all of them ----------------------------------------------------------------------------------


def test_has_every_public_name_an_example():
    shown_elsewhere = NOTHING_TO_REFUSE | {"means.Mean", "likelihoods.Likelihood", "clone_model"}
    assert {name for name, thing in PUBLIC.items() if ">>>" not in thing.__doc__} <= shown_elsewhere


def test_has_every_public_name_a_gradient_and_a_refusal():
    assert PUBLIC.keys() == FUNCTIONS.keys() | LAYERS.keys() | NO_GRADIENT
    assert PUBLIC.keys() == REFUSALS.keys() | NOTHING_TO_REFUSE
