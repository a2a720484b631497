"""The blocks of the tour say what they are to say; `test_docs.py` runs other pages."""

from pathlib import Path

import keras
import matplotlib
import numpy as np
import pytest

import cgp
from docs.code_blocks import BLOCK

TOUR = Path(__file__).resolve().parents[1] / "docs" / "tour.md"


@pytest.mark.long
def test_do_the_examples_of_the_tour_run(tmp_path, monkeypatch, capsys):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(TOUR.read_text(encoding="utf-8"))
    assert len(blocks) == 11
    names = {}

    def run(block):
        exec(compile(block, str(TOUR), "exec"), names)

    for block in blocks[:2]:
        run(block)
    gp, x, z = names["gp"], names["x"], names["z"]
    assert abs(gp.parameters()["rotation.frequency"] + 0.2) < 0.01
    loaded = keras.models.load_model("tone.keras")
    np.testing.assert_allclose(loaded.predict(x)["mean"], gp.predict(x)["mean"], rtol=1e-10)

    for block in blocks[2:]:
        run(block)
    tracker, s = names["tracker"], names["s"]
    assert tracker.size == 64
    assert 0 < names["surprise"] < 20
    assert s.filtered.variance < s.predicted.variance
    resumed = keras.models.load_model("stream.keras")
    again = resumed.process(x + 75.0, z)
    np.testing.assert_allclose(again.predicted.mean, names["block"].predicted.mean, rtol=1e-12)
    np.testing.assert_allclose(names["ahead"].observation_means.shape, (30, 1))
    assert abs(names["kf"].F[0, 0] - 0.98 * np.exp(0.4j)) < 0.03
    assert names["step"].filtered.variance < names["step"].predicted.variance
    phase, states = names["check"].filtered_means[:, 0], names["states"][:, 0]
    assert np.std(names["tracked"].filtered_means[:, 0] - phase) < 0.1
    assert 0.05 < np.std(phase - states) < 0.5
    assert names["posterior"].mean().shape == (50,)
    error = abs(names["fast"].predict(x)["mean"] - gp.predict(x)["mean"])
    assert np.mean(error) < 0.1 < 0.5 < np.mean(abs(z))  # another kernel, and the same signal
    assert 0.01 < names["tomorrow"].variance < 10
    assert names["table"].index.equals(names["dates"])
    names["Features"](cgp.kernels.RBF(), np.arange(3.0))._update()
