"""Links of the site that lead nowhere, and what its pages load from elsewhere, are found."""

import pytest

from docs.links import faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="b.html">b</a>', None),
        ('<a href="b.html#there">b</a>', None),
        ('<p id="here"><a href="#here">here</a>', None),
        ('<a href="https://example.org">elsewhere</a>', None),
        ('<a href="c.html">c</a>', "a.html links to c.html, which is no file"),
        (
            '<a href="b.html#here">b</a>',
            "a.html links to b.html#here, where there is no such anchor",
        ),
        (
            '<script src="https://example.org/a.js"></script>',
            "a.html loads https://example.org/a.js",
        ),
        ('<img src="//example.org/a.png">', "a.html loads //example.org/a.png"),
        ('<img srcset="b.png 1x, //example.org/a.png 2x">', "a.html loads //example.org/a.png"),
        ('<video poster="//example.org/a.png"></video>', "a.html loads //example.org/a.png"),
        ('<object data="//example.org/a.svg"></object>', "a.html loads //example.org/a.svg"),
        ('<p data="//example.org/a.svg">', None),
        ('<link rel="preload" imagesrcset="//example.org/a 1x">', "a.html loads //example.org/a"),
        ('<svg><image href="//example.org/a.png"/></svg>', "a.html loads //example.org/a.png"),
        ('<svg><use xlink:href="//example.org/a#b"/></svg>', "a.html loads //example.org/a#b"),
        (
            "<p style=\"background: url('//example.org/a.png')\">",
            "a.html loads //example.org/a.png",
        ),
        ("<style>@import '//example.org/a.css'</style>", "a.html loads //example.org/a.css"),
        ("<p>url(//example.org/a.css)", None),
        ("<style>p {}</style>url(//example.org/a.css)", None),
    ],
)
def test_are_links_that_lead_nowhere_and_requests_to_elsewhere_found(text, fault, tmp_path):
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>', encoding="utf-8")
    (tmp_path / "own.css").write_text("@font-face {src: url(own.woff)}", encoding="utf-8")
    assert faults(tmp_path) == ([] if fault is None else [fault])


def test_is_a_font_of_a_style_sheet_that_comes_from_elsewhere_found(tmp_path):
    (tmp_path / "a.html").write_text("", encoding="utf-8")
    style = '@import "https://example.org/a.css"; p {src: url(//example.org/f.woff)}'
    (tmp_path / "own.css").write_text(style, encoding="utf-8")
    loaded = ["https://example.org/a.css", "//example.org/f.woff"]
    assert faults(tmp_path) == [f"own.css loads {url}" for url in loaded]


def test_is_a_site_without_a_page_at_fault(tmp_path):
    assert faults(tmp_path) == [f"{tmp_path} has no page"]
