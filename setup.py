"""The package is described in pyproject.toml; here its C++ sources are compiled side by side."""

from pybind11.setup_helpers import ParallelCompile
from setuptools import setup

ParallelCompile().install()
setup()
