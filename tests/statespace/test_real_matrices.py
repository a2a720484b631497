"""What a complex series, a zero covariance and an array of objects are told, and that it helps."""

from decimal import Decimal

import numpy as np
import pytest

import cgp
from cgp import statespace

REAL = statespace.LinearGaussian([[0.99]], [[0.02]], [[1.0]], [[0.1]])
COMPLEX = statespace.LinearGaussian([[0.99 + 0j]], [[0.02]], [[1.0]], [[0.1]])
_, Z = statespace.sample(COMPLEX, 60, seed=1)
Z = Z.numpy()

VERBS = {
    "filter": lambda model: statespace.filter(model, Z).log_likelihood,
    "smooth": lambda model: statespace.smooth(model, Z).smoothed_means,
    "step": lambda model: statespace.step(model, None, Z[0])[1].filtered.mean,
    "KalmanFilter": lambda model: cgp.KalmanFilter(model).process(Z).filtered.mean,
    "Bank": lambda model: cgp.Bank(cgp.KalmanFilter(model)).update(["a"], Z[:1]).filtered.mean,
}


@pytest.mark.parametrize("verb", VERBS)
def test_does_the_remedy_make_a_model_of_real_matrices_complex(verb):
    model, run = REAL, VERBS[verb]
    with pytest.raises(TypeError, match=r"model\.replace\(F=model\.F\.numpy\(\) \+ 0j\)"):
        run(model)
    np.testing.assert_allclose(run(model.replace(F=model.F.numpy() + 0j)), run(COMPLEX), rtol=1e-13)


def test_is_the_complex_model_learned():
    kf = cgp.KalmanFilter(REAL.replace(F=REAL.F.numpy() + 0j), learn=("F", "Q", "R"))
    kf.compile(optimizer=cgp.optimizers.LBFGS())
    kf.fit(Z[None], verbose=0)
    assert np.iscomplexobj(kf.F)
    assert abs(kf.F[0, 0]) < 1.0


@pytest.mark.parametrize("name", ["Q", "R", "initial_covariance"])
def test_is_the_covariance_named_that_is_zero_and_to_be_learned(name):
    start = {"Q": [[0.02]], "R": [[0.1]], "initial_covariance": [[1.0]]}
    zero = {**start, name: [[0.0]]}
    with pytest.raises(ValueError, match=f"^{name} is zero, and is to be learned"):
        cgp.KalmanFilter(
            statespace.LinearGaussian([[0.9j]], H=[[1.0]], **zero), learn=("Q", "R", name)
        )
    model = statespace.LinearGaussian([[0.9j]], H=[[1.0]], **start)
    assert set(cgp.KalmanFilter(model, learn=("Q", "R", name)).learned) == {"Q", "R", name}


@pytest.mark.parametrize(
    ("z", "message"),
    [
        ([1j, None, 2.0], "None in it: the number that is missing is NaN, not None"),
        ([1j, "2", None], r"of which one is '2', str"),
        ([1j, [1.0], 2.0], r"of which one is \[1.0\], list"),
        ([1j, True, 2.0], "of which one is True, bool"),
    ],
)
def test_is_what_an_array_of_objects_holds_said(z, message):
    objects = np.empty(3, object)
    objects[:] = z
    with pytest.raises(TypeError, match=f"z must be numbers, got object.*{message}"):
        statespace.filter(COMPLEX, objects)


@pytest.mark.parametrize(
    ("model", "z", "kind"),
    [(COMPLEX, [1j, 2, 3.0], "complex"), (REAL, [Decimal("0.5"), 2, 3.0], "float")],
)
def test_does_the_remedy_for_objects_that_are_numbers_help(model, z, kind):
    objects = np.array(z, object)
    with pytest.raises(TypeError, match=rf"objects that are numbers: give z\.astype\({kind}\)"):
        statespace.filter(model, objects)
    found = statespace.filter(model, objects.astype(kind)).log_likelihood
    np.testing.assert_array_equal(found, statespace.filter(model, np.array(z, kind)).log_likelihood)
