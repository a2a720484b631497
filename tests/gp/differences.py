"""Gradients by the variables of a model, against central differences."""

import numpy as np


def assert_are_differences(objective, variables, gradients, h, each=False, **tolerance):
    """Compares gradients in a random direction of all variables or, if `each`, by each element."""
    start = [variable.numpy() for variable in variables]
    for steps in _units(start) if each else [_direction(start)]:
        sides = []
        for sign in (1.0, -1.0):
            for variable, at, step in zip(variables, start, steps, strict=True):
                variable.assign(at + sign * h * step)
            sides.append(float(objective()))
        for variable, at in zip(variables, start, strict=True):
            variable.assign(at)
        slope = sum(np.sum(g.numpy() * step) for g, step in zip(gradients, steps, strict=True))
        np.testing.assert_allclose(slope, (sides[0] - sides[1]) / (2 * h), **tolerance)


def _direction(start):
    rng = np.random.default_rng(0)
    return [rng.normal(size=array.shape) for array in start]


def _units(start):
    for i, array in enumerate(start):
        for index in np.ndindex(*array.shape):
            steps = [np.zeros_like(a) for a in start]
            steps[i][index] = 1.0
            yield steps
