"""The current between drifters, mapped with errors by a kernel of one's own.

Surface drifters are buoys that the current carries, and that tell where they are. Their velocities
are samples w = u + iv, u to the east and v to the north, at scattered places and times. Wanted is
the current everywhere at one time, and how uncertain it is, to forecast where oil or a person
drifts. Eddies of the ocean are nearly free of divergence: their current is that of a
streamfunction, w = i(∂x + i∂y)ψ. With F the isotropic covariance of ψ at the distance r, and with
the direction θ from one place to the other,

    E[w w'*] = -(F'' + F'/r),    E[w w'] = (F'' - F'/r) exp(2iθ).

Such a current is improper: along θ it stays correlated far longer than across. For a velocity
potential the second one has the other sign. A proper kernel, and so do kernels of u and v apart,
claims that half of the power is divergent.

cgp has the kernel `Current() * Along(RBF(), 2)`. Current is written below, with Matérn's F of order
5/2: its two variances, of a flow without divergence and of one without vorticity, a length, a time
and the noise are learned from the samples. A prior tells that eddies of 60 km change in some three
days, in which the current crosses them: a day of samples hardly does. `SparseGP` learns from 2,080
samples by 200 inducing points.

The flow is simulated, by other equations than those of the kernel: quasi-geostrophic turbulence of
one layer with a Rossby radius of 40 km, in a periodic box of 640 km. It begins with random eddies
of some 120 km, whose spectrum of kinetic energy falls as k^-5, and evolves for two days; then 160
drifters are spread over 260 km and tell their velocities every 2 h for a day. Our guesses: a speed
of 20 cm/s (root mean square), and waves and wind of 7 cm/s in u and in v, independent at each
sample. The map, 160 km wide, is that of the middle time, of four such oceans.

It is compared with means of the samples under Gaussian weights of distance and time, the best of
twelve in hindsight; with a proper kernel, `Matern52`; and with objective mapping of a flow without
divergence (Bretherton, Davis & Fandry, Deep-Sea Research 23, 1976), exact from all samples. Its
covariance, Gaussian or Matérn, the better in hindsight, is fitted to binned products of samples.
With the covariance that cgp learned it is the limit: what the inducing points lose.

Expect -17.38 dB, 2.8 dB ahead of the proper kernel, -14.59 dB, and 1.1 dB ahead of objective
mapping with a binned covariance, -16.32 dB; weighted means have -11.33 dB, and the limit is -17.44
dB. The 95 % regions contain 95 % of the maps, 92 to 98 % by ocean, and those of the proper kernel
89 %. Over the sixteen oceans of the seeds 0 to 3, cgp is ahead of the proper kernel by 1.8 to 5.5
dB, and of objective mapping by -0.1 to 3.0 dB, in the mean 0.9 dB; 91 to 100 % of a map are in the
regions.

It is too sure where the current changes much within the span: small eddies change faster than large
ones, which a product of space and time does not say. In eddies of 40 cm/s, `main(speed=40.0)`, cgp
is still ahead, -19.57 against -17.95 and -15.73 dB, but 88 % of the maps are in its regions, 76 %
in those of the proper kernel; of one ocean it warns that inducing points are too few. Shorter spans
help. With 100 drifters objective mapping may be ahead: it is the same estimate, and a covariance of
the binned products may happen to be the better one.

Run it with: python examples/drifter_map.py (a minute and a half)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.linalg import cho_factor, cho_solve
from scipy.ndimage import map_coordinates
from scipy.optimize import least_squares

import cgp
from cgp.kernels import RBF, Along, Kernel, Matern52
from cgp.training import POSITIVE, Hyperparameter, declared

BOX, CELLS, ROSSBY = 640.0, 128, 40.0  # km, and cells of the model along each axis
SPEED, EDDIES, SLOPE = 20.0, 250.0, 5  # cm/s, the wavelength in km, and that of the spectrum
STEP, EARLIER, HOURS, EVERY = 1 / 24, 48, 24, 2  # days, then hours
OCEANS, DRIFTERS, REGION, MAP = 4, 160, 260.0, 160.0  # the last two in km
NOISE = 7.0  # cm/s, in u and in v
KM_PER_DAY = 0.864  # of 1 cm/s
PICTURE = Path(__file__).with_suffix(".png")


# --- the ocean ------------------------------------------------------------------------------------

GRID = np.arange(CELLS) * BOX / CELLS - BOX / 2
WAVES = 2 * np.pi * np.fft.fftfreq(CELLS, BOX / CELLS)
KX, KY = np.abs(WAVES[: CELLS // 2 + 1])[None, :], WAVES[:, None]
SQUARED = KX**2 + KY**2
LARGEST = 2 / 3 * np.pi * CELLS / BOX  # products of two waves up to here have no aliases
IS_RESOLVED = (np.maximum(KX, np.abs(KY)) <= LARGEST) & (SQUARED > 0)
DAMPING = np.exp(-2.0 * STEP * (SQUARED / LARGEST**2) ** 4)  # of scales near the grid


def on_grid(waves):
    return np.fft.irfft2(waves, (CELLS, CELLS))


def current(vorticity):
    """The velocity on the grid, km/day, of waves of potential vorticity q = ∇²ψ - ψ/R²."""
    streamfunction = -vorticity / (SQUARED + ROSSBY**-2)
    return on_grid(-1j * KY * streamfunction) + 1j * on_grid(1j * KX * streamfunction)


def change(vorticity):
    """The current carries potential vorticity along."""
    w = current(vorticity)
    carried = w.real * on_grid(1j * KX * vorticity) + w.imag * on_grid(1j * KY * vorticity)
    return np.where(IS_RESOLVED, -np.fft.rfft2(carried), 0)


def an_hour_later(vorticity):
    """A step of the Runge-Kutta method of order 4."""
    first = change(vorticity)
    second = change(vorticity + STEP / 2 * first)
    third = change(vorticity + STEP / 2 * second)
    fourth = change(vorticity + STEP * third)
    return DAMPING * (vorticity + STEP / 6 * (first + 2 * second + 2 * third + fourth))


def ocean(speed, rng):
    """The current of each hour on the grid, cm/s, `[HOURS + 1, CELLS, CELLS]`."""
    ratio = SQUARED * (EDDIES / (2 * np.pi)) ** 2
    energy = ratio**1.5 / (1 + ratio) ** ((SLOPE + 3) / 2)  # for each wavenumber |k|
    amplitudes = np.sqrt(energy / np.where(IS_RESOLVED, SQUARED, np.inf) ** 1.5)
    vorticity = np.fft.rfft2(rng.normal(size=(CELLS, CELLS))) * amplitudes
    vorticity *= SQUARED + ROSSBY**-2
    power = np.mean(np.abs(current(vorticity)) ** 2)
    vorticity *= speed * KM_PER_DAY / np.sqrt(power)
    currents = []
    for _ in range(EARLIER + HOURS + 1):
        currents.append(current(vorticity) / KM_PER_DAY)
        vorticity = an_hour_later(vorticity)
    return np.array(currents[EARLIER:])


def at(field, places):
    """A field on the grid, at other places `[N, 2]`."""
    cells = (places.T[::-1] + BOX / 2) * CELLS / BOX
    u, v = (
        map_coordinates(part, cells, order=3, mode="grid-wrap") for part in (field.real, field.imag)
    )
    return u + 1j * v


def drifted(currents, places):
    """The tracks of drifters, `[HOURS + 1, N, 2]`, and their velocities."""
    tracks, velocities = [places], [at(currents[0], places)]
    for field in currents[1:]:
        # Heun's method: the mean of the velocity before the step and of that after it.
        moved = tracks[-1] + STEP * KM_PER_DAY * as_vectors(velocities[-1])
        mean = (velocities[-1] + at(field, moved)) / 2
        tracks.append(tracks[-1] + STEP * KM_PER_DAY * as_vectors(mean))
        velocities.append(at(field, tracks[-1]))
    return np.array(tracks), np.array(velocities)


def as_vectors(w):
    return np.stack([w.real, w.imag], axis=-1)


def samples_of(tracks, velocities, rng):
    """Places and times `[N, 3]`, km and days from the middle, and noisy velocities `[N]`."""
    hours = np.arange(0, HOURS + 1, EVERY)
    days = np.broadcast_to(STEP * hours[:, None] - STEP * HOURS / 2, velocities[hours].shape)
    positions = np.concatenate([tracks[hours], days[..., None]], axis=-1).reshape(-1, 3)
    noise = NOISE * (rng.normal(size=len(positions)) + 1j * rng.normal(size=len(positions)))
    return positions, velocities[hours].ravel() + noise


def map_positions():
    line = GRID[np.abs(GRID) <= MAP / 2]
    east, north = np.meshgrid(line, line)
    return np.stack([east.ravel(), north.ravel(), np.zeros(east.size)], axis=-1)


# --- cgp ------------------------------------------------------------------------------------------


@declared
class Current(Kernel):
    """The flow of a streamfunction and of a velocity potential, both Matérn of order 5/2."""

    is_proper, is_stationary = False, True
    rotational: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)  # variances
    divergent: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)

    def moments(self, x1, x2):
        east, north = tf.unstack((x1 - x2)[..., :2] / self.lengthscale.value, axis=-1)
        # The gradient of the root is infinite at zero.
        a = tf.sqrt(tf.maximum(5.0 * (east**2 + north**2), 1e-20))
        variance = self.rotational.value + self.divergent.value
        covariance = variance * (1.0 + a - a**2 / 2) * tf.exp(-a)
        # A potential has the pseudo-covariance of a streamfunction with the other sign.
        pseudo = 2.5 * (self.rotational.value - self.divergent.value) * tf.exp(-a)
        zero = tf.zeros_like(a)
        return tf.complex(covariance, zero), tf.complex(pseudo, zero) * tf.complex(east, north) ** 2


def learned(kernel, positions, velocities, inducing):
    # Chosen inducing points stay where they are: to move them as well takes far longer.
    gp = cgp.SparseGP(kernel, noise_variance=NOISE**2, inducing=inducing, fixed="inducing")
    gp.fit(positions, velocities, verbose=0)
    return gp


# --- the tools of the trade -----------------------------------------------------------------------


def lags(first, second):
    """Differences of place, u + iv, and of time between all pairs."""
    difference = first[:, None] - second
    return difference[..., 0] + 1j * difference[..., 1], difference[..., 2]


def weighted_means(positions, velocities, targets, length, days):
    step, time = lags(targets, positions)
    weights = np.exp(-(np.abs(step) ** 2) / (2 * length**2) - time**2 / (2 * days**2))
    return weights @ velocities / weights.sum(axis=1)


def matern(step, time, variance, length, days):
    """Covariance and pseudo-covariance of the flow of a streamfunction."""
    a = np.sqrt(5) * np.abs(step) / length
    decay = variance * np.exp(-a - time**2 / (2 * days**2))
    return (1 + a - a**2 / 2) * decay, 2.5 * (step / length) ** 2 * decay


def gaussian(step, time, variance, length, days):
    squared = np.abs(step / length) ** 2 / 2
    decay = variance * np.exp(-squared - time**2 / (2 * days**2))
    return (1 - squared) * decay, (step / length) ** 2 / 2 * decay


def binned(positions, velocities):
    """Mean products of pairs of samples in bins of distance and time lag."""
    pairs = np.triu_indices(len(positions), 1)
    step, time = (lag[pairs] for lag in lags(positions, positions))
    first, second = (velocities[number] for number in pairs)
    turn = np.exp(-2j * np.angle(step))
    products = np.stack([first * second.conj(), first * second * turn]).real
    bins = (np.abs(step) // 10).astype(int) * 8 + np.minimum(np.abs(time) // 0.125, 7).astype(int)
    chosen = np.abs(step) < 150

    def means(values):
        return np.bincount(bins[chosen], values[chosen]) / np.maximum(counts, 1)

    counts = np.bincount(bins[chosen])
    return means(np.abs(step)), means(np.abs(time)), *map(means, products), counts


def fitted_covariance(form, bins, power):
    """Variance, length and time of a form, and the noise variance, by weighted least squares."""
    distance, time, covariance, pseudo, counts = bins

    def misfit(logarithms):
        errors = np.array(form(distance, time, *np.exp(logarithms))) - [covariance, pseudo]
        return (np.sqrt(counts) * errors).ravel()

    fit = np.exp(least_squares(misfit, np.log([power, 60.0, 3.0])).x)
    return fit, max(power - fit[0], 0.01 * power)


def as_components(covariance, pseudo):
    """The covariance of (u, v), where that of w is real."""
    across = pseudo.imag
    rows = [[covariance + pseudo.real, across], [across, covariance - pseudo.real]]
    return np.block(rows) / 2


def objective_map(form, parameters, noise, positions, velocities, targets):
    """The best linear estimate from all samples."""
    gram = as_components(*form(*lags(positions, positions), *parameters))
    gram[np.diag_indices(len(gram))] += noise / 2
    values = np.concatenate([velocities.real, velocities.imag])
    weights = cho_solve(cho_factor(gram, overwrite_a=True), values)
    u, v = (as_components(*form(*lags(targets, positions), *parameters)) @ weights).reshape(2, -1)
    return u + 1j * v


def of_the_trade(positions, velocities, targets, truth, rng):
    """Maps by weighted means and by objective mapping, with the best settings in hindsight."""

    def best(maps):
        return min(maps, key=lambda estimate: decibels(estimate, truth))

    settings = [(length, days) for length in (8.0, 12.0, 18.0, 27.0) for days in (0.25, 0.5, 1.0)]
    samples = positions, velocities
    means = best([weighted_means(*samples, targets, *setting) for setting in settings])
    some = rng.permutation(len(positions))[:1500]
    bins, power = binned(positions[some], velocities[some]), np.mean(np.abs(velocities) ** 2)
    maps = []
    for form in (matern, gaussian):
        parameters, noise = fitted_covariance(form, bins, power)
        maps.append(objective_map(form, parameters, noise, *samples, targets))
    return means, best(maps)


# --- what is shown --------------------------------------------------------------------------------


def decibels(estimate, truth):
    return 10 * np.log10(np.mean(np.abs(estimate - truth) ** 2) / np.mean(np.abs(truth) ** 2))


def draw(tracks, samples, targets, truth, estimate, path):
    figure, panels = plt.subplots(2, 2, figsize=(9.5, 8.6), layout="constrained")
    (drifters, off), maps = panels
    shape = (len(np.unique(targets[:, 1])), -1)
    east, north = (targets[:, axis].reshape(shape) for axis in (0, 1))
    positions, velocities = samples
    is_now = positions[:, 2] == 0
    now, style = positions[is_now, :2], {"color": "#1f5fa8", "width": 0.003}
    drifters.plot(*np.moveaxis(tracks, -1, 0), color="0.6", lw=1.0)
    drifters.quiver(*now.T, *as_vectors(velocities[is_now]).T, scale=600, **style)
    frame = {"fill": False, "edgecolor": "#c0392b", "lw": 1.5}
    drifters.add_patch(plt.Rectangle((-MAP / 2, -MAP / 2), MAP, MAP, **frame))
    drifters.set_title(f"{len(now)} drifters, and the frame of the maps")
    error = np.abs(estimate - truth).reshape(shape)
    drawn = off.pcolormesh(east, north, error, cmap="magma_r", vmin=0, shading="nearest")
    off.plot(*now[np.abs(now).max(axis=1) < MAP / 2].T, ".", color="#1f5fa8", ms=5)
    figure.colorbar(drawn, ax=off, label="error (cm/s)")
    off.set_title("error of cgp, and drifters")
    style = {"vmin": 0, "vmax": np.abs(truth).max(), "cmap": "viridis", "shading": "nearest"}
    named = {"the current": truth, "cgp, posterior mean": estimate}
    some = np.s_[1::3, 1::3]
    for panel, (title, w) in zip(maps, named.items(), strict=True):
        drawn = panel.pcolormesh(east, north, np.abs(w).reshape(shape), **style)
        arrows = np.moveaxis(as_vectors(w.reshape(shape)[some]), -1, 0)
        panel.quiver(east[some], north[some], *arrows, color="w", scale=400, width=0.004)
        panel.set_title(title)
    figure.colorbar(drawn, ax=maps[1], label="speed (cm/s)")
    for panel in panels.flat:
        panel.set(xlabel="east (km)", ylabel="north (km)", aspect="equal")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def one_ocean(drifters, inducing, speed, rng):
    """Errors in dB and coverages by name, what cgp has learned, and what to draw."""
    currents, places = ocean(speed, rng), rng.uniform(-REGION / 2, REGION / 2, (drifters, 2))
    tracks, along_tracks = drifted(currents, places)
    samples, targets = samples_of(tracks, along_tracks, rng), map_positions()
    truth, power = at(currents[HOURS // 2], targets[:, :2]), np.mean(np.abs(samples[1]) ** 2)

    proper = learned(Matern52(power, [60.0, 60.0, 3.0]), *samples, inducing)
    # Eddies of 60 km change in the time in which the current crosses them, within a factor of two.
    crossing = 60.0 / (speed * KM_PER_DAY)
    prior = {"lengthscale": tfp.distributions.LogNormal(np.log(crossing), 0.5)}
    change_in_time = RBF(1.0, crossing, fixed="variance", priors=prior)
    gp = learned(Current(power, power / 10, 60.0) * Along(change_in_time, 2), *samples, inducing)
    predictions = {"a proper kernel": proper.predict(targets), "cgp": gp.predict(targets)}
    means, mapped = of_the_trade(*samples, targets, truth, rng)
    values = gp.parameters()
    rotational, divergent = values["current.rotational"], values["current.divergent"]
    length, days = values["current.lengthscale"], values["rbf.lengthscale"]
    noise = values["noise_variance"]
    same = objective_map(matern, (rotational, length, days), noise, *samples, targets)
    estimates = {"weighted means": means, "objective mapping, binned covariance": mapped}
    estimates |= {name: prediction["mean"] for name, prediction in predictions.items()}
    estimates["objective mapping, covariance of cgp"] = same
    errors = {name: decibels(estimate, truth) for name, estimate in estimates.items()}
    inside = {
        name: cgp.metrics.coverage(truth, prediction) for name, prediction in predictions.items()
    }
    learned_values = divergent / (rotational + divergent), length, np.sqrt(noise / 2)
    return errors, inside, learned_values, (tracks, samples, targets, truth, estimates["cgp"])


def main(oceans=OCEANS, drifters=DRIFTERS, inducing=200, picture=PICTURE, seed=0, speed=SPEED):
    """Prints the figures, saves the picture, and returns the figures."""
    rng = np.random.default_rng(seed)
    errors, inside, values, drawings = zip(
        *(one_ocean(drifters, inducing, speed, rng) for _ in range(oceans)), strict=True
    )
    samples = len(drawings[0][1][1])
    print(f"maps of {oceans} oceans from {samples} samples each, relative error in dB")
    figures = {name: np.array([of[name] for of in errors]) for name in errors[0]}
    for name, of in figures.items():
        print(f"{name:38}{of.mean():7.2f}   " + "".join(f"{error:8.2f}" for error in of))
    for name in inside[0]:
        of = figures[f"coverage, {name}"] = np.array([coverage[name] for coverage in inside])
        each = "".join(f"{100 * coverage:8.1f}" for coverage in of)
        print(f"{f'in the 95 % regions of {name}, %':38}{100 * of.mean():7.1f}   {each}")
    figures["divergent"], lengths, noises = np.transpose(values)
    print(f"divergent part of the power, 0 in truth: at most {figures['divergent'].max():.1e}")
    print("length " + ", ".join(f"{length:.0f}" for length in lengths), end=" km, ")
    print("noise " + ", ".join(f"{noise:.2f}" for noise in noises) + f" cm/s, {NOISE:.0f} in truth")
    draw(*drawings[0], picture)
    print(f"picture: {picture}")
    return figures


if __name__ == "__main__":
    main()
