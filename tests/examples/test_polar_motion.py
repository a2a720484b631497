"""Examples that learn from the motion of the pole."""

import numpy as np
import pytest

pytest.importorskip("astropy_iers_data")
pytestmark = pytest.mark.long


def test_polar_motion_is_forecast_better_than_by_least_squares_and_autoregression(example, capsys):
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
    shown = capsys.readouterr().out
    assert "year" in shown  # the bar of the example itself
    assert "parameter" not in shown  # those of the library are for terminals


def test_online_tracking_stays_calibrated_when_the_series_changes(example, tmp_path, capsys):
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


def test_gaps_are_filled_with_bands_that_hold_what_was_there(example, tmp_path, capsys):
    picture = tmp_path / "gaps.png"

    figures, claimed, inside = example("gap_filling").main(picture)

    assert figures["spline through all days"] == pytest.approx(3.20, abs=0.01)
    assert figures["spline through every tenth"] == pytest.approx(3.17, abs=0.01)
    assert figures["cgp"] == pytest.approx(2.79, abs=0.03)
    assert claimed == pytest.approx(3.2, abs=0.1)
    np.testing.assert_allclose(inside, (0.60, 0.86, 0.955), atol=0.015)
    assert picture.stat().st_size > 10_000
    assert "region" in capsys.readouterr().out


def test_surprises_tell_the_history_of_a_stream(example, tmp_path, capsys):
    page = example("day_by_day")
    picture = tmp_path / "surprise.png"

    figures, difference = page.main(picture, start=44000)  # 1979

    expected = [(0.50, 0.51), (130.2, 7.73), (0.99, 0.92), (0.98, 0.94), (3.44, 3.25)]
    np.testing.assert_allclose(figures, expected, rtol=0.03)
    assert difference < 1e-9
    assert picture.stat().st_size > 10_000
    assert "a step takes" in capsys.readouterr().out


# Beside impulses the power of the residuals varies under normal noise.
@pytest.mark.filterwarnings("ignore:after this fit the residuals have:RuntimeWarning")
def test_impulses_harm_the_normal_noise_and_not_that_of_student(
    example, tmp_path, monkeypatch, capsys
):
    page = example("outliers")
    small = {"SEEDS": (0,), "OTHER_SEEDS": (100,), "DEGREES": (4.0,)}
    for name, value in {**small, "WINDOWS": (3,), "THRESHOLDS": (3.0,)}.items():
        monkeypatch.setattr(page, name, value)
    picture = tmp_path / "outliers.png"

    scores = page.main(picture, shares=(0.05,))[0.05]

    normal, student, oracle = (scores[way] for way in (page.NORMAL, page.STUDENT, page.ORACLE))
    assert normal.noise > 3.0 * oracle.noise
    assert student.noise < 0.5 * normal.noise
    assert oracle.held < student.held < normal.held
    assert oracle.bad < student.bad < normal.bad
    assert normal.density < student.density < oracle.density
    assert student.inside > 0.8
    assert picture.stat().st_size > 10_000
    assert "4 degrees of freedom" in capsys.readouterr().out
