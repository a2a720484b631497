"""How the C++ sources are compiled; pyproject.toml describes the package.

Sources are compiled side by side, and again only if they, a header or their options have changed.
"""

import sys
import sysconfig
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile
from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
READ_BY_ALL = [*ROOT.glob("cgp/native/source/*.h"), ROOT / "pyproject.toml", Path(__file__)]


def is_older(object_file: str, source: str) -> bool:
    """Whether an object file is older than anything that it was made of."""
    made = Path(object_file).stat().st_mtime
    return any(made < path.stat().st_mtime for path in [Path(source), *READ_BY_ALL])


class Build(build_ext):
    """Keeps the object files of an editable installation too, in one folder for both kinds."""

    def finalize_options(self) -> None:
        """Chooses the folder; another one for another Python or machine."""
        super().finalize_options()
        machine = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        self.build_temp = str(Path("build") / f"objects-{machine}")


ParallelCompile(needs_recompile=is_older).install()
setup(cmdclass={"build_ext": Build})
