"""Kalman filters: log likelihood, its gradient, the whole filter, and one step.

    python benchmarks/kalman_filter.py [--quick] [--peers PYTHON]

A complex model of n states and one observation a step, all modes damped, noise in every state. cgp
filters it as it is. The others transpose where they must conjugate, or refuse: they are given the
real composite, of 2n states and two observations, which has the same likelihood. All start from the
stationary covariance, and all get their matrices as arguments, since a compiler folds constants.

statsmodels, dynamax and filterpy run in a process of their own (`kalman_peers.py`), under the
interpreter PYTHON, as dynamax and cgp cannot be installed side by side:

    python -m venv peers && peers/bin/pip install statsmodels dynamax filterpy
    python benchmarks/kalman_filter.py --peers peers/bin/python

Of those that cannot be imported there the table says "absent"; "–" is what one does not offer.
filterpy and statsmodels take one series at a time; of filterpy only that one is timed. statsmodels
stops updating a covariance that has settled. It is timed as it comes, with the univariate filter,
and with the Chandrasekhar recursion, of which the latter two leave the covariance as rounding
leaves it (`stability_method = 0`): in this problem that is faster and no less exact. `TFP` is
`LinearGaussianStateSpaceModel`, compiled by XLA, with a tape. Throughput is in million steps a
second, series counted each. Errors are of the log likelihood of the first series, and of the
derivative of the sum over series in a random direction of F, Q, H and R, relative, against a
textbook recursion in 80-bit arithmetic.

Everything runs on one core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # what is started from here, too

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from kalman_peers import MATRICES, STEPS
from kalman_problem import composite, problem, reference, slope_of_reference
from timing import Timing, compare, markdown, save

import cgp
from cgp import statespace

STATES = [2, 4, 8, 16]
SERIES = {1: 10_000, 32: 1000, 1000: 100}  # number of series, and how long they are
SHORT, LONG = 2000, 10_000  # lengths between which the cost should be linear

QUANTITIES = ("value", "value and gradient", "filter")
STATSMODELS = ("statsmodels", "statsmodels univariate", "statsmodels Chandrasekhar")
NAMES = ("cgp", *STATSMODELS, "dynamax", "TFP", "filterpy")


# --- cgp and TensorFlow Probability, here --------------------------------------------------------


def by_cgp(p):
    matrices = [tf.constant(p[name]) for name in MATRICES]
    p0, z = tf.constant(p["initial_covariance"]), tf.constant(p["z"])

    def model(matrices):
        return statespace.LinearGaussian(*matrices, initial_covariance=p0)

    made = model(matrices)

    def value_and_gradient():
        with tf.GradientTape() as tape:
            tape.watch(matrices)
            values = statespace.log_likelihood(model(matrices), z)
            total = tf.reduce_sum(values)
        return values[0].numpy(), _along(tape.gradient(total, matrices), p)

    return {
        "value": lambda: statespace.log_likelihood(made, z)[0].numpy(),
        "value and gradient": value_and_gradient,
        "filter": lambda: statespace.filter(made, z).log_likelihood[0].numpy(),
    }


def by_tfp(p):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_probability as tfp
    normal = tfp.distributions.MultivariateNormalTriL
    n, m, length = len(p["F"]), len(p["H"]), p["z"].shape[1]
    zeros = np.zeros

    def model(f, q, h, r, p0):
        cholesky = tf.linalg.cholesky
        return tfp.distributions.LinearGaussianStateSpaceModel(
            num_timesteps=length,
            transition_matrix=f,
            transition_noise=normal(zeros(n), cholesky(q)),
            observation_matrix=h,
            observation_noise=normal(zeros(m), cholesky(r)),
            initial_state_prior=normal(zeros(n), cholesky(p0)),
        )

    @tf.function(jit_compile=True)
    def log_likelihood(matrices, p0, z):
        return model(*matrices, p0).log_prob(z)

    @tf.function(jit_compile=True)
    def gradient(matrices, p0, z):
        with tf.GradientTape() as tape:
            tape.watch(matrices)
            values = model(*matrices, p0).log_prob(z)
            total = tf.reduce_sum(values)
        return values, tape.gradient(total, matrices)

    @tf.function(jit_compile=True)
    def filtered(matrices, p0, z):
        return model(*matrices, p0).forward_filter(z)

    matrices = [tf.constant(p[name]) for name in MATRICES]
    arguments = matrices, tf.constant(p["initial_covariance"]), tf.constant(p["z"])

    def value_and_gradient():
        values, gradients = gradient(*arguments)
        return values[0].numpy(), _along(gradients, p)

    return {
        "value": lambda: log_likelihood(*arguments)[0].numpy(),
        "value and gradient": value_and_gradient,
        "filter": lambda: float(tf.reduce_sum(filtered(*arguments)[0][0])),
    }


def _along(gradients, p):
    """The derivative in the direction of the problem."""
    pairs = zip(gradients, MATRICES, strict=True)
    return float(sum(np.sum(np.conj(g) * p["d_" + name]).real for g, name in pairs))


# --- the others, in another process --------------------------------------------------------------


class Asked(NamedTuple):
    """A function of another library, timed in its process, as messages take 0.1 ms."""

    peers: "Peers"
    way: str

    def __call__(self):
        return self.peers.ask(way=self.way, calls=1)["result"]

    def seconds(self, calls):
        return self.peers.ask(way=self.way, calls=calls)["seconds"]


class Peers:
    """The process of `kalman_peers.py`, and its last problem."""

    def __init__(self, python):
        script = Path(__file__).with_name("kalman_peers.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([python, str(script)], text=True, **pipes)
        self.folder = tempfile.TemporaryDirectory()
        self.versions, self.absent = {}, {}

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of the peers ended; it was asked {request}")
        return json.loads(answer)

    def take(self, p):
        """Functions of no arguments by "peer: quantity"."""
        path = str(Path(self.folder.name) / "problem.npz")
        np.savez(path, **p)
        answer = self.ask(problem=path)
        self.versions, self.absent = answer["versions"], answer["absent"]
        return {way: Asked(self, way) for way in answer["ways"]}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


# --- measuring -----------------------------------------------------------------------------------


def ways_of(p, peers):
    real = composite(p)
    ways = {f"cgp: {quantity}": f for quantity, f in by_cgp(p).items()}
    ways |= {f"TFP: {quantity}": f for quantity, f in by_tfp(real).items()}
    return ways | peers.take(real)


def throughput(n, series, length, peers, seconds):
    """Rows of steps a second, of errors, and of first calls, one for each quantity."""
    p = problem(n, series, length)
    ways = ways_of(p, peers)
    likelihoods, slope = reference(p), slope_of_reference(p)
    rows, errors, firsts = [], [], []
    for quantity in QUANTITIES:
        chosen = {
            name: ways[f"{name}: {quantity}"] for name in NAMES if f"{name}: {quantity}" in ways
        }
        timings = compare(chosen, seconds, rounds=(3, 50))
        key = {"": quantity, "n": n, "series": series, "steps": length}

        def cells(entries, absent, key=key):
            return key | {name: entries.get(name, absent.get(name, "–")) for name in NAMES}

        absent = dict.fromkeys(peers.absent, "absent")
        rate = {name: series * length * 1e-6 / t.median for name, t in timings.items()}
        rows.append(cells(rate, absent))
        firsts.append(cells({name: t.first for name, t in timings.items()}, absent))
        if quantity == "filter":
            continue
        results = {name: f() for name, f in chosen.items()}
        if quantity == "value":
            off = {name: abs(float(v - likelihoods[0])) for name, v in results.items()}
            errors.append(cells(off, absent) | {"": "log likelihood"})
        else:
            off = {name: abs(v[1] / slope - 1) for name, v in results.items()}
            errors.append(cells(off, absent) | {"": "gradient"})
    return rows, errors, firsts


def step(n, peers, seconds):
    """Microseconds for a step from Python; a loop of NumPy, for what there is to do."""
    p = problem(n, 1, STEPS)
    layer = cgp.KalmanFilter(
        statespace.LinearGaussian(
            *(p[name] for name in MATRICES), initial_covariance=p["initial_covariance"]
        )
    )
    z = p["z"][0]
    ways = {"cgp": _repeat(layer.step, z), "NumPy": _repeat(_textbook(p), z)}
    of_peers = peers.take(composite(p))
    if "filterpy: step" in of_peers:
        ways["filterpy"] = of_peers["filterpy: step"]
    timings = compare(ways, seconds, rounds=(3, 50))
    row = {"n": n} | {name: t.median * 1e6 / STEPS for name, t in timings.items()}
    return row | {f"first {STEPS} of cgp, s": timings["cgp"].first}


def _repeat(function, z):
    def run():
        for z_t in z:
            function(z_t)

    return run


def _textbook(p):
    f, q, h, r = (p[name] for name in MATRICES)
    f_h, h_h = f.conj().T, h.conj().T
    state = [np.zeros(len(f), complex), p["initial_covariance"]]

    def step(z_t):
        mean, cov = state
        cross = cov @ h_h
        gain = cross / (h @ cross + r)
        mean = mean + gain @ (z_t - h @ mean)
        cov = f @ (cov - gain @ cross.conj().T) @ f_h + q
        state[:] = f @ mean, (cov + cov.conj().T) / 2  # it would drift away, and diverge

    return step


def growth(n, seconds):
    """How the cost of value and gradient grows with the length, and its ratio to the value's."""
    timings: dict[int, dict[str, Timing]] = {}
    for length in (SHORT, LONG):
        ways = by_cgp(problem(n, 1, length))
        chosen = {quantity: ways[quantity] for quantity in QUANTITIES}
        timings[length] = compare(chosen, seconds, rounds=(5, 50))
    with_gradient, value, filtered = (
        {length: t[quantity].median for length, t in timings.items()}
        for quantity in ("value and gradient", "value", "filter")
    )
    return {
        "n": n,
        "gradient / value": with_gradient[LONG] / value[LONG],
        "gradient / filter": with_gradient[LONG] / filtered[LONG],
        f"a step of {LONG} / of {SHORT}": with_gradient[LONG] / with_gradient[SHORT] * SHORT / LONG,
        # With the first length everything is compiled, if it has been called at all.
        "first call, s": timings[SHORT]["value and gradient"].first,
        "first of another length, s": timings[LONG]["value and gradient"].first,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has the others")
    arguments = parser.parse_args()
    quick = arguments.quick
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    states, seconds = (STATES[:1], 0.1) if quick else (STATES, 1.0)
    lengths = {1: 500} if quick else SERIES
    peers = Peers(arguments.peers)

    growths = [growth(n, seconds) for n in ([] if quick else states)]
    rows, errors, firsts = [], [], []
    for n in states:
        for series, length in lengths.items():
            print(f"{n} states, {series} series", flush=True)
            measured = throughput(n, series, length, peers, seconds)
            for table, more in zip((rows, errors, firsts), measured, strict=True):
                table += more
    steps = [step(n, peers, seconds) for n in states]
    peers.close()

    print("million steps a second\n\n" + markdown(_sorted(rows)))
    print("\nerrors\n\n" + markdown(_sorted(errors)))
    print("\nfirst calls, seconds\n\n" + markdown(_sorted(firsts)))
    print("\na step from Python, microseconds\n\n" + markdown(steps))
    if quick:
        return
    print("\n" + markdown(growths))
    notes = {"unit": "million steps a second", "cores": 1, "versions of peers": peers.versions}
    tables = {"errors": errors, "first calls": firsts, "steps": steps, "growth": growths}
    print("written to", save("kalman_filter", rows, **notes, **tables).name)


def _sorted(rows):
    """The rows, grouped by quantity."""
    order = list(dict.fromkeys(row[""] for row in rows))
    return sorted(rows, key=lambda row: order.index(row[""]))


if __name__ == "__main__":
    main()
