"""Value and gradient of an exact GP's likelihood, against a tape through a factorisation.

    python benchmarks/exact_gp.py [--quick]

Each way is one compiled function from the hyperparameters (five, of a carrier and a slow part, and
the noise) to the negative log marginal likelihood per point and its gradient: an evaluation as
L-BFGS makes it, each at a point of its own. A user without a complex library writes the real
composite; a complex tape is what TensorFlow gives to one who knows how. Times are in seconds;
errors are of the gradient, relative to that of the composite tape.

Everything runs on one core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import itertools

import numpy as np
import tensorflow as tf
from timing import compare, markdown, save

import cgp
from cgp.kernels import RBF, Matern32, Rotation
from cgp.training.objective import Objective


def problem(n, rng):
    x = np.sort(rng.uniform(0.0, n / 10, n))
    noise = rng.normal(size=n) + 1j * rng.normal(size=n)
    return x, np.exp(2j * np.pi * 0.3 * x) + 0.3 * noise


def evaluations(n, rng):
    """Functions of a vector of unconstrained hyperparameters that return value and gradient."""
    x, z = problem(n, rng)
    gp = cgp.ExactGP(Matern32(1.0, 2.0) * Rotation(0.3) + RBF(0.1, 3.0), noise_variance=0.2)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.condition(x, z)
    points, targets = tf.constant(x[:, None]), tf.constant(z)
    loss = Objective(gp, ((points, targets), None, None))
    composite_targets = tf.concat([tf.math.real(targets), tf.math.imag(targets)], axis=0)

    def composite():
        k = gp.kernel.covariance(points)
        c = cgp.linalg.to_composite(k, tf.zeros_like(k))
        c += 0.5 * gp.noise_variance.value * tf.eye(2 * n, dtype=tf.float64)
        chol = tf.linalg.cholesky(c)
        white = tf.linalg.triangular_solve(chol, composite_targets[:, None])
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
        return (0.5 * (tf.reduce_sum(white**2) + log_det) + n * np.log(2 * np.pi)) / n

    def complex_():
        k = gp.kernel.covariance(points)
        k += cgp.linalg.arguments.as_complex(gp.noise_variance.value * tf.eye(n, dtype=tf.float64))
        chol = tf.linalg.cholesky(k)
        white = tf.linalg.triangular_solve(chol, targets[:, None])
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.math.real(tf.linalg.diag_part(chol))))
        return (tf.reduce_sum(tf.abs(white) ** 2) + log_det + n * np.log(np.pi)) / n

    def taped(objective):
        @tf.function(autograph=False)
        def evaluate(point):
            loss.assign(point)
            with tf.GradientTape() as tape:
                y = objective()
            return y, tf.stack(tape.gradient(y, loss.variables))

        def call(point):
            y, gradient = evaluate(tf.constant(point))
            return float(y), gradient.numpy()

        return call

    functions = {
        "cgp": loss,
        "real composite tape": taped(composite),
        "complex tape": taped(complex_),
    }
    return functions, loss.start


def measure(n, seconds):
    functions, point = evaluations(n, np.random.default_rng(n))
    steps = itertools.count()  # at a point that it knows, cgp has the factor already

    def moving(f):
        return lambda: f(point * (1.0 + 1e-9 * next(steps)))

    timings = compare({name: moving(f) for name, f in functions.items()}, seconds, (5, 50))
    results = {name: f(point) for name, f in functions.items()}
    loss, slope = results["real composite tape"]
    row = {"n": n} | {name: t.median for name, t in timings.items()}
    row |= {f"first call of {name}": t.first for name, t in timings.items()}
    row |= {
        "error of value": abs(results["cgp"][0] - loss) / abs(loss),
        "error of gradient": float(
            np.linalg.norm(results["cgp"][1] - slope) / np.linalg.norm(slope)
        ),
    }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows = []
    for n in (50, 100) if quick else (100, 300, 1000, 2000):
        print(f"n = {n} …", flush=True)
        row = measure(n, 0.5 if quick else 10.0)
        rows.append(
            {
                "n": n,
                **{f"{name} / cgp": row[name] / row["cgp"] for name in list(row)[2:4]},
                **row,
            }
        )
    print(markdown(rows))
    if not quick:
        print(f"written to {save('exact_gp', rows, 'tensorflow-probability')}")


if __name__ == "__main__":
    main()
