"""What results print: short, and without their numbers."""

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import datasets, distributions, linalg, statespace, training
from cgp.statespace.results import SeriesResult

RESULTS = {
    cls
    for space in (linalg, distributions, statespace, training, datasets)
    for cls in vars(space).values()
    if inspect.isclass(cls)
    and (hasattr(cls, "_fields") or issubclass(cls, SeriesResult))
    and cls is not statespace.Diagnostics
}


@pytest.mark.parametrize("cls", sorted(RESULTS, key=lambda cls: cls.__name__))
def test_is_the_text_of_every_result_that_of_its_shapes(cls):
    array = np.zeros((3, 50, 2), complex)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    else:
        names = cls._fields
    text = repr(cls(**dict.fromkeys(names, array)))
    assert text.startswith(f"{cls.__name__}(")
    assert text.endswith(")")
    for name in names:
        assert f"{name}=complex128[3, 50, 2]" in text
    assert max(map(len, text.splitlines())) <= 100


def test_have_numbers_and_results_inside_their_own_text():
    one = distributions.Marginals(np.complex128(1 + 2j), np.float32(0.125), tf.constant(1e-9j))
    step = distributions.Step(one, np.array(True), None)
    inside = "Marginals(mean=1+2j, variance=0.125, pseudo_variance=0+1e-09j)"
    assert repr(one) == inside
    assert repr(step) == (
        f"Step(\n    predicted={inside},\n    innovation=True,\n    filtered=None,\n)"
    )
    many = one.map(lambda a: np.full(1000, a))
    marginals = (
        "Marginals(mean=complex128[1000], variance=float32[1000], pseudo_variance=complex128[1000])"
    )
    assert repr(many) == marginals
    step = distributions.Step(many, np.zeros(2, int), many)
    assert repr(step) == (
        f"Step(\n    predicted={marginals},\n    innovation=int64[2],\n    filtered={marginals},\n)"
    )
    outer = distributions.Step(step, None, 0)  # lines inside are indented further
    assert "\n        innovation=int64[2],\n" in repr(outer)


def test_show_covariances_that_series_share_as_they_are_held():
    model = statespace.LinearGaussian([[0.9j]], [[0.5]], [[1.0]], [[0.5]])
    text = repr(statespace.filter(model, np.ones((4, 6, 1)) * 1j))
    assert "predicted_means=complex128[4, 6, 1]" in text
    assert "predicted_chols=complex128[1, 6, 1, 1]" in text
    assert "log_likelihood=float64[4]" in text


def test_have_results_a_text_inside_a_graph():
    texts = []

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.complex128)])
    def traced(z):
        texts.append(repr(distributions.Marginals(z, tf.math.real(z), tf.reduce_sum(z))))
        return z

    traced(np.zeros((3, 2), complex))
    assert texts == [
        "Marginals(mean=complex128[None, 2], variance=float64[None, 2], "
        "pseudo_variance=complex128[])"
    ]


def test_is_the_text_of_diagnostics_their_table():
    model = statespace.LinearGaussian([[0.9j]], [[0.5]], [[1.0]], [[0.5]])
    _, z = statespace.sample(model, 30, seed=1)
    result = statespace.diagnostics(cgp.statespace.filter(model, z))
    assert repr(result) == str(result)
    assert "mean NIS" in repr(result)
