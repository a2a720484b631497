"""Kernels of kernels: what may be combined, the names of their hyperparameters, how they show."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from cgp.kernels import (
    RBF,
    Conjugate,
    Constant,
    Matern12,
    Product,
    RationalQuadratic,
    Rotation,
    Sum,
    White,
    WidelyLinear,
)
from cgp.training.parameters import named_parameters
from tests.kernels.expressions import EXPRESSIONS

X = np.array([0.0, 0.4, 1.7])


# Scalars


@pytest.mark.parametrize("number", [2, 2.0, np.float64(2), np.float32(2), np.int64(2)], ids=repr)
def test_a_number_of_any_type_scales_the_covariance_and_stays_fixed(number):
    kernel = RBF(1.5)
    for scaled in (number * kernel, kernel * number):
        assert isinstance(scaled, Product)
        np.testing.assert_allclose(scaled.covariance(X), 2 * kernel.covariance(X), rtol=1e-14)
        assert len(scaled.trainable_variables) == len(kernel.trainable_variables)
        assert scaled.parts[-1] is kernel


def test_sum_of_a_list_is_the_sum():
    parts = [RBF(), Rotation(), White()]
    total = sum(parts)
    assert isinstance(total, Sum)
    assert list(total.parts) == parts
    assert sum(parts[:1]) is parts[0]


@pytest.mark.parametrize("number", [0, -1.0, np.nan, np.inf])
def test_a_scalar_that_is_not_positive_is_refused(number):
    with pytest.raises(ValueError, match=f"must be positive( and finite)?, got {number}"):
        number * RBF()


@pytest.mark.parametrize(
    "combine",
    [
        lambda k: 1j * k,
        lambda k: k * 1j,
        lambda k: k + 1.0,
        lambda k: 1.0 + k,
        lambda k: k / k,
        lambda k: 2.0 / k,
        lambda k: k / 1j,
        lambda k: k - k,
        lambda k: k * np.array([1.0, 2.0]),
        lambda k: np.array([1.0, 2.0]) * k,
        lambda k: k * "2",
        lambda k: k @ k,
    ],
)
def test_other_arithmetic_is_refused(combine):
    with pytest.raises(TypeError, match="RBF"):
        combine(RBF())


@pytest.mark.parametrize(
    "combine", [lambda k: -k, lambda k: k - k, lambda k: k - 1.0, lambda k: 1.0 - k]
)
def test_a_covariance_is_not_negated(combine):
    with pytest.raises(TypeError, match=r"RBF\(.*\) cannot be negated or subtracted"):
        combine(RBF())


@pytest.mark.parametrize("number", [2, 2.0, np.float64(2), np.float32(2)], ids=repr)
def test_dividing_by_a_number_divides_the_covariance(number):
    kernel = WidelyLinear(RBF(1.5), 0.5j)
    halved = kernel / number
    assert isinstance(halved, Product)
    for moment in ("covariance", "pseudo_covariance"):
        expected = getattr(kernel, moment)(X) / 2
        np.testing.assert_allclose(getattr(halved, moment)(X), expected, rtol=1e-14)
    assert len(halved.trainable_variables) == len(kernel.trainable_variables)


@pytest.mark.parametrize("number", [0, 0.0, np.float64(0), -2.0, np.nan, np.inf])
def test_dividing_by_what_is_not_positive_is_refused(number):
    with pytest.raises((ValueError, ZeroDivisionError), match=r"must be positive|division by zero"):
        RBF() / number


# Structure


def test_sums_and_products_are_flat_unless_named():
    a, b, c = RBF(), Rotation(), White()
    assert (a + (b + c)).parts == ((a + b) + c).parts == (a, b, c)
    assert (a * (b * c)).parts == (a, b, c)
    named = Sum([a, b], name="tone")
    assert (named + c).parts == (named, c)
    assert [type(part) for part in (a * (b + c)).parts] == [RBF, Sum]


def test_the_same_kernel_twice_is_one_set_of_hyperparameters():
    k = RBF()
    total = k * Rotation(0.3) + k * Rotation(0.5)
    assert len(total.trainable_variables) == 4
    assert list(total.parameters()) == [
        "rbf.variance",
        "rbf.lengthscale",
        "rotation.frequency",
        "rotation_2.frequency",
    ]
    before = total.covariance(X)
    k.variance.assign(3.0)
    np.testing.assert_allclose(total.covariance(X), 3 * before, rtol=1e-14)


improper = WidelyLinear(RBF(), 0.5)


@pytest.mark.parametrize(
    "factors",
    [
        [Rotation(0.3), improper],
        [improper, Rotation(0.3)],
        [improper, RBF() * Rotation(0.3)],
        [improper, RBF() + Rotation(0.3)],
        [improper, Conjugate(Rotation(0.3))],
        [improper + RBF(), Rotation(0.3)],
        [improper, improper, Rotation(0.3)],
        [improper, Product([RBF(), Rotation(0.3)], name="tone")],
    ],
)
def test_a_rotation_beside_an_improper_kernel_is_refused_with_the_remedy(factors):
    with pytest.raises(ValueError, match=r"Rotation\(frequency=0.3\).*put it inside, WidelyLinear"):
        Product(factors)
    inside = WidelyLinear(RBF() * Rotation(0.3), 0.5)
    assert not (RBF() * inside).is_proper


def test_a_real_kernel_may_multiply_an_improper_one_whatever_it_is_made_of():
    for real in (RBF() + White(), RBF() * Matern12(), Conjugate(RBF()), Constant()):
        product = improper * real
        expected = improper.pseudo_covariance(X) * real.covariance(X)
        np.testing.assert_allclose(product.pseudo_covariance(X), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RBF() + RBF(dtype="float32"), TypeError, "Sum.*must have one dtype.*float32"),
        (lambda: RBF() * RBF(dtype="float32"), TypeError, "Product.*must have one dtype"),
        (lambda: Sum([RBF()], dtype="float32"), TypeError, "Sum.*is float32, and RBF.*is float64"),
        (lambda: WidelyLinear(RBF(), 0.1, dtype="float32"), TypeError, "float32, and RBF.*float64"),
        (lambda: RBF(dtype="complex128"), ValueError, "float32 or float64.*got 'complex128'"),
        (lambda: RBF(dtype="float16"), ValueError, "float32 or float64.*got 'float16'"),
        (lambda: Sum([]), ValueError, "Sum needs at least one kernel"),
        (lambda: Sum(RBF()), TypeError, "Sum takes a list of kernels, got RBF"),
        (lambda: Product([RBF(), 2.0]), TypeError, "Product is made of kernels, got 2.0"),
        (lambda: Conjugate("k"), TypeError, "Conjugate is made of kernels, got 'k'"),
        (lambda: WidelyLinear([RBF()], 0.1), TypeError, "WidelyLinear is made of kernels"),
        (lambda: WidelyLinear(RBF(), 1.01), ValueError, "coefficient.*at most 1, got 1.01"),
        (lambda: WidelyLinear(RBF(), 0.8 + 0.8j), ValueError, "coefficient.*at most 1"),
        (lambda: WidelyLinear(RBF(), "0.1"), TypeError, "coefficient must be a number, got '0.1'"),
        (lambda: WidelyLinear(RBF(), [0.1, 0.2]), ValueError, r"coefficient.*one number.*\(2,\)"),
        (lambda: RBF(variance=0.0), ValueError, "variance must be positive, got 0.0"),
        (lambda: RBF(variance=1j), TypeError, "variance must be real and positive, got 1j"),
        (lambda: RBF(variance=[1.0, 2.0]), ValueError, r"variance must be one number.*\(2,\)"),
        (lambda: RBF(lengthscale=-1.0), ValueError, "lengthscale must be positive, got -1.0"),
        (lambda: RBF(lengthscale=[]), ValueError, r"one for each dimension of x, got shape \(0,\)"),
        (lambda: RBF(lengthscale=np.eye(2)), ValueError, r"lengthscale.*got shape \(2, 2\)"),
        (lambda: RationalQuadratic(alpha=[1.0, 2.0]), ValueError, "alpha must be one number"),
        (lambda: Rotation("fast"), TypeError, "frequency must be a number, got 'fast'"),
        (lambda: Rotation(np.inf), ValueError, "frequency must be real and finite, got inf"),
        (lambda: White("loud"), TypeError, "variance must be a number, got 'loud'"),
        (lambda: Constant([1.0]), ValueError, r"variance must be one number, got shape \(1,\)"),
        (lambda: RBF(1e-300, dtype="float32"), ValueError, "finite in float32, got 1e-300"),
        (lambda: RBF(fixed="scale"), ValueError, r"fixed names \['scale'\].*'variance'"),
        (lambda: RBF(priors={"scale": 1}), ValueError, r"priors names \['scale'\].*'variance'"),
        (lambda: RBF(priors={"variance": 1.0}), TypeError, "prior must be a distribution.*got 1.0"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("kernel", "x1", "x2", "error", "message"),
    [
        (RBF(), 1.0, None, ValueError, r"x1 must be \[N\] or \[..., N, D\], got a scalar"),
        (RBF(), X + 1j, None, TypeError, "x1 must be real, got complex128.*two real coordinates"),
        (RBF(), [0.0, np.nan], None, ValueError, "x1 must be finite"),
        (RBF(), [0.0], [np.inf], ValueError, "x2 must be finite"),
        (RBF(), np.array(["2020-01-01"], "M8[D]"), None, TypeError, "real numbers, got datetime64"),
        (RBF(), ["a"], None, TypeError, "x1 must be real numbers, got text"),
        (RBF(), [None], None, TypeError, "x1 must be real numbers, got object"),
        (RBF(), np.ones((3, 2)), np.ones((3, 1)), ValueError, r"same number of dim.*\(3, 2\)"),
        (RBF(), np.ones((2, 3, 1)), np.ones((4, 3, 1)), ValueError, r"axes of x1, \(2, 3, 1\)"),
        (RBF(1.0, [1.0, 2.0]), X, None, ValueError, "lengthscale has 2 elements.*x has 1"),
        (Rotation([1.0, 2.0]), np.ones((4, 3)), None, ValueError, "frequency has 2.*x has 3"),
    ],
)  # fmt: skip
def test_bad_inputs_are_refused_by_name(kernel, x1, x2, error, message):
    with pytest.raises(error, match=message):
        kernel.covariance(x1, x2)


# Names and values


def test_names_are_given_made_of_the_class_and_numbered():
    kernel = (
        2.0 * RBF(name="annual")
        + Matern12() * Rotation(0.5)
        + WidelyLinear(Matern12(), 0.1, name="ellipse")
        + RBF()
        + RBF(name="annual")
    )
    assert list(kernel.parameters()) == [
        "constant.variance",
        "annual.variance",
        "annual.lengthscale",
        "matern12.variance",
        "matern12.lengthscale",
        "rotation.frequency",
        "ellipse.coefficient",
        "matern12_2.variance",
        "matern12_2.lengthscale",
        "rbf.variance",
        "rbf.lengthscale",
        "annual_2.variance",
        "annual_2.lengthscale",
    ]


@pytest.mark.parametrize("names", [("rbf_2", None, None), (None, None, "rbf_2")])
def test_a_given_name_that_looks_numbered_hides_nothing(names):
    kernel = sum(RBF(variance=1.0 + i, name=name) for i, name in enumerate(names))
    found = kernel.parameters()
    assert len(found) == 6
    assert sorted(v for name, v in found.items() if "variance" in name) == pytest.approx([1, 2, 3])


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda e: e.name)
def test_every_hyperparameter_has_one_name(expression):
    kernel = expression.make("float64")
    named = named_parameters(kernel.named_layers())
    values, parameters = kernel.parameters(), named.values()
    assert list(values) == list(named)
    for name, value in values.items():
        assert isinstance(value, np.ndarray | np.generic)
        np.testing.assert_array_equal(value, named[name].numpy())
    owned = [v for p in parameters for v in p.variables]  # the weight, and the step it counts in
    assert {id(v) for v in owned} == {id(v) for v in kernel.weights}
    assert len(owned) == len(kernel.weights)
    learned = {id(p.variable) for p in parameters if not p.fixed}
    assert learned == {id(v) for v in kernel.trainable_variables}


def test_a_kernel_shows_its_constrained_values():
    assert repr(RBF(1.5, [0.5, 2.0])) == "RBF(variance=1.5, lengthscale=[0.5, 2. ])"
    assert repr(Rotation(-0.84, fixed="frequency")) == "Rotation(frequency=-0.84 (fixed))"
    kernel = WidelyLinear((Matern12(0.25, 1.0) + White(2.0)) * Rotation(0.5), 0.3 + 0.1j)
    assert repr(kernel) == (
        "WidelyLinear((Matern12(variance=0.25, lengthscale=1.) + White(variance=2.)) * "
        "Rotation(frequency=0.5), coefficient=0.3+0.1j)"
    )
    assert repr(Conjugate(RBF(1.0, 1.0))) == "Conjugate(RBF(variance=1., lengthscale=1.))"
    kernel = RBF()
    kernel.variance.assign(7.0)
    assert "variance=7." in repr(kernel)


def test_fixed_hyperparameters_are_not_trainable_but_can_be_assigned():
    kernel = RBF(2.0, 3.0, fixed=("variance",))
    assert [v.name for v in kernel.trainable_variables] == ["lengthscale"]
    assert kernel.variance.fixed
    assert not kernel.lengthscale.fixed
    kernel.trainable = False
    kernel.trainable = True
    assert [v.name for v in kernel.trainable_variables] == ["lengthscale"]
    kernel.variance.assign(5.0)
    assert float(kernel.variance) == pytest.approx(5.0, rel=1e-15)
    assert kernel.covariance([0.0]).numpy()[0, 0] == pytest.approx(5.0, rel=1e-15)


def test_assigning_changes_the_covariance():
    kernel = WidelyLinear(RBF(), 0.1)
    kernel.coefficient.assign(0.5j)
    expected = WidelyLinear(RBF(), 0.5j)
    for moment in ("covariance", "pseudo_covariance"):
        found, wanted = getattr(kernel, moment)(X), getattr(expected, moment)(X)
        np.testing.assert_allclose(found, wanted, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_single_precision_prior_serves_a_kernel_of_either_precision(dtype):
    prior = tfp.distributions.LogNormal(np.float32(0.5), np.float32(0.25))
    assert prior.dtype == tf.float32
    kernel = RBF(2.0, [1.0, 3.0], priors={"variance": prior, "lengthscale": prior}, dtype=dtype)

    def log_density(v):
        u = (np.log(v) - 0.5) / 0.25
        return -0.5 * u**2 - np.log(v * 0.25 * np.sqrt(2 * np.pi))

    tolerance = 1e-6 if dtype == "float32" else 1e-14
    variance, lengthscale = kernel.variance.log_prior(), kernel.lengthscale.log_prior()
    assert variance.dtype == lengthscale.dtype == dtype
    assert float(variance) == pytest.approx(log_density(2.0), rel=tolerance)
    expected = log_density(1.0) + log_density(3.0)  # summed over the elements
    assert float(lengthscale) == pytest.approx(expected, rel=tolerance)
    assert Rotation().frequency.log_prior() is None


def test_a_kernel_is_float64_whatever_the_default_of_keras():
    for dtype in ({}, {"dtype": None}):
        kernel = RBF(**dtype)
        assert kernel.variable_dtype == kernel.variance.variable.dtype == "float64"
        assert (kernel + Rotation()).variable_dtype == "float64"
