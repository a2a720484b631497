"""Installs the sdist and the wheel of dist/, each in a fresh environment, and runs `python -m cgp`.

    python -m release.check

The sdist is installed without a compiler, so that the core has to be missing there, and to be
active from the wheel. Dependencies are those of the Python that runs this: a `.pth` file adds its
site-packages, whose own `.pth` files Python does not read then, so that an editable installation of
cgp is not seen.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

DIST = Path(__file__).resolve().parents[1] / "dist"
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
QUESTION = "import cgp, cgp.native as n; print(cgp.__file__, n.core().ops is not None)"


def check(artifact: Path, has_core: bool, folder: Path) -> None:
    """Installs one file and runs what it installed, outside of the checkout.

    Raises:
        SystemExit: The core is there and should not be, or the other way round.
        subprocess.CalledProcessError: It could not be installed, or the checks failed.
    """
    print(f"== {artifact.name}", flush=True)
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--force-reinstall", str(artifact)],
        env=environment if has_core else {**environment, **NO_COMPILER},
        cwd=folder,
        check=True,
    )

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(python), *command], env=environment, cwd=folder, check=True, stdout=subprocess.PIPE
        )
        return done.stdout.decode()

    file, active = run("-c", QUESTION).split()[-2:]
    if not Path(file).is_relative_to(site) or active != str(has_core):
        raise SystemExit(f"cgp is {file}, and its core active: {active}")
    if not Path(file).with_name("py.typed").is_file():
        raise SystemExit("py.typed is missing")
    print(run("-m", "cgp"), end="", flush=True)


def main() -> int:
    """Returns the exit status; a failure raises."""
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        check(wheel, True, Path(folder) / "wheel")
        check(sdist, False, Path(folder) / "sdist")
    return 0


if __name__ == "__main__":
    sys.exit(main())
