"""What a process is called on: complex observations alone are refused as a model is made."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import Matern12
from cgp.layers import Recursive

Z = np.exp(0.4j * np.arange(6.0))
X = np.arange(6.0)[:, None]
KINDS = [cgp.ExactGP, cgp.StateSpaceGP, cgp.RecursiveGP]
PAIR = r"called on the pair \(x, z\).*got complex128 of shape \(.*6.*\) alone: gp\(\(x, z\)\)"


def made(kind):
    return kind(Matern12(variance=1.0, lengthscale=3.0), noise_variance=0.1)


def symbolic():
    return keras.Input((6, 1), dtype="float64"), keras.Input((6,), dtype="complex128")


@pytest.mark.parametrize("kind", KINDS)
def test_are_complex_values_alone_refused_at_once(kind):
    gp = made(kind)
    with pytest.raises(TypeError, match=PAIR):
        gp(symbolic()[1])
    with pytest.raises(TypeError, match=PAIR):
        keras.Sequential([keras.Input((6,), dtype="complex128"), gp])
    with pytest.raises(TypeError, match=PAIR):
        gp(Z)
    with pytest.raises(TypeError, match=r"begins with x, real positions, got complex128"):
        gp(symbolic()[::-1])
    with pytest.raises(TypeError, match=r"begins with x, real positions, got complex128"):
        gp((Z[:, None], Z))


def test_are_they_refused_by_a_layer_of_pieces():
    layer = Recursive(made(cgp.RecursiveGP))
    for given in (Z[None], symbolic()[1]):
        with pytest.raises(TypeError, match=PAIR):
            layer(given)
    with pytest.raises(ValueError, match="takes a pair"):
        layer(symbolic()[0])


def test_does_the_remedy_work():
    x, z = symbolic()
    gp = made(cgp.ExactGP)
    model = cgp.Functional([x, z], gp((x, z))["mean"])
    np.testing.assert_allclose(model([X[None], Z[None]])[0], gp((X, Z))["mean"], rtol=1e-12)
