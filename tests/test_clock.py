"""Times become numbers of one unit from one origin, or an error says why not."""

import datetime
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import cgp
from cgp.kernels import Matern32, Rotation

DAYS = pd.date_range("2026-03-27", periods=5, freq="D")  # summer time begins in Berlin on the 29th
BERLIN = DAYS.tz_localize("Europe/Berlin")
CLOCK = cgp.Clock("day", origin="2026-03-25")

DATES = {
    "DatetimeIndex": DAYS,
    "Series": pd.Series(DAYS),
    "nanoseconds": DAYS.astype("datetime64[ns]"),
    "NumPy": DAYS.to_numpy(),
    "days of NumPy": DAYS.to_numpy().astype("datetime64[D]"),
    "a coordinate": xr.DataArray(np.zeros(5), {"t": DAYS}, "t").t,
    "list of Timestamp": list(DAYS),
    "tuple of datetime": tuple(DAYS.to_pydatetime()),
    "list of date": [day.date() for day in DAYS],
    "list of datetime64": list(DAYS.to_numpy()),
}


@pytest.mark.parametrize("name", DATES)
def test_are_dates_of_every_kind_numbers_since_the_origin(name):
    result = CLOCK(DATES[name])
    assert type(result) is np.ndarray
    assert result.dtype == "float64"
    np.testing.assert_array_equal(result, np.arange(2.0, 7.0))


@pytest.mark.parametrize(
    "durations",
    [
        DAYS - DAYS[0],
        pd.Series(DAYS - DAYS[0]),
        np.arange(5) * np.timedelta64(1440, "m"),
        [datetime.timedelta(days=days) for days in range(5)],
        list(DAYS - DAYS[0]),
    ],
)
def test_are_durations_numbers_with_any_origin_and_without_one(durations):
    for clock in (CLOCK, cgp.Clock("day"), cgp.Clock("day", "1999-01-01T00:00Z")):
        np.testing.assert_array_equal(clock(durations), np.arange(5.0))


def test_keeps_a_clock_the_shape_and_makes_one_time_a_number():
    np.testing.assert_array_equal(CLOCK(DAYS.to_numpy()[:, None]), np.arange(2.0, 7.0)[:, None])
    frame = pd.DataFrame({"a": DAYS, "b": DAYS + pd.Timedelta(hours=12)})
    np.testing.assert_array_equal(CLOCK(frame)[0], [2.0, 2.5])
    for one in (DAYS[0], DAYS[0].to_pydatetime(), DAYS[0].date(), DAYS.to_numpy()[0]):
        assert isinstance(CLOCK(one), float)
        assert CLOCK(one) == 2.0
    assert CLOCK(DAYS[:0]).shape == (0,)
    assert CLOCK([]).shape == (0,)


def test_are_times_with_a_zone_those_of_utc_and_no_hour_is_lost_in_spring():
    clock = cgp.Clock("hour", origin="2026-03-27T00:00+01:00")
    np.testing.assert_array_equal(clock(BERLIN), [0.0, 24.0, 48.0, 71.0, 95.0])
    for same in (list(BERLIN), BERLIN.tz_convert("Asia/Tokyo"), BERLIN.to_pydatetime()):
        np.testing.assert_array_equal(clock(same), clock(BERLIN))


@pytest.mark.parametrize(
    "origin",
    [
        "2025-12-31T23:00Z",
        "2026-01-01T00:00+01:00",
        "2025-12-31 18:30:00.000-0430",
        datetime.datetime(2025, 12, 31, 23, tzinfo=datetime.UTC),
        pd.Timestamp("2026-01-01", tz="Europe/Berlin"),
    ],
)
def test_are_clocks_of_one_origin_equal_and_made_again_from_two_strings(origin):
    clock = cgp.Clock("day", origin)
    assert clock == cgp.Clock("day", "2025-12-31T23:00:00+00:00") != cgp.Clock("hour", origin)
    assert cgp.Clock(clock.unit, clock.origin) == pickle.loads(pickle.dumps(clock)) == clock
    assert eval(repr(clock), {"Clock": cgp.Clock}) == clock
    naive = cgp.Clock("day", np.datetime64("2026-01-01T00:00:00.000000000"))
    assert naive == cgp.Clock("day", datetime.date(2026, 1, 1)) == cgp.Clock("day", "2026-01-01")


UNITS = {"nanosecond": 1, "millisecond": 10**6, "second": 10**9, "day": 86400 * 10**9}


@given(
    seconds=st.integers(-(10**11), 10**11),
    beyond=st.integers(0, 10**9 - 1),
    start=st.integers(-(10**10), 10**10),
    start_beyond=st.integers(0, 10**9 - 1),
    unit=st.sampled_from(sorted(UNITS)),
)
def test_is_a_number_the_exact_difference_rounded(seconds, beyond, start, start_beyond, unit):
    """Also where the difference has more nanoseconds than an integer of 64 bits."""

    def time(whole, rest):  # of nanoseconds only where they fit
        if abs(whole) > 9 * 10**9:
            return np.datetime64(whole, "s"), 0
        return np.datetime64(whole * 10**9 + rest, "ns"), rest

    (at, rest), (origin, origin_rest) = time(seconds, beyond), time(start % 10**10, start_beyond)
    result = cgp.Clock(unit, origin)(at)
    exact = Fraction((seconds - start % 10**10) * 10**9 + rest - origin_rest, UNITS[unit])
    assert abs(Fraction(float(result)) - exact) <= abs(exact) * Fraction(1, 2**51)


def test_are_nanoseconds_kept_near_the_origin_and_refused_far_from_it():
    times = pd.DatetimeIndex(["2026-01-01", "2026-01-01 00:00:00.000000001"])
    result = cgp.Clock("second", "2026-01-01")(times)
    np.testing.assert_array_equal(result, [0.0, 1e-9])
    with pytest.raises(ValueError, match=r"lose their steps of 1e-09 seconds.*an origin near them"):
        cgp.Clock("second", "1970-01-01")(times)
    far = cgp.Clock("second", "1970-01-01")(times[[0, 0]])  # equal times are told apart by nothing
    assert far[0] == far[1]


CFTIME = type("DatetimeNoLeap", (), {})()
REFUSED = {
    "numbers": (CLOCK, np.arange(3.0), TypeError, "got float64: numbers have a unit already"),
    "a number": (CLOCK, 3.0, TypeError, "got 3.0, a float: numbers have a unit already"),
    "dates and numbers": (CLOCK, [DAYS[0], 1.0], TypeError, "got 1.0, a float"),
    "durations and numbers": (CLOCK, [np.timedelta64(1, "s"), 2], TypeError, "got 2, a int"),
    "dates and durations": (CLOCK, [DAYS[0], DAYS[1] - DAYS[0]], TypeError, "give each by"),
    "text": (CLOCK, ["2026-01-01"], TypeError, "text and periods become dates in pandas"),
    "periods": (CLOCK, DAYS.to_period("D"), TypeError, "got Period"),
    "another calendar": (CLOCK, [CFTIME], TypeError, "a DatetimeNoLeap"),
    "NaT": (CLOCK, DAYS.insert(2, pd.NaT), ValueError, r"missing elements \(NaT\)"),
    "NaT in a list": (CLOCK, [pd.NaT, BERLIN[0]], ValueError, "missing elements: NaT"),
    "None": (CLOCK, [None, DAYS[0]], ValueError, "missing elements: None"),
    "masked": (
        CLOCK, np.ma.array(DAYS.to_numpy(), mask=[1, 0, 0, 0, 0]), ValueError, "masked elements"),
    "dates without an origin": (
        cgp.Clock("day"), DAYS, TypeError, r'cgp.Clock\("day", origin="2026-03-27"\)'),
    "a zone of the times alone": (
        CLOCK, BERLIN, TypeError, r'have a time zone, but the origin.*"2026-03-25T00:00\+00:00"'),
    "a zone of the origin alone": (
        cgp.Clock("day", "2026-01-01T00:00Z"), DAYS, TypeError, r"theirs, times.tz_localize"),
    "a zone of the origin beside a column": (
        cgp.Clock("day", "2026-01-01T00:00Z"), pd.Series(DAYS), TypeError, "times.dt.tz_localize"),
    "a zone of the origin beside an array": (
        cgp.Clock("day", "2026-01-01T00:00Z"), DAYS.to_numpy(), TypeError,
        r'pandas.to_datetime\(times\).tz_localize.* the clock origin="2026-01-01T00:00:00"'),
    "a zone without an origin": (
        cgp.Clock("day"), BERLIN, TypeError, r'origin="2026-03-..T00:00\+00:00"'),
    "an array of text": (
        CLOCK, np.array(["2026-01-01"]), TypeError, r"text becomes dates by times.astype"),
    "a zone of some": (CLOCK, [DAYS[0], BERLIN[0]], TypeError, "with and without a time zone"),
    "years": (CLOCK, np.timedelta64(1, "Y"), TypeError, r"of one length, got timedelta64\[Y\]"),
    "no unit": (CLOCK, np.zeros((), "m8")[()], TypeError, "of one length, got timedelta64"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_is_what_is_no_time_of_the_clock_refused(name):
    clock, times, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        clock(times)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("year",), ValueError, "years and months have no one length"),
        ((np.timedelta64(1, "D"),), ValueError, "unit must be one of nanosecond, .*day"),
        (("day", "today"), ValueError, "origin must be a date in ISO format.*'today'"),
        (("day", "2026-13-01"), ValueError, "origin must be a date, got '2026-13-01'"),
        (("day", "01/02/2026"), ValueError, "ISO format"),
        (("day", "2026-01-01T00:00+24:00"), ValueError, "ISO format"),
        (("day", "2026-01-01T00:00-01:60"), ValueError, "ISO format"),
        (("day", np.datetime64("NaT", "s")), ValueError, "origin .* missing"),
        (("day", 0.0), TypeError, "origin must be one date, text such as .*got 0.0"),
        (("day", np.datetime64(1, "ps")), ValueError, "origin must be of nanoseconds at most"),
        ((["day"],), ValueError, "unit must be one of nanosecond, .*day"),
        (("day", np.timedelta64(1, "D")), TypeError, "origin must be one date"),
        (("day", DAYS), TypeError, "origin must be one date"),
    ],
)
def test_are_other_units_and_origins_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        cgp.Clock(*arguments)


# --- models ---------------------------------------------------------------------------------------

MINUTES = pd.date_range("2026-01-01T06:00", periods=12, freq="min", tz="UTC")
Z = np.exp(0.3j * np.arange(12))


def kernel():
    return Matern32(1.0, 3.0) * Rotation(0.05)


TAKING = {
    "ExactGP.condition": lambda x: cgp.ExactGP(kernel(), 0.1).condition(x, Z),
    "ExactGP.fit": lambda x: compiled(cgp.ExactGP(kernel(), 0.1)).fit(x, Z, epochs=1, verbose=0),
    "ExactGP.predict": lambda x: cgp.ExactGP(kernel(), 0.1).predict(x),
    "ExactGP()": lambda x: cgp.ExactGP(kernel(), 0.1)(x),
    "StateSpaceGP.condition": lambda x: cgp.StateSpaceGP(kernel(), 0.1).condition(x, Z),
    "StateSpaceGP.process": lambda x: cgp.StateSpaceGP(kernel(), 0.1).process(x, Z),
    "StateSpaceGP.step": lambda x: cgp.StateSpaceGP(kernel(), 0.1).step(x[0], Z[0]),
    "StateSpaceGP.forecasts": lambda x: conditioned().forecasts(x),
    "RecursiveGP.process": lambda x: cgp.RecursiveGP(kernel(), 0.1).process(x, Z),
    "RecursiveGP.step": lambda x: cgp.RecursiveGP(kernel(), 0.1).step(x[0], Z[0]),
    "compare": lambda x: cgp.compare({"a": cgp.ExactGP(kernel())}, x, Z, verbose=0),
    "from_periodogram": lambda x: Rotation.from_periodogram(x, Z),
    "Bank": lambda x: cgp.Bank(cgp.StateSpaceGP(kernel(), 0.1), 12).update(range(12), Z, x),
    "GPInterpolator": lambda x: cgp.layers.GPInterpolator(kernel(), 0.1, x=x, x_new=x),
}


def compiled(model):
    model.compile(cgp.optimizers.LBFGS())
    return model


def conditioned():
    model = cgp.StateSpaceGP(kernel(), 0.1)
    model.condition(np.arange(12.0), Z)
    return model


@pytest.mark.parametrize("kind", ["dates", "dates with a zone", "durations"])
@pytest.mark.parametrize("name", TAKING)
def test_are_times_refused_by_models_with_the_remedy(name, kind):
    x = MINUTES - MINUTES[0] if kind == "durations" else MINUTES
    x = x.tz_localize(None) if kind == "dates" else x
    with pytest.raises(TypeError, match=r"must be (real )?numbers, got .*cgp.Clock"):
        TAKING[name](x)


@pytest.mark.parametrize("process", [cgp.ExactGP, cgp.StateSpaceGP], ids=lambda p: p.__name__)
def test_are_lengthscales_and_frequencies_in_the_unit_of_the_clock(process):
    later = MINUTES[-1] + pd.to_timedelta([30, 90], unit="s")
    result = []
    for unit, size in (("minute", 1.0), ("second", 60.0)):
        clock = cgp.Clock(unit, origin="2026-01-01T00:00Z")
        assert clock(pd.Timedelta(3, "min")) == 3.0 * size
        gp = process(Matern32(1.0, 3.0 * size) * Rotation(0.05 / size), 0.1)
        gp.condition(clock(MINUTES), pd.Series(Z, MINUTES))
        result.append(gp.predict(clock(later))["mean"])
    np.testing.assert_allclose(result[0], result[1], rtol=1e-9)


def test_goes_a_stream_on_by_timestamps_as_by_their_numbers():
    clock = cgp.Clock("minute", origin="2026-01-01T06:00Z")
    by_time, by_number = (cgp.RecursiveGP(kernel(), 0.1, capacity=8) for _ in range(2))
    series = pd.Series(Z, MINUTES, dtype=object)
    series.iloc[5] = pd.NA
    for time, value in series.items():
        step = by_time.step(clock(time), value)
    expected = by_number.process(np.arange(12.0), np.where(np.arange(12) == 5, np.nan, Z))
    np.testing.assert_allclose(step.filtered.mean, expected.filtered.mean[-1], rtol=1e-12)
