"""Promises about the package as a whole: its layers, its manners, its files."""

import ast
import collections
import functools
import importlib.metadata
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import keras
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "cgp").rglob("*.py"))
CORE_PACKAGES = ("linalg", "distributions", "statespace")
CORE = [p for p in SOURCES if p.relative_to(ROOT / "cgp").parts[0] in CORE_PACKAGES]


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_packages_import_only_what_stands_below_them():
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", result.stdout), result.stdout


MANNERS = """
import logging, os, random, warnings
import keras, numpy as np, tensorflow as tf
import tensorflow_probability  # whatever it does at its import is its own affair

def state():
    root = logging.getLogger()
    return {
        "floatx": keras.config.floatx(),
        "epsilon": keras.config.epsilon(),
        "policy": keras.config.dtype_policy().name,
        "backend": keras.config.backend(),
        "eager": tf.executing_eagerly(),
        "run eagerly": tf.config.functions_run_eagerly(),
        "jit": tf.config.optimizer.get_jit(),
        "soft placement": tf.config.get_soft_device_placement(),
        "threads": (
            tf.config.threading.get_inter_op_parallelism_threads(),
            tf.config.threading.get_intra_op_parallelism_threads(),
        ),
        "tensorflow seed": tf.compat.v1.get_seed(None)[0],
        "numpy seed": str(np.random.get_state()),
        "python seed": random.getstate(),
        "logging": {n: logging.getLogger(n).level for n in ("", "tensorflow", "absl", "keras")},
        "handlers": len(root.handlers),
        "numpy errors": np.geterr(),
        "numpy printing": str(np.get_printoptions()),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
    }

before = state()
import cgp
gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0) * cgp.kernels.Rotation(0.3), noise_variance=0.1)
gp.condition([0.0, 1.0], [1j, 2j])
gp.predict([0.5])
gp.compile(optimizer=cgp.optimizers.LBFGS())
gp.fit([0.0, 1.0], [1j, 2j], epochs=1, verbose=0)
after = state()
changed = {name for name in before if before[name] != after[name]}
assert not changed, {name: (before[name], after[name]) for name in changed}
print("unchanged")
"""


@pytest.mark.long
def test_importing_and_using_cgp_changes_no_global_setting():
    result = run(MANNERS)
    assert result.stdout.strip() == "unchanged", result.stdout + result.stderr


@pytest.mark.long
def test_cgp_is_float64_under_any_floatx():
    code = (
        "import keras; keras.config.set_floatx('float16'); import cgp, numpy as np;"
        "gp = cgp.ExactGP(cgp.kernels.Matern12(1.0, 1.0), 0.1); gp.condition([0., 1.], [1j, 2j]);"
        "print({str(v.dtype) for v in gp.trainable_variables}, gp.predict([0.5])['mean'].dtype,"
        "keras.config.floatx())"
    )
    result = run(code)
    assert result.stdout.strip() == "{'float64'} complex128 float16", result.stdout + result.stderr


@pytest.mark.long
def test_importing_cgp_prints_nothing_and_loads_little_beside_tensorflow_and_keras():
    """Counts modules, as times vary: TensorFlow Probability alone would be a thousand of them.

    Modules of cgp are not counted: they are small, and each has a file of its own.
    """
    result = run(
        "import sys, tensorflow, keras; before = set(sys.modules); import cgp;"
        "print('loaded', *(set(sys.modules) - before))",
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    assert result.returncode == 0, result.stderr
    first, *loaded = result.stdout.split()
    assert first == "loaded"  # nothing was printed before
    packages = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert packages <= {"cgp", "tensorflow", "keras"}
    beside = [name for name in loaded if name.partition(".")[0] != "cgp"]
    assert len(beside) < 20


@pytest.mark.long
def test_a_fit_loads_no_tensorflow_probability():
    """Importing it takes longer than the fit."""
    result = run(
        "import sys, cgp, numpy as np; x = np.arange(8.0); kernel = cgp.kernels.RBF(1.0, 2.0);"
        "gp = cgp.ExactGP(kernel * cgp.kernels.Rotation(0.1), 0.1);"
        "gp.fit(x, np.exp(1j * x), epochs=2, verbose=0);"
        "print('tensorflow_probability' in sys.modules)"
    )
    assert result.stdout.strip() == "False", result.stdout + result.stderr


@pytest.mark.long
def test_cgp_needs_neither_pandas_nor_xarray():
    result = run(
        "import sys; sys.modules.update(pandas=None, xarray=None); import cgp, datetime;"
        "gp = cgp.ExactGP(cgp.kernels.Matern12(1, 1), 0.1); clock = cgp.Clock('day', '2026-01-01');"
        "gp.condition(clock([datetime.date(2026, 1, 2)]), [1j]);"
        "print(gp.predict([1.0])['mean'].shape)"
    )
    assert result.stdout.strip() == "(1,)", result.stdout + result.stderr


@pytest.mark.long
def test_another_backend_of_keras_is_refused_with_the_remedy():
    # Other backends need packages that are not here, so that Keras only says it has one.
    result = run("import keras; keras.config.backend = lambda: 'numpy'; import cgp")
    assert result.returncode != 0
    error = result.stderr.strip().splitlines()[-1]
    assert error.startswith("ImportError: cgp runs on Keras's TensorFlow backend")
    assert "'numpy'" in error
    assert "KERAS_BACKEND" in error


def code_of(path):
    """The source without comments and strings, by line number."""
    lines = {}
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in (tokenize.COMMENT, tokenize.STRING, tokenize.ENCODING):
                lines.setdefault(token.start[0], []).append(token.string)
    code = {number: "".join(tokens).strip() for number, tokens in lines.items()}
    return {number: line for number, line in code.items() if line}


@pytest.mark.parametrize("path", CORE, ids=lambda p: p.name)
def test_the_core_takes_adjoints_and_no_transposes(path):
    text = path.read_text(encoding="utf-8").splitlines()
    for number, code in code_of(path).items():
        where = f"{path.relative_to(ROOT)}:{number}: {text[number - 1].strip()}"
        assert not re.search(r"\.T\b|\btf\.transpose\(|transpose_[ab]=|\.transpose\(", code), where
        if "matrix_transpose(" in code:
            nearby = text[max(number - 7, 0) : number + 1]
            assert any("#" in line for line in nearby), f"{where}: say why it is not the adjoint"


def test_the_core_is_there_to_be_looked_at():
    assert {"cholesky.py", "updates.py", "complex_normal.py"} <= {p.name for p in CORE}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "cgp")))
def test_no_file_grows_beyond_what_can_be_read_at_a_sitting(path):
    length = len(path.read_text(encoding="utf-8").splitlines())
    assert length <= 650, f"{path.relative_to(ROOT)} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "cgp")))
def test_every_file_says_what_it_is(path):
    assert path.name not in ("utils.py", "helpers.py", "misc.py")
    assert path.read_text(encoding="utf-8").lstrip().startswith('"""')


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "cgp")))
def test_autograph_can_read_every_file(path):
    """A `tf.function` of a user converts what it calls; an assignment inside an expression stops
    it, with a warning."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.NamedExpr), where


EMPTY_WORDS = frozenset(
    """again both data2 each first_one found given held here known left more most none_ nothing one
    ones other others ours own part parts piece pieces rest seen some stuff taken temp theirs there
    thing things those tmp value wanted which what""".split()  # noqa: SIM905
)
"""Names that say nothing of what they stand for."""
EMPTY_SHARE = 0.008  # of all names that are stored


def stored_names(tree: ast.AST) -> Iterator[str]:
    """Names of variables, arguments, attributes, functions and classes where they are defined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def test_few_names_say_nothing():
    total, empty = 0, collections.Counter()
    for path in SOURCES:
        names = list(stored_names(ast.parse(path.read_text(encoding="utf-8"))))
        total += len(names)
        for name in names:
            if name.strip("_") in EMPTY_WORDS:
                empty[name.strip("_"), str(path.relative_to(ROOT))] += 1
    share = sum(empty.values()) / total
    words = ", ".join(sorted(EMPTY_WORDS))
    most = "\n".join(f"{n:4} {word:8} {path}" for (word, path), n in empty.most_common(30))
    assert share <= EMPTY_SHARE, (
        f"{share:.2%} of {total} names are among {words}; name the thing instead:\n{most}"
    )


def test_functions_can_be_read_on_a_screen():
    """Sixty lines, docstring and signature not counted."""
    long = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                has_docstring = ast.get_docstring(node) is not None
                statements = node.body[has_docstring:]
                length = node.end_lineno - statements[0].lineno + 1 if statements else 0
                if length > 60:
                    long[f"{path.stem}.{node.name}"] = length
    assert not long


IMPORT_CIRCLES = 0


def test_no_modules_import_each_other():
    """Circles of imports, of types alone (`TYPE_CHECKING`) included."""
    imported = imports_of_modules()
    reached = {m: reachable(m, imported) for m in imported}
    circles = {frozenset(n for n in reached[m] if m in reached[n]) for m in imported}
    circles = [sorted(circle) for circle in circles if circle]
    assert len(circles) <= IMPORT_CIRCLES, circles


@functools.cache
def imports_of_modules() -> dict[str, set[str]]:
    """The modules that each module of cgp imports directly."""
    graph = grimp.build_graph("cgp", cache_dir=None)
    return {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}


SINGLE_IMPORTERS = 22


def test_few_modules_exist_for_one_other_alone():
    """Modules with one importer; the package that offers a module's names is not counted."""
    imported = imports_of_modules()
    importers = {m: [n for n in imported if m in imported[n]] for m in imported if m != "cgp"}
    alone = {
        module: names[0]
        for module, names in importers.items()
        if len(names) == 1 and not module.startswith(f"{names[0]}.")
    }
    assert len(alone) <= SINGLE_IMPORTERS, f"{len(alone)}: {alone}"


def reachable(module: str, imported: dict[str, set[str]]) -> set[str]:
    """The modules that a module imports, directly and through others."""
    result, waiting = set(), list(imported[module])
    while waiting:
        name = waiting.pop()
        if name not in result:
            result.add(name)
            waiting += imported[name]
    return result


PRIVATE_READS = 2
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # public in spite of their names
DOORS = {"keras_private.py", "tensorflow_private.py", "scipy_private.py"}


def private_reads(tree: ast.Module) -> Iterator[ast.expr]:
    """Members with an underscore of objects of other modules."""
    here = set(stored_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            holder, name = node.value, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            holder, name = node.args[0], getattr(node.args[1], "value", None)
        else:
            continue
        is_private = isinstance(name, str) and re.match("_[a-zA-Z]", name)
        is_own = ast.unparse(holder) in ("self", "cls", "super()") or name in here
        if is_private and not is_own and name not in NAMED_TUPLES:
            yield node


def test_private_members_are_read_where_they_are_defined():
    result = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if path.name not in DOORS
        for node in private_reads(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(result) <= PRIVATE_READS, "\n".join([f"{len(result)} reads", *result])


def test_keras_is_private_in_one_file_alone():
    """Attributes of Keras's objects that begin with an underscore, and imports of `keras.src`."""
    x = keras.Input((1,))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.Adam(), "mse", metrics=["mae"], run_eagerly=True)
    model.evaluate(np.ones((1, 1)), np.ones((1, 1)), verbose=0)
    objects = [
        *(model, *model.layers, *model.weights, *model.metrics, model.optimizer),
        *(model._compile_loss, model._compile_metrics),
    ]
    private = {name for result in objects for name in dir(result) if re.match("_[a-z]", name)}
    private |= {"_is_default"}  # a mark on methods
    private -= {"_dtype"}  # also our own, of objects that are none of Keras's
    assert "_flatten_layers" in private
    for path in SOURCES:
        if path.name == "keras_private.py":
            continue
        for number, code in code_of(path).items():
            where = f"{path.relative_to(ROOT)}:{number}"
            assert "keras.src" not in code, where
            assert not private & set(re.findall(r"\.(_\w+)", code)), where


def test_tensorflow_and_scipy_are_private_in_one_file_each():
    private = (
        r"tf\.__internal__|tensorflow\.python|\.outer_graph|FuncGraph|__pyx_capi__|scipy\S*\._"
    )
    for path in SOURCES:
        if path.name not in ("tensorflow_private.py", "scipy_private.py"):
            for number, code in code_of(path).items():
                assert not re.search(private, code), f"{path.relative_to(ROOT)}:{number}"


def test_the_versions_of_keras_admitted_are_those_that_were_tried():
    source = (ROOT / "cgp" / "training" / "keras_private.py").read_text(encoding="utf-8")
    tried = re.search(r"Tried with Keras 3\.(\d+) .* and 3\.(\d+) ", source)
    oldest, newest = map(int, tried.groups())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"keras>=3.{oldest},<3.{newest + 1}" in project["dependencies"]
    major, minor = map(int, re.match(r"(\d+)\.(\d+)", keras.version()).groups())
    assert major == 3
    assert oldest <= minor <= newest


def test_the_package_is_typed_and_has_a_version():
    assert (ROOT / "cgp" / "py.typed").is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", importlib.metadata.version("cgp"))


def test_every_public_name_exists_and_is_documented():
    import cgp

    for module in (
        cgp,
        cgp.kernels,
        cgp.layers,
        cgp.linalg,
        cgp.statespace,
        cgp.training,
        cgp.means,
        cgp.optimizers,
    ):
        for name in getattr(module, "__all__", ()):
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"
