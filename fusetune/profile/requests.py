# SPDX-License-Identifier: GPL-2.0-or-later
"""How the kernel reports FUSE requests: in tracepoints, or else in functions."""

from dataclasses import dataclass

from fusetune.profile.btf import Types
from fusetune.profile.calls import Call

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
    """The probe of ends, like `Send`."""

    ended_probe: str
    ended_device: str
    ended_key: str
    ended_bytes: str


@dataclass(frozen=True)
class Requests:
    """How a kernel reports requests."""

    sends: tuple[Send, ...]
    end: End

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
    return f"@bytes[$op] = sum({length}); @largest[$op] = max({length});"


def _when(operator: str, statements: str) -> str:
    return f"if ($op {operator} {_WRITE}) {{ {statements} }}"


TRACEPOINTS = Requests(
    (
        Send(
            sent_probe="tracepoint:fuse:fuse_request_send",
            sent_device="args->connection",
            sent_opcode="args->opcode",
            sent_key="args->unique",
            sent_bytes=_when("==", _counted(f"args->len - {_IN + _WRITE_IN}")),
        ),
    ),
    End(
        ended_probe="tracepoint:fuse:fuse_request_end",
        ended_device="args->connection",
        ended_key="args->unique",
        ended_bytes=_when("!=", _counted(f"args->len - {_OUT}")),
    ),
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


def tracepoints_tell(types: Types) -> bool:
    """Whether FUSE's tracepoints report which end belongs to which send."""
    return _NUMBERED in types.parameters({_NUMBERED})


def by_functions(types: Types) -> Requests | None:
    """Return how FUSE's functions report requests, None if they or their types are unknown.

    A request is identified by the address of its arguments. Its latency includes the time that it
    waits because of the limit of background requests.
    """
    at = types.offsets(_MEMBERS)
    there = types.parameters({*_BEGINS, *_END})
    known = {name: one for name, one in there.items() if one == {**_BEGINS, **_END}[name]}
    # The kernel has one of the first two, which pass on their arguments.
    if len(at) != sum(map(len, _MEMBERS.values())) or len(known) != len(_BEGINS):
        return None

    def device(mount: str) -> str:
        connection = f"*(uint64 *)({mount} + {at['fuse_mount', 'fc']})"
        return f"*(uint32 *)({connection} + {at['fuse_conn', 'dev']})"

    def send(function: str, mount: int, arguments: int) -> Send:
        return Send(
            f"kprobe:{function}",
            device(f"arg{mount}"),
            f"*(uint32 *)(arg{arguments} + {at['fuse_args', 'opcode']})",
            f"arg{arguments}",
        )

    def header(name: str) -> str:  # both begin with their length
        return f"(uint64)*(uint32 *)(arg0 + {at['fuse_req', name]})"

    written = _when("==", _counted(f"{header('in')} - {_IN + _WRITE_IN}"))
    read = _when("!=", _counted(f"{header('out')} - {_OUT}"))
    end = End(
        ended_probe="kprobe:fuse_request_end",
        ended_device=device(f"*(uint64 *)(arg0 + {at['fuse_req', 'fm']})"),
        ended_key=f"*(uint64 *)(arg0 + {at['fuse_req', 'args']})",
        ended_bytes=f"{written} {read}",
    )
    begins = {name: one for name, one in known.items() if name in _BEGINS}
    return Requests(
        tuple(send(name, one.index("fm"), one.index("args")) for name, one in begins.items()), end
    )
