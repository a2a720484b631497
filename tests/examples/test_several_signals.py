"""Examples of several signals at once."""

import numpy as np
import pytest

pytestmark = pytest.mark.long


def test_one_echo_on_four_antennas_tells_its_direction_and_an_antenna_that_fails(
    example, tmp_path, capsys
):
    page = example("array_gains")
    picture = tmp_path / "gains.png"

    figures = page.main(cases=4, scattered=2, picture=picture)

    directions = {name: np.sqrt(np.mean(of**2)) for name, of in figures["directions"].items()}
    # Conjugated gains would turn the directions to the other side: tens of degrees.
    assert all(error < 1.5 for error in directions.values())
    assert np.all(figures["bars"] < 2.0)
    assert np.sqrt(np.mean((figures["directions"]["cgp"] / figures["bars"]) ** 2)) < 1.8
    assert figures["gains"] > 0.75
    means = {name: of.mean(axis=0) for name, of in figures["echoes"].items()}
    now, failed = ({name: of[i] for name, of in means.items()} for i in (0, 1))
    assert now["each antenna, Kalman"] < -5.0  # baselines that work
    assert now["weighted sum, Kalman"] < now["weighted sum"] - 2.0
    assert now["cgp"] < now["weighted sum, Kalman"] + 1.0
    # An exchanged column would have no echo to tell, and be at 3 dB.
    assert failed["cgp"] < failed["each antenna, Kalman"] - 4.0
    assert failed["cgp"] < failed["weighted sum"] - 2.0
    assert all(0.8 < share <= 1.0 for share in figures["coverage"])
    alone, cgp_ = (figures["multipath"][name][:, 0].mean() for name in (page.ALONE, "cgp"))
    assert alone - 0.5 < cgp_ < alone + 2.0  # nothing is gained where nothing is shared
    assert picture.stat().st_size > 10_000
    assert "in rich multipath" in capsys.readouterr().out


def test_the_gains_of_three_phases_are_the_unbalance_and_fill_a_silent_phase(
    example, tmp_path, capsys
):
    three_phases = example("three_phases")
    picture = tmp_path / "phases.png"

    figures = three_phases.main(grids=5, picture=picture)

    gap, inside = figures["gap"]
    error = {name: [value for value, _ in cells] for name, cells in gap.items()}
    # Baselines that work: a balanced grid is wrong by its unbalance, ratios by the loads alone.
    assert 1.0 < error["balanced"][0] < 8.0
    assert max(error["ratios"]) < 0.7
    assert error["phases apart"][1] > 10.0
    # Gains that were conjugated, or columns exchanged, would be wrong by 170 %.
    assert error["three outputs"][0] < 0.95 * error["ratios"][0]
    assert error["source may jump"][1] < 1.05 * error["ratios"][1]
    assert error["three outputs"][1] > error["source may jump"][1]
    assert inside["three outputs"][0] > 0.85
    sequences, covered = figures["unbalance"]
    assert sequences["Fortescue"][0][0] == pytest.approx(0.055, abs=0.025)
    assert sequences["three outputs"][0][0] < 1.1 * sequences["Fortescue"][0][0]
    assert covered["three outputs"][0] >= 0.7 > covered["Fortescue"][0]
    sags = {name: cells[0][0] for name, cells in figures["sags"].items()}
    assert sags["ratios"] > 70.0
    assert sags["three outputs"] > max(sags["phases apart"] + 20.0, sags["ratios"] - 3.0)
    assert figures["false alarms"] < 0.012
    assert picture.stat().st_size > 10_000
    assert "seen in the first frame" in capsys.readouterr().out
    a = np.exp(2j * np.pi / 3)
    balanced = three_phases.symmetrical(np.array([1.0, a**2, a]))  # of phase order a, b, c
    assert np.allclose(balanced, 0.0, atol=1e-12)


def test_links_tell_of_each_other_where_they_are_correlated_and_else_cost_nothing(
    example, tmp_path, monkeypatch, capsys
):
    page = example("mimo_prediction")
    monkeypatch.setattr(page, "ORDER", 4)  # half of the time
    picture = tmp_path / "mimo.png"

    figures = page.main(2, ("low", "high"), picture)

    low, high = (
        {name: of[0] for name, of in figures[c].items() if name not in ("inside", "criteria")}
        for c in ("low", "high")
    )
    for of in (low, high):  # baselines that work, in their order
        assert of["hold the last pilot"][0] == pytest.approx(-7.7, abs=1.0)
        assert of["each link, Burg"][0] == pytest.approx(-12.1, abs=0.5)
        assert of["each link, true Wiener"][0] == pytest.approx(-13.7, abs=0.4)
        assert (of["behind true Wiener"][:3] > 0.3).all()  # nothing linear is better
        assert of["behind true Wiener"][0] < 1.7
    assert low["all links, true Wiener"] == pytest.approx(low["each link, true Wiener"], abs=1e-6)
    assert high["all links, told Doppler"][0] < high["each link, true Wiener"][0] - 0.8
    # Exchanged columns, or gains that are not conjugated where they should be, lose all of this.
    assert abs(low["gain of all links, cgp"][:3]).max() < 0.4
    assert high["gain of all links, cgp"][0] > 1.0
    assert high["gain of all links, cgp"][3] > 6.0
    assert 0.91 < figures["high"]["inside"][0] < 0.97
    assert figures["high"]["inside"][1] > 0.8
    likelihood, bic = (
        {name: pair[n] for name, pair in figures["high"]["criteria"].items()} for n in (0, 1)
    )
    assert likelihood["rank 1"] < likelihood["rank 2"] < likelihood["all links"]
    assert min(bic, key=bic.get) == "all links"
    assert min((of := figures["low"]["criteria"]), key=lambda name: of[name][1]) == "each link"
    assert picture.stat().st_size > 10_000
    assert "in regions of 95 %" in capsys.readouterr().out
