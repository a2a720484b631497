"""Measured and simulated complex signals for examples and benchmarks.

Nothing is downloaded: the measurements are files inside packages of the `examples` extra. The
simulations follow published recipes, and are reproducible from their seed.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cgp.linalg.arguments import ArrayLike, as_numbers, check_whole, generator_of
from cgp.linalg.short_repr import short_repr

_INSTALL = 'pip install "cgp[examples]"'
_TAPS = 5  # samples in the window of an equaliser, or taps of a channel

Seed = int | np.random.Generator
"""A seed of a simulation, or a generator, which is advanced."""


@short_repr
class PolarMotion(NamedTuple):
    """Daily positions of the Earth's rotation pole.

    Attributes:
        mjd: float64 `[N]`, days: modified Julian date, UTC, of each sample (0 h).
        position: complex128 `[N]`, milliarcseconds: `p = x − i·y`.
    """

    mjd: np.ndarray
    position: np.ndarray


@short_repr
class SParameters(NamedTuple):
    """Scattering parameters over frequency.

    Attributes:
        frequency: float64 `[N]`, hertz.
        s: complex128 `[N]`, dimensionless.
    """

    frequency: np.ndarray
    s: np.ndarray


@short_repr
class SoftChannel(NamedTuple):
    """Inputs and targets of a channel equaliser.

    Attributes:
        x: float64 `[N, 10]`: the received samples r from two before a symbol to two after it, the
            five real parts first, then the five imaginary parts.
        z: complex128 `[N]`: the transmitted symbols.
    """

    x: np.ndarray
    z: np.ndarray


@short_repr
class ChannelSwitch(NamedTuple):
    """A stream from a channel that switches to another one, and test points of both.

    Attributes:
        x: float64 `[N, 10]`: the present input of the channel and the four before it, the latest
            first; the five real parts, then the five imaginary parts.
        z: complex128 `[N]`: the output, noise included.
        x_test: float64 `[M, 10]`: other inputs.
        before: complex128 `[M]`: the outputs at `x_test` of the first channel, without noise.
        after: complex128 `[M]`: the same of the second channel.
        noise_variance: `E|n|²` of the noise in z.
    """

    x: np.ndarray
    z: np.ndarray
    x_test: np.ndarray
    before: np.ndarray
    after: np.ndarray
    noise_variance: float


def polar_motion(start: float | None = None, end: float | None = None) -> PolarMotion:
    """Reads the motion of the Earth's rotation pole, daily since 1962-01-01.

    The series is EOP 20 C04 of the International Earth Rotation and Reference Systems Service, as
    in the package `astropy-iers-data`. The pole's coordinates are one complex number, `p = x −
    i·y`, x towards the meridian of Greenwich and y towards 90° west. So the Chandler wobble,
    counterclockwise from above the north pole, turns with a *positive* frequency, about +0.843
    cycles a year. Final values are smoothed with later data too: a forecast scored on them is
    easier than one made on the day. The series is over-smoothed before 1984, and noisy before 1994.
    It grows with the package, so name an `end` where a figure must repeat.

    Args:
        start: First modified Julian date, inclusive; the beginning of the series if None.
        end: Last modified Julian date, exclusive; the end of the series if None.

    Returns:
        `PolarMotion`, dates in days and positions in milliarcseconds.

    Raises:
        ImportError: `astropy-iers-data` is not installed.
        TypeError: A date that is no number.
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
    days: dict[str, object] = {"start": start, "end": end}
    for name, day in days.items():
        if not isinstance(day, int | float | np.number | None):
            example = "as 51544 is of 2000-01-01"
            raise TypeError(f"{name} must be a modified Julian date, {example}, got {day!r}")
    # The package names this file after the bulletin it replaced; it holds C04.
    mjd, x, y = np.loadtxt(astropy_iers_data.IERS_B_FILE, usecols=(4, 5, 6), unpack=True)
    kept = mjd >= (-np.inf if start is None else start)
    kept &= mjd < (np.inf if end is None else end)
    if not kept.any():
        raise ValueError(
            f"no sample from start={start} to before end={end}: "
            f"the series runs from {mjd[0]:.0f} to {mjd[-1]:.0f} (modified Julian date)"
        )
    return PolarMotion(mjd[kept], 1e3 * (x - 1j * y)[kept])


def s_parameters(
    name: str = "ring slot measured.s1p", ports: tuple[int, int] = (1, 1)
) -> SParameters:
    """Reads one scattering parameter from the data of scikit-rf.

    The default is the reflection of a ring slot antenna, measured with a vector network analyser at
    101 points from 75 to 110 GHz. Measured too are `"ro,1.s1p"`, `"ro,2.s1p"` and `"ro,3.s1p"`,
    reflections of open waveguides. Most of the other files are computed.

    Args:
        name: File name, with its `.s1p` or the like, in the data folder of scikit-rf.
        ports: m and n, from 1: `S_mn` is the wave out of port m over that into port n.

    Returns:
        `SParameters`, frequency in hertz, in the file's order, which is ascending.

    Raises:
        ImportError: `scikit-rf` is not installed.
        ValueError: No file of that name, the message lists them; ports that the file does not have.

    Example:
        >>> from cgp.datasets import s_parameters
        >>> antenna = s_parameters()
        >>> antenna.s.shape
        (101,)
        >>> (antenna.frequency[[0, -1]] / 1e9).round(3)
        array([ 75., 110.])
        >>> antenna.s[0].round(4)
        np.complex128(-0.0677+0.6592j)
        >>> line = s_parameters("line.s2p", ports=(2, 1))
    """
    try:
        import skrf
    except ImportError as error:
        raise ImportError(f"s_parameters needs scikit-rf: {_INSTALL}") from error
    folder = Path(skrf.__file__).parent / "data"
    names = sorted(file.name for file in folder.glob("*.s?p"))
    if name not in names:
        raise ValueError(f"scikit-rf has no file {name!r}, only {', '.join(names)}")
    network = skrf.Network(str(folder / name))
    count = network.nports
    whole = np.shape(ports) == (2,) and np.asarray(ports).dtype.kind in "iu"
    if not (whole and all(1 <= port <= count for port in ports)):
        raise ValueError(f"ports must be two integers from 1 to {count} of {name!r}, got {ports!r}")
    s = network.s[:, ports[0] - 1, ports[1] - 1]
    return SParameters(np.asarray(network.f, np.float64), np.asarray(s, np.complex128))


def soft_channel(
    n: int, seed: Seed, rho: float | None = None, constellation: ArrayLike | None = None
) -> SoftChannel:
    """Simulates symbols sent through the soft nonlinear channel, for equalisation.

    The channel is a filter of two taps, a weak nonlinearity, and circular noise:

        t_k = (−0.9 + 0.8i) s_k + (0.6 − 0.7i) s_{k−1}
        r_k = t_k + (0.1 + 0.15i) t_k² + (0.06 + 0.05i) t_k³ + noise,

    the noise 16 dB below the signal in r. The equaliser has five samples, two of them after the
    symbol. The symbols are Gaussian, `0.7 (√(1 − ρ²) X + iρ Y)` with X and Y real, independent and
    of variance 1, unless a constellation is given. Channel and input are as in Bouboulis &
    Theodoridis, IEEE Trans. Signal Process. 59(3), 2011, and Boloix-Tortosa et al.,
    arXiv:1511.05710. On circular Gaussian symbols the best linear equaliser has a mean squared
    error of −9.0 dB.

    Args:
        n: Number of symbols.
        seed: An integer seed, or a `numpy.random.Generator`, which is advanced.
        rho: ρ, from 0 to 1: √½ for circular symbols (also if None), 0 for real ones.
        constellation: Complex `[M]`, equally probable values of the symbols, in place of Gaussian
            ones. Their power sets the strength of the nonlinearity; of Gaussian symbols it is 0.49.

    Returns:
        `SoftChannel`: inputs and targets of an equaliser.

    Raises:
        TypeError: A seed that is none, a constellation that is not of numbers.
        ValueError: No symbols, a ρ out of range, or both a ρ and a constellation.

    Example:
        >>> from cgp.datasets import soft_channel
        >>> x, z = soft_channel(300, seed=0)
        >>> x.shape, z.shape
        ((300, 10), (300,))
        >>> x, z = soft_channel(300, seed=0, constellation=[0.7, -0.7])
        >>> set(z.tolist()) == {0.7, -0.7}
        True
    """
    check_whole(n, "n")
    rng = generator_of(seed)
    length = n + _TAPS  # one more than the samples, as each needs the preceding symbol
    if constellation is None:
        rho = 0.5**0.5 if rho is None else rho
        if not 0 <= rho <= 1:
            raise ValueError(f"rho={rho}: a number from 0 to 1 was expected")
        real, imaginary = rng.normal(size=(2, length))
        s = 0.7 * (np.sqrt(1 - rho**2) * real + 1j * rho * imaginary)
    elif rho is None:
        values = np.asarray(as_numbers(constellation, "constellation"))
        s = rng.choice(values.astype(np.complex128), size=length)
    else:
        raise ValueError("rho is of Gaussian symbols: give it or a constellation, not both")
    t = (-0.9 + 0.8j) * s[1:] + (0.6 - 0.7j) * s[:-1]
    q = t + (0.1 + 0.15j) * t**2 + (0.06 + 0.05j) * t**3
    r = q + _noise(rng, len(q), 10**-1.6 * np.mean(np.abs(q) ** 2))
    middle = _TAPS // 2 + 1
    return SoftChannel(_windows(r), s[middle : middle + n])


def channel_switch(seed: Seed) -> ChannelSwitch:
    """Simulates input and output of a saturating channel that switches abruptly, for tracking.

    1500 samples go through a filter, then a saturating nonlinearity, then noise 20 dB below the
    output; from the 501st on another filter applies. The recipe is from Van Vaerenbergh,
    Lázaro-Gredilla & Santamaría, IEEE Trans. Neural Netw. Learn. Syst. 23(8), 2012, fig. 3, with
    its filters and 500 test points.

    The original is real, with tanh. Here the input is circular, and the output saturates as in an
    amplifier, which acts on the modulus and keeps the phase, `tanh(|u|) u/|u|`; for real input this
    is the original. The mean square of the input is 1/3, as of the uniform numbers from 0 to 1 in
    the code published by its first author.

    Args:
        seed: As for `soft_channel`.

    Returns:
        `ChannelSwitch`: the stream, and test points of both channels.

    Example:
        >>> from cgp.datasets import channel_switch
        >>> stream = channel_switch(seed=0)
        >>> stream.x.shape, stream.z.shape, stream.x_test.shape, stream.before.shape
        ((1500, 10), (1500,), (500, 10), (500,))
    """
    n, n_test, switch = 1500, 500, 500
    rng = generator_of(seed)
    s = _noise(rng, n + n_test + _TAPS - 1, 1 / 3)
    x = _windows(s, latest_first=True)
    u = x[:, :_TAPS] + 1j * x[:, _TAPS:]
    first = _saturated(u @ np.array([1.0, -0.3817, -0.1411, 0.5789, 0.1910]))
    second = _saturated(u @ np.array([1.0, -0.0870, 0.9852, -0.2826, -0.1711]))
    signal = np.concatenate([first[:switch], second[switch:n]])
    noise_variance = float(0.01 * np.mean(np.abs(signal) ** 2))
    z = signal + _noise(rng, n, noise_variance)
    return ChannelSwitch(x[:n], z, x[n:], first[n:], second[n:], noise_variance)


def _noise(rng: np.random.Generator, n: int, variance: float) -> np.ndarray:
    """Circular white noise with `E|n|²` = `variance`."""
    real, imaginary = np.sqrt(variance / 2) * rng.normal(size=(2, n))
    return real + 1j * imaginary


def _windows(signal: np.ndarray, latest_first: bool = False) -> np.ndarray:
    """All windows of five neighbouring complex samples, as ten real coordinates."""
    windows = np.lib.stride_tricks.sliding_window_view(signal, _TAPS)
    windows = windows[:, ::-1] if latest_first else windows
    return np.concatenate([windows.real, windows.imag], axis=1)


def _saturated(u: np.ndarray) -> np.ndarray:
    """`tanh(|u|) u/|u|`, whose quotient tends to 1 at 0."""
    modulus = np.maximum(np.abs(u), np.finfo(float).tiny)
    return np.tanh(modulus) / modulus * u
