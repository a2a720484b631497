"""Every op of the compiled core beside the same op of another checkout, in turns.

    python benchmarks/compiled_core.py --beside CHECKOUT [--quick] [NAME ...]

After a change in C++, where an op should be as fast as it was: CHECKOUT is a working tree of the
commit before, with its own `cgp/native/_ops*.so`. Each is loaded in a process of its own, and the
two work in turns, so that a busy moment of the machine falls on both. Public functions are called
once, and the calls that they make of compiled ops are recorded; these are then repeated by
themselves, on the same arrays. A row has the median ratio of pairs of turns, and the microseconds
of a call here and there. NAMEs are parts of the names of cases; all run if there are none.

Without CHECKOUT nothing is compared: each op is called once, and named.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # what is started from here, too

import argparse
import functools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np

DTYPES = ("complex128", "float64", "complex64", "float32")
TURNS = 9
SECONDS = 0.01  # of a turn
ON_THE_WAY = ("cgp_cholesky_factor", "cgp_cholesky_inverse")  # have cases of their own


# --- the cases: functions that call compiled ops --------------------------------------------------


def cases(quick):
    """Functions of no arguments by name; each makes the calls that are timed."""
    sizes = (2,) if quick else (1, 2, 3, 4, 5, 8, 16)
    for dtype in DTYPES:
        for n in sizes:
            yield from _series(dtype, n, 1, 100 if quick else 1000)
            yield f"online step, {dtype}, n = {n}", lambda d=dtype, n=n: _step(d, n, None)
            yield f"online steps of 64, {dtype}, n = {n}", lambda d=dtype, n=n: _step(d, n, 64)
            yield f"online walk, {dtype}, n = {n}", lambda d=dtype, n=n: _walk(d, n)
        for n in (2,) if quick else (1, 2, 4, 8):
            yield from _series(dtype, n, 64, 100)
            yield from _series(dtype, n, 64, 100, model_each=True)
            yield from _series(dtype, n, 1, 200, varying=True)
        for n in (8,) if quick else (8, 64, 512):
            yield from _updates(dtype, n)
    for dtype in ("complex128", "complex64"):
        for name in ("matern12", "matern32", "matern52", "sum", "sum of different turns"):
            for series in (1, 64):
                yield (
                    f"process likelihood and gradient, {dtype}, {name}, {series} series",
                    lambda d=dtype, k=name, s=series: _process(d, k, s, 100 if quick else 1000),
                )
        for improper in (False, True):
            for streams in (1, 16):
                form = "improper" if improper else "proper"
                yield (
                    f"window, {dtype}, {form}, {streams} streams",
                    lambda d=dtype, i=improper, s=streams: _window(d, i, s),
                )
        yield f"turn, {dtype}", lambda d=dtype: _turn(d)
    yield "samples of a process", _samples
    yield "discretisation of a process", _discretization


def _normal(rng, dtype, *shape):
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def _model(dtype, n, series=None):
    """A model of n states, or one for each series."""
    from cgp import statespace

    rng = np.random.default_rng(n)
    batch = () if series is None else (series, 1)  # one matrix for all times
    basis = np.linalg.qr(_normal(rng, dtype, *batch, n, n))[0]
    F = basis @ (np.linspace(0.8, 0.98, n)[:, None] * np.conj(np.swapaxes(basis, -1, -2)))
    root = _normal(rng, dtype, *batch, n, n) / n
    Q = root @ np.conj(np.swapaxes(root, -1, -2)) + 0.1 * np.eye(n)
    H = _normal(rng, dtype, 1, n)
    matrices = (a.astype(dtype) for a in (F, Q, H, np.array([[0.5]])))
    return statespace.LinearGaussian(*matrices, initial_covariance=np.eye(n).astype(dtype))


def _series(dtype, n, series, steps, model_each=False, varying=False):
    kind = "own models" if model_each else "varying" if varying else "one model"
    name = f"{dtype}, n = {n}, {series} series, {kind}"

    def arguments():
        rng = np.random.default_rng(1)
        model = _model(dtype, n, series if model_each else None)
        z = _normal(rng, dtype, *([series] if series > 1 else []), steps, 1)
        if varying:
            F = model.F.numpy() * np.linspace(0.9, 1, steps)[:, None, None]
            model = model.replace(F=F.astype(dtype))
        return model, z

    def likelihood():
        import tensorflow as tf

        from cgp import statespace

        model, z = arguments()
        matrices = [model.F, model.Q, model.H, model.R]
        with tf.GradientTape() as tape:
            tape.watch(matrices)
            made = statespace.LinearGaussian(*matrices, initial_covariance=model.initial_covariance)
            log_likelihood = tf.reduce_sum(statespace.log_likelihood(made, z))
        tape.gradient(log_likelihood, matrices)

    def smoother():
        from cgp import statespace

        statespace.smooth(*arguments())

    yield f"likelihood and gradient, {name}", likelihood
    yield f"smoother, {name}", smoother


def _step(dtype, n, streams):
    from cgp.statespace import native_step

    rng = np.random.default_rng(n)
    step = native_step.CompiledStep(native_step.step_matrices(_model(dtype, n)), streams)
    count = streams or 1
    z = _normal(rng, dtype, *([] if streams is None else [streams]), 1)
    chol = np.repeat(np.eye(n, dtype=dtype)[..., None], count, axis=-1)
    step(z, np.zeros((n, count), dtype), chol)


def _walk(dtype, n):
    from cgp.statespace import native_step

    rng = np.random.default_rng(n)
    model = _model(dtype, n)
    matrices = {name: getattr(model, name).numpy() for name in ("F", "Q_factor", "H", "R")}
    walk = native_step.CompiledWalk(False, False)
    slots = np.repeat(rng.permutation(100), 3)  # streams whose samples come in pieces of three
    state = np.zeros((100, n), dtype), np.broadcast_to(np.eye(n, dtype=dtype), (100, n, n)).copy()
    walk(matrices, _normal(rng, dtype, 300, 1), slots, *state)


def _updates(dtype, n):
    from cgp import linalg

    rng = np.random.default_rng(n)
    a = _normal(rng, dtype, n, n)
    a = a @ np.conj(a.T) + n * np.eye(n, dtype=dtype)  # the adjoint
    chol, v = np.linalg.cholesky(a), _normal(rng, dtype, n)
    buffer = np.eye(n + 1, dtype=dtype)  # of rows not in use the unit matrix
    buffer[:n, :n] = chol

    def with_gradient(f, *arguments):
        def run():
            import tensorflow as tf

            tensors = [tf.constant(x) for x in arguments]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = f(*tensors)
            tape.gradient(result, tensors)

        return run

    functions = {
        "update": with_gradient(linalg.cholesky_update, chol, v),
        "downdate": with_gradient(
            lambda chol, v: linalg.cholesky_update(chol, v, -1.0), chol, 0.1 * v
        ),
        "condition": with_gradient(
            lambda chol, v: linalg.cholesky_condition(chol, v, 0.5)[0], chol, v
        ),
        "append": with_gradient(lambda chol, v: linalg.cholesky_append(chol, v, 9.0 * n), chol, v),
        "append in a buffer": with_gradient(
            lambda chol, v: linalg.cholesky_append(chol, v, 9.0 * n, size=n),
            buffer,
            np.append(v, v[:1]),
        ),
        "remove": with_gradient(lambda chol: linalg.cholesky_remove(chol, n // 3), chol),
        "remove from a buffer": with_gradient(
            lambda chol: linalg.cholesky_remove(chol, n // 3, size=n), buffer
        ),
        "factor": lambda: linalg.cholesky(a),
        "inverse": lambda: linalg.inverse(chol),
    }
    for name, run in functions.items():
        yield f"{name}, {dtype}, n = {n}", run


def _kernel(name, real="float64"):
    from cgp.kernels import Matern12, Matern32, Matern52, Rotation

    Matern12, Matern32, Matern52, Rotation = (
        functools.partial(kernel, dtype=real) for kernel in (Matern12, Matern32, Matern52, Rotation)
    )
    turn = Rotation(frequency=0.1)
    made = {
        "matern12": lambda: Matern12(1.0, 5.0) * turn,
        "matern32": lambda: Matern32(1.0, 5.0) * turn,
        "matern52": lambda: Matern52(1.0, 5.0) * turn,
        "sum": lambda: (Matern32(1.0, 5.0) + Matern52(1.0, 20.0)) * turn,
        "sum of different turns": lambda: (
            Matern32(1.0, 5.0) * turn + Matern12(1.0, 9.0) * Rotation(frequency=-0.2)
        ),
    }
    return made[name]()


def _process(dtype, kernel, series, steps):
    import tensorflow as tf

    import cgp

    rng = np.random.default_rng(0)
    real = np.zeros(0, dtype).real.dtype.name
    gp = cgp.StateSpaceGP(_kernel(kernel, real), noise_variance=0.1, dtype=real)
    x = np.cumsum(rng.uniform(0.5, 1.5, steps)).astype(real)
    z = _normal(rng, dtype, *([series] if series > 1 else []), steps)
    with tf.GradientTape() as tape:
        log_likelihood = tf.reduce_sum(gp.log_marginal_likelihood(x, z))
    tape.gradient(log_likelihood, gp.trainable_variables)


def _window(dtype, improper, streams):
    import tensorflow as tf

    import cgp
    from cgp.gp.recursive import native_scan
    from cgp.kernels import RBF, WidelyLinear

    rng = np.random.default_rng(0)
    real = np.zeros(0, dtype).real.dtype.name
    kernel = RBF(1.0, 5.0, dtype=real)
    if improper:
        kernel = WidelyLinear(kernel, coefficient=0.3, dtype=real)
    gp = cgp.RecursiveGP(kernel, capacity=32, noise_variance=0.1, dtype=real)
    axes = [] if streams == 1 else [streams]
    x, z = np.arange(96.0, dtype=real), _normal(rng, dtype, *axes, 96)
    gp.process(x, z)
    empty = gp.cell.recursion.empty(streams, 1, real)
    places = np.broadcast_to(x[:, None], (streams, 96, 1))
    native_scan.scan(gp.cell.recursion, empty, *map(tf.constant, (places, z.reshape(streams, 96))))


def _turn(dtype):
    from cgp.kernels import Rotation

    real = np.zeros(0, dtype).real.dtype.name
    x = np.linspace(0, 9, 300).astype(real)
    Rotation(frequency=0.3, dtype=real).moments_matrix(x[:, None], x[:, None])


def _samples():
    import cgp

    gp = cgp.StateSpaceGP(_kernel("sum"), noise_variance=0.1)
    x = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 300))
    gp.process(x, np.ones(300, complex))


def _discretization():
    import tensorflow as tf

    from cgp import native
    from cgp.gp.state_space.native_likelihood import numbers_of

    terms = numbers_of(_kernel("sum").markov_terms())
    steps = np.random.default_rng(0).uniform(0.5, 1.5, 300)
    native.op("cgp_markov_discretize")(*terms, steps=tf.constant(steps))


# --- a process that has loaded one core -----------------------------------------------------------


def record(run):
    """The calls of compiled ops that a function makes, by the name of the op, and what it returns.

    Of plain C functions it is the call of the method around them, which keeps arrays in memory; but
    that of a step would take longer than the step.
    """
    from cgp import native
    from cgp.gp.recursive.window_cell import CompiledWindow
    from cgp.statespace.native_step import CompiledStep, CompiledWalk

    calls = {}

    def noted(name, f):
        def call(*arguments, **named):
            calls.setdefault(name, lambda: f(*arguments, **named))
            return f(*arguments, **named)

        return call

    op = native.op
    with (
        mock.patch.object(native, "op", lambda name: noted(name, op(name))),
        mock.patch.object(CompiledWindow, "take", noted("window", CompiledWindow.take)),
        mock.patch.object(CompiledStep, "__call__", noted("step", _step_alone)),
        mock.patch.object(CompiledWalk, "__call__", noted("walk", CompiledWalk.__call__)),
    ):
        run()
    return calls


def _step_alone(step, z, mean, chol):
    step._given.mean, step._given.chol = mean.ctypes.data, chol.ctypes.data
    step._function(step._argument)


def work(quick):
    """Reads requests of one line each, and answers each with one."""
    import keras  # noqa: F401  before the clock starts

    made = dict(cases(quick))
    calls = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            calls = record(made[request["case"]])
            answer = sorted(calls)
            for f in calls.values():
                f()
        else:
            f = calls[request["op"]]
            start = time.perf_counter()
            for _ in range(request["calls"]):
                f()
            answer = time.perf_counter() - start
        print(json.dumps(answer), file=sys.__stdout__, flush=True)


class Core:
    """A process that has loaded the compiled core of a checkout."""

    def __init__(self, checkout, quick):
        command = [sys.executable, str(Path(__file__).resolve()), "--work"]
        self._process = subprocess.Popen(
            [*command, *["--quick"] * quick],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1"},
        )

    def ask(self, **request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended; it was asked {request}")
        return json.loads(line)

    def seconds(self, op, calls):
        return self.ask(op=op, calls=calls)


def compare(here, there, op):
    """Microseconds of a call here and there, and the median of their ratios, pair by pair."""
    calls = max(1, round(SECONDS / max(here.seconds(op, 1), 1e-7)))
    calls = max(1, round(calls * SECONDS / max(here.seconds(op, calls), 1e-7)))
    pairs = []
    for turn in range(TURNS):
        order = (here, there) if turn % 2 else (there, here)
        seconds = {core: core.seconds(op, calls) / calls for core in order}
        pairs.append((seconds[here], seconds[there]))
    fastest = [min(times) * 1e6 for times in zip(*pairs, strict=True)]
    return *fastest, statistics.median(a / b for a, b in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of cases")
    parser.add_argument("--beside", metavar="CHECKOUT", help="the other working tree")
    parser.add_argument("--quick", action="store_true", help="smallest sizes")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments.quick)
    here = Core(Path(__file__).resolve().parent.parent, arguments.quick)
    there = arguments.beside and Core(arguments.beside, arguments.quick)
    worst = {}
    for case, _ in cases(arguments.quick):
        if arguments.names and not any(name in case for name in arguments.names):
            continue
        ops = here.ask(case=case)
        ops = [op for op in ops if op not in ON_THE_WAY] or ops
        if not there:
            print(f"{case}: {', '.join(ops)}", flush=True)
            continue
        there.ask(case=case)
        for op in ops:
            new, old, ratio = compare(here, there, op)
            line = f"{ratio:5.2f}  {new:10.1f} {old:10.1f} us  {op}: {case}"
            print(line, flush=True)
            worst[line] = ratio
    print("slowest:", *sorted(worst, key=worst.get)[-12:], sep="\n")


if __name__ == "__main__":
    main()
