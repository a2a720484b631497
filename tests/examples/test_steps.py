"""Examples of steps: matrices of their own, gates, late observations, recursive least squares."""

import pytest

pytestmark = pytest.mark.long


def test_recursive_least_squares_equalise_within_a_decibel_of_the_limit(example, tmp_path):
    page = example("rls_equalizer")
    picture = tmp_path / "equalizer.png"

    figures = page.main(picture=picture)

    early, late, wrong = ({name: of[k] for name, of in figures.items()} for k in range(3))
    name = "RecursiveLeastSquares"
    assert early["channel known"] == pytest.approx(-21.1, abs=0.4)
    assert max(early[name], late[name]) < late["channel known"] + 1.0
    for gradient in ("LMS", "NLMS"):
        assert early[gradient] < -10.0  # a baseline that works
        assert early[name] < early[gradient] - 6.0
        assert late[name] < late[gradient] - 1.0
        assert wrong[name] < 0.15 * wrong[gradient]
    assert late["least squares by blocks"] == pytest.approx(late[name], abs=0.4)
    assert picture.stat().st_size > 10_000


def test_an_array_that_looks_along_has_half_of_the_error_of_a_window(example, tmp_path):
    picture = tmp_path / "direction.png"

    window, alpha_beta, tracked = example("direction_of_arrival").main(picture=picture)

    assert 3.0 < alpha_beta < window < 4.5  # baselines that work
    assert tracked < 0.55 * alpha_beta
    assert picture.stat().st_size > 10_000


def test_a_gate_keeps_false_alarms_from_a_track(example, tmp_path):
    picture = tmp_path / "track.png"

    figures, (false, right) = example("gated_track").main(picture=picture)

    errors, lost = ({name: of[k] for name, of in figures.items()} for k in (0, 1))
    assert errors["told the false alarms"] == pytest.approx(12.1, abs=0.5)
    assert errors["filter with a gate"] < 1.05 * errors["told the false alarms"]
    assert errors["filter with a gate"] < 0.1 * errors["filter"]
    assert errors["filter with a gate"] < 0.12 * errors["median of detections"]
    assert lost["filter with a gate"] <= 0.02
    assert false > 0.98
    assert right < 0.02
    assert picture.stat().st_size > 10_000


def test_late_messages_count_as_if_they_had_come_in_order(example, tmp_path):
    picture = tmp_path / "late.png"

    errors, difference = example("late_packets").main(picture=picture)

    present = errors["KalmanFilter, late_by"]
    assert difference < 1e-10
    assert present < 0.8 * errors["concentrator"]
    assert present < 0.5 * errors["late ones as current"] < 0.5 * errors["late ones dropped"]
    assert errors["the same, lag(8)"] < errors["the same, lag(4)"] < 0.35 * present
    assert picture.stat().st_size > 10_000
