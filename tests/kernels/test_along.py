"""Kernels of one coordinate of x."""

import keras
import numpy as np
import pytest

import cgp
from cgp.gp.starts import values_from_data
from cgp.kernels import (
    RBF,
    Along,
    Coregionalized,
    ExponentialDelays,
    Matern32,
    Product,
    Rotation,
    WidelyLinear,
)

T, F = np.arange(12.0), 0.5 * np.arange(9)
GRID = np.stack(np.meshgrid(T, F, indexing="ij"), axis=-1).reshape(-1, 2)


def channel():
    return Along(Matern32(1.0, 5.0) * Rotation(0.2), 0) * Along(ExponentialDelays(2.0, 0.1), 1)


def draw(kernel, noise=1e-3, seed=0):
    rng = np.random.default_rng(seed)
    covariance = kernel.covariance(GRID).numpy() + noise * np.eye(len(GRID))
    return np.linalg.cholesky(covariance) @ (rng.normal(size=(len(GRID), 2)) @ [1, 1j] / 2**0.5)


def test_is_the_covariance_of_a_grid_the_product_of_those_of_its_axes():
    wanted = np.kron(
        (Matern32(1.0, 5.0) * Rotation(0.2)).covariance(T),
        ExponentialDelays(2.0, 0.1).covariance(F),
    )
    np.testing.assert_allclose(channel().covariance(GRID), wanted, rtol=1e-12)


def test_has_an_improper_kernel_its_pseudo_covariance_along_the_axis():
    kernel = WidelyLinear(RBF(1.0, 1.0), 0.4j)
    x1, x2 = GRID[:7], GRID[-5:]
    for name in ("covariance", "pseudo_covariance"):
        wanted = getattr(kernel, name)(x1[:, 1], x2[:, 1])
        np.testing.assert_allclose(getattr(Along(kernel, 1), name)(x1, x2), wanted)


def test_start_values_left_out_from_rows_of_a_grid():
    z = draw(Along(RBF(1.0, 6.0) * Rotation(0.2), 0) * Along(RBF(1.0, 1.5) * Rotation(-0.6), 1))
    over_time, over_frequency = RBF() * Rotation(), RBF() * Rotation()
    gp = cgp.ExactGP(Along(over_time, 0) * Along(over_frequency, 1))
    gp.fit(GRID, z, verbose=0)
    assert float(over_time.parts[1].frequency) == pytest.approx(0.2, abs=0.03)
    assert float(over_frequency.parts[1].frequency) == pytest.approx(-0.6, abs=0.08)
    assert over_time.parts[0].lengthscale.numpy().ndim == 0
    assert float(over_time.parts[0].lengthscale) == pytest.approx(6.0, rel=0.5)
    assert float(over_frequency.parts[0].lengthscale) == pytest.approx(1.5, rel=0.5)


def test_are_kernels_of_all_coordinates_and_of_one_learned_together():
    gp = cgp.ExactGP(RBF() + Along(Matern32(), 1))
    rng = np.random.default_rng(1)
    x = rng.uniform(0.0, 4.0, (40, 2))  # scattered
    gp.fit(x, np.exp(1j * x[:, 0]) + np.cos(3.0 * x[:, 1]), verbose=0)
    assert gp.parameters()["rbf.lengthscale"].shape == (2,)
    assert gp.parameters()["matern32.lengthscale"].shape == ()


def test_do_outputs_and_files_take_it(tmp_path):
    gp = cgp.ExactGP(Coregionalized(channel(), 2, mixing=[1.0, 0.5j]), noise_variance=0.1)
    z = np.stack([draw(channel()), draw(channel(), seed=1)], axis=-1)
    gp.condition(GRID, z)
    gp.save(tmp_path / "gp.keras")
    again = keras.models.load_model(tmp_path / "gp.keras")
    assert repr(again.kernel) == repr(gp.kernel)
    assert "Along(ExponentialDelays(variance=2., delay_spread=0.1), axis=1)" in repr(gp.kernel)
    at = GRID[:3] + 0.3
    np.testing.assert_array_equal(again.predict(at)["mean"], gp.predict(at)["mean"])


@pytest.mark.parametrize("axis", [-1, 1.0, True, None])
def test_is_an_axis_that_is_no_number_refused(axis):
    with pytest.raises(ValueError, match="axis must be a whole number"):
        Along(RBF(), axis)


def test_is_an_x_without_the_coordinate_refused():
    gp = cgp.ExactGP(Along(RBF(), 2))
    with pytest.raises(ValueError, match="coordinate 2 of x, counted from 0, but x has 2"):
        gp.fit(GRID, draw(channel()))
    with pytest.raises(ValueError, match=r"x has 1 dimension$"):
        Along(RBF(1.0, 1.0), 2).covariance([0.0])


def test_length_scales_along_scattered_axes_start_between_neighbours_and_span():
    rng = np.random.default_rng(5)
    x = rng.uniform(0.0, [2.0, 80.0], (900, 2))
    factors = RBF(lengthscale=None), RBF(lengthscale=None)
    gp = cgp.SparseGP(Along(factors[0], 0) * Along(factors[1], 1), inducing=50)
    spans = np.ptp(x, axis=0)
    starts = dict(values_from_data(gp, gp.data_of(x, np.exp(1j * x[:, 0]))))
    # 900 points are 30 along each axis; halfway on the log scale.
    for factor, span in zip(factors, spans, strict=True):
        np.testing.assert_allclose(starts[factor.lengthscale], span / np.sqrt(30.0))


def test_start_length_scales_of_a_line_and_along_it_apart():
    x = np.linspace(0.0, 9.0, 80)
    everywhere, along = RBF(lengthscale=None), RBF(lengthscale=None)
    gp = cgp.ExactGP(everywhere + Along(along, 0))
    starts = dict(values_from_data(gp, gp.data_of(x, np.exp(1j * x))))
    assert starts[everywhere.lengthscale] != starts[along.lengthscale]


def test_a_grid_refuses_a_factor_with_moments_of_its_own():
    class Warped(Along):
        def moments(self, x1, x2):
            return super().moments(np.log1p(x1), np.log1p(x2))

    class Swelling(Product):
        def moments(self, x1, x2):
            k, c = super().moments(x1, x2)
            return (1.0 + x1[..., 0] * x2[..., 0]) * k, c

    factors = [Along(RBF(1.0, 1.0), 0), Along(Matern32(1.0, 2.0), 1)]
    for kernel in (Warped(RBF(1.0, 1.0), 0) * factors[1], Swelling(factors)):
        with pytest.raises(ValueError, match=r"must be a product of Along\(kernel, axis\)"):
            cgp.GridGP(kernel)
