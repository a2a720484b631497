"""Gradients through linearised models, against differences and linear siblings."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from cgp.statespace import Iterated, NonlinearGaussian, SigmaPoints, Taylor
from tests.linalg.problems import random
from tests.reference import nonlinear as reference
from tests.statespace.nonlinear_problems import PROBLEMS, joined, real_composite
from tests.statespace.problems import problem


@pytest.mark.parametrize(
    ("rule", "steps", "jit"),
    [
        pytest.param(Taylor(), 6, True, marks=pytest.mark.long),
        pytest.param(Taylor(), 1, False, marks=pytest.mark.long),
        pytest.param(SigmaPoints("unscented"), 6, False, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_is_the_gradient_that_of_differences(rule, steps, jit):
    """By variables inside the functions, by the series, and by the moments of the noise."""
    given = PROBLEMS["improper"](steps=6)
    gain, scale = (tf.Variable(value, dtype=tf.complex128) for value in (0.9 + 0.1j, 1.1 - 0.2j))
    moments = ("Q", "R", "initial_mean", "initial_covariance")
    tensors = {name: tf.constant(np.asarray(given.noise[name], complex)) for name in moments}
    tensors["z"] = tf.constant(given.z[:steps])
    model = NonlinearGaussian(
        lambda x: gain * given.transition(x),
        lambda x: scale * given.observation(x),
        **given.noise,
        jit_compile=jit,
    )

    def value(**changes):
        now = {**tensors, **changes}
        moved = model.replace(**{name: now[name] for name in moments})
        return statespace.log_likelihood(moved, now["z"], rule=rule)

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = value()
    of_variables, of_tensors = tape.gradient(total, [(gain, scale), tensors])

    def difference(move, step=1e-5):
        up, down = move(step), move(-step)
        return (float(up) - float(down)) / (2 * step)

    def along(gradient, way):
        return np.real(np.vdot(way, np.nan_to_num(gradient)))

    found, expected = [], []
    for variable, gradient in zip((gain, scale), of_variables, strict=True):
        start, way = variable.numpy(), 1 + 2j

        def moved(step, variable=variable, start=start, way=way):
            variable.assign(start + step * way)
            return value()

        found.append(along(gradient, way))
        expected.append(difference(moved))
        variable.assign(start)
    rng = np.random.default_rng(3)
    for name, tensor in tensors.items():
        way = random(rng, tensor.shape, "complex128")
        way = way if name in ("z", "initial_mean") else way + np.conj(way).T
        found.append(along(of_tensors[name], way))
        expected.append(
            difference(lambda h, name=name, way=way: value(**{name: tensors[name] + h * way}))
        )
    if steps > 1:
        assert (np.abs(expected) > 1e-2).all()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("execution")
@pytest.mark.parametrize(("iterations", "damping"), [(0, 0.0), (2, 0.2)])
def test_is_the_gradient_of_a_short_series_that_of_differences(iterations, damping):
    """Of a complex state whose power is observed; by differences of the reference."""
    given, rng = PROBLEMS["power"](steps=2), np.random.default_rng(3)
    rule = Iterated(SigmaPoints(), iterations, damping) if iterations else SigmaPoints()
    gain = tf.constant(0.9 + 0.2j, tf.complex128)
    names = ("Q", "R", "initial_mean", "initial_covariance")
    tensors = {name: tf.constant(np.asarray(given.noise[name], complex)) for name in names}
    tensors |= {"gain": gain, "R": tf.math.real(tensors["R"]), "z": tf.constant(given.z)}

    def expected(gain, z, **noise):
        noise = {name: np.asarray(value) for name, value in noise.items()}
        moved = given._replace(noise=noise, z=z)
        Q, R, m, P, z = moved.composite()

        def f(x):
            return real_composite(gain * 0.95 * np.exp(0.2j) * joined(x))

        observation = given.of_composite[1]
        options = (reference.by_points(*reference.cubature(2)), iterations, damping)
        return reference.filtered(f, observation, Q, R, m, P, z, *options).log_likelihood

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        noise = {name: tensors[name] for name in names}
        turn = 0.95 * np.exp(0.2j)
        model = NonlinearGaussian(
            lambda x: tensors["gain"] * turn * x, given.observation, **noise, jit_compile=False
        )
        value = statespace.log_likelihood(model, tensors["z"], rule=rule)
    gradients = tape.gradient(value, tensors)
    start = {name: tensor.numpy() for name, tensor in tensors.items()}
    np.testing.assert_allclose(value, expected(**start), rtol=1e-10)
    for name, gradient in gradients.items():
        way = random(rng, gradient.shape, gradient.dtype.name)
        way = way.real if name in ("Q", "initial_covariance") else way
        up, down = (expected(**start | {name: start[name] + h * way}) for h in (1e-5, -1e-5))
        found = np.real(np.vdot(way, gradient))
        np.testing.assert_allclose(found, (up - down) / 2e-5, rtol=1e-6, err_msg=name)
        assert abs(found) > 1e-2, name


@pytest.mark.long
@pytest.mark.parametrize("rule", [Taylor(), SigmaPoints()], ids=str)
def test_is_the_gradient_of_linear_functions_that_of_the_linear_model(rule):
    given = problem(1, 2, steps=6, holes="own")
    own = given.matrices
    F, Q = tf.Variable(own["F"]), tf.Variable(own["Q"])
    matrices = {k: v for k, v in own.items() if k not in "FQ"}
    H = tf.constant(matrices.pop("H"))
    with tf.GradientTape() as tape:
        model = NonlinearGaussian(
            lambda x: tf.linalg.matvec(F, x),
            lambda x: tf.linalg.matvec(H, x),
            Q=Q,
            **matrices,
            jit_compile=False,
        )
        value = statespace.log_likelihood(model, given.z, rule=rule)
    found = tape.gradient(value, [F, Q])
    with tf.GradientTape() as tape:
        value = statespace.log_likelihood(statespace.LinearGaussian(F, Q, H, **matrices), given.z)
    for a, b in zip(found, tape.gradient(value, [F, Q]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


@pytest.mark.long
def test_is_the_gradient_of_iterations_that_of_differences():
    given, rule = PROBLEMS["power"](steps=5), Iterated(SigmaPoints(), 2, 0.2)
    gain = tf.Variable(1.1, dtype=tf.float64)
    model = NonlinearGaussian(
        given.transition,
        lambda x: gain * given.observation(x),
        **given.noise,
        jit_compile=False,
    )
    with tf.GradientTape() as tape:
        value = statespace.log_likelihood(model, given.z, rule=rule)
    found = tape.gradient(value, gain)
    ends = []
    for sign in (1, -1):
        gain.assign(1.1 + sign * 1e-5)
        ends.append(float(statespace.log_likelihood(model, given.z, rule=rule)))
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
    assert abs(found) > 0.1


@pytest.mark.long
@pytest.mark.parametrize("rule", [Taylor(), SigmaPoints()], ids=str)
def test_is_the_gradient_finite_where_covariances_are_singular(rule):
    """A start and a noise of rank one: factors have no derivative there, the likelihood has."""
    given = PROBLEMS["carrier"]()
    turn = tf.Variable(1.0, dtype=tf.float64)
    noise = {
        **given.noise,
        "Q": np.diag([0.0, 0.01]),
        "initial_covariance": np.diag([0.3, 0.0]),
    }
    model = NonlinearGaussian(
        lambda x: turn * given.transition(x), given.observation, **noise, jit_compile=False
    )

    def value():
        return statespace.log_likelihood(model, given.z, rule=rule)

    with tf.GradientTape() as tape:
        total = value()
    gradient = tape.gradient(total, turn)
    step = 1e-5
    ends = []
    for sign in (1, -1):
        turn.assign(1.0 + sign * step)
        ends.append(float(value()))
    np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


@pytest.mark.long
def test_a_model_replaced_by_one_of_another_size_is_as_a_new_one():
    given = (tf.sin, tf.sin)
    small = NonlinearGaussian(*given, [[0.1]], [[0.2]], [0.3], [[0.5]], jit_compile=False)
    statespace.filter(small, [1.0, 0.5])
    sizes = {"Q": 0.1, "R": 0.2, "initial_covariance": 0.5}
    changes = {name: size * np.eye(2) for name, size in sizes.items()}
    large = small.replace(**changes, initial_mean=[0.3, 0.3])
    both = statespace.log_likelihood(large, [[1.0, 1.0], [0.5, 0.5]])
    np.testing.assert_allclose(both, 2 * statespace.log_likelihood(small, [1.0, 0.5]), rtol=1e-10)
