"""Estimators, their drivers and what samples may have: each cell of the table of docs/pipelines.md.

`python -m tests.online.test_table` writes the table into the page.
"""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12, Rotation
from cgp.layers import Recursive
from cgp.likelihoods import StudentT
from cgp.statespace import LinearGaussian

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
BEGIN, END = "<!-- begin: drivers -->\n", "<!-- end: drivers -->\n"
T = 6
RNG = np.random.default_rng(11)
X = np.cumsum(RNG.uniform(0.2, 1.0, T))
Z = RNG.normal(size=(T, 2)) @ [1.0, 1.0j]
Z[3] = np.nan
U = RNG.normal(size=(T, 1)) + 0j
NOISE, GROUPS = RNG.uniform(0.0, 0.5, T), np.array([0, 1, 1, 0, 0, 1])
AHEAD = X[-1] + np.array([0.0, 0.4, 1.5])
EXACT = {"rtol": 0, "atol": 1e-10}  # where a likelihood and a state come to agree, to 1e-12


# --- estimators -----------------------------------------------------------------------------------


def kalman(**settings):
    inputs = {"B": [[0.7j]]} if settings.pop("inputs", False) else {}
    return cgp.KalmanFilter(
        LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.5]], **inputs), **settings
    )


def process(kind, noise_variance=0.2):
    kernel = Matern12(1.0, 3.0) * Rotation(0.1)
    if kind is cgp.RecursiveGP:
        return kind(kernel, noise_variance, capacity=8)  # more than there are samples
    return kind(kernel, noise_variance)


def per_step(estimator, **samples):
    """The steps of an estimator, one at a time: what all drivers are to return."""
    steps = []
    for t in range(T):
        own = {name: a if name == "likelihood" else a[t] for name, a in samples.items()}
        z = own.pop("z", Z[t])
        if isinstance(estimator, cgp.KalmanFilter):
            steps.append(estimator.step(z, **own))
        else:
            steps.append(estimator.step(X[t], z, **own))
    return steps


def outputs(steps):
    """The moments of steps by name, `[T]`."""
    by_name = {"innovation": [step.innovation for step in steps]}
    for name in ("predicted", "filtered"):
        for field in ("mean", "variance"):
            by_name[f"{name}_{field}"] = [getattr(getattr(s, name), field) for s in steps]
    return {name: np.ravel(a) for name, a in by_name.items()}


def assert_outputs(found, steps):
    expected = outputs(steps)
    names = [name for name in expected if name in found]
    assert "filtered_mean" in names
    for name in names:
        np.testing.assert_allclose(np.ravel(found[name]), expected[name], err_msg=name, **EXACT)


# --- drivers --------------------------------------------------------------------------------------


def made(kind, feature):
    """An estimator for samples with a feature, and their fields for `step`, `[T]`."""
    if kind == "KalmanFilter":
        given = {"inputs": feature == "inputs"}
        if feature == "likelihood":
            given["likelihood"] = StudentT(4.0)
        return kalman(**given), {"inputs": U} if feature == "inputs" else {}
    variance = [0.1, 0.3] if feature == "groups" else 0.2
    fields = {
        "inputs": {"inputs": U},
        "groups": {"noise_groups": GROUPS},
        "noise of each sample": {"noise_variance": NOISE},
        "likelihood": {"likelihood": StudentT(4.0)},
    }
    return process(getattr(cgp, kind), variance), fields.get(feature, {})


def in_a_script(kind, feature, folder):
    """A block is its steps; by a likelihood two processes agree; a forecast goes on."""
    estimator, fields = made(kind, feature)
    steps = per_step(estimator, **fields)
    if feature == "forecast":
        assert_forecast(kind, estimator)
        return
    if kind != "KalmanFilter" and feature == "likelihood":
        other = "RecursiveGP" if kind == "StateSpaceGP" else "StateSpaceGP"
        assert_outputs(outputs(per_step(made(other, feature)[0], **fields)), steps)
        return
    again, _ = made(kind, feature)
    z = Z[:, None] if kind == "KalmanFilter" else Z
    block = again.process(z, **fields) if kind == "KalmanFilter" else again.process(X, z, **fields)
    assert_outputs(
        {
            f"{name}_{field}": a
            for name in ("predicted", "filtered")
            for field, a in getattr(block, name)._asdict().items()
        },
        steps,
    )


def assert_forecast(kind, estimator):
    if kind != "KalmanFilter":
        exact = process(cgp.ExactGP)
        exact.condition(X, Z)
        for name, a in estimator.predict(AHEAD, verbose=0).items():
            np.testing.assert_allclose(a, exact.predict(AHEAD, verbose=0)[name], atol=1e-9)
        return
    before = estimator.state
    result = cgp.statespace.filter(estimator.model, Z)
    expected = cgp.statespace.forecast(estimator.model, result, 3)
    for a, b in zip(estimator.forecast(3), expected, strict=True):
        assert (a is None and b is None) or np.allclose(a, b, **EXACT)
    assert all(np.array_equal(a, b) for a, b in zip(estimator.state, before, strict=True))


def in_recursive(kind, feature, folder):
    estimator, fields = made(kind, feature)
    layer = Recursive(made(kind, feature)[0])
    if feature == "forecast":
        layer.forecast(3)
    inputs: object = (X[None, :, None], Z[None])
    if kind == "KalmanFilter":
        inputs = (Z[None, :, None], U[None]) if fields else Z[None, :, None]
    elif feature == "likelihood":
        layer(inputs, **fields)
    else:
        inputs = (X[None, :, None], Z[None], *(np.asarray(a)[None] for a in fields.values()))
    found = layer(inputs)
    if kind == "KalmanFilter":  # whose "predicted" is of the state
        found = {name: a for name, a in found.items() if not name.startswith("predicted")}
    assert_outputs(found, per_step(estimator, **fields))


def in_a_saved_model(kind, feature, folder):
    estimator, fields = made(kind, feature)
    exported, _ = made(kind, feature)
    exported.export(folder)
    loaded = tf.saved_model.load(str(folder))
    steps = []
    for t in range(T):
        sample = {"z": tf.constant(Z[t : t + 1] if kind == "KalmanFilter" else Z[t])}
        if kind != "KalmanFilter":
            sample["x"] = tf.constant(X[t])
        if feature == "groups":
            sample["noise_groups"] = tf.constant(int(GROUPS[t]))
        elif fields:
            sample |= {name: a if name == "likelihood" else a[t] for name, a in fields.items()}
        steps.append(loaded.step(**sample))
    found = {name: np.ravel([step[name] for step in steps]) for name in steps[0]}
    assert_outputs(found, per_step(estimator, **fields))
    if feature == "forecast":
        forecast = loaded.forecast(3) if kind == "KalmanFilter" else loaded.predict(AHEAD[:, None])
        expected = estimator.predict(AHEAD, verbose=0)
        np.testing.assert_allclose(forecast["mean"], expected["mean"], **EXACT)


def in_a_bank(kind, feature, folder):
    """Two keys, of which the second has the samples in a second call."""
    estimator, fields = made(kind, feature)
    bank = cgp.Bank(made(kind, feature)[0])
    x = () if kind == "KalmanFilter" else (X,)
    updates = {key: bank.update([key] * T, Z, *x, **fields) for key in ("a", "b")}
    steps = per_step(estimator, **fields)
    for step in updates.values():
        found = {"innovation": step.innovation}
        for name in ("predicted", "filtered"):
            for field, a in getattr(step, name)._asdict().items():
                found[f"{name}_{field}"] = a
        assert_outputs(found, steps)
    if feature == "forecast":
        ahead = 3 if kind == "KalmanFilter" else AHEAD
        forecast = bank.forecast(ahead, "a")
        if kind == "KalmanFilter":
            expected = estimator.forecast(3)
        else:
            expected = estimator.predict(AHEAD, verbose=0).values()
        for a, b in zip(forecast, expected, strict=True):
            assert (a is None and b is None) or np.allclose(a, b, **EXACT)
        assert bank.forecast(ahead)[0].shape[0] == 2


KINDS = ("KalmanFilter", "StateSpaceGP", "RecursiveGP")
DRIVERS = {
    "`step` and `process`": in_a_script,
    "`cgp.layers.Recursive`": in_recursive,
    "`export`": in_a_saved_model,
    "`cgp.Bank`": in_a_bank,
}
FEATURES = ("samples", "inputs", "groups", "noise of each sample", "likelihood", "forecast")

PLACES = "the inputs of a process are its places x"
NOISE_OF_FILTER = "the noise of a filter is its matrix R"
OUTPUTS = "its outputs are of the samples; set its state elsewhere"
PAIR = "series are pairs (x, z)"
ARGUMENTS = {
    "inputs": "inputs",
    "groups": "noise_groups",
    "noise of each sample": "noise_variance",
    "likelihood": "likelihood",
}


def words(kind, driver, feature):
    """What the error says, of this driver about this feature and nothing else."""
    if feature == "forecast":
        return "no attribute 'forecast'"
    if driver == "`cgp.Bank`":
        return f"^{ARGUMENTS[feature]} is given, which samples of this estimator do not have"
    if driver != "`cgp.layers.Recursive`" or feature == "likelihood":
        return f"unexpected keyword argument '{ARGUMENTS[feature]}'"
    if kind == "KalmanFilter":
        return r"series are z, or a pair \(z, inputs\), got 3 arrays"
    return r"a process takes a pair .* got \(1, 6, 1\) and \(1, 6\) and \(1, 6"


REFUSED = {  # and why
    **{
        (kind, driver, "inputs"): PLACES
        for kind in ("StateSpaceGP", "RecursiveGP")
        for driver in DRIVERS
    },
    **{
        ("KalmanFilter", driver, feature): NOISE_OF_FILTER
        for driver in DRIVERS
        for feature in ("groups", "noise of each sample")
    },
    **{
        (kind, "`cgp.layers.Recursive`", feature): PAIR
        for kind in ("StateSpaceGP", "RecursiveGP")
        for feature in ("groups", "noise of each sample", "likelihood")
    },
    **{
        (kind, "`export`", feature): "its graphs take places, observations and groups"
        for kind in ("StateSpaceGP", "RecursiveGP")
        for feature in ("noise of each sample", "likelihood")
    },
    **{(kind, "`cgp.layers.Recursive`", "forecast"): OUTPUTS for kind in KINDS},
    ("KalmanFilter", "`export`", "forecast"): "steps of missing values are a forecast",
}


def cells():
    return [(kind, driver, feature) for kind in KINDS for driver in DRIVERS for feature in FEATURES]


LONG = {cell for cell in cells() if cell[0] == "RecursiveGP" and cell[1] != "`cgp.Bank`"}


@pytest.mark.parametrize(
    ("kind", "driver", "feature"),
    [pytest.param(*c, marks=pytest.mark.long if c in LONG else ()) for c in cells()],
)
def test_does_each_cell_of_the_table_hold(kind, driver, feature, tmp_path):
    cell = kind, driver, feature
    run = DRIVERS[driver]
    if cell not in REFUSED:
        run(kind, feature, tmp_path)
        return
    if kind == "KalmanFilter" and feature in ("groups", "noise of each sample"):
        with pytest.raises((TypeError, ValueError), match=words(*cell)):
            with_noise(driver, feature, tmp_path)
        return
    errors = (TypeError, ValueError, AttributeError)
    with pytest.raises(errors, match=words(*cell)):
        run(kind, feature, tmp_path)


def with_noise(driver, feature, folder):
    """What a filter says of the noise of a sample."""
    name = "noise_groups" if feature == "groups" else "noise_variance"
    if driver == "`cgp.Bank`":
        cgp.Bank(kalman()).update(["a"], Z[:1], **{name: 1})
    elif driver == "`cgp.layers.Recursive`":
        Recursive(kalman())((Z[None, :, None], U[None], NOISE[None]))
    elif driver == "`export`":
        kalman().export(folder)
        tf.saved_model.load(str(folder)).step(z=tf.constant(Z[:1]), **{name: tf.constant(1)})
    else:
        kalman().step(Z[0], **{name: 1})


def table():
    """The table of the page, whose refusals have their reasons below it."""
    reasons = list(dict.fromkeys(REFUSED.values()))
    lines = [
        f"| | {' | '.join(FEATURES)} |",
        "| --- " * (1 + len(FEATURES)) + "|",
    ]
    for kind in KINDS:
        for driver in DRIVERS:
            marks = [
                f"no ({reasons.index(REFUSED[cell]) + 1})" if cell in REFUSED else "yes"
                for cell in ((kind, driver, feature) for feature in FEATURES)
            ]
            lines.append(f"| {kind}, {driver} | {' | '.join(marks)} |")
    notes = [f"{i}. {reason[0].upper()}{reason[1:]}." for i, reason in enumerate(reasons, start=1)]
    return "\n".join([*lines, "", *notes]) + "\n"


def test_is_the_table_of_the_page_that_of_these_tests():
    """`python -m tests.online.test_table` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


def write_table():
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    write_table()
