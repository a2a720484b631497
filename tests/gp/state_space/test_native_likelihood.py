"""The compiled likelihood of Matérn terms gives what that of TensorFlow gives."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native
from cgp.gp.state_space import native_likelihood
from cgp.kernels import (
    Conjugate,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    RandomWalk,
    Rotation,
    White,
    WidelyLinear,
)
from tests.gp.state_space.test_state_space_gp import wobble
from tests.long_cases import long_except

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)

KERNELS = {
    "one state": lambda: Matern12(1.3, 20.0) * Rotation(0.1),
    "two states": lambda: 0.5 * Matern32(1.0, 4.0) * Rotation(-0.3),
    "three states": lambda: Matern52(1.3, 5.0) * Rotation(0.2),
    "still": lambda: Matern32(1.0, 2.0),
    "one carrier": lambda: (Matern12(1.0, 20.0) + Matern52(0.5, 3.0)) * Rotation(0.1),
    "two carriers": lambda: (
        Conjugate(Matern32(1.0, 20.0) * Rotation(0.1)) + Matern12(0.5, 3.0) * Rotation(0.2)
    ),
    "tones": lambda: Rotation(0.2) * 0.3 + Matern12(1.0, 2.0) * Matern12(2.0, 3.0) + Constant(2.0),
}
FEW = 12  # TensorFlow goes through them one by one
LAYOUTS = ["one series", "series", "patterns", "places"]


@pytest.fixture(autouse=True)
def results(monkeypatch):
    """What the op returned, None where it did not serve, in the order of the calls."""
    found, run = [], native_likelihood.log_likelihood

    def noted(*arguments):
        found.append(run(*arguments))
        return found[-1]

    monkeypatch.setattr(native_likelihood, "log_likelihood", noted)
    return found


def data(layout="one series", count=40, seed=0):
    """Places in order, two of them equal, and series, two elements of which are missing."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.1, 1.0, count))
    x[5] = x[4]
    z = rng.normal(size=(3, count)) + 1j * rng.normal(size=(3, count))
    z[:, [7, count - 2]] = np.nan
    if layout == "patterns":
        z[1, 9] = np.nan
    if layout == "places":
        x = np.stack([x, x**1.1 + 0.3, x[::-1]])[..., None]
    return x, z[0] if layout == "one series" else z


def likelihood_and_gradients(gp, x, z, noise=None):
    """By the hyperparameters, z and its known noise, with a weight of its own for each series."""
    z, noise = tf.constant(z), None if noise is None else tf.constant(noise)
    arrays = [z] if noise is None else [z, noise]
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        value = gp.log_marginal_likelihood(x, z, noise_variance=noise)
        weights = tf.range(1, 1 + tf.size(value))
        total = tf.reduce_sum(value * tf.reshape(tf.cast(weights, value.dtype), value.shape))
    gradients = tape.gradient(total, [*gp.trainable_variables, *arrays])
    return value.numpy(), [g.numpy() for g in gradients]


def assert_same(gp, x, z, results, without_core, value_to=1e-13, gradient_to=1e-12, noise=None):
    value, gradients = likelihood_and_gradients(gp, x, z, noise)
    assert len(results) == 1
    assert results[0] is not None
    expected, others = without_core(likelihood_and_gradients, gp, x, z, noise)
    assert results[1:] == [None]
    assert value.dtype == expected.dtype
    np.testing.assert_allclose(value, expected, rtol=value_to)
    floor = 1e-2 * max(np.abs(b).max() for b in others)
    for a, b in zip(gradients, others, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=gradient_to * max(np.abs(b).max(), floor))


@pytest.mark.parametrize(
    ("name", "count"),
    long_except([("tones", FEW), *((name, 40) for name in KERNELS)], ("tones", FEW)),
)
def test_one_series(name, count, results, without_core):
    gp = cgp.StateSpaceGP(KERNELS[name](), 0.05)
    assert_same(gp, *data(count=count), results, without_core)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "of each"])
def test_noise_of_each_sample(layout, is_shared, results, without_core):
    gp = cgp.StateSpaceGP(KERNELS["two states"](), 0.05)
    x, z = data(layout, count=FEW)
    noise = np.random.default_rng(1).uniform(0.1, 2.0, z.shape)
    noise = noise[0] if is_shared and z.ndim > 1 else noise
    assert_same(gp, x, z, results, without_core, noise=noise)


def test_does_other_noise_end_what_has_settled(results, without_core):
    """Equal steps over many blocks, whose noise changes once, and once for a single sample."""
    gp = cgp.StateSpaceGP(Matern32(1.0, 4.0), 0.05)
    noise = np.full(3000, 0.1)
    noise[1500:] = 0.3
    noise[2500] = 5.0
    z = np.exp(0.1j * np.arange(3000.0))
    assert_same(gp, np.arange(3000.0), z, results, without_core, noise=noise, gradient_to=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("name", ["two states", "two carriers"])
def test_several_series(name, layout, results, without_core):
    gp = cgp.StateSpaceGP(KERNELS[name](), 0.05)
    x, z = data(layout)
    if layout == "series":  # more than a vector has lanes
        z = np.concatenate([z, 2.0 * z, z.conj(), -1j * z])
    assert_same(gp, x, z, results, without_core)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_is_the_likelihood_of_series_that_of_the_exact_process_and_its_gradients(layout, results):
    x, z = data(layout, count=20)
    if layout == "series":  # more than a vector has lanes
        z = np.concatenate([z, 2.0 * z, z.conj(), -1j * z])
    kernel = KERNELS["two carriers"]()
    (value, gradients), (expected, others) = (
        likelihood_and_gradients(kind(kernel, 0.05), x, z)
        for kind in (cgp.StateSpaceGP, cgp.ExactGP)
    )
    assert None not in results
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    for a, b in zip(gradients, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("name", KERNELS)
def test_is_the_likelihood_that_of_the_exact_process_and_its_gradient_by_x(name, results):
    found = []
    for kind, points in ((cgp.StateSpaceGP, slice(None)), (cgp.ExactGP, (slice(None), None))):
        x, z = data()
        x[5] += 0.1  # at equal places the one derivative is of the right, the other of neither
        places = tf.constant(x[points])
        with tf.GradientTape() as tape:
            tape.watch(places)
            value = kind(KERNELS[name](), 0.05).log_marginal_likelihood(places, z)
        found.append((value, np.ravel(tape.gradient(value, places))))
    assert None not in results
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-11 * np.abs(found[1][1]).max())


@pytest.mark.parametrize("name", ["three states", "two carriers"])
def test_are_gradients_those_of_central_differences(name):
    gp = cgp.StateSpaceGP(KERNELS[name](), 0.05)
    rng = np.random.default_rng(3)
    x, z = data(count=300)
    towards = rng.normal(size=z.shape) + 1j * rng.normal(size=z.shape)
    variables = gp.trainable_variables
    values, steps = [v.numpy() for v in variables], [rng.normal(size=v.shape) for v in variables]

    def at(h):
        for v, value, step in zip(variables, values, steps, strict=True):
            v.assign(value + h * step)
        return gp.log_marginal_likelihood(x, z + h * towards)

    _, gradients = likelihood_and_gradients(gp, x, z)
    h = 1e-5
    difference = (at(h) - at(-h)) / (2 * h)
    directions = [*steps, np.where(np.isnan(z), 0.0, towards)]
    expected = sum(
        np.sum((np.conj(g) * d).real) for g, d in zip(gradients, directions, strict=True)
    )
    np.testing.assert_allclose(expected, difference, rtol=1e-7)


@pytest.mark.parametrize(
    "name",
    long_except(["one state", "three states", "one carrier", "two carriers"], "two carriers"),
)
def test_steps_that_are_equal(name, results, without_core):
    """Covariances that have settled are not computed again, before and after a gap."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=900) + 1j * rng.normal(size=900)
    z[600] = np.nan
    x = 0.5 * np.arange(900.0)
    x[700:] += 0.25
    assert_same(
        cgp.StateSpaceGP(KERNELS[name](), 0.05), x, z, results, without_core, gradient_to=1e-11
    )


def test_do_covariances_that_change_slowly_not_count_as_settled(results, without_core):
    gp = cgp.StateSpaceGP(Matern12(1e-7, 1e8), 1.0)
    rng = np.random.default_rng(4)
    z = rng.normal(size=3000) + 1j * rng.normal(size=3000)
    assert_same(gp, np.arange(3000.0), z, results, without_core, gradient_to=1e-8)


@pytest.mark.parametrize(
    ("unit", "name"),
    [(u, n) for u in (1e-9, 1e-5, 1e4) for n in ("one state", "three states", "one carrier")],
)
@pytest.mark.long  # the default run has such steps among those of the form of each kernel
def test_tiny_and_huge_steps(name, unit, results, without_core):
    x, z = data()
    gp = cgp.StateSpaceGP(KERNELS[name](), 0.05)
    assert_same(gp, unit * x, z, results, without_core, gradient_to=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("name", ["one state", "two states"])
def test_tiny_noise(name, results, without_core):
    gp = cgp.StateSpaceGP(KERNELS[name](), 1e-12)
    assert_same(gp, *data(), results, without_core, value_to=1e-12, gradient_to=1e-10)


@pytest.mark.parametrize(
    ("variance", "lengthscale", "noise"),
    [(1e-12, 1.0, 1e3), (1e12, 1.0, 1.0), (1.0, 1e-8, 1e-3), (1.0, 1e8, 1e-3)],
)
def test_extreme_hyperparameters(variance, lengthscale, noise, results, without_core):
    kernel = (Matern32(variance, lengthscale) + Matern52(variance, 1.0)) * Rotation(0.1)
    gp = cgp.StateSpaceGP(kernel, noise)
    x, z = data(seed=1)
    value = gp.log_marginal_likelihood(x, z)
    assert results[0] is not None
    expected = without_core(gp.log_marginal_likelihood, x, z)
    np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_single_precision(results):
    x, z = data("series")
    single = cgp.StateSpaceGP(
        Matern32(1.0, 4.0, dtype="float32") * Rotation(-0.3, dtype="float32"), 0.05
    )
    value, gradients = likelihood_and_gradients(single, x.astype("float32"), z.astype("complex64"))
    assert None not in results
    assert value.dtype == np.float32
    assert gradients[-1].dtype == np.complex64
    double = cgp.StateSpaceGP(Matern32(1.0, 4.0) * Rotation(-0.3), 0.05)
    expected, others = likelihood_and_gradients(double, x, z)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for a, b in zip(gradients, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_places_in_no_order(layout, results):
    gp = cgp.StateSpaceGP(KERNELS["two carriers"](), 0.05)
    x, z = data("series" if layout == "patterns" else layout)
    order = np.random.default_rng(5).permutation(z.shape[-1])
    value, gradients = likelihood_and_gradients(gp, x, z)
    mixed = x[order] if x.ndim == 1 else x[:, order]
    again, others = likelihood_and_gradients(gp, mixed, z[..., order])
    assert None not in results
    np.testing.assert_allclose(again, value, rtol=1e-14)
    np.testing.assert_allclose(others[-1], gradients[-1][..., order], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "count"), long_except([("tones", FEW), ("two states", 40)], ("tones", FEW))
)
def test_mean_function(name, count, results, without_core):
    mean = cgp.means.Polynomial(1, [1.0 + 1j, 0.1])
    gp = cgp.StateSpaceGP(KERNELS[name](), 0.05, mean=mean)
    assert_same(gp, *data(count=count), results, without_core)


@pytest.mark.parametrize(
    ("kernel", "pseudo"),
    [
        (lambda: Matern12(1.0, 1.0) + White(1.0), 0.0),
        (lambda: Matern12(1.0, 1.0) + RandomWalk(1.0), 0.0),
        (lambda: Matern32(1.0, 1.0) * Matern12(1.0, 1.0), 0.0),
        (lambda: WidelyLinear(Matern12(1.0, 1.0), 0.5), 0.0),
        (lambda: Matern12(1.0, 1.0), 0.01j),
        (wobble, 0.0),
    ],
)
def test_are_other_kernels_left_to_tensorflow(kernel, pseudo, results):
    gp = cgp.StateSpaceGP(kernel(), 0.05, pseudo)
    assert np.isfinite(gp.log_marginal_likelihood(*data()))
    assert results == [None]


def test_are_places_refused_that_are_not_in_order():
    terms = native_likelihood.numbers_of(Matern12(1.0, 2.0).markov_terms())
    noise, z = tf.constant(0.1, tf.float64), tf.ones([1, 3], tf.complex128)

    def likelihood(*x):
        places = tf.constant([x], tf.float64)
        return native.attempt("cgp_state_space_likelihood", *terms, noise, x=places, z=z)

    np.testing.assert_allclose(likelihood(-5.0, -4.0, -1.0), likelihood(0.0, 1.0, 4.0))
    assert likelihood(0.0, 2.0, 1.0) is None


def test_has_a_kernel_whose_form_is_its_own_not_the_terms_of_its_base():
    class Still(Matern12):
        def markov_form(self):
            return Constant(2.0).markov_form()

    assert Still().markov_terms() is None
    assert Matern12(1.0, 1.0).markov_terms() is not None


def test_has_a_kernel_whose_form_comes_from_another_base_no_terms():
    class Other:
        def markov_form(self):
            return Matern32(4.0, 2.0).markov_form()

        def moments(self, x1, x2):
            return 4.0 * super().moments(x1, x2)[0], None

    class Mixed(Other, Matern32):
        pass

    assert Mixed(1.0, 2.0).markov_terms() is None
    x, z = data()
    found = cgp.StateSpaceGP(Mixed(1.0, 2.0), 0.1).log_marginal_likelihood(x, z)
    expected = cgp.ExactGP(Matern32(4.0, 2.0), 0.1).log_marginal_likelihood(x, z)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_does_a_kernel_keep_its_own_check_of_points():
    class Shy(Matern12):
        def moments(self, x1, x2):
            return super().moments(x1, x2)

        def check_points(self, x):
            raise ValueError("not there")

    class Plain(Matern12):
        def moments(self, x1, x2):
            raise ValueError("nowhere")

    with pytest.raises(ValueError, match="not there"):
        cgp.RecursiveGP(Shy(), 0.1).step(0.0, 1j)
    with pytest.raises(ValueError, match="nowhere"):  # the check inherited knows nothing of it
        cgp.RecursiveGP(Plain(), 0.1).step(0.0, 1j)


@pytest.mark.parametrize("count", [257, 300, 600])
def test_are_gradients_at_one_place_those_of_the_exact_process(count):
    rng = np.random.default_rng(0)
    z = tf.constant(rng.normal(size=count) + 1j * rng.normal(size=count))
    found = []
    for kind in (cgp.StateSpaceGP, cgp.ExactGP):
        gp = kind(Matern32(1.0, 2.0), 0.1)
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = gp.log_marginal_likelihood(np.zeros(count), z)
        found.append([value, *tape.gradient(value, [z, *gp.trainable_variables])])
    for a, b in zip(*found, strict=True):
        b = np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9 * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("name", KERNELS)
def test_are_terms_the_states_of_the_form(name):
    kernel = KERNELS[name]()
    form = kernel.markov_form()
    step = tf.constant([0.0, 1e-9, 0.3, 0.3, 40.0, 1e5], tf.float64)
    numbers = native_likelihood.numbers_of(kernel.markov_terms())
    F, G = native.op("cgp_markov_discretize")(*numbers, steps=step)
    transition, noise = form.discretize(tf.zeros_like(step), step)
    np.testing.assert_allclose(F, transition, rtol=1e-10, atol=1e-14)
    noise = noise.numpy()
    found = (G @ tf.linalg.adjoint(G)).numpy()
    size = np.sqrt(np.einsum("tii->ti", noise).real)  # each element to its own size
    size = np.where(size > 0.0, size, 1.0)
    scale = size[:, :, None] * size[:, None, :]
    np.testing.assert_allclose(found / scale, noise / scale, rtol=0, atol=1e-13)
    read = np.cumsum([term.order + 1 for term in kernel.markov_terms()]) - 1
    np.testing.assert_array_equal(form.h, np.isin(np.arange(form.size), read))


@pytest.mark.parametrize(
    ("x", "z"),
    [
        ([0.0, 1.0], [1.0, 2.0]),
        ([0.0, 1.0], [1j, np.inf]),
        ([0.0, np.nan], [1j, 1.0]),
        ([0.0, 1.0], [np.nan * 1j, np.nan * 1j]),
        ([0.0, 1e200], [1j, 1.0]),
        ([0.0, 1.0], [1j, 1e200]),
        ([0.0, 1e17], [1j, 1.0]),
        ([0.0, 1.0], [1j, 1.0, 2.0]),
    ],
)
def test_are_errors_those_without_the_core(x, z, without_core):
    messages = []
    for call in (lambda f, *a: f(*a), without_core):
        gp = cgp.StateSpaceGP(Matern12(1.0, 1.0) * Rotation(1.0), 0.1)
        with pytest.raises((TypeError, ValueError)) as caught:
            call(gp.log_marginal_likelihood, np.array(x), np.array(z))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_is_a_second_derivative_an_error(results):
    gp = cgp.StateSpaceGP(KERNELS["one state"](), 0.05)
    variable = gp.trainable_variables[0].value
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            value = gp.log_marginal_likelihood(*data())
        gradient = inner.gradient(value, variable)
    assert None not in results
    with pytest.raises(NotImplementedError, match="differentiable once"):
        outer.gradient(gradient, variable)


def test_serves_the_graph_of_training_and_no_other(results):
    gp = cgp.StateSpaceGP(KERNELS["two states"](), 0.05)
    x, z = data()
    x = x[::-1].copy()
    value = gp.log_marginal_likelihood(x, z)
    traced = tf.function(gp.log_marginal_likelihood)(tf.constant(x), tf.constant(z))
    assert results[1:] == [None]
    np.testing.assert_allclose(traced, value, rtol=1e-13)
    results.clear()
    gp.compile(optimizer=keras.optimizers.SGD(0.0))
    assert not gp.jit_compile
    history = gp.fit(x, z, epochs=1, verbose=0)
    assert results
    assert None not in results
    count = np.sum(~np.isnan(z))
    np.testing.assert_allclose(history.history["loss"][0], -value / count, rtol=1e-6)


def test_do_many_series_on_threads_give_the_same_each_time(results, without_core):
    gp = cgp.StateSpaceGP(KERNELS["two states"](), 0.05)
    rng = np.random.default_rng(6)
    x = np.cumsum(rng.uniform(0.1, 1.0, 600))
    z = rng.normal(size=(70, 600)) + 1j * rng.normal(size=(70, 600))
    first, again = (likelihood_and_gradients(gp, x, z) for _ in range(2))
    for a, b in zip([first[0], *first[1]], [again[0], *again[1]], strict=True):
        np.testing.assert_array_equal(a, b)
    alone = [float(gp.log_marginal_likelihood(x, row)) for row in z[[0, 33, 69]]]
    np.testing.assert_allclose(first[0][[0, 33, 69]], alone, rtol=1e-13)
    assert None not in results
