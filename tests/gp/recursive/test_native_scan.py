"""The window recursion as one compiled op against that in TensorFlow, which
`tests/gp/recursive/test_recursive_gp.py` compares with refitting in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native
from cgp.gp.recursive import native_scan
from cgp.kernels import RBF, Matern12, Matern32, Rotation, WidelyLinear

pytestmark = pytest.mark.skipif(native.core().ops is None, reason="there is no compiled core")


def proper(dtype="float64"):
    return Matern32(1.0, 2.0, dtype=dtype) * Rotation(0.1, dtype=dtype)


PROCESSES = {
    "proper": (proper(), 0.1, 0.0),
    "improper": (
        WidelyLinear(Matern12(1.0, 3.0) + RBF(0.5, lengthscale=1.0), 0.4 + 0.3j),
        0.1,
        0.0,
    ),
    "improper noise": (proper(), 0.2, 0.1 - 0.05j),
    "maximally improper noise": (proper(), 0.2, 0.2),
    "nearly exact": (proper(), 1e-10, 0.0),
}


def both(gp, windows, x, z):
    """The results of the op and of TensorFlow for a block, after the blocks `windows`."""
    recursion = gp.cell.recursion
    window = recursion.empty(*x.shape[::2], gp.variable_dtype)
    for block in windows:
        window, _ = native_scan.scan(recursion, window, *block)
    window = recursion.refactorized(window) if windows else window
    assert native_scan.serves(recursion)
    return [run(recursion, window, x, z) for run in (native_scan.scan, type(recursion).scan)]


def block(rng, streams, steps, dimensions, dtype, missing=0.2, start=0.0):
    x = start + np.cumsum(rng.uniform(0.2, 1.0, (streams, steps, dimensions)), axis=1)
    z = rng.normal(size=(streams, steps)) + 1j * rng.normal(size=(streams, steps))
    z[rng.uniform(size=z.shape) < missing] = np.nan
    real = np.dtype(dtype)
    complex_ = np.result_type(real, np.complex64)
    return tf.constant(x.astype(real)), tf.constant(z.astype(complex_))


def assert_same(found, wanted, tolerance):
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        a, b = a.numpy(), b.numpy()
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert np.array_equal(np.isnan(a), np.isnan(b))
        if b.size:
            gap = np.nan_to_num(np.abs(a - b))
            assert np.max(gap) <= tolerance * max(1.0, np.max(np.nan_to_num(np.abs(b))))


@pytest.mark.parametrize(
    ("policy", "capacity", "forgetting", "steps"),
    [
        ("sliding", 5, 0.95, 4),
        ("growing", 40, 1.0, 4),
        *(
            pytest.param(*window, 8, marks=pytest.mark.long)
            for window in (
                ("sliding", 5, 1.0),
                ("sliding", 5, 0.95),
                ("sliding", 1, 0.95),
                ("growing", 40, 0.95),
            )
        ),
    ],
)
@pytest.mark.parametrize("process", PROCESSES)
def test_does_a_block_equal_that_of_tensorflow(process, policy, capacity, forgetting, steps):
    kernel, noise, pseudo = PROCESSES[process]
    gp = cgp.RecursiveGP(
        kernel, noise, pseudo, capacity=capacity, policy=policy, forgetting=forgetting
    )
    rng = np.random.default_rng(0)
    before, after = (block(rng, 1, n, 1, "float64", start=s) for n, s in ((8, 0.0), (steps, 8.0)))
    # What conditioning by 1e10 leaves of double precision.
    tolerance = 1e-6 if process == "nearly exact" else 1e-11
    assert_same(*both(gp, [before], *after), tolerance)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.long)])
def test_do_streams_of_several_dimensions_with_a_mean_equal_those_of_tensorflow(dtype):
    mean, kernel = cgp.means.Constant(1.0 + 2.0j, dtype=dtype), proper(dtype)
    gp = cgp.RecursiveGP(kernel, 0.1, mean=mean, capacity=4, forgetting=0.9, dtype=dtype)
    rng = np.random.default_rng(1)
    before, after = (block(rng, 3, 6, 1, dtype, 0.4, start) for start in (0.0, 6.0))
    tolerance = 1e-11 if dtype == "float64" else 2e-5
    assert_same(*both(gp, [before], *after), tolerance)
    surface = cgp.RecursiveGP(RBF(1.0, [1.0, 2.0], dtype=dtype), 0.1, capacity=4, dtype=dtype)
    assert_same(*both(surface, [], *block(rng, 2, 6, 2, dtype)), tolerance)


def test_are_streams_on_threads_those_of_one_after_another():
    gp = cgp.RecursiveGP(proper(), 0.1, capacity=32)
    x, z = block(np.random.default_rng(2), 8, 100, 1, "float64")

    def scanned(x, z):
        empty = gp.cell.recursion.empty(len(x), 1, "float64")
        return native_scan.scan(gp.cell.recursion, empty, x, z)

    each = [scanned(x[b : b + 1], z[b : b + 1]) for b in range(8)]
    stacked = tf.nest.map_structure(lambda *a: tf.concat(a, axis=0), *each)
    assert_same(scanned(x, z), stacked, 0.0)


def test_does_a_block_of_nothing_leave_the_window():
    gp = cgp.RecursiveGP(proper(), 0.1, capacity=4)
    rng = np.random.default_rng(3)
    before = block(rng, 1, 6, 1, "float64")
    nothing = block(rng, 1, 3, 1, "float64", missing=1.1, start=6.0)
    (window, _), (wanted, _) = both(gp, [before], *nothing)
    assert_same(window, wanted, 0.0)


def test_is_a_failed_factor_an_error_that_leaves_the_window():
    gp = cgp.RecursiveGP(Matern32(1.0, 2.0), 0.1, capacity=4)
    gp.process(np.arange(3.0), np.ones(3) + 0j)
    before = gp.posterior(np.array([0.5])).mean().numpy()
    gp.kernel.variance.variables[0].assign(np.nan)
    with pytest.raises(cgp.NotPositiveDefiniteError, match="The window is as it was"):
        gp.step(3.0, 1j)
    gp.kernel.variance.assign(1.0)
    assert np.allclose(gp.posterior(np.array([0.5])).mean(), before, rtol=1e-14)


def test_does_the_op_refuse_arguments_that_do_not_fit():
    gp = cgp.RecursiveGP(proper(), 0.1, capacity=4)
    rng = np.random.default_rng(4)
    x, z = block(rng, 1, 3, 1, "float64")
    window = gp.cell.recursion.empty(1, 1, "float64")
    for wrong in (
        window._replace(size=tf.constant([5])),
        window._replace(size=tf.constant([-1])),
        window._replace(chol=window.chol[:, 1:]),
        window._replace(age=window.age[:, 1:]),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"fit together|than its room"):
            native_scan.scan(gp.cell.recursion, wrong, x, z)
