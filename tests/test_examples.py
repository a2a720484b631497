import importlib.util
from pathlib import Path

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Loads an example; afterwards nothing may lie beside it that was not there before."""
    matplotlib.use("Agg")
    before = _contents()

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    assert _contents() == before


def _contents():
    return {path: path.stat().st_mtime_ns for path in EXAMPLES.iterdir() if path.is_file()}


@pytest.mark.slow
def test_polar_motion_is_forecast_better_than_by_least_squares_and_autoregression(example, capsys):
    pytest.importorskip("astropy_iers_data")
    page = example("polar_motion")
    truth = page.position(page.ORIGINS[:, None] + page.HORIZONS)
    stay = page.position(page.ORIGINS)[:, None] - truth
    usual = page.least_squares_autoregression(page.ORIGINS) - truth

    gp, slow = page.daily_model()
    page.learn(gp, page.CLEAN, page.SPLIT, verbose=0)
    prediction = page.forecasts(gp, page.ORIGINS)

    shown = np.subtract((5, 10, 30, 90), 1)
    error, inside = prediction["mean"] - truth, page.coverage(truth, prediction)
    # The others are as good as they are known to be.
    np.testing.assert_allclose(page.mean_absolute(stay)[:, 9], (12.28, 11.10), atol=0.01)
    expected = [(1.52, 2.95, 7.56, 16.78), (1.02, 1.79, 4.42, 11.51)]
    np.testing.assert_allclose(page.mean_absolute(usual)[:, shown], expected, atol=0.005)
    expected = [(1.48, 2.83, 6.82, 12.97), (1.01, 1.69, 3.53, 9.43)]
    np.testing.assert_allclose(page.mean_absolute(error)[:, shown], expected, rtol=0.01)
    ratio, deviation = page.ratio(error, usual)
    assert np.all(ratio[shown[1:]] <= (1.00, 0.94, 0.90))
    assert np.all(deviation[shown] > 0.01)
    assert np.all(deviation[shown] < 0.06)
    assert np.all((inside[shown] >= 0.91) & (inside[shown] <= 0.98))
    assert 0.93 < inside.mean() < 0.96

    # Learning on, for two years: the slow kernels stay, the others move, and little changes.
    before = gp.parameters()
    again = page.forecasts(gp, page.ORIGINS[:24], slow)
    after = gp.parameters()
    for name, value in before.items():
        moved = name.split(".")[0] in ("weather", "mode", "clockwise")
        assert (after[name] != value) == moved, name
    ratio, _ = page.ratio(again["mean"] - truth[:24], error[:24])
    assert np.all(np.abs(ratio[shown] - 1.0) < 0.03)

    period, error, q, factor = page.wobble_of_means(45700)  # 1984
    assert abs(period - page.LITERATURE[0]) < 2 * error < 6
    assert 40 < q < 120
    assert 1.3 < factor < 3.0
    assert "parameter" in capsys.readouterr().out


@pytest.mark.slow
def test_s_parameters_are_interpolated_at_least_as_well_as_by_others(
    example, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("skrf")
    s_parameters = example("s_parameters")
    monkeypatch.setattr(s_parameters, "LENGTHSCALES", (10.0,))
    picture = tmp_path / "antenna.png"

    plain, behind = (
        {way: error for way, (_, error) in chosen.items()} for chosen in s_parameters.main(picture)
    )

    assert plain["spline"] == pytest.approx(-30.75, abs=0.01)
    assert plain["two real GPs"] < -30.0  # a baseline that works
    assert plain["complex GP"] < min(plain["spline"], plain["two real GPs"]) + 0.3
    # A delay costs the complex GP nothing, the others much.
    assert behind["complex GP"] == pytest.approx(plain["complex GP"], abs=0.5)
    assert behind["complex GP"] < behind["two real GPs"] - 1.5
    assert behind["complex GP"] < behind["spline"] - 10.0
    assert picture.stat().st_size > 10_000
    assert "delay" in capsys.readouterr().out


@pytest.mark.slow
def test_online_tracking_stays_calibrated_when_the_series_changes(example, tmp_path, capsys):
    pytest.importorskip("astropy_iers_data")
    online_tracking = example("online_tracking")
    picture = tmp_path / "stream.png"

    errors, covered, difference = online_tracking.main(picture)

    expected = online_tracking.PROBABILITIES
    for period in ("until 2020", "since 2021", "withheld"):
        np.testing.assert_allclose(covered["learning on", period], expected, atol=0.08)
    np.testing.assert_allclose(covered["as learned first", "until 2020"], expected, atol=0.03)
    assert covered["as learned first", "since 2021"][2] < 0.6  # of 0.95
    line, frozen, learning = (
        errors[name]
        for name in (
            "a line through two days",
            "tracker, as learned first",
            "tracker, learning on",
        )
    )
    # Of data that do not change: what the example is documented to reach.
    np.testing.assert_allclose(line["until 2020"], (0.221, 0.166), atol=0.001)
    np.testing.assert_allclose(learning["until 2020"], (0.156, 0.128), rtol=0.04)
    np.testing.assert_allclose(learning["since 2021"], (0.256, 0.221), rtol=0.04)
    assert np.all(np.divide(learning["since 2021"], line["since 2021"]) < 1.03)
    assert np.all(np.divide(frozen["since 2021"], line["since 2021"]) > 1.05)
    assert difference < 1e-10
    assert picture.stat().st_size > 10_000
    assert "lessons" in capsys.readouterr().out


@pytest.mark.slow
def test_the_channel_equalizer_beats_the_best_linear_one_with_its_own_decisions(
    example, tmp_path, monkeypatch, capsys
):
    channel_equalizer = example("channel_equalizer")
    monkeypatch.setattr(channel_equalizer, "LENGTH", 700)
    monkeypatch.setattr(channel_equalizer, "SETTLED", 300)
    picture = tmp_path / "equalizer.png"

    figures = channel_equalizer.main(number=4, picture=picture)

    mse, ser = (
        {name: values[key][0] for name, values in figures.items()} for key in ("mse", "ser")
    )
    # Baselines that work: RLS comes to the best linear weights, and none is better.
    assert mse["best linear"] == pytest.approx(-9.8, abs=0.2)
    assert mse["best linear"] - 0.05 < mse["RLS"] < mse["best linear"] + 0.3
    assert 0.03 < ser["RLS"] < 0.06
    assert mse["GP"] < mse["best linear"] - 3.0
    assert ser["GP"] < 0.75 * ser["RLS"]
    assert mse["GP, told all"] < mse["GP"] + 0.05
    assert all(0 < error < 1.0 for values in figures.values() for _, error in values.values())
    assert picture.stat().st_size > 10_000
    assert "symbol error rate" in capsys.readouterr().out


@pytest.mark.slow
def test_the_complex_ar_is_filtered_as_well_as_theory_allows(example, tmp_path, capsys):
    complex_ar = example("complex_ar")
    picture = tmp_path / "ar.png"

    errors = complex_ar.main(picture)

    assert complex_ar.theory(complex_ar.riccati_gain()) == pytest.approx(0.1160, abs=5e-5)
    assert errors["z itself"] == pytest.approx(0.5, rel=0.02)
    assert errors["cgp, filter"] == pytest.approx(0.1160, rel=0.02)
    assert errors["cgp, smoother"] < 0.7 * errors["cgp, filter"]
    for name in set(errors) - {"z itself", "cgp, filter", "cgp, smoother"}:  # filterpy, if there
        assert errors[name] == pytest.approx(0.2815, rel=0.03)
    assert picture.stat().st_size > 10_000
    table = capsys.readouterr().out
    for verdict in ("as expected", "white", "circular"):
        assert verdict in table


@pytest.mark.slow
def test_the_frequency_of_an_unbalanced_grid_has_no_ripple_when_the_filter_is_widely_linear(
    example, tmp_path, monkeypatch, capsys
):
    grid_frequency = example("grid_frequency")
    monkeypatch.setattr(grid_frequency, "SERIES", 8)
    monkeypatch.setattr(grid_frequency, "DRIFTS", np.array([0.3, 1.0, 3.0]))
    picture = tmp_path / "grid.png"

    figures = grid_frequency.main(picture)

    error, ripple = (
        {name: of[key][0] for name, of in figures.items()} for key in ("all", "ripple")
    )
    assert ripple["proper"] == pytest.approx(0.444, rel=0.02)
    assert ripple["proper, best"] == pytest.approx(0.081, rel=0.05)
    assert ripple["widely linear"] < 0.01
    assert error["proper, best"] == pytest.approx(0.123, rel=0.02)
    assert error["widely linear"] == pytest.approx(0.077, rel=0.04)
    assert error["two phasors"] == pytest.approx(error["widely linear"], rel=0.06)
    assert all(0 < spread < 0.01 for of in figures.values() for _, spread in of.values())
    assert picture.stat().st_size > 10_000
    assert "as expected: 8 of 8" in capsys.readouterr().out


@pytest.mark.slow
def test_the_fading_channel_is_tracked_nearly_as_well_as_its_statistics_allow(
    example, tmp_path, monkeypatch, capsys
):
    fading_channel = example("fading_channel")
    monkeypatch.setattr(fading_channel, "EPOCHS", 12)
    monkeypatch.setattr(fading_channel, "WATCHED", 100)
    picture = tmp_path / "fading.png"

    figures, leaks = fading_channel.main(tested=600, picture=picture)

    rates = {name: of[0] for name, of in figures.items()}
    # Baselines that work, in their order.
    assert rates["channel known"] == pytest.approx(0.0094, abs=0.002)
    assert rates["LMMSE, all pilots"] == pytest.approx(0.0134, abs=0.002)
    assert rates["LMMSE, the same pilots"] == pytest.approx(0.0149, abs=0.002)
    assert rates["LMMSE, past pilots"] == pytest.approx(0.0415, abs=0.004)
    assert rates["hold the last pilot"] == pytest.approx(0.162, abs=0.01)
    assert rates["receiver"] < 1.12 * rates["LMMSE, the same pilots"]
    assert rates["receiver"] < rates["receiver, by likelihood"] < rates["the same, leak left in"]
    for leak in leaks.values():
        assert abs(leak - fading_channel.LEAK) < 0.04
    assert all(0 < error < 0.01 for _, error in figures.values())
    assert picture.stat().st_size > 10_000
    assert "differences on the same symbols" in capsys.readouterr().out


@pytest.mark.slow
def test_gaps_are_filled_with_bands_that_hold_what_was_there(example, tmp_path, capsys):
    pytest.importorskip("astropy_iers_data")
    picture = tmp_path / "gaps.png"

    figures, claimed, inside = example("gap_filling").main(picture)

    assert figures["spline through all days"] == pytest.approx(3.20, abs=0.01)
    assert figures["spline through every tenth"] == pytest.approx(3.17, abs=0.01)
    assert figures["cgp"] == pytest.approx(2.79, abs=0.03)
    assert claimed == pytest.approx(3.2, abs=0.1)
    np.testing.assert_allclose(inside, (0.60, 0.86, 0.955), atol=0.015)
    assert picture.stat().st_size > 10_000
    assert "region" in capsys.readouterr().out


@pytest.mark.slow
def test_surprises_tell_the_history_of_a_stream(example, tmp_path, capsys):
    pytest.importorskip("astropy_iers_data")
    page = example("day_by_day")
    picture = tmp_path / "surprise.png"

    figures, difference = page.main(picture, start=44000)  # 1979

    expected = [(0.50, 0.51), (130.2, 7.73), (0.99, 0.92), (0.98, 0.94), (3.44, 3.25)]
    np.testing.assert_allclose(figures, expected, rtol=0.03)
    assert difference < 1e-9
    assert picture.stat().st_size > 10_000
    assert "a step takes" in capsys.readouterr().out
