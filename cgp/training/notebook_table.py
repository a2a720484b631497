"""Tables of hyperparameters in HTML, for notebooks."""

import html
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cgp.training.parameters import Parameterized, named_parameters


class Row(NamedTuple):
    """A row of a table."""

    name: str
    value: str
    note: str = ""


def notebook_table(title: str, rows: Iterable[Row]) -> str:
    """A table in HTML, for `_repr_html_`; its colours are those of the notebook.

    Example:
        >>> from cgp.training.notebook_table import Row, notebook_table
        >>> notebook_table("Model", [Row("size", "< 3")]).count("&lt; 3")
        1
    """
    lines = [f"<table><thead><tr>{_cell('th', title, columns=3)}</tr></thead><tbody>"]
    for row in rows:
        cells = _cell("th", row.name), _cell("td", row.value), _cell("td", row.note)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table>"])


def parameter_rows(layers: Iterable[tuple[str, Parameterized]]) -> list[Row]:
    """The hyperparameters of layers, as `named_parameters` names them, with their values.

    A layer that is listed several times is shared.
    """
    layers = list(layers)
    uses = Counter(id(p) for _, layer in layers for p in layer.own_parameters)
    rows = []
    for name, parameter in named_parameters(layers).items():
        count = uses[id(parameter)]
        notes = {
            "fixed": parameter.fixed,
            "starts from the data": parameter.is_left_out,
            f"shared by {count} parts": count > 1,
        }
        note = ", ".join(text for text, applies in notes.items() if applies)
        value = str(parameter) if parameter.is_left_out else array_text(parameter.numpy())
        rows.append(Row(name, value, note))
    return rows


def array_text(values: np.ndarray) -> str:
    """The values of an array as text, abbreviated if there are many."""
    return np.array2string(values, precision=4, separator=", ", threshold=20)


def _cell(tag: str, text: str, columns: int = 1) -> str:
    span = f' colspan="{columns}"' if columns > 1 else ""
    return f'<{tag}{span} style="text-align: left">{html.escape(text)}</{tag}>'
