"""How Sphinx builds the site; `python -m docs` calls it."""

import importlib.metadata
import inspect
import os
import pkgutil
import re
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the examples page and the reference are made by `docs`

import keras  # noqa: E402

from docs import benchmark_page, equations, gallery, pictures, reference  # noqa: E402

project = "cgp"
author = "the cgp developers"
project_copyright = f"2026, {author}"
version = release = importlib.metadata.version("cgp")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "docs.mathml",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
default_role = "py:obj"  # docstrings have names in single backticks: a link where there is a page
nitpicky = True
# Backticks hold code and arguments too; a name in them that begins with `cgp.` must exist.
nitpick_ignore_regex = [("py:obj", r"(?s)(?!cgp\.).*|.*[(=].*"), ("py:(class|exc)", ".*")]
suppress_warnings = ["ref.python"]  # `Q` is a name of several classes: one of them is linked
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes that a docstring lists have a docstring of their own too
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say shapes and dtypes, which say more
autosummary_generate = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "cgp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"index": [], "start": []}  # pages without a section of their own
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
}
html_show_sphinx = False


SECTIONS = ("Args:", "Returns:", "Raises:", "Example:", "Attributes:", "Input shape:")


def as_restructured_text(app, kind, name, obj, options, lines):
    """Sets equations of a docstring, which are indented, and escapes signs that are no markup."""
    text, text_lines, equation = True, [], []
    for before, line in zip(["", *lines], [*lines, ""], strict=True):
        text = text and not line.startswith(SECTIONS)
        if text and line.startswith("    ") and (equation or not before.strip()):
            equation.append(line)
            continue
        if equation:
            is_code = equations.is_code(equation)
            text_lines += (
                ["::", "", *equation] if is_code else [f".. math:: {equations.array(equation)}"]
            )
            text_lines, equation = [*text_lines, ""], []
        if not line.startswith((" ", ">>>")) or not text:
            outside = line.split("`")
            outside[::2] = [
                re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", words) for words in outside[::2]
            ]
            line = "`".join(outside)
        text_lines.append(line)
    lines[:] = text_lines


def own_signature(app, kind, name, obj, options, signature, returned):
    """The arguments of a class are those of its constructor; Keras's `__new__` would hide them."""
    if kind != "class" or not issubclass(obj, keras.layers.Layer):
        return None
    parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
    plain = [p.replace(annotation=p.empty) for p in parameters]
    return str(inspect.Signature(plain)), ""


def is_foreign(app, kind, name, obj, skip, options):
    """Leaves out members inherited from Keras and Python, which have pages of their own."""
    function = obj.fget if isinstance(obj, property) else obj
    module = getattr(function, "__module__", None)
    return skip or (module is not None and not module.startswith("cgp"))


def name_without_page(app, env, node, text):
    """Leaves a name of the package that has no page as text, as long as it exists."""
    name = node.get("reftarget", "")
    try:
        return text if name.startswith("cgp.") and pkgutil.resolve_name(name) else None
    except (ImportError, AttributeError, ValueError):
        return None


def setup(app):
    """Writes the pages and pictures that are made from the code, before Sphinx looks for them."""
    pictures.draw_all(HERE)
    benchmark_page.write_page(HERE)
    gallery.write_pages(HERE)
    reference.write_pages(HERE)
    app.connect("missing-reference", name_without_page)
    app.connect("autodoc-process-signature", own_signature)
    app.connect("autodoc-skip-member", is_foreign)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)  # before napoleon
