"""Which tests a change may break, by the imports of the package and of the tests."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
# Tests of what they do not import, by where that is: of scripts, of the code of pages, and of the
# package as other processes see it. A change anywhere in the package affects them.
RUNNERS = {
    "examples": ["tests.examples"],
    "docs": ["tests.test_docs", "tests.test_tour", "tests.test_pipelines"],
    "README.md": ["tests.test_docs"],
    "noxfile.py": ["tests.test_release"],
    "cgp": ["tests.test_house", "tests.test_self_check", "tests.native.test_core"],
}
# How everything is installed, compiled and tested, and what all names come from.
FOR_ALL = ("pyproject.toml", "setup.py", "cgp/__init__.py", "tests/__init__.py")


def tests_affected_since(commit: str) -> dict[Path, int]:
    """The files of tests that import, directly or not, a module that has changed since a commit.

    What is not committed yet counts too; C++ sources count as the module that loads them.

    Args:
        commit: A name of it. Changes are counted from where the present commit left its history.

    Returns:
        How many imports lead from each file to the nearest change: 0 for a test that has changed.
        Tests that run what has changed, and do not import it, follow those that do.
    """
    changed = names_changed_since(commit)
    graph = imports()
    tests = {module for module in graph.modules if is_test(module)}
    distances = imports_between(graph, {module_of(name) for name in changed} & graph.modules)
    farthest = max(distances.values(), default=0) + 1
    runners: set[str] = set()
    for name in changed:
        runners.update(RUNNERS.get(name.partition("/")[0], []))
        if name.startswith("cgp/"):
            runners.update(runner for each in RUNNERS.values() for runner in each)
    for test in tests:
        if changed & {*FOR_ALL} or test.startswith(tuple(runners)):
            distances.setdefault(test, farthest)
    return {
        ROOT / f"{name.replace('.', '/')}.py": distances[name]
        for name in distances
        if name in tests
    }


def imports_between(graph: grimp.ImportGraph, changed: set[str]) -> dict[str, int]:
    """How many imports lead from each module to the nearest of those that have changed."""
    distances: dict[str, int] = {}
    importers = changed
    while importers:
        distances |= dict.fromkeys(importers, max(distances.values(), default=-1) + 1)
        users = (graph.find_modules_that_directly_import(module) for module in importers)
        importers = set().union(*users) - distances.keys()
    return distances


def names_changed_since(commit: str) -> set[str]:
    """The files that differ from a commit, by their paths from the root."""

    def git(*command: str) -> str:
        result = subprocess.run(
            ["git", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        return result.stdout

    base = git("merge-base", commit, "HEAD").strip()
    listed = git("diff", "-z", "--name-only", base)
    listed += git("ls-files", "-z", "--others", "--exclude-standard")
    return set(filter(None, listed.split("\0")))


def is_test(module: str) -> bool:
    """Whether pytest collects a module."""
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


def module_of(name: str) -> str | None:
    """The module of a file, by its path from the root; None if it is none."""
    if name.startswith("cgp/native/source/"):
        return "cgp.native"
    if not name.startswith(("cgp/", "tests/")) or not name.endswith(".py"):
        return None
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def imports() -> grimp.ImportGraph:
    """The import graph, in which `import cgp` stands for those modules whose names are used.

    The package imports all of its modules, so that everything else would depend on everything.
    What no test imports, a script that is run or fixtures of pytest, belongs to all tests of its
    folder.
    """
    graph = grimp.build_graph("cgp", "tests", cache_dir=None)
    homes = homes_of_names()
    for user in graph.find_modules_that_directly_import("cgp"):
        graph.remove_import(importer=user, imported="cgp")
        path = ROOT / f"{user.replace('.', '/')}.py"
        source = path if path.exists() else path.with_suffix("") / "__init__.py"
        for name in names_of_package(ast.parse(source.read_text("utf-8"))):
            home = homes.get(name, f"cgp.{name}")
            if home in graph.modules and home != user:
                graph.add_import(importer=user, imported=home)
    tests = [module for module in graph.modules if is_test(module)]
    for module in list(graph.modules):
        if module.startswith("tests") and not is_test(module):
            folder = module.rpartition(".")[0] or module
            if not graph.find_modules_that_directly_import(module):
                for test in tests:
                    if test.startswith(f"{folder}."):
                        graph.add_import(importer=test, imported=module)
    return graph


def names_of_package(tree: ast.AST) -> Iterator[str]:
    """The names that a module uses of the package: `cgp.name`, or `from cgp import name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "cgp":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "cgp":
            yield node.attr


def homes_of_names() -> dict[str, str]:
    """The module of each name that `cgp` itself imports from one of its own."""
    tree = ast.parse((ROOT / "cgp/__init__.py").read_text("utf-8"))
    return {
        alias.name: f"{node.module}.{alias.name}" if node.module == "cgp" else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cgp")
        for alias in node.names
    }
