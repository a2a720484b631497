"""A receiver of three layers, trained as one: a fading radio channel, tracked between pilots.

The signal at a moving receiver is multiplied by a complex gain h that changes with time, a Gaussian
process with Jakes' spectrum. Every eighth symbol is a pilot, known to the receiver, which observes
h there and interpolates in between. The analog front end of the receiver has an IQ imbalance: it
adds c · conj(signal), the mirror image, with unknown c.

    front end     removes the mirror image: one complex coefficient, learned
    pilots        observations of h at the pilots; NaN, for missing, at symbols of data
    Kalman layer  h as an autoregression of second order, whose two poles are learned, in a layer of
                  the user's own that gives the matrix F. The state holds the last nine values of h,
                  so that the oldest, eight symbols ago, is estimated given a pilot after it
    demapper      from mean and variance of h to the probabilities of the four symbols

The noise variance is one layer, which the Kalman layer and the demapper share. All layers are
trained together on blocks with known symbols, by the cross entropy of the symbols plus a tenth of
the loss of the Kalman layer, the negative log likelihood of the pilots.

It is compared on new blocks with optimal estimates of h (LMMSE), which use the true statistics, the
noise and c: from all pilots of the block, from those that the Kalman layer uses, up to eight
symbols ahead, and from past pilots only. Other comparisons hold the last pilot, or know h. The same
network is also trained by the likelihood of the pilots alone, without known symbols.

Expect the receiver to be wrong in 1.5 % of the symbols, and LMMSE with the same pilots in 1.4 %:
Jakes' spectrum is no autoregression of second order. Trained by likelihood alone it is wrong in 1.6
%: so training end to end gains 0.05 % here, five times the standard error of the difference.
Leaving the mirror image in would cost 0.6 %, and past pilots alone 2.7 %.

Run it with: python examples/fading_channel.py (under a minute)
"""

from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from scipy.linalg import cholesky, toeplitz
from scipy.special import j0

import cgp

SYMBOLS = np.exp(0.25j * np.pi * np.array([1, 3, 5, 7]))  # QPSK; the first is the pilot
LENGTH, SPACING = 121, 8  # symbols of a block, and from pilot to pilot
LAG = SPACING
DOPPLER, OFFSET = 0.02, 0.01  # largest Doppler shift and carrier offset, cycles a symbol
NOISE_VARIANCE = 0.01  # of E|h|² = 1: 20 dB
LEAK = 0.2 * np.exp(1.0j)  # c: the mirror image is 14 dB below the signal
TRAINED, TESTED, WATCHED = 256, 2000, 500  # blocks; watched are those tested in training
EPOCHS, BATCH = 16, 32
PILOTS = np.arange(0, LENGTH, SPACING)
DATA = np.setdiff1d(np.arange(LENGTH), PILOTS)
PICTURE = Path(__file__).with_suffix(".png")


# --- what happens on the air ----------------------------------------------------------------------


def covariance():
    """Of the channel of a block, `E[h_t conj(h_s)]`, `[T, T]`: Jakes' spectrum, moved by OFFSET."""
    lag = np.arange(LENGTH)
    column = j0(2 * np.pi * DOPPLER * lag) * np.exp(2j * np.pi * OFFSET * lag)
    return toeplitz(column, np.conj(column))


def blocks(number, seed):
    """Received samples, numbers of the symbols, channel, and the samples without the leak."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)

    root = cholesky(covariance() + 1e-9 * np.eye(LENGTH), lower=True)
    h = np.einsum("ts,bs->bt", root, normal(number, LENGTH))
    sent = rng.integers(4, size=(number, LENGTH))
    sent[:, PILOTS] = 0
    clean = h * SYMBOLS[sent] + np.sqrt(NOISE_VARIANCE) * normal(number, LENGTH)
    return clean + LEAK * np.conj(clean), sent, h, clean


# --- the layers -----------------------------------------------------------------------------------


class FrontEnd(keras.layers.Layer):
    """Takes the mirror image out of y + c conj(y), which leaves y times √(1 − |c|²).

    With c = w / √(1 + |w|²) the map has determinant one. So the likelihood of what comes out is
    that of what came in, and cannot be bettered by making it smaller.
    """

    def __init__(self, **kwargs):
        super().__init__(dtype="float64", **kwargs)
        self.weight = self.add_weight(shape=(2,), initializer="zeros", name="leak")

    def call(self, received):
        w = tf.complex(self.weight[0], self.weight[1])
        return tf.sqrt(1 + w * tf.math.conj(w)) * received - w * tf.math.conj(received)

    def compute_output_spec(self, received):
        return keras.KerasTensor(received.shape, received.dtype)

    @property
    def leak(self):
        w = self.weight[0].numpy() + 1j * self.weight[1].numpy()
        return w / np.sqrt(1 + abs(w) ** 2)


class Pilots(keras.layers.Layer):
    """What is observed of h, `[B, T + LAG, 1]`: NaN but at pilots, and for LAG symbols more."""

    def call(self, samples):
        known = np.full(LENGTH, np.nan, complex)
        known[PILOTS] = np.conj(SYMBOLS[0])
        at_pilots = tf.constant(~np.isnan(known))
        observed = tf.where(at_pilots, samples * np.nan_to_num(known), tf.constant(known))
        end = tf.fill([tf.shape(samples)[0], LAG], tf.constant(complex("nan"), samples.dtype))
        return tf.concat([observed, end], axis=1)[..., None]

    def compute_output_spec(self, samples):
        return keras.KerasTensor((samples.shape[0], LENGTH + LAG, 1), samples.dtype)


class Autoregression(keras.layers.Layer):
    """F of h_t = (p + q) h_{t−1} − p q h_{t−2} + w_t, with poles p and q, and older h below."""

    def __init__(self, poles, **kwargs):
        super().__init__(dtype="float64", **kwargs)
        start = np.stack([np.log(-np.log(np.abs(poles))), np.angle(poles)])
        self.poles = self.add_weight(
            shape=start.shape, initializer=keras.initializers.Constant(start), name="poles"
        )

    def call(self):
        # Moduli below one, whatever the weights: the channel is stationary.
        modulus, angle = tf.exp(-tf.exp(self.poles[0])), self.poles[1]
        p, q = tf.unstack(tf.complex(modulus * tf.cos(angle), modulus * tf.sin(angle)))
        first = tf.concat([tf.stack([p + q, -p * q]), tf.zeros(LAG - 1, p.dtype)], axis=0)
        return tf.concat([first[None], np.eye(LAG, LAG + 1)], axis=0)


class Demapper(keras.layers.Layer):
    """Logarithms of the probabilities of the symbols, up to a constant, `[B, data, 4]`."""

    def __init__(self, noise, **kwargs):
        super().__init__(dtype="float64", **kwargs)
        self.noise = noise

    def call(self, samples, said):
        mean, variance = (
            said["filtered_mean"][:, LAG:, LAG],
            said["filtered_variance"][:, LAG:, LAG],
        )
        variance += tf.math.real(self.noise.call()[0, 0])
        distance = tf.abs(samples[..., None] - mean[..., None] * SYMBOLS) ** 2
        return tf.gather(-distance / variance[..., None], DATA, axis=1)

    def compute_output_spec(self, samples, said):
        return keras.KerasTensor((samples.shape[0], len(DATA), len(SYMBOLS)), "float64")


def receiver():
    """The network that is trained, from samples to symbols, and one that shows what it thinks."""
    transition = Autoregression(np.exp([-0.05 + 0.2j, -0.05 - 0.2j]), name="autoregression")
    noise = cgp.layers.Covariance([[0.03 + 0j]], name="noise")
    innovation = np.zeros((LAG + 1, LAG + 1), complex)
    innovation[0, 0] = 0.01  # new is the latest value alone
    model = cgp.statespace.LinearGaussian(
        transition.call(),
        innovation,
        np.eye(1, LAG + 1) + 0j,
        noise.call(),
        initial_covariance="stationary",
    )
    tracker = cgp.KalmanFilter(
        model,
        learn={"F": transition, "Q": cgp.layers.Covariance(innovation), "R": noise},
        loss_weight=0.1,
        name="tracker",
    )

    received = keras.Input((LENGTH,), dtype="complex128")
    samples = FrontEnd(name="front_end")(received)
    said = tracker(Pilots(dtype="float64", name="pilots")(samples))
    logits = Demapper(noise, name="demapper")(samples, said)
    inside = {
        "samples": samples,
        "mean": said["filtered_mean"],
        "variance": said["filtered_variance"],
    }
    return cgp.Functional(received, logits), cgp.Functional(received, inside)


class WrongSymbols(keras.callbacks.Callback):
    """Symbol error rates on blocks that are not trained on, before and after each epoch."""

    def __init__(self, received, sent):
        super().__init__()
        self.received, self.sent, self.rates = received, sent, []

    def on_train_begin(self, logs=None):
        self.on_epoch_end(-1)

    def on_epoch_end(self, epoch, logs=None):
        self.rates.append(np.mean(decided(self.model, self.received) != self.sent[:, DATA]))


def trained(loss, received, sent, watched):
    network, inside = receiver()
    network.compile(keras.optimizers.Adam(0.03), loss)
    watch = WrongSymbols(*watched)
    network.fit(
        received, sent[:, DATA], batch_size=BATCH, epochs=EPOCHS, callbacks=[watch], verbose=2
    )
    return network, inside, watch.rates


def decided(network, received):
    return network.predict(received, batch_size=500, verbose=0).argmax(axis=-1)


# --- what to compare with -------------------------------------------------------------------------


def linear_estimates(samples, ahead):
    """LMMSE of the channel from the pilots up to so many symbols ahead: GP regression, in short."""
    k = covariance()
    observed = samples[:, PILOTS] * np.conj(SYMBOLS[0])
    estimates = np.zeros_like(samples)
    for t in range(LENGTH):
        seen = t + ahead >= PILOTS
        gram = k[np.ix_(PILOTS[seen], PILOTS[seen])] + NOISE_VARIANCE * np.eye(seen.sum())
        weights = np.linalg.solve(gram, k[PILOTS[seen], t])  # conj of the row, as K is Hermitian
        estimates[:, t] = observed[:, seen] @ np.conj(weights)
    return estimates


def nearest(samples, h):
    return np.abs(samples[..., None] - h[..., None] * SYMBOLS).argmin(axis=-1)[:, DATA]


def rate(wrong):
    """Symbol error rate and its standard error; the errors of one block are not independent."""
    of_blocks = wrong.mean(axis=1)
    return of_blocks.mean(), of_blocks.std(ddof=1) / np.sqrt(len(of_blocks))


# --- what is shown --------------------------------------------------------------------------------


STYLES = {
    "hold the last pilot": {"color": "0.6"},
    "LMMSE, past pilots": {"color": "0.25", "linestyle": ":"},
    "LMMSE, the same pilots": {"color": "0.25", "linestyle": "--"},
    "LMMSE, all pilots": {"color": "0.25", "linewidth": 0.8},
    "receiver": {"color": "#1f5fa8", "marker": "o", "markersize": 4},
    "receiver, by likelihood": {"color": "#d08c1d"},
}


def draw(h, samples, said, wrong, rates, path):
    layout = [["block", "block"], ["place", "epochs"]]
    figure, axes = plt.subplot_mosaic(layout, figsize=(10, 7), layout="constrained")

    ax = axes["block"]
    scale = np.sqrt(1 - abs(LEAK) ** 2)  # what the front end leaves
    t, mean = np.arange(LENGTH), said["mean"][0, LAG:, LAG].real / scale
    deviation = np.sqrt(said["variance"][0, LAG:, LAG] / 2) / scale  # of the real part
    ax.fill_between(t, mean - 2 * deviation, mean + 2 * deviation, color="#c3d7ef", linewidth=0)
    ax.plot(t, h[0].real, color="0.25", linewidth=1.0, label="channel")
    ax.plot(t, mean, color="#1f5fa8", label="receiver, with two standard deviations")
    pilots = (samples[0] * np.conj(SYMBOLS[0]))[PILOTS].real
    ax.plot(PILOTS, pilots, "o", color="#c0392b", markersize=4, label="pilots")
    for place in np.flatnonzero(wrong["receiver"][0]):
        ax.axvline(DATA[place], color="#c0392b", linewidth=0.8, zorder=0)
    ax.set(xlabel="symbol", ylabel="real part of h", xlim=(0, LENGTH - 1))
    ax.set(title="One block: symbols that the receiver gets wrong are marked by a line")
    ax.legend(frameon=False, fontsize="small", ncols=3)

    ax = axes["place"]
    after = DATA % SPACING
    for name, style in STYLES.items():
        of = [100 * wrong[name][:, after == place].mean() for place in range(1, SPACING)]
        ax.semilogy(range(1, SPACING), of, label=name, **style)
    ticks = [1, 2, 5, 10, 20]
    ax.set_yticks(ticks, labels=ticks)
    ax.set_yticks([], minor=True)
    ax.set(xlabel="symbols after a pilot", ylabel="symbol error rate (%)")
    ax.set(title="Between two pilots")
    ax.legend(frameon=False, fontsize="small")

    ax = axes["epochs"]
    for name, of in rates.items():
        ax.plot(100 * np.array(of), label=name, **STYLES[name])
    for name in ("LMMSE, the same pilots", "LMMSE, all pilots"):
        ax.axhline(100 * wrong[name][:WATCHED].mean(), label=name, **STYLES[name])
    ax.set(xlabel="epochs", ylabel="symbol error rate (%)")
    ax.set(title=f"In training, on the first {min(WATCHED, len(h))} fresh blocks")
    ax.legend(frameon=False, fontsize="small")

    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


def main(tested=TESTED, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    received, sent, _, _ = blocks(TRAINED, seed=0)
    fresh, truth, h, clean = blocks(tested, seed=1)
    watched = fresh[:WATCHED], truth[:WATCHED]
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    networks, insides, rates = {}, {}, {}
    for name, loss in (("receiver", cross_entropy), ("receiver, by likelihood", None)):
        print(f"\n{name}")
        networks[name], insides[name], rates[name] = trained(loss, received, sent, watched)

    decisions = {
        "hold the last pilot": nearest(
            clean, np.repeat(clean[:, PILOTS] * np.conj(SYMBOLS[0]), SPACING, axis=1)[:, :LENGTH]
        ),
        "LMMSE, past pilots": nearest(clean, linear_estimates(clean, 0)),
        "LMMSE, the same pilots": nearest(clean, linear_estimates(clean, LAG)),
        "LMMSE, all pilots": nearest(clean, linear_estimates(clean, LENGTH)),
        "the same, leak left in": nearest(fresh, linear_estimates(fresh, LAG)),
        "channel known": nearest(clean, h),
    }
    decisions |= {name: decided(network, fresh) for name, network in networks.items()}
    wrong = {name: of != truth[:, DATA] for name, of in decisions.items()}
    figures = {name: rate(of) for name, of in wrong.items()}
    said = insides["receiver"].predict(fresh[:1], verbose=0)
    draw(h, clean, said, wrong, rates, picture)

    print(f"\n{tested} fresh blocks of {len(DATA)} symbols, ± standard error")
    print("estimate of the channel     symbol error rate")
    for name, (mean, error) in figures.items():
        print(f"{name:25} {100 * mean:10.2f} ± {100 * error:.2f} %")
    print("\ndifferences on the same symbols")
    for name, other in (
        ("receiver", "LMMSE, the same pilots"),
        ("receiver, by likelihood", "receiver"),
    ):
        mean, error = rate(wrong[name] * 1.0 - wrong[other])
        print(f"{name} − {other}: {100 * mean:.2f} ± {100 * error:.2f} %")
    leaks = {name: n.get_layer("front_end").leak for name, n in networks.items()}
    print(f"\nleak, in truth {LEAK:.3f}")
    for name, leak in leaks.items():
        print(f"{name:25} {leak:.3f}")
    return figures, leaks


if __name__ == "__main__":
    main()
