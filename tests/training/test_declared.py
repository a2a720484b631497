"""Constructors that are written from declared fields: what they take, refuse, keep and save."""

import inspect
import json

import keras
import numpy as np
import pytest

from cgp.kernels import Kernel
from cgp.training import POSITIVE, REAL, UNIT_DISK, Hyperparameter, Parameter, declared, setting


def whole(value, name):
    if value != int(value):
        raise ValueError(f"{name} must be whole, got {value!r}")
    return int(value)


@keras.saving.register_keras_serializable(package="tests.declared")
@declared
class Turned(Kernel):
    order: int = setting(whole)
    coefficients: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.order
    )
    rate: Hyperparameter = Hyperparameter(REAL, default=0.0, relative_step=0.01)

    def set_derived_attributes(self):
        self.sizes = self.order, self.coefficients.numpy().size


class Labelled(Kernel):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.label = "of the base"


@declared
class Steep(Labelled):
    slope: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)


@declared
class Steeper(Steep):
    bend: Hyperparameter = Hyperparameter(POSITIVE, default=2.0)


def test_has_the_constructor_the_fields_in_their_order():
    assert str(inspect.signature(Turned)).startswith("(order: int, coefficients: ")
    names = list(inspect.signature(Turned).parameters)
    assert names == [
        *("order", "coefficients", "rate", "fixed", "priors", "name", "dtype", "kwargs")
    ]  # fmt: skip
    assert list(inspect.signature(Steeper).parameters)[:2] == ["slope", "bend"]
    assert Turned.__init__.__qualname__ == "Turned.__init__"
    assert not hasattr(Turned, "coefficients")


def test_are_fields_parameters_and_attributes():
    kernel = Turned(2, [0.5, 0.1j], rate=-3.0, fixed="rate", name="bend", dtype="float32")
    assert all(isinstance(p, Parameter) for p in (kernel.coefficients, kernel.rate))
    assert kernel.sizes == (2, 2)
    assert kernel.rate.fixed
    np.testing.assert_allclose(kernel.rate.step, 0.03)
    assert [v.name for v in kernel.variables] == ["coefficients", "rate_step", "rate"]
    assert list(kernel.parameters()) == ["bend.coefficients", "bend.rate"]


def test_is_what_was_left_out_to_be_learned():
    kernel = Turned(3)
    assert kernel.coefficients.is_left_out
    assert kernel.coefficients.numpy().shape == (3,)
    assert not kernel.rate.is_left_out


def test_come_fields_back_from_the_config():
    kernel = Turned(2, [0.5, 0.1j], 0.3, fixed=("rate",))
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(kernel)))
    assert repr(keras.saving.deserialize_keras_object(config)) == repr(kernel)
    assert keras.saving.deserialize_keras_object(config).order == 2


def test_runs_the_constructor_of_a_base_that_has_its_own():
    kernel = Steeper(bend=3.0)
    assert kernel.label == "of the base"
    assert (float(kernel.slope), float(kernel.bend)) == pytest.approx((1.0, 3.0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Turned(), TypeError, r"Turned.__init__\(\) missing 1 required.*'order'"),
        (lambda: Turned(1, None, 0.0, 4), TypeError, "takes from 2 to 4 positional arguments"),
        (lambda: Turned(1.5), ValueError, "order must be whole, got 1.5"),
        (lambda: Turned(2, [0.5]), ValueError, r"coefficients must have shape \[2\], got \[1\]"),
        (lambda: Turned(1, rate="a"), TypeError, "rate must be a number, got 'a'"),
        (lambda: Turned(1, rat=1.0), TypeError, "Turned has no such arguments.*did you mean rate"),
        (lambda: Turned(1, fixed="order"), ValueError, r"fixed names \['order'\]"),
        (lambda: Steep(0.0), ValueError, "slope must be positive"),
    ],
)
def test_is_a_wrong_argument_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
