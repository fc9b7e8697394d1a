# SPDX-License-Identifier: GPL-2.0-or-later
"""Identifies the volume of a mount independently of the mount point, so that results follow it."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from fusetune.desired.sections import Config, Section, ranked
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.disks import disk_names
from fusetune.mounts.kubelet import kubelet_volume
from fusetune.mounts.mount import Mount
from fusetune.recipes.served import version_of

#: Mount options that do not affect speed; all others, such as ro or max_read, may.
_NO_MATTER = {
    *("rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "nosymfollow", "sync", "dirsync"),
    *("relatime", "noatime", "nodiratime", "strictatime", "lazytime", "mand"),
    *("allow_other", "default_permissions"),
}
_NO_MATTER_WITH_VALUE = {"user_id", "group_id", "fd", "rootmode", "subtype"}


@dataclass(frozen=True)
class Volume:
    """The volume of a result, independent of the mount point.

    ``server``: the name of the program that serves it, ``version``: that of its package, None if
    not known; ``kernel``: its series, such as 6.12; ``owner_uid``: the mount's owner; ``options``:
    of the mount, those that matter to speed, sorted; ``source``: see `plain_source`, empty if it
    does not tell one volume from another; ``csi_driver``, ``volume_handle``: of Kubernetes;
    ``volume_class``: of the administrator's configuration.
    """

    fstype: str
    server: str
    version: str | None
    kernel: str
    owner_uid: int
    options: tuple[str, ...]
    source: str
    csi_driver: str | None = None
    volume_handle: str | None = None
    volume_class: str | None = None

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Return the volume in a file, which may lack what is None. ValueError or TypeError."""
        options = tuple(fields.get("options", ()))
        volume = cls(**{"version": None, **fields, "options": options})
        texts = (volume.fstype, volume.server, volume.kernel, volume.source, *volume.options)
        optional = (volume.version, volume.csi_driver, volume.volume_handle, volume.volume_class)
        if not all(isinstance(one, str) for one in texts):
            raise ValueError("a result's facts about its volume must be text")
        if not all(one is None or isinstance(one, str) for one in optional):
            raise ValueError("a result's facts about its volume must be text")
        if type(volume.owner_uid) is not int:
            raise ValueError("the owner of a result's volume must be a number")
        return volume

    def likenesses(self) -> list[tuple[object, ...]]:
        """Return keys of which a similar volume has at least one, the most specific first.

        Type, server, kernel series, owner and options must be the same, and the volume itself: by
        the driver's handle, or by source, or by the class that the administrator gave both.
        """
        alike = (self.fstype, self.server, self.kernel, self.owner_uid, self.options)
        found = (
            ("handle", self.csi_driver, self.volume_handle),
            ("source", self.source),
            ("class", self.volume_class),
        )
        return [(*alike, *one) for one in found if one[-1]]


def volume_of(
    host: Host, mount: Mount, sections: Collection[Section], daemons: Daemons
) -> Volume | None:
    """Return the volume of ``mount``, without the version; None if its server is unknown.

    ``sections``: the matching ones of the configuration, in any order.
    """
    programs = {os.path.basename(program) for program in daemons.of(mount)}
    if not programs:
        return None
    kubelet = kubelet_volume(host, mount)
    server = min(programs)
    return Volume(
        mount.fstype,
        server,
        None,
        kernel_series(host),
        mount.owner_uid,
        _options(mount),
        plain_source(host, mount.source, {server, mount.fstype.partition(".")[2]}),
        kubelet.csi_driver if kubelet else None,
        kubelet.volume_handle if kubelet else None,
        next((one.volume_class for one in ranked([*sections]) if one.volume_class), None),
    )


def versioned_volume(host: Host, mount: Mount, config: Config, daemons: Daemons) -> Volume | None:
    """Return the same with the version of the server, as stored in results."""
    volume = volume_of(host, mount, [*config.matching(host, mount, daemons)], daemons)
    return volume and replace(volume, version=server_version(host, mount, daemons))


def kernel_series(host: Host) -> str:
    """Return the running kernel's series, such as 6.12."""
    release = host.read("proc/sys/kernel/osrelease")
    return re.sub(r"(\d+\.\d+).*", r"\1", release, flags=re.DOTALL)


def _options(mount: Mount) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                option
                for option in mount.options
                if option not in _NO_MATTER
                and option.partition("=")[0] not in _NO_MATTER_WITH_VALUE
            }
        )
    )


def plain_source(host: Host, source: str, names: Collection[str]) -> str:
    """Return a source without parts that change between mounts or do not belong to the volume.

    A disk is named by its UUID; a URL or HOST:PATH loses the user. Empty for what tells no volume
    from another: one of ``names``, of the server or the type, and words such as "none".
    """
    if uuid := disk_names(host, source).uuid:
        return f"UUID={uuid}"
    source = re.sub(r"^([a-z][a-z0-9+.-]*://)?[^/@]*@", r"\1", source)
    # rclone adds a hash of options that override a remote's (fs/newfs.go, ConfigString()).
    source = re.sub(r"^([^/:{]+)\{[^}]*\}:", r"\1:", source)
    source = source.rstrip("/") or source
    return "" if source.lower() in {*names, "", "none", "fuse", "fuseblk", "/dev/fuse"} else source


def server_version(host: Host, mount: Mount, daemons: Daemons) -> str | None:
    """Return the version of the Debian package of the server, if it has the program's name.

    None if unknown. It only decides between results that are otherwise equally similar.
    """
    programs = sorted(daemons.of(mount))
    return version_of(host, programs[0], [os.path.basename(programs[0])]) if programs else None
