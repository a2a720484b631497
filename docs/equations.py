"""The LaTeX of equations that are written in plain text, with the signs of Unicode.

Docstrings are read in a terminal, so that their equations stay plain text there, such as
`variance · e^{−i2π delay (f1 − f2)}`, and become LaTeX when the site is built.
"""

import ast
import re
import textwrap
import unicodedata

MARKS = {
    "·": r"\cdot ",
    "−": "-",
    "Σ": r"\sum ",
    "∫": r"\int ",
    "~": r"\sim ",
    "≠": r"\neq ",
    "±": r"\pm ",
    "×": r"\times ",
    "∞": r"\infty ",
    "|": r"\vert ",
    "ᴴ": r"^{\mathsf{H}}",
    "ᵀ": r"^{\mathsf{T}}",
    "⁻¹": "^{-1}",
    "²": "^{2}",
    "³": "^{3}",
    **{digit: f"_{{{number}}}" for number, digit in enumerate("₀₁₂₃₄")},
}
FUNCTIONS = ("sin", "cos", "exp", "log", "det")
TOKEN = re.compile(
    r"(?P<bar>\w\u0304)"
    r"|√(?P<root>\w+|\([^()]*\))"
    r"|(?P<word>(?:CN|Re|Im|[A-Za-z]{3,})(?:-[A-Za-z]+|_[a-z]{2,}|_[A-Z])*)"
    r"|(?P<numbered>[a-hk-zA-Z])(?P<number>\d)(?![\d.])"  # i2π is a product
    r"|_(?P<below>[a-z]{2,})"
    r"|(?P<inverse>⁻¹)"
    r"|(?P<space> )"
    r"|(?P<other>.)",
    re.DOTALL,
)


def latex(text: str) -> str:
    """A formula in LaTeX, from plain text with the signs of Unicode.

    Args:
        text: One formula; `_` and `^` as in LaTeX, with braces around what is longer than a sign.
            Words of three letters or more are names, and upright.
    """
    return "".join(_latex(token) for token in TOKEN.finditer(_decomposed(text))).strip()


def array(lines: list[str]) -> str:
    """The LaTeX of the lines of a displayed equation.

    Two spaces or more begin a new column, unless an equals sign follows.
    """
    rows = [re.split(r" {2,}(?! *=)", line.strip()) for line in lines]
    columns = max(map(len, rows))
    body = r" \\ ".join(" & ".join(map(latex, row)) for row in rows)
    return f"\\begin{{array}}{{{'l' * columns}}} {body} \\end{{array}}"


def is_code(lines: list[str]) -> bool:
    """Whether indented lines are Python, which equations in plain text are not."""
    try:
        ast.parse(textwrap.dedent("\n".join(lines)))
    except SyntaxError:
        return False
    return True


def _decomposed(text: str) -> str:
    """With the bar of a conjugate as a sign of its own, and all else as it is."""
    decomposed = (unicodedata.normalize("NFD", sign) for sign in text)
    return "".join(p if "\u0304" in p else s for p, s in zip(decomposed, text, strict=True))


def _latex(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token[0]
    if kind == "bar":
        return f"\\bar{{{text[0]}}}"
    if kind == "root":
        return f"\\sqrt{{{latex(token['root'].strip('()'))}}}"
    if kind == "word":
        return f"\\{text} " if text in FUNCTIONS else f"\\text{{{text}}}"
    if kind == "number":
        return f"{token['numbered']}_{{{token['number']}}}"
    if kind == "below":
        return f"_{{\\text{{{token['below']}}}}}"
    if kind == "space":
        around = token.string[token.start() - 1] + token.string[token.end() : token.end() + 1]
        return r"\," if all(sign.isalnum() or sign in "()[]|ᴴᵀ²\u0304" for sign in around) else ""
    return MARKS.get(text, text)
