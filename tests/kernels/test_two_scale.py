"""The kernel of two length scales: it is a sum, and its scales keep their places."""

import numpy as np
import pytest

import cgp
from cgp.kernels import Matern52, Rotation, TwoScale

X = np.array([0.0, 0.1, 0.3, 1.4, 1.4, 5.0])
Z = np.exp(1j * X) + 0.3 * np.exp(9j * X)


def both(dtype="float64"):
    return Matern52(0.6 * 1.7, 1.6, dtype=dtype) + Matern52(0.4 * 1.7, 0.3 * 1.6, dtype=dtype)


@pytest.mark.parametrize(
    "wrap", [lambda k: k, lambda k: k * Rotation(0.2)], ids=["alone", "turned"]
)
def test_is_it_the_sum_of_two_in_every_process(wrap):
    kernel, expected = wrap(TwoScale(1.7, 1.6, 0.3, 0.4)), wrap(both())
    for make in (cgp.ExactGP, cgp.StateSpaceGP):
        found = make(kernel, 0.1).log_marginal_likelihood(X, Z)
        np.testing.assert_allclose(
            found, make(expected, 0.1).log_marginal_likelihood(X, Z), rtol=1e-12
        )
    streams = [cgp.RecursiveGP(k, 0.1, capacity=4) for k in (kernel, expected)]
    for x, z in zip(X, Z, strict=True):
        found, wanted = (stream.step(x, z).filtered for stream in streams)
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


def test_is_the_state_that_of_two_kernels():
    form, expected = TwoScale(1.7, 1.6, 0.3, 0.4).markov_form(), both().markov_form()
    np.testing.assert_allclose(form.h, expected.h)
    np.testing.assert_allclose(form.generator.A, expected.generator.A, rtol=1e-14)
    np.testing.assert_allclose(form.generator.W, expected.generator.W, rtol=1e-14)


@pytest.mark.parametrize("name", ["ratio", "share"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1])
def test_a_fraction_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be between 0 and 1, got {value}"):
        TwoScale(**{name: value})


@pytest.mark.parametrize("name", ["ratio", "share"])
def test_a_complex_fraction_is_refused(name):
    with pytest.raises(TypeError, match=f"{name} must be real and between 0 and 1, got 1j"):
        TwoScale(**{name: 1j})


def test_do_length_scales_fit_the_dimensions():
    assert not TwoScale(1.0, [1.0, 2.0]).is_markov
    with pytest.raises(ValueError, match="is not Markov"):
        TwoScale(1.0, [1.0, 2.0]).markov_form()
    with pytest.raises(ValueError, match="lengthscale has 2 elements"):
        TwoScale(1.0, [1.0, 2.0]).covariance(np.ones((3, 1)))
