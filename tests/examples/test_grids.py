"""Examples of grids and maps."""

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


def test_a_waterfall_is_filled_without_limits_that_are_told(example, tmp_path, capsys):
    page = example("telescope_waterfall")
    picture = tmp_path / "waterfall.png"

    figures = page.main(shape=(96, 60), picture=picture, seed=3)

    error = {name: errors["all"] for name, errors in figures["errors"].items()}
    limit, hindsight = error["covariance of all skies"], error["DAYENU, limits in hindsight"]
    assert error["linear interpolation"] < -20.0  # baselines that work
    assert error["DPSS over delay"] < error["linear interpolation"] - 6.0
    assert error["DPSS over both"] < error["DPSS over delay"] - 3.0
    assert hindsight < error["DAYENU, limits by geometry"] - 1.0
    assert limit < hindsight - 0.3
    assert limit < error["cgp"] < limit + 2.0
    assert error["cgp"] < error["DAYENU, limits by geometry"] - 2.0
    assert error["cgp"] < error["DAYENU, limits by cross-validation"] + 0.3
    assert error["cgp"] < hindsight + 0.7
    assert all(errors < -38.0 for errors in figures["errors"]["cgp"].values())
    assert 0.88 < figures["coverage"]["all"] < 0.99

    # A source that rises in the east passes fringes of positive frequency, as the phase is -2πντ.
    learned, geometry = figures["fringe rate"]
    assert abs(learned / geometry - 1) < 0.1
    learned, true = figures["noise"]
    assert abs(learned / true - 1) < 0.05
    assert "95 %" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000


def test_a_source_in_the_east_has_a_positive_delay_and_fringe_rate(example):
    page = example("telescope_waterfall")
    night = page.simulated_night(np.random.default_rng(4), (96, 60), 75.9)
    # It is 0.3 rad before it culminates in the zenith.
    source = np.array([0.3]), np.array([page.LATITUDE])
    seen = np.concatenate([row[:1] for _, row in page.responses(night.axes, 75.9, *source)])

    delays, powers = page.spectrum(night._replace(z=seen[:1]), 0.0)
    turns = np.angle(np.sum(seen[1:] * seen[:-1].conj())) / (2 * np.pi * night.axes[0][1])

    assert abs(delays[np.argmax(powers)] - 53.0) < 30.0  # ns, of bins of 50 ns
    assert abs(turns / page.limits(night)[0] - 1) < 0.1


def test_a_current_is_mapped_by_the_kernel_of_a_streamfunction(example, tmp_path, capsys):
    page = example("drifter_map")
    picture = tmp_path / "map.png"

    figures = page.main(oceans=1, picture=picture, seed=3)

    mean = {name: np.mean(of) for name, of in figures.items()}
    means, proper, mapped = (mean[name] for name in ("weighted means", "a proper kernel", "cgp"))
    of_trade, limit = (
        mean[f"objective mapping, {covariance}"]
        for covariance in ("binned covariance", "covariance of cgp")
    )
    assert means < -6.0  # baselines that work
    assert proper < means - 1.0
    assert of_trade < proper
    # With a conjugated pseudo-covariance cgp would not be ahead.
    assert mapped < proper - 1.0
    assert mapped < of_trade + 0.2
    assert abs(mapped - limit) < 0.2
    # With a pseudo-covariance of the other sign all of the power would be divergent.
    assert np.all(figures["divergent"] < 0.05)
    assert 0.88 < mean["coverage, cgp"] < 0.99
    assert "samples" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(("variances", "sign"), [((2.0, 1e-12), 1), ((1e-12, 2.0), -1)])
def test_a_streamfunction_is_correlated_along_the_way_and_a_potential_across(
    example, variances, sign
):
    kernel = example("drifter_map").Current(*variances, 50.0)
    here, there = np.zeros((1, 3)), 30.0 * np.array([[np.cos(0.7), np.sin(0.7), 0.0]])

    covariance = kernel.covariance(there, here)[0, 0].numpy()
    turned = sign * np.exp(-1.4j) * kernel.pseudo_covariance(there, here)[0, 0].numpy()

    # Of the components along and across, by the derivatives of Matérn's covariance.
    a = np.sqrt(5) * 30 / 50
    np.testing.assert_allclose((covariance + turned) / 2, (1 + a) * np.exp(-a))
    np.testing.assert_allclose((covariance - turned) / 2, (1 + a - a**2) * np.exp(-a))
