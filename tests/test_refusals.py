"""Slips of many kinds, at every public door: none passes in silence, each error says what to do.

What is of one class alone stands in the file that mirrors it, and in tests/test_bad_input.py.
"""

import keras
import matplotlib
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp import ExactGP, StateSpaceGP, datasets, layers, linalg, means, plotting, statespace
from cgp.kernels import RBF, Constant, Matern32, Szego, White, linear_sde

matplotlib.use("Agg")

X, Z = np.array([0.0, 0.4, 1.1]), np.array([1.0 + 1j, 0.5j, -0.2])
I2, ONE = np.eye(2) + 0j, np.float64(1.0)
LBFGS = cgp.optimizers.LBFGS
MODEL = statespace.LinearGaussian([[0.9]], [[0.1]], [[1.0 + 0j]], [[0.1]], [0.0], [[1.0]])

REAL = statespace.LinearGaussian([[0.9]], [[0.1]], [[1.0]], [[0.1]])


def gp(**arguments) -> ExactGP:
    return ExactGP(RBF(1.0, 1.0), 0.1, **arguments)


def fit(optimizer=None, priors=None, **arguments):
    model = gp(priors=priors)
    model.compile(optimizer or keras.optimizers.Adam(0.1))
    model.fit(X, Z, verbose=0, **arguments)


def bank() -> cgp.Bank:
    return cgp.Bank(cgp.KalmanFilter(MODEL), capacity=4)


def kept(keys="ab") -> cgp.Bank:
    made = bank()
    made.update(list(keys), np.ones(len(keys)) + 0j)
    return made


CONTAINERS = {
    "a set of targets": (
        lambda: gp().condition(X, set(Z)), TypeError,
        "z must be an array, got a set, which has no order"),
    "a dictionary of targets": (
        lambda: gp().condition(X, dict(enumerate(Z))), TypeError,
        r"got a dict: give list\(z.values\(\)\)"),
    "a generator of targets": (
        lambda: gp().condition(X, (v for v in Z)), TypeError, r"got a generator: give list\(z\)"),
    "a set of inputs": (
        lambda: gp().condition(set(X), Z), TypeError, "x must be an array, got a set"),
    "a generator of inputs": (
        lambda: gp().condition((v for v in X), Z), TypeError, r"give list\(x\)"),
    "no inputs": (lambda: gp().condition(None, Z), TypeError, "real numbers,.* got None"),
    "inputs that are bits": (
        lambda: gp().condition(X > 0, Z), TypeError, r"got bool: give x.astype\(float\)"),
    "a placeholder for data": (
        lambda: gp().condition(X, keras.Input((3,), dtype="complex128")), TypeError,
        "the KerasTensor of a model that is being built, which has no values"),
    "a set of samples of a filter": (
        lambda: statespace.filter(MODEL, set(Z)), TypeError, "got a set"),
    "a dictionary of arrays": (
        lambda: gp().condition({"a": X}, Z), TypeError, r"one of its arrays, such as x\['a'\]"),
    "None for a matrix": (lambda: linalg.cholesky(None), TypeError, "a must be numbers, got None"),
    "None in a matrix": (
        lambda: linalg.cholesky([[1.0, None]]), TypeError, "got an array with None in it"),
    "text for a matrix": (
        lambda: linalg.cholesky([["a"]]), TypeError, r"numbers, got text such as \['a'\]"),
    "a dictionary for a matrix": (
        lambda: linalg.cholesky({"a": 1.0}), TypeError, r"a must be an array, got a dict"),
    "targets as text": (
        lambda: gp().condition(X, ["1j", "2j", "3j"]), TypeError,
        r"text such as \['1j'\]: text becomes numbers by np.array\(z\).astype\(complex\)"),
    "targets as words": (
        lambda: gp().condition(X, ["a", "b", "c"]), TypeError, r"text such as \['a'\]$"),
    "no targets": (
        lambda: gp().condition(X, None), TypeError, "z is missing, got None: give its values"),
    "an input that is missing": (
        lambda: gp().condition([0, None, 2], Z), TypeError,
        r"objects such as \[None\]: leave out the samples where it is missing"),
    "a list of inputs that are bits": (
        lambda: gp().condition([True, False, True], Z), TypeError, r"np.array\(x\).astype\(float"),
    "rows of real and imaginary parts": (
        lambda: gp().condition(X, np.ones((2, 3))), TypeError,
        r"two rows .* become complex by z\[0\] \+ 1j \* z\[1\], values"),
    "real targets": (
        lambda: gp().condition(X, Z.real), TypeError,
        r"values without imaginary part become complex by z.astype\(complex\), angles \(VonMises\) "
        r"by np.exp\(1j \* z\), signs of both parts \(OneBit\) by np.sign\(re\) \+ 1j"),
    "signs of a real signal that are bits": (
        lambda: cgp.KalmanFilter(REAL).predict(X > 0), TypeError,
        r"\(OneBit\) by 2.0 \* z - 1, numbers by z.astype\(float\)"),
    "targets that are bits": (
        lambda: gp().condition(X, X > 0), TypeError,
        r"\(OneBit\) by \(2 \* re - 1\) \+ 1j \* \(2 \* im - 1\), numbers by z.astype\(complex"),
    "fields of real and imaginary parts": (
        lambda: gp().condition(X, np.zeros(3, [("re", float), ("im", float)])), TypeError,
        r"z\['re'\] \+ 1j \* z\['im'\]"),
    "columns of a table": (
        lambda: gp().condition(X, pd.DataFrame({"re": X, "im": X})), TypeError,
        r"z.to_numpy\(\)\[:, 0\] \+ 1j \* z.to_numpy\(\)\[:, 1\]"),
    "a list of pairs": (
        lambda: gp().condition(X, [(1.0, 2.0)] * 3), TypeError, r"np.array\(z\)\[:, 0\] \+ 1j"),
}  # fmt: skip

NAMES = {
    "a misspelt argument of a model": (
        lambda: ExactGP(RBF(1.0, 1.0), noise_varience=0.1), TypeError,
        "ExactGP has no such arguments.*noise_varience.*did you mean noise_variance.*takes kernel"),
    "a misspelt argument of a kernel": (
        lambda: RBF(1.0, length_scale=1.0), TypeError, "did you mean lengthscale"),
    "a misspelt argument of a mean": (
        lambda: means.Constant(vale=1.0), TypeError, "did you mean value"),
    "a misspelt argument of a filter": (
        lambda: cgp.KalmanFilter(MODEL, lern="Q"), TypeError, "did you mean learn"),
    "a misspelt argument of a layer": (
        lambda: layers.ToComplex(names="a"), TypeError, "ToComplex.*did you mean name"),
    "a misspelt argument of fit": (
        lambda: fit(epoch=3), TypeError, "has no argument epoch: did you mean epochs"),
    "y for z": (lambda: fit(y=Z), TypeError, "has no argument y: the targets are z"),
    "fixed as a flag": (
        lambda: gp(fixed=True), TypeError, "fixed must be names of parameters, got True"),
    "priors in a list": (
        lambda: gp(priors=[1.0]), TypeError, r"priors must be a dictionary.*got \[1.0\]"),
    "callbacks as text": (
        lambda: fit(callbacks="early"), TypeError, "callbacks must be callbacks of Keras.*'early'"),
    "epochs as text": (lambda: fit(epochs="3"), TypeError, "epochs must be a whole.*got '3'"),
    "observed as an array": (
        lambda: gp().predict(X, observed=np.array([True, False])), TypeError, "observed must be"),
    "a seed that draws": (
        lambda: gp().sample(X, seed=np.random.default_rng(0)), TypeError,
        r"seed must be one integer or two, got a Generator: draw a number from it"),
    "a mean that is NaN": (
        lambda: means.Constant(np.nan), ValueError, "value must be complex and finite, got nan"),
    "a tolerance as text": (
        lambda: cgp.optimizers.LBFGS(gtol="tight"), TypeError,
        "gtol must be a number, got 'tight'"),
    "no file": (
        lambda: cgp.load_model(None), TypeError, "filepath must be a path, got None"),
    "objects of a file as text": (
        lambda: cgp.load_model("a.keras", custom_objects="x"), TypeError,
        "custom_objects must be a dictionary of classes and functions, got 'x'"),
    "the state of no layer": (
        lambda: cgp.refresh("gp"), TypeError, "layer must be a layer of Keras.*got 'gp'"),
}  # fmt: skip

FITS = {
    "no epoch between validations": (
        lambda: fit(validation_freq=0), ValueError, "validation_freq must be a whole.* 1, got 0"),
    "a number of no epoch": (
        lambda: fit(initial_epoch=-1), ValueError, "initial_epoch must be a whole.* 0, got -1"),
    "a seed in letters": (
        lambda: fit(LBFGS(), restarts=2, seed="a"), TypeError,
        "seed must be one integer, 0 or more, got 'a'"),
    "a seed of a comparison in letters": (
        lambda: cgp.compare(
            {"a": gp(), "b": gp()}, np.ones((8, 2)), np.ones(8) + 0j, seed="a"),
        TypeError, "seed must be one integer, 0 or more, got 'a'"),
    "the name of an optimizer that Keras does not have": (
        lambda: gp().compile("LBFGS"), ValueError,
        r"Keras knows no 'LBFGS': give optimizer=cgp.optimizers.LBFGS\(\)"),
    "the class of an optimizer": (
        lambda: cgp.KalmanFilter(MODEL).compile(optimizer=LBFGS), TypeError,
        r"must be an optimizer, got the class LBFGS: make one, LBFGS\(\)"),
    "a start outside the support of a prior": (
        lambda: fit(LBFGS(), {"noise_variance": tfp.distributions.Uniform(ONE, 2 * ONE)}),
        ValueError, "is inf.*: the prior of noise_variance = 0.1 has no density there"),
    "predictions in a graph": (
        lambda: tf.function(gp().predict, autograph=False)(X), RuntimeError,
        r"predict returns NumPy arrays.* take posterior\(x\) there"),
}  # fmt: skip

FLAGS = {
    "parallel, of a process": lambda: StateSpaceGP(Matern32(1.0, 1.0), 0.1, parallel="no"),
    "parallel, of a filter": lambda: statespace.filter(MODEL, Z, parallel="no"),
    "parallel, of a likelihood": lambda: statespace.log_likelihood(MODEL, Z, parallel="no"),
    "parallel, of a smoother": lambda: statespace.smooth(MODEL, Z, parallel="no"),
    "marginalized": lambda: means.Polynomial(1, marginalized="no"),
    "real_response, of a mean": lambda: means.Rational(1, real_response="no"),
    "real_response, of a kernel": lambda: Szego(1.0, 1.0, real_response="no"),
    "holomorphic": lambda: statespace.NonlinearGaussian(
        lambda x: x, lambda x: x, I2, I2, I2[0], I2, holomorphic="no"),
    "jit_compile": lambda: statespace.NonlinearGaussian(
        lambda x: x, lambda x: x, I2, I2, I2[0], I2, jit_compile="no"),
    "return_sequences": lambda: layers.Recursive(cgp.KalmanFilter(MODEL), return_sequences="no"),
    "return_state": lambda: layers.Recursive(cgp.KalmanFilter(MODEL), return_state="no"),
    "stateful": lambda: layers.Recursive(cgp.KalmanFilter(MODEL), stateful="no"),
    "return_dict": lambda: cgp.RecursiveGP(RBF(1.0, 1.0), 0.1).evaluate(X, Z, return_dict="no"),
    "safe_mode": lambda: cgp.load_model("a.keras", safe_mode="no"),
    "compile": lambda: cgp.load_model("a.keras", compile="no"),
    "observed": lambda: gp().predict(X, observed="no"),
}  # fmt: skip

KERNELS = {
    "a number added": (
        lambda: RBF() + 1.0, TypeError,
        r"is added to kernels, got 1.0.*Constant\(variance\)"),
    "a number added from the left": (
        lambda: 1.0 + RBF(), TypeError, "is added to kernels"),
    "a complex multiple": (
        lambda: 1j * RBF(), TypeError, r"multiplied by a real number.*got 1j: c f\(x\) has \|c\|²"),
    "a kernel as a function": (
        lambda: RBF(1.0, 1.0)(X), TypeError, r"kernel.covariance\(x1, x2\)"),
    "frequencies of a density as dates": (
        lambda: RBF(1.0, 1.0).spectral_density(pd.date_range("2026", periods=2)), TypeError,
        "frequencies must be real, in cycles per unit of x, got dates or durations"),
    "complex frequencies of a density": (
        lambda: RBF(1.0, 1.0).spectral_density([1j]), TypeError, "got complex ones"),
    "the density of a line": (
        lambda: Constant(1.0).spectral_density(X), ValueError, "is infinite: multiply by an env"),
    "the density of a line among others": (
        lambda: (Constant(1.0) + White(0.1) + RBF(1.0, 1.0)).spectral_density(X), ValueError,
        r"the other terms, kernel.parts\[2\].spectral_density\(f\), or multiply"),
    "the density of white noise": (
        lambda: White(1.0).spectral_density(X), ValueError, "continuous x: of samples dx apart"),
    "powers of dates": (
        lambda: gp(mean=means.Polynomial(2, marginalized=True)).condition(1e8 + X, Z), ValueError,
        r"determine 2 of them, as powers .* center=100000000.5\S* and scale=0.5"),
    "no generator": (
        lambda: linear_sde(I2, [1.0]), TypeError, r"must be a cgp.kernels.Generator\(A, W\)"),
}  # fmt: skip

FILTERS = {
    "a rule in letters, of a linear smoother": (
        lambda: statespace.smooth(MODEL, Z, rule="ukf"), TypeError,
        "rule must be a Taylor.*got 'ukf'"),
    "a rule in letters, of linear samples": (
        lambda: statespace.posterior_sample(MODEL, Z, rule="ukf"), TypeError, "rule must be"),
    "all that step returned for the state": (
        lambda: statespace.step(MODEL, statespace.step(MODEL, None, 1j), 1j), TypeError,
        r"state, step = statespace.step\(model, state, z\)"),
    "no series": (
        lambda: cgp.KalmanFilter(MODEL).predict(None), TypeError, "z is missing: series"),
    "a series for one sample": (
        lambda: cgp.KalmanFilter(MODEL).step(Z), ValueError,
        "3 streams at one time; a series goes to filter or process"),
    "no matrices": (
        lambda: statespace.LinearGaussian(None, None, [[1.0]], [[0.1]]), TypeError,
        "F, Q must be a matrix, got None"),
    "inputs of a model without them, in a list": (
        lambda: cgp.KalmanFilter(MODEL).step(1j, inputs=[1.0]), ValueError,
        "inputs were given, but the model has none"),
    "a level in letters": (
        lambda: statespace.diagnostics(statespace.filter(MODEL, Z), level="a"), TypeError,
        "level must be a number between 0 and 1, got 'a'"),
    "a weight in letters": (
        lambda: cgp.KalmanFilter(MODEL, loss_weight="a"), TypeError,
        "loss_weight must be a number"),
}  # fmt: skip

BANKS = {
    "a set of keys, whose order is none": (
        lambda: bank().update({"a", "b"}, Z[:2]), TypeError, "in the order of samples, got a set"),
    "samples whose index has the keys in another order": (
        lambda: bank().update(["a", "b"], pd.Series(Z[:2], index=["b", "a"])), ValueError,
        r"the index of z has the keys in another order: give z.loc\[keys\]"),
    "rows of different lengths": (
        lambda: bank().update(["a", "b"], [[1j], [1j, 2.0]]), ValueError,
        r"z must be \(2, 1\) or \(2,\) for 2 keys, got rows of different lengths"),
    "more keys in bytes than the capacity": (
        lambda: cgp.Bank.from_bytes(kept().to_bytes(), kept().estimator, capacity=1), ValueError,
        "the bytes have 2 keys, more than the capacity, 1"),
    "an unknown key": (lambda: kept().state("c"), KeyError, "there is no key 'c'"),
    "an unknown key to drop": (lambda: kept().evict(["a", "c"]), KeyError, "there is no key 'c'"),
}  # fmt: skip

OTHERS = {
    "linalg: no function": (
        lambda: linalg.with_gradient("f", X, grad=lambda x, dy: dy), TypeError,
        "f must be a function, got 'f'"),
    "linalg: no function for a gradient": (
        lambda: linalg.with_gradient(tf.identity, X, grad=3), TypeError,
        "grad must be a function, got 3"),
    "datasets: a date as text": (
        lambda: datasets.polar_motion("2020-01-01"), TypeError,
        "start must be a modified Julian date.*got '2020-01-01'"),
    "datasets: half a symbol": (
        lambda: datasets.soft_channel(1.5, 1), ValueError, "n must be a whole.*got 1.5"),
    "datasets: symbols by name": (
        lambda: datasets.soft_channel(5, 1, constellation="qpsk"), TypeError,
        "constellation must be numbers"),
    "datasets: a seed in letters": (
        lambda: datasets.channel_switch("a"), TypeError, "seed must be one integer.*got 'a'"),
    "layers: a class for an estimator": (
        lambda: layers.Recursive(cgp.RecursiveGP), TypeError, "must be a KalmanFilter.*got <class"),
    "layers: a dictionary for a pair": (
        lambda: layers.Recursive(cgp.RecursiveGP(RBF(1.0, 1.0), 0.1))({"x": X[None], "z": Z[None]}),
        TypeError, r"an array, or a tuple of arrays such as \(x, z\) of a process, got a dict"),
    "layers: whole numbers for parts": (
        lambda: layers.ToComplex()(np.ones((3, 2), int)), TypeError, r"parts.astype\(float\)"),
    "plotting: points without a posterior": (
        lambda: plotting.series(X, Z, x_new=X), ValueError, "x_new is where posterior is"),
    "plotting: a list for axes": (
        lambda: plotting.plane(Z, ax=[1]), TypeError, r"axes of matplotlib.*got \[1\]"),
    "plotting: a percentage": (
        lambda: plotting.plane(Z, probability=95), ValueError, "got 95: as a fraction, 0.95"),
    "plotting: a probability of rounding": (
        lambda: plotting.plane(Z, probability=1.0001), ValueError, "got 1.0001$"),
    "plotting: a probability in letters": (
        lambda: plotting.plane(Z, probability="a"), TypeError, "probability must be a number"),
    "frames: an axis twice": (
        lambda: cgp.to_frame(statespace.filter(MODEL, Z), dims=("a", "a")), ValueError,
        r"dims must be \(\"time\",\).*got \('a', 'a'\)"),
    "frames: an axis as text": (
        lambda: cgp.to_xarray(gp().predict(X), dims="time"), ValueError, "got 'time'"),
    "callbacks: no folder": (
        lambda: cgp.callbacks.Parameters(None), TypeError, "log_dir must be a path, got None"),
}  # fmt: skip

TABLES = [CONTAINERS, NAMES, FITS, KERNELS, FILTERS, BANKS, OTHERS]
CASES = [pytest.param(*case, id=name) for table in TABLES for name, case in table.items()]


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_a_slip_is_refused_with_what_came_and_what_to_do(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert caught.type is error


@pytest.mark.parametrize(("name", "call"), FLAGS.items(), ids=FLAGS)
def test_a_word_is_no_flag(name, call):
    flag = name.split(",")[0]
    with pytest.raises(TypeError, match=f"^{flag} must be True or False, got 'no'"):
        call()


# Remedies are tried.


def test_what_an_error_says_of_a_table_is_accepted():
    z = pd.DataFrame({"re": X, "im": X})
    gp().condition(X, z.to_numpy()[:, 0] + 1j * z.to_numpy()[:, 1])


def test_a_bank_takes_samples_in_the_order_of_their_index_as_its_error_says():
    keys, z = ["a", "b"], pd.Series(Z[:2], index=["b", "a"])
    found = bank().update(keys, z.loc[keys])
    np.testing.assert_array_equal(found.innovation[:, 0], [Z[1], Z[0]])


def test_a_bank_takes_an_index_that_is_none_of_keys():
    keys = [1, 0]
    for z in (pd.Series(Z[:2]), pd.Series(Z[:2], index=["s", "t"])):
        np.testing.assert_array_equal(bank().update(keys, z).innovation[:, 0], Z[:2])


def test_observed_is_a_flag_of_numpy_too():
    model = StateSpaceGP(Matern32(1.0, 1.0), 0.1)
    flag = np.bool_(True)
    expected = model.predict(X, observed=True)["variance"]
    np.testing.assert_array_equal(model.predict(X, observed=flag)["variance"], expected)


def test_linear_smoothers_take_any_rule_as_all_are_exact():
    found = statespace.smooth(MODEL, Z, rule=statespace.Taylor()).smoothed_means
    np.testing.assert_array_equal(found, statespace.smooth(MODEL, Z).smoothed_means)
