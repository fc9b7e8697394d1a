# SPDX-License-Identifier: GPL-2.0-or-later
"""Who may read and who may set: ordinary users, their mounts, and user namespaces.

Only root may write to a bdi, and only the owner to a connection's files (fs/fuse/control.c).
"""

from pathlib import Path

from tests.native.conftest import AS_NOBODY, NOBODY, STOCK, requires, sysfs_values
from tests.native.mirror import CHECKOUT, Mirror
from tests.native.program import Fusetune
from tests.native.raw import RawMounts
from tests.native.servers import serve

pytestmark = requires("nsenter", "setpriv", "unshare")


def as_nobody(open_path: Path) -> Fusetune:
    return Fusetune(open_path)


def test_an_ordinary_user_may_look_but_not_set(
    mirror: Mirror, fusetune: Fusetune, open_path: Path
) -> None:
    """Only the owner can read a connection's directory (0500, fs/fuse/control.c)."""
    found = sysfs_values(mirror.bdi)
    nobody = as_nobody(open_path)
    for words in (["list"], ["show", mirror.bdi], ["show", mirror.mountpoint], ["doctor"]):
        document = nobody.json(*words, before=AS_NOBODY)
        assert document
    (entry,) = nobody.json("list", before=AS_NOBODY)["mounts"]
    assert entry["knobs"]["max_ratio"] == found["max_ratio"]
    assert "max_background" not in entry["knobs"]
    for words in (["set", mirror.bdi, "max_ratio=20"], ["set", "host", "fs.pipe-max-size=2M"]):
        assert "Permission denied; run fusetune as root" in nobody.fails(*words, before=AS_NOBODY)
    assert sysfs_values(mirror.bdi) == found


def test_an_ordinary_user_and_roots_state(
    mirror: Mirror, fusetune: Fusetune, open_path: Path
) -> None:
    """Only root can read the journal; its contents are left out, and a line says so."""
    root = Fusetune(open_path)
    root.json("set", mirror.bdi, "max_ratio=20")
    done = root("show", mirror.bdi, before=AS_NOBODY)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "cannot read the undo journal" in line
    for words in (["set", mirror.bdi, "max_ratio=1"], ["reset", mirror.bdi], ["reset", "--all"]):
        assert "Permission denied" in root.fails(*words, before=AS_NOBODY)
    assert sysfs_values(mirror.bdi)["max_ratio"] == 20


def test_directories_that_only_root_may_enter(mirror: Mirror, open_path: Path) -> None:
    """As with a umask of 077: other users see what the kernel shows them, and what is hidden."""
    root = Fusetune(open_path)
    root.configure("[policy]\nmax_dirty_percent = 25\n")
    root.json("set", mirror.bdi, "max_ratio=20")
    root.json("save", mirror.bdi)
    for directory in (root.run, root.state, root.config):
        directory.chmod(0o700)
        for words in (["list"], ["show", mirror.bdi], ["report"], ["doctor"]):
            assert root.json(*words, before=AS_NOBODY)
        root("verify", before=AS_NOBODY)
        for words in (["export"], ["forget", mirror.bdi], ["reset", "--all"]):
            done = root(*words, before=AS_NOBODY)
            assert done.returncode in (0, 1)
            if done.returncode:
                assert "Permission denied; run fusetune as root" in done.stderr
        directory.chmod(0o755)


def test_all_mounts_together_keep_the_bound_of_dirty_memory(
    fusetune: Fusetune, mirror: Mirror, tmpfs_dir: Path, tmp_path: Path
) -> None:
    fusetune.configure("[policy]\nmax_dirty_percent = 25\n")
    with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "other") as other:
        fusetune.json("set", mirror.bdi, "max_ratio=20")
        for words in (["max_ratio=6", "read_ahead_kb=1M"], ["strict_limit=0"]):
            line = fusetune.fails("set", other, *words)
            assert "max_dirty_percent" in line
            assert "5 % remain" in line
            assert "--force" in line
        assert sysfs_values(other) == STOCK
        fusetune.json("set", other, "max_ratio=5")
        fusetune.json("set", other, "max_ratio=6", "--force")
        fusetune.configure("[policy]\nmax_dirty_percent = many\n")
        assert "fusetune.toml:2" in fusetune.fails("set", other, "max_ratio=7")
        fusetune.json("set", other, "max_ratio=7", "--force")
        fusetune.json("set", other, "max_ratio=1", "read_ahead_kb=1M")


def test_an_unprivileged_users_mount_gets_no_more_dirty_memory(
    fusetune: Fusetune, user_mirror: Mirror
) -> None:
    bdi = user_mirror.bdi
    found = sysfs_values(bdi)
    (entry,) = fusetune.json("list")["mounts"]
    assert entry["owner_uid"] == NOBODY
    for words in (["max_ratio=2"], ["strict_limit=0"], ["read_ahead_kb=1M", "max_ratio=20"]):
        line = fusetune.fails("set", user_mirror.mountpoint, *words)
        assert f"with --allow-owner {NOBODY}" in line
        fusetune.fails("set", bdi, *words, "--dry-run")
        fusetune.fails("set", bdi, *words, "--allow-owner", "root")
    assert sysfs_values(bdi) == found
    assert not fusetune.state.exists()
    fusetune.json("set", bdi, "read_ahead_kb=1M", "max_ratio=0", "max_background=5")
    for owner in ("nobody", str(NOBODY)):
        fusetune.json("set", bdi, "max_ratio=20", "strict_limit=0", "--allow-owner", owner)
        assert sysfs_values(bdi)["max_ratio"] == 20
        fusetune.json("set", bdi, "max_ratio=1")
    fusetune.json("reset", bdi)
    assert sysfs_values(bdi) == found


def test_a_mount_of_a_user_namespace_is_not_roots(fusetune: Fusetune, open_path: Path) -> None:
    """mountinfo says user_id=0 there; only its own mount namespace shows it."""
    alone = [*AS_NOBODY, "unshare", "--user", "--map-root-user", "--mount", "--"]
    with RawMounts(1, open_path, alone) as users:
        (point,) = users.points
        inside = ["nsenter", f"--mount=/proc/{users.pid}/ns/mnt", f"--wd={CHECKOUT}", "--"]
        fusetune.configure(f"[[mount]]\npath = '{point}'\nmax_ratio = 20\nread_ahead_kb = 4096\n")
        (entry,) = fusetune.json("list", before=inside)["mounts"]
        assert (entry["path"], entry["owner_uid"]) == (str(point), NOBODY)
        line = fusetune.fails("set", point, "max_ratio=20", before=inside)
        assert f"with --allow-owner {NOBODY}" in line
        done = fusetune("apply", point, before=inside)
        assert f"unprivileged user's mount (uid {NOBODY})" in done.stderr
        found = sysfs_values(entry["bdi"])
        assert (found["max_ratio"], found["read_ahead_kb"]) == (1, 4096)
