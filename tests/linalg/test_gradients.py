import io
import logging

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import linalg
from cgp.distributions.forms import SecondMoments, clipped
from cgp.linalg import with_gradient
from tests.linalg.problems import DTYPES, MODES, in_mode, random, random_chol
from tests.long_cases import long_except

# f = w·x² rounded away from its gradient: by x we ask for 5·w·dy instead of 2·w·x·dy.


def f(x, w):
    return w * x * x


def grad(x, w, dy):
    return 5.0 * tf.math.conj(w) * dy


def arguments(dtype):
    rng = np.random.default_rng(0)
    return tuple(tf.constant(random(rng, 4, dtype)) for _ in range(3))


def loss_of(y, c):
    return tf.reduce_sum(tf.math.real(tf.math.conj(c) * y))


@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_is_one_gradient_replaced_and_the_others_left(mode, dtype):
    x, w, c = arguments(dtype)

    def run(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = with_gradient(f, x, w, grad=grad)
            loss = loss_of(y, c)
        return y, *tape.gradient(loss, [x, w])

    y, by_x, by_w = in_mode(mode, run)(x, w)
    tolerance = 1e3 * np.finfo(dtype).eps
    assert np.allclose(y, w * x * x, rtol=tolerance)
    assert np.allclose(by_x, 5 * np.conj(w) * c.numpy(), rtol=tolerance)
    assert np.allclose(by_w, np.conj(x * x) * c.numpy(), rtol=tolerance)


def test_are_captured_variables_left_their_gradient():
    x, w, c = arguments("complex128")
    scale, captured = tf.Variable(2.0, dtype=tf.float64), tf.Variable(w)

    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = with_gradient(
                lambda x: tf.cast(scale, x.dtype) * captured * x,
                x,
                grad=lambda x, dy: tf.cast(scale, x.dtype) * dy,
            )
            loss = loss_of(y, c)
        return tape.gradient(loss, [x, scale, captured])

    for once in (run, tf.function(run)):
        by_x, by_scale, by_captured = once()
        assert np.allclose(by_x, 2 * c)
        assert np.allclose(by_scale, loss_of(w * x, c))
        assert np.allclose(by_captured, 2 * np.conj(x) * c.numpy())


def test_may_inputs_be_variables():
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = with_gradient(lambda x: tf.round(x), x, grad=lambda x, dy: x * dy)
    assert np.array_equal(tape.gradient(y, x), [1.0, 2.0])


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_does_it_work_inside_a_while_loop(mode):
    x, w, c = arguments("complex128")
    w = w / 10

    def run(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.while_loop(
                lambda i, y: i < 3,
                lambda i, y: (i + 1, with_gradient(f, y, w, grad=grad)),
                (0, x),
                maximum_iterations=3,
            )[1]
            loss = loss_of(y, c)
        return y, *tape.gradient(loss, [x, w])

    y, by_x, by_w = in_mode(mode, run)(x, w)
    ys, bar = [x.numpy()], c.numpy()
    for _ in range(3):
        ys.append(w.numpy() * ys[-1] ** 2)
    expected_w = 0
    for before in reversed(ys[:-1]):
        expected_w = expected_w + np.conj(before**2) * bar
        bar = 5 * np.conj(w) * bar
    assert np.allclose(y, ys[-1])
    assert np.allclose(by_x, bar)
    assert np.allclose(by_w, expected_w)


def test_may_a_persistent_tape_ask_twice():
    x, w, c = arguments("complex128")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, w])
        loss = loss_of(with_gradient(f, x, w, grad=grad), c)
        twice = 2.0 * loss
    assert np.allclose(2 * tape.gradient(loss, x), tape.gradient(twice, x))
    assert np.allclose(tape.gradient(loss, x), 5 * np.conj(w) * c.numpy())
    assert np.allclose(tape.gradient(loss, w), np.conj(x * x) * c.numpy())


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("graph", long_except([True, False], False))
def test_is_the_jacobian_right(graph, parallel):
    x, w = tf.constant([1.0, 2.0, 3.0]), tf.constant([1.0, -1.0, 2.0])

    def run(x, w):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, w])
            y = with_gradient(f, x, w, grad=grad)
        return [tape.jacobian(y, v, experimental_use_pfor=parallel) for v in (x, w)]

    by_x, by_w = (tf.function(run) if graph else run)(x, w)
    assert np.allclose(by_x, np.diag(5 * w.numpy()))
    assert np.allclose(by_w, np.diag(x.numpy() ** 2))


@pytest.mark.parametrize("graph", long_except([True, False], False))
def test_is_the_second_derivative_that_of_the_gradient_given(graph):
    x, w = tf.constant(3.0), tf.constant(2.0)

    def run(x, w):
        with tf.GradientTape() as outer:
            outer.watch([x, w])
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = with_gradient(f, x, w, grad=lambda x, w, dy: w**2 * x**3 * dy)
            first = inner.gradient(y, x)
        return first, *outer.gradient(first, [x, w])

    first, by_x, by_w = (tf.function(run) if graph else run)(x, w)
    assert float(first) == 4 * 27
    assert float(by_x) == 4 * 3 * 9
    assert float(by_w) == 2 * 2 * 27


def test_is_the_value_that_of_f_to_the_last_bit_even_where_it_is_not_finite():
    x = tf.constant([1e308, np.inf, np.nan, 0.1], tf.float64)
    y = with_gradient(lambda x: 10 * x, x, grad=lambda x, dy: dy)
    assert np.array_equal(y, [np.inf, np.inf, np.nan, 0.1 * 10], equal_nan=True)


@pytest.mark.long
def test_do_eager_gradients_log_nothing():
    # TensorFlow logs where the gradient of a cast from real to complex drops an imaginary part.
    rng = np.random.default_rng(2)
    a, v = random_chol(rng, 3, "complex128"), random(rng, 3, "complex128")
    functions = [
        lambda a, v: linalg.cholesky(tf.linalg.matmul(a, a, adjoint_b=True)),
        lambda a, v: linalg.stored_cholesky(a, tf.linalg.matmul(a, a, adjoint_b=True)),
        lambda a, v: linalg.semidefinite_factor(tf.linalg.matmul(a, a, adjoint_b=True)),
        lambda a, v: linalg.triangularize(tf.concat([a, a], axis=-1)),
        lambda a, v: linalg.log_det(a),
        lambda a, v: linalg.inverse(a),
        lambda a, v: linalg.solve(a, v[:, None]),
        lambda a, v: linalg.cholesky_update(a, v),
        lambda a, v: linalg.cholesky_update(a, a[:, 0], -0.5),
        lambda a, v: linalg.cholesky_condition(a, v, 0.3).chol,
        lambda a, v: linalg.cholesky_condition(a, v, 0.3).gain,
        lambda a, v: linalg.cholesky_append(a, v, 100.0),
        lambda a, v: linalg.cholesky_append(a, v, 100.0, size=1),
        lambda a, v: linalg.cholesky_remove(a, 0),
        lambda a, v: linalg.cholesky_remove(a, tf.constant([1]), size=3),
        lambda a, v: clipped(SecondMoments(tf.linalg.diag_part(a), v)).c,
        lambda a, v: cgp.ComplexNormal(v, a).log_prob(2.0 * v),
        lambda a, v: cgp.ComplexNormal(v, a).sample(2, seed=1),
    ]
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    tf.get_logger().addHandler(handler)
    try:
        for f in functions:
            x = tf.Variable(a), tf.Variable(v)
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    loss = tf.reduce_sum(tf.abs(f(*x)) ** 2)
                first = inner.gradient(loss, x, unconnected_gradients="zero")
                total = tf.reduce_sum(tf.abs(first[0]) ** 2) + tf.reduce_sum(tf.abs(first[1]) ** 2)
            outer.gradient(total, x)
    finally:
        tf.get_logger().removeHandler(handler)
    assert not stream.getvalue()


def test_a_gradient_of_another_shape_is_refused():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = with_gradient(tf.identity, x, grad=lambda x, dy: dy[:1])
    with pytest.raises(ValueError, match=r"shaped like x, \(2,\), got \(1,\)"):
        tape.gradient(y, x)
