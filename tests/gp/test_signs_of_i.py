"""Data of the other sign of i, or beside a constant: a fit of a delay, or of poles, says so."""

import re
import warnings

import numpy as np
import pytest

import cgp
from cgp.gp.means import Rational
from cgp.kernels import Constant, Matern52, RandomWalk, Rotation, Zero
from tests.gp.problems import complex_normals, started

F = np.linspace(1.0, 3.0, 61)
DELAY = 5.0


def device(seed=0):
    """The reflection of two resonances behind a line."""
    rng = np.random.default_rng(seed)
    poles = 2 * np.pi * np.array([-0.05 + 1.4j, -0.12 + 2.3j])
    fractions = 1 / (2j * np.pi * F[:, None] - poles)
    wave = np.exp(-2j * np.pi * DELAY * F)
    return wave * (fractions @ [0.5, -0.4 + 0.6j] + 0.3) + 0.01 * complex_normals(rng, 61)


def checked(kernel, z, mean=None):
    """Has a fit say what it says of its start."""
    started(cgp.ExactGP(kernel, mean=mean), F, z)


@pytest.mark.parametrize("real_response", [pytest.param(False, marks=pytest.mark.long), True])
def test_is_a_rational_mean_of_conjugated_data_told(real_response):
    mean = Rational(2, real_response=real_response)
    with pytest.warns(RuntimeWarning, match=r"fits conj\(z\) to an error of .* other sign of i"):
        checked(Zero(), device().conj(), mean)
    checked(Zero(), device(), mean)


def test_is_a_rational_mean_of_too_low_an_order_no_conjugate():
    checked(Zero(), device(), Rational(1))


@pytest.mark.parametrize(
    ("real_response", "constant"),
    [
        (False, 0.3 - 0.2j),
        pytest.param(True, 1e5 + 1e5j, marks=pytest.mark.long),
        pytest.param(False, 100 - 50j, marks=pytest.mark.long),
        pytest.param(True, 100 - 50j, marks=pytest.mark.long),
        pytest.param(False, 1e5 + 1e5j, marks=pytest.mark.long),
        pytest.param(True, 0.3 - 0.2j, marks=pytest.mark.long),
    ],
)
def test_is_a_constant_that_the_delay_does_not_turn_told_and_does_its_remedy_help(
    real_response, constant
):
    response = device()
    mean, alone = (Rational(2, real_response=real_response) for _ in range(2))
    checked(Zero(), response, alone)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        checked(Zero(), response + constant, mean)
    told = re.search(
        r"fits z - (\(.*?\)) to .* a constant that is not behind", str(warned[0].message)
    )
    subtracted = complex(told[1])
    assert abs(subtracted - constant) < 0.004  # three standard errors
    checked(Zero(), response + constant - subtracted, mean)
    assert abs(mean.delay - alone.delay) < 0.01
    assert np.abs(mean.poles - alone.poles).max() < 0.05


@pytest.mark.parametrize(
    "name", [pytest.param("ring slot measured.s1p", marks=pytest.mark.long), "ro,1.s1p"]
)
@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.long)])
def test_are_measured_reflections_no_conjugates(name, order):
    pytest.importorskip("skrf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        measured = cgp.datasets.s_parameters(name)
        # The noise of the waveguide is 20 dB larger at the lower edge of its band, which is told.
        warnings.filterwarnings("ignore", "after this fit the residuals have", RuntimeWarning)
        started(cgp.ExactGP(Zero(), mean=Rational(order)), measured.frequency / 1e9, measured.s)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda f: Matern52() * Rotation(f) + Constant(), marks=pytest.mark.long),
        lambda f: Matern52() * Rotation(0.5 * f) * Rotation(0.5 * f, fixed="frequency"),
    ],
)
def test_is_a_delay_of_the_other_sign_told(make):
    with pytest.warns(RuntimeWarning, match=r"was given the frequency -5, and z turns the other"):
        checked(make(-DELAY), device().conj())
    checked(make(-DELAY), device())
    checked(make(DELAY), device().conj())


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.long)])
def test_is_a_frequency_whose_sign_nothing_tells_not_told(count):
    """One left out, an alias, a line as long as the band, and one of each sign."""
    z = device().conj()
    tones = np.exp(2j * np.pi * 5 * F) + 0.01 * np.exp(-2j * np.pi * 5 * F)
    cases = (
        (Matern52() * Rotation(-22.0), z),
        (Matern52() * Rotation(-5.0) + Matern52() * Rotation(5.0), tones),
        (Matern52() * Rotation(), z),
        (Matern52() * Rotation(-0.3), np.exp(0.6j * np.pi * F)),
        (RandomWalk() * Rotation(-5.0), tones.real + 0j),
    )
    for kernel, data in cases[:count]:
        checked(kernel, data)
