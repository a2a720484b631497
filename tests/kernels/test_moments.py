"""Every expression against NumPy, and what any pair of second moments must satisfy."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import cgp
from cgp.kernels import (
    RBF,
    Along,
    Conjugate,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    Rotation,
    White,
    WidelyLinear,
)
from cgp.training.parameters import named_parameters
from tests.kernels.expressions import EXPRESSIONS
from tests.reference.gaussian_process import composite_covariance

every_expression = pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda e: e.name)


def expressions_of(*names):
    """Those of these names, and all others in long tests."""
    assert {e.name for e in EXPRESSIONS} >= set(names)
    return pytest.mark.parametrize(
        "expression",
        [e if e.name in names else pytest.param(e, marks=pytest.mark.long) for e in EXPRESSIONS],
        ids=lambda e: e.name,
    )


# What follows from how parts are put together, of few of them.
few_expressions = expressions_of(
    "autoregressive that turns",
    "improper times improper",
    "nested, in 2-D",
    "real times elliptical",
    "widely linear of widely linear",
)


def assert_close(found, expected, tolerance):
    assert found.shape == expected.shape
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected), initial=1.0)
    )


@few_expressions
def test_moments_are_those_of_the_reference(expression):
    kernel, x = expression.make("float64"), expression.points(7)
    k, c = kernel.covariance(x), kernel.pseudo_covariance(x)
    assert k.dtype == c.dtype == tf.complex128
    expected_k, expected_c = expression.moments(x, x)
    assert_close(k.numpy(), expected_k, 1e-12)
    assert_close(c.numpy(), expected_c, 1e-12)


@every_expression
def test_cross_moments_are_those_of_the_reference(expression):
    kernel, x1 = expression.make("float64"), expression.points(5)
    x2 = np.concatenate([expression.points(3, seed=1), x1[2:4]])
    expected_k, expected_c = expression.moments(x1, x2)
    assert_close(kernel.covariance(x1, x2).numpy(), expected_k, 1e-12)
    assert_close(kernel.pseudo_covariance(x1, x2).numpy(), expected_c, 1e-12)
    # E[z1 z̄2] and E[z2 z̄1] are adjoint, E[z1 z2] and E[z2 z1] transposed
    assert_close(kernel.covariance(x2, x1).numpy(), expected_k.conj().T, 1e-12)
    assert_close(kernel.pseudo_covariance(x2, x1).numpy(), expected_c.T, 1e-12)


@few_expressions
def test_covariances_are_hermitian_and_valid_together(expression):
    kernel, x = expression.make("float64"), expression.points(12, seed=2)
    k, c = kernel.covariance(x).numpy(), kernel.pseudo_covariance(x).numpy()
    assert_close(k, k.conj().T, 1e-15)
    assert_close(c, c.T, 1e-15)
    smallest = np.linalg.eigvalsh(composite_covariance(k, c))[0]
    assert smallest > -1e-13 * np.trace(k).real


@every_expression
def test_the_diagonal_is_that_of_the_matrix(expression):
    kernel, x = expression.make("float64"), expression.points(6)
    k, c = kernel.moments_diagonal(x)
    # TensorFlow's exponential of an element depends, in its last bit, on how many there are.
    np.testing.assert_allclose(k.numpy(), np.diag(kernel.covariance(x)), rtol=1e-15)
    assert (c is None) == expression.is_proper
    c = np.zeros(6) if c is None else c.numpy()
    np.testing.assert_allclose(c, np.diag(kernel.pseudo_covariance(x)), rtol=1e-15)


@every_expression
def test_flags_say_what_the_moments_show(expression):
    kernel, x = expression.make("float64"), expression.points(6)
    flags = kernel.is_proper, kernel.is_real, kernel.is_markov
    assert flags == (expression.is_proper, expression.is_real, expression.is_markov)
    if kernel.is_proper:
        np.testing.assert_array_equal(kernel.pseudo_covariance(x), 0.0)
    if kernel.is_real:
        np.testing.assert_array_equal(np.imag(kernel.covariance(x)), 0.0)


@every_expression
def test_is_a_covariance_a_carrier_times_its_real_envelope(expression):
    kernel, x = expression.make("float64"), tf.constant(expression.points(6))
    turns = kernel.carrier_turns(x)
    if turns is None:
        assert not kernel.is_real
        return
    carrier = np.exp(2j * np.pi * turns.numpy())
    envelope = kernel.envelope(x[:, None], x[None])
    assert envelope.dtype == tf.float64
    under_carrier = carrier[:, None] * envelope.numpy() * carrier.conj()
    assert_close(under_carrier, expression.moments(x.numpy(), x.numpy())[0], 1e-12)
    np.testing.assert_allclose(kernel.carrier_turns(2.0 * x), 2.0 * turns)  # linear in x


def test_which_kernels_are_real_under_a_carrier():
    x = tf.constant([[0.0, 1.0]], tf.float64)
    envelope, carrier = RBF(1.0, 1.0) + Along(Matern32(1.0, 2.0), 1), Rotation([0.3, -0.2])
    for kernel in (envelope, envelope * carrier, Along(RBF(1.0, 2.0) * Rotation(0.1), 1) * carrier):
        assert kernel.carrier_turns(x) is not None
    for kernel in (envelope + carrier, (envelope * carrier + RBF(1.0, 1.0)) * carrier):
        assert kernel.carrier_turns(x) is None
    assert WidelyLinear(RBF(1.0, 1.0), 0.4j).carrier_turns(x) is None


class Warped(Along):
    def moments(self, x1, x2):
        return super().moments(tf.math.log1p(x1), tf.math.log1p(x2))


class Swelling(Product):
    def moments(self, x1, x2):
        swell = tf.complex(1.0 + x1[..., 0] * x2[..., 0], tf.zeros_like(x1[..., 0] * x2[..., 0]))
        return swell * super().moments(x1, x2)[0], None


class Chirp(Rotation):
    def moments(self, x1, x2):
        return super().moments(x1**2, x2**2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Warped(RBF(1.0, 1.0) * Rotation(0.3), 0),
        lambda: Swelling([RBF(1.0, 1.0), Rotation([0.3, -0.2])]),
        lambda: Chirp([0.3, -0.2]),
        lambda: RBF(1.0, 1.0) * Chirp([0.3, -0.2]),
    ],
)
def test_is_no_carrier_inherited_where_moments_are_others(make):
    x = np.random.default_rng(0).uniform(0.0, 2.0, (12, 2))
    kernel, z = make(), np.exp(1j * x[:, 0])
    assert kernel.carrier_turns(tf.constant(x)) is None
    exact = cgp.ExactGP(kernel, 0.1).log_marginal_likelihood(x, z)
    bound = cgp.SparseGP(kernel, 0.1, inducing=x).log_marginal_likelihood(x, z)
    np.testing.assert_allclose(bound, exact, rtol=1e-9)


@few_expressions
def test_single_precision_gives_complex64_and_its_rounding(expression):
    kernel, x = expression.make("float32"), expression.points(6)
    assert kernel.variable_dtype == "float32"
    k, c = kernel.covariance(x), kernel.pseudo_covariance(x)
    assert k.dtype == c.dtype == tf.complex64
    expected_k, expected_c = expression.moments(x, x)
    assert_close(k.numpy(), expected_k, 1e-5)
    assert_close(c.numpy(), expected_c, 1e-5)


@few_expressions
def test_a_batch_is_a_loop(expression):
    kernel = expression.make("float64")
    x1 = np.stack([expression.points(4, seed) for seed in range(3)])
    x2 = np.stack([expression.points(5, seed + 9) for seed in range(3)])
    batch = kernel.covariance(x1, x2).numpy(), kernel.pseudo_covariance(x1, x2).numpy()
    one_axis_less = kernel.covariance(x1, x2[1]).numpy()
    diagonal = kernel.moments_diagonal(x1)[0].numpy()
    assert batch[0].shape == batch[1].shape == one_axis_less.shape == (3, 4, 5)
    for i in range(3):
        assert_close(batch[0][i], kernel.covariance(x1[i], x2[i]).numpy(), 1e-15)
        assert_close(batch[1][i], kernel.pseudo_covariance(x1[i], x2[i]).numpy(), 1e-15)
        assert_close(one_axis_less[i], kernel.covariance(x1[i], x2[1]).numpy(), 1e-15)
        assert_close(diagonal[i], kernel.moments_diagonal(x1[i])[0].numpy(), 1e-15)


@few_expressions
def test_a_graph_gives_what_eager_mode_gives(expression):
    kernel, x = expression.make("float64"), expression.points(5)
    signature = [tf.TensorSpec([None, expression.dimensions], tf.float64)]
    pair = tf.function(lambda x: (kernel.covariance(x), kernel.pseudo_covariance(x)), signature)
    k, c = pair(tf.constant(x))
    assert_close(k.numpy(), kernel.covariance(x).numpy(), 1e-15)
    assert_close(c.numpy(), kernel.pseudo_covariance(x).numpy(), 1e-15)


# Those of kernels of one dimension alone stand in tests/test_quick.py.
@expressions_of(
    "rbf in 3-D, a length scale each",
    "matern32 in 2-D, a length scale each",
    "rational quadratic in 2-D, a length scale each",
    "periodic in 2-D, a frequency each",
    "rotation in 2-D, a frequency each",
    "two scales in 2-D",
    "szego behind a delay",
    "autoregressive that turns",
    "turning signal and trend",
    "one kernel shared by two terms",
    "conjugate of an improper one",
    "improper plus proper",
    "improper times improper",
    "real times elliptical",
    "widely linear of widely linear",
)
def test_gradients_by_hyperparameters_are_central_differences(expression):
    kernel, x = expression.make("float64"), expression.points(6)
    rng = np.random.default_rng(3)
    w1, w2 = rng.normal(size=(2, 6, 6)) + 1j * rng.normal(size=(2, 6, 6))

    def loss():
        k, c = kernel.covariance(x), kernel.pseudo_covariance(x)
        return tf.math.real(tf.reduce_sum(w1 * k) + tf.reduce_sum(w2 * c))

    variables = [p.variable for p in named_parameters(kernel.named_layers()).values()]
    assert variables
    with tf.GradientTape() as tape:
        tape.watch([v.value for v in variables])  # the fixed ones too
        value = loss()
    gradients = tape.gradient(value, [v.value for v in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        at, step = variable.numpy(), 1e-5
        for index in np.ndindex(at.shape):
            shift = np.zeros(at.shape)
            shift[index] = step
            variable.assign(at + shift)
            above = loss().numpy()
            variable.assign(at - shift)
            below = loss().numpy()
            variable.assign(at)
            found = gradient.numpy()[index]
            np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=1e-6, atol=1e-8)


@few_expressions
def test_gradients_by_inputs_are_finite_where_points_coincide(expression):
    kernel = expression.make("float64")
    x = tf.constant(expression.points(4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.abs(kernel.covariance(x) + 0.1) ** 2)
    gradient = tape.gradient(loss, x)
    assert gradient is None or np.all(np.isfinite(gradient))


@pytest.mark.parametrize("coefficient", [0.0, 1e-9, 0.3 - 0.2j, 0.999999, 1.0, -1j])
def test_the_gradient_by_a_coefficient_is_right_all_over_the_disk(coefficient):
    kernel, x = (
        WidelyLinear(Rotation(0.3) * RBF(), coefficient),
        np.array([[0.1], [-0.6], [1.3], [0.1]]),
    )
    variable = kernel.coefficient.variable

    def loss():
        return tf.math.real(tf.reduce_sum((1 + 2j) * kernel.pseudo_covariance(x))) + tf.reduce_sum(
            tf.abs(kernel.covariance(x))
        )

    with tf.GradientTape() as tape:
        value = loss()
    gradient = tape.gradient(value, variable.value).numpy()
    at = variable.numpy()
    for i, shift in enumerate(1e-5 * np.eye(2)):
        variable.assign(at + shift)
        above = loss().numpy()
        variable.assign(at - shift)
        np.testing.assert_allclose(gradient[i], (above - loss().numpy()) / 2e-5, atol=1e-8)


# Expressions at random.

numbers = st.floats(0.05, 5.0)
leaves = st.one_of(
    st.builds(Constant, numbers),
    st.builds(RBF, numbers, numbers),
    st.builds(Matern12, numbers, numbers),
    st.builds(Matern32, numbers, numbers),
    st.builds(Matern52, numbers, numbers),
    st.builds(RationalQuadratic, numbers, numbers, numbers),
    st.builds(Periodic, numbers, numbers, numbers),
    st.builds(White, numbers),
    st.builds(Rotation, st.floats(-3.0, 3.0)),
)
coefficients = st.builds(
    lambda r, angle: r * np.exp(1j * angle), st.floats(0.0, 1.0), st.floats(0.0, 2 * np.pi)
)


def product_if_allowed(a, b):
    try:
        return a * b
    except ValueError:  # a rotation beside an improper kernel
        return a + b


expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(product_if_allowed, inner, inner),
        st.builds(lambda s, a: s * a, numbers, inner),
        st.builds(Conjugate, inner),
        st.builds(WidelyLinear, inner, coefficients),
    ),
    max_leaves=6,
)


@pytest.mark.long
@given(
    kernel=expressions,
    x=st.lists(
        st.sampled_from([-2.5, -1.0, 0.0, 1e-8, 0.3, 0.7, 1.1, 4.0]), min_size=1, max_size=8
    ),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_expression_is_positive_semidefinite_at_any_points(kernel, x):
    k, c = kernel.covariance(x).numpy(), kernel.pseudo_covariance(x).numpy()
    assert_close(k, k.conj().T, 1e-14)
    assert_close(c, c.T, 1e-14)
    eigenvalues = np.linalg.eigvalsh(composite_covariance(k, c))
    assert eigenvalues[0] > -1e-13 * max(np.trace(k).real, 1e-12)
    if kernel.is_proper:
        np.testing.assert_array_equal(c, 0.0)
    if kernel.is_real:
        np.testing.assert_array_equal(k.imag, 0.0)
