# SPDX-License-Identifier: GPL-2.0-or-later
"""The module's memory, checked by the kernel: slub_debug=FZPU."""

from pathlib import Path

from tests.kernel.guest.rig import copy_through, fresh_source, load, tuned, unload

_SLAB = Path("/sys/kernel/slab")
_NAMES = {"fusetuned_inode", "fusetuned_request"}


def check_slabs_are_watched_and_sound() -> None:
    """The module has its own caches, which are checked at each use and once more here."""
    load()
    fresh_source()
    with tuned() as mirror:
        copy_through(mirror.mountpoint)
        caches = {path for path in _SLAB.glob("fusetuned*") if not path.is_symlink()}
        assert {path.name for path in caches} == _NAMES
        for path in caches:
            for what in ("sanity_checks", "red_zone", "poison", "store_user"):
                assert (path / what).read_text() == "1\n", (path, what)
            (path / "validate").write_text("1")
        for path in (*_SLAB.glob("kmalloc-*"), *_SLAB.glob("fuse*")):
            (path / "validate").write_text("1")
    unload()
    assert not list(_SLAB.glob("fusetuned*"))
