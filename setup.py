"""How the C++ sources are compiled, and the description for package indexes made of the README;
pyproject.toml describes the package.

Sources are compiled side by side, and again only if they, a header or their options have changed.
"""

import re
import sys
import sysconfig
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, has_flag
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
NATIVE = ROOT / "cgp" / "native" / "source"
HEADERS = sorted(str(path.relative_to(ROOT)) for path in NATIVE.glob("*.h"))
WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi"]
# Ops for TensorFlow, not a Python module: cgp/native/__init__.py loads the file. Where there is no
# compiler the package is installed without them.
CORE = Extension(
    "cgp.native._ops",
    sources=sorted(str(path.relative_to(ROOT)) for path in NATIVE.glob("*.cpp")),
    depends=HEADERS,
    # Roots set no errno, which would keep loops over them from being vectorised. Arguments wider
    # than the vectors of the baseline, which -Wpsabi notes, are inlined. Symbols for a debugger
    # would make five times as large a file, and a tenth more to compile.
    extra_compile_args=["-std=c++17", "-O2", "-g0", "-fno-math-errno", *WARNINGS],
    language="c++",
    optional=True,
    py_limited_api=True,  # nothing of Python is in it: one file serves all versions
)
# GCC vectorises as much at -O2 then as at -O3, which takes half as long again to compile.
FLAGS_OF_GCC = ["-ftree-vectorize", "-fvect-cost-model=dynamic"]


def is_older(object_file: str, source: str) -> bool:
    """Whether an object file is older than its source, a header or this script."""
    compiled = Path(object_file).stat().st_mtime
    return any(compiled < Path(path).stat().st_mtime for path in [source, *HEADERS, __file__])


class Build(build_ext):
    """Keeps the object files of an editable installation too, in one folder for both kinds."""

    def finalize_options(self) -> None:
        """Chooses the folder; another one for another Python or machine."""
        super().finalize_options()
        machine = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        self.build_temp = str(Path("build") / f"objects-{machine}")

    def build_extensions(self) -> None:
        """Adds the options that this compiler has."""
        CORE.extra_compile_args += [f for f in FLAGS_OF_GCC if has_flag(self.compiler, f)]
        super().build_extensions()


def description() -> str:
    """The README with links to the repository, which lead nowhere on the page of an index."""
    source = re.search(r'^Source = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)[1]
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"!\[([^]]*)\]\((?!http)", rf"![\1]({source}/raw/main/", text)
    return re.sub(r"(?<!!)\[([^]]*)\]\((?!http)", rf"[\1]({source}/blob/main/", text)


ParallelCompile(needs_recompile=is_older).install()
setup(
    ext_modules=[CORE],
    cmdclass={"build_ext": Build},
    long_description=description(),
    long_description_content_type="text/markdown",
)
