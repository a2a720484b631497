"""Measured complex signals that examples and benchmarks share.

Nothing is downloaded: the measurements are files inside packages of the `examples` extra.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

_INSTALL = 'pip install "cgp[examples]"'


class PolarMotion(NamedTuple):
    """The Earth's pole, one sample a day.

    Attributes:
        mjd: float64 `[N]`, days: modified Julian date, UTC, of each sample (0 h).
        position: complex128 `[N]`, milliarcseconds: `p = x − i·y`.
    """

    mjd: np.ndarray
    position: np.ndarray


class SParameters(NamedTuple):
    """Scattering parameters over frequency.

    Attributes:
        frequency: float64 `[N]`, hertz.
        s: complex128 `[N]`, dimensionless.
    """

    frequency: np.ndarray
    s: np.ndarray


def polar_motion(start: float | None = None, end: float | None = None) -> PolarMotion:
    """Reads the motion of the Earth's rotation pole, daily since 1962-01-01.

    The series is EOP 20 C04 of the International Earth Rotation and Reference Systems Service,
    as the package `astropy-iers-data` holds it. The pole's coordinates are taken as one complex
    number, `p = x − i·y`, x towards the meridian of Greenwich and y towards 90° west. So the
    Chandler wobble, counterclockwise seen from above the north pole, turns with a *positive*
    frequency, about +0.843 cycles a year.

    Final values are smoothed with later data too: a forecast scored on them is easier than one
    made on the day. The series is over-smoothed before 1984, and noisy before 1994. It grows with
    the package, so name an `end` where a figure must repeat.

    Args:
        start: First modified Julian date to keep, included. From the beginning if None.
        end: Modified Julian date to stop before, excluded. To the end if None.

    Returns:
        `PolarMotion`, dates in days and positions in milliarcseconds.

    Raises:
        ImportError: `astropy-iers-data` is not installed.
        ValueError: No sample lies within `start` and `end`.

    Example:
        >>> from cgp.datasets import polar_motion
        >>> pole = polar_motion(start=51544, end=51546)  # the first two days of 2000
        >>> pole.mjd
        array([51544., 51545.])
        >>> pole.position.round(1)
        array([43.3-378.j , 43.5-377.8j])
    """
    try:
        import astropy_iers_data
    except ImportError as error:
        raise ImportError(f"polar_motion needs astropy-iers-data: {_INSTALL}") from error
    # The package names this file after the bulletin it replaced; it holds C04.
    mjd, x, y = np.loadtxt(astropy_iers_data.IERS_B_FILE, usecols=(4, 5, 6), unpack=True)
    kept = np.ones(mjd.shape, dtype=bool)
    if start is not None:
        kept &= mjd >= start
    if end is not None:
        kept &= mjd < end
    if not kept.any():
        raise ValueError(
            f"no sample from start={start} to before end={end}: "
            f"the series runs from {mjd[0]:.0f} to {mjd[-1]:.0f} (modified Julian date)"
        )
    return PolarMotion(mjd[kept], 1e3 * (x - 1j * y)[kept])


def s_parameters(name: str = "ring slot measured.s1p") -> SParameters:
    """Reads the reflection coefficient of a one-port that scikit-rf carries.

    The default is a ring slot antenna measured with a vector network analyser, 101 points from 75
    to 110 GHz. Most of the other one-ports are computed, not measured (their modulus is 1).

    Args:
        name: File name, with its `.s1p`, in the data folder of scikit-rf.

    Returns:
        `SParameters`, frequency in hertz, in the file's order, which is ascending.

    Raises:
        ImportError: `scikit-rf` is not installed.
        ValueError: `name` is none of the one-ports there; the message lists them.

    Example:
        >>> from cgp.datasets import s_parameters
        >>> antenna = s_parameters()
        >>> antenna.s.shape
        (101,)
        >>> (antenna.frequency[[0, -1]] / 1e9).round(3)
        array([ 75., 110.])
        >>> antenna.s[0].round(4)
        np.complex128(-0.0677+0.6592j)
    """
    try:
        import skrf
    except ImportError as error:
        raise ImportError(f"s_parameters needs scikit-rf: {_INSTALL}") from error
    folder = Path(skrf.__file__).parent / "data"
    one_ports = sorted(file.name for file in folder.glob("*.s1p"))
    if name not in one_ports:
        raise ValueError(f"scikit-rf has no one-port named {name!r}, only {', '.join(one_ports)}")
    network = skrf.Network(str(folder / name))
    return SParameters(
        np.asarray(network.f, dtype=np.float64), np.asarray(network.s[:, 0, 0], dtype=np.complex128)
    )
