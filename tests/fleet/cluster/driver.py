#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A CSI driver whose volumes are mirrorfs mounts; it runs in a pod.

It has what the kubelet calls: registration, and the node service. Each field of these messages that
is used is a string, or a message of strings, so no generated code is needed to read and write them.
The volume attribute ``options`` has mirrorfs' options.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc

NAME = "mirror.csi.example"
SOCKET = f"/var/lib/kubelet/plugins_registry/{NAME}.sock"
#: The directories that volumes show.
SOURCES = Path("/sources")
PROGRAMS = "/programs"

servers: dict[str, subprocess.Popen[bytes]] = {}


def number(message: bytes, at: int) -> tuple[int, int]:
    """Return the number (varint) at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that have a length: their numbers and contents."""
    at = 0
    while at < len(message):
        key, at = number(message, at)
        size, at = number(message, at)
        if key & 7 == 2:  # of the others, this was the value
            yield key >> 3, message[at : at + size]
            at += size


def text(field: int, value: str) -> bytes:
    """Return a field of a message."""
    content = value.encode()
    assert len(content) < 0x80
    return bytes([field << 3 | 2, len(content)]) + content


def nothing(_request: bytes, _context: object) -> bytes:
    """Reply to requests that ask for nothing."""
    return b""


def info(_request: bytes, _context: object) -> bytes:
    """Reply to GetInfo: kind, name, socket and version."""
    return text(1, "CSIPlugin") + text(2, NAME) + text(3, SOCKET) + text(4, "1.0.0")


def node(_request: bytes, _context: object) -> bytes:
    """Reply to NodeGetInfo."""
    return text(1, "node")


def publish(request: bytes, _context: object) -> bytes:
    """Mount a volume: field 1 of NodePublishVolume names it, 4 the target, 8 its attributes."""
    message = [*fields(request)]
    given = {field: content.decode() for field, content in message if field in (1, 4)}
    attributes = [dict(fields(content)) for field, content in message if field == 8]
    options = [one[2].decode() for one in attributes if one[1] == b"options"]
    volume, target = given[1], given[4]
    if target in servers:
        return b""
    source = SOURCES / volume
    for directory in (source, Path(target)):
        directory.mkdir(parents=True, exist_ok=True)
    chosen = ",".join(["allow_other", f"fsname={volume}", *options])
    servers[target] = subprocess.Popen(
        [f"{PROGRAMS}/mirrorfs", "-f", "-o", chosen, source, target],
        env={"LD_LIBRARY_PATH": PROGRAMS},
    )
    while not Path(target).is_mount():
        assert servers[target].poll() is None, "mirrorfs ended"
        time.sleep(0.005)
    return b""


def unpublish(request: bytes, _context: object) -> bytes:
    """Unmount a volume: field 2 of NodeUnpublishVolume is the target."""
    target = dict(fields(request))[2].decode()
    if server := servers.pop(target, None):
        subprocess.run(["umount", target], check=True)
        server.wait()
        Path(target).rmdir()
    return b""


Method = Callable[[bytes, object], bytes]
SERVICES: dict[str, dict[str, Method]] = {
    "pluginregistration.Registration": {"GetInfo": info, "NotifyRegistrationStatus": nothing},
    "csi.v1.Node": {
        "NodeGetInfo": node,
        "NodeGetCapabilities": nothing,
        "NodePublishVolume": publish,
        "NodeUnpublishVolume": unpublish,
    },
}


def main() -> None:
    """Serve the kubelet until killed."""
    server = grpc.server(futures.ThreadPoolExecutor())
    for service, methods in SERVICES.items():
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    Path(SOCKET).unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{SOCKET}")
    server.start()
    sys.stderr.write("serving\n")
    server.wait_for_termination()


if __name__ == "__main__":
    main()
