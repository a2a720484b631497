"""The mixture of compared models beside the best of them in hindsight, in eight kinds of data."""

import warnings

import numpy as np
import pytest

import cgp
from cgp.gp.means import Exponentials, Rational
from cgp.kernels import (
    RBF,
    Constant,
    ExponentialDelays,
    Matern12,
    Matern32,
    Matern52,
    Rotation,
    Zero,
)

# --- places, the signal there, the deviation of its noise, and models -----------------------------


def normals(rng, *shape):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2.0)


def wide_resonances(rng):
    f = np.linspace(0.0, 1.0, 401)
    centers, widths = rng.uniform(0.05, 0.95, 4), rng.uniform(0.01, 0.05, 4)
    signal = 0.3 + (widths * normals(rng, 4) / (1j * (f[:, None] - centers) + widths)).sum(axis=1)
    models = {
        "3 poles": cgp.ExactGP(Zero(), mean=Rational(3)),
        "4 poles": cgp.ExactGP(Zero(), mean=Rational(4)),
        "process": cgp.ExactGP(Matern52() * Rotation()),
    }
    return f, signal, 0.02, models


def narrow_resonances(rng):
    """Modes from zero, narrower than the spacing, over a smooth background."""
    f = np.linspace(0.0, 1.0, 401)
    centers, widths = rng.uniform(0.1, 0.9, 3), 0.01 * 10.0 ** rng.uniform(-1.5, 0.0, 3)
    terms = centers * rng.normal(size=3) / (centers**2 - f[:, None] ** 2 + 2j * widths * f[:, None])
    signal = 0.02 * terms.sum(axis=1) + 0.2 * np.exp(-2j * f)
    models = {
        "poles": cgp.ExactGP(Zero(), mean=Rational(3)),
        "poles and process": cgp.ExactGP(RBF(), mean=Rational(3)),
        "process": cgp.ExactGP(Matern32() * Rotation()),
        "rough process": cgp.ExactGP(Matern12() * Rotation()),
    }
    return f, signal, 0.01, models


def echoes(rng):
    f, delays = np.linspace(0.0, 20.0, 401), rng.exponential(0.5, 12)
    signal = np.exp(-2j * np.pi * f[:, None] * delays) @ normals(rng, 12)
    models = {
        "smooth": cgp.ExactGP(RBF() * Rotation()),
        "rough": cgp.ExactGP(Matern12() * Rotation()),
        "profile": cgp.ExactGP(ExponentialDelays()),
    }
    return f, signal, 0.3, models


def drifting_carrier(rng):
    t, kernel = np.linspace(0.0, 100.0, 401), Matern32(1.0, 6.0) * Rotation(0.1)
    signal = cgp.StateSpaceGP(kernel, 1e-9).sample(t, seed=int(rng.integers(1000)))[0]
    models = {
        "rough": cgp.StateSpaceGP(Matern12() * Rotation()),
        "right": cgp.StateSpaceGP(Matern32() * Rotation()),
        "smooth": cgp.StateSpaceGP(Matern52() * Rotation()),
        "real": cgp.StateSpaceGP(Matern32()),
    }
    return t, signal, 0.3, models


def tones(rng):
    t = np.linspace(0.0, 60.0, 401)
    signal = np.exp(2j * np.pi * t[:, None] * rng.uniform(-0.4, 0.4, 2)) @ normals(rng, 2) + 1.0
    models = {
        "one": cgp.ExactGP(Matern32() * Rotation()),
        "two and a constant": cgp.ExactGP(RBF() * Rotation() + RBF() * Rotation() + Constant()),
        "exponentials": cgp.ExactGP(Zero(), mean=Exponentials(3)),
    }
    return t, signal, 0.5, models


def decays(rng):
    t = np.linspace(0.0, 30.0, 401)
    poles = -rng.uniform(0.05, 0.3, 3) + 2j * np.pi * rng.uniform(-0.8, 0.8, 3)
    models = {
        "process": cgp.ExactGP(Matern32() * Rotation()),
        "2 exponentials": cgp.ExactGP(Zero(), mean=Exponentials(2)),
        "3 exponentials": cgp.ExactGP(Zero(), mean=Exponentials(3)),
    }
    return t, np.exp(t[:, None] * poles) @ normals(rng, 3), 0.1, models


def impedance(rng):
    """Over decades of frequency, in noise of a hundredth of the modulus."""
    decade = np.linspace(0.0, 5.0, 401)
    times = 10.0 ** rng.uniform(-4.0, -1.0, 3)
    s = 1j * 10.0 ** decade[:, None]
    signal = 1.0 + (1.0 / (1.0 + s * times)) @ rng.uniform(1.0, 30.0, 3) + 20.0 / np.sqrt(s[:, 0])
    models = {
        "smooth": cgp.ExactGP(RBF(), mean=cgp.means.Constant()),
        "rough": cgp.ExactGP(Matern32(), mean=cgp.means.Constant()),
        "trend": cgp.ExactGP(
            Matern52(), mean=cgp.means.Polynomial(3, marginalized=True, center=2.5, scale=2.5)
        ),
    }
    return decade, signal, 0.01 * np.abs(signal), models


def outliers(rng):
    t, signal, _, models = drifting_carrier(rng)
    return t, signal, np.where(rng.uniform(size=len(t)) < 0.05, 1.5, 0.2), models


KINDS = [
    wide_resonances, narrow_resonances, echoes, drifting_carrier,
    tones, decays, impedance, outliers,
]  # fmt: skip


def decibels_behind(kind, seed):
    """How far the mixture, and `best`, are behind the best model of hindsight between samples."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    x, signal, deviation, models = kind(rng)
    z = (signal + deviation * normals(rng, len(x)))[::4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of models that are wrong on purpose
        result = cgp.compare(models, x[::4], z, restarts=2, verbose=0)
    between = np.arange(len(x)) % 4 != 0

    def error_db(prediction):
        return cgp.metrics.normalized_error_db(signal[between], prediction["mean"][between])

    errors = {name: error_db(model.predict(x)) for name, model in models.items()}
    least = min(errors.values())
    return error_db(result.predict(x)) - least, errors[result.best] - least


@pytest.mark.long
def test_is_the_mixture_near_the_best_model_of_hindsight():
    behind = np.array([decibels_behind(kind, seed) for kind in KINDS for seed in range(2)])
    mixture, best = behind.T
    # In 104 problems of other seeds .90, 1.3, .06 and .22, by stacking .81, 2.5 and .20.
    assert np.mean(mixture < 0.3) >= 0.8
    assert mixture.max() < 2.0
    assert mixture.mean() < 0.15
    assert best.mean() < 0.5
