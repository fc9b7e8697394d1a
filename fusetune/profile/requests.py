# SPDX-License-Identifier: GPL-2.0-or-later
"""How the kernel reports FUSE requests: in tracepoints, or else in functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fusetune.profile.btf import Types
from fusetune.profile.calls import KPROBE, Call

#: Length of fuse_in_header, fuse_write_in and fuse_out_header (uapi linux/fuse.h).
_IN, _WRITE_IN, _OUT, _WRITE = 40, 40, 16, 16


@dataclass(frozen=True)
class Send:
    """A probe of sends, as bpftrace expressions for device, opcode, request key and bytes.

    ``sent_bytes``: statements that count them.
    """

    sent_probe: str
    sent_device: str
    sent_opcode: str
    sent_key: str
    sent_bytes: str = ""


@dataclass(frozen=True)
class End:
    """The probe of ends, with its condition, like `Send`."""

    ended_probe: str
    ended_key: str
    ended_bytes: str


@dataclass(frozen=True)
class Requests:
    """How a kernel reports requests.

    ``queued``: latencies include the time that a background request waits because of the limit.
    """

    sends: tuple[Send, ...]
    end: End
    queued: bool = False

    def text(self, sent: str, ended: str) -> str:
        """Return these parts of a program with each probe's expressions for names in capitals."""
        sends = "".join(with_words(sent, one) for one in self.sends)
        return sends + with_words(ended, self.end)


def with_words(part: str, words: Send | End | Call) -> str:
    """Return a part of a program with a probe's expressions for the names in capitals."""
    for name, word in vars(words).items():
        part = part.replace(name.upper(), word)
    return part


def _counted(length: str) -> str:
    # If the connection is aborted, the reply has no length, and this is below 0.
    length = f"(int64)({length})"
    return f"@bytes[$op] = sum({length}); @largest[$op] = max({length});"


def _written(length: str) -> str:
    """Return the statements that count the bytes of a WRITE; ``length`` is with its headers."""
    return f"if ($op == {_WRITE}) {{ {_counted(f'{length} - {_IN + _WRITE_IN}')} }}"


def _received(length: str) -> str:
    """Return the statements that count the bytes of other replies, of ``length`` with header."""
    return f"if ($op != {_WRITE}) {{ {_counted(f'{length} - {_OUT}')} }}"


TRACEPOINTS = Requests(
    (
        Send(
            sent_probe="tracepoint:fuse:fuse_request_send",
            sent_device="args->connection",
            sent_opcode="args->opcode",
            sent_key="args->unique",
            sent_bytes=_written("args->len"),
        ),
    ),
    End(
        ended_probe="tracepoint:fuse:fuse_request_end /args->connection == (uint64)DEVICE/",
        ended_key="args->unique",
        ended_bytes=_received("args->len"),
    ),
)
# The structures' members that lead from a request to its device: up to Linux 7.2, and since then.
_DEVICES: tuple[Mapping[str, tuple[str]], ...] = (
    {"fuse_req": ("fm",), "fuse_mount": ("fc",), "fuse_conn": ("dev",)},
    {"fuse_req": ("chan",), "fuse_chan": ("conn",), "fuse_conn": ("dev",)},
)
# Before this function, the tracepoint of sends, introduced in Linux 6.12, does not know the number
# that identifies its end: fs/fuse/dev.c, fuse_send_one(), assigns it afterwards.
_NUMBERED = "fuse_request_assign_unique"
# The functions with which every request begins, and the names of their parameters: up to Linux 6.11
# the first one, then the second.
_BEGINS = {
    "fuse_simple_request": ("fm", "args"),
    "__fuse_simple_request": ("idmap", "fm", "args"),
    "fuse_simple_background": ("fm", "args", "gfp_flags"),
}
_END = {"fuse_request_end": ("req",)}
# The members of structures that the probes of these functions read.
_MEMBERS = {
    "fuse_mount": ("fc",),
    "fuse_conn": ("dev",),
    "fuse_args": ("opcode",),
    "fuse_req": ("args", "fm", "in", "out"),
}


def by_tracepoints(types: Types | None, probe: str) -> Requests | None:
    """Return how FUSE's tracepoints report requests.

    None if they do not report which end belongs to which send. ``probe``: as for
    `calls_by_functions`; if it is not a kprobe and FUSE is built in, the function of ends takes the
    place of their tracepoint, because a probe of it costs less.
    """
    if not types:
        return TRACEPOINTS
    there = types.parameters({_NUMBERED, *_END})
    if _NUMBERED not in there:
        return None
    if probe != KPROBE and types.built_in and there.items() >= _END.items():
        for members in _DEVICES:
            if len(types.offsets(members)) == len(members):
                device = "->".join(member for (member,) in members.values())
                sizes = _received("(uint64)args->req->out.h.len")
                end = _typed_end(probe, device, "args->req->in.h.unique", sizes)
                return replace(TRACEPOINTS, end=end)
    return TRACEPOINTS


def _typed_end(probe: str, device: str, key: str, sizes: str) -> End:
    condition = f"args->req->{device} == (uint64)DEVICE"
    return End(f"{probe}:fuse_request_end /{condition}/", key, sizes)


def by_functions(types: Types, probe: str) -> Requests | None:
    """Return how FUSE's functions report requests, None if they or their types are unknown.

    ``probe``: as for `calls_by_functions`. A request is identified by the address of its arguments.
    Its latency includes the time that it waits because of the limit of background requests.
    """
    at = types.offsets(_MEMBERS)
    there = types.parameters({*_BEGINS, *_END})
    known = {name: one for name, one in there.items() if one == {**_BEGINS, **_END}[name]}
    # The kernel has one of the first two, which pass on their arguments.
    if len(at) != sum(map(len, _MEMBERS.values())) or len(known) != len(_BEGINS):
        return None
    begins = {name: one for name, one in known.items() if name in _BEGINS}
    if probe != KPROBE and types.built_in:
        return _typed(probe, begins)

    def pointer(function: str, parameter: str) -> str:
        if probe == KPROBE:
            return f"arg{known[function].index(parameter)}"
        return f"(uint64)args->{parameter}"

    sends = [
        _send(at, f"{probe}:{name}", *(pointer(name, one) for one in ("fm", "args")))
        for name in begins
    ]
    (end,) = _END
    return Requests(tuple(sends), _end(at, f"{probe}:{end}", pointer(end, "req")), queued=True)


def _typed(probe: str, begins: Iterable[str]) -> Requests:
    """Return the probes for a FUSE that is built in, whose types every bpftrace knows.

    A pointer that a program follows without types costs as much as finding an entry of a map.
    """
    sends = [
        Send(f"{probe}:{name}", "args->fm->fc->dev", "args->args->opcode", "(uint64)args->args")
        for name in begins
    ]
    sent, received = (f"(uint64)args->req->{name}.h.len" for name in ("in", "out"))
    sizes = f"{_written(sent)} {_received(received)}"
    end = _typed_end(probe, "fm->fc->dev", "(uint64)args->req->args", sizes)
    return Requests(tuple(sends), end, queued=True)


_Offsets = Mapping[tuple[str, str], int]


def _send(at: _Offsets, probe: str, mount: str, arguments: str) -> Send:
    connection = f"*(uint64 *)({mount} + {at['fuse_mount', 'fc']})"
    return Send(
        probe,
        f"*(uint32 *)({connection} + {at['fuse_conn', 'dev']})",
        f"*(uint32 *)({arguments} + {at['fuse_args', 'opcode']})",
        arguments,
    )


def _end(at: _Offsets, probe: str, request: str) -> End:
    """Return the probe, without a condition: the address is known only for this mount's requests.

    To follow the pointers to the device would cost more than to find no such address.
    """
    # Both headers begin with their length.
    sent, received = (
        f"(uint64)*(uint32 *)({request} + {at['fuse_req', name]})" for name in ("in", "out")
    )
    return End(
        probe,
        f"*(uint64 *)({request} + {at['fuse_req', 'args']})",
        f"{_written(sent)} {_received(received)}",
    )
