"""Gaussian processes that learn from a stream, block after block, while they take it in."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.base import GaussianProcess
from cgp.gp.data import arranged
from cgp.gp.stream_samples import Samples, as_block
from cgp.training import keras_private
from cgp.training.batches import check_compiled, check_epochs
from cgp.training.optimizers import LBFGS


class PrequentialGP(GaussianProcess):
    """A Gaussian process whose loss is the predictive density of what comes next.

    Dawid (J. R. Stat. Soc. A 147, 1984) calls it prequential: a prediction, and then its score. A
    subclass keeps the state, and in `call((x, z))` adds the loss of a block given it.
    """

    def _matched(self, samples: Samples) -> Samples:
        """Samples that fit the state, or an error; the first ones make it."""
        raise NotImplementedError

    def _admitted(self, samples: Samples) -> Samples:
        """Samples that fit the state and that can be taken in, or an error."""
        raise NotImplementedError

    def _take_in(self, x: tf.Tensor, z: tf.Tensor) -> None:
        """Takes a block in, in a graph; shapes as for `call`."""
        raise NotImplementedError

    def process(self, x, z, missing=None, *, verbose="auto"):
        """Takes a block in."""
        raise NotImplementedError

    def _translated_errors(self) -> contextlib.AbstractContextManager:
        """Says in our own words that a covariance has failed in a graph."""
        raise NotImplementedError

    def _hold(self):
        """The state of the data as it is now."""
        raise NotImplementedError

    def _restore(self, held) -> None:
        """Brings back a state that was held."""
        raise NotImplementedError

    def compile(self, optimizer=None, loss=None, metrics=None, **kwargs) -> None:
        """Keras's `compile`; the predictive likelihood is the loss.

        Args:
            optimizer: A Keras optimizer, `keras.optimizers.Adam(0.01)` if None.
            loss: None.
            metrics: None.
            **kwargs: `run_eagerly`, `steps_per_execution`, as in Keras.

        Raises:
            ValueError: A loss, metrics, or L-BFGS, which wants all data at once.
        """
        if optimizer is None:
            optimizer = keras.optimizers.Adam(0.01)
        if isinstance(optimizer, LBFGS):
            raise ValueError(
                "L-BFGS learns from all data at once, and a RecursiveGP sees block after block: "
                "give it a Keras optimizer, or learn with an ExactGP of the same kernel first"
            )
        super().compile(optimizer, loss, metrics, **kwargs)

    # A stream is no set of samples to draw batches from: the signatures are not Keras's.

    def fit(  # type: ignore[override]
        self,
        x,
        z,
        batch_size=32,
        epochs=1,
        verbose="auto",
        callbacks=None,
        *,
        missing=None,
        initial_epoch=0,
        **others,
    ):
        """Learns the hyperparameters while it takes a stream in.

        The stream is cut into consecutive blocks. For each of them a gradient step is made on the
        negative log predictive density of the block given the state before it, per sample; then the
        factor is brought to the new hyperparameters, and the block taken in, sample by sample. By
        the chain rule that density is the sum of the one-step predictive ones; no point leaves
        inside a block. Another epoch begins with the state from before the call.

        Args:
            x: Inputs, as for `process`.
            z: Observations, as for `process`.
            batch_size: Samples in a block, T; the last one may be shorter. One costs
                O(C²T + CT² + T³), and O(C³) for the new factor.
            epochs: Passes through the stream.
            verbose: 0 is silent, 1 or "auto" a progress bar, 2 one line an epoch.
            callbacks: Keras callbacks.
            missing: Bool, broadcast against z: True where missing.
            initial_epoch: The number of the first epoch.
            **others: What Keras's `fit` takes besides has no meaning here.

        Returns:
            Keras's `History`. Where the training has diverged (see `cgp.Model`), the stream has
            been taken in at the best parameters.

        Raises:
            TypeError: Other arguments of Keras's `fit`; data that `process` refuses.
            ValueError: A model not compiled, or data that `process` refuses.
            NotPositiveDefiniteError: A covariance is not positive definite at the initial
                parameters. The data are as before the call.
        """
        if others:
            raise TypeError(
                f"{', '.join(others)}: a RecursiveGP learns from one stream, in its order; "
                "evaluate(x, z) tells the loss of another"
            )
        check_compiled(self, "keras.optimizers.Adam(0.01)")
        check_epochs(epochs, initial_epoch)
        whole = isinstance(batch_size, int | np.integer)
        if not whole or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number, at least 1, got {batch_size!r}")
        samples = self._admitted(as_block(x, z, missing, self.variable_dtype))
        again = keras.callbacks.LambdaCallback(on_epoch_begin=self._from_here(initial_epoch))
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(again)
        else:
            given = [] if callbacks is None else keras.tree.flatten(callbacks)
            callbacks = [again, *given]
        with self._all_or_nothing() as held:
            history = super().fit(
                self._dataset(samples, batch_size),
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                initial_epoch=initial_epoch,
            )
            if history.diverged:  # the parameters are the best ones again
                self._restore(held)
                self.process(x, z, missing, verbose=0)
        return history

    def _from_here(self, first: int):
        """For the begin of an epoch: the state as it is now, but for the first epoch."""
        held = self._hold()

        def begin(epoch, logs=None):
            if epoch > first:
                self._restore(held)

        return begin

    @contextlib.contextmanager
    def _all_or_nothing(self):
        """Brings the state back to what it is now if something fails, an interrupt included."""
        held = self._hold()
        try:
            yield held
        except BaseException:
            self._restore(held)
            raise

    def _dataset(self, samples: Samples, size: int) -> tf.data.Dataset:
        """Consecutive blocks of samples, shaped as `call` takes them."""
        x, z, is_single = samples
        x, z = (tf.constant(a[0] if is_single else a) for a in (x, z))

        def cut(first):
            return ((x[..., first : first + size, :], z[..., first : first + size]),)

        return tf.data.Dataset.range(0, z.shape[-1], size).map(cut)

    def train_step(self, data):
        """A gradient step on a block, and then the block is taken in."""
        ((x, z),) = data
        seen = tf.reduce_sum(arranged(x, z).counts)
        with keras_private.loss_weighed(self, tf.shape(x)[0], seen):
            super().train_step(data)
        self._take_in(x, z)
        return self.get_metrics_result()

    def evaluate(  # type: ignore[override]
        self, x, z, *, missing=None, verbose="auto", callbacks=None, return_dict=False
    ):
        """The loss of data given the state, as in `fit`, which stays as it is.

        All of them are one block, O(T³): `process` tells the errors of a long stream step by step.

        Args:
            x: Inputs, as for `process`.
            z: Observations, as for `process`.
            missing: Bool, broadcast against z: True where missing.
            verbose: As for `fit`.
            callbacks: Keras callbacks.
            return_dict: Whether to return a dictionary.

        Returns:
            The negative log predictive density per sample, a float.

        Raises:
            TypeError, ValueError: A model not compiled, or data that `process` refuses.
            NotPositiveDefiniteError: A hyperparameter is not finite.
        """
        check_compiled(self, "keras.optimizers.Adam(0.01)")
        samples = self._matched(as_block(x, z, missing, self.variable_dtype, require_targets=True))
        dataset = self._dataset(samples, samples.z.shape[-1])
        with self._translated_errors():
            return super().evaluate(
                dataset, verbose=verbose, callbacks=callbacks, return_dict=return_dict
            )
