"""Neighbours: the unit of distance of a kernel, and the nearest samples before each."""

import numpy as np
import pytest

from cgp.gp.vecchia.neighbours import NearestSamples, half_distances, nearest_before, predecessors
from cgp.kernels import RBF, Along, Constant, Levels, Matern12, Rotation
from tests.reference import vecchia as reference


def test_is_a_unit_the_distance_at_which_the_correlation_is_a_half():
    x = np.random.default_rng(0).uniform(0.0, 20.0, (4000, 3))
    kernel = RBF(2.0, [0.5, 4.0, 500.0]) * Rotation([3.0, 0.2, 1.0])
    half = np.sqrt(2.0 * np.log(2.0))
    distances = half_distances(kernel, x)
    np.testing.assert_allclose(distances[:2], [0.5 * half, 4.0 * half], rtol=0.05)
    np.testing.assert_allclose(distances[2], np.ptp(x[:, 2]))  # it stays correlated


def test_does_a_kernel_of_labels_have_a_unit():
    labels = np.arange(200) % 3
    x = np.stack([np.linspace(0.0, 9.0, 200), labels], axis=-1)
    kernel = Along(Matern12(1.0, 1.0), 0) * Along(Levels(3, np.eye(3)), 1)
    np.testing.assert_allclose(half_distances(kernel, x), [np.log(2.0), 1.0], rtol=0.1)


@pytest.mark.parametrize("x", [np.zeros((1, 2)), np.zeros((5, 2)), np.arange(6.0).reshape(3, 2)])
def test_do_points_without_distances_have_a_unit(x):
    distances = half_distances(Constant(1.0), x)
    assert np.all(np.isfinite(distances) & (distances > 0.0))


@pytest.mark.parametrize("count", [1, 4, 30])
def test_are_the_nearest_before_those_of_all_distances(count):
    x = np.random.default_rng(1).uniform(size=(60, 2))
    near = nearest_before(x, count)
    expected = reference.predecessors(x, 1.0, range(60), count)
    for number, row in enumerate(near):
        assert sorted(row[row >= 0]) == sorted(expected[number])


def test_are_there_as_many_neighbours_among_equal_points():
    near = nearest_before(np.zeros((50, 2)), 4)
    assert np.all(near < np.arange(50)[:, None])
    assert all(len(set(row)) == 4 for row in near[4:])
    assert np.all(near[4:] >= 0)


def test_are_missing_samples_nobodys_neighbours():
    x, present = np.random.default_rng(2).uniform(size=(80, 2)), np.arange(80) % 4 > 0
    rows, near = (a.numpy() for a in predecessors(RBF(1.0, 0.3), x, present, 6))
    assert sorted(rows) == list(np.flatnonzero(present))
    assert np.all(present[near[near >= 0]])
    expected = reference.predecessors(x, half_distances(RBF(1.0, 0.3), x[present]), rows, 6)
    for number, row in zip(rows, near, strict=True):
        assert sorted(row[row >= 0]) == sorted(expected[number])


def test_have_rows_that_are_drawn_all_of_their_neighbours():
    x, present = np.random.default_rng(2).uniform(size=(80, 2)), np.arange(80) % 4 > 0
    full = dict(zip(*(a.numpy().tolist() for a in predecessors(RBF(), x, present, 6)), strict=True))
    rows, near = (a.numpy().tolist() for a in predecessors(RBF(), x, present, 6, 30))
    assert len(set(rows)) == 30
    assert [full[number] for number in rows] == near
    rows, near = (a.numpy() for a in predecessors(RBF(), x, present, 6, 75))
    assert np.count_nonzero(rows < 0) == 15  # in place of missing samples
    assert np.all(near[rows < 0] == -1)


def test_are_nearest_samples_those_of_all_distances():
    rng = np.random.default_rng(3)
    x, points, present = rng.uniform(size=(50, 2)), rng.uniform(size=(4, 2)), np.arange(50) % 3 > 0
    nearest = NearestSamples()
    for kernel in (RBF(1.0, [0.2, 0.6]), RBF(1.0, [0.6, 0.2])):  # the tree follows the metric
        unit = half_distances(kernel, x[present])
        distances = np.linalg.norm((x[None] - points[:, None]) / unit, axis=-1)
        distances[:, ~present] = np.inf
        expected = np.argsort(distances, axis=-1)[:, :7]
        np.testing.assert_array_equal(nearest.query(kernel, x, present, points, 7), expected)
    assert np.sum(nearest.query(kernel, x, present, points, 40) < 0) == 4 * (40 - present.sum())
