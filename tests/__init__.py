"""Tests of cgp.

Nearly all of their time goes into compiling functions that then run a few times on small arrays:
XLA is asked to compile quickly, not to make fast code. Where `XLA_FLAGS` is set, it stays as it is,
so that `XLA_FLAGS= python -m tests` compiles as users do.
"""

import gc
import os
from importlib.metadata import version

_QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)

# XLA ends the process at a flag that it does not know, and older ones do not know these.
if tuple(map(int, version("tensorflow").split(".")[:2])) >= (2, 21):
    os.environ.setdefault("XLA_FLAGS", " ".join(_QUICK_TO_COMPILE))

# TensorFlow's graphs are millions of objects, most of which live as long as the process.
gc.set_threshold(50_000, 20, 100)
