"""Times as numbers: dates and durations, in one unit and from one origin.

The inputs x of a process are real numbers, and their unit is the unit of lengthscales (and of the
inverse of frequencies). A date has neither unit nor zero. `Clock` gives it both, before any model
sees it; models refuse dates. They could take them, with a unit as one more argument of each
process. Then a kernel that two models share would have lengthscales of two units, and the horizons
of a forecast, the inputs of a plot or an exported model, which know no process, would need the unit
again. One object that turns times into numbers is used wherever numbers go.
"""

import contextlib
import dataclasses
import datetime
import re
from typing import Any

import numpy as np

_NANOSECONDS = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
}
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)"
    r" ?(Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?"
)
_NANOSECOND = np.timedelta64(1, "ns")


@dataclasses.dataclass(frozen=True)
class Clock:
    """Turns dates and durations into numbers of a unit since an origin, as processes take them.

    A call converts times: `gp.fit(clock(frame.index), frame["z"])`, then
    `gp.posterior(clock(later))`. Lengthscales, and the inverse of frequencies, are in its unit;
    `clock(np.timedelta64(30, "D"))` is a lengthscale of thirty days.

    The origin does not follow from the data: the first time of a fit and the first time of a
    prediction would be two origins, and the prediction would be for other times than it says.
    Choose a date near the data that you would write again. A saved model has numbers alone: keep
    `clock.unit` and `clock.origin`, two strings that make an equal clock, where the program that
    loads it finds them.

    The difference to the origin is taken in whole numbers, and rounded to float64 once. Times with
    a time zone are taken in UTC, whatever the clocks of the zone or of a city show: an hour is an
    hour also where summer time begins.

    Args:
        unit: "nanosecond", "microsecond", "millisecond", "second", "minute", "hour" or "day" (of
            86,400 seconds). Years and months have no one length.
        origin: The time of zero: a date in ISO format, "2020-01-01" or "2020-01-01T06:00+01:00", or
            a `datetime`, a `Timestamp` of pandas, a `datetime64` of NumPy. It has a time zone if
            times have one. None for durations alone, which are counted from the origin, whatever
            it is.

    Raises:
        TypeError: An origin that is no time.
        ValueError: Another unit, an origin in another format, or one that is missing (NaT).

    Example:
        >>> import numpy as np, cgp
        >>> clock = cgp.Clock("day", origin="2020-01-01")
        >>> clock(np.array(["2020-01-02T12:00", "2020-02-01T00:00"], "datetime64[m]"))
        array([ 1.5, 31. ])
        >>> clock(np.timedelta64(6, "h"))
        np.float64(0.25)
        >>> clock
        Clock(unit='day', origin='2020-01-01')
    """

    unit: str
    origin: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or self.unit not in _NANOSECONDS:
            units = f"{', '.join(_NANOSECONDS)} (years and months have no one length)"
            raise ValueError(f"unit must be one of {units}, got {self.unit!r}")
        if self.origin is not None:
            object.__setattr__(self, "origin", _iso_format(self.origin))

    def __call__(self, times: Any) -> Any:
        """Converts dates or durations to numbers.

        Args:
            times: Dates or durations of any shape: a `DatetimeIndex`, a `TimedeltaIndex`, a Series
                of either, a coordinate of xarray, an array of NumPy, a sequence of `datetime`, or
                one of these. Durations count from the origin.

        Returns:
            float64, of the shape of times.

        Raises:
            TypeError: Numbers, which have a unit already, or anything else that is no time; dates
                for a clock without origin; dates and durations in one sequence; a time zone on one
                side alone; durations in years, months, or no unit.
            ValueError: Times that are missing (NaT), or that float64 does not tell apart so far
                from the origin.
        """
        values: Any
        values, is_aware = as_times(times, "times")
        origin: Any = np.timedelta64(0, "s")
        if values.dtype.kind == "M":
            if self.origin is None:
                zone = "T00:00+00:00" if is_aware else ""
                first = str(values.ravel()[0]) if values.size else "2020-01-01"
                raise TypeError(
                    f"this clock has no origin, and {first} is a date: give it one, "
                    f'cgp.Clock("{self.unit}", origin="{first[:10]}{zone}")'
                )
            origin, of_aware = _from_iso_format(self.origin)
            if is_aware != of_aware and values.size:
                raise TypeError(_zone_message(self.origin, of_aware, times))
        # Seconds and what is beyond them apart: dates far from each other are more nanoseconds
        # than an integer has, and NumPy would not say so.
        seconds, zero = (a.astype(f"{a.dtype.kind}8[s]") for a in (values, origin))
        whole = (seconds - zero).astype(np.int64)
        beyond = (values - seconds) / _NANOSECOND - (origin - zero) / _NANOSECOND
        size = _NANOSECONDS[self.unit]
        numbers = whole / (size // 10**9) if size >= 10**9 else whole * (10**9 / size)
        numbers = numbers + beyond / size
        _check_told_apart(values, numbers, size, self.unit)
        return numbers[()]


def as_times(times: Any, name: str) -> tuple[np.ndarray, bool]:
    """Dates as datetime64, in UTC if they have a time zone, or durations as timedelta64.

    Returns:
        The array, and whether the dates have a time zone.
    """
    if np.ma.is_masked(times):
        raise ValueError(f"{name} must be known everywhere, but has masked elements")
    # Of a sequence each element is looked at: NumPy would make [0, timedelta64(1, "s")] durations.
    values = np.asarray(times) if hasattr(times, "dtype") else np.asarray(times, dtype=object)
    is_aware = False
    if values.dtype.kind == "O":
        values, is_aware = _from_objects(values, name)
    kind = values.dtype.kind
    if kind == "U":
        raise TypeError(
            f"{name} must be dates or durations, got text such as {values.ravel()[:1].tolist()}: "
            f"text becomes dates by {name}.astype('datetime64[s]'), or by to_datetime of pandas"
        )
    if kind not in "mM":
        hint = "numbers have a unit already, and are taken by models as they are"
        raise TypeError(f"{name} must be dates or durations, got {values.dtype}: {hint}")
    if np.isnat(values).any():
        raise ValueError(f"{name} must be known everywhere, but has missing elements (NaT)")
    if np.datetime_data(values.dtype)[0] in ("Y", "M", "generic"):
        if kind == "m":
            units = "give days, or shorter"
            raise TypeError(f"{name} must be durations of one length, got {values.dtype}: {units}")
        values = values.astype("datetime64[D]")  # the first of a month, or of a year
    return values, is_aware


def is_time(x: Any) -> bool:
    """Whether these are dates or durations, by the dtype or by the first of several objects."""
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    if kind in ("m", "M"):
        return True
    if isinstance(x, list | tuple) or (kind == "O" and np.size(x)):
        x = np.asarray(x, dtype=object).ravel()[:1].tolist()
        x = x[0] if x else None
    return isinstance(x, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64)


def remedy(name: str) -> str:
    """The remedy for times where numbers are expected, as the end of an error."""
    clock = 'clock = cgp.Clock("day", origin="2020-01-01")'
    return f"times become numbers by a clock, {clock} and clock({name})"


def _from_objects(values: np.ndarray, name: str) -> tuple[np.ndarray, bool]:
    """An array of datetime64 or timedelta64 of time objects, and whether they have a time zone."""
    times, aware = [], set()
    for time in values.ravel():
        if time is None or type(time).__name__ in ("NaTType", "NAType"):
            raise ValueError(f"{name} must be known everywhere, but has missing elements: {time}")
        times.append(_from_object(time, name))
        aware.add(getattr(time, "tzinfo", None) is not None)
    if len({time.dtype.kind for time in times}) > 1:
        raise TypeError(f"{name} has dates and durations: give each by themselves")
    if len(aware) > 1:
        raise TypeError(f"{name} has dates with and without a time zone: give all one, or none")
    array = np.array(times) if times else np.array([], "datetime64[s]")
    return array.reshape(values.shape), True in aware


def _from_object(time: Any, name: str) -> np.datetime64 | np.timedelta64:
    for convert in ("to_datetime64", "to_timedelta64"):
        if hasattr(time, convert):  # of pandas: in UTC, and to the nanosecond
            return getattr(time, convert)()
    if isinstance(time, np.datetime64 | np.timedelta64):
        return time
    if isinstance(time, datetime.datetime) and time.tzinfo is not None:
        time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(time, datetime.date):
        return np.datetime64(time)
    if isinstance(time, datetime.timedelta):
        return np.timedelta64(time)
    raise TypeError(
        f"{name} must be dates or durations, got {time!r}, a {type(time).__name__}: numbers have "
        "a unit already; text and periods become dates in pandas, by to_datetime and to_timestamp"
    )


def _from_iso_format(origin: str) -> tuple[np.datetime64, bool]:
    """A date in ISO format, in UTC if it has a time zone, and whether it has."""
    match = _DATE.fullmatch(origin)
    if match is None:
        formats = '"2020-01-01" or "2020-01-01T06:00+01:00"'
        raise ValueError(f"origin must be a date in ISO format, {formats}, got {origin!r}")
    date, zone = match.groups()
    try:
        time = np.datetime64(date)
    except ValueError as error:
        raise ValueError(f"origin must be a date, got {origin!r}: {error}") from None
    if zone not in (None, "Z"):
        sign = 1 if zone[0] == "+" else -1
        time = time - np.timedelta64(sign * (60 * int(zone[1:3]) + int(zone[-2:])), "m")
    return time, zone is not None


def _iso_format(origin: Any) -> str:
    """An origin as text in ISO format, in UTC and as short as possible; equal for equal times."""
    time: Any
    if isinstance(origin, str):
        time, is_aware = _from_iso_format(origin)
    else:
        try:
            values, is_aware = as_times(origin, "origin")
        except TypeError:
            values = np.zeros(0)
        if values.dtype.kind != "M" or values.ndim:
            raise TypeError(
                'origin must be one date, text such as "2020-01-01", a datetime, a Timestamp of '
                f"pandas or a datetime64, got {origin!r}"
            )
        time = values[()]
    with contextlib.suppress(OverflowError):  # where found has a unit of which there are too many
        for unit in ("s", "ms", "us", "ns") if is_aware else ("D", "s", "ms", "us", "ns"):
            shorter = time.astype(f"datetime64[{unit}]")
            if shorter == time:
                return str(shorter) + ("+00:00" if is_aware else "")
    raise ValueError(f"origin must be of nanoseconds at most, got {origin!r}")


def _zone_message(origin: str, of_aware: bool, times: Any) -> str:
    """The error message for a time zone of the times alone, or of the origin alone."""
    if of_aware:
        code = "times" if hasattr(times, "tz_localize") else "pandas.to_datetime(times)"
        code = "times.dt" if hasattr(getattr(times, "dt", None), "tz_localize") else code
        return (
            f"the origin, {origin}, has a time zone, but the times have none: give them theirs, "
            f'{code}.tz_localize("Europe/Berlin"), or, where they are of UTC, the clock '
            f'origin="{origin.removesuffix("+00:00")}"'
        )
    aware = f'origin="{origin if "T" in origin else origin + "T00:00"}+00:00" for UTC'
    return f"the times have a time zone, but the origin, {origin}, has none: give it one, {aware}"


def _check_told_apart(values: np.ndarray, numbers: np.ndarray, size: int, unit: str) -> None:
    """Refuses numbers that rounding moves by more than a tenth of the median step of the times."""
    steps = np.sort(np.diff(np.unique(values)) / _NANOSECOND / size)
    typical = steps[(steps.size - 1) // 2] if steps.size else np.inf
    moved = 0.5 * np.spacing(np.max(np.abs(numbers), initial=0.0))
    if moved > 0.1 * typical:
        raise ValueError(
            f"times lose their steps of {typical:.2g} {unit}s in float64, which rounds them by "
            f"up to {moved:.2g} so far from the origin: take an origin near them"
        )
