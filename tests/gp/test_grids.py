"""A grid is one series of points, and refused where it is given as another thing."""

import re

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF
from cgp.layers import GPInterpolator

T, F = np.arange(4.0), np.linspace(0.0, 1.0, 6)
GRID = np.stack(np.meshgrid(T, F, indexing="ij"), -1)
Z = np.exp(0.3j * GRID[..., 0] + 1j * GRID[..., 1])


def gp():
    return cgp.ExactGP(RBF(variance=1.0, lengthscale=2.0), 0.1)


def tracker():
    return cgp.RecursiveGP(RBF(variance=1.0, lengthscale=2.0), 0.1, capacity=24)


DOORS = {
    "condition": lambda x, z: gp().condition(x, z),
    "log_marginal_likelihood": lambda x, z: gp().log_marginal_likelihood(x, z),
    "process": lambda x, z: tracker().process(x, z),
    "GPInterpolator": lambda x, z: GPInterpolator(RBF(1.0, 2.0), 0.1)((x, z, x)),
}


@pytest.mark.parametrize("door", DOORS)
def test_is_a_grid_no_batch_of_series(door):
    words = r"x \(4, 6, 2\) and z \(4, 6\) are read as 4 independent series of 6 samples.*a grid is"
    with pytest.raises(ValueError, match=words):
        DOORS[door](GRID, Z)


def test_is_a_grid_of_three_dimensions_no_batch_either():
    lines = np.meshgrid(T, F, T, indexing="ij")
    x = np.stack(lines, -1)
    with pytest.raises(ValueError, match=r"24 independent series of 4 samples.*x.reshape\(-1, 3\)"):
        gp().condition(x, np.exp(1j * lines[0]))


def test_do_the_remedies_lead_to_one_series_or_to_independent_ones():
    names = {"x": GRID, "z": Z}
    with pytest.raises(ValueError, match="a grid is one series") as caught:
        gp().condition(GRID, Z)
    found = re.search(r"one series, (.*) and (.*), and so .* out, (.*)$", str(caught.value))
    x, z, along = (eval(code, names) for code in found.groups())
    np.testing.assert_array_equal(x[7], GRID[1, 1])
    assert z[7] == Z[1, 1]
    gp().condition(x, z)
    np.testing.assert_array_equal(along, GRID[..., 1:])
    gp().condition(along, Z)


def test_are_series_along_curves_no_grid():
    x = GRID + 0.01 * np.random.default_rng(0).normal(size=GRID.shape)
    gp().condition(x, Z)  # they vary in two coordinates
    gp().condition(np.tile(GRID[:1], (4, 1, 1)), Z)  # all at the same points
    gp().condition(GRID[:, :1], Z[:, :1])  # of one sample each


LINES = {
    "arrays": (T, F),
    "arrays of one length": (F, F),
    "columns": (pd.Series(T), pd.Series(F)),
    "lists": (T.tolist(), F.tolist()),
    "a list of arrays": [T, F],
}


@pytest.mark.parametrize("name", LINES)
def test_do_lines_say_how_a_grid_is_given(name):
    x = LINES[name]
    z = np.ones([len(line) for line in x], complex)
    for take in (gp().condition, tracker().process, lambda x, z: gp().predict(x)):
        with pytest.raises(ValueError, match=r"x must be an array.*lines of a grid") as caught:
            take(x, z)
        assert "inhomogeneous" not in str(caught.value)
    code = re.search(r"points by (.*), and its z \[T, F\] by (.*?)(;|$)", str(caught.value))
    found, values = (eval(code[i], {"np": np, "x": x, "z": z, "len": len}) for i in (1, 2))
    np.testing.assert_array_equal(found[1], [x[0][0], x[1][1]])
    gp().condition(found, values)


def test_are_points_as_a_tuple_of_arrays_still_points():
    x = tuple(GRID.reshape(-1, 2))
    gp().condition(x, Z.ravel())
    gp().condition((0.0, 1.0, 2.0), np.ones(3, complex))


RAGGED = [[1j, 2j], [1j, 2j, 3j]]


@pytest.mark.parametrize(
    "take",
    [
        lambda: gp().condition(T, RAGGED),
        lambda: gp().condition(T, Z[:, 0], [[True], [True, False]]),
        lambda: gp().condition(T, Z[:, 0], noise_variance=[[1.0], [1.0, 2.0]]),
        lambda: gp().condition([[0.0, 1.0], [0.0, 1.0, 2.0]], RAGGED),
        lambda: tracker().process([[0.0, 1.0], [0.0, 1.0, 2.0]], RAGGED),
        lambda: cgp.RecursiveGP(RBF(1.0, 2.0), 0.1).step([[0.0], [0.0, 1.0]], 1j),
    ],
)
def test_do_ragged_sequences_end_in_words_of_this_package(take):
    with pytest.raises(ValueError, match=r"rows (of one|differ in) length") as caught:
        take()
    assert "inhomogeneous" not in str(caught.value)


def test_does_a_graph_take_series_whose_places_it_does_not_know():
    graph = tf.function(gp().log_marginal_likelihood)
    assert graph(tf.constant(GRID), tf.constant(Z)).shape == (4,)
