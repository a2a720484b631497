"""Which tests a change may break, by the imports of the package and of the tests."""

import ast
import subprocess
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
# Tests that run scripts or the code of pages, by where these are. What they import is not theirs to
# say: a change anywhere in the package affects them.
RUNNERS = {
    "examples": ["tests.examples"],
    "docs": ["tests.test_docs", "tests.test_tour", "tests.test_pipelines"],
    "README.md": ["tests.test_docs"],
}


def tests_affected_since(commit: str) -> set[Path]:
    """The files of tests that import, by whatever way, a module that has changed since a commit.

    What is not committed does not count. C++ sources count as the module that loads them.
    """
    command = ["git", "diff", "-z", "--name-only", f"{commit}...HEAD"]
    changed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    graph = imports()
    affected: set[str] = set()
    for name in filter(None, changed.stdout.split("\0")):
        module = module_of(name)
        if module in graph.modules:
            affected |= {module, *graph.find_downstream_modules(module)}
        runners = RUNNERS.get(name.partition("/")[0], [])
        if name.startswith("cgp/"):
            runners = [runner for each in RUNNERS.values() for runner in each]
        affected |= {test for test in graph.modules if test.startswith(tuple(runners))}
    return {ROOT / f"{name.replace('.', '/')}.py" for name in affected if is_test(name)}


def is_test(module: str) -> bool:
    """Whether pytest collects it."""
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


def module_of(name: str) -> str | None:
    """The module of a file, by its path from the root; None if it is none."""
    if name.startswith("cgp/native/source/"):
        return "cgp.native"
    if not name.startswith(("cgp/", "tests/")) or not name.endswith(".py"):
        return None
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


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
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "cgp"
            ):
                home = homes.get(node.attr, f"cgp.{node.attr}")
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


def homes_of_names() -> dict[str, str]:
    """The module of each name that `cgp` itself imports from one of its own."""
    tree = ast.parse((ROOT / "cgp/__init__.py").read_text("utf-8"))
    return {
        alias.name: f"{node.module}.{alias.name}" if node.module == "cgp" else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cgp")
        for alias in node.names
    }
