import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp.linalg import from_composite, join_parts, stack_parts, to_composite
from tests.linalg.problems import MODES, in_mode, random
from tests.long_cases import long_except


def moments(rng, n, batch=()):
    """The (K, C) of z = A ξ, ξ real and white, and the real covariance of [Re z; Im z]."""
    a = random(rng, (*batch, n, 2 * n + 1), "complex128")
    parts = np.concatenate([a.real, a.imag], axis=-2)
    turned = np.swapaxes(a, -1, -2)
    return a @ turned.conj(), a @ turned, parts @ np.swapaxes(parts, -1, -2)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_is_the_composite_the_covariance_of_the_parts(mode, batch):
    k, c, composite = moments(np.random.default_rng(0), 3, batch)
    assert np.allclose(in_mode(mode, to_composite)(k, c), composite, rtol=1e-13)
    back = in_mode(mode, from_composite)(composite)
    assert np.allclose(back[0], k, rtol=1e-13)
    assert np.allclose(back[1], c, rtol=1e-13)


def test_is_a_block_that_is_not_square_taken():
    rng = np.random.default_rng(1)
    a, b = random(rng, (2, 9), "complex128"), random(rng, (3, 9), "complex128")
    stacked = [np.concatenate([x.real, x.imag]) for x in (a, b)]
    composite = to_composite(a @ b.conj().T, a @ b.T)
    assert np.allclose(composite, stacked[0] @ stacked[1].T)
    assert np.allclose(from_composite(composite)[1], a @ b.T)


@pytest.mark.long
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(0, 6.3))
@settings(max_examples=30, deadline=None)
def test_does_a_turned_signal_turn_the_pseudo_covariance_twice(seed, n, theta):
    k, c, composite = moments(np.random.default_rng(seed), n)
    turn = np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
    turn = np.kron(turn, np.eye(n))
    turned = to_composite(k, np.exp(2j * theta) * c)
    assert np.allclose(turned, turn @ composite @ turn.T, atol=1e-12 * np.abs(composite).max())


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_are_parts_stacked_and_joined(dtype):
    z = random(np.random.default_rng(2), (2, 3), dtype)
    parts = stack_parts(z)
    assert np.array_equal(parts, np.concatenate([z.real, z.imag], axis=-1))
    assert parts.dtype == tf.as_dtype(dtype).real_dtype
    assert np.array_equal(join_parts(parts), z)


K = np.eye(2) + 0j


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: to_composite(np.eye(2), K), TypeError, "covariance must be complex, got float64"),
        (lambda: to_composite(K, np.eye(2)), TypeError, "pseudo_covariance must be complex"),
        (lambda: to_composite(K, K.astype("complex64")), TypeError, "complex128 and complex64"),
        (lambda: to_composite(K, K[:1]), ValueError, r"\(2, 2\) and \(1, 2\)"),
        (lambda: to_composite(K[0], K), ValueError, "must be a matrix"),
        (lambda: from_composite(K), TypeError, "composite must be real, got complex128"),
        (lambda: from_composite(np.eye(3)), ValueError, r"\[..., 2m, 2n\], got shape \(3, 3\)"),
    ],
)
def test_is_bad_input_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
