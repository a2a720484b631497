"""Recursive least squares, beside the textbook's recursion and beside weighted least squares."""

import keras
import numpy as np
import pytest

import cgp
from cgp.distributions import Step

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def samples(count=120, n=3, streams=None, seed=0):
    rng = np.random.default_rng(seed)
    axes = (count,) if streams is None else (streams, count)
    h = rng.normal(size=(*axes, n)) + 1j * rng.normal(size=(*axes, n))
    w = rng.normal(size=n) + 1j * rng.normal(size=n)
    noise = rng.normal(size=axes) + 1j * rng.normal(size=axes)
    return h @ w + 0.3 * noise, h


def textbook(z, h, forgetting, initial_variance):
    """Haykin, *Adaptive Filter Theory*, 2002, table 9.1, whose `wᴴ u` is `h w` here."""
    n = h.shape[-1]
    w, P, errors = np.zeros(n, complex), initial_variance * np.eye(n, dtype=complex), []
    for d, row in zip(z, h, strict=True):
        u = row  # w here is the conjugate of the book's
        gain = P @ u.conj() / (forgetting + u @ P @ u.conj())
        error = d - u @ w
        w = w + gain * error
        P = (P - np.outer(gain, u @ P)) / forgetting
        errors.append(error)
    return w, P, np.array(errors)


def weighted_least_squares(z, h, forgetting, initial_variance):
    """The minimum of the weighted squares, and of the term of the initial variance, directly."""
    weights = forgetting ** np.arange(len(z))[::-1]
    hermitian = h.conj().T * weights
    prior = forgetting ** len(z) / initial_variance * np.eye(h.shape[-1])
    return np.linalg.solve(hermitian @ h + prior, hermitian @ z)


@pytest.mark.parametrize("has_core", [True, False], ids=["core", "tensorflow"])
@pytest.mark.parametrize("forgetting", [1.0, 0.95])
def test_are_steps_the_recursion_of_the_textbook(forgetting, run):
    z, h = samples(60)
    rls = cgp.RecursiveLeastSquares(3, forgetting, initial_variance=2.0)

    def steps():
        return Step.stack([rls.step(*sample) for sample in zip(z, h, strict=True)], axis=-1)

    errors = run(steps).innovation
    w, P, expected = textbook(z, h, forgetting, 2.0)
    np.testing.assert_allclose(rls.coefficients, w, **CLOSE)
    np.testing.assert_allclose(errors, expected, **CLOSE)
    chol = rls.state.chol
    # Of the state predicted for the next sample; the book divides by λ when that has come.
    np.testing.assert_allclose(chol @ chol.conj().T, P / forgetting, **CLOSE)
    np.testing.assert_allclose(
        rls.coefficients, weighted_least_squares(z, h, forgetting, 2.0), **CLOSE
    )


def test_are_streams_and_blocks_the_same():
    z, h = samples(streams=4)
    several, block = (cgp.RecursiveLeastSquares(3, 0.98) for _ in range(2))
    steps = Step.stack([several.step(z[:, t], h[:, t]) for t in range(z.shape[1])], axis=-1)
    at_once = block.process(z, h)
    assert at_once.innovation.shape == z.shape
    assert at_once.filtered.mean.shape == (*z.shape, 3)
    np.testing.assert_allclose(at_once.innovation, steps.innovation, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(block.coefficients, several.coefficients, rtol=1e-9, atol=1e-9)
    for b in range(4):
        w, _, _ = textbook(z[b], h[b], 0.98, 1e4)
        np.testing.assert_allclose(several.coefficients[b], w, rtol=1e-9, atol=1e-9)


def test_is_a_step_what_it_says():
    """The variance of a prediction is `R + h P hᴴ`."""
    z, h = samples()
    rls = cgp.RecursiveLeastSquares(3, 0.9, initial_variance=2.0, noise_variance=0.5)
    for sample in zip(z[:-1], h[:-1], strict=True):
        rls.step(*sample)
    mean, chol = rls.state
    step = rls.step(np.nan, h[-1])
    np.testing.assert_allclose(step.predicted.mean, h[-1] @ mean, **CLOSE)
    rows = h[-1] @ chol
    np.testing.assert_allclose(step.predicted.variance, 0.5 + np.vdot(rows, rows).real, **CLOSE)
    assert np.isnan(step.innovation)
    np.testing.assert_array_equal(rls.coefficients, mean)
    np.testing.assert_allclose(rls.state.chol, chol / np.sqrt(0.9), **CLOSE)


def test_runs_it_wherever_cells_run(tmp_path):
    z, h = samples(count=20, streams=2)
    rls = cgp.RecursiveLeastSquares(3, 0.97)
    by_key = cgp.Bank(rls)
    outputs = rls((z, h))  # series, which leave the state alone
    for t in range(10):
        step = rls.step(z[:, t], h[:, t])
        of_key = by_key.update(["a", "b"], z[:, t], inputs=h[:, t])
        np.testing.assert_allclose(of_key.innovation, step.innovation, **CLOSE)
        np.testing.assert_allclose(outputs["innovation"][:, t], step.innovation, rtol=1e-9)
    rls.save(tmp_path / "rls.keras")
    loaded = keras.models.load_model(tmp_path / "rls.keras")
    for t in range(10, 20):
        np.testing.assert_array_equal(
            loaded.step(z[:, t], h[:, t]).innovation, rls.step(z[:, t], h[:, t]).innovation
        )


def test_does_a_gate_skip_an_outlier():
    z, h = samples()
    rls, missing = cgp.RecursiveLeastSquares(3), cgp.RecursiveLeastSquares(3)
    for t in range(40):
        is_outlier = t == 30
        step = rls.step(z[t] + 1e3 * is_outlier, h[t], gate=0.9999)
        missing.step(np.nan if is_outlier else z[t], h[t])
        assert step.outside_gate == is_outlier
    np.testing.assert_array_equal(rls.coefficients, missing.coefficients)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"taps": 0}, "taps must be a whole number"),
        ({"taps": 2.5}, "taps must be a whole number"),
        ({"taps": 2, "forgetting": 0.0}, "forgetting must be positive"),
        ({"taps": 2, "forgetting": 1.1}, "forgetting must be above 0 and at most 1"),
        ({"taps": 2, "initial_variance": 0.0}, "initial_variance must be positive"),
        ({"taps": 2, "noise_variance": np.inf}, "noise_variance must be positive and finite"),
    ],
)
def test_are_impossible_arguments_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        cgp.RecursiveLeastSquares(**arguments)


def test_are_regressors_that_do_not_fit_refused():
    rls = cgp.RecursiveLeastSquares(3)
    with pytest.raises(ValueError, match=r"must be \[3\] beside z, got shape \(2,\)"):
        rls.step(1j, np.ones(2))
    with pytest.raises(ValueError, match="regressors is missing: a sample has z, regressors"):
        rls.step(1j, None)
    with pytest.raises(ValueError, match=r"regressors must be \[3\], or .* got shape \(\)"):
        rls.step(1j, 2.0)
    with pytest.raises(ValueError, match=r"regressors must be \[T, 3\], or .* got shape \(3,\)"):
        rls.process(np.ones(4), np.ones(3))
    for arguments in ({"taps": 2, "forgetting": "a"}, {"taps": 2, "noise_variance": 1j}):
        with pytest.raises(TypeError, match="must be a real number"):
            cgp.RecursiveLeastSquares(**arguments)
    for taps in (True, np.nan, 1.5):
        with pytest.raises(ValueError, match="taps must be a whole number"):
            cgp.RecursiveLeastSquares(taps)
