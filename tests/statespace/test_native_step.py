"""The compiled step of an online filter gives what that of TensorFlow gives, known to be right."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import CompositeForm, ProperForm
from cgp.linalg.batch_last import matmul, matvec
from cgp.statespace.engines.filter_step import State, decorrelated, marginals_of, predict, update
from cgp.statespace.native_step import CompiledStep, CompiledWalk, StepMatrices
from tests.long_cases import long_except

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)

DTYPES = ["complex128", "complex64", "float64", "float32"]
N, Q = 4, 2


def numbers(rng, shape, dtype):
    a = rng.normal(size=shape)
    return (a + 1j * rng.normal(size=shape) if dtype.startswith("complex") else a).astype(dtype)


def times_adjoint(a):
    return np.einsum("ikb,jkb->ijb", a, a.conj())


def matrices_of(rng, dtype, m, streams=1, rank=None):
    """Matrices of a step, of each stream its own where there are several."""
    noise = times_adjoint(numbers(rng, (m, m if rank is None else rank, streams), dtype))
    return StepMatrices(
        0.5 * numbers(rng, (N, N, streams), dtype),
        numbers(rng, (N, Q, streams), dtype),
        numbers(rng, (m, N, streams), dtype),
        noise.astype(dtype),
    )


def state_of(rng, dtype, streams):
    chol = numbers(rng, (N, N, streams), dtype)
    chol = np.where(np.tri(N)[..., None] > 0, chol, 0)
    diagonal = np.arange(N)
    chol[diagonal, diagonal] = np.abs(chol[diagonal, diagonal])
    return numbers(rng, (N, streams), dtype), np.ascontiguousarray(chol, dtype)


def expected(given, state, z, drift, form, predicts_first):
    """Mean and factor of the next state, and the moments before and after, by TensorFlow."""
    F, G, H, R = map(tf.constant, given)
    state = State(*map(tf.constant, state))
    if predicts_first:
        state = predict(state, F, G, tf.constant(drift))
    before = marginals_of(form, matvec(H, state.mean), matmul(H, state.chol), R)
    seen = ~np.isnan(z)
    known = tf.constant(np.where(seen, z, 0).astype(z.dtype))
    observed = tf.cast(seen, known.dtype.real_dtype)
    h, r, values = decorrelated(H[None], R[None], tf.transpose(known)[:, None], observed[None])
    after, _, _ = update(state, h[0], r[0], tf.transpose(values[:, 0]), observed)
    if predicts_first:
        signal = marginals_of(form, matvec(H, after.mean), matmul(H, after.chol), None)
        return after, before, signal
    following = predict(after, F, G, tf.constant(drift))
    return following, before, marginals_of(form, after.mean, after.chol, None)


def with_missing(rng, z):
    """Some elements are missing; of the first stream all."""
    z = np.where(rng.uniform(size=z.shape) < 0.3, np.nan, z)
    z[:, 0] = np.nan if z.shape[1] > 1 else z[:, 0]
    return z


def assert_step(given, streams, dtype, form=None, predicts_first=False, seed=0, drift=None):
    rng = np.random.default_rng(seed)
    form = form or ProperForm()
    m, count, composite = given.H.shape[0], streams or 1, form.multiplicity > 1
    step = CompiledStep(given, streams, composite, predicts_first)
    if drift is None:
        drift = np.zeros((N, 1), dtype)
    else:
        step.set(drift=drift)
    state = state_of(rng, dtype, count)
    tolerance = 1e-13 if np.finfo(dtype).eps < 1e-10 else 1e-5
    for _ in range(4):
        working = with_missing(rng, numbers(rng, (m, count), dtype)).astype(dtype)
        if composite:  # both parts of a number are missing together
            working[m // 2 :][np.isnan(working[: m // 2])] = np.nan
            working[: m // 2][np.isnan(working[m // 2 :])] = np.nan
        following, *moments = expected(given, state, working, drift, form, predicts_first)
        z = (working[: m // 2] + 1j * working[m // 2 :] if composite else working).T
        found = step(z if streams else z[0], *state)
        for a, b in zip(state, following, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())
        for own, reference in zip(found[:2], moments, strict=True):  # without the joint moments
            for a, b in zip(own, reference, strict=True):
                if b is None:
                    is_complex = np.iscomplexobj(own.mean)
                    b = np.zeros_like(reference.mean) if is_complex else reference.variance
                b = np.asarray(b).T if streams else np.asarray(b).T[0]
                assert a.shape == b.shape
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1, np.abs(b).max()))


@pytest.mark.parametrize("predicts_first", [False, True])
@pytest.mark.parametrize("streams", long_except([None, 1, 19], None, 19))
@pytest.mark.parametrize("m", long_except([1, 3], 3))
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
def test_is_a_compiled_step_that_of_tensorflow(dtype, m, streams, predicts_first):
    rng = np.random.default_rng(m)
    assert_step(matrices_of(rng, dtype, m), streams, dtype, None, predicts_first)


@pytest.mark.parametrize(
    ("dtype", "composite"), [*((dtype, False) for dtype in DTYPES), ("float64", True)]
)
def test_does_a_stream_go_on_alike_alone_and_beside_others(dtype, composite):
    """To the last bit, whatever vectors the processor has, and by a walk over samples too."""
    rng, streams = np.random.default_rng(6), 19
    given, (mean, chol) = matrices_of(rng, dtype, 2), state_of(rng, dtype, streams)
    working = with_missing(rng, numbers(rng, (streams, 2), dtype)).astype(dtype)
    z = working[:, :1] + 1j * working[:, 1:] if composite else working
    together, alone = (CompiledStep(given, count, composite) for count in (streams, None))
    F, G, H, R = (a[..., 0] for a in given)
    rows = [np.ascontiguousarray(np.moveaxis(a, -1, 0)) for a in (mean, chol)]
    matrices = {"F": F, "Q_factor": G, "H": H, "R": R}
    walk = CompiledWalk(composite, predicts_first=False)
    walked = walk(matrices, z, np.arange(streams), *rows)
    assert not isinstance(walked, int)
    each = [np.ascontiguousarray(mean[:, [b]]) for b in range(streams)]
    chols = [np.ascontiguousarray(chol[..., [b]]) for b in range(streams)]
    found = [alone(z[b], each[b], chols[b]) for b in range(streams)]
    alone_moments = zip(*found, strict=True)
    for one, row, own in zip(together(z, mean, chol), walked, alone_moments, strict=True):
        for a, b, c in zip(one, row, zip(*own, strict=True), strict=True):
            assert a.tobytes() == b.tobytes() == np.stack(c).tobytes()
    for a, b, c in zip((mean, chol), rows, (each, chols), strict=True):
        assert np.moveaxis(a, -1, 0).tobytes() == b.tobytes()
        assert b.tobytes() == np.stack([one[..., 0] for one in c]).tobytes()


@pytest.mark.parametrize("predicts_first", [False, True])
@pytest.mark.parametrize("streams", [None, 9])
@pytest.mark.parametrize("m", long_except([2, 4], 4))
@pytest.mark.parametrize("dtype", long_except(DTYPES[2:], "float64"))
def test_is_a_compiled_step_of_a_composite_that_of_tensorflow(dtype, m, streams, predicts_first):
    rng = np.random.default_rng(m)
    assert_step(matrices_of(rng, dtype, m), streams, dtype, CompositeForm(), predicts_first)


@pytest.mark.parametrize("dtype", DTYPES[::2])
def test_may_each_stream_have_matrices_of_its_own(dtype):
    rng = np.random.default_rng(3)
    given = matrices_of(rng, dtype, 2, streams=11)
    assert_step(given, 11, dtype, drift=numbers(rng, (N, 11), dtype))
    shared = matrices_of(rng, dtype, 2)
    assert_step(
        given._replace(H=shared.H, R=shared.R), 11, dtype, drift=numbers(rng, (N, 1), dtype)
    )


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES[::2])
def test_may_the_noise_be_singular(dtype, rank):
    rng = np.random.default_rng(4)
    assert_step(matrices_of(rng, dtype, 3, rank=rank), 3, dtype)


@pytest.mark.parametrize("scale", [1e-150, 1e-60, 1e60, 1e150])
def test_are_units_of_any_size_right(scale):
    rng = np.random.default_rng(5)
    given = matrices_of(rng, "complex128", 2)
    step, ordinary = (
        CompiledStep(
            given._replace(Q_factor=given.Q_factor * scale, R=given.R * scale * scale), None
        ),
        CompiledStep(given, None),
    )
    state = state_of(rng, "complex128", 1)
    scaled = tuple(a * scale for a in state)
    for _ in range(3):
        z = numbers(rng, 2, "complex128")
        before, expected_before = step(z * scale, *scaled)[0], ordinary(z, *state)[0]
        np.testing.assert_allclose(before.mean / scale, expected_before.mean, rtol=1e-12)
        for a, b in zip(scaled, state, strict=True):
            np.testing.assert_allclose(a / scale, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("streams", [None, 1, 19])
@pytest.mark.parametrize("broken", ["F", "Q_factor", "H", "R", "state"])
def test_does_a_step_that_is_not_finite_leave_the_state(broken, streams):
    rng = np.random.default_rng(6)
    given, (mean, chol) = (
        matrices_of(rng, "complex128", 2),
        state_of(rng, "complex128", streams or 1),
    )
    if broken == "state":
        chol[0, 0, -1] = np.nan
    else:
        matrix = getattr(given, broken).copy()
        matrix[0, 0] = np.nan
        given = given._replace(**{broken: matrix})
    before = mean.copy(), chol.copy()
    z = numbers(rng, (streams or 1, 2), "complex128")
    assert CompiledStep(given, streams)(z, mean, chol) is None
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(chol, before[1])


def test_are_results_arrays_of_their_own():
    rng = np.random.default_rng(7)
    step = CompiledStep(matrices_of(rng, "complex128", 1), None)
    state = state_of(rng, "complex128", 1)
    first = step(np.array([1j]), *state)
    kept = [a.copy() for moments in first for a in moments]
    step(np.array([5.0 + 0j]), *state)
    for a, b in zip((a for moments in first for a in moments), kept, strict=True):
        np.testing.assert_array_equal(a, b)
