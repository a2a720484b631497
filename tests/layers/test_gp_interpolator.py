"""Interpolation of a batch: what exact Gaussian processes of its series say, by as few factors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import cgp
from cgp.gp import interpolation
from cgp.kernels import RBF, Matern32, Rotation, WidelyLinear
from cgp.layers import GPInterpolator
from tests.layers.models import Gain, normals
from tests.long_cases import eagerly_and_in_a_graph, eagerly_or_in_a_graph, long_except
from tests.reference import gaussian_process as reference

SERIES, N, M, NOISE = 4, 12, 5, 0.05
RNG = np.random.default_rng(9)


def proper(dimensions=1):
    scales, turns = ([1.5, 2.5], [0.2, -0.1]) if dimensions == 2 else (1.5, 0.2)
    return RBF(1.2, scales) * Rotation(turns) + Matern32(0.3, 4.0)


def improper(dimensions=1):
    return WidelyLinear(proper(dimensions), 0.4 - 0.3j)


def positions(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.0, 6.0, shape)


def series(missing=0, seed=1):
    """`[B, N]`: the first lacks none, the next so many, others up to as many."""
    rng = np.random.default_rng(seed)
    z = normals(rng, SERIES, N)
    for number, of in zip((0, missing, missing // 2, 1 if missing else 0), z, strict=True):
        of[rng.permutation(N)[:number]] = np.nan
    return z


def known_noise(*shape):
    return np.random.default_rng(2).uniform(0.01, 0.3, shape)


# Kernel, series, positions, new positions, known part of the noise.
CASES = {
    "all there": (proper(), series(), positions(N), positions(M), None),
    "few missing": (proper(), series(3), positions(N), positions(M), None),
    "many missing": (proper(), series(8), positions(N), positions(M), None),
    "one all missing": (proper(), series(N), positions(N), positions(M), None),
    "two dimensions": (proper(2), series(4), positions(N, 2), positions(M, 2), None),
    "own positions": (proper(2), series(3), positions(SERIES, N, 2), positions(M, 2), None),
    "own new positions": (proper(), series(3), positions(N), positions(SERIES, M, 1), None),
    "own, many missing": (proper(), series(8), positions(N), positions(SERIES, M, 1), None),
    "all own": (
        proper(), series(), positions(SERIES, N, 1), positions(SERIES, M, 1), known_noise(N)
    ),
    "noise of elements": (proper(), series(3), positions(N), positions(M), known_noise(N)),
    "noise of series": (proper(), series(3), positions(N), positions(M), known_noise(SERIES, 1)),
    "improper": (improper(), series(3), positions(N), positions(M), None),
    "improper, many": (improper(2), series(9), positions(N, 2), positions(M, 2), None),
    "improper, own": (improper(), series(2), positions(SERIES, N, 1), positions(M), None),
}  # fmt: skip


def each(a, own):
    """An array for each series, of one for all or for each; `own` axes are of one series."""
    a = np.asarray(a)
    a = a[:, None] if own == 2 and a.ndim == 1 else a
    return np.broadcast_to(a, (SERIES, *a.shape[a.ndim - own :]))


def expected(kernel, z, x, x_new, known):
    """What the layer should return, and the log likelihoods, by NumPy in the augmented form."""
    known = each(np.broadcast_to(0.0 if known is None else known, z.shape), 1)
    found = {name: [] for name in ("mean", "variance", "pseudo_variance", "log_likelihood")}
    for own, at, new, noise in zip(z, each(x, 2), each(x_new, 2), known, strict=True):
        k, c = (np.asarray(a) for a in (kernel.covariance(at), kernel.pseudo_covariance(at)))
        k = k + np.diag(NOISE + noise)
        pairs = [(new, at), (new, new)]
        moments = [
            f(*pair).numpy()
            for pair in pairs
            for f in (kernel.covariance, kernel.pseudo_covariance)
        ]
        mean, variance, pseudo = reference.posterior(own, k, c, *moments)
        found["mean"].append(mean)
        found["variance"].append(np.diag(variance).real)
        found["pseudo_variance"].append(np.diag(pseudo))
        found["log_likelihood"].append(reference.log_marginal_likelihood(own, k, c))
    return {name: np.stack(values) for name, values in found.items()}


def assert_moments(found, values, atol=1e-12):
    assert found.keys() == {"mean", "variance", "pseudo_variance"}
    for name in found:
        np.testing.assert_allclose(found[name], values[name], rtol=0, atol=atol, err_msg=name)


# --- what it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_says_the_layer_what_the_covariances_do(case):
    kernel, z, x, x_new, known = CASES[case]
    layer = GPInterpolator(kernel, NOISE, loss_weight=2.0)
    values = expected(*CASES[case])
    assert_moments(layer((x, z, x_new), noise_variance=known), values)
    loss = -2.0 * np.sum(values["log_likelihood"]) / np.sum(~np.isnan(z))
    assert float(layer.losses[0]) == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("noise", long_except([0.1, 1e-3], 0.1))
@pytest.mark.parametrize("missing", long_except([0, 3, 8], 3, 8))
@pytest.mark.parametrize("kernel", [proper(2), improper(2)], ids=["proper", "improper"])
def test_is_a_layer_the_exact_process_of_each_series(kernel, missing, noise):
    x, x_new, z = positions(N, 2), positions(M, 2, seed=3), series(missing)
    gp = cgp.ExactGP(kernel, noise)
    found = GPInterpolator(kernel, noise, x, x_new)(z)
    for b in range(SERIES):
        gp.condition(x, z[b])
        assert_moments({name: a[b] for name, a in found.items()}, gp.predict(x_new))


def test_is_one_factor_as_exact_as_those_of_each_series(monkeypatch):
    """Where a gap is wide and the noise small, the variance within it is in its last digits."""
    x, x_new, z = np.linspace(0.0, 10.0, 60), np.linspace(4.0, 9.0, 20), normals(RNG, SERIES, 60)
    z[1, 25:54] = np.nan
    layer = GPInterpolator(RBF(1.0, 1.0), 1e-11, x, x_new)
    found = layer(z)["variance"]
    monkeypatch.setattr(
        interpolation, "_by_one_factor", lambda *given: interpolation._by_factors(*given)
    )
    np.testing.assert_allclose(found, layer(z)["variance"], rtol=0, atol=2e-7)


@pytest.mark.parametrize(("case", "factors"), [("few missing", 1), ("many missing", SERIES)])
def test_has_a_batch_at_shared_positions_one_factor(case, factors, monkeypatch):
    kernel, z, x, x_new, _ = CASES[case]
    sizes, cholesky = [], interpolation.cholesky

    def counted(a):
        sizes.append(a.shape)
        return cholesky(a)

    monkeypatch.setattr(interpolation, "cholesky", counted)
    GPInterpolator(kernel, NOISE, x, x_new)(z)
    assert [shape for shape in sizes if shape[-1] == N] == [(factors, N, N)]


def test_is_what_all_series_lack_nothing_to_solve_for():
    kernel, z, x, x_new, _ = CASES["few missing"]
    z = z.copy()
    z[:, 2:9] = np.nan
    found = GPInterpolator(kernel, NOISE, x, x_new)(z)
    assert_moments(found, expected(kernel, z, x, x_new, None))
    nothing = GPInterpolator(kernel, NOISE, x, x_new)(np.full_like(z, np.nan))
    np.testing.assert_array_equal(nothing["mean"], 0.0)
    np.testing.assert_allclose(nothing["variance"], 1.5, rtol=1e-14)


def test_is_missing_what_is_nan_or_hidden_or_said_to_be():
    kernel, z, x, x_new, _ = CASES["few missing"]
    layer, absent = GPInterpolator(kernel, NOISE, x, x_new), np.isnan(z)
    there = np.where(absent, 1e3, z)
    found = layer(z)
    assert_moments(layer(there, missing=absent), found, atol=0)
    assert_moments(layer(np.ma.masked_array(there, absent)), found, atol=0)
    assert_moments(layer((x, np.ma.masked_array(there, absent), x_new)), found, atol=0)


def test_has_a_single_series_no_batch_axis():
    kernel, z, x, x_new, _ = CASES["few missing"]
    layer = GPInterpolator(kernel, NOISE, x, x_new)
    found = layer(z[1])
    assert_moments(found, {name: a[0] for name, a in layer(z[1:2]).items()}, atol=1e-14)


def test_is_the_layer_of_single_precision_that_of_double():
    _, z, x, x_new, _ = CASES["few missing"]
    kernel = RBF(1.2, 1.5, dtype="float32") * Rotation(0.2, dtype="float32")
    layer = GPInterpolator(kernel, NOISE, x, x_new)
    found = layer(z.astype("complex64"))
    assert [a.dtype.name for a in found.values()] == ["complex64", "float32", "complex64"]
    assert layer.trainable_variables[0].dtype == "float32"
    double = GPInterpolator(RBF(1.2, 1.5) * Rotation(0.2), NOISE, x, x_new)(z)
    assert_moments(found, double, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_is_a_graph_of_any_batch_what_is_eager(shared):
    kernel, few, x, x_new, _ = CASES["few missing"]
    x = x[:, None] if shared else each(x, 2)
    layer, shape = GPInterpolator(kernel, NOISE), [N, 1] if shared else [None, N, 1]

    @tf.function(
        input_signature=[tf.TensorSpec(shape, "float64"), tf.TensorSpec([None, N], "complex128")]
    )
    def graph(x, z):
        return layer((x, z, x_new))

    for z in (few, CASES["many missing"][1], few[:1], CASES["all there"][1][:3]):
        at = x if shared else x[: len(z)]
        assert_moments(graph(at, z), layer((at, z, x_new)), atol=1e-13)


@pytest.mark.parametrize("own", long_except(["x", "x_new", "both"], "both"))
@pytest.mark.parametrize("batch", [(2, 2), (1, 4)])
def test_do_several_batch_axes_what_one_does(batch, own):
    kernel, z, x, x_new, _ = CASES["few missing"]
    x, x_new = x[:, None], x_new[:, None]
    x = positions(SERIES, N, 1) if own != "x_new" else x
    x_new = positions(SERIES, M, 1, seed=3) if own != "x" else x_new
    layer = GPInterpolator(kernel, NOISE)
    arranged = [a.reshape(*batch, *a.shape[1:]) if len(a) == SERIES else a for a in (x, z, x_new)]
    flat = layer((x, z, x_new))
    assert_moments(
        layer(arranged),
        {name: a.numpy().reshape(*batch, M) for name, a in flat.items()},
        atol=1e-13,
    )


@pytest.mark.parametrize("own", long_except(["x", "x_new"], "x"))
def test_are_batches_that_differ_refused_in_graphs(own):
    kernel, z, x, x_new, _ = CASES["few missing"]
    layer = GPInterpolator(kernel, NOISE)
    given = {"x": x[:, None], "x_new": x_new[:, None]}
    given[own] = given[own][None]
    shapes = {name: [None, *a.shape[-2:]] if name == own else a.shape for name, a in given.items()}
    signature = [
        tf.TensorSpec(shapes["x"], "float64"),
        tf.TensorSpec([None, N], "complex128"),
        tf.TensorSpec(shapes["x_new"], "float64"),
    ]
    graph = tf.function(lambda *inputs: layer(inputs), input_signature=signature)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"batch axes of {own} must be"):
        graph(given["x"], z, given["x_new"])
    inputs = given["x"], z[:1], given["x_new"]
    found = graph(*inputs)
    assert found["mean"].shape == (1, M)
    assert_moments(found, layer(inputs), atol=1e-13)


# --- gradients ------------------------------------------------------------------------------------


def number(layer, *arguments):
    """A real number that depends on all that a layer says."""
    rng = np.random.default_rng(5)
    x, z, x_new, missing, known = arguments
    found = layer((x, z, x_new), missing, known)
    weights = {name: normals(rng, *a.shape) for name, a in found.items()}
    total = sum(
        tf.reduce_sum(weights[name] * tf.cast(a, tf.complex128)) for name, a in found.items()
    )
    return tf.math.real(total) + layer.losses[0]


@eagerly_and_in_a_graph(
    ("case",),
    ["few missing", "own new positions", "many missing", "all own", "improper"],
    ["many missing", "improper"],
    ["many missing", "all own"],
)
def test_are_gradients_those_of_central_differences(case, eagerly):
    kernel, z, x, x_new, known = CASES[case]
    rng, missing = np.random.default_rng(6), np.isnan(z)
    layer = GPInterpolator(kernel, NOISE, loss_weight=0.7)
    x, x_new = (a[:, None] if a.ndim == 1 else a for a in (x, x_new))
    known = known_noise(N) if known is None else known
    start = [x, np.where(missing, 0.3, z), x_new, known]
    variables = layer.trainable_variables
    assert len(variables) >= 6

    def value_of(x, z, x_new, known):
        return number(layer, x, z, x_new, missing, known)

    def value_and_gradients(x, z, x_new, known):
        inputs = [tf.convert_to_tensor(a) for a in (x, z, x_new, known)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = value_of(*inputs)
        return value, tape.gradient(value, [*inputs, *variables])

    if not eagerly:
        value_of, value_and_gradients = tf.function(value_of), tf.function(value_and_gradients)
    _, gradients = value_and_gradients(*start)
    assert np.all(gradients[1].numpy()[missing] == 0.0)
    values = [*start, *(v.numpy() for v in variables)]
    for i, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
        direction = rng.normal(size=value.shape)
        if np.iscomplexobj(value):
            direction = direction + 1j * rng.normal(size=value.shape)
        sides = []
        for step in (1e-5, -1e-5):
            moved = [*values]
            moved[i] = value + step * direction
            for variable, new in zip(variables, moved[4:], strict=True):
                variable.assign(new)
            sides.append(float(value_of(*map(tf.convert_to_tensor, moved[:4]))))
            for variable, old in zip(variables, values[4:], strict=True):
                variable.assign(old)
        slope = np.sum(np.real(np.conj(gradient) * direction))
        assert slope == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-7, abs=1e-7)


# --- in a network ---------------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="layers_tests")
class Parts(keras.layers.Layer):
    """Real numbers, of what an interpolator says."""

    def call(self, said):
        mean, variance = said["mean"], said["variance"]
        return tf.stack([tf.math.real(mean), tf.math.imag(mean), variance], axis=-1)

    def compute_output_spec(self, said):
        return keras.KerasTensor((*said["mean"].shape, 3), "float64")


def network():
    """Gain, interpolator, parts; pilots in a fixed pattern, of known noise, some missing."""
    z = keras.Input((N,), dtype="complex128")
    missing, noise = keras.Input((N,), dtype="bool"), keras.Input((1,), dtype="float64")
    kernel = RBF(2.0, 2.2) * Rotation(0.1)
    between = GPInterpolator(kernel, 0.1, positions(N), positions(M), name="between")
    said = between(Gain()(z), missing=missing, noise_variance=noise)
    return cgp.Functional([z, missing, noise], Parts(dtype="float64")(said))


@pytest.mark.long
def test_learn_a_gain_and_hyperparameters_between_layers(tmp_path):
    model, z, known = network(), series(3), known_noise(SERIES, 1)
    inputs = [np.where(np.isnan(z), 7.0, z), np.isnan(z), known]
    kernel = RBF(1.2, 1.5) * Rotation(0.2)
    truth = expected(kernel, (1.3 - 0.4j) * z, positions(N), positions(M), known)
    goal = np.stack([truth["mean"].real, truth["mean"].imag, truth["variance"]], axis=-1)
    loss = keras.losses.MeanSquaredError(dtype="float64")
    model.compile(cgp.optimizers.LBFGS(ftol=1e-15), loss)
    losses = model.fit(inputs, goal, verbose=0).history["loss"]
    assert losses[-1] < 1e-5 * losses[0]
    learned = model.get_layer("between").parameters()
    assert learned["rotation.frequency"] == pytest.approx(0.2, abs=0.01)
    assert learned["noise_variance"] == pytest.approx(NOISE, rel=0.05)
    gain = next(layer for layer in model.layers if isinstance(layer, Gain)).gain
    np.testing.assert_allclose(gain, [1.3, -0.4], atol=0.03)

    predicted = model.predict(inputs, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = cgp.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), predicted)
    assert len(loaded.trainable_variables) == len(model.trainable_variables) == 5


@pytest.mark.long
def test_learns_a_layer_by_the_likelihood_of_its_series():
    x = positions(30, seed=7)
    covariance = proper().covariance(x).numpy() + NOISE * np.eye(30)
    z = normals(np.random.default_rng(8), 40, 30) @ np.linalg.cholesky(covariance).T
    layer = GPInterpolator(RBF(0.5, 1.0) * Rotation(0.1), 0.2, x, [0.0], loss_weight=1.0)
    pilots = keras.Input((30,), dtype="complex128")
    model = cgp.Functional(pilots, layer(pilots))
    model.compile(cgp.optimizers.LBFGS())
    before = model.evaluate(z, verbose=0)
    model.fit(z, verbose=0)
    gp = cgp.ExactGP(layer.kernel, float(layer.noise_variance))
    likelihood = gp.log_marginal_likelihood(x, z).numpy()
    assert model.evaluate(z, verbose=0, batch_size=40) == pytest.approx(-likelihood.mean() / 30)
    assert -likelihood.mean() / 30 < before - 0.05
    gp.compile()
    with pytest.warns(RuntimeWarning, match="40 series of 30 samples each"):
        gp.fit(x, z, verbose=0)  # goes no further
    assert gp.log_marginal_likelihood(x, z).numpy().mean() - likelihood.mean() < 1e-3


@eagerly_or_in_a_graph
def test_counts_a_prior_once_in_all_batches(eagerly):
    prior = tfp.distributions.LogNormal(np.float64(-2.0), np.float64(0.3))
    x, x_new, z = positions(N), positions(M), series(3)
    layer = GPInterpolator(
        proper(), NOISE, x, x_new, loss_weight=1.0, priors={"noise_variance": prior}
    )
    density = stats.lognorm(0.3, scale=np.exp(-2.0)).logpdf(NOISE)
    likelihood = np.sum(expected(proper(), z, x, x_new, None)["log_likelihood"])
    layer(z)
    loss = pytest.approx(-(likelihood + density) / np.sum(~np.isnan(z)), rel=1e-12)
    assert float(layer.losses[0]) == loss
    pilots = keras.Input((N,), dtype="complex128")
    model = cgp.Functional(pilots, layer(pilots))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    whole = z[[0, 0, 0, 0]]
    value = model.evaluate(whole, batch_size=2, verbose=0)
    likelihood = np.sum(expected(proper(), whole, x, x_new, None)["log_likelihood"])
    assert value == pytest.approx(-(likelihood + density) / whole.size, rel=1e-12)


@pytest.mark.parametrize("way", long_except(["file", "clone"], "file"))
def test_keep_two_interpolators_the_kernel_that_they_share(way, tmp_path):
    kernel = proper(2)
    at, z = keras.Input((N, 2), dtype="float64"), keras.Input((N,), dtype="complex128")
    new = keras.Input((M, 2), dtype="float64")
    first = GPInterpolator(kernel, NOISE)((at, z, new))
    second = GPInterpolator(kernel, 0.5, positions(N, 2), positions(M, 2, seed=3))(z)
    model = cgp.Functional([at, z, new], [first["mean"], second["mean"]])
    assert model.output_shape == [(None, M), (None, M)]
    own = positions(SERIES, N, 2), series(3), positions(SERIES, M, 2)
    if way == "file":
        model.save(tmp_path / "two.keras")
        other = cgp.load_model(tmp_path / "two.keras")
    else:
        other = cgp.clone_model(model)
    layers = [layer for layer in other.layers if isinstance(layer, GPInterpolator)]
    assert layers[0].kernel is layers[1].kernel
    assert len(other.trainable_variables) == 7
    other.set_weights(model.get_weights())
    for a, b in zip(other(own), model(own), strict=True):
        np.testing.assert_array_equal(a, b)
    alone = GPInterpolator.from_config(
        GPInterpolator(kernel, 0.5, fixed="noise_variance").get_config()
    )
    assert alone.noise_variance.fixed
    assert alone.x is None


# --- bad input ------------------------------------------------------------------------------------

X, X_NEW, Z = positions(N), positions(M), series()


def on(*arguments, **named):
    return lambda: GPInterpolator(proper(), NOISE)(*arguments, **named)


def symbolic(x, x_new):
    shapes = keras.Input(x, dtype="float64"), keras.Input(x_new, dtype="float64")
    return on((shapes[0], keras.Input((N,), dtype="complex128"), shapes[1]))


REFUSED = {
    "no kernel": (lambda: GPInterpolator(RBF, 0.1), TypeError, "kernel must be"),
    "two dtypes": (lambda: GPInterpolator(RBF(), 0.1, dtype="float32"), TypeError, "float32"),
    "no noise": (lambda: GPInterpolator(RBF(), 0.0), ValueError, "noise_variance"),
    "noise of groups": (lambda: GPInterpolator(RBF(), [0.1, 0.2]), ValueError, "one number"),
    "positions of one kind": (lambda: GPInterpolator(RBF(), 0.1, X), ValueError, "x and x_new"),
    "a batch of fixed ones": (
        lambda: GPInterpolator(RBF(1.0, 1.0), 0.1, X[None, :, None], X), ValueError, "call it on"
    ),
    "two dimensions": (
        lambda: GPInterpolator(RBF(), 0.1, X, X_NEW[:4].reshape(2, 2)), ValueError, "dimensions"
    ),
    "a negative weight": (lambda: GPInterpolator(RBF(), 0.1, loss_weight=-1), ValueError, "weight"),
    "a weight in words": (
        lambda: GPInterpolator(RBF(), 0.1, loss_weight="a"), TypeError, "loss_weight must be"
    ),
    "a dictionary": (on({"z": Z}), TypeError, "arrays or tensors, got dict"),
    "nothing": (on(None), TypeError, "arrays or tensors, got NoneType"),
    "no array among them": (on((X, None, X_NEW)), TypeError, "arrays or tensors, got NoneType"),
    "no series": (on((X, Z[:0], X_NEW)), ValueError, "at least one series"),
    "a real input": (
        lambda: GPInterpolator(proper(), NOISE, X, X_NEW)(keras.Input((N,), dtype="float64")),
        TypeError, "z must be complex128, got float64",
    ),
    "no positions": (on(Z), ValueError, "has no positions"),
    "two inputs": (on((X, Z)), ValueError, "got 2"),
    "real series": (on((X, Z.real, X_NEW)), TypeError, "complex"),
    "single precision": (on((X, Z.astype("complex64"), X_NEW)), TypeError, "complex64"),
    "too few positions": (on((X[1:], Z, X_NEW)), ValueError, "as many points as x"),
    "another batch": (on((each(X, 2)[1:], Z, X_NEW)), ValueError, "batch axes of x,"),
    "another new batch": (on((X, Z, each(X_NEW, 2)[1:])), ValueError, "batch axes of x_new"),
    "new dimensions": (on((X, Z, positions(M, 2))), ValueError, "as many dimensions"),
    "no axis of dimensions": (symbolic((N,), (M, 1)), ValueError, r"x\[..., None\]"),
    "none of new ones": (symbolic((N, 1), (M,)), ValueError, r"x_new\[..., None\]"),
    "NaN in positions": (on((X * np.nan, Z, X_NEW)), ValueError, "finite"),
    "infinite series": (on((X, Z * np.inf, X_NEW)), ValueError, "infinite"),
    "negative noise": (on((X, Z, X_NEW), noise_variance=-1.0), ValueError, "not negative"),
    "noise of a batch": (
        on((X, Z, X_NEW), noise_variance=np.ones(SERIES)), ValueError, "broadcast"
    ),
    "missing as numbers": (on((X, Z, X_NEW), missing=np.ones(Z.shape)), TypeError, "bool"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_is_what_makes_no_sense_refused_by_name(case):
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("noise", [-5.0, np.inf])
def test_is_noise_that_is_none_refused_in_a_graph(noise):
    layer = GPInterpolator(proper(), NOISE, X, X_NEW)
    graph = tf.function(lambda z, noise: layer(z, noise_variance=noise)["mean"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"noise_variance, .* not negative"):
        graph(Z, tf.fill([SERIES, 1], tf.constant(noise, tf.float64)))


def test_refuses_a_layer_xla_and_another_kernel():
    layer = GPInterpolator(proper(), NOISE, X, X_NEW)
    with pytest.raises(ValueError, match="jit_compile must not be True"):
        tf.function(lambda z: layer(z), jit_compile=True)(Z)
    assert not layer.supports_jit
    with pytest.raises(AttributeError, match="kernel"):
        layer.kernel = RBF(1.0, 1.0)
