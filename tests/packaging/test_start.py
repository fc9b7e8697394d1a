# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands of README and quick start work as written on an installed host."""

import re
from collections.abc import Callable
from pathlib import Path

import html5lib
import pytest

from tests.kernel.suites import WHOLE, Suite
from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import script
from tests.packaging.trees import inside, tracing_tree, user_tree

_INSIDE = (Path(__file__).with_name("inside"), "/inside")


def _commands(page: str) -> list[str]:
    """Return a page's commands, without their comments."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    return re.findall(r"^    # (fusetune\b.*?)(?:   .*)?$", text, re.M)


@pytest.mark.parametrize(
    "page", ["README.md", pytest.param("docs/start.md", marks=pytest.mark.long)]
)
def test_a_newcomers_path(
    page: str, repositories: Callable[[Suite], tuple[Path, Path]], tmp_path: Path
) -> None:
    suite = WHOLE[0]
    commands, out = tmp_path / "commands", tmp_path / "out"
    commands.mkdir()
    out.mkdir()
    found = _commands(page)
    (commands / "list").write_text("".join(f"{line}\n" for line in found))
    binds = ((repositories(suite)[0], "/repo"), (commands, "/commands"), _INSIDE)
    tree = tracing_tree(suite) if any("profile" in line for line in found) else user_tree(suite)
    done = inside(tree, out, script("start.sh", suite), *binds)
    assert done.returncode == 0, done.stdout[-8000:]
    assert done.stdout.splitlines()[-1] == "passed"
    ran = [line[2:] for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert ran == found
    assert {"auto", "report"} <= {line.split()[1] for line in found if " " in line}
    if page != "README.md":  # which runs auto twice, and may prove nothing by chance
        assert "set and saved: " in done.stdout
    report = html5lib.HTMLParser(strict=True).parse((out / "fuse.html").read_text("utf-8"))
    headings = report.iter("{http://www.w3.org/1999/xhtml}h3")
    assert "/mnt/x" in ["".join(one.itertext()).strip() for one in headings]
