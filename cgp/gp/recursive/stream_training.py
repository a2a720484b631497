"""Training on a stream: the methods of `RecursiveGP` that learn while they take samples in.

The loss of a stream is the predictive density of each block given the samples before it, which
Dawid (J. R. Stat. Soc. A 147, 1984) calls prequential: a prediction, and then its score.

The signatures are not Keras's: a stream is not a set of samples to draw batches from.
"""

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.base import GaussianProcess
from cgp.gp.data import Data, arranged, as_inputs_and_targets
from cgp.gp.fit_checks import check_several_samples
from cgp.gp.noise import COMMON_NOISE
from cgp.gp.recursive.stream_weights import StreamWeights
from cgp.gp.starts import start_left_out, undone_on_error
from cgp.gp.stream_samples import as_block
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.observations import warn_of_short_series
from cgp.training import keras_private
from cgp.training.batches import check_epochs, compile_as_usual
from cgp.training.optimizers import LBFGS

if TYPE_CHECKING:
    from cgp.gp.recursive.recursive_gp import RecursiveGP


def compile(
    gp: "RecursiveGP",
    optimizer: keras.optimizers.Optimizer | str | None = None,
    loss: None = None,
    metrics: None = None,
    **kwargs: Any,
) -> None:
    """Keras's `compile`; the negative log predictive density is the loss.

    Args:
        gp: The model.
        optimizer: A Keras optimizer, `keras.optimizers.Adam(0.01)` if None.
        loss: None.
        metrics: None.
        **kwargs: `run_eagerly`, `steps_per_execution`, as in Keras.

    Raises:
        ValueError: A loss, metrics, or L-BFGS, which needs all data at once.
    """
    if optimizer is None:
        optimizer = keras.optimizers.Adam(0.01)
    if isinstance(optimizer, LBFGS):
        raise ValueError(
            "L-BFGS learns from all data at once, and a RecursiveGP sees block after block: "
            "give it a Keras optimizer, or learn with an ExactGP of the same kernel first"
        )
    GaussianProcess.compile(gp, optimizer, loss, metrics, **kwargs)


def fit(
    gp: "RecursiveGP",
    x: ArrayLike,
    z: ArrayLike | None = None,
    batch_size: int = 32,
    epochs: int = 1,
    verbose: int | str = "auto",
    callbacks: Any = None,
    *,
    missing: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
    noise_groups: ArrayLike | None = None,
    initial_epoch: int = 0,
    **others: Any,
) -> keras.callbacks.History:
    """Learns the hyperparameters while it takes a stream in.

    The stream is cut into consecutive blocks. For each of them a gradient step is made on the
    negative log predictive density of the block given the window before it, per sample; then
    the factor is recomputed at the new hyperparameters, and the block taken in, sample by
    sample. By the chain rule that density is the sum of the one-step predictive ones; no point
    leaves inside a block. Each epoch starts from the window as it was before the call.
    Hyperparameters that were left out start from the scales of the data, before the first block.
    A model that has not been compiled learns by `keras.optimizers.Adam(0.01)`.

    Args:
        gp: The model.
        x: Inputs, as for `process`.
        z: Observations, as for `process`.
        batch_size: Samples in a block, T; the last one may be shorter. One costs
            O(C²T + CT² + T³), and O(C³) for the new factor.
        epochs: Passes through the stream.
        verbose: 0, 1, 2 or "auto", as for `cgp.Model.fit`.
        callbacks: Keras callbacks.
        missing: Bool, broadcast against z: True where missing.
        noise_variance: The known part of the noise, as for `process`.
        noise_groups: The group of each observation, as for `process`.
        initial_epoch: The number of the first epoch.
        **others: Other arguments of Keras's `fit` are refused.

    Returns:
        Keras's `History`. Where the training has diverged (see `cgp.Model`), the stream has been
        taken in at the best parameters.

    Raises:
        TypeError: Other arguments of Keras's `fit`; data that `process` refuses.
        ValueError: Data that `process` refuses.
        NotPositiveDefiniteError: A covariance is not positive definite at the initial parameters.
            The data are as before the call.
    """
    if others or z is None:
        raise TypeError(
            f"{', '.join(others) or 'no z'}: a RecursiveGP learns from one stream, in its order; "
            "evaluate(x, z) tells the loss of another"
        )
    compile_as_usual(gp)
    check_epochs(epochs, initial_epoch)
    check_whole(batch_size, "batch_size")
    noise = gp.noise_arguments(noise_variance, noise_groups)
    samples = as_block(x, z, missing, gp.variable_dtype, noise=noise)
    warn_of_short_series(*samples.z.shape)
    if not np.any(gp.size):  # beside a window one sample tells something
        check_several_samples(samples)
    with undone_on_error(gp):
        start_left_out(gp, samples)
        stream = gp._stream_with_room(samples)
    with stream.restored_on_error() as before:
        history = GaussianProcess.fit(
            gp,
            _blocks(samples, batch_size),
            epochs=epochs,
            verbose=verbose,
            callbacks=_with_restarts(callbacks, stream, initial_epoch),
            initial_epoch=initial_epoch,
        )
        if history.diverged:  # the parameters are the best ones again
            stream.restore(before)
            own = {"noise_variance": noise_variance, "noise_groups": noise_groups}
            gp.process(x, z, missing, verbose=0, **own)
    return history


def train_step(gp: "RecursiveGP", data: tuple) -> dict[str, tf.Tensor]:
    """A gradient step on a block, which is then taken in."""
    (x, z, *own), *_ = data  # `train_on_batch((x, z))` has no noise of samples
    x, z = as_inputs_and_targets(x, z, None, gp.variable_dtype)
    noise = own[0] if own else COMMON_NOISE
    block = arranged(x, z, noise)
    with keras_private.loss_weighed(gp, tf.shape(x)[0], tf.reduce_sum(block.counts)):
        GaussianProcess.train_step(gp, data)
    assert gp._stream is not None
    block = gp._stream.of_each_stream(block)
    # The loss has refreshed the windows, and the training step after it: not once more.
    gp._stream.scan_from(gp._stream.read(), block.x, block.z, block.noise)
    return gp.get_metrics_result()


def evaluate(
    gp: "RecursiveGP",
    x: ArrayLike,
    z: ArrayLike,
    *,
    missing: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
    noise_groups: ArrayLike | None = None,
    verbose: int | str = "auto",
    callbacks: Any = None,
    return_dict: bool = False,
) -> float | dict[str, float]:
    """The loss of data given the window, as in `fit`; the window stays as it is.

    The data are one block, O(T³): `process` gives the errors of a long stream step by step.

    Args:
        gp: The model.
        x: Inputs, as for `process`.
        z: Observations, as for `process`.
        missing: Bool, broadcast against z: True where missing.
        noise_variance: The known part of the noise, as for `process`.
        noise_groups: The group of each observation, as for `process`.
        verbose: As for `fit`.
        callbacks: Keras callbacks.
        return_dict: Whether to return a dictionary.

    Returns:
        The negative log predictive density per sample, a float.

    Raises:
        TypeError, ValueError: Data that `process` refuses.
        NotPositiveDefiniteError: A hyperparameter is not finite.
    """
    compile_as_usual(gp)
    noise = gp.noise_arguments(noise_variance, noise_groups)
    samples = as_block(x, z, missing, gp.variable_dtype, require_targets=True, noise=noise)
    stream = gp._stream_for(samples)
    with stream.translated_errors():
        return GaussianProcess.evaluate(
            gp,
            _blocks(samples, samples.z.shape[-1]),
            verbose=verbose,
            callbacks=callbacks,
            return_dict=return_dict,
        )


def _blocks(samples: Data, size: int) -> tf.data.Dataset:
    """Consecutive blocks of samples, as `RecursiveGP.call` takes them; the last may be shorter.

    Args:
        samples: T samples of each stream.
        size: Samples in a block.
    """
    x, z = (tf.constant(a[0] if samples.is_single else a) for a in (samples.x, samples.z))
    noise = samples.noise.map(tf.constant)

    def cut(first: tf.Tensor) -> tuple:
        of_block = noise.map(lambda a: a[:, first : first + size])
        return ((x[..., first : first + size, :], z[..., first : first + size], of_block),)

    return tf.data.Dataset.range(0, z.shape[-1], size).map(cut)


def _with_restarts(callbacks: Any, stream: StreamWeights, first_epoch: int) -> Any:
    """Callbacks, and one more: each epoch but the first starts from the windows as they are now."""
    before = stream.snapshot()

    def begin(epoch: int, logs: Any = None) -> None:
        if epoch > first_epoch:
            stream.restore(before)

    restart = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(restart)
        return callbacks
    return [restart, *([] if callbacks is None else keras.tree.flatten(callbacks))]
