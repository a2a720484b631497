"""Every wrong argument is refused by name, with what was expected and what came, and does no harm.

The wrong arguments stand in tests/refusals.py; kernels have another table, in
tests/kernels/test_algebra.py.
"""

import keras
import numpy as np
import pytest
import tensorflow_probability as tfp

import cgp
from cgp import ExactGP, NotPositiveDefiniteError
from cgp.kernels import RBF, Rotation, White, WidelyLinear
from tests.long_cases import eagerly_or_in_a_graph, long_except
from tests.refusals import REFUSALS, X, Z, assert_refused, compiled, everything_fixed


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(case):
    assert_refused(*REFUSALS[case])


# What was refused has changed nothing.

NEW = np.linspace(-1.0, 2.0, 5)


def states(model):
    """All that can be seen of a model."""
    found = {**model.predict(NEW), **{k: np.array(v) for k, v in model.parameters().items()}}
    found["observed"] = model.predict(NEW, observed=True)["variance"]
    found["covariance"] = model.posterior(NEW).covariance().numpy()
    if not model._stored.is_empty:
        found |= {f"loo {name}": value for name, value in model.loo().items()}
    return found


REFUSED = {
    "real targets": (X, Z.real, {}),
    "lengths": (X, Z[:2], {}),
    "NaN input": ([0.0, np.nan, 1.0], Z, {}),
    "infinite target": (X, np.array([1j, np.inf, 0]), {}),
    "all missing": (X, Z + np.nan, {}),
    "missing of another shape": (X, Z, {"missing": np.array([True, False])}),
    "precision": (X, np.complex64(Z), {}),
    "dimensions of the kernel": (np.zeros((3, 2)), Z, {}),
    "batch": (np.zeros((2, 3, 1)), np.stack([Z] * 3), {}),
}

KERNELS = {
    "proper": lambda: RBF(1.0, [0.7]) * Rotation([0.3]),
    "improper": lambda: WidelyLinear(RBF(1.0, [0.7]) * Rotation([0.3]), 0.4j),
}


VERBS = ["condition", "fit with LBFGS", "fit with Adam"]
# Each case, each way and both kernels, though not each with each.
SHORT = [
    *[(case, "improper", "condition") for case in REFUSED],
    ("lengths", "proper", "condition"),
    ("infinite target", "improper", "fit with LBFGS"),
    ("batch", "improper", "fit with Adam"),
]


@pytest.mark.parametrize(
    ("case", "kernel", "verb"),
    long_except([(c, k, v) for c in REFUSED for k in KERNELS for v in VERBS], *SHORT),
)
def test_after_refused_data_a_model_predicts_as_before(case, kernel, verb):
    model = ExactGP(KERNELS[kernel](), 0.01)
    if verb != "condition":
        lbfgs = verb == "fit with LBFGS"
        model.compile(optimizer=cgp.optimizers.LBFGS() if lbfgs else keras.optimizers.Adam(0.1))
    model.condition(X, Z)
    before = states(model)
    x, z, arguments = REFUSED[case]
    with pytest.raises((ValueError, TypeError)):
        (model.condition if verb == "condition" else model.fit)(x, z, **arguments)
    after = states(model)
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.parametrize("why", ["epochs", "everything fixed"])
def test_after_a_refused_fit_the_data_are_those_of_before(why):
    model = compiled() if why == "epochs" else everything_fixed()
    model.condition(X, Z)
    before = states(model)
    with pytest.raises(ValueError, match=r"no iteration|no trainable"):
        model.fit(X, 5 * Z, epochs=0 if why == "epochs" else None)
    after = states(model)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_noise_on_a_line_is_accepted_whatever_its_angle():
    for angle in np.linspace(0.0, 2 * np.pi, 20):
        ExactGP(RBF(1.0, 1.0), 0.3, noise_pseudo_variance=0.3 * np.exp(1j * angle))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_model_without_data_is_a_prior_still_after_refused_data(kernel):
    model = ExactGP(KERNELS[kernel](), 0.01)
    before = states(model)
    with pytest.raises(ValueError, match="as many points"):
        model.condition(X, Z[:2])
    after = states(model)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.parametrize(
    ("kernel", "verb"),
    long_except(
        [(kernel, verb) for kernel in KERNELS for verb in VERBS],
        *[("improper", "condition"), ("proper", "fit with LBFGS"), ("improper", "fit with Adam")],
    ),
)
def test_a_covariance_that_is_not_positive_definite_leaves_data_and_predictions(kernel, verb):
    """Duplicated inputs under no noise to speak of."""
    model = ExactGP(KERNELS[kernel](), 1e-300)
    if verb != "condition":
        lbfgs = verb == "fit with LBFGS"
        model.compile(optimizer=cgp.optimizers.LBFGS() if lbfgs else keras.optimizers.Adam(0.1))
    model.condition(X, Z)
    before = states(model)
    x, z = np.array([0.1, 0.1, 0.5, 0.5, 0.7]), np.arange(5) * 1j
    with pytest.raises(NotPositiveDefiniteError, match=r"not positive definite.*duplicated points"):
        (model.condition if verb == "condition" else model.fit)(x, z)
    after = states(model)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    model.noise_variance.assign(0.1)  # and it goes on from there
    model.condition(x, z)
    assert np.all(np.isfinite(model.predict(NEW)["mean"]))


@pytest.mark.parametrize("kernel", long_except(KERNELS, "improper"))
def test_hyperparameters_that_overflow_are_an_error_at_use_and_can_be_put_right(kernel):
    model = ExactGP(KERNELS[kernel](), 0.01)
    model.condition(X, Z)
    before = states(model)
    variance = next(p for name, p in model.named_hyperparameters().items() if "variance" in name)
    was = variance.numpy()
    variance.variable.assign(800.0)  # e^800
    for use in (
        lambda: model.predict(NEW),
        lambda: model.loo(),
        lambda: model.log_marginal_likelihood(X, Z),
        lambda: model.condition(X + 1, Z),
    ):
        with pytest.raises(ValueError, match="NaN or infinite"):
            use()
    variance.assign(was)
    after = states(model)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12, err_msg=name)


def test_hyperparameters_that_make_the_data_singular_are_an_error_and_no_stale_prediction():
    model = ExactGP(RBF(1.0, 1.0, fixed="variance") + White(0.1), 0.1)
    model.condition([0.0, 0.0, 1.0], Z)
    before = states(model)
    model.noise_variance.assign(1e-300)
    with pytest.raises(NotPositiveDefiniteError, match="duplicated points"):
        model.predict(NEW)
    model.noise_variance.assign(0.1)
    after = states(model)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12, err_msg=name)


@eagerly_or_in_a_graph
def test_a_fit_that_breaks_down_leaves_the_best_point_and_a_usable_model(eagerly):
    """A prior pushes the noise under rounding; replicates then make the covariance singular."""
    down = tfp.distributions.Gamma(1e-3, 1e12)
    model = ExactGP(RBF(0.5, 2.0), 0.1, priors={"noise_variance": down})
    model.compile(optimizer=keras.optimizers.Adam(30.0), run_eagerly=eagerly)
    with pytest.warns(RuntimeWarning, match="has diverged"):
        model.fit([0.0, 0.0, 1.0], Z, epochs=50, verbose=0)
    assert all(np.all(np.isfinite(v)) for v in model.parameters().values())
    for p in model.named_hyperparameters().values():
        p.assign(1.0)
    model.noise_variance.assign(0.1)
    expected = ExactGP(RBF(1.0, 1.0), 0.1)
    expected.condition([0.0, 0.0, 1.0], Z)
    np.testing.assert_allclose(
        model.predict(NEW)["mean"], expected.predict(NEW)["mean"], rtol=1e-10
    )


OPTIMIZERS = {"LBFGS": cgp.optimizers.LBFGS, "Adam": lambda: keras.optimizers.Adam(0.1)}


@eagerly_or_in_a_graph
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_interrupted_fit_leaves_state_and_hyperparameters_in_step(optimizer, eagerly):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    rng = np.random.default_rng(9)
    x = np.linspace(0.0, 3.0, 12)
    z = np.exp(2j * x) + 0.1 * (rng.normal(size=12) + 1j * rng.normal(size=12))
    model = ExactGP(RBF(1.0, 1.0), 0.5)
    model.compile(optimizer=OPTIMIZERS[optimizer](), run_eagerly=eagerly)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, z, epochs=9, verbose=0, callbacks=[Interrupt()])
    fresh = ExactGP(RBF(1.0, 1.0), 0.5)
    for mine, theirs in zip(
        fresh.named_hyperparameters().values(), model.named_hyperparameters().values(), strict=True
    ):
        mine.assign(theirs.numpy())
    fresh.condition(x, z)
    assert float(model.noise_variance) != pytest.approx(0.5, rel=1e-3)
    found = states(model)
    for name, value in states(fresh).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, err_msg=name)
