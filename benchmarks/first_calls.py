"""What the first call of a process costs: what a user waits for who runs a script.

    python benchmarks/first_calls.py [--quick] [NAME ...]

Each case has a process of its own, which imports cgp and makes the data before the clock starts.
Seconds are of the processor, over all threads: compilers use several. The least of three processes
counts. The second call, on other data of the same shape, stands beside the first: the difference is
what tracing, compiling and loading take.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from bars import BARS
from timing import markdown, save


def normal(seed, *shape):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def model():
    from cgp import statespace

    return statespace.LinearGaussian(
        np.array([[0.95, 0.1], [-0.1, 0.95]]) * np.exp(0.2j),
        0.05 * np.eye(2),
        [[1.0, 0.0]],
        [[0.2]],
    )


def kernel():
    import cgp

    return cgp.kernels.Matern32(1.0, 2.0) * cgp.kernels.Rotation(frequency=0.1)


def filter_with_likelihood(seed):
    import cgp

    z = normal(seed, 200)
    cgp.statespace.filter(model(), z, likelihood=cgp.likelihoods.StudentT(4.0))


def step_with_likelihood(seed):
    import cgp

    kf = cgp.KalmanFilter(model(), likelihood=cgp.likelihoods.StudentT(4.0))
    for z in normal(seed, 10):
        kf.step(z)


def exact_fit_with_likelihood(seed):
    import cgp

    x = np.linspace(0.0, 10.0, 60)
    gp = cgp.ExactGP(kernel(), noise_variance=0.1, likelihood=cgp.likelihoods.StudentT(4.0))
    gp.fit(x, normal(seed, 60), verbose=0)


def state_space_fit_with_likelihood(seed):
    import cgp

    x = np.linspace(0.0, 30.0, 200)
    gp = cgp.StateSpaceGP(kernel(), noise_variance=0.1, likelihood=cgp.likelihoods.StudentT(4.0))
    gp.fit(x, normal(seed, 200), verbose=0)


def nuts(seed):
    import cgp

    x = np.linspace(0.0, 10.0, 50)
    gp = cgp.ExactGP(kernel(), noise_variance=0.1)
    gp.fit(x, normal(seed, 50), verbose=0)
    gp.sample_parameters(chains=1, draws=50, warmup=50, seed=1, verbose=0)


def compare(seed):
    import cgp

    x = np.linspace(0.0, 10.0, 60)
    models = {
        "turning": cgp.ExactGP(kernel()),
        "standing": cgp.ExactGP(cgp.kernels.Matern32(1.0, 2.0)),
    }
    cgp.compare(models, x, normal(seed, 60), verbose=0)


def adam(seed):
    import keras

    import cgp

    gp = cgp.ExactGP(kernel(), noise_variance=0.1)
    gp.compile(keras.optimizers.Adam(0.05))
    gp.fit(np.linspace(0.0, 10.0, 100), normal(seed, 100), epochs=5, verbose=0)


def lbfgs(seed):
    import cgp

    gp = cgp.ExactGP(kernel(), noise_variance=0.1)
    gp.fit(np.linspace(0.0, 10.0, 100), normal(seed, 100), verbose=0)


def filter_in_keras_model(seed):
    import keras

    import cgp

    inputs = keras.Input((100, 1), dtype="complex128")
    outputs = cgp.KalmanFilter(model(), learn=("Q", "R"))(inputs)
    net = keras.Model(inputs, outputs["filtered_mean"])
    net.compile(keras.optimizers.Adam(0.01))
    z = normal(seed, 8, 100, 1)
    net.fit(z, epochs=2, verbose=0)


def unequal_series(seed):
    import cgp

    rng = np.random.default_rng(seed)
    m = model()
    for length in rng.integers(50, 150, 100):
        cgp.statespace.log_likelihood(m, normal(seed, length))


def nonlinear_filter(seed):
    """A model of eight observed components, made of the same functions in both calls."""
    import tensorflow as tf

    from cgp import statespace

    rows = tf.constant(normal(seed, 8, 4).real)
    sensors = statespace.NonlinearGaussian(
        lambda x: 0.9 * x + 0.1 * tf.sin(x),
        lambda x: tf.sin(tf.linalg.matvec(rows, x)),
        Q=0.05 * np.eye(4),
        R=0.1 * np.eye(8),
        initial_mean=np.zeros(4),
        initial_covariance=np.eye(4),
    )
    statespace.filter(sensors, normal(seed, 200, 8).real)


def nonlinear_step(seed):
    import tensorflow as tf

    import cgp

    carrier = cgp.statespace.NonlinearGaussian(
        lambda x: tf.stack([x[..., 0] + x[..., 1], x[..., 1]], axis=-1),
        lambda x: tf.complex(tf.cos(x[..., :1]), tf.sin(x[..., :1])),
        Q=np.diag([1e-3, 1e-5]),
        R=[[0.1]],
        initial_mean=[0.0, 0.1],
        initial_covariance=np.diag([1.0, 1e-2]),
    )
    kf = cgp.KalmanFilter(carrier)
    for z in normal(seed, 10):
        kf.step(z)


CASES = {
    "filter with a likelihood": filter_with_likelihood,
    "step with a likelihood": step_with_likelihood,
    "ExactGP.fit with a likelihood": exact_fit_with_likelihood,
    "StateSpaceGP.fit of 200 with a likelihood": state_space_fit_with_likelihood,
    "NUTS, 50 draws": nuts,
    "compare two models": compare,
    "ExactGP.fit, five epochs of Adam": adam,
    "ExactGP.fit, L-BFGS": lbfgs,
    "KalmanFilter, 8 × 100, in a keras.Model, two epochs": filter_in_keras_model,
    "a hundred series of unequal length": unequal_series,
    "nonlinear filter of 8 components": nonlinear_filter,
    "nonlinear step": nonlinear_step,
}


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(name):
    import cgp  # noqa: F401

    function = CASES[name]
    warnings.simplefilter("ignore")  # of fits to noise
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for seed in (1, 2):
        start = processor_seconds()
        function(seed)
        seconds.append(processor_seconds() - start)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1e3
    return {"first call": seconds[0], "second call": seconds[1], "memory": grown}


def in_a_process(name):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, name).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one case once, nothing written")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of cases; or all")
    arguments = parser.parse_args()
    rows = []
    asked = next(bar.asked for bar in BARS if bar.script == "first_calls")
    names = arguments.names or (["L-BFGS"] if arguments.quick else [])
    for name in CASES:
        if names and not any(part in name for part in names):
            continue
        start = time.monotonic()
        runs = [in_a_process(name) for _ in range(1 if arguments.quick else 3)]
        least = min(runs, key=lambda run: run["first call"])
        rows.append({"case": name, "asked": asked[name], **least})
        print(
            f"{name}: {least['first call']:.1f} s, in {time.monotonic() - start:.0f} s", flush=True
        )
    print(markdown(rows))
    if not (arguments.quick or arguments.names):
        print("written to", save("first_calls", rows, unit="seconds, megabytes").name)


if __name__ == "__main__":
    main()
