"""Layers as a user would write them: an owner of hyperparameters and two that consume it."""

import keras
import numpy as np
import tensorflow as tf

import cgp
from cgp.training import Functional, Model, Shareable, refresh, register_post_update

POINTS = np.linspace(-2.0, 2.0, 5)


@keras.saving.register_keras_serializable(package="toys")
class Kernel(Shareable, keras.layers.Layer):
    """A Hermitian kernel: variance · exp(−d²/2ℓ²) · exp(i d)."""

    def __init__(self, lengthscale=1.0, variance=1.0, dtype="float64", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.lengthscale, self.variance = lengthscale, variance
        self.log_lengthscale = self._log("log_lengthscale", lengthscale)
        self.log_variance = self._log("log_variance", variance)
        self.built = True  # Keras warns of consumers without build that hold an unbuilt layer

    def _log(self, name, initial_value):
        initial = keras.initializers.Constant(np.log(initial_value))
        return self.add_weight(shape=(), initializer=initial, name=name)

    def covariance(self, x1, x2):
        d = x1[:, None] - x2[None, :]
        modulus = tf.exp(self.log_variance - 0.5 * d**2 * tf.exp(-2.0 * self.log_lengthscale.value))
        return tf.complex(modulus * tf.cos(d), modulus * tf.sin(d))

    def get_config(self):
        arguments = {"lengthscale": self.lengthscale, "variance": self.variance}
        return {**super().get_config(), **arguments}


class _Consumer(keras.layers.Layer):
    def __init__(self, kernel, dtype="float64", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.kernel = kernel

    def get_config(self):
        return {**super().get_config(), "kernel": keras.saving.serialize_keras_object(self.kernel)}

    @classmethod
    def from_config(cls, config):
        kernel = keras.saving.deserialize_keras_object(config.pop("kernel"))
        return cls(kernel=kernel, **config)


@keras.saving.register_keras_serializable(package="toys")
class Features(_Consumer):
    """Whitened features L⁻¹ k(points, x), with a stored L. Counts its factorisations in graph."""

    def build(self, input_shape):
        n = len(POINTS)
        self.chol = self.add_weight(
            shape=(n, n, 2), initializer="zeros", trainable=False, name="chol"
        )
        self.factorisations = self.add_weight(
            shape=(), initializer="zeros", dtype="int64", trainable=False, name="factorisations"
        )
        register_post_update(self, self.kernel.variables, self._update)

    def gram(self):
        points = tf.constant(POINTS)
        noise = tf.linalg.diag(tf.fill([len(POINTS)], tf.constant(0.1 + 0j, tf.complex128)))
        return self.kernel.covariance(points, points) + noise

    def _update(self):
        chol = cgp.linalg.cholesky(self.gram())
        self.chol.assign(tf.stack([tf.math.real(chol), tf.math.imag(chol)], axis=-1))
        self.factorisations.assign_add(1)

    def factor(self):
        refresh(self)
        stored = tf.complex(self.chol[..., 0], self.chol[..., 1])
        return cgp.linalg.stored_cholesky(stored, self.gram())

    def call(self, x):
        cross = self.kernel.covariance(tf.constant(POINTS), x[:, 0])
        features = tf.linalg.matrix_transpose(tf.linalg.triangular_solve(self.factor(), cross))
        return tf.concat([tf.math.real(features), tf.math.imag(features)], axis=-1)


@keras.saving.register_keras_serializable(package="toys")
class FreshFeatures(Features):
    """The same, factorising anew in each forward pass: the reference."""

    def build(self, input_shape):
        pass

    def factor(self):
        return cgp.linalg.cholesky(self.gram())


@keras.saving.register_keras_serializable(package="toys")
class Similarity(_Consumer):
    """Another user of the kernel, without state."""

    def call(self, x):
        return tf.math.imag(self.kernel.covariance(x[:, 0], tf.constant([0.5, 1.5], tf.float64)))


@keras.saving.register_keras_serializable(package="toys")
class Subclassed(Model):
    """Two consumers of one kernel in a subclassed model, whose loss comes from add_loss."""

    def __init__(self, kernel, other=None, **kwargs):
        super().__init__(**kwargs)
        self.kernel = kernel
        self.features = Features(kernel)
        self.similarity = Similarity(other or kernel)
        self.head = keras.layers.Dense(1, dtype="float64")

    def build(self, input_shape):  # Keras cannot trace a call with complex input by itself
        x_shape, _ = input_shape
        self.features.build(x_shape)
        self.similarity.build(x_shape)
        self.head.build((None, 2 * len(POINTS) + 2))

    def call(self, inputs):
        x, z = inputs
        features = tf.concat([self.features(x), self.similarity(x)], axis=-1)
        mean = self.head(features)
        self.add_loss(tf.reduce_mean((mean[:, 0] - tf.math.real(z)) ** 2))
        return {"mean": mean}

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        arguments = {"kernel": serialize(self.kernel), "other": serialize(self.similarity.kernel)}
        return {**super().get_config(), **arguments}

    @classmethod
    def from_config(cls, config):
        revive = keras.saving.deserialize_keras_object
        kernels = {name: revive(config.pop(name)) for name in ("kernel", "other")}
        return cls(**kernels, **config)


def network(features=Features, model=Functional):
    """A functional model: two layers on one kernel, beside ordinary dense ones."""
    kernel = Kernel(lengthscale=0.8, variance=1.5)
    x = keras.Input((1,), dtype="float64")
    hidden = keras.layers.Concatenate(dtype="float64")(
        [features(kernel, name="features")(x), Similarity(kernel, name="similarity")(x)]
    )
    hidden = keras.layers.Dense(3, activation="tanh", dtype="float64")(hidden)
    return model(x, keras.layers.Dense(1, dtype="float64")(hidden))


def mean_squared_error():
    return keras.losses.MeanSquaredError(dtype="float64")


def series(n=48, seed=0):
    """Inputs `[n, 1]` and targets `[n, 1]`."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (n, 1))
    return x, np.sin(2.0 * x) + 0.1 * rng.normal(size=(n, 1))


def copy_trainables(source, target):
    for a, b in zip(source.trainable_variables, target.trainable_variables, strict=True):
        assert a.name == b.name
        b.assign(a)


def staleness(layer):
    """How far the stored factor is from a fresh one of the present hyperparameters."""
    stored = layer.chol.numpy()
    fresh = np.linalg.cholesky(layer.gram().numpy())
    return np.max(np.abs(stored[..., 0] + 1j * stored[..., 1] - fresh))
