"""One fit over many machines: hyperparameters that drifting buoys share, learned with Dask.

Surface drifters measure the velocity of the ocean, u + iv, each along its own path and at its own
times. They are moved by inertial oscillations, which rotate at the Coriolis frequency and decay
within days, and by a slow background. The example estimates what they have in common, the damping
and the variance of the oscillations (A. M. Sykulski, S. C. Olhede, J. M. Lilly & E. Danioux, J. R.
Stat. Soc. C 65, 2016). One drifter contains little information on these. All of them contain more,
and may not fit on one machine.

The log likelihood of many series is a sum, and so is its gradient. `fit(shards, engine=client)` has
Dask compute the terms where the shards are, and maximises the sum. Any object that maps a function
over a list is an engine: `map`, an executor of `concurrent.futures`, a Dask `Client`, a Ray pool,

    from ray.util.multiprocessing import Pool
    gp.fit(shards, engine=Pool(address="auto"))

Three habits make it robust:

    make shards by tasks    client.map(read, paths): what a lost worker held is then made again.
                            Data that were scattered from here are lost with it
    one thread a worker     the model of a process serves one thread at a time
    start workers afresh    by spawn, as Dask does: a process that is forked after TensorFlow has
                            run hangs

The parts are added up in the order of the shards, not in the order in which they arrive. So a
worker that is killed in the middle of the fit changes nothing, to the last bit.

Here the cluster is two processes on this machine; use `Client("tcp://scheduler:8786")` for a
cluster of machines. Expect a worker to need some 4 s of processor time and 0.8 GB before its first
term. Expect the error of a joint fit to be smaller than that of the mean of separate fits, the
usual practice: separate estimates of damping are skewed, and a mean does not correct that.

Run it with: python examples/dask_fit.py (a minute; needs pip install "cgp[dask]")
"""

import os
import signal
import time
import warnings

import keras
import numpy as np

import cgp
from cgp.kernels import Matern12, Matern32, Rotation

DRIFTERS, ALONE, HOURS = 40, 12, 400.0
TRUTH = {  # cm²/s² and hours; cycles per hour; cm²/s² and hours; cm²/s²
    "oscillation": (150.0, 40.0),
    "frequency": -0.06,
    "background": (100.0, 60.0),
    "noise": 4.0,
}
START = {
    "oscillation": (50.0, 20.0),
    "frequency": -0.05,
    "background": (50.0, 100.0),
    "noise": 1.0,
}


def process(oscillation, frequency, background, noise):
    """The model of a velocity: inertial oscillations, a background, and errors of position."""
    inertial = Matern12(*oscillation, name="oscillation") * Rotation(frequency, name="inertial")
    gp = cgp.StateSpaceGP(inertial + Matern32(*background, name="background"), noise)
    gp.compile(cgp.optimizers.LBFGS())
    return gp


def drifter(seed):
    """Times (h) and velocities (cm/s) of one drifter: what `read(path)` would be of real ones."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.exponential(1.0, round(HOURS * rng.uniform(0.5, 1.5))))
    z = process(**TRUTH).sample(t, 1, seed=seed, observed=True)[0]
    z[rng.random(len(t)) < 0.05] = np.nan
    return t, z


def timed_fit(shards, engine, callbacks=None):
    """A joint fit; what it learns, its loss, and its seconds."""
    gp, start = process(**START), time.perf_counter()
    history = gp.fit(shards, engine=engine, callbacks=callbacks, verbose=0)
    return gp.parameters(), history.history["loss"], time.perf_counter() - start


def killing(client):
    """A callback that kills a worker after the third iteration, as a machine that fails."""
    victim = min(client.run(os.getpid).values())

    def kill(epoch, logs=None):
        if epoch == 2:
            os.kill(victim, signal.SIGKILL)

    return keras.callbacks.LambdaCallback(on_epoch_end=kill)


def separate(seeds):
    """The parameters of each drifter, fitted by itself from the same start."""
    found = []
    for seed in seeds:
        gp = process(**START)
        with warnings.catch_warnings():
            # Of one drifter the likelihood may climb to an edge: what the joint fit is for.
            warnings.simplefilter("ignore", RuntimeWarning)
            gp.fit(*drifter(seed), verbose=0)
        found.append(gp.parameters())
    return {name: np.array([parameters[name] for parameters in found]) for name in found[0]}


def same(first, second):
    """Whether two fits agree in each iteration and parameter, to the last bit."""
    return first[1] == second[1] and all(
        np.array_equal(first[0][k], second[0][k]) for k in first[0]
    )


def main(drifters=DRIFTERS, alone=ALONE):
    """Prints the figures, and returns them."""
    from dask.distributed import Client, LocalCluster

    seeds = range(drifters)
    here = timed_fit([drifter(seed) for seed in seeds], map)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        shards = client.map(drifter, list(seeds))
        there = timed_fit(shards, client)
        failing = timed_fit(shards, client, [killing(client)])

    print(f"{drifters} drifters, {len(here[1])} iterations of L-BFGS\n")
    print("                                     seconds   loss per sample")
    for name, (_, losses, seconds) in {
        "one process, engine=map": here,
        "Dask, two workers (cold)": there,
        "the same, one killed on the way": failing,
    }.items():
        print(f"{name:36s} {seconds:7.1f}   {losses[-1]:.12f}")
    print(f"\nkilled or not, the same bit for bit: {same(there, failing)}")
    difference = abs(there[1][-1] - here[1][-1])
    print(f"difference of the loss from that of one process: {difference:.1e}\n")

    truth = process(**TRUTH).parameters()
    own = separate(range(alone))
    print("                             truth     all       mean of        deviation of")
    print(f"                                       together  {alone} by themselves  each")
    for name, value in truth.items():
        each = own[name]
        joint = float(here[0][name])
        print(f"{name:26s} {value:8.3f}  {joint:8.3f}  {each.mean():8.3f}       {each.std():8.3f}")
    return {"here": here, "there": there, "failing": failing, "truth": truth, "separate": own}


if __name__ == "__main__":
    main()
