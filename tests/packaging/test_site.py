# SPDX-License-Identifier: GPL-2.0-or-later
"""The documentation as a site: no external resources, no broken links, all pages searchable.

MkDocs checks links between pages, but neither their anchors nor the theme's files.
"""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs import site
from fusetune.cli import commands
from fusetune.knobs import LIVE, REMOUNT, SYSTEM
from fusetune.recipes.load import SHIPPED
from fusetune.report.findings import FINDINGS
from fusetune.report.prometheus import METRICS

_ELSEWHERE = re.compile(r"(?:https?:)?//")
_ICON = re.compile(r"url\((?!['\"]?data:)[^)]*\)|@import")


class _Page(HTMLParser):
    """A page's links, its resources, and its anchors."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record what an element refers to."""
        found = dict(attrs)
        self.names.add(found.get("id") or "")
        if tag == "a":
            self.links.append(found.get("href") or "")
            self.names.add(found.get("name") or "")
        elif tag == "link":
            self.loaded.append(found.get("href") or "")
        for name in ("src", "data", "poster"):
            self.loaded += [found[name] or ""] if name in found else []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, _Page]:
    """The pages of the site, by file."""
    output = tmp_path_factory.mktemp("site")
    site.build(output)
    return {file: _Page(file) for file in sorted(output.rglob("*.html"))}


def _broken(pages: dict[Path, _Page]) -> Iterator[str]:
    for file, page in pages.items():
        if file.name == "404.html":  # which a web server may show for any address
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or not link:
                continue
            there = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not there.exists() or (
                there in pages and unquote(parts.fragment) not in pages[there].names
            ):
                yield f"{file.name}: {link}"


def test_no_link_leads_nowhere(pages: dict[Path, _Page]) -> None:
    assert list(_broken(pages)) == []
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, _Page]) -> None:
    root = min(pages, key=lambda file: len(file.parts)).parent
    assert [one for page in pages.values() for one in page.loaded if _ELSEWHERE.match(one)] == []
    for file in root.rglob("*.css"):
        found = _ICON.findall(file.read_text(encoding="utf-8"))
        assert not [one for one in found if _ELSEWHERE.search(one)], file


def test_all_that_is_named_is_found(pages: dict[Path, _Page]) -> None:
    (index,) = min(pages, key=lambda file: len(file.parts)).parent.rglob("search_index.json")
    found = json.loads(index.read_text(encoding="utf-8"))["docs"]
    text = " ".join(f"{one['location']} {one['title']} {one['text']}" for one in found)
    names = [*commands(), *FINDINGS, *METRICS, *(k.name for k in (*LIVE, *REMOUNT, *SYSTEM))]
    assert [name for name in names if name not in text] == []
    there = {file.stem for file in pages if file.parent.name == "servers"}
    assert there == {file.stem for file in SHIPPED.glob("*.toml")}
    manual = {file.stem for file in pages if file.parent.name == "man"}
    assert manual == {file.name for file in (site.ROOT / "man").glob("*.[1-8]")}


def test_a_link_to_a_file_that_is_not_there_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "PAGES", {"README.md": "one"})
    (tmp_path / "README.md").write_text("# One\n\n[two](docs/two.md)\n")
    with pytest.raises(SystemExit, match=r"README\.md: it has a link to docs/two\.md"):
        site.build(tmp_path / "site")
