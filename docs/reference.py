"""The reference: a page for each package, which lists its public names, and one for each name."""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

# The packages that users import from, in the order of the menu.
PACKAGES = (
    "cgp",
    "cgp.kernels",
    "cgp.means",
    "cgp.likelihoods",
    "cgp.statespace",
    "cgp.layers",
    "cgp.online",
    "cgp.linalg",
    "cgp.distributions",
    "cgp.training",
    "cgp.optimizers",
    "cgp.callbacks",
    "cgp.metrics",
    "cgp.plotting",
    "cgp.datasets",
)


def public_names(package: str) -> list[str]:
    """The public names of a package, without modules and those that `cgp` itself has."""
    module, above = _module(package), () if package == "cgp" else public_names("cgp")
    names = getattr(module, "__all__", None) or [
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and getattr(member, "__module__", None) == module.__name__
    ]
    return [
        name for name in names if name not in above and not inspect.ismodule(getattr(module, name))
    ]


def write_pages(docs: Path) -> None:
    """Writes the pages of packages into `docs/reference`.

    Args:
        docs: The folder of the site.
    """
    folder = docs / "reference"
    folder.mkdir(exist_ok=True)
    toctree = "\n   ".join(PACKAGES)
    index = f"Reference\n=========\n\n.. toctree::\n   :maxdepth: 1\n\n   {toctree}\n"
    (folder / "index.rst").write_text(index, encoding="utf-8")
    for package in PACKAGES:
        # Autodoc imports a package by its name, which those that `cgp` renames do not have.
        sys.modules.setdefault(package, _module(package))
        names = "\n   ".join(public_names(package))
        (folder / f"{package}.rst").write_text(
            f"{package}\n{'=' * len(package)}\n\n.. module:: {package}\n\n"
            f"{inspect.getdoc(_module(package)) or ''}\n\n"
            f".. autosummary::\n   :toctree: names\n   :nosignatures:\n\n   {names}\n",
            encoding="utf-8",
        )


def _module(package: str) -> ModuleType:
    parent, _, name = package.rpartition(".")
    return getattr(_module(parent), name) if parent else importlib.import_module(name)
