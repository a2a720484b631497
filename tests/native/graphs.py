"""Graphs for tests of compiled ops."""

import tensorflow as tf

from cgp import native


def in_own_graph(f):
    """`f` in a graph that compiled ops may be part of."""

    @tf.function(autograph=False)
    def run(*args):
        with native.own_graph():
            return f(*args)

    return lambda *args: run(*map(tf.constant, args))
