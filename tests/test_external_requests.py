"""What the pages of the site would load from other hosts is found."""

import pytest

from docs.external_requests import external_requests


@pytest.mark.parametrize(
    ("text", "request_line"),
    [
        ('<img src="a.png" srcset="a.png 1x, b.png 2x">', None),
        ('<link rel="canonical" href="https://example.org">', None),
        ('<a href="https://example.org">elsewhere</a>', None),
        (
            '<script src="https://example.org/a.js"></script>',
            "a.html loads https://example.org/a.js",
        ),
        ('<img src="//example.org/a.png">', "a.html loads //example.org/a.png"),
        ('<img srcset="b.png 1x, //example.org/a.png 2x">', "a.html loads //example.org/a.png"),
        ('<video poster="//example.org/a.png"></video>', "a.html loads //example.org/a.png"),
        ('<object data="//example.org/a.svg"></object>', "a.html loads //example.org/a.svg"),
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
def test_are_requests_of_a_page_found(text, request_line, tmp_path):
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    (tmp_path / "site.css").write_text("@font-face {src: url(site.woff)}", encoding="utf-8")
    assert external_requests(tmp_path) == ([] if request_line is None else [request_line])


def test_is_a_font_of_a_style_sheet_that_comes_from_another_host_found(tmp_path):
    style = '@import "https://example.org/a.css"; p {src: url(//example.org/f.woff)}'
    (tmp_path / "site.css").write_text(style, encoding="utf-8")
    urls = ["https://example.org/a.css", "//example.org/f.woff"]
    assert external_requests(tmp_path) == [f"site.css loads {url}" for url in urls]
