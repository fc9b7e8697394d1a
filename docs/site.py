# SPDX-License-Identifier: GPL-2.0-or-later
"""Build the documentation as a site of plain files: ``python3 -m docs.site OUTPUT``.

MkDocs with the theme Material makes the pages, the search included. The Markdown files of the
checkout are its pages, with one on each server from its recipe, and each page of the manual as
mandoc(1) has it in Markdown. A link that leads nowhere ends the build.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.servers import server_page
from fusetune.recipes.load import SHIPPED, read_recipe

ROOT = Path(__file__).resolve().parents[1]
#: The pages of the checkout in the order of the navigation, each with its title.
PAGES = {
    "README.md": "fusetune",
    "docs/start.md": "Quick start",
    "docs/choosing.md": "How values are chosen",
    "docs/troubleshooting.md": "Troubleshooting",
    "docs/monitoring.md": "Monitoring",
    "docs/fleet.md": "Many hosts",
    "docs/kubernetes.md": "Kubernetes",
    "docs/reference.md": "Reference",
    "docs/benchmarks.md": "Measured results",
    "docs/packaging.md": "Packages",
    "SECURITY.md": "Security",
    "docs/recipes.md": "Writing recipes",
    "docs/architecture.md": "Architecture",
    "docs/search.md": "Constants of the search",
    "docs/testing.md": "Testing",
    "CONTRIBUTING.md": "Contributing",
}
_LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
_CONFIG: dict[str, Any] = {
    "site_name": "fusetune",
    "use_directory_urls": False,
    "strict": True,  # a link that leads nowhere is an error
    "theme": {
        "name": "material",
        "font": False,  # no font from elsewhere
        "palette": [
            {
                "media": f"(prefers-color-scheme: {scheme})",
                "scheme": name,
                "toggle": {"icon": "material/theme-light-dark", "name": "Light or dark"},
            }
            for scheme, name in (("light", "default"), ("dark", "slate"))
        ],
    },
    "plugins": ["search"],
    "extra": {"generator": False},
}


def write_pages(directory: Path) -> list[dict[str, Any]]:
    """Write the pages in Markdown to a new directory; return the navigation of MkDocs."""
    nav: list[dict[str, Any]] = []
    for path, title in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        _write(directory / _name(path), _linked(path, text, directory))
        nav.append({title: _name(path)})
    servers, manual = [], []
    for file in sorted(SHIPPED.glob("*.toml")):
        recipe = read_recipe(file, check_writers=False)
        _write(directory / "servers" / f"{recipe.name}.md", server_page(recipe))
        servers.append({recipe.name: f"servers/{recipe.name}.md"})
    for page in sorted((ROOT / "man").glob("*.[1-8]")):
        title = f"{page.stem}({page.suffix[1:]})"
        _write(directory / _name(f"man/{page.name}"), f"# {title}\n\n{_manual_page(page)}")
        manual.append({title: _name(f"man/{page.name}")})
    return [*nav, {"File systems": servers}, {"Manual": manual}]


def build(output: Path) -> None:
    """Build the site in ``output``. Raises CalledProcessError if a page or link is wrong."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        config = {
            **_CONFIG,
            "nav": write_pages(directory / "pages"),
            "docs_dir": "pages",
            "site_dir": str(output.absolute()),
        }
        (directory / "mkdocs.yml").write_text(json.dumps(config))  # which is YAML, too
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean"]
        subprocess.run([*command, "-f", directory / "mkdocs.yml"], check=True)


def _name(path: str) -> str:
    """Return the name in the site of a file of the checkout."""
    if path == "README.md":
        return "index.md"
    return f"{path}.md" if path.startswith("man/") else Path(path).name


def _linked(path: str, text: str, directory: Path) -> str:
    """Return a page with links as they are in the site.

    A file of the checkout that is no page is copied beside the pages. A directory is only named.
    """

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        file = (ROOT / path).parent.joinpath(target).resolve().relative_to(ROOT)
        name = str(file)
        if name in PAGES or name.startswith("man/"):
            return f"[{words}]({_name(name)}{anchor or ''})"
        if (ROOT / file).is_dir():
            return words
        if not (ROOT / file).exists():
            sys.exit(f"{path}: it has a link to {target}, which is not there")
        copy = directory / "files" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, copy)
        return f"[{words}](files/{name})"

    return _LINK.sub(link, text)


def _manual_page(page: Path) -> str:
    """Return a page of the manual in Markdown, linked with the others, headings one level lower."""
    command = ["mandoc", "-T", "markdown", str(page)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    _title, *text, _footer = done.stdout.strip().split("\n\n")

    def link(found: re.Match[str]) -> str:
        there = f"{found[1]}.{found[2]}"
        return f"[{found[0]}]({there}.md)" if (page.parent / there).exists() else found[0]

    linked = re.sub(r"(?<![\w./-])([a-z][\w.-]+)\((\d)\)", link, "\n\n".join(text))
    return re.sub(r"^#", "##", linked, flags=re.MULTILINE) + "\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def main() -> None:
    """Build the site where the command line says."""
    parser = argparse.ArgumentParser(prog="python3 -m docs.site", description=__doc__)
    parser.add_argument("output", type=Path)
    try:
        build(parser.parse_args().output)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[0]} failed with exit status {error.returncode}")


if __name__ == "__main__":
    main()
