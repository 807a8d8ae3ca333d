"""Make the pages of the site that are no files of docs/: MkDocs calls these functions.

`rules.md` and `passes.md` are made from the package, as if they stood in docs/. A link to a file
outside of docs/ leads to a page `source/PATH`, which shows the file.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

from pullback.tools import rule_table

ROOT = Path(__file__).parents[2]
LANGUAGES = {".py": "python", ".cc": "c++", ".mlir": "mlir", ".sh": "sh"}

sys.path.append(str(Path(__file__).parent))
import notebooks  # noqa: E402 -- MkDocs loads this file by its path
import passes  # noqa: E402
import raised  # noqa: E402

SHOWN = [f"source/{name}.md" for name in ("CONTRIBUTING", "CHANGELOG")]
"""Pages of other folders that the navigation names."""

BOOST = {"dialect.md": 0.5}
"""What the search multiplies the score of a page by: functions come before ops of their name."""

OUTSIDE = "---\nsearch: {exclude: true}\n---\n"
"""The head of a page with a source file, which the search is to leave out."""

NAMED = re.compile(r"\[((?:docs/)?\w+\.md)\]\(([^)\s]+)\)")
"""A link whose text is the name of a file, which says more where files are read than here."""

TITLES: dict[str, dict[str, str]] = {}
"""For each page the headings by their anchors, the title by an empty one."""

FETCHED = re.compile(
    r"<(?:script|img|iframe|link(?! rel=.?canonical))\b[^>]*\b(?:src|href)=.?https?:[^>]*>"
)
"""An element of a page that a browser fetches from elsewhere."""

LABEL = re.compile(r"^- \(((\w+)_c\d+)\)", re.M)
"""The label of a constraint of the dialect, of which a lit test has modules that break it."""

LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and those of the files that pages link to."""
    for name, text in (("rules.md", _rules()), ("passes.md", passes.report())):
        files.append(File.generated(config, name, content=text))
    for name in notebooks.PAGES:
        content = nbformat.writes(notebooks.notebook(name))
        files.append(File.generated(config, f"notebooks/{name}.ipynb", content=content))
    pages = {each.src_uri: each.content_string for each in files.documentation_pages()}
    waiting = [*pages, *SHOWN, *map(_page_of, (ROOT / "lit_tests/dialect").glob("*/invalid.mlir"))]
    while waiting:
        name = waiting.pop()
        if name not in pages:
            pages[name] = _source(name)
            files.append(File.generated(config, name, content=pages[name]))
        waiting += [each for each in _linked(name, pages[name]) if each not in pages]
    for name, text in pages.items():
        plain = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
        headings = re.findall(r"^#+ (.+)$", plain, re.M)
        TITLES[posixpath.basename(name)] = {
            "": headings[0],
            **{slugify(case="lower")(each.replace("`", ""), "-"): each for each in headings},
        }
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn links to files outside of docs/ into links to pages that show them, and name pages."""
    name = page.file.src_uri
    if page.meta.get("search"):
        return markdown
    page.meta["search"] = {"boost": BOOST.get(name, 1)}
    if name.removesuffix(".md") in notebooks.PAGES:
        title, _, rest = markdown.partition("\n")
        file = f"notebooks/{name.removesuffix('.md')}.ipynb"
        colab = f"[Open in Colab]({notebooks.COLAB}/{file}){{ .md-button }}"
        markdown = f"{title}\n\nThis page is a [notebook]({file}), too. {colab}\n{rest}"
    if name == "dialect.md":
        markdown = LABEL.sub(r"- ([\1](../lit_tests/dialect/\2/invalid.mlir))", markdown)
    if name == "errors.md":
        markdown += raised.report()
    linked = LINK.sub(lambda link: _target(name, link[1]), markdown)
    return NAMED.sub(lambda link: f"[{_title(link)}]({link[2]})", linked)


def _title(link: re.Match[str]) -> str:
    """Return what stands for the name of a file in a link: the heading that it leads to."""
    page = TITLES.get(posixpath.basename(link[2].partition("#")[0]), {})
    return page.get(link[2].partition("#")[2], link[1])


def on_page_content(html: str, **_: Any) -> str:
    """Leave a default out where an option has none; mkdocs-click shows the marker of click 8.3."""
    return html.replace("<code>Sentinel.UNSET</code>", "")


def on_post_page(output: str, *, page: Any, **_: Any) -> None:
    """Raise an error for a page that would ask another host for something when it is read."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} fetches {found[0]}")


def _linked(name: str, text: str) -> list[str]:
    """Return the pages of source files that a page links to."""
    if name.startswith("source/") and text.startswith(OUTSIDE):
        return []
    targets = [_target(name, link) for link in LINK.findall(text)]
    places = [posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in targets]
    return [each for each in places if each.startswith("source/")]


def _target(name: str, link: str) -> str:
    """Return a link of a page as the site has it."""
    folder = posixpath.dirname(name)
    if name.startswith("source/"):
        folder = folder.removeprefix("source").lstrip("/")
    else:
        folder = posixpath.join("docs", folder)
    path = posixpath.normpath(posixpath.join(folder, link))
    if path.startswith("docs/"):
        place = path.removeprefix("docs/")
    elif (ROOT / path).is_file():
        place = f"source/{path}" if path.endswith(".md") else f"source/{path}.md"
    else:
        return link  # the link check of MkDocs tells
    return posixpath.relpath(place, posixpath.dirname(name) or ".")


def _page_of(file: Path) -> str:
    return f"source/{file.relative_to(ROOT)}.md"


def _source(name: str) -> str:
    """Return the page `source/PATH` of a file: itself, or a block with its text."""
    path = name.removeprefix("source/")
    if (ROOT / path).is_file():
        return (ROOT / path).read_text()
    path = path.removesuffix(".md")
    file = ROOT / path
    language = LANGUAGES.get(file.suffix, "text")
    return f"{OUTSIDE}# `{path}`\n\n````{language}\n{file.read_text()}````\n"


def _rules() -> str:
    """Return the table of rules, each op a link to the test that shows its derivatives."""
    return re.sub(r"^\| `(\w+)\.(\w+)` \|", _with_test, rule_table.report(), flags=re.M)


def _with_test(row: re.Match[str]) -> str:
    test = f"lit_tests/rules/{row[1]}/{row[2]}.mlir"
    is_there = (ROOT / test).is_file()
    return f"| [`{row[1]}.{row[2]}`](../{test}) |" if is_there else row[0]
