"""How the C++ sources are compiled, and the description for package indexes made of the README;
pyproject.toml describes the package.

Sources are compiled side by side, and again only if they, a header or their options have changed.
"""

import re
import sys
import sysconfig
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, has_flag
from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
READ_BY_ALL = [*ROOT.glob("cgp/native/source/*.h"), ROOT / "pyproject.toml", Path(__file__)]


def is_older(object_file: str, source: str) -> bool:
    """Whether an object file is older than anything that it was made of."""
    made = Path(object_file).stat().st_mtime
    return any(made < path.stat().st_mtime for path in [Path(source), *READ_BY_ALL])


# GCC vectorises as much at -O2 then as at -O3, which takes half as long again to compile.
OF_GCC = ["-ftree-vectorize", "-fvect-cost-model=dynamic"]


class Build(build_ext):
    """Keeps the object files of an editable installation too, in one folder for both kinds."""

    def finalize_options(self) -> None:
        """Chooses the folder; another one for another Python or machine."""
        super().finalize_options()
        machine = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        self.build_temp = str(Path("build") / f"objects-{machine}")

    def build_extensions(self) -> None:
        """Adds the options that this compiler has."""
        known = [flag for flag in OF_GCC if has_flag(self.compiler, flag)]
        for extension in self.extensions:
            extension.extra_compile_args += known
        super().build_extensions()


def description() -> str:
    """The README with links to the repository, which lead nowhere on the page of an index."""
    source = re.search(r'^Source = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)[1]
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"!\[([^]]*)\]\((?!http)", rf"![\1]({source}/raw/main/", text)
    return re.sub(r"(?<!!)\[([^]]*)\]\((?!http)", rf"[\1]({source}/blob/main/", text)


ParallelCompile(needs_recompile=is_older).install()
setup(
    cmdclass={"build_ext": Build},
    long_description=description(),
    long_description_content_type="text/markdown",
)
