# SPDX-License-Identifier: GPL-2.0-or-later
"""remount and reset in davfs2's own configuration file, with mounts of a WebDAV server."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.requirements import requires
from tests.system.container import PATIENCE, Container

pytestmark = requires("systemd-nspawn", "mmdebstrap")

SECRET = "hunter2"  # noqa: S105 - of nobody
URL = "http://127.0.0.1:8080/"
#: davfs2 needs quotes for the name of its section.
POINT = "/mnt/a b"
FSTAB = f"{URL} /mnt/a\\040b davfs noauto 0 0\n{URL} /mnt/other davfs noauto 0 0\n"
SERVER = """\
server.document-root = "/srv"
server.port = 8080
server.bind = "127.0.0.1"
server.modules = ("mod_webdav")
webdav.activate = "enable"
webdav.sqlite-db-name = "/run/webdav.db"
"""
CONFIG = (
    f'# ours\nadd_header Authorization "Bearer {SECRET}"\n'
    "use_proxy\t0 # off\n[/mnt/other]\nbuf_size 32"
)
FILE = "/etc/davfs2/davfs2.conf"


@pytest.fixture
def webdav(container: Container) -> Iterator[Container]:
    """The container with both mounts of a WebDAV server on loopback."""
    files = {"/etc/webdav.conf": SERVER, "/etc/fstab": FSTAB, FILE: CONFIG, "/srv/file": "text"}
    for name, text in files.items():
        container.path(name).write_text(text)
    secrets = container.path("/etc/davfs2/secrets")
    secrets.write_text(f"{URL} user {SECRET}\n")
    secrets.chmod(0o600)
    server = container.start("lighttpd", "-D", "-f", "/etc/webdav.conf")
    try:
        container.wait(
            lambda: ":1F90 " in container.run("cat", "/proc/net/tcp").stdout, "port 8080"
        )
        # If a section's directory is missing, davfs2 skips its header line, but not the section.
        container.run("install", "-d", POINT, "/mnt/other")
        for point in (POINT, "/mnt/other"):
            container.run("mount", point)
        yield container
    finally:
        container.run("fusetune", "reset", POINT, check=False)
        for point in (POINT, "/mnt/other"):
            container.run("umount", point, check=False)
        server.terminate()
        server.wait(PATIENCE)


def fusetune(
    container: Container, *words: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run fusetune, which must exit with ``status`` and print no secret."""
    done = container.run("fusetune", *words, check=False, timeout=120)
    assert done.returncode == status, done
    assert SECRET not in done.stdout + done.stderr
    return done


def max_read(container: Container, point: str) -> int:
    """Return the KiB of the mount's largest read: davfs2's buf_size minus a page, or 16."""
    options = container.run("findmnt", "--noheadings", "--output", "FS-OPTIONS", point).stdout
    found = dict(one.partition("=")[::2] for one in options.strip().split(","))
    return int(found["max_read"]) >> 10


def test_davfs2_from_advise_to_reset(webdav: Container) -> None:
    container, file = webdav, webdav.path(FILE)
    assert (max_read(container, POINT), max_read(container, "/mnt/other")) == (16, 28)
    lines = '"[/mnt/a b]"\ngui_optimize 1\ntable_size 16384\nbuf_size 256'
    advised = json.loads(fusetune(container, "advise", POINT, "--json").stdout)
    (edit,) = advised["edits"]
    assert edit["file"] == FILE
    added = [line[1:] for line in edit["diff"].splitlines() if line.startswith("+")]
    assert set(lines.splitlines()) < set(added)
    done = fusetune(container, "remount", POINT, "--now", "--json")
    assert json.loads(done.stdout)["remounted"]
    assert json.loads(done.stdout)["commands"] == [
        f"umount --no-canonicalize '{POINT}'",
        f"mount '{POINT}'",
    ]
    assert file.read_text() == f"{CONFIG}\n{lines}"
    assert (max_read(container, POINT), max_read(container, "/mnt/other")) == (252, 28)
    assert container.run("cat", f"{POINT}/file").stdout == "text"
    fusetune(container, "reset", POINT)
    assert file.read_text() == CONFIG
    assert sorted(one.name for one in file.parent.iterdir()) == ["certs", "davfs2.conf", "secrets"]
    container.run("umount", POINT)
    ended = container.path("/run/mount.davfs/mnt-a b.pid")
    container.wait(lambda: not ended.exists(), "the end of davfs2")
    container.run("mount", POINT)
    assert max_read(container, POINT) == 16


def test_a_key_that_davfs2_refuses_brings_the_old_mount_and_file_back(webdav: Container) -> None:
    container = webdav
    shipped = Path("/usr/lib/fusetune/recipes/davfs2.toml")
    text = (
        container.path(str(shipped)).read_text().replace('file = "buf_size"', 'file = "buf_sise"')
    )
    container.run("install", "-d", "/etc/fusetune/recipes")
    own = container.path("/etc/fusetune/recipes/davfs2.toml")
    own.write_text(text)
    try:
        line = fusetune(container, "remount", POINT, "--now", status=1).stderr
    finally:
        own.unlink()
    assert f"{FILE}:9: unknown option" in line
    assert line.endswith("the old mount and its files were restored\n")
    assert container.path(FILE).read_text() == CONFIG
    assert container.run("cat", f"{POINT}/file").stdout == "text"
