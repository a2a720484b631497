"""All tests, folder by folder, each in processes of its own.

    python -m tests [folder ...]

What XLA has compiled stays in memory for as long as the process: all folders in one would take more
of it than most machines have.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WORKERS = "2"
APART = "state_space"  # this process compiles as much as all others of its folder


def parts() -> dict[str, list[Path]]:
    """What runs together, by name."""
    folders = {p.name: [p] for p in sorted(HERE.iterdir()) if any(p.glob("test_*.py"))}
    folders["gp"] = [p for p in sorted((HERE / "gp").rglob("test_*.py")) if APART not in p.parts]
    return {
        **folders,
        "state_space_gp": [HERE / "gp" / APART],
        "whole": sorted(HERE.glob("test_*.py")),
        "doctests": [HERE.parent / "cgp"],
    }


def main(names: list[str]) -> int:
    """Runs parts, all if none is named; how many failed."""
    failed = []
    for name, paths in parts().items():
        if names and name not in names:
            continue
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", WORKERS, *map(str, paths)]
        if subprocess.run(command, cwd=HERE.parent, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all parts passed", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
