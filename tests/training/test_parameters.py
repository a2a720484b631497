"""Hyperparameters: constrained values, and what they are good for without being unwrapped."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from cgp.training.parameters import (
    COMPLEX,
    POSITIVE,
    REAL,
    UNIT_DISK,
    Parameter,
    Parameterized,
    between,
    complex_from_config,
    in_steps_of,
    named_parameters,
    number_to_config,
    prior_config,
    prior_from_config,
)

tfd = tfp.distributions


class Owner(Parameterized, keras.layers.Layer):
    def __init__(self, fixed=(), priors=None, dtype="float64", **values):
        super().__init__(dtype=dtype)
        self.declare_parameters(values, fixed, priors)


def parameter(value, constraint, dtype="float64", prior=None) -> Parameter:
    priors = None if prior is None else {"p": prior}
    return Owner(p=(value, constraint), dtype=dtype, priors=priors).p


STEPS = in_steps_of(0.01, REAL)

ROUND_TRIPS = [
    *[(v, REAL) for v in (0.0, -1.5, 1e-300, -1e300, [1.0, -2.0, 0.0])],
    *[(v, POSITIVE) for v in (1.0, 1e-300, 1e-30, 1e300, [0.1, 7.0], [[1.0, 2.0], [3.0, 4.0]])],
    *[(v, COMPLEX) for v in (0.0, 1.0, 3.0 - 4.0j, 1e300j, [1j, -1.0, 0.0])],
    *[(v, UNIT_DISK) for v in (0.0, 1e-9, 1e-4j, 0.3 - 0.4j, 0.999999, 1.0, -1.0, -1j)],
    *[(v, UNIT_DISK) for v in ([0.0, 0.5j, 1.0], np.exp(1j * np.arange(7)))],
    *[(v, between(-1.0, 3.0)) for v in (-1.0, -0.3, 1.0, 3.0, [0.0, 2.999])],
    *[(v, STEPS) for v in (0.0, -0.84, [0.3, -7.0])],
    *[(v, in_steps_of(0.1, POSITIVE)) for v in (0.2, [1.0, 9.0])],
]


@pytest.mark.parametrize(("value", "constraint"), ROUND_TRIPS)
def test_a_value_comes_back(value, constraint):
    p = parameter(value, constraint)
    assert p.numpy().shape == np.shape(value)
    assert p.value.dtype == (tf.complex128 if constraint.is_complex else tf.float64)
    np.testing.assert_allclose(
        p.numpy(), value, rtol=1e-13, atol=1e-15 * (np.max(np.abs(value)) < 10)
    )
    p.assign(p.numpy())  # what has been read can be written
    np.testing.assert_allclose(
        p.numpy(), value, rtol=1e-13, atol=1e-15 * (np.max(np.abs(value)) < 10)
    )


@pytest.mark.parametrize("value", [0.3, 1.0, np.exp(0.7j), [0.5j, -1.0]])
def test_a_single_precision_coefficient_can_be_read_and_written(value):
    p = parameter(value, UNIT_DISK, dtype="float32")
    assert p.value.dtype == tf.complex64
    for _ in range(3):
        p.assign(p.numpy())
    np.testing.assert_allclose(p.numpy(), value, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_ends_of_an_interval_can_be_read_and_written(dtype):
    p = parameter([0.01, 0.99], between(0.01, 0.99), dtype=dtype)
    for _ in range(3):
        p.assign(p.numpy())
    assert np.all(np.isfinite(p.variable.numpy()))
    np.testing.assert_allclose(p.numpy(), [0.01, 0.99], rtol=0, atol=2 * np.finfo(dtype).eps)
    for outside in (0.0099, 0.9901):
        with pytest.raises(ValueError, match=r"p must be between 0\.01 and 0\.99"):
            parameter(outside, between(0.01, 0.99), dtype=dtype)


def test_the_jacobian_of_an_interval_is_its_derivative():
    interval, raw = between(-1.0, 3.0), tf.constant([-9.0, -0.4, 0.0, 2.5], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(raw)
        value = interval.forward(raw)
    slope = tape.gradient(value, raw)
    np.testing.assert_allclose(interval.log_jacobian(raw), np.log(slope), rtol=1e-12)


def test_every_number_on_the_unit_circle_is_inside_the_disk():
    double = np.exp(1j * np.linspace(0, 2 * np.pi, 400))
    values = np.stack([double, double.astype(np.complex64)])
    p = parameter(values, UNIT_DISK)
    assert np.all(np.abs(p.numpy()) <= 1 + 1e-15)
    np.testing.assert_allclose(p.numpy(), values, rtol=0, atol=1e-6)


def test_any_weight_is_a_value_in_the_set():
    raw = tf.constant(np.random.default_rng(7).normal(scale=20.0, size=(100, 2)))
    assert np.all(np.abs(UNIT_DISK.forward(raw)) <= 1 + 1e-15)
    assert np.all(POSITIVE.forward(raw) > 0)


def test_the_disk_is_smooth_at_its_centre_and_flat_at_its_edge():
    """Near 0 the map is the identity; across the edge, c = sin|w| w/|w| turns back."""
    raw = tf.constant([[0.0, 0.0], [1e-5, 0.0], [np.pi / 2, 0.0], [0.0, -np.pi / 2]], tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(raw)
        c = UNIT_DISK.forward(raw)
        parts = tf.math.real(c), tf.math.imag(c)
    gradients = [tape.gradient(part, raw).numpy() for part in parts]
    identity, along = np.eye(2), 2 / np.pi
    for i in range(2):
        np.testing.assert_allclose([g[i] for g in gradients], identity, atol=1e-9)
    np.testing.assert_allclose([g[2] for g in gradients], [[0, 0], [0, along]], atol=1e-15)
    np.testing.assert_allclose([g[3] for g in gradients], [[along, 0], [0, 0]], atol=1e-15)


@pytest.mark.parametrize("size", [0.0, 1e-6, 0.9e-4, 1.1e-4, 1e-3, 0.7, 1.5, np.pi / 2, 2.5, 4.0])
def test_gradients_through_the_disk_are_central_differences(size):
    rng = np.random.default_rng(8)
    raw = size * np.array([np.cos(1.1), np.sin(1.1)])
    direction, weight = rng.normal(size=2), complex(*rng.normal(size=2))

    def f(at):
        return tf.math.real(weight * UNIT_DISK.forward(at))

    x = tf.constant(raw)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    result = tape.gradient(y, x).numpy() @ direction
    step = 1e-5 * direction
    assert result == pytest.approx((f(raw + step) - f(raw - step)).numpy() / 2e-5, abs=1e-9)


# Conversions


def test_a_real_parameter_is_a_number_wherever_one_is_expected():
    p = parameter(2.5, POSITIVE)
    assert float(p) == pytest.approx(2.5, rel=1e-15)
    assert complex(p) == pytest.approx(2.5, rel=1e-15)
    assert np.asarray(p).dtype == np.float64
    assert np.asarray(p, np.float32).dtype == np.float32
    assert np.array(p).shape == ()
    assert np.sqrt(p) == pytest.approx(np.sqrt(2.5), rel=1e-15)
    x = tf.constant([1.0, 2.0], tf.float64)
    np.testing.assert_allclose(tf.multiply(x, p), [2.5, 5.0], rtol=1e-15)
    np.testing.assert_allclose(x * p, [2.5, 5.0], rtol=1e-15)
    np.testing.assert_allclose(tf.convert_to_tensor(p), 2.5, rtol=1e-15)


def test_a_complex_parameter_is_no_float():
    p = parameter(0.3 - 0.4j, UNIT_DISK)
    assert complex(p) == pytest.approx(0.3 - 0.4j, rel=1e-15)
    assert np.abs(p) == pytest.approx(0.5, rel=1e-15)
    assert np.asarray(p).dtype == np.complex128
    with pytest.raises(TypeError, match=r"p is complex.*0\.3"):
        float(p)


def test_a_vector_is_an_array_and_no_float():
    p = parameter([1.0, 2.0], POSITIVE)
    np.testing.assert_allclose(p, [1.0, 2.0], rtol=1e-15)
    with pytest.raises(TypeError):
        float(p)


@pytest.mark.parametrize(
    ("value", "constraint", "weight_gradient"),
    [(2.0, POSITIVE, 2.0), (-3.0, REAL, 1.0), (-3.0, STEPS, 0.01)],
)
def test_gradients_reach_the_weight_through_a_conversion(value, constraint, weight_gradient):
    p = parameter(value, constraint)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(5.0 * tf.convert_to_tensor(p))
    gradient = tape.gradient(y, p.variable.value)
    assert float(gradient) == pytest.approx(5 * weight_gradient, rel=1e-14)


def test_it_shows_its_name_and_value():
    owner = Owner(p=(2.0, POSITIVE), q=([0.5, 1.0], POSITIVE), c=(0.5j, UNIT_DISK), fixed="q")
    assert repr(owner.p) == "p=2."
    assert repr(owner.q) == "q=[0.5, 1. ] (fixed)"
    assert repr(owner.c) == "c=0.+0.5j"


# Refusals


@pytest.mark.parametrize(
    ("value", "constraint", "error", "message"),
    [
        (0.0, POSITIVE, ValueError, "p must be positive, got 0.0"),
        (-1.0, POSITIVE, ValueError, "p must be positive, got -1.0"),
        ([1.0, 0.0], POSITIVE, ValueError, r"p must be positive, got \[1.0, 0.0\]"),
        (np.nan, POSITIVE, ValueError, "p must be positive and finite, got nan"),
        (np.inf, POSITIVE, ValueError, "p must be positive and finite, got inf"),
        (1j, POSITIVE, TypeError, "p must be real and positive, got 1j"),
        (5e-324, POSITIVE, ValueError, "p must be positive, got 5e-324"),
        ("1", POSITIVE, TypeError, "p must be positive, got '1'"),
        ("2", POSITIVE, TypeError, "p must be positive, got '2'"),
        (True, POSITIVE, TypeError, "p must be positive, got True"),
        (np.nan, REAL, ValueError, "p must be real and finite, got nan"),
        (1j, REAL, TypeError, "p must be real, got 1j"),
        (np.nan * 1j, COMPLEX, ValueError, "p must be complex and finite, got"),
        ("i", COMPLEX, TypeError, "p must be complex, got 'i'"),
        (1.001, UNIT_DISK, ValueError, "p must be complex of modulus at most 1, got 1.001"),
        (0.8 - 0.8j, UNIT_DISK, ValueError, "modulus at most 1, got"),
        (np.inf, STEPS, ValueError, "p must be real and finite, got inf"),
    ],
)
def test_values_outside_the_set_are_refused_at_construction_and_by_assign(
    value, constraint, error, message
):
    with pytest.raises(error, match=message):
        parameter(value, constraint)
    p = parameter(0.5, constraint)
    with pytest.raises(error, match=message):
        p.assign(value)
    assert complex(p) == pytest.approx(0.5, rel=1e-15)  # and stays as it was


@pytest.mark.parametrize("value", [1e-300, 1e-40, 2e200])
def test_a_value_beyond_single_precision_is_refused_there(value):
    assert float(parameter(value, POSITIVE)) == pytest.approx(value, rel=1e-12)
    with pytest.raises(ValueError, match="p must be positive and finite in float32, got"):
        parameter(value, POSITIVE, dtype="float32")


@pytest.mark.parametrize(
    ("start", "constraint", "value"),
    [
        (1.0, POSITIVE, [1.0, 2.0]),
        ([1.0, 2.0], POSITIVE, 1.0),
        ([1.0, 2.0], POSITIVE, [1.0, 2.0, 3.0]),
        (0.5, UNIT_DISK, [0.1, 0.2]),
        ([0.1, 0.2], UNIT_DISK, 0.5),
    ],
)
def test_another_shape_is_refused(start, constraint, value):
    p = parameter(start, constraint)
    with pytest.raises(ValueError) as caught:
        p.assign(value)
    shapes = np.shape(start), np.shape(value)
    assert f"p has shape {shapes[0]}, got a value of shape {shapes[1]}" in str(caught.value)
    np.testing.assert_allclose(p, start, rtol=1e-15)


def test_a_parameter_or_a_tensor_can_be_assigned():
    p, q = parameter(1.0, POSITIVE), parameter(4.0, POSITIVE)
    p.assign(q)
    assert float(p) == pytest.approx(4.0, rel=1e-15)
    p.assign(tf.constant(9.0))
    assert float(p) == pytest.approx(9.0, rel=1e-15)


def test_what_is_fixed_stays_so():
    owner = Owner(p=(1.0, POSITIVE), q=(2.0, POSITIVE), fixed="q")
    for p in (owner.p, owner.q):
        was = p.fixed
        with pytest.raises(AttributeError, match=r'give fixed="[pq]" to the constructor'):
            p.fixed = not was
        assert p.fixed is was
        with pytest.raises(AttributeError, match="trainable"):
            p.trainable = was
        with pytest.raises(AttributeError, match=r'priors=\{"[pq]": ...\} to the constructor'):
            p.prior = None
    assert [v.name for v in owner.trainable_variables] == ["p"]
    owner.trainable = False  # Keras's way to hold a whole layer
    assert not owner.p.fixed


# Declaration


def test_weights_are_real_named_and_trainable_unless_fixed():
    owner = Owner(a=(2.0, POSITIVE), b=([0.1, 0.2j], UNIT_DISK), c=(1.0, REAL), fixed=("c",))
    assert [v.name for v in owner.trainable_variables] == ["a", "b"]
    assert [v.name for v in owner.non_trainable_variables] == ["c"]
    assert {v.dtype for v in owner.weights} == {"float64"}
    assert owner.b.variable.shape == (2, 2)
    assert owner.own_parameters == (owner.a, owner.b, owner.c)


@pytest.mark.parametrize("what", ["fixed", "priors"])
def test_a_name_that_is_not_declared_is_refused(what):
    argument = {"fixed": ["p", "q"], "priors": {"q": tfd.Normal(0.0, 1.0)}}[what]
    with pytest.raises(ValueError, match=rf"{what} names \['q'\], but.*Owner are \['p'\]"):
        Owner(p=(1.0, REAL), **{what: argument})


@pytest.mark.parametrize("value", [3.0, tf.constant(3.0), parameter(3.0, POSITIVE)], ids=type)
def test_setting_the_attribute_is_refused_with_the_way_to_do_it(value):
    """It would replace the hyperparameter, and leave the model as it was."""
    owner = Owner(p=(1.0, POSITIVE))
    with pytest.raises(AttributeError, match=r"p is a hyperparameter.*p\.assign\("):
        owner.p = value
    assert float(owner.p) == 1.0
    owner.q = 3.0  # other attributes are free


def test_a_prior_acts_on_the_constrained_value():
    prior = tfd.Gamma(np.float32(3.0), np.float32(2.0))
    p = parameter([0.5, 1.5], POSITIVE, prior=prior)
    expected = sum(np.log(2.0**3 / 2) + 2 * np.log(v) - 2 * v for v in (0.5, 1.5))
    assert p.log_prior().dtype == tf.float64
    assert float(p.log_prior()) == pytest.approx(expected, rel=1e-14)
    with tf.GradientTape() as tape:
        y = p.log_prior()
    gradient = tape.gradient(y, p.variable.value).numpy()  # v d/dv, without a Jacobian of its own
    np.testing.assert_allclose(gradient, [2 - 2 * 0.5, 2 - 2 * 1.5], atol=1e-14)
    assert parameter(1.0, POSITIVE).log_prior() is None


COMPLEX_PRIORS = {
    "one for both parts": (tfd.Normal(0.5, 2.0), [0.5, 0.5], [2.0, 2.0]),
    "one for each part": (tfd.Normal([0.5, -1.0], [2.0, 3.0]), [0.5, -1.0], [2.0, 3.0]),
    "of vectors": (
        tfd.MultivariateNormalDiag([0.5, -1.0], [2.0, 3.0]), [0.5, -1.0], [2.0, 3.0]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("value", [0.3 - 0.4j, [0.1j, 0.2, -0.5 + 0.1j]], ids=["number", "vector"])
@pytest.mark.parametrize("case", COMPLEX_PRIORS)
def test_a_prior_of_a_complex_number_is_one_of_its_parts(case, value, dtype):
    prior, loc, scale = COMPLEX_PRIORS[case]
    p = parameter(value, COMPLEX, prior=prior, dtype=dtype)
    parts = np.stack([np.real(value), np.imag(value)], axis=-1)
    u = (parts - loc) / scale
    expected = np.sum(-0.5 * u**2 - np.log(np.sqrt(2 * np.pi) * np.array(scale)))
    with tf.GradientTape() as tape:
        result = p.log_prior()
    gradient = tape.gradient(result, p.variable.value)  # the parts are the weights
    assert result.dtype == dtype
    tolerance = 1e-13 if dtype == "float64" else 1e-5
    assert float(result) == pytest.approx(expected, rel=tolerance)
    np.testing.assert_allclose(gradient, -u / scale, atol=tolerance)
    config = json.loads(json.dumps(prior_config(p.prior)))
    revived = parameter(value, COMPLEX, prior=config, dtype=dtype)
    assert float(revived.log_prior()) == float(result)


def test_the_gradient_of_a_prior_of_a_coefficient_is_a_central_difference():
    p = parameter(0.3 - 0.8j, UNIT_DISK, prior=tfd.Normal([0.1, 0.2], [0.3, 0.4]))
    at, step = p.variable.numpy(), 1e-5
    with tf.GradientTape() as tape:
        y = p.log_prior()
    gradient = tape.gradient(y, p.variable.value).numpy()
    for i, shift in enumerate(step * np.eye(2)):
        p.variable.assign(at + shift)
        above = float(p.log_prior())
        p.variable.assign(at - shift)
        assert gradient[i] == pytest.approx((above - float(p.log_prior())) / (2 * step), abs=1e-7)


@pytest.mark.parametrize(
    ("value", "constraint", "prior", "message"),
    [
        (1.0, POSITIVE, tfd.LogNormal([0.0, 1.0], 1.0), r"shape \(2,\), but p has \(\)"),
        ([1.0, 2.0], POSITIVE, tfd.LogNormal([[0.0], [1.0]], 1.0), r"\(2, 1\), but p has \(2,\)"),
        (1j, COMPLEX, tfd.Normal([0.0, 1.0, 2.0], 1.0), r"\(3,\), but \[re, im\] of p has \(2,\)"),
        (1j, COMPLEX, tfd.MultivariateNormalDiag([0.0] * 3, [1.0] * 3), r"of p has \(2,\)"),
    ],
)
def test_a_prior_of_another_shape_is_refused(value, constraint, prior, message):
    """It would broadcast, and count the parameter several times."""
    with pytest.raises(ValueError, match=message):
        parameter(value, constraint, prior=prior)


@pytest.mark.parametrize("prior", [1.0, "normal", tfd.Normal, np.random.default_rng(0)])
def test_what_is_no_distribution_is_refused_as_a_prior(prior):
    with pytest.raises(TypeError, match=r"distribution of tfp.distributions, got"):
        parameter(1.0, POSITIVE, prior=prior)


@pytest.mark.parametrize(
    "change",
    [
        lambda prior: prior.pop("parameters"),
        lambda prior: prior.pop("distribution"),
        lambda prior: prior.update(parameters=[0.0, 1.0]),
        lambda prior: prior.update(distribution="Gauss"),
        lambda prior: prior.update(distribution="kullback_leibler"),
        lambda prior: prior.update(distribution=None),
        lambda prior: prior["parameters"].update(scale="wide"),
        lambda prior: prior["parameters"].update(width=1.0),
        lambda prior: prior["parameters"].update(loc=[0.0, 1.0], scale=[1.0, 1.0, 1.0]),
    ],
)
def test_a_malformed_config_of_a_prior_is_refused(change):
    config = prior_config(tfd.Normal(0.0, 1.0))
    change(config)
    with pytest.raises(ValueError, match=r'the prior of p cannot be read.*\{"distribution": name,'):
        parameter(1.0, POSITIVE, prior=config)


def test_configs_of_priors_and_numbers_are_plain():
    config = prior_config(tfd.LogNormal(np.float32(0.5), [1.0, 2.0]))
    assert config == {
        "distribution": "LogNormal",
        "parameters": {"loc": 0.5, "scale": [1.0, 2.0]},
    }
    revived = prior_from_config(config, "float64")
    assert revived.dtype == tf.float64
    assert prior_config(revived) == config
    for value in (1.5, [1.0, 2.0]):
        assert number_to_config(np.array(value)) == value
    for value in (0.3 - 0.1j, [1j, 2.0]):
        np.testing.assert_array_equal(complex_from_config(number_to_config(value)), value)
    assert number_to_config(1j) == [0.0, 1.0]
    assert complex_from_config(0.5) == 0.5


def test_parameters_are_named_by_prefix_once_each_and_numbered():
    a, b, c, d = (Owner(p=(float(i + 1), POSITIVE)) for i in range(4))
    result = named_parameters(
        [("", a), ("k", b), ("k", c), ("k", b), ("k_2", d), ("empty", Owner())]
    )
    assert list(result) == ["p", "k.p", "k_2.p", "k_2_2.p"]
    assert list(result.values()) == [a.p, b.p, c.p, d.p]


def test_layers_without_parameters_use_up_no_number():
    a, b = Owner(p=(1.0, REAL)), Owner(p=(2.0, REAL))
    assert list(named_parameters([("k", a), ("k", Owner()), ("k", b)])) == ["k.p", "k_2.p"]
