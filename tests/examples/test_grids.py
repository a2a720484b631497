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
