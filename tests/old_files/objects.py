"""One object of each kind that users save, and questions whose answers a later version keeps.

`python -m tests.old_files.objects` writes the objects and their answers into a folder named after
the version of cgp: do so before a change of what is saved, and once for each release.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.gp.means import Polynomial
from cgp.kernels import Constant, Matern12, Matern32, Rotation, WidelyLinear

HERE = Path(__file__).parent
RNG = np.random.default_rng(10)
X = np.cumsum(RNG.uniform(0.2, 1.0, 14))
Z = RNG.normal(size=(2, 14)) + 1j * RNG.normal(size=(2, 14))
Z[0, 4] = np.nan
PAIRS = np.moveaxis(Z, 0, -1)[None] * np.array([1.0, 1j, -0.5])[:, None, None]
INPUTS = RNG.normal(size=(3, 14, 1)) + 0j
LATER = X[-1] + np.array([0.3, 1.1])

Answers = dict[str, np.ndarray]


def kernel() -> Any:
    return Matern32(0.8, 2.0) * Rotation(0.1) + Matern12(0.5, 4.0)


def linear_model(**settings: Any) -> statespace.LinearGaussian:
    F = np.array([[0.8 * np.exp(0.3j), 0.1], [0.0, 0.5j]])
    H = np.array([[1.0, 0.2], [0.3j, 1.0]])
    return statespace.LinearGaussian(F, 0.1 * np.eye(2), H, 0.2 * np.eye(2), **settings)


@keras.saving.register_keras_serializable(package="cgp.tests")
def steady(state: tf.Tensor) -> tf.Tensor:
    """The transition of a constant phase."""
    return state


@keras.saving.register_keras_serializable(package="cgp.tests")
def phasor(state: tf.Tensor) -> tf.Tensor:
    """A phase as it is observed."""
    return tf.exp(tf.complex(0.0 * state, state))


# --- questions -----------------------------------------------------------------------------------


def of_step(step: Any, name: str) -> Answers:
    """The arrays of a step."""
    moments = (("predicted", step.predicted), ("filtered", step.filtered))
    arrays = {f"{name} {p}_{f}": a for p, m in moments for f, a in m._asdict().items()}
    return {f"{name} innovation": step.innovation, **arrays}


def of_process(gp: Any) -> Answers:
    """Predictions of a process, and its hyperparameters."""
    x = np.linspace(-1.0, X[-1] + 2.0, 5)
    predictions = {f"predict {name}": a for name, a in gp.predict(x, verbose=0).items()}
    learned = {f"parameter {name}": np.asarray(a) for name, a in gp.parameters().items()}
    return {**predictions, **learned}


def of_online_process(gp: Any, *axes: int) -> Answers:
    """Predictions and hyperparameters, and then the results of the next step."""
    z = np.array([0.3 - 0.2j, 0.1j, 1.0])[: int(np.prod(axes))].reshape(axes)[()]
    return {**of_process(gp), **of_step(gp.step(X[-1] + 0.4, z), "step")}


def of_filter(kf: Any) -> Answers:
    """The state, and the results of its next step."""
    state = {f"state {name}": np.asarray(a) for name, a in kf.state._asdict().items()}
    observed = kf.learned_model.noise.observation_size
    z = np.arange(1, observed + 1) * (0.2 + 0.1j) * np.ones((*kf.state.mean.shape[:-1], 1))
    inputs = {"inputs": INPUTS[:, 0]} if kf.model.B is not None else {}
    return {**state, **of_step(kf.step(z, **inputs), "step")}


def of_nonlinear_filter(kf: Any) -> Answers:
    """The results of the next step of its stream."""
    return of_step(kf.step([0.9 + 0.1j]), "step")


def of_recurrent(model: Any, inputs: Any) -> Answers:
    """The outputs of a model with a recurrent layer for the next piece of a series."""
    return {name: np.asarray(a) for name, a in model(inputs).items()}


def of_bank(bank: cgp.Bank) -> Answers:
    """The states of keys, and the results of their next steps."""
    states = {f"state {name}": np.asarray(a) for name, a in bank.state()._asdict().items()}
    x = None if isinstance(bank.estimator, cgp.KalmanFilter) else [LATER[0], LATER[1]]
    z = np.array([0.2 + 0.1j, np.nan])
    z = z if x is not None else np.stack([z, z], axis=-1)
    return {**states, **of_step(bank.update(["b", "a"], z, x), "step")}


# --- objects -------------------------------------------------------------------------------------


def process(kind: type, **settings: Any) -> Any:
    gp = kind(kernel(), 0.1, **settings)
    gp.condition(X, Z[0])
    return gp


def improper_with_means() -> Any:
    gp = cgp.ExactGP(
        WidelyLinear(Matern32(0.8, 2.0), 0.3j) + Constant(0.2),
        noise_variance=[0.1, 0.3],
        mean=Polynomial(1, [0.2 + 0.1j, -0.1j]),
    )
    gp.condition(X, Z[0], noise_groups=np.arange(14) % 2)
    return gp


def fitted() -> Any:
    gp = cgp.ExactGP(Matern12(1.0, 3.0), 0.2)
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(X, Z[0], epochs=2, verbose=0)
    return gp


def stepped(gp: Any, z: np.ndarray) -> Any:
    for i in range(8):
        gp.step(X[i], z[..., i])
    return gp


def running(model: Any, z: np.ndarray, count: int = 5, **settings: Any) -> Any:
    kf = cgp.KalmanFilter(model, **settings)
    for t in range(count):
        inputs = {} if getattr(model, "B", None) is None else {"inputs": INPUTS[:, t]}
        kf.step(z[..., t, :], **inputs)
    return kf


def phase() -> Any:
    moments = {"initial_mean": [0.2], "initial_covariance": [[1.0]]}
    model = statespace.NonlinearGaussian(steady, phasor, [[0.1]], [[0.5]], **moments)
    return running(model, Z[1][:, None])


def recurrent(estimator: Any, *arrays: np.ndarray) -> Any:
    """A Keras model of a recurrent layer, after a first piece of a series."""
    inputs = [keras.Input(batch_shape=a.shape, dtype=a.dtype.name) for a in arrays]
    layer = cgp.layers.Recursive(estimator, stateful=True)
    if len(arrays) == 1:
        model = keras.Model(inputs[0], layer(inputs[0]))
        model(arrays[0])
    else:
        model = keras.Model(inputs, layer(inputs))
        model(list(arrays))
    return model


def bank(estimator: Any) -> cgp.Bank:
    made = cgp.Bank(estimator)
    keys = ["a", "b", 3, "a", ("c", 1), "a"]
    z = Z[0, 5:11] if not isinstance(estimator, cgp.KalmanFilter) else Z[:, 5:11].T
    made.update(keys, z, None if isinstance(estimator, cgp.KalmanFilter) else X[5:11])
    return made


STREAMS = X[None, :6, None] * np.ones((2, 1, 1)), Z[:, :6]

MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any], Answers]]] = {
    "exact": (lambda: process(cgp.ExactGP), of_process),
    "improper_with_means": (improper_with_means, of_process),
    "fitted": (fitted, of_process),
    "state_space": (
        lambda: stepped(cgp.StateSpaceGP(kernel(), 0.1), Z),
        lambda gp: of_online_process(gp, 2),
    ),
    "state_space_outliers": (
        lambda: process(cgp.StateSpaceGP, likelihood=cgp.likelihoods.StudentT(4.0)),
        of_process,
    ),
    "sliding": (
        lambda: stepped(cgp.RecursiveGP(kernel(), 0.1, capacity=5, forgetting=0.98), Z),
        lambda gp: of_online_process(gp, 2),
    ),
    "growing": (
        lambda: stepped(
            cgp.RecursiveGP(
                WidelyLinear(Matern32(1.0, 2.0), 0.3), 0.1, capacity=9, policy="growing"
            ),
            Z[1],
        ),
        lambda gp: of_online_process(gp),
    ),
    "budget": (
        lambda: stepped(cgp.RecursiveGP(kernel(), 0.1, capacity=4, policy="budget"), Z[0]),
        lambda gp: of_online_process(gp),
    ),
    "streams": (lambda: running(linear_model(), PAIRS, learn=("Q", "R")), of_filter),
    "streams_with_inputs": (
        lambda: running(linear_model(B=[[1.0], [0.5j]]), PAIRS),
        of_filter,
    ),
    "widely_linear": (
        lambda: running(
            statespace.widely_linear(linear_model(), pseudo_Q=np.diag([0.05j, 0.02])), PAIRS[0]
        ),
        of_filter,
    ),
    "phase": (phase, of_nonlinear_filter),
    "recurrent_filter": (
        lambda: recurrent(cgp.KalmanFilter(linear_model(), learn=("Q",)), PAIRS[:, :6]),
        lambda model: of_recurrent(model, PAIRS[:, 6:12]),
    ),
    "recurrent_window": (
        lambda: recurrent(cgp.RecursiveGP(kernel(), 0.1, capacity=4), *STREAMS),
        lambda model: of_recurrent(model, [STREAMS[0] + 7.0, STREAMS[1]]),
    ),
}

BANKS: dict[str, Callable[[], Any]] = {
    "bank_filter": lambda: cgp.KalmanFilter(linear_model()),
    "bank_window": lambda: cgp.RecursiveGP(kernel(), 0.1, capacity=4),
    "bank_process": lambda: cgp.StateSpaceGP(kernel(), 0.1),
}

# Estimators as SavedModels, and the arguments of a step.
EXPORTED: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "streams": (MODELS["streams"][0], (PAIRS[:, 5],)),
    "sliding": (MODELS["sliding"][0], (np.full((2, 1), LATER[0]), Z[:, 9])),
    "state_space": (MODELS["state_space"][0], (LATER[0], Z[:, 9])),
}


def of_exported(module: Any, sample: tuple[Any, ...]) -> Answers:
    """The results of a step of a SavedModel."""
    return {name: a.numpy() for name, a in module.step(*map(tf.constant, sample)).items()}


def write(folder: Path) -> None:
    """Writes all objects, and then their answers, which change them."""
    folder.mkdir()
    answers: dict[str, Answers] = {}
    for name, (make, ask) in MODELS.items():
        model = make()
        model.save(folder / f"{name}.keras")
        answers[name] = ask(model)
    for name, estimator in BANKS.items():
        made = bank(estimator())
        (folder / f"{name}.bytes").write_bytes(made.to_bytes())
        answers[name] = of_bank(made)
    for name, (make, sample) in EXPORTED.items():
        with tempfile.TemporaryDirectory() as path:
            make().export(path, verbose=False)
            answers[f"exported {name}"] = of_exported(tf.saved_model.load(path), sample)
            shutil.make_archive(str(folder / f"{name}.saved_model"), "zip", path)
    flat = {f"{name}: {key}": a for name, of in answers.items() for key, a in of.items()}
    np.savez_compressed(folder / "answers.npz", **flat)


if __name__ == "__main__":
    write(HERE / cgp.__version__)
