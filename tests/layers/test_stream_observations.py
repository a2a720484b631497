"""What one observation of streams may be, in `KalmanFilter.step` and in `statespace.step` alike."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace

MODEL = statespace.LinearGaussian([[0.9 + 0j]], [[1.0]], [[1.0]], [[0.5]], B=[[1.0]])
_MADE = {}


def steps(model, streams=None):
    """Both roads from the start of a model, as functions of an observation."""
    key = id(model), streams
    if key not in _MADE:
        _MADE[key] = cgp.KalmanFilter(model)
    kf = _MADE[key]

    def online(z, **kwargs):
        kf.reset()
        return kf.step(z, **kwargs)

    return online, lambda z, **kwargs: statespace.step(model, None, z, **kwargs)[1]


def test_are_masked_inputs_refused():
    masked = np.ma.array([5.0 + 0j], mask=[True])
    for step in steps(MODEL):
        with pytest.raises(ValueError, match="inputs has masked elements"):
            step(1j, inputs=masked)
        step(1j, inputs=np.ma.array([5.0 + 0j]))
