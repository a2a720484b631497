"""Impedances of unknown relaxation times, against quadrature over their times, and their fits."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.sampling.density import weak_priors
from cgp.kernels import Autoregressive, Constant, Matern52, RelaxationTimes, WidelyLinear
from tests.reference.kernels import relaxation_times

F = np.array([0.02, 0.5, 0.5, 0.7, 3e3])


def resistance():
    return WidelyLinear(Constant(), 1.0, fixed="coefficient")


def cell(f):
    """A resistance, a depressed arc and diffusion."""
    s = 2j * np.pi * f
    return 0.02 + 0.07 / (1 + (0.004 * s) ** 0.85) + 0.01 / np.sqrt(s)


def measured(seed, count=50):
    """Frequencies over seven decades, the impedance of a cell there, and with 1 % of noise."""
    f, rng = np.geomspace(1e-2, 1e5, count), np.random.default_rng(seed)
    truth, noise = cell(f), rng.normal(size=(2, count)) / np.sqrt(2)
    return f, truth, truth * (1 + 0.01 * (noise[0] + 1j * noise[1]))


@pytest.mark.parametrize("exponent", [0.1, 0.5, 0.5 + 1e-6, 0.51, 0.9])
def test_are_its_moments_those_of_a_sum_over_relaxation_times(exponent):
    kernel = RelaxationTimes(1.7, exponent, 30.0)
    expected = relaxation_times(F[:, None], F[:, None], 1.7, exponent, 30.0)
    sizes = np.sqrt(np.diag(expected[0]).real)
    for moment, by_quadrature in zip(
        (kernel.covariance(F), kernel.pseudo_covariance(F)), expected, strict=True
    ):
        of_size = (moment.numpy() - by_quadrature) / np.outer(sizes, sizes)
        assert np.max(np.abs(of_size)) < 1e-13


@pytest.mark.parametrize("exponent", [0.01, 0.2, 0.5, 0.99])
def test_is_the_variance_that_of_a_constant_phase_element(exponent):
    kernel = RelaxationTimes(1.7, exponent, 30.0)
    power = np.diag(kernel.covariance(F)).real
    np.testing.assert_allclose(power, 1.7 * (F / 30.0) ** (-2 * exponent), rtol=1e-14)
    phases = np.angle(np.diag(kernel.pseudo_covariance(F).numpy()))
    np.testing.assert_allclose(phases, -np.pi * exponent, rtol=1e-12)


def test_does_the_real_part_tell_the_imaginary_part():
    """As it does for a causal response, by Kramers and Kronig, and with the right sign."""
    f, inner = np.geomspace(1e-6, 1e6, 240), slice(90, 150)
    z = 1 / (1 + (2j * np.pi * f) ** 0.9) ** 0.7
    kernel = RelaxationTimes(1.0, 0.3, 1.0)
    k, c = kernel.covariance(f).numpy(), kernel.pseudo_covariance(f).numpy()
    of_re = (k + c).real / 2 + 1e-10 * np.diag(np.diag(k).real)
    im_re = (k + c).imag / 2
    found = im_re[inner] @ np.linalg.solve(of_re, z.real)
    np.testing.assert_allclose(found, z.imag[inner], atol=1e-4)
    left = np.diag((k - c).real / 2 - im_re @ np.linalg.solve(of_re, im_re.T))[inner]
    assert np.all(left < 1e-3 * np.diag(k).real[inner])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("exponent", [0.5, 0.5 + 1e-4, 0.03])
def test_are_gradients_finite_and_those_of_differences(exponent, dtype):
    """At coincident points too, and where the quotients of the formula are 0/0."""
    f, rng = np.array([0.02, 0.5, 0.5, 0.7]), np.random.default_rng(0)
    weights = rng.normal(size=(2, 4, 4)) + 1j * rng.normal(size=(2, 4, 4))

    def total(kernel, f):
        moments = kernel.covariance(f), kernel.pseudo_covariance(f)
        return tf.add_n(
            [
                tf.math.real(tf.reduce_sum(tf.cast(w, m.dtype) * m))
                for w, m in zip(weights, moments, strict=True)
            ]
        )

    kernel, x = RelaxationTimes(1.7, exponent, 0.3, dtype=dtype), tf.constant(f, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = total(kernel, x)
    by_raw, by_x = tape.gradient(value, [kernel.exponent.variable.value, x])
    share = (exponent - 0.01) / 0.98
    by_exponent = by_raw / (0.98 * share * (1 - share))
    tolerance = 1e-6 if dtype == "float64" else 2e-3

    def difference(make, at, step):
        above, below = (float(total(*make(at + s))) for s in (step, -step))
        return (above - below) / (2 * step)

    expected = difference(lambda e: (RelaxationTimes(1.7, e, 0.3), f), exponent, 1e-5)
    np.testing.assert_allclose(by_exponent, expected, rtol=tolerance)
    exact = RelaxationTimes(1.7, exponent, 0.3)
    for i, unit in enumerate(np.eye(4)):
        expected = difference(lambda h, unit=unit: (exact, f + h * unit), 0.0, 1e-6)
        np.testing.assert_allclose(by_x[i], expected, rtol=tolerance)


def test_is_single_precision_close_over_all_decades():
    f = np.geomspace(1e-6, 1e9, 20)
    moments = [
        (k.covariance(f).numpy(), k.pseudo_covariance(f).numpy())
        for k in (RelaxationTimes(1.7, 0.4, 30.0, dtype=d) for d in ("float32", "float64"))
    ]
    sizes = np.sqrt(np.diag(moments[1][0]).real)
    for single, double in zip(*moments, strict=True):
        assert np.max(np.abs(single - double) / np.outer(sizes, sizes)) < 1e-5


def test_predicts_a_cell_better_than_a_process_over_the_logarithm_of_frequency():
    f, truth, z = measured(seed=3)
    out = np.arange(f.size) % 5 == 2
    models = (resistance() + RelaxationTimes(), f), (Constant() + Matern52(), np.log10(f))
    errors = []
    for kernel, x in models:
        gp = cgp.ExactGP(kernel, noise_fraction=None)
        gp.fit(x[~out], z[~out], verbose=0)
        region = gp.predict(x[out])
        errors.append(np.sqrt(np.mean(np.abs(region["mean"] / truth[out] - 1) ** 2)))
        if x is f:
            assert cgp.metrics.coverage(truth[out], region) >= 0.9
            assert abs(gp.parameters()["noise_fraction"] - 0.01) < 0.002
    assert errors[0] < 0.006  # of noise of 0.01
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("unit", [1.0, 1e9])
def test_is_a_fit_the_same_in_any_unit(unit):
    f, _, z = measured(seed=4)
    gp = cgp.ExactGP(resistance() + RelaxationTimes(), noise_fraction=None)
    gp.fit(unit * f, z / unit, verbose=0)
    relaxation = gp.kernel.parts[1]
    np.testing.assert_allclose(relaxation.reference, unit * np.sqrt(1e-2 * 1e5), rtol=1e-12)
    found = gp.predict(unit * f)["mean"] * unit
    assert np.max(np.abs(found / cell(f) - 1)) < 0.02


def test_is_an_inductance_of_the_leads_a_mean():
    f, truth, _ = measured(seed=5)
    rng = np.random.default_rng(5)
    truth = truth + 2j * np.pi * f * 1e-7
    z = truth * (1 + 0.007 * (rng.normal(size=f.size) + 1j * rng.normal(size=f.size)))
    leads = cgp.means.Polynomial(1, marginalized=True, scale=1e5)
    gp = cgp.ExactGP(RelaxationTimes(), noise_fraction=None, mean=leads)
    gp.fit(f, z, verbose=0)
    assert np.max(np.abs(gp.predict(f)["mean"] / truth - 1)) < 0.02


def test_is_a_reference_kept_in_a_file_and_left_where_a_fit_fails(tmp_path):
    f, _, z = measured(seed=6, count=20)
    gp = cgp.ExactGP(resistance() + RelaxationTimes(), noise_fraction=None)
    with pytest.raises(ValueError, match=r"over positive frequencies, got x = -2: .* logarithms"):
        gp.fit(np.log10(f), z, verbose=0)
    assert gp.kernel.parts[1].reference is None
    of_grid = cgp.ExactGP(RelaxationTimes() + Autoregressive(1))  # its start fails after the other
    with pytest.raises(ValueError, match="x is no regular grid"):
        of_grid.fit(f, z, verbose=0)
    assert of_grid.kernel.parts[0].reference is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # few samples
        gp.fit(f, z, verbose=0)
    gp.save(tmp_path / "cell.keras")
    loaded = keras.saving.load_model(tmp_path / "cell.keras")
    assert loaded.kernel.parts[1].reference == gp.kernel.parts[1].reference
    np.testing.assert_array_equal(loaded.predict(f[::3])["mean"], gp.predict(f[::3])["mean"])


def test_is_a_reference_that_was_left_out_set_where_all_else_is_given():
    f, _, z = measured(seed=7, count=20)
    kernel = RelaxationTimes(0.01, 0.3)
    with pytest.raises(ValueError, match=r"reference of .* was left out.*fit\(x, z\), or give"):
        kernel.covariance([1.0])
    gp = cgp.ExactGP(kernel, noise_variance=1e-5)
    gp.fit(f, z, verbose=0)
    np.testing.assert_allclose(kernel.reference, np.sqrt(1e-2 * 1e5), rtol=1e-12)


def test_what_does_not_make_sense_is_refused():
    for reference in (0.0, -1.0, np.inf, 1j):
        with pytest.raises(ValueError, match="reference must be a positive number"):
            RelaxationTimes(reference=reference)
    with pytest.raises(ValueError, match=r"exponent must be between 0\.01 and 0\.99, got 1\.2"):
        RelaxationTimes(exponent=1.2)
    kernel = RelaxationTimes(1.0, 0.5, 1.0)
    with pytest.raises(ValueError, match="frequency axis: x must have one dimension, got 2"):
        kernel.covariance(np.ones((3, 2)))
    with pytest.raises(ValueError, match="over positive frequencies, got x = 0"):
        kernel.covariance([0.0, 1.0])
    with pytest.raises(ValueError, match="cannot multiply an improper kernel"):
        kernel * cgp.kernels.Rotation(-1.0)
    in_graph = tf.function(lambda x: kernel.covariance(x))(tf.constant([-1.0, 1.0], tf.float64))
    np.testing.assert_array_equal(np.isnan(in_graph.numpy()), [[True, True], [True, False]])


def test_is_a_response_of_the_other_sign_told():
    f = np.geomspace(0.1, 1e3, 40)
    z = 1.0 + 2.0 / (1.0 + 2j * np.pi * f * 0.01) + 0.003j * np.cos(np.arange(40))
    gp = cgp.ExactGP(resistance() + RelaxationTimes(), noise_fraction=None)
    with pytest.warns(RuntimeWarning, match=r"is positive in \d+% of the samples.*Fit conj"):
        gp.fit(f, z.conj(), epochs=1, verbose=0)
    gp = cgp.ExactGP(resistance() + RelaxationTimes(), noise_fraction=None)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*the imaginary part of z")
        gp.fit(f, z, epochs=1, verbose=0)


@pytest.mark.parametrize("given", [None, 0.01])
def test_is_an_exponent_at_an_end_told(given):
    f = np.geomspace(0.1, 1e3, 60)
    noise = np.random.default_rng(3).normal(size=(60, 2)) @ [1.0, 1j]
    z = 1.0 / (2j * np.pi * f) if given is None else 2.0 / (1.0 + 2j * np.pi * f * 0.01)
    gp = cgp.ExactGP(RelaxationTimes(exponent=given), noise_fraction=None)
    with pytest.warns(RuntimeWarning, match=r"exponent = 0\.\d+ is at an end of its range"):
        gp.fit(f, z + 0.005 * np.abs(z) * noise, verbose=0)


def test_has_an_exponent_no_weak_prior():
    f = np.geomspace(0.1, 1e3, 20)
    gp = cgp.ExactGP(RelaxationTimes(1.0, 0.5), 1e-3)
    gp.fit(f, 1.0 / (1.0 + 2j * np.pi * f), epochs=1, verbose=0)
    priors = weak_priors(gp, gp._sampler().coordinates, gp.stored_data())
    assert priors.keys() == {"noise_variance", "relaxationtimes.variance"}
