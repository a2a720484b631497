"""Rank-one updates and downdates of a complex factor, against factorising again.

    python benchmarks/rank_one_updates.py [--quick]

Each way is given what it would have at hand: the update the factor, the others the matrix, to which
they add v vᴴ before they factorise it. `cgp` is the public function called eagerly, with tensors,
which the compiled core serves; `graph` the same in a `tf.function`, in plain TensorFlow; `copy` is
a copy of n (n + 1) / 2 elements, the least that a new factor can cost. SciPy is given the matrix in
the order of LAPACK, and no checks. Times are in microseconds for a call. Backward errors are
relative, ‖L'L'ᴴ − (A ± v vᴴ)‖ / ‖A‖ in the Frobenius norm, estimated in 80-bit arithmetic.

Gradients are those of a linear function of the new factor, with respect to the old factor and v, of
a factorisation with respect to the matrix and v, which must agree for v. The update is called
eagerly, under a tape; the factorisation is compiled with its tape, which is faster.

Everything runs on one thread: the threads of OpenBLAS wait by spinning, so that on a machine with
other work the figures would tell of that work.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse

import numpy as np
import scipy.linalg
import tensorflow as tf
from timing import compare, markdown, save, with_ratios

import cgp

GRADIENTS = [128, 512]
SIZES = [8, 16, 32, 64, 128, 256, 512, 1024, 2048]


def problem(n, rng):
    """A carrier's Gram matrix of condition 1e8, and a v that may be added or taken away."""
    lag = np.subtract.outer(np.linspace(0, 1, n), np.linspace(0, 1, n))
    gram = np.exp(-0.5 * (lag / 0.2) ** 2 + 6j * np.pi * lag) + 1e-8 * n * np.eye(n)
    chol = np.linalg.cholesky(gram)
    w = rng.normal(size=n) + 1j * rng.normal(size=n)
    return chol @ chol.conj().T, chol, chol @ w * (0.9 / np.linalg.norm(w))


def backward_error(new, chol, v, sign, rng):
    """From its action on random vectors, in O(n²): E‖E x‖² = ‖E‖² for white x."""
    new, chol, v = (np.asarray(a).astype(np.clongdouble) for a in (new, chol, v))
    x = rng.normal(size=(len(v), 8)).astype(np.clongdouble)

    def apply(factor):
        return factor @ (np.conj(np.swapaxes(factor, 0, 1)) @ x)

    before = apply(chol)
    gap = apply(new) - before - sign * np.outer(v, np.conj(v) @ x)
    return float(np.linalg.norm(gap.astype(complex)) / np.linalg.norm(before.astype(complex)))


def measure(n, sign, seconds):
    rng = np.random.default_rng(n)
    a, chol, v = problem(n, rng)
    a_tensor, chol_tensor, v_tensor = (tf.constant(x) for x in (a, chol, v))
    a_fortran = np.asfortranarray(a)

    @tf.function(autograph=False)
    def update(chol, v):
        return cgp.linalg.cholesky_update(chol, v, sign)

    @tf.function(autograph=False)
    def refactor(a, v):
        return tf.linalg.cholesky(a + sign * v[:, None] * tf.math.conj(v)[None, :])

    def lapack():
        moved = scipy.linalg.blas.zher(sign, v, a=a_fortran, lower=1)
        return scipy.linalg.lapack.zpotrf(moved, lower=1, clean=1, overwrite_a=1)[0]

    triangle, copied = np.ones(n * (n + 1) // 2, complex), np.ones(n * (n + 1) // 2, complex)
    functions = {
        "cgp": lambda: cgp.linalg.cholesky_update(chol_tensor, v_tensor, sign),
        "graph": lambda: update(chol_tensor, v_tensor),
        "TensorFlow": lambda: refactor(a_tensor, v_tensor),
        "SciPy": lapack,
        "copy": lambda: np.copyto(copied, triangle),
    }
    timings = compare(functions, seconds)
    errors = {
        f"error {name}": backward_error(f(), chol, v, sign, rng)
        for name, f in functions.items()
        if name != "copy"
    }
    row = {"n": n, "operation": "update" if sign > 0 else "downdate"}
    row |= {name: timing.median * 1e6 for name, timing in timings.items()}
    row |= {"first call of cgp": timings["cgp"].first * 1e6}
    return row | errors


def measure_gradient(n, seconds):
    rng = np.random.default_rng(n)
    a, chol, v = (tf.constant(x) for x in problem(n, rng))
    weight = tf.constant(np.tril(rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))))

    def update():
        with tf.GradientTape() as tape:
            tape.watch([chol, v])
            new = cgp.linalg.cholesky_update(chol, v)
        return new, tape.gradient(new, [chol, v], output_gradients=weight)

    @tf.function(autograph=False)
    def refactor(a, v):
        with tf.GradientTape() as tape:
            tape.watch([a, v])
            new = tf.linalg.cholesky(a + v[:, None] * tf.math.conj(v)[None, :])
        return new, tape.gradient(new, [a, v], output_gradients=weight)

    functions = {"cgp": update, "Cholesky tape": lambda: refactor(a, v)}
    timings = compare(functions, seconds)
    gradient, reference = (f()[1][1].numpy() for f in functions.values())
    row = {"n": n} | {name: timing.median * 1e6 for name, timing in timings.items()}
    row = with_ratios(row, ["cgp"], "Cholesky tape")
    row |= {f"first call of {name}": t.first * 1e6 for name, t in timings.items()}
    return row | {"error": float(np.linalg.norm(gradient - reference) / np.linalg.norm(reference))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    seconds = 0.1 if quick else 1.0
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows = []
    for sign in (1.0, -1.0):
        for n in SIZES[:3] if quick else SIZES:
            row = measure(n, sign, seconds)
            for library in ("TensorFlow", "SciPy", "copy"):
                row |= with_ratios(row, ["cgp"], library)
            rows.append(row)
    gradients = [measure_gradient(n, seconds) for n in (SIZES[:3] if quick else GRADIENTS)]
    print(markdown(rows))
    print("\nwith gradients\n\n" + markdown(gradients))
    if not quick:
        notes = {"unit": "microseconds", "threads": 1, "gradients": gradients}
        print("written to", save("rank_one_updates", rows, **notes).name)


if __name__ == "__main__":
    main()
