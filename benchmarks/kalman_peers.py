"""Other Kalman filters on a real problem, in a process of their own.

`kalman_filter.py` starts this file with an interpreter that has them: dynamax brings a nightly
build of TensorFlow Probability, which takes the place of the release that cgp needs. The two talk
in lines of JSON. First a problem is named, an `.npz` of what a `LinearGaussian` has, all real, `z`
of shape `[B, T, M]`, and `d_F`, `d_Q`, `d_H`, `d_R`, a direction to differentiate in. The answer
names the ways there are. Then each line asks for one of them, so many times.

A way returns the log likelihood of the first series; "value and gradient" also its derivative in
the direction, from the gradient by F, Q, H and R, the series counted together.
"""

import json
import os
import sys
import time

# On one thread, as all the others.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np

MATRICES = ("F", "Q", "H", "R")
STEPS = 100  # steps to a call of the way "step"


def by_statsmodels(p, *methods):
    from statsmodels.tsa.statespace import kalman_filter

    def model(z):
        made = kalman_filter.KalmanFilter(
            k_endog=z.shape[1],
            k_states=len(p["F"]),
            design=p["H"],
            obs_cov=p["R"],
            transition=p["F"],
            selection=np.eye(len(p["F"])),
            state_cov=p["Q"],
        )
        made.bind(z)
        made.initialize_known(np.zeros(len(p["F"])), p["initial_covariance"])
        if methods:
            made.filter_method = sum(getattr(kalman_filter, name) for name in methods)
            made.stability_method = 0  # else it makes the covariance symmetric at every step
        return made

    # Series by series, as it knows no batch.
    models = [model(z) for z in p["z"]]

    def log_likelihood():
        values = [m.loglike() for m in models]
        return values[0]

    def filtered():
        # Each result is dropped before the next: a thousand would fill gigabytes.
        values = [m.filter().llf for m in models]
        return values[0]

    return {"value": log_likelihood, "filter": filtered}


def by_filterpy(p):
    from filterpy.kalman import KalmanFilter

    n, m = len(p["F"]), len(p["H"])
    if len(p["z"]) > 1:
        return {}  # it would take as long for each series

    def fresh():
        kf = KalmanFilter(dim_x=n, dim_z=m)
        kf.F, kf.Q, kf.H, kf.R = (p[name].copy() for name in MATRICES)
        kf.x, kf.P = np.zeros(n), p["initial_covariance"].copy()
        return kf

    z = p["z"][0]

    def log_likelihood():
        kf, total = fresh(), 0.0
        for z_t in z:
            kf.update(z_t)
            total += kf.log_likelihood
            kf.predict()
        return total

    def filtered():
        fresh().batch_filter(z, update_first=True)
        return None

    going = fresh()

    def step():
        for z_t in z[:STEPS]:
            going.update(z_t)
            going.predict()

    return {"value": log_likelihood, "filter": filtered, "step": step}


def by_dynamax(p):
    import jax

    jax.config.update("jax_enable_x64", True)
    from dynamax.linear_gaussian_ssm.inference import lgssm_filter, make_lgssm_params

    mean = np.zeros(len(p["F"]))

    def run(matrices, p0, z):
        f, q, h, r = matrices
        return lgssm_filter(make_lgssm_params(mean, p0, f, q, h, r), z)

    batched = jax.vmap(run, (None, None, 0))
    # Covariances, which all series share, once: for each series they would be most of the time.
    matrices = tuple(p[name] for name in MATRICES)
    shapes = jax.eval_shape(run, matrices, p["initial_covariance"], p["z"][0])
    there = {name: a for name, a in shapes._asdict().items() if a is not None}
    axes = {name: None if name.endswith("covariances") else 0 for name in there}
    filtered = jax.jit(jax.vmap(run, (None, None, 0), shapes._replace(**axes)))
    log_likelihood = jax.jit(lambda *a: batched(*a).marginal_loglik)
    with_gradient = jax.jit(
        jax.value_and_grad(
            lambda *a: (lambda ll: (ll.sum(), ll))(batched(*a).marginal_loglik), has_aux=True
        )
    )
    arguments = tuple(p[name] for name in MATRICES), p["initial_covariance"], p["z"]
    arguments = jax.device_put(arguments)

    def value_and_gradient():
        (_, ll), gradients = with_gradient(*arguments)
        pairs = zip(gradients, MATRICES, strict=True)
        return float(ll[0]), float(sum(np.sum(g * p["d_" + name]) for g, name in pairs))

    return {
        "value": lambda: float(log_likelihood(*arguments)[0]),
        "value and gradient": value_and_gradient,
        "filter": lambda: float(jax.block_until_ready(filtered(*arguments)).marginal_loglik[0]),
    }


UNIVARIATE = ("FILTER_UNIVARIATE",)  # one observation after the other: no matrix to invert
CHANDRASEKHAR = ("FILTER_UNIVARIATE", "FILTER_CHANDRASEKHAR")  # for a start that is stationary
PEERS = {
    "statsmodels": by_statsmodels,
    "statsmodels univariate": lambda p: by_statsmodels(p, *UNIVARIATE),
    "statsmodels Chandrasekhar": lambda p: by_statsmodels(p, *CHANDRASEKHAR),
    "dynamax": by_dynamax,
    "filterpy": by_filterpy,
}
PACKAGES = ("statsmodels", "dynamax", "filterpy", "jax", "numpy")


def ways_of(path):
    with np.load(path) as file:
        problem = {name: file[name] for name in file}
    ways, absent = {}, {}
    for name, make in PEERS.items():
        try:
            for quantity, function in make(problem).items():
                ways[f"{name}: {quantity}"] = function
        except ImportError as error:
            absent[name] = str(error)
    return ways, absent


def serve():
    ways = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "problem" in request:
            ways, absent = ways_of(request["problem"])
            answer = {"ways": list(ways), "absent": absent, "versions": versions()}
        else:
            start = time.perf_counter()
            for _ in range(request["calls"]):
                result = ways[request["way"]]()
            answer = {"seconds": time.perf_counter() - start, "result": result}
        print(json.dumps(answer), flush=True)


def versions():
    from importlib.metadata import PackageNotFoundError, version

    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = None
    return installed


if __name__ == "__main__":
    serve()
