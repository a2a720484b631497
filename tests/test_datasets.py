import sys
from pathlib import Path

import numpy as np
import pytest

from cgp.datasets import polar_motion, s_parameters


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


@pytest.mark.parametrize("name", ["ring slot.s2p", "ring slot measured", "../data/short.s1p"])
def test_an_unknown_one_port_is_an_error_that_lists_the_known(name):
    with pytest.raises(ValueError, match=r"ring slot measured\.s1p"):
        s_parameters(name)


@pytest.mark.parametrize(
    ("loader", "package"), [(polar_motion, "astropy_iers_data"), (s_parameters, "skrf")]
)
def test_a_missing_package_is_an_error_that_names_the_remedy(loader, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # import then raises ImportError
    with pytest.raises(ImportError, match=r'pip install "cgp\[examples\]"'):
        loader()
