"""Examples of signals that they draw themselves, or of one measurement."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp

pytestmark = pytest.mark.long


def test_s_parameters_are_interpolated_as_well_as_by_the_best_of_the_trade(
    example, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("skrf")
    s_parameters = example("s_parameters")
    monkeypatch.setattr(s_parameters, "RATIONAL", {"2 pairs": 2, "6 poles": 6})
    picture = tmp_path / "antenna.png"

    plain, behind = s_parameters.main(
        picture, (s_parameters.ANTENNA, s_parameters.LINE), every=(4,)
    )

    assert plain.errors["spline"] == pytest.approx(-30.75, abs=0.01)
    assert plain.errors["vector fitting"] == pytest.approx(-28.5, abs=0.5)
    assert plain.errors["two real GPs"] < -30.0  # a baseline that works
    assert plain.behind < 0.5
    # A delay costs cgp nothing, others much.
    assert behind.errors["cgp"] == pytest.approx(plain.errors["cgp"], abs=1.0)
    assert behind.errors["cgp"] < behind.errors["two real GPs"] - 1.5
    assert behind.errors["cgp"] < behind.errors["spline"] - 10.0
    assert min(plain.inside, behind.inside) > 0.85
    assert picture.stat().st_size > 10_000
    assert "within 0.5 dB of it in 2" in capsys.readouterr().out


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
    for name in ("GP, budget", "GP, inducing points"):
        assert mse[name] < mse["best linear"] - 3.0
        assert ser[name] < 0.75 * ser["RLS"]
    assert mse["GP, told all"] < mse["GP, inducing points"] + 0.05
    assert all(0 < error < 1.0 for values in figures.values() for _, error in values.values())
    assert picture.stat().st_size > 10_000
    assert "symbol error rate" in capsys.readouterr().out


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


def test_the_elliptical_process_is_learned_best_by_its_exact_likelihood(
    example, tmp_path, monkeypatch, capsys
):
    page = example("elliptical_pole")
    monkeypatch.setattr(page, "CLAIMS", 3)
    picture = tmp_path / "pole.png"

    figures = page.main(6, picture)

    truth = np.abs([*page.TRUTH.values()])
    # What a thousand series have: errors in percent of the truth, and Whittle's bias of A.
    expected = np.array([17.5, 0.51, 1.0, 1.4, 2.4])
    for way in (page.EXACT, page.CORRECTED):
        assert np.all(100 * figures[way]["error"] / truth < 2 * expected)
        assert np.all(np.abs(figures[way]["bias"]) < 3.5)
    ratio = figures[page.EXACT]["error"] / figures[page.WHITTLE]["error"]
    assert np.all(ratio < 1.2)
    assert figures[page.EXACT]["mean"][4] < figures[page.WHITTLE]["mean"][4]
    assert picture.stat().st_size > 10_000
    assert "over Whittle" in capsys.readouterr().out


def test_the_baseline_of_the_elliptical_process_works(example):
    page = example("elliptical_pole")
    z = page.simulated(1)
    assert float(page.start_of(z[0]).frequency) == pytest.approx(0.1293, abs=0.01)
    np.testing.assert_allclose(page.by_whittle(z)[0], [*page.TRUTH.values()], rtol=0.4)


def test_a_carrier_is_tracked_as_well_as_by_particles(example, tmp_path, monkeypatch, capsys):
    carrier_tracking = example("carrier_tracking")
    for name, value in {"SERIES": 60, "LENGTH": 160, "COMPARED": 16, "PARTICLES": 4000}.items():
        monkeypatch.setattr(carrier_tracking, name, value)
    rules = {name: carrier_tracking.RULES[name] for name in ("extended", "iterated")}
    monkeypatch.setattr(carrier_tracking, "RULES", rules)
    picture = tmp_path / "carrier.png"

    scores, behind = carrier_tracking.main(levels=(6.0,), picture=picture)

    assert behind["iterated"] < 0.5
    assert behind["extended"] > behind["iterated"] + 0.4
    assert behind["phase-locked loop"] < 2.0  # a baseline that works
    bound = np.mean(carrier_tracking.cramer_rao_bound(6.0)[carrier_tracking.SETTLED :])
    assert bound < scores[6.0]["iterated"].error < 2.0 * bound
    assert picture.stat().st_size > 10_000
    assert "behind 4000 particles" in capsys.readouterr().out


def test_signs_track_a_slow_channel_as_well_as_particles_say(
    example, tmp_path, monkeypatch, capsys
):
    page = example("one_bit_channel")
    small = {"USERS": 1, "ANTENNAS": 1, "PILOTS": 1, "SERIES": 60, "BLOCKS": 20, "PARTICLES": 3000}
    for name, value in small.items():
        monkeypatch.setattr(page, name, value)
    picture = tmp_path / "channel.png"

    found, behind = page.main(levels=(10.0,), correlations=(0.988,), picture=picture)

    scores = found[0.988, 10.0]
    errors = {name: page.error(of.squares) for name, of in scores.items()}
    # Baselines that work: 1 − (2/π) ρ/(1 + ρ) of a single sign, and the Kalman filter's Riccati
    # equation, -14.1 dB.
    single = 10 * np.log10(1 - (2 / np.pi) * 10 / 11)
    assert errors["single shot"] == pytest.approx(single, abs=0.6)
    assert errors["unquantised"] == pytest.approx(-14.1, abs=0.6)
    assert errors["OneBit"] < errors["Bussgang filter"] - 0.5
    assert errors["OneBit, smoothed"] < errors["OneBit"] - 0.3
    assert abs(behind["OneBit"]) < 0.3
    assert behind["Bussgang filter"] > behind["OneBit"] + 0.3
    assert scores["OneBit"].honesty < 1.5 < scores["Bussgang filter"].honesty
    assert picture.stat().st_size > 10_000
    assert "behind 3000 particles" in capsys.readouterr().out


def test_the_bussgang_baselines_of_the_one_bit_channel_are_those_of_theory(example):
    page = example("one_bit_channel")
    model = page.model_of(0.9, 5.0)
    h, y = (a.numpy() for a in page.statespace.sample(model, 1, (50_000,), seed=1))
    z = page.signs(y)
    matrix, noise, quantised = page.bussgang(5.0)

    c = page.covariance()
    np.testing.assert_allclose(z[:, 0].T @ z[:, 0].conj() / len(z), quantised, atol=0.03)
    np.testing.assert_allclose(z[:, 0].T @ h[:, 0].conj() / len(z), matrix @ c, atol=0.03)
    assert np.abs(c.imag).max() > 0.3  # a conjugation that is missing would show
    # The first block of the Bussgang filter has no past.
    first = page.filtered(model.replace(H=matrix, R=noise), z[:5])
    alone = page.single_shot(5.0, z[:5])
    np.testing.assert_allclose(first.mean, alone.mean, atol=1e-10)
    np.testing.assert_allclose(first.variance, alone.variance, atol=1e-10)
    likewise = np.mean(np.abs(page.single_shot(5.0, z).mean - h) ** 2)
    assert likewise == pytest.approx(alone.variance.mean(), rel=0.02)


def test_a_worker_that_is_killed_changes_no_bit_of_a_fit(example, capsys):
    pytest.importorskip("dask.distributed")
    dask_fit = example("dask_fit")

    figures = dask_fit.main(drifters=4, alone=1)

    assert dask_fit.same(figures["there"], figures["failing"])
    here, there = figures["here"], figures["there"]
    assert there[1][-1] == pytest.approx(here[1][-1], rel=1e-10)
    for name, value in here[0].items():
        assert there[0][name] == pytest.approx(value, rel=1e-6)
        assert value == pytest.approx(figures["truth"][name], rel=1.0)
    assert "killed or not, the same bit for bit: True" in capsys.readouterr().out


def test_a_filter_runs_where_cgp_is_not_and_finds_the_change(example, tmp_path, capsys):
    deploy = example("deploy")
    picture = tmp_path / "deploy.png"

    figures = deploy.main(length=4000, picture=picture)

    assert figures["difference"] < 1e-12
    assert 0 < figures["alarm"] < 1500
    assert np.all(figures["level"][deploy.WINDOW : 2000] < deploy.ALARM)
    assert picture.stat().st_size > 10_000
    assert "TensorFlow alone" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark runs on Java")
def test_a_spark_job_that_is_killed_counts_every_sample_once(example, capsys):
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    spark_stream = example("spark_stream")

    figures = spark_stream.main(files=3, rows=2000, sensors=300)

    assert figures["once"]
    assert figures["difference"] == 0.0
    assert 1 <= figures["killed after"] < 3
    assert "filters that begin again" in capsys.readouterr().out


def test_predictions_averaged_over_hyperparameters_cover_what_they_say(
    example, tmp_path, monkeypatch, capsys
):
    page = example("posterior_of_parameters")
    monkeypatch.setattr(page, "DRAWS", 60)
    monkeypatch.setattr(page, "WARMUP", 100)
    picture = tmp_path / "draws.png"

    scores = {way: mean for way, (mean, _) in page.main(picture, 5).items()}

    assert scores[page.AVERAGED].inside > scores[page.FIT].inside + 0.02
    assert scores[page.AVERAGED].density > scores[page.FIT].density
    assert scores[page.AVERAGED].deviation > scores[page.FIT].deviation
    assert scores[page.TRUTH].density > scores[page.AVERAGED].density
    assert scores[page.TRUTH].inside > 0.9  # the scores themselves are right
    assert picture.stat().st_size > 10_000
    assert "nats a sample" in capsys.readouterr().out


def test_an_ofdm_receiver_learns_the_statistics_of_its_channel(example, tmp_path, monkeypatch):
    page = example("ofdm_receiver")
    monkeypatch.setattr(page, "EPOCHS", 25)

    found = page.main(["TDL-C"], seeds=1, tested=40, picture=tmp_path / "ofdm.png")

    needed = found["TDL-C", 0]
    true = needed["LMMSE, true statistics"]
    assert needed["the channel itself"] < true < 26.0
    assert needed["learned kernel"] < true + 0.2
    assert needed["learned kernel"] < needed["LMMSE, estimated statistics"]
    assert needed["linear interpolation"] > true + 3.0
    assert (tmp_path / "ofdm.png").stat().st_size > 10_000


def test_an_ofdm_receiver_is_saved_and_exported_as_a_whole(example, tmp_path, monkeypatch):
    page = example("ofdm_receiver")
    monkeypatch.setattr(page, "DELAYS", page.DELAYS[::8])  # each is several operations to trace
    rng = np.random.default_rng(1)
    powers = rng.uniform(size=len(page.DELAYS)) / len(page.DELAYS)
    network = page.receiver(page.DelayDoppler(powers, 0.2))
    pilots, received, *_ = page.sent_and_received("TDL-A", 3, 20.0, rng)
    given = [pilots, received, np.full((3, 1), 0.01)]
    expected = network.predict(given, verbose=0)

    network.save(tmp_path / "receiver.keras")
    again = cgp.load_model(tmp_path / "receiver.keras")
    network.export(tmp_path / "receiver", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "receiver")

    np.testing.assert_allclose(again.predict(given, verbose=0), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(loaded.serve(given), expected, rtol=1e-9, atol=1e-9)


def test_antenna_gains_are_smoothed_better_than_after_fringe_fits(
    example, tmp_path, monkeypatch, capsys
):
    page = example("gain_smoothing")
    monkeypatch.setattr(page, "CGP", {page.OWN: page.of_log_gain})
    picture = tmp_path / "gains.png"

    errors, shares = page.main((5,), antennas=1, picture=picture)

    of = {name: values[0] for name, values in errors.items()}
    # Baselines that work, in their order: noise alone is at -17 dB.
    assert of["solution intervals"][0] < -19.0
    assert of["Gaussian windows"][0] < of["solution intervals"][0] - 1.0
    assert of[page.BEST][0] < of["Gaussian windows"][0] - 2.0
    assert np.all(of[page.OWN][:2] < of[page.BEST][:2] - 0.5)
    assert of[page.OWN][1] < of[page.OWN][0] + 2.0  # flagged cells are known as well
    assert np.all(np.array(shares[page.OWN])[0, :2, 1] > 0.85)
    assert picture.stat().st_size > 10_000
    assert "ahead of fringe fits first in 1, 1" in capsys.readouterr().out


def test_gains_and_the_covariance_of_their_phases_are_what_the_page_says(example):
    page = example("gain_smoothing")
    rng = np.random.default_rng(7)
    apart, coherence = 10, 100.0  # 100 s, after which the phase is 1 rad away
    phases = np.array([page.turbulence(coherence, 1.7, rng) for _ in range(500)])
    structure = np.mean((phases[:, apart:] - phases[:, :-apart]) ** 2)
    assert structure == pytest.approx(1.0, rel=0.15)

    kernel = page.Phase(2.0, 50.0, power=-1.0, exponent=5 / 3)
    config = keras.saving.serialize_keras_object(kernel)
    kernel = keras.saving.deserialize_keras_object(config)
    x = np.array([[0.0, page.CENTRE], [50.0, 2 * page.CENTRE]])
    covariance, pseudo = kernel.covariance(x).numpy(), kernel.pseudo_covariance(x).numpy()
    np.testing.assert_allclose(covariance[0, 1], 2.0 / 2 * np.exp(-1.0))
    np.testing.assert_allclose(pseudo, -covariance)

    # A delay turns clockwise over frequency; fringes find it, and the echo behind it.
    antenna = page.simulated(rng)
    z, turn = page.log_gain(antenna)
    there = ~antenna.flagged
    np.testing.assert_allclose((np.exp(z) * turn)[there], antenna.solved[there])
    assert np.ptp(z[there].imag) < 2 * np.pi
    strong = 1 + 0.2 * np.exp(-2e-3j * np.pi * 150.0 * page.CHANNELS)
    clear = page.strongest_echo(np.log(strong) * np.ones_like(z), 1e4 * there)
    assert clear == pytest.approx(150.0, abs=3.0)


def test_velocities_beside_places_carry_a_track_across_a_gap(
    example, tmp_path, monkeypatch, capsys
):
    doppler_beside_range = example("doppler_beside_range")
    monkeypatch.setattr(doppler_beside_range, "TRACKS", 8)
    monkeypatch.setattr(doppler_beside_range, "INTENSITIES", np.array([0.1, 0.2]))
    picture = tmp_path / "track.png"

    figures = doppler_beside_range.main(picture)

    in_gap = {name: of[1].mean() for name, of in figures.items() if name != "coverage"}
    assert in_gap["places alone"] > 30.0
    assert 0.5 < in_gap["Kalman, best"] < 1.0  # a baseline that works
    assert in_gap["dead reckoning"] < 1.3
    assert in_gap["both"] < 1.05 * in_gap["Kalman, best"]
    assert 0.9 < figures["coverage"] < 0.98
    assert picture.stat().st_size > 10_000
    assert "learned noise" in capsys.readouterr().out
