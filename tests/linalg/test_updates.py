import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import cgp
from cgp.linalg import (
    cholesky_append,
    cholesky_condition,
    cholesky_remove,
    cholesky_update,
    triangularize,
)
from tests.linalg.problems import (
    DTYPES,
    MODES,
    hard_chol,
    in_mode,
    is_single,
    random,
    random_chol,
)
from tests.long_cases import long_except
from tests.reference import linalg as reference

SIZES = long_except([1, 2, 3, 16, 17, 33, 64, 128], 3, 33)
KINDS = long_except(["spectrum", "rbf", "pivot"], "rbf", "pivot")
FEW_DTYPES = long_except(DTYPES, "complex128", "float32")


def bar(dtype):
    return 1e-6 if is_single(dtype) else 3e-15


def backward_error(chol, covariance, *scales):
    """Of L Lᴴ against a covariance in 80-bit arithmetic, relative to the largest of the scales."""
    gap = np.linalg.norm((reference.covariance_of(chol) - covariance).astype(complex))
    scales = [np.linalg.norm(np.asarray(s).astype(complex)) for s in (covariance, *scales)]
    return gap / max(scales)


def is_factor(chol, positive=True):
    """Lower triangular, zeros above, and a real diagonal: exactly."""
    chol = np.asarray(chol)
    diagonal = np.diagonal(chol, axis1=-2, axis2=-1)
    sign = np.all(diagonal.real > 0) if positive else np.all(diagonal.real >= 0)
    return bool(np.all(chol == np.tril(chol)) and np.all(diagonal.imag == 0) and sign)


def on_the_brink(chol, rng):
    """v with A − v vᴴ a fraction δ from singular."""
    delta = 1e-3 if is_single(chol.dtype) else 1e-8
    w = reference.extended(random(rng, len(chol), chol.dtype))
    w *= np.sqrt(1 - delta) / np.sqrt(np.sum(np.abs(w) ** 2))
    return (reference.extended(chol) @ w).astype(chol.dtype)


# --- backward error -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_is_the_update_backward_stable(dtype, kind, n):
    rng = np.random.default_rng(n)
    chol, v = hard_chol(kind, n, dtype, rng), random(rng, n, dtype)
    new = cholesky_update(chol, v, 1.75).numpy()
    expected = reference.updated(reference.covariance_of(chol), v, 1.75)
    assert backward_error(new, expected) <= bar(dtype)
    assert is_factor(new)
    assert new.dtype == dtype


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_is_the_downdate_backward_stable_on_the_brink_of_singularity(dtype, kind, n):
    rng = np.random.default_rng(n)
    chol = hard_chol(kind, n, dtype, rng)
    v = on_the_brink(chol, rng)
    new = cholesky_update(chol, v, -1.0).numpy()
    covariance = reference.covariance_of(chol)
    assert backward_error(new, reference.updated(covariance, v, -1.0), covariance) <= bar(dtype)
    assert is_factor(new)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_do_all_operations_at_512_meet_the_bar(dtype, kind):
    n, rng = 512, np.random.default_rng(512)
    chol = hard_chol(kind, n, dtype, rng)
    covariance = reference.covariance_of(chol)
    for v, multiplier in [(random(rng, n, dtype), 1.0), (on_the_brink(chol, rng), -1.0)]:
        new = cholesky_update(chol, v, multiplier).numpy()
        expected = reference.updated(covariance, v, multiplier)
        assert backward_error(new, expected, covariance) <= bar(dtype)
    h = random(rng, n, dtype)
    expected, _, _ = reference.conditioned(covariance, h, 1e-3)
    new = cholesky_condition(chol, h, 1e-3).chol
    assert backward_error(new, expected, covariance) <= bar(dtype)
    new = cholesky_remove(chol, 77)
    assert backward_error(new, reference.removed(covariance, 77), covariance) <= bar(dtype)
    last = covariance[:-1, -1].astype(dtype), covariance[-1, -1].real.astype(chol.real.dtype)
    new = cholesky_append(chol[:-1, :-1], *last)
    expected = reference.appended(covariance[:-1, :-1], *last)
    assert backward_error(new, expected, covariance) <= bar(dtype)


@pytest.mark.parametrize("noise", [1.0, 1e-12, 0.0])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_is_conditioning_backward_stable(dtype, n, noise):
    rng = np.random.default_rng(n)
    chol, h = hard_chol("rbf", n, dtype, rng), random(rng, n, dtype)
    new = cholesky_condition(chol, h, noise)
    covariance = reference.covariance_of(chol)
    expected, gain, variance = reference.conditioned(covariance, h, noise)
    assert backward_error(new.chol, expected, covariance) <= bar(dtype)
    assert is_factor(new.chol, positive=noise > 0)
    size = np.linalg.norm(covariance.astype(complex))
    # h P hᴴ is a sum of squares of products: relative to what went into it.
    scale = float(size * np.linalg.norm(h) ** 2)
    assert abs(float(new.innovation_variance - variance)) <= bar(dtype) * scale
    gap = np.linalg.norm((new.gain.numpy() - gain).astype(complex)) * float(variance)
    scale *= np.linalg.norm(gain.astype(complex))
    assert gap <= bar(dtype) * (scale + size * np.linalg.norm(h))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_are_append_and_remove_backward_stable(dtype, n, kind):
    rng = np.random.default_rng(n)
    chol = hard_chol(kind, n, dtype, rng)
    covariance = reference.covariance_of(chol)
    index = int(rng.integers(n))
    kept = cholesky_remove(chol, index)
    assert kept.shape == (n - 1, n - 1)
    expected = reference.removed(covariance, index)
    assert backward_error(kept, expected, covariance) <= bar(dtype)
    assert is_factor(kept)

    cross = (reference.extended(chol) @ random(rng, n, dtype)).astype(dtype)
    column = np.linalg.solve(chol.astype(complex), cross.astype(complex))
    variance = np.asarray(1.001 * np.linalg.norm(column) ** 2, np.finfo(dtype).dtype)
    grown = cholesky_append(chol, cross, variance)
    expected = reference.appended(covariance, cross, variance)
    assert backward_error(grown, expected) <= bar(dtype)
    assert is_factor(grown)


# --- modes, batches, signs ----------------------------------------------------------------------


def operations(rng, dtype, n, batch=()):
    """Each operation with arguments: name -> (function, arguments, what NumPy says)."""
    chol, v = random_chol(rng, n, dtype, batch), random(rng, (*batch, n), dtype)
    real = np.finfo(dtype).dtype
    small = (v * 0.2 / np.linalg.norm(v, axis=-1, keepdims=True)).astype(dtype)
    a = chol @ np.conj(np.swapaxes(chol, -1, -2))
    alpha = rng.uniform(0.5, 2, batch).astype(real)
    outer = v[..., :, None] * v[..., None, :].conj()
    small_outer = small[..., :, None] * small[..., None, :].conj()
    signs = np.where(rng.uniform(size=batch) < 0.5, -0.5, 2.0).astype(real)
    ph = np.einsum("...ij,...j->...i", a, v.conj())
    s = np.einsum("...i,...i->...", v, ph).real + alpha
    return {
        "update": (cholesky_update, (chol, v, alpha), a + alpha[..., None, None] * outer),
        "downdate": (
            cholesky_update,
            (chol, small, -alpha),
            a - alpha[..., None, None] * small_outer,
        ),
        "mixed": (cholesky_update, (chol, small, signs), a + signs[..., None, None] * small_outer),
        "condition": (
            lambda *args: cholesky_condition(*args).chol,
            (chol, v, alpha),
            a - ph[..., :, None] * ph[..., None, :].conj() / s[..., None, None],
        ),
    }


NAMES = ["update", "downdate", "mixed", "condition"]
# XLA takes seconds to compile what it unrolls: it sees every operation, dtype and kind of batch,
# though not each with each.
CASES = [
    *[
        (mode, t, n, b)
        for mode in MODES[:2]
        for t in DTYPES
        for n in (1, 5, 40)
        for b in ((), (2, 3))
    ],
    *[("xla", t, 5, ()) for t in DTYPES],
    *[("xla", "complex128", n, b) for n, b in ((1, ()), (40, ()), (5, (2, 3)))],
]
CASES = long_except(
    CASES,
    *[("eager", t, n, b) for t in ("complex128", "float32") for n in (1, 40) for b in ((), (2, 3))],
    *[("graph", "complex128", 5, b) for b in ((), (2, 3))],
    ("xla", "complex128", 5, (2, 3)),
)


@pytest.mark.parametrize("name", long_except(NAMES, "mixed", "condition"))
@pytest.mark.parametrize(("mode", "dtype", "n", "batch"), CASES, ids=str)
def test_do_all_modes_dtypes_and_batches_agree_with_numpy(mode, dtype, n, batch, name):
    f, args, expected = operations(np.random.default_rng(7), dtype, n, batch)[name]
    new = in_mode(mode, f)(*args).numpy()
    assert new.shape == (*batch, n, n)
    assert is_factor(new)
    product = new @ np.conj(np.swapaxes(new, -1, -2))
    assert np.max(np.abs(product - expected)) <= 10 * bar(dtype) * np.max(np.abs(expected))


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_do_batch_axes_broadcast(mode):
    rng = np.random.default_rng(3)
    chol, v = random_chol(rng, 4, "complex128", (2, 1)), random(rng, (3, 4), "complex128")
    alpha = np.array([[1.0], [-0.01]])
    new = in_mode(mode, cholesky_update)(chol, v, alpha).numpy()
    for i in range(2):
        for j in range(3):
            one = cholesky_update(chol[i, 0], v[j], alpha[i, 0])
            assert np.allclose(new[i, j], one, rtol=1e-13, atol=1e-14)
    gain = in_mode(mode, cholesky_condition)(chol, v, 1.0).gain
    assert gain.shape == (2, 3, 4)
    assert np.allclose(gain[1, 2], cholesky_condition(chol[1, 0], v[2], 1.0).gain)


OF_ANY_SIZE = {
    "update": cholesky_update,
    "append": lambda c, v: cholesky_append(c, v, 1e3),
    "remove": lambda c, v: cholesky_remove(c, 1),
    "condition": lambda c, v: cholesky_condition(c, v, 1.0).gain,
}


@pytest.mark.long
@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_is_a_size_unknown_when_traced_taken(name):
    rng, operation = np.random.default_rng(0), OF_ANY_SIZE[name]
    signature = [tf.TensorSpec([None, None], tf.complex128), tf.TensorSpec([None], tf.complex128)]
    traced = tf.function(operation, input_signature=signature)
    for n in (3, 70):
        chol, v = random_chol(rng, n, "complex128"), random(rng, n, "complex128")
        assert np.allclose(traced(chol, v), operation(chol, v), rtol=1e-12)


def test_is_a_batch_unknown_when_traced_taken():
    rng = np.random.default_rng(0)
    signature = [
        tf.TensorSpec([None, 4, 4], tf.complex128),
        tf.TensorSpec([4], tf.complex128),
        tf.TensorSpec([None], tf.float64),
    ]
    update = tf.function(cholesky_update, input_signature=signature)
    chol, v = random_chol(rng, 4, "complex128", (3,)), 0.1 * random(rng, 4, "complex128")
    alpha = np.array([1.0, -1.0, 0.0])
    assert np.allclose(update(chol, v, alpha), cholesky_update(chol, v, alpha), rtol=1e-12)


def test_is_nothing_above_the_diagonal_read_in_a_graph():
    rng = np.random.default_rng(1)
    chol, v = random_chol(rng, 5, "complex128"), random(rng, 5, "complex128")
    dirty = chol + np.triu(np.full((5, 5), np.nan), 1)
    for operation in (
        cholesky_update,
        lambda chol, v: cholesky_update(chol, 0.01 * v, -1.0),
        lambda chol, v: cholesky_condition(chol, v, 1.0).gain,
        lambda chol, v: cholesky_remove(chol, 2),
    ):
        result = in_mode("graph", operation)
        assert np.array_equal(result(dirty, v), result(chol, v))


# --- leaving the cone ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128"))
@pytest.mark.parametrize("excess", long_except([1.001, 10.0, 1e10], 1.001))
def test_does_a_downdate_out_of_the_cone_fail_in_every_mode(dtype, excess):
    rng = np.random.default_rng(0)
    chol = random_chol(rng, 4, dtype)
    w = random(rng, 4, dtype)
    v = (chol @ (w * np.sqrt(excess) / np.linalg.norm(w))).astype(dtype)
    with pytest.raises(cgp.NotPositiveDefiniteError, match="downdate"):
        cholesky_update(chol, v, -1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive definite"):
        in_mode("graph", lambda c, v: cholesky_update(c, v, -1.0))(chol, v)
    assert np.all(np.isnan(in_mode("xla", lambda c, v: cholesky_update(c, v, -1.0))(chol, v)))


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
@pytest.mark.parametrize("pivot", [0.0, -1.0])
def test_is_a_factor_that_is_none_told_from_a_downdate_out_of_the_cone(pivot, mode):
    chol = np.diag([1.0, pivot])
    for multiplier in (1.0, -0.1):
        run = in_mode(mode, lambda c, m=multiplier: cholesky_update(c, np.ones(2), m))
        if mode == "xla":
            assert np.all(np.isnan(run(chol)))
            continue
        error = cgp.NotPositiveDefiniteError if mode == "eager" else tf.errors.InvalidArgumentError
        match = "chol .* real diagonal" if mode == "eager" else "diagonal of chol"
        with pytest.raises(error, match=match) as caught:
            run(chol)
        # Eagerly the diagonal is looked at first; a graph has one message for both.
        blamed = mode == "graph" and multiplier < 0
        assert ("takes away" in str(caught.value)) == blamed


def test_is_a_variable_unchanged_after_a_downdate_that_fails():
    chol = tf.Variable(np.eye(3) + 0j)

    @tf.function
    def forget(v):
        chol.assign(cholesky_update(chol, v, -1.0))

    with pytest.raises(tf.errors.InvalidArgumentError):
        forget(tf.constant([0.0, 2.0, 0.0], tf.complex128))
    assert np.array_equal(chol, np.eye(3))
    forget(tf.constant([0.0, 0.6, 0.0], tf.complex128))
    assert np.allclose(chol, np.diag([1, 0.8, 1]))


def test_does_one_bad_matrix_of_a_batch_leave_the_others_finite_under_xla():
    chol, v = np.stack([np.eye(2), np.eye(2)]) + 0j, np.array([[0.5, 0], [1.5, 0]]) + 0j
    new = in_mode("xla", lambda c, v: cholesky_update(c, v, -1.0))(chol, v).numpy()
    assert np.all(np.isnan(new[1]))
    assert np.allclose(new[0], np.diag([np.sqrt(0.75), 1]))


# --- conditioning -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_does_a_noiseless_measurement_of_a_known_combination_teach_nothing(mode):
    condition = in_mode(mode, lambda c, h: cholesky_condition(c, h, 0.0))
    chol = np.diag([1.0, 2.0, 3.0]) + 0j
    once = condition(chol, np.array([0, 1j, 0]))
    assert np.allclose(once.gain, [0, -1j, 0])
    assert np.allclose(once.chol, np.diag([1.0, 0.0, 3.0]))
    twice = condition(once.chol, np.array([0, 1j, 0]))
    assert np.array_equal(twice.chol, once.chol)
    assert np.array_equal(twice.gain, np.zeros(3))
    assert float(twice.innovation_variance) == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_is_a_measurement_that_overflows_not_blamed_on_its_noise(dtype):
    huge = np.finfo(dtype).max ** 0.75
    eye, ones = np.eye(2, dtype=dtype), np.ones(2, dtype)
    for chol, h in ((eye * huge, ones), (eye, ones * huge)):
        with pytest.raises(ValueError, match=r"innovation variance .* overflows") as caught:
            cholesky_condition(chol, h, 1.0)
        assert "negative" not in str(caught.value)
    with pytest.raises(ValueError, match="noise_variance must be finite and not negative"):
        cholesky_condition(eye, ones, -1.0)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_is_a_factor_with_a_negative_diagonal_not_conditioned(mode):
    run = in_mode(mode, lambda chol: cholesky_condition(chol, np.ones(2), 1.0).chol)
    if mode == "xla":
        assert np.all(np.isnan(run(-np.eye(2))))
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="diagonal of chol"):
        run(-np.eye(2))


def test_is_h_taken_without_conjugation():
    # y = h x: with x = L ξ and h = [1, i], S = |h L|² and the gain is P hᴴ / S.
    chol = np.array([[1.0, 0], [0.5 - 0.5j, 2.0]])
    h = np.array([1.0, 1j])
    p = chol @ chol.conj().T
    new = cholesky_condition(chol, h, 0.1)
    assert np.isclose(new.innovation_variance, (h @ p @ h.conj()).real + 0.1, rtol=1e-14)
    assert np.allclose(new.gain, p @ h.conj() / float(new.innovation_variance), rtol=1e-14)


# --- buffers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "dtype"),
    long_except(
        [*[("graph", t) for t in DTYPES], ("eager", "complex128"), ("xla", "complex128")],
        ("eager", "complex128"),
    ),
)
def test_does_a_buffer_hold_what_a_plain_factor_holds(mode, dtype):
    rng = np.random.default_rng(5)
    full, atol = random_chol(rng, 6, dtype), bar(dtype)
    a = full @ full.conj().T
    append = in_mode(mode, lambda c, x, k, size: cholesky_append(c, x, k, size=size))
    remove = in_mode(mode, lambda c, index, size: cholesky_remove(c, index, size=size))
    fixed = in_mode(mode, lambda c: cholesky_remove(c, 2, size=6))
    buffer = np.eye(6, dtype=dtype)
    for size in range(6):
        cross = np.full(6, np.nan, dtype)  # what lies beyond the rows in use is not read
        cross[:size] = a[:size, size]
        buffer = append(buffer, cross, a[size, size].real, size).numpy()
        assert np.allclose(buffer[: size + 1, : size + 1], full[: size + 1, : size + 1], atol=atol)
        assert np.array_equal(buffer[size + 1 :], np.eye(6, dtype=dtype)[size + 1 :])
    assert np.allclose(fixed(buffer), remove(buffer, 2, 6), atol=atol)
    for size, index in [(6, 2), (5, 4), (4, 0), (3, 1), (2, 0), (1, 0)]:
        expected = cholesky_remove(buffer[:size, :size], index)
        buffer = remove(buffer, index, size).numpy()
        assert np.allclose(buffer[: size - 1, : size - 1], expected, atol=atol)
        assert np.array_equal(buffer[size - 1 :], np.eye(6, dtype=dtype)[size - 1 :])


def test_may_every_buffer_of_a_batch_have_its_own_size():
    rng = np.random.default_rng(6)
    chol = random_chol(rng, 3, "complex128")
    buffers = np.stack([np.eye(4) + 0j] * 3)
    for i in range(3):
        buffers[i, :i, :i] = chol[:i, :i]
    cross, size = 0.1 * random(rng, (3, 4), "complex128"), np.array([0, 1, 2])
    grown = cholesky_append(buffers, cross, 2.0, size=size).numpy()
    shrunk = cholesky_remove(grown, size // 2, size=size + 1).numpy()
    for i in range(3):
        one = cholesky_append(buffers[i], cross[i], 2.0, size=i)
        assert np.allclose(grown[i], one, rtol=1e-14)
        assert np.allclose(shrunk[i], cholesky_remove(one, i // 2, size=i + 1), rtol=1e-14)


def test_is_a_full_or_short_buffer_an_error():
    eye, zero = np.eye(2) + 0j, np.zeros(2) + 0j
    used, row = "size is the number of rows in use", "index is the row to remove"
    for size, what in [(2, f"{used}: the buffer is full"), (-1, used)]:
        with pytest.raises(ValueError, match=f"{what}: expected 0 to 1, got {size}"):
            cholesky_append(eye, zero, 1.0, size=size)
    for index, size, what in [(1, 1, row), (-1, 1, row), (0, 0, used), (2, 2, row)]:
        expected = "1 to 2" if what == used else f"0 to {size - 1}"
        with pytest.raises(ValueError, match=f"{what}: expected {expected}, got"):
            cholesky_remove(eye, index, size=size)
    with pytest.raises(ValueError, match="size"):
        cholesky_remove(eye, 0, size=3)
    with pytest.raises(ValueError, match="index"):
        cholesky_remove(eye, 2)


@pytest.mark.long
def test_is_a_full_or_short_buffer_an_error_in_a_graph_and_nan_under_xla():
    eye, zero = np.eye(2) + 0j, np.zeros(2) + 0j
    used = "size is the number of rows in use"
    in_graph, xla = (
        in_mode(mode, lambda s: cholesky_append(eye, zero, 1.0, size=s)) for mode in MODES[1:]
    )
    for size, what in [(2, f"{used}: the buffer is full"), (-1, used)]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{what}; got"):
            in_graph(size)
        assert np.all(np.isnan(xla(size)))
    row = "index is the row to remove"
    in_graph, xla = (
        in_mode(mode, lambda i, s: cholesky_remove(eye, i, size=s)) for mode in MODES[1:]
    )
    for index, size in [(1, 1), (-1, 1), (0, 0), (2, 2)]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{used}|{row}"):
            in_graph(index, size)
        assert np.all(np.isnan(xla(index, size)))


def test_is_a_row_that_depends_on_the_others_refused_in_every_mode():
    chol, cross = np.diag([1.0, 2.0]) + 0j, np.array([1.0, 0]) + 0j
    with pytest.raises(cgp.NotPositiveDefiniteError, match="duplicated point"):
        cholesky_append(chol, cross, 1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="duplicated point"):
        in_mode("graph", lambda c: cholesky_append(c, cross, 1.0))(chol)
    assert np.all(np.isnan(in_mode("xla", lambda c: cholesky_append(c, cross, 1.0))(chol)))


@pytest.mark.long
def test_does_a_sliding_window_stay_as_accurate_as_it_began():
    rng = np.random.default_rng(11)
    capacity, steps = 16, 2000
    times = np.cumsum(rng.uniform(0.1, 1.0, capacity + steps))

    def covariance(t, u):
        lag = np.subtract.outer(t, u)
        return np.exp(-0.5 * (lag / 4) ** 2 + 2j * np.pi * 0.3 * lag)

    @tf.function
    def slide(chol, cross, variance):
        return cholesky_append(
            cholesky_remove(chol, 0, size=capacity), cross, variance, capacity - 1
        )

    def error(chol, t):
        gram = covariance(t, t) + 1e-6 * np.eye(capacity)
        return np.linalg.norm(chol.numpy() @ chol.numpy().conj().T - gram) / np.linalg.norm(gram)

    t = times[:capacity]
    chol = cgp.linalg.cholesky(covariance(t, t) + 1e-6 * np.eye(capacity))
    assert error(chol, t) < 1e-15
    for k in range(steps):
        t = times[k + 1 : k + 1 + capacity]
        cross = np.append(covariance(t[:-1], t[-1:])[:, 0], 0)
        chol = slide(chol, tf.constant(cross), tf.constant(1 + 1e-6, tf.float64))
    assert error(chol, t) < 1e-15
    assert slide.experimental_get_tracing_count() == 1


# --- laws ---------------------------------------------------------------------------------------

seeds, sizes = st.integers(0, 2**32 - 1), st.integers(1, 40)
few = settings(max_examples=25, deadline=None)


@pytest.mark.long
@given(seeds, sizes, st.floats(-3, 3))
@few
def test_up_then_down_is_the_identity(seed, n, magnitude):
    rng = np.random.default_rng(seed)
    chol, v = random_chol(rng, n, "complex128"), random(rng, n, "complex128") * 10**magnitude
    back = cholesky_update(cholesky_update(chol, v), v, -1.0)
    # What an update of size |v|² rounds away cannot be brought back.
    assert np.max(np.abs(back - chol)) < 1e-12 * max(1, np.linalg.norm(v) ** 2)


@pytest.mark.long
@given(seeds, sizes, st.floats(0, 6.3))
@few
def test_a_turned_vector_gives_the_same_factor_and_a_turned_frame_a_turned_one(seed, n, theta):
    rng = np.random.default_rng(seed)
    chol, v = random_chol(rng, n, "complex128"), 0.1 * random(rng, n, "complex128")
    for multiplier in (1.0, -0.5):
        if multiplier < 0:
            v = v / max(1, np.linalg.norm(np.linalg.solve(chol, v)))
        new = cholesky_update(chol, v, multiplier).numpy()
        assert np.allclose(
            cholesky_update(chol, np.exp(1j * theta) * v, multiplier), new, atol=1e-13
        )
        phases = np.exp(1j * rng.uniform(0, 6.3, n))  # D A Dᴴ has the factor D L Dᴴ
        turned = phases[:, None] * chol * phases.conj()
        expected = phases[:, None] * new * phases.conj()
        assert np.allclose(cholesky_update(turned, phases * v, multiplier), expected, atol=1e-13)


@pytest.mark.long
@given(seeds, sizes)
@few
def test_conditioning_is_a_downdate_by_the_gain(seed, n):
    rng = np.random.default_rng(seed)
    chol, h = random_chol(rng, n, "complex128"), random(rng, n, "complex128")
    new = cholesky_condition(chol, h, 0.5)
    down = cholesky_update(chol, new.gain, -new.innovation_variance)
    assert np.allclose(down, new.chol, atol=1e-11)


@pytest.mark.long
@given(seeds, sizes)
@few
def test_removing_what_was_appended_is_the_identity(seed, n):
    rng = np.random.default_rng(seed)
    chol, cross = random_chol(rng, n, "complex128"), random(rng, n, "complex128")
    variance = 1 + np.linalg.norm(np.linalg.solve(chol, cross)) ** 2
    assert np.allclose(cholesky_remove(cholesky_append(chol, cross, variance), n), chol, atol=1e-14)


@pytest.mark.long
@given(seeds, sizes)
@few
def test_an_update_is_the_triangularization_of_the_factor_beside_the_vector(seed, n):
    rng = np.random.default_rng(seed)
    chol, v = random_chol(rng, n, "complex128"), random(rng, n, "complex128")
    wide = np.concatenate([chol, v[:, None]], axis=1)
    assert np.allclose(cholesky_update(chol, v), triangularize(wide), atol=1e-12)


def test_is_a_multiplier_of_zero_the_identity():
    rng = np.random.default_rng(2)
    chol, v = random_chol(rng, 40, "complex128"), random(rng, 40, "complex128")
    assert np.array_equal(cholesky_update(chol, v, 0.0), chol)
    graph = in_mode("graph", cholesky_update)
    assert np.array_equal(graph(chol, v, 0.0), chol)


# --- gradients ----------------------------------------------------------------------------------


def lower_direction(rng, n, dtype, batch=()):
    """A step within the factors: lower triangular, its diagonal real."""
    step = np.tril(random(rng, (*batch, n, n), dtype))
    np.einsum("...ii->...i", step)[...] = np.einsum("...ii->...i", step).real
    return step


def check_gradient(f, args, directions, rng, mode="eager", rtol=1e-6):
    """Each gradient of a random real functional of f(*args) against central differences."""
    outputs = tf.nest.flatten(f(*args))
    weights = [random(rng, y.shape, y.dtype.as_numpy_dtype) for y in outputs]

    def loss(*args):
        pairs = zip(tf.nest.flatten(f(*args)), weights, strict=True)
        return sum(tf.reduce_sum(tf.math.real(tf.math.conj(w) * y)) for y, w in pairs)

    def gradients(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            value = loss(*args)
        return tape.gradient(value, args)

    result = in_mode(mode, gradients)(*args)
    for i, (gradient, direction) in enumerate(zip(result, directions, strict=True)):
        expected = reference.directional_derivative(
            lambda x, i=i: loss(*args[:i], x, *args[i + 1 :]).numpy(), args[i], direction, 1e-4
        )
        along = np.sum((np.conj(gradient) * direction).real)
        size = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert gradient.shape == args[i].shape
        assert abs(along - expected) <= rtol * max(abs(expected), 1e-2 * size), (i, along, expected)
    return result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("mode", "dtype", "n", "batch"),
    long_except(
        [
            *[("eager", "complex128", n, b) for n, b in ((1, ()), (5, ()), (40, ()), (4, (3,)))],
            *[("eager", "float64", n, b) for n, b in ((5, ()), (4, (3,)))],
            *[("graph", "complex128", n, b) for n, b in ((5, ()), (40, ()), (4, (3,)))],
            *[("xla", "complex128", n, b) for n, b in ((5, ()), (4, (3,)))],
            ("xla", "float64", 40, ()),
        ],
        *[("eager", "complex128", n, b) for n, b in ((1, ()), (40, ()), (4, (3,)))],
        ("eager", "float64", 5, ()),
        ("graph", "complex128", 4, (3,)),
    ),
    ids=str,
)
def test_do_gradients_agree_with_central_differences(mode, dtype, n, batch, name):
    rng = np.random.default_rng(n)
    f, args, _ = operations(rng, dtype, n, batch)[name]
    if name == "condition":
        f = cholesky_condition
    directions = [
        lower_direction(rng, n, dtype, batch),
        random(rng, args[1].shape, dtype),
        rng.normal(size=args[2].shape),
    ]
    result = check_gradient(f, args, directions, rng, mode)
    assert np.array_equal(result[0], np.tril(result[0]))


@pytest.mark.parametrize(
    ("size", "mode"),
    long_except(
        [(size, mode) for size in (None, 4) for mode in MODES],
        *[(None, "eager"), (4, "eager"), (4, "graph")],
    ),
)
def test_do_gradients_of_append_and_remove_agree_with_central_differences(mode, size):
    rng = np.random.default_rng(9)
    chol, cross = random_chol(rng, 6, "complex128"), random(rng, 6, "complex128")
    if size is not None:
        chol[size:] = np.eye(6)[size:]
    variance = np.array(1.5 + np.linalg.norm(np.linalg.solve(chol, cross)) ** 2)
    step = lower_direction(rng, 6, "complex128")
    if size is not None:
        step[size:] = 0
    result = check_gradient(
        lambda *args: cholesky_append(*args, size=size),
        (chol, cross, variance),
        (step, random(rng, 6, "complex128"), np.array(1.0)),
        rng,
        mode,
    )
    if size is not None:
        assert np.array_equal(result[1][size:], np.zeros(6 - size))
    for index in (0, 2, 3):
        remove = lambda c, i=index: cholesky_remove(c, i, size=size)  # noqa: E731
        check_gradient(remove, (chol,), (step,), rng, mode)


def test_are_gradients_finite_at_the_edges():
    eye, zero = tf.eye(3, dtype=tf.complex128), tf.zeros(3, tf.complex128)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([eye, zero])
        r = tf.constant(0.0, tf.float64)
        tape.watch(r)
        results = [
            cholesky_update(eye, zero),
            cholesky_update(eye, zero, -1.0),
            cholesky_update(eye, zero, r),
            cholesky_condition(eye, zero, r).chol,
            cholesky_condition(eye, tf.stack([zero[0], zero[1] + 1j, zero[2]]), r).chol,
            cholesky_append(eye, zero, 1.0),
        ]
    for y in results:
        for x in (eye, zero, r):
            gradient = tape.gradient(y, x)
            assert gradient is None or np.all(np.isfinite(gradient))
    assert np.array_equal(tape.gradient(results[0], eye), np.tril(np.ones((3, 3))))


@pytest.mark.parametrize("in_graph", long_except([False, True], False))
def test_may_the_gradient_be_differentiated_again(in_graph):
    rng = np.random.default_rng(4)
    chol, v = random_chol(rng, 5, "complex128"), 0.1 * random(rng, 5, "complex128")
    weight = random(rng, (5, 5), "complex128")

    def loss(t):
        y = cholesky_update(chol, tf.cast(1 + t, tf.complex128) * v, 1.0 - 2.0 * t)
        y = cholesky_condition(y, tf.cast(1 - t, tf.complex128) * v, 0.3).chol
        return tf.reduce_sum(tf.abs(y * weight) ** 2)

    def slope(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            value = loss(t)
        return tape.gradient(value, t)

    f = tf.function(slope) if in_graph else slope
    for x in (0.2, 0.7):  # an update, a downdate
        t = tf.constant(x, tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(t)
            first = f(t)
        second = tape.gradient(first, t)
        expected = reference.directional_derivative(
            lambda s: slope(tf.constant(s, tf.float64)).numpy(), x, 1.0, 1e-3
        )
        assert np.isclose(second, expected, rtol=1e-8)


@pytest.mark.parametrize("mode", long_except(MODES, "eager"))
def test_does_the_gradient_pass_through_a_loop_of_steps(mode):
    rng = np.random.default_rng(12)
    chol, v = random_chol(rng, 3, "complex128"), 0.3 * random(rng, (4, 3), "complex128")
    noise = np.array(0.7)

    def filtered(chol, v, noise):
        def body(i, chol):
            chol = cholesky_condition(chol, v[i], noise).chol
            return i + 1, cholesky_update(chol, v[3 - i], 0.5)

        return tf.while_loop(lambda i, _: i < 4, body, (0, chol), maximum_iterations=4)[1]

    steps = (
        lower_direction(rng, 3, "complex128"),
        random(rng, (4, 3), "complex128"),
        np.array(1.0),
    )
    check_gradient(filtered, (chol, v, noise), steps, rng, mode)


def test_is_the_jacobian_that_of_the_gradients():
    rng = np.random.default_rng(13)
    chol, v = random_chol(rng, 3, "float64"), tf.constant(rng.normal(size=3))
    jacobians = []
    for parallel in (True, False):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(v)
            new = cholesky_update(chol, v)
        jacobians.append(tape.jacobian(new, v, experimental_use_pfor=parallel).numpy())
    assert np.allclose(*jacobians, rtol=1e-13)
    step = 1e-6 * np.eye(3)
    up, down = (cholesky_update(chol, v + sign * step).numpy() for sign in (1, -1))
    assert np.allclose(np.moveaxis(jacobians[0], -1, 0), (up - down) / 2e-6, atol=1e-8)


# --- what is refused ----------------------------------------------------------------------------

EYE, ONES = np.eye(2) + 0j, np.ones(2) + 0j


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cholesky_update(np.eye(2, dtype=int), ONES), TypeError, "chol must be float32"),
        (lambda: cholesky_update(EYE[:1], ONES), ValueError, "chol must be square"),
        (lambda: cholesky_update(EYE[0], ONES), ValueError, "chol must be a matrix"),
        (lambda: cholesky_update(EYE, np.ones(2)), TypeError, "complex128, got float64"),
        (lambda: cholesky_update(np.eye(2), ONES), TypeError, "float64, got complex128"),
        (lambda: cholesky_update(EYE, np.ones(3) + 0j), ValueError, r"must be \[..., 2\]"),
        (lambda: cholesky_update(EYE, np.complex128(1)), ValueError, r"must be \[..., 2\]"),
        (lambda: cholesky_update(EYE, ONES, 1.0 + 0j), TypeError, "multiplier must be real"),
        (lambda: cholesky_update(EYE, ONES, "1"), TypeError, "multiplier must be numbers"),
        (
            lambda: cholesky_update(EYE, ONES, tf.constant(1.0)),
            TypeError,
            "multiplier must be float64, as chol is complex128, got float32",
        ),
        (lambda: cholesky_update(EYE, ONES, np.nan), ValueError, "multiplier.* NaN"),
        (lambda: cholesky_update(EYE, ONES * np.nan), ValueError, "update_vector.* NaN"),
        (lambda: cholesky_update(EYE * np.nan, ONES), ValueError, "chol.* NaN"),
        (
            lambda: cholesky_update(np.stack([EYE, EYE]), np.ones((3, 2)) + 0j),
            ValueError,
            r"batch axes .* chol \(2, 2, 2\), update_vector \(3, 2\)",
        ),
        (
            lambda: cholesky_condition(EYE, ONES, -0.1),
            ValueError,
            "noise_variance must be finite and not negative",
        ),
        (lambda: cholesky_condition(EYE, ONES, 1j), TypeError, "noise_variance must be real"),
        (lambda: cholesky_condition(EYE, ONES, np.nan), ValueError, "noise_variance.* NaN"),
        (lambda: cholesky_condition(EYE, ONES * np.nan, 1.0), ValueError, "h, .* NaN"),
        (lambda: cholesky_condition(EYE, np.ones(2), 1.0), TypeError, "h must have the dtype"),
        (lambda: cholesky_append(EYE, ONES, 9 + 0j), TypeError, "variance must be real"),
        (lambda: cholesky_append(EYE, ONES * np.nan, 9.0), ValueError, "cross.* NaN"),
        (lambda: cholesky_append(EYE, np.ones(3) + 0j, 9.0), ValueError, "cross must be"),
        (lambda: cholesky_append(EYE, ONES, 9.0, size=0.5), TypeError, "size must be an integer"),
        (lambda: cholesky_remove(EYE, 0.0), TypeError, "index must be an integer"),
        (lambda: cholesky_remove(EYE * np.nan, 0), ValueError, "NaN"),
    ],
)
def test_is_bad_input_refused_with_its_name(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert caught.type is error or error is ValueError


def test_is_a_negative_noise_variance_refused_in_a_graph_and_nan_under_xla():
    with pytest.raises(tf.errors.InvalidArgumentError, match="noise_variance"):
        in_mode("graph", lambda r: cholesky_condition(EYE, ONES, r))(-0.1)
    for part in in_mode("xla", lambda r: cholesky_condition(EYE, ONES, r))(-0.1):
        assert np.all(np.isnan(part))
