import sys
from pathlib import Path

import numpy as np
import pytest

from cgp.datasets import channel_switch, polar_motion, s_parameters, soft_channel


def header_and_rows():
    astropy_iers_data = pytest.importorskip("astropy_iers_data")
    lines = Path(astropy_iers_data.IERS_B_FILE).read_text().splitlines()
    header = next(line for line in lines if line.startswith("# YR"))
    return header.removeprefix("#").split(), [line.split() for line in lines if line[0] != "#"]


def test_the_columns_are_those_the_header_of_the_file_names():
    header, rows = header_and_rows()
    # The four trailing "Er" are separate words, behind the columns that are read.
    assert header[4:7] == ["MJD", 'x(")', 'y(")']
    pole = polar_motion()
    assert len(pole.mjd) == len(rows)
    for i in (0, 1, len(rows) // 2, -1):
        mjd, x, y = (float(field) for field in rows[i][4:7])
        assert pole.mjd[i] == mjd
        np.testing.assert_allclose(pole.position[i], 1e3 * complex(x, -y), rtol=1e-14)


def test_the_pole_is_daily_without_gaps_since_1962():
    pole = polar_motion()
    assert pole.mjd.dtype == np.float64
    assert pole.position.dtype == np.complex128
    assert pole.mjd[0] == 37665  # 1962-01-01
    np.testing.assert_array_equal(np.diff(pole.mjd), 1)
    assert np.isfinite(pole.position).all()
    assert 100 < np.abs(pole.position).mean() < 1000  # milliarcseconds, not arcseconds


def test_the_chandler_wobble_turns_with_a_positive_frequency():
    position = polar_motion(49609, 55197).position
    spectrum = np.abs(np.fft.fft((position - position.mean()) * np.hanning(len(position)), 1 << 16))
    frequency = np.fft.fftfreq(1 << 16, 1 / 365.25)
    assert frequency[spectrum.argmax()] == pytest.approx(0.842, abs=0.01)


def test_start_is_included_and_end_is_not():
    whole, part = polar_motion(), polar_motion(51544, 51554)
    np.testing.assert_array_equal(part.mjd, np.arange(51544.0, 51554.0))
    first = int(51544 - whole.mjd[0])
    np.testing.assert_array_equal(part.position, whole.position[first : first + 10])
    assert polar_motion(end=37667).mjd.tolist() == [37665, 37666]
    assert polar_motion(start=whole.mjd[-1]).mjd.tolist() == [whole.mjd[-1]]


@pytest.mark.parametrize(("start", "end"), [(51554, 51544), (51544, 51544), (None, 37665)])
def test_an_empty_interval_is_an_error(start, end):
    with pytest.raises(ValueError, match="no sample from"):
        polar_motion(start, end)


def test_s_parameters_agree_with_the_text_of_the_file():
    skrf = pytest.importorskip("skrf")
    text = (Path(skrf.__file__).parent / "data" / "ring slot measured.s1p").read_text()
    assert "# GHz S RI" in text
    rows = np.array(
        [line.split() for line in text.splitlines() if line and line[0] not in "!#"], dtype=float
    )
    antenna = s_parameters()
    assert antenna.frequency.dtype == np.float64
    assert antenna.s.dtype == np.complex128
    assert antenna.frequency.shape == antenna.s.shape == (101,)
    np.testing.assert_allclose(antenna.frequency, 1e9 * rows[:, 0], rtol=1e-12)
    np.testing.assert_allclose(antenna.s, rows[:, 1] + 1j * rows[:, 2], rtol=1e-12)


def test_a_delay_turns_the_phase_backwards():
    # An ideal short behind a waveguide: its modulus is 1 and its phase falls with frequency.
    short = s_parameters("wr2p2,delayshort.s1p")
    np.testing.assert_allclose(np.abs(short.s), 1, atol=1e-9)
    assert (np.angle(short.s[1:] * short.s[:-1].conj()) < 0).all()


def test_is_the_wave_out_of_the_first_port_over_that_into_the_second():
    skrf = pytest.importorskip("skrf")
    tee = skrf.Network(str(Path(skrf.__file__).parent / "data" / "tee.s3p"))
    np.testing.assert_array_equal(s_parameters("tee.s3p", (3, 2)).s, tee.s[:, 2, 1])


@pytest.mark.parametrize("ports", [(0, 1), (1, 2), (1,), (1.0, 1), 1])
def test_ports_that_are_none_are_an_error(ports):
    with pytest.raises(ValueError, match="two integers from 1 to 1 of 'ring slot measured"):
        s_parameters(ports=ports)


@pytest.mark.parametrize("name", ["ring slot.s1p", "ring slot measured", "../data/short.s1p"])
def test_an_unknown_file_is_an_error_that_lists_the_known(name):
    with pytest.raises(ValueError, match=r"ring slot measured\.s1p"):
        s_parameters(name)


@pytest.mark.parametrize(
    ("loader", "package"), [(polar_motion, "astropy_iers_data"), (s_parameters, "skrf")]
)
def test_a_missing_package_is_an_error_that_names_the_remedy(loader, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # import then raises ImportError
    with pytest.raises(ImportError, match=r'pip install "cgp\[examples\]"'):
        loader()


# --- simulated ---------------------------------------------------------------------------------


def complex_windows(x):
    return x[:, :5] + 1j * x[:, 5:]


def power(values):
    return np.mean(np.abs(values) ** 2)


def decibels(ratio):
    return 10 * np.log10(ratio)


def soft_response(now, before):
    t = (-0.9 + 0.8j) * now + (0.6 - 0.7j) * before
    return t + (0.1 + 0.15j) * t**2 + (0.06 + 0.05j) * t**3


@pytest.mark.parametrize("simulate", [lambda seed: soft_channel(20, seed), channel_switch])
def test_a_simulation_is_a_function_of_its_seed_alone(simulate):
    np.random.seed(1)  # noqa: NPY002
    state = str(np.random.get_state())  # noqa: NPY002
    first, again, other = simulate(5), simulate(5), simulate(6)
    assert str(np.random.get_state()) == state  # noqa: NPY002
    for name in first._fields:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))
    generator = np.random.default_rng(5)
    np.testing.assert_array_equal(simulate(generator).z, first.z)
    assert not np.array_equal(simulate(generator).z, first.z)  # it goes on


def test_the_equaliser_sees_two_samples_on_either_side_of_its_symbol():
    x, z = soft_channel(5000, seed=0)
    assert x.dtype == np.float64
    assert z.dtype == np.complex128
    assert x.shape == (5000, 10)
    windows = complex_windows(x)
    np.testing.assert_array_equal(windows[1:, :-1], windows[:-1, 1:])
    # With the symbols known, what is left of the sample in the middle is the noise.
    quiet = soft_response(z[1:], z[:-1])
    noise = windows[1:, 2] - quiet
    assert decibels(power(quiet) / power(noise)) == pytest.approx(16, abs=0.3)
    assert abs(np.mean(noise**2)) < 0.05 * power(noise)
    for column in (1, 3):
        assert power(windows[1:, column] - quiet) > power(quiet)


@pytest.mark.parametrize("rho", [None, 0.0, 0.1, 0.5**0.5, 0.9, 1.0])
def test_rho_sets_how_circular_gaussian_symbols_are(rho):
    z = soft_channel(20_000, seed=1, rho=rho).z
    assert power(z) == pytest.approx(0.49, rel=0.03)
    pseudo_variance = 0.49 * (1 - 2 * (0.5 if rho is None else rho**2))
    assert np.mean(z**2) == pytest.approx(pseudo_variance, abs=0.02)
    assert np.mean(z[1:] * z[:-1].conj()) == pytest.approx(0, abs=0.01)
    if rho == 0.0:
        assert not z.imag.any()


def test_symbols_can_come_from_a_constellation():
    constellation = np.array([1, 1j, -1, -1j, 0.5])
    z = soft_channel(5000, seed=2, constellation=constellation).z
    values, counts = np.unique(z, return_counts=True)
    np.testing.assert_array_equal(values, np.unique(constellation))
    np.testing.assert_allclose(counts / 5000, 0.2, atol=0.03)


@pytest.mark.parametrize(("rho", "expected"), [(None, -9.0), (0.1, -9.2)])
def test_a_linear_equaliser_reaches_what_the_soft_channel_lets_it(rho, expected):
    x, z = soft_channel(50_000, seed=3, rho=rho)
    windows = complex_windows(x)
    weights = np.linalg.lstsq(windows, z, rcond=None)[0]
    assert decibels(power(z - windows @ weights)) == pytest.approx(expected, abs=0.1)


def test_one_symbol_is_enough():
    x, z = soft_channel(1, seed=0)
    assert x.shape == (1, 10)
    assert z.shape == (1,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, r"n must be a whole number.*got 0"),
        ({"n": 5, "rho": 1.1}, r"rho=1\.1"),
        ({"n": 5, "rho": -0.1}, "rho=-0.1"),
        ({"n": 5, "rho": float("nan")}, "rho=nan"),
        ({"n": 5, "rho": 0.1, "constellation": [1, -1]}, "not both"),
    ],
)
def test_a_soft_channel_that_cannot_be_is_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        soft_channel(seed=0, **arguments)


def test_the_channel_switches_after_500_samples():
    stream = channel_switch(seed=0)
    inputs, tests = complex_windows(stream.x), complex_windows(stream.x_test)
    np.testing.assert_array_equal(inputs[1:, 1:], inputs[:-1, :-1])  # the latest first
    filters = [[1, -0.3817, -0.1411, 0.5789, 0.191], [1, -0.087, 0.9852, -0.2826, -0.1711]]

    def response(windows, taps):
        u = np.array(
            [sum(tap * value for tap, value in zip(taps, w, strict=True)) for w in windows]
        )
        return np.tanh(np.abs(u)) * np.exp(1j * np.angle(u))

    np.testing.assert_allclose(response(tests, filters[0]), stream.before, rtol=1e-12)
    np.testing.assert_allclose(response(tests, filters[1]), stream.after, rtol=1e-12)
    quiet = np.r_[response(inputs[:500], filters[0]), response(inputs[500:], filters[1])]
    noise = stream.z - quiet
    assert decibels(power(quiet) / stream.noise_variance) == pytest.approx(20, abs=1e-9)
    for part in (noise[:500], noise[500:]):
        assert power(part) == pytest.approx(stream.noise_variance, rel=0.15)
        assert abs(np.mean(part**2)) < 0.15 * stream.noise_variance


def test_the_input_of_the_switching_channel_is_white_and_circular():
    s = np.concatenate([channel_switch(seed).x[:, [0, 5]] @ [1, 1j] for seed in range(8)])
    assert power(s) == pytest.approx(1 / 3, rel=0.03)
    assert np.mean(s**2) == pytest.approx(0, abs=0.01)
    assert np.mean(s[1:] * s[:-1].conj()) == pytest.approx(0, abs=0.01)
