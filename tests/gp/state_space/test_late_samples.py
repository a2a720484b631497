"""Samples of a process that come late, and its signal at earlier samples given what came since."""

import numpy as np
import pytest

import cgp
from cgp.gp.state_space.history import History

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
kinds = pytest.mark.parametrize("kind", ["proper", "improper"])


def made(kind="proper", horizon=0):
    kernel = cgp.kernels.Matern32(2.0, 3.0) * cgp.kernels.Rotation(frequency=0.1)
    if kind == "improper":
        kernel = cgp.kernels.WidelyLinear(kernel, coefficient=0.3 + 0.1j)
    return cgp.StateSpaceGP(kernel, noise_variance=0.2, horizon=horizon)


def samples(count=16, streams=None, seed=0):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.2, 1.5, count))
    axes = (count,) if streams is None else (streams, count)
    z = rng.normal(size=axes) + 1j * rng.normal(size=axes)
    z[..., 4] = np.nan
    return x, z


def arrivals(count, most, seed=1):
    """An order of arrival in which no sample is overtaken by more than `most` later ones."""
    delays = np.random.default_rng(seed).integers(0, most, count)
    order = np.argsort(np.arange(count) + delays, kind="stable")
    late = [sum(order[:i] > order[i]) for i in range(count)]
    assert 0 < max(late) <= most
    return order


def assert_same_signal(a, b, x):
    for name in ("mean", "variance", "pseudo_variance"):
        np.testing.assert_allclose(a.predict(x)[name], b.predict(x)[name], **CLOSE)


@pytest.mark.parametrize("streams", [None, 3])
@kinds
def test_is_a_late_sample_as_one_in_order(kind, streams):
    x, z = samples(streams=streams)
    late, in_order, exact = made(kind, horizon=4), made(kind), made(kind)
    for i in arrivals(len(x), 4):
        step = late.step(x[i], z[..., i])
        assert step.innovation.shape == z.shape[:-1]
    for i in range(len(x)):
        in_order.step(x[i], z[..., i])
    exact.condition(x, z)
    ahead = x[-1] + np.array([0.5, 2.0])
    assert_same_signal(late, in_order, ahead)
    assert_same_signal(late, exact, np.concatenate([x, ahead, x[:3] + 0.1]))
    later = late.step(x[-1] + 1.0, z[..., 0]), in_order.step(x[-1] + 1.0, z[..., 0])
    np.testing.assert_allclose(later[0].predicted.mean, later[1].predicted.mean, **CLOSE)
    np.testing.assert_allclose(later[0].nis, later[1].nis, **CLOSE)


def test_does_a_late_step_predict_by_the_samples_before_it():
    x, z = samples()
    late, in_order = made(horizon=3), made()
    for i in (*range(6), 7, 8):
        late.step(x[i], z[i])
    for i in range(6):
        in_order.step(x[i], z[i])
    a, b = late.step(x[6], z[6]), in_order.step(x[6], z[6])
    np.testing.assert_allclose(a.predicted.mean, b.predicted.mean, **CLOSE)
    np.testing.assert_allclose(a.filtered.variance, b.filtered.variance, **CLOSE)


def test_do_late_samples_keep_their_noise():
    x, z = samples()
    late, exact = made(horizon=4), made()
    noise = np.random.default_rng(3).uniform(0.0, 2.0, len(x))
    for i in arrivals(len(x), 4):
        late.step(x[i], z[i], noise_variance=noise[i])
    exact.condition(x, z, noise_variance=noise)
    assert_same_signal(late, exact, np.append(x, x[-1] + 1.0))


@pytest.mark.parametrize("streams", [None, 3])
@kinds
def test_is_a_lagged_signal_the_posterior_of_all_samples(kind, streams):
    x, z = samples(streams=streams)
    lagged, exact = made(kind, horizon=4), made(kind)
    for i in range(len(x)):
        lagged.step(x[i], z[..., i])
        if i not in (0, 2, 9):
            continue
        exact.condition(x[: i + 1], z[..., : i + 1])
        for k in range(min(i, 4) + 1):
            moments = lagged.lag(k)
            expected = exact.predict(x[i - k : i - k + 1])
            for name, a in moments._asdict().items():
                np.testing.assert_allclose(a, expected[name][..., 0], **CLOSE)


def test_do_long_streams_drop_what_is_older_and_still_take_late_samples(monkeypatch):
    """Samples drop out of the data, and the state before the rest must know the late ones."""
    monkeypatch.setattr(History, "kept", 40)
    count = 150
    rng = np.random.default_rng(5)
    x = np.cumsum(rng.uniform(0.1, 1.0, count))
    z = rng.normal(size=count) + 1j * rng.normal(size=count)
    late, in_order = made(horizon=5), made()
    for i in arrivals(count, 5):
        late.step(x[i], z[i])
    for i in range(count):
        in_order.step(x[i], z[i])
    with pytest.raises(ValueError, match="latest samples alone"):
        late.stored_data()
    assert_same_signal(late, in_order, np.array([x[-30] + 0.01, x[-1], x[-1] + 1.0]))


def test_does_a_block_leave_its_last_samples():
    x, z = samples()
    late, exact = made(horizon=3), made()
    early = [i for i in range(len(x)) if i != len(x) - 3]
    late.process(x[early], z[early])
    late.step(x[-3], z[-3])
    exact.condition(x, z)
    assert_same_signal(late, exact, np.append(x, x[-1] + 1.0))
    np.testing.assert_allclose(late.lag(2).mean, exact.predict(x[-3:])["mean"][0], **CLOSE)


def test_is_a_sample_beyond_the_horizon_refused():
    x, z = samples()
    gp = made(horizon=2)
    with pytest.raises(ValueError, match="steps reaches 0 samples"):
        gp.lag(0)
    for i in range(6):
        gp.step(x[i], z[i])
    before = gp.predict([x[5] + 1.0])["mean"]
    with pytest.raises(
        ValueError, match="beyond the latest samples that are kept, 3 of a horizon of 2"
    ):
        gp.step(x[2] - 0.01, z[0])
    with pytest.raises(ValueError, match="gate is for samples in order"):
        gp.step(x[4], z[0], gate=0.99)
    with pytest.raises(ValueError, match="x must not go back"):
        gp.process(x[3:5], z[3:5])
    with pytest.raises(ValueError, match=r"steps reaches 3 samples .* a horizon of 3, State"):
        gp.lag(3)
    np.testing.assert_array_equal(gp.predict([x[5] + 1.0])["mean"], before)
    without = made()
    without.step(1.0, 1j)
    with pytest.raises(ValueError, match=r"x must not go back: got 0\.5 after 1"):
        without.step(0.5, 1j)


def test_is_a_horizon_part_of_the_config(tmp_path):
    x, z = samples()
    gp = made(horizon=3)
    for i in range(4):
        gp.step(x[i], z[i])
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras")
    assert loaded.horizon == 3
    with pytest.raises(ValueError, match="that are kept, 0 of a"):  # the steps are not saved
        loaded.step(x[2], 1j)
    with pytest.raises(ValueError, match="forgotten when hyperparameters changed or a file"):
        loaded.lag(1)
    loaded.step(x[4], z[4])
    loaded.step(0.5 * (x[3] + x[4]), 1j)
