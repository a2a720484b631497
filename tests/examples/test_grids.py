"""Examples of grids."""

import numpy as np
import pytest

pytestmark = pytest.mark.long


def test_a_frame_is_filtered_over_all_axes_together(example, tmp_path, capsys):
    page = example("ofdm_frame")
    picture = tmp_path / "frame.png"

    figures = page.main(frames=6, picture=picture, seed=3)

    mean = {name: np.mean(of) for name, of in figures.items() if name != "coverage"}
    limit, learned = (
        mean[name]
        for name in ("all axes together, true covariances", "cgp, learned from the pilots")
    )
    after_another = mean["axis after axis, true covariances"]
    assert mean["linear interpolation"] < -5.0  # baselines that work
    assert after_another < mean["linear interpolation"] - 4.0
    assert limit < after_another
    # A conjugated factor of one axis would be above 0 dB.
    assert limit - 1e-9 < learned < limit + 0.8
    assert 0.9 < figures["coverage"] <= 1.0
    assert picture.stat().st_size > 10_000
    assert "delay spread" in capsys.readouterr().out


def test_missing_pulses_are_filled_from_all_ranges(example, tmp_path, capsys):
    page = example("missing_pulses")
    picture = tmp_path / "pulses.png"

    figures = page.main(dwells=8, picture=picture, seed=3)

    mean = {name: np.mean(of) for name, of in figures["missing"].items()}
    limit = mean["all ranges, true"]
    assert mean["linear interpolation"] < -6.0  # baselines that work
    assert mean["autoregression"] < mean["linear interpolation"] - 1.5
    assert mean["range by range, true"] < mean["range by range, estimated"] + 0.1
    assert limit < mean["range by range, true"] - 0.6
    # A frequency of the other sign would be above 0 dB.
    assert abs(mean["cgp"] - limit) < 0.25
    assert 0.9 < figures["coverage"] < 0.98
    assert "95 %" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000

    wind = figures["wind"]
    assert np.all(wind["whitened"] < [0.25, 0.35])  # of velocities from -20 to 20 m/s
    assert np.all(wind["cgp"] < wind["whitened"])
    assert np.all((figures["calibration"] > 0.4) & (figures["calibration"] < 1.8))


def test_shear_widens_the_spectrum_and_keeps_the_regions(example, tmp_path):
    page = example("missing_pulses")

    figures = page.main(dwells=3, picture=tmp_path / "pulses.png", seed=4, shear=4.0)

    assert 0.88 < figures["coverage"] < 0.99
    assert figures["calibration"][1] > 3.0  # the width contains the shear
