"""One state-space model, whatever the road: modes, batches, coordinates, Gaussian processes."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.kernels import Constant, Matern12, Matern32, Rotation, WidelyLinear
from tests.linalg.problems import in_mode
from tests.reference import kalman
from tests.statespace.problems import improper_parts, problem, square

SETTINGS = {
    "constant": {"inputs": 2, "holes": "own"},
    "varying": {"varying": "FQHR", "inputs": 2, "holes": "own"},
    "a batch": {"batch": 4, "inputs": 2, "holes": "own"},
}


def flat(found):
    return tf.nest.flatten([part for part in found if part is not None])


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param("a batch", "graph", marks=pytest.mark.long),
        pytest.param("varying", "xla", marks=pytest.mark.long),
    ],
)
def test_is_a_filter_the_same_in_every_mode(name, mode):
    p = problem(2, 2, **SETTINGS[name])
    model = p.model()

    def run(z, inputs):
        return flat(statespace.filter(model, z, inputs=inputs))

    found, expected = in_mode(mode, run)(p.z, p.inputs), run(p.z, p.inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(("name", "mode"), [("varying", "graph"), ("a batch", "xla")])
def test_are_likelihood_and_gradient_the_same_in_every_mode(name, mode):
    p = problem(2, 2, **SETTINGS[name])
    names = list(p.matrices)

    def run(z, inputs, *matrices):
        watched = [z, inputs, *matrices]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            model = statespace.LinearGaussian(**dict(zip(names, matrices, strict=True)))
            value = statespace.log_likelihood(model, z, inputs=inputs)
        return value, *tape.gradient(value, watched)

    arguments = [p.z, p.inputs, *p.matrices.values()]
    for a, b in zip(in_mode(mode, run)(*arguments), in_mode("eager", run)(*arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.long
def test_is_a_widely_linear_filter_the_same_under_xla():
    matrices, parts = improper_parts(2, 1)
    p = problem(2, 1, holes="own").changed(**matrices)
    model = statespace.widely_linear(p.model(), **parts)

    def run(z):
        return flat(statespace.filter(model, z))

    for a, b in zip(in_mode("xla", run)(p.z), run(p.z), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["xla", "graph"])
def test_is_a_smoother_the_same_in_every_mode(mode):
    p = problem(2, 2, **SETTINGS["constant"])
    model = p.model()

    def run(z, inputs):
        return flat(statespace.smooth(model, z, inputs=inputs))

    found = in_mode(mode, run)(p.z, p.inputs)
    for a, b in zip(found, run(p.z, p.inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("batched", [True, False])
def test_does_one_graph_take_series_of_any_length(batched):
    p = problem(2, 2, batch=4 if batched else None, steps=30)
    model = p.model()
    shape = (4, None, 2) if batched else (None, 2)

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.complex128)], autograph=False)
    def run(z):
        return statespace.log_likelihood(model, z), statespace.filter(model, z).filtered_means

    for steps in (30, 17, 1):
        z = p.z[..., :steps, :]
        value, means = run(z)
        np.testing.assert_allclose(value, statespace.log_likelihood(model, z), rtol=1e-12)
        np.testing.assert_allclose(means, statespace.filter(model, z).filtered_means, rtol=1e-12)


@pytest.mark.parametrize(
    "setting",
    [
        {"holes": "own", "inputs": 1},
        {"dtype": "float64", "models": True, "varying": "FQHR"},
    ],
    ids=str,
)
def test_is_a_batch_the_loop(setting):
    p = problem(2, 2, batch=4, **setting)
    filtered, smoothed = p.filter(), p.smooth()
    for b, member in enumerate(p.members()):
        for found, expected in ((filtered, member.filter()), (smoothed, member.smooth())):
            for a, e in zip(found, expected, strict=True):
                if a is not None:
                    a = np.broadcast_to(a, (4, *e.shape))[b]
                    np.testing.assert_allclose(a, e, rtol=1e-11, atol=1e-11)


def test_is_a_series_in_pieces_the_whole():
    """What is predicted after a piece is the start of the next."""
    p = problem(2, 2, holes="own")
    whole = p.filter()
    first = statespace.filter(p.model(), p.z[:9])
    ahead = statespace.forecast(p.model(), first, 1)
    rest = p.changed(
        initial_mean=ahead.state_means[0], initial_covariance=square(ahead.state_chols)[0]
    )
    second = statespace.filter(rest.model(), p.z[9:])
    for name in ("filtered_means", "log_likelihoods", "filtered_chols"):
        joined = np.concatenate([getattr(part, name) for part in (first, second)])
        np.testing.assert_allclose(joined, getattr(whole, name), rtol=1e-10, atol=1e-10)


def test_is_a_constant_model_one_that_varies_by_nothing():
    p = problem(2, 2, holes="own", inputs=2)
    same = p.changed(**{name: np.repeat(p.matrices[name][None], 14, axis=0) for name in "FQHRB"})
    for found, expected in ((same.filter(), p.filter()), (same.smooth(), p.smooth())):
        for a, b in zip(found, expected, strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_is_a_real_model_with_complex_data_the_two_real_filters_of_the_parts():
    """A complex model of real matrices, whose parts are independent and have half the variance."""
    real = problem(2, 2, dtype="float64", holes="own")
    rng = np.random.default_rng(3)
    z = real.z + 1j * np.where(np.isnan(real.z), np.nan, rng.normal(size=real.z.shape))
    found = statespace.filter(
        statespace.LinearGaussian(**{k: v + 0j for k, v in real.matrices.items()}), z
    )
    half = {name: real.matrices[name] / 2 for name in ("Q", "R", "initial_covariance")}
    zero = np.zeros_like(real.matrices["initial_mean"])
    re = statespace.filter(real.changed(**half).model(), z.real)
    im = statespace.filter(real.changed(**half, initial_mean=zero).model(), z.imag)
    means = np.asarray(re.filtered_means) + 1j * np.asarray(im.filtered_means)
    np.testing.assert_allclose(found.filtered_means, means, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        found.log_likelihoods, re.log_likelihoods + im.log_likelihoods, rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(
        square(found.filtered_chols), 2 * square(re.filtered_chols), rtol=1e-11, atol=1e-11
    )


def terms():
    """Two damped rotations: kernels, and their transition over one unit of time."""
    settings = ((1.3, 8.0, 0.11), (0.6, 3.0, -0.3))
    kernel = None
    for variance, lengthscale, frequency in settings:
        term = Matern12(variance, lengthscale) * Rotation(frequency)
        kernel = term if kernel is None else kernel + term
    variances, lengthscales, frequencies = np.array(settings).T
    poles = np.exp(-1 / lengthscales + 2j * np.pi * frequencies)
    return kernel, poles, variances


@pytest.mark.parametrize("coefficient", [None, 0.3 - 0.4j])
def test_is_a_filter_of_damped_rotations_an_exact_gaussian_process(coefficient):
    kernel, poles, variances = terms()
    noise = 0.2
    model = statespace.LinearGaussian(
        np.diag(poles),
        np.diag(variances * (1 - np.abs(poles) ** 2)) + 0j,
        np.ones((1, 2), complex),
        [[noise]],
    )
    if coefficient is not None:
        kernel = WidelyLinear(kernel, coefficient)
        model = statespace.widely_linear(model, H_conj=coefficient * np.ones((1, 2)))
    rng = np.random.default_rng(1)
    z = rng.normal(size=40) + 1j * rng.normal(size=40)
    z[[0, 3, 17, 18, 39]] = np.nan
    t = np.arange(40.0)
    gp = cgp.ExactGP(kernel, noise)
    np.testing.assert_allclose(
        statespace.log_likelihood(model, z), gp.log_marginal_likelihood(t, z), rtol=1e-11
    )

    gp.condition(t, z)
    ahead = statespace.forecast(model, statespace.filter(model, z), 6)
    expected = gp.predict(np.arange(40.0, 46.0), observed=True)
    tight = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(ahead.observation_means[:, 0], expected["mean"], **tight)
    np.testing.assert_allclose(
        np.asarray(ahead.observation_covariances)[:, 0, 0], expected["variance"], **tight
    )
    if coefficient is not None:
        pseudo = np.asarray(ahead.observation_pseudo_covariances)[:, 0, 0]
        np.testing.assert_allclose(pseudo, expected["pseudo_variance"], **tight)

    smoothed = np.asarray(statespace.smooth(model, z).smoothed_means)
    signal = smoothed.sum(axis=-1)
    if coefficient is not None:
        signal = signal + coefficient * np.conj(signal)
    np.testing.assert_allclose(signal, gp.predict(t)["mean"], **tight)


@pytest.mark.parametrize("coefficient", [None, 0.3 - 0.4j])
def test_are_the_gradients_of_a_posterior_those_of_the_exact_one(coefficient):
    """Between, at and beyond the data; and as a layer, by the observations too."""
    rng = np.random.default_rng(1)
    x, w = np.sort(rng.uniform(0.0, 20.0, 25)), rng.normal(size=(3, 25))
    z = tf.constant(rng.normal(size=25) + 1j * rng.normal(size=25))
    new = np.array([-1.0, 2.2, x[5], 10.1, 24.0])

    def score(found):
        values = [tf.math.imag(found["mean"]), found["variance"]]
        if coefficient is not None:
            values.append(tf.math.imag(found["pseudo_variance"]))
        return sum(tf.reduce_sum(w[i, : a.shape[-1]] * a) for i, a in enumerate(values))

    def gradients_of(kind):
        kernel = Matern32(1.3, 4.0) * Rotation(0.11) + Constant(0.4)
        gp = kind(kernel if coefficient is None else WidelyLinear(kernel, coefficient), 0.2)
        with tf.GradientTape() as of_layer:
            of_layer.watch(z)
            value = score(gp((x[None, :, None], z[None])))
        yield from of_layer.gradient(value, [*gp.trainable_variables, z])
        gp.condition(x, z)
        with tf.GradientTape() as of_posterior:
            value = score(gp(new))
        yield from of_posterior.gradient(value, gp.trainable_variables)

    for found, expected in zip(
        gradients_of(cgp.StateSpaceGP), gradients_of(cgp.ExactGP), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_names_a_gradient_what_has_none():
    """Equal steps share a discretisation, and would share the gradient by x."""
    gp = cgp.StateSpaceGP(Matern12(1.3, 4.0), 0.2)
    x, z = tf.range(4.0, dtype=tf.float64), np.array([1j, 0.5, np.nan, 0.1])
    gp.condition(x, z)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        found = gp.posterior(x + 0.5)
        value, joint = tf.math.real(found.mean()), tf.math.real(found.covariance())
    with pytest.raises(NotImplementedError, match="not differentiable by its inputs x"):
        tape.gradient(value, x)
    with pytest.raises(NotImplementedError, match="joint covariance of a StateSpaceGP is not"):
        tape.gradient(joint, gp.trainable_variables)


def test_is_a_filter_of_independent_parts_the_filters_of_the_parts():
    """Two models side by side: what one knows of its own state, the other does not change."""
    p, q = problem(2, 1, holes="own"), problem(2, 1, holes="own", seed=1)
    matrices = {
        name: kalman.block_diagonal(np.stack([p.matrices[name], q.matrices[name]]))
        for name in ("F", "Q", "H", "R", "initial_covariance")
    }
    matrices["initial_mean"] = np.concatenate([a.matrices["initial_mean"] for a in (p, q)])
    found = statespace.filter(
        statespace.LinearGaussian(**matrices), np.concatenate([p.z, q.z], axis=-1)
    )
    one, two = p.filter(), q.filter()
    np.testing.assert_allclose(
        found.log_likelihoods, one.log_likelihoods + two.log_likelihoods, rtol=1e-11, atol=1e-11
    )
    means = np.concatenate([one.filtered_means, two.filtered_means], axis=-1)
    np.testing.assert_allclose(found.filtered_means, means, rtol=1e-11, atol=1e-11)
