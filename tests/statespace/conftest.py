"""What tests of state-space models share."""

import pytest
import tensorflow as tf


@pytest.fixture(params=["op by op", pytest.param("compiled", marks=pytest.mark.long)])
def ways_to_run(request):
    """Functions that XLA compiles op by op, which few steps are done with sooner, and compiled."""
    tf.config.run_functions_eagerly(request.param == "op by op")
    yield request.param
    tf.config.run_functions_eagerly(False)
