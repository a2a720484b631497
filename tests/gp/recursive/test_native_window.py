"""Samples taken in by a plain C function against the recursion in TensorFlow, which
`tests/gp/recursive/test_recursive_gp.py` compares with refitting in NumPy."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native
from cgp.gp.recursive.window_cell import CompiledWindow
from cgp.kernels import (
    RBF,
    Conjugate,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RandomWalk,
    RationalQuadratic,
    Rotation,
    White,
    WidelyLinear,
)

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)

KERNELS = {
    "constant": Constant(0.7),
    "white": White(0.4) + RBF(1.0, 2.0),
    "rbf": RBF(1.2, 1.5),
    "rational quadratic": RationalQuadratic(0.8, 1.5, 0.6),
    "matern 1/2": Matern12(1.1, 2.0),
    "matern 3/2": Matern32(1.1, 2.0),
    "matern 5/2": Matern52(1.1, 2.0),
    "periodic": Periodic(0.9, 0.8, 0.3),
    "rotation": Matern32(1.0, 4.0) * Rotation(-0.2),
    "sum of products": Matern12(1.0, 4.0) * Rotation(0.2) * 0.5 + RBF(1.0, 1.0) * Rotation(-0.1),
    "conjugate": Conjugate(Matern32(1.0, 4.0) * Rotation(0.2)),
    "widely linear": WidelyLinear(Matern32(1.0, 4.0) * Rotation(0.2), 0.5 - 0.3j),
    "of an improper one": WidelyLinear(WidelyLinear(RBF(1.0, 1.0) * Rotation(0.1), 0.4j), 0.3),
    "its conjugate": Conjugate(WidelyLinear(RBF(1.0, 1.0) * Rotation(0.1), 0.4j)),
    "real times improper": RBF(0.8, 3.0)
    * WidelyLinear(Matern12(1.0, 1.0) * Rotation(0.1), 0.2 + 0.4j),
    "improper times improper": WidelyLinear(RBF(1.0, 1.0), 0.2j)
    * WidelyLinear(Matern12(1.0, 1.0), 0.4),
    "proper plus improper": RBF(1.0, 1.0) * Rotation(0.2) + WidelyLinear(Matern12(1.0, 1.0), 0.4j),
}


def samples(rng, streams, steps, dimensions=1, dtype="float64", start=0.0, at_one_place=True):
    x = start + np.cumsum(rng.uniform(0.2, 1.0, (streams, steps, dimensions)), axis=1)
    if at_one_place:
        x[:, 1::4] = x[:, ::4][:, : len(x[0, 1::4])]
    z = rng.normal(size=(streams, steps)) + 1j * rng.normal(size=(streams, steps))
    z[rng.uniform(size=z.shape) < 0.2] = np.nan
    return x.astype(dtype), z.astype(np.result_type(dtype, np.complex64))


def assert_takes(gp, blocks, tolerance=None):
    """Blocks one after another, each against TensorFlow's recursion from the same window."""
    recursion = gp.cell.recursion
    # A budget has the inverse of a matrix whose condition is some 1e5 at one place.
    tolerance = tolerance or (1e-9 if gp.policy == "budget" else 1e-11)
    compiled = CompiledWindow(recursion)
    assert compiled.serves(b"present")
    x, _ = blocks[0]
    empty = recursion.empty(len(x), x.shape[-1], gp.variable_dtype)
    if gp.policy == "budget":
        empty = recursion.refactorized(empty)  # with the noise of the present hyperparameters
    arrays = [a.numpy() for a in tf.nest.flatten(empty)]
    for block in blocks:
        before = tf.nest.pack_sequence_as(empty, [tf.constant(a) for a in arrays])
        found = compiled.take(*block, arrays)
        after, expected = recursion.scan(before, *map(tf.constant, block))
        found = [*found.predicted, found.innovation, *found.filtered, *arrays]
        expected = [*expected.predicted, expected.innovation, *expected.filtered]
        expected += tf.nest.flatten(after)
        for a, b in zip(found, expected, strict=True):
            b = b.numpy()
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1, np.nanmax(np.abs(b))))


@pytest.mark.parametrize("steps", [3, pytest.param(6, marks=pytest.mark.long)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_is_a_kernel_of_instructions_that_of_tensorflow(kernel, steps):
    gp = cgp.RecursiveGP(KERNELS[kernel], 0.1, capacity=4)
    rng = np.random.default_rng(0)
    assert_takes(gp, [samples(rng, 1, steps), samples(rng, 1, steps, start=steps)])


@pytest.mark.parametrize(
    ("policy", "capacity", "pseudo", "forgetting"),
    [
        pytest.param(*window, pseudo, forgetting, marks=() if is_short else pytest.mark.long)
        for window in (
            ("sliding", 4),
            ("sliding", 1),
            ("growing", 20),
            ("budget", 4),
            ("budget", 1),
        )
        for pseudo in (0.0, 0.1 - 0.05j, 0.2)
        for forgetting in (1.0, 0.9)
        # Improper windows are of real numbers; a proper budget has conjugates of its own.
        for is_short in [
            forgetting == 0.9
            and (pseudo == 0.1 - 0.05j or (window[0], pseudo) == ("budget", 0.0))
            and window[1] > 1
        ]
    ],
)
def test_is_every_window_that_of_tensorflow(policy, capacity, pseudo, forgetting):
    if policy == "budget" and pseudo == 0.2:
        pseudo = 0.19  # it refuses noise in one direction alone
    gp = cgp.RecursiveGP(
        KERNELS["rotation"], 0.2, pseudo, capacity=capacity, policy=policy, forgetting=forgetting
    )
    rng = np.random.default_rng(1)
    # Two measurements at one place of a part without noise are one to rounding.
    given = {"at_one_place": abs(pseudo) < 0.2}
    assert_takes(gp, [samples(rng, 3, 6, **given), samples(rng, 3, 6, start=6.0, **given)])


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.long)])
def test_are_several_dimensions_and_precisions_those_of_tensorflow(dtype):
    rotation = Rotation([0.1, -0.2], dtype=dtype)
    waves = Periodic(0.5, 0.8, [0.3, 0.1], dtype=dtype) + RationalQuadratic(
        0.8, [1.5, 3.0], 0.6, dtype=dtype
    )
    gp = cgp.RecursiveGP(
        RBF(1.0, [1.0, 2.0], dtype=dtype) * rotation + waves, 0.2, capacity=4, dtype=dtype
    )
    rng = np.random.default_rng(2)
    blocks = [samples(rng, 2, 6, 2, dtype), samples(rng, 2, 6, 2, dtype, start=6.0)]
    assert_takes(gp, blocks, 1e-11 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize(
    ("policy", "forgetting"),
    [
        ("sliding", 0.9),
        pytest.param("budget", 1.0, marks=pytest.mark.long),
        pytest.param("sliding", 1.0, marks=pytest.mark.long),
        pytest.param("budget", 0.9, marks=pytest.mark.long),
    ],
)
def test_is_a_mean_taken_away_and_added(forgetting, policy):
    mean = cgp.means.Polynomial(1, [1.0 + 2.0j, 0.3j])
    gp = cgp.RecursiveGP(
        RBF(1.0, 1.0), 0.1, mean=mean, capacity=4, forgetting=forgetting, policy=policy
    )
    rng = np.random.default_rng(4)
    assert_takes(gp, [samples(rng, 2, 6), samples(rng, 2, 6, start=6.0)])


def test_may_a_date_have_a_fine_lengthscale():
    gp = cgp.RecursiveGP(RBF(1.0, 1e-3) * Rotation(100.0), 0.1, capacity=4)
    rng = np.random.default_rng(3)
    x, z = samples(rng, 1, 6)
    assert_takes(gp, [(2.46e6 + 1e-3 * x, z)])


class Doubled(RBF):
    """A kernel of a user's own, which computes something else than what it derives from."""

    def moments(self, x1, x2):
        return 2.0 * super().moments(x1, x2)[0], None


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(RandomWalk(1.0), marks=pytest.mark.long),
        pytest.param(Doubled(1.0, 1.0), marks=pytest.mark.long),
        RBF(1.0, 1.0) + Doubled(1.0, 1.0),
    ],
)
def test_is_a_kernel_without_instructions_taken_by_tensorflow(kernel):
    assert kernel.program() is None
    gp = cgp.RecursiveGP(kernel, 0.1, capacity=4)
    assert not CompiledWindow(gp.cell.recursion).serves(b"present")
    exact = cgp.ExactGP(kernel, 0.1)
    x, z = np.arange(1.0, 4.0), np.array([1j, 2.0, -1j])
    exact.condition(x, z)
    for sample in zip(x, z, strict=True):
        gp.step(*sample)
    found, expected = gp.predict([3.5]), exact.predict([3.5])
    np.testing.assert_allclose(found["variance"], expected["variance"], rtol=1e-10)


def test_does_a_window_that_fails_stay_as_it_was():
    gp = cgp.RecursiveGP(RBF(1.0, 1.0), 0.1, capacity=2)
    gp.process(np.arange(3.0), np.ones(3) + 0j)
    gp.kernel.variance.variables[0].assign(np.nan)
    compiled = CompiledWindow(gp.cell.recursion)
    assert compiled.serves(b"present")
    arrays = gp.stream.arrays()
    before = [a.copy() for a in arrays]
    assert compiled.take(np.full((1, 1, 1), 3.0), np.array([[1j]]), arrays) is None
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_is_a_kernel_of_other_dimensions_left_to_tensorflow():
    gp = cgp.RecursiveGP(RBF(1.0, [1.0, 2.0]), 0.1, capacity=2)
    with pytest.raises(ValueError, match="lengthscale has 2 elements"):
        gp.step(0.0, 1j)
    gp.step([0.0, 1.0], 1j)


def test_does_a_changed_hyperparameter_change_the_program():
    gp, other = (cgp.RecursiveGP(RBF(1.0, 1.0), 0.1, capacity=4) for _ in range(2))
    other.kernel.lengthscale.assign(3.0)
    other.noise_variance.assign(0.3)
    for sample in ((0.0, 1j), (1.0, 2.0 + 0j)):
        gp.step(*sample)
        other.step(*sample)
    gp.kernel.lengthscale.assign(3.0)
    gp.noise_variance.assign(0.3)
    found, expected = gp.step(2.0, 1j), other.step(2.0, 1j)
    np.testing.assert_allclose(found.predicted.mean, expected.predicted.mean, rtol=1e-12)
    np.testing.assert_allclose(found.filtered.variance, expected.filtered.variance, rtol=1e-12)


def test_may_threads_share_a_window():
    gp = cgp.RecursiveGP(Matern32(1.0, 2.0), 0.1, capacity=16)
    gp.step(0.0, 1j)
    failures = []

    def run(take, *given):
        try:
            for _ in range(100):
                take(*given)
        except Exception as error:  # in a thread of its own nobody would see it
            failures.append(error)

    block = np.linspace(0.0, 1.0, 64), np.ones(64) * 1j
    works = ((gp.process, *block), (gp.step, 1.0, 1j), (gp.step, 2.0, 1j))
    threads = [threading.Thread(target=run, args=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert gp.cell.recursion.is_factored(gp.cell.window(gp.stream.read()))


def test_does_a_stateless_call_use_the_state_it_is_given():
    gp = cgp.RecursiveGP(Matern32(1.0, 2.0), 0.1, capacity=4)
    gp.process(np.arange(4.0), np.array([1j, 2.0, -1j, 0.5]))
    trained, state = ([tf.constant(v.numpy()) for v in vs] for vs in gp_variables(gp))
    before = gp.predict([3.5])["mean"]
    gp.step(4.0, 3.0 + 1j)
    after = gp.predict([3.5])["mean"]
    found, _ = gp.stateless_call(trained, state, tf.constant([3.5], tf.float64))
    np.testing.assert_allclose(found["mean"], before, rtol=1e-12)
    np.testing.assert_allclose(gp.predict([3.5])["mean"], after, rtol=1e-12)
    assert not np.allclose(before, after)


def gp_variables(gp):
    return gp.trainable_variables, gp.non_trainable_variables
