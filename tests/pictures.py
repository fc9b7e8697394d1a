# SPDX-License-Identifier: GPL-2.0-or-later
"""The pictures of docs/, from a real run: ``make pictures``, as root, in its own mount namespace.

A curve measured by ``auto``, and the HTML report of the same mount in Chromium.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from fusetune.errors import ExitCode
from tests.bench.page import machine
from tests.native.mirror import CHECKOUT, Mirror
from tests.system.browser import Browser
from tests.tmpfs import tmpfs

_PICTURES = CHECKOUT / "docs" / "pictures"
_PAGE = CHECKOUT / "docs" / "choosing.md"
#: The server: as slow as a network, eight requests at a time.
_OPTIONS = "writeback,no_xattr,delay=2ms,served=8"
_AUTO = "auto /mnt/x -w seq-read --no-guard mmap-read"
_TEXT = """\
<!-- make pictures -->
![Speed by read_ahead_kb, with intervals](pictures/curve.svg)

The picture shows what `auto` measured for sequential reads from a server that takes 2 ms per
request and serves 8 at once. No program maps files there, so the guard for page faults is disabled:

    mirrorfs -o {options} /mnt/source /mnt/x
    fusetune {auto} --plot curve.svg

This is a part of the report on that mount, from `fusetune report --format html /mnt/x`:

![The HTML report in a browser](pictures/report.png)

`make pictures` made both on {machine}; the files are on tmpfs.
<!-- make pictures: end -->
"""


def _fusetune(directory: Path, *words: str) -> None:
    own = ("--state-dir", directory / "state", "--run-dir", directory / "run")
    command: list[str | Path] = [sys.executable, "-m", "fusetune", *own, *words]
    code = subprocess.run(command, timeout=300, check=False).returncode
    if code == ExitCode.NOTHING_BETTER:
        sys.exit("nothing better was found: measure again while the host has nothing else to do")
    if code:
        sys.exit(ExitCode.FAILED)


def _photograph(file: Path, directory: Path) -> None:
    browser = Browser(directory / "profile")
    try:
        browser.show(file, 960, "light")
        browser.run("document.querySelector('#m1').scrollIntoView()")
        shot = browser.driver.get_screenshot_as_png()
    finally:
        browser.driver.quit()
    # With 256 colours it is smaller and looks the same.
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(256).save(
        _PICTURES / "report.png", optimize=True
    )


def main() -> None:
    """Measure, draw, and describe the machine on the page."""
    if os.geteuid() != 0:
        sys.exit("make pictures mounts tmpfs and writes to /sys: run it as root")
    _PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="fusetune-pictures-") as name,
        tmpfs(Path("/mnt"), "size=1G"),
    ):
        directory, source = Path(name), Path("/mnt/source")
        source.mkdir()
        with Mirror(source, Path("/mnt/x"), _OPTIONS):
            plot = ("--plot", str(_PICTURES / "curve.svg"))
            _fusetune(directory, *_AUTO.split(), *plot)
            page = directory / "report.html"
            _fusetune(directory, "report", "--format", "html", "--output", str(page), "/mnt/x")
            _photograph(page, directory)
            _fusetune(directory, "reset", "/mnt/x")
    text = _TEXT.format(auto=_AUTO, options=_OPTIONS, machine=machine())
    old = _PAGE.read_text(encoding="utf-8")
    new, count = re.subn(
        r"^<!-- make pictures -->.*?<!-- make pictures: end -->\n",
        lambda place: text,
        old,
        flags=re.M | re.S,
    )
    if count != 1:
        sys.exit(f"{_PAGE}: no place for the pictures")
    _PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
