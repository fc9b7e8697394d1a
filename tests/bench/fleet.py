# SPDX-License-Identifier: GPL-2.0-or-later
"""A simulated fleet for a week: what shared results reach, and what wrong ones do.

    /usr/bin/python3 -m tests.bench --only fleet

Hosts, mounts and speeds are made up; what resolves, stores, exports, imports and judges is
fusetune's own code, on a directory tree a host. A canary tunes one volume of each profile and
exports the results. Every node imports them and mounts each of its volumes several times, each time
at another path, as pods do. A profile is a kind of server and its storage; the volumes of a profile
have sources of their own and one class.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fusetune.bench.intervals import ratio_interval
from fusetune.desired.config import load
from fusetune.desired.exported import Exported, parsed, text_of
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import Conditions, Run, Saved, saved_for, store
from fusetune.desired.sharing import SharedResults
from fusetune.desired.transfer import Importer
from fusetune.desired.volume import Volume, volume_of
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from tests.bench.page import Section, table
from tests.unit.conftest import Tree

NODES, VOLUMES, PROFILES, MOUNTS = 1000, 50, 40, 4
RESULTS, LOOKUPS = 10_000, 200
SEED = 19
#: Shares: profiles that gain nothing, volumes that are unlike their profile, results of the canary
#: that are right for no other host.
FLAT, ODD, WRONG = 0.25, 0.05, 0.1
NOISE, PAIRS, ERROR = 0.05, 12, 0.05
_BATCH = 0.25  # of the nodes, after a first batch of one
_KERNEL = "6.12"


@dataclass(frozen=True)
class Profile:
    """Volumes of one kind: what is best, and the log ratio of the speed with it to that without.

    ``wrong``: whether what the canary found is worse than stock everywhere else.
    """

    name: str
    values: Mapping[str, int]
    gain: float
    wrong: bool


class _Served(Daemons):
    """Every mount is served by the program that its type names."""

    def __init__(self) -> None:
        pass

    def of(self, mount: Mount) -> Collection[str]:
        return [f"/usr/bin/{mount.fstype.partition('.')[2]}"]

    def forget(self) -> None:
        pass


class Fleet:
    """The profiles, and the configuration that every node has; ``directory`` is for the nodes."""

    def __init__(self, directory: Path, draw: random.Random) -> None:
        self.draw = draw
        self._directory = directory
        tree = Tree(directory / "host")
        tree.write("proc/sys/kernel/osrelease", f"{_KERNEL}.1-node\n")
        self.profiles = [self._profile(number) for number in range(PROFILES)]
        sections = (
            f'[[mount]]\nsource = "{one.name}-*"\nvolume_class = "{one.name}"\n'
            for one in self.profiles
        )
        tree.write("etc/mounts.d/classes.toml", "\n".join(sections))
        self._host = tree.host
        self._config = load(self._host)

    def _profile(self, number: int) -> Profile:
        draw = self.draw
        values = {
            "read_ahead_kb": 256 << draw.randrange(7),
            "max_background": draw.choice((12, 24, 48, 96)),
        }
        flat = draw.random() < FLAT
        gain = 0.0 if flat else draw.uniform(math.log(1.2), math.log(8))
        return Profile(f"p{number}", {} if flat else values, gain, draw.random() < WRONG)

    def node(self, number: int) -> tuple[Host, Resolver]:
        """Return a host with an empty state directory, and its resolver."""
        host = replace(self._host, state_dir=self._directory / f"node{number}")
        resolver = Resolver(host, self._config)
        resolver._daemons = _Served()
        return host, resolver

    def exported(self) -> Exported:
        """Return what the canary exports, as another host reads it."""
        results = [_result(one, self.draw) for one in self.profiles]
        return parsed(text_of(Exported(_KERNEL, results, [])).encode(), "canary.toml")


def _mount(profile: Profile, source: str, pod: str) -> Mount:
    path = f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/{source}/mount"
    return Mount(path, f"fuse.{profile.name}fs", source, "0:40")


def _result(profile: Profile, draw: random.Random) -> Saved:
    """Return what `auto` saved on the canary, with as many samples as a run keeps."""
    mount = _mount(profile, f"{profile.name}-canary", "canary")
    start = {"read_ahead_kb": 128, "max_background": 12}
    chosen = {**start, **profile.values}
    blocks = [
        [(setting, {"seq-read": math.exp(draw.gauss(20, 1))}) for setting in (start, chosen)]
        for _ in range(40)
    ]
    units = {"seq-read": "bytes_per_second"}
    server = f"{profile.name}fs"
    run = Run(
        Conditions(f"/usr/bin/{server}", "1.0", _KERNEL, 0, units),
        blocks,
        start,
        chosen,
        {"seq-read": 1.0},
    )
    volume = Volume(
        *(mount.fstype, server, "1.0", _KERNEL, 0, (), mount.source),
        volume_class=profile.name,
    )
    gain = math.exp(profile.gain)
    return Saved(
        *(mount.path, mount.fstype, mount.source, dict(profile.values), "auto", 1.0),
        *(gain, (gain * 0.95, gain * 1.05), run, volume),
    )


def _is_worse(draw: random.Random, log: float) -> bool:
    """Whether pairs of samples prove values worse than stock; ``log``: of the real ratio."""
    samples = [draw.gauss(log, NOISE * math.sqrt(2)) for _ in range(PAIRS)]
    return ratio_interval(samples, ERROR, math.inf).high < 1


class Node:
    """One host of the fleet, from its import to the end of the week."""

    def __init__(self, fleet: Fleet, number: int, found: Exported) -> None:
        self._fleet = fleet
        self._host, self._resolver = fleet.node(number)
        done = Importer(self._host, self._resolver, dry_run=False).results(found)
        assert {one.action for one in done} == {"imported"}
        draw = fleet.draw
        self._volumes = [
            (draw.choice(fleet.profiles), f"v{number}-{i}", draw.random() < ODD)
            for i in range(VOLUMES)
        ]

    def week(self) -> Iterator[tuple[int, Profile, bool, bool]]:
        """Yield of each mount: which of its volume's it is, and whether it has values, wrong ones.

        After the first mount of a volume with shared values the node measures it.
        """
        for profile, name, odd in self._volumes:
            source = f"{profile.name}-{name}"
            for times in range(MOUNTS):
                mount = _mount(profile, source, f"{name}-{times}")
                has = bool(self._resolver.expected(mount))
                log = -self._fleet.draw.uniform(0.1, 0.7) if odd or profile.wrong else profile.gain
                yield times, profile, has, has and log < 0
                if has and times == 0 and _is_worse(self._fleet.draw, log):
                    self._save_stock(mount, math.exp(-log))

    def _save_stock(self, mount: Mount, gain: float) -> None:
        """Save, as `auto` does, that the kernel's defaults are best on a mount."""
        sections = [*self._resolver.config.matching(self._host, mount, _Served())]
        volume = volume_of(self._host, mount, sections, _Served())
        identity = (mount.path, mount.fstype, mount.source)
        store(self._host, Saved(*identity, {}, "auto", 2.0, gain, (gain, gain), volume=volume))

    @property
    def bytes_stored(self) -> int:
        """Bytes of all files that fusetune keeps on this host."""
        files = (path for path in self._host.state_dir.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


@dataclass
class Week:
    """What came of a week: counts of mounts and of hosts, and the most bytes on one host."""

    counts: Counter[str]
    exposed: int = 0
    most_bytes: int = 0


def week(directory: Path, nodes: int = NODES) -> Week:
    """Simulate a week of a fleet."""
    fleet = Fleet(directory, random.Random(SEED))
    found = fleet.exported()
    came = Week(Counter())
    for number in range(nodes):
        node = Node(fleet, number, found)
        for times, profile, has, wrong in node.week():
            which = "first" if times == 0 else "later"
            came.counts[f"{which} wrong"] += wrong
            came.counts[which] += 1
            if profile.values:
                came.counts[f"{which} to be tuned"] += 1
                came.counts[f"{which} tuned"] += has
        came.most_bytes = max(came.most_bytes, node.bytes_stored)
    came.exposed = _exposed(fleet, nodes)
    return came


def _exposed(fleet: Fleet, nodes: int) -> int:
    """Return on how many hosts a result that is wrong everywhere came, at most, by the playbook.

    It goes to one host, then to a quarter of them at a time; each host measures, and the first one
    that proves it worse ends the rollout after its batch.
    """
    most = 0
    for profile in fleet.profiles:
        if not (profile.wrong and profile.values):
            continue
        had, batch, stopped = 0, 1, False
        while had < nodes and not stopped:
            for _ in range(min(batch, nodes - had)):
                had += 1
                stopped |= _is_worse(fleet.draw, -0.2)
            batch = math.ceil(nodes * _BATCH)
        most = max(most, had)
    return most


def lookup_ratio(directory: Path, results: int = RESULTS) -> float:
    """Return the time of a lookup among many results, as a ratio to that of reading one file."""
    tree = Tree(directory)
    base = _result(Profile("p0", {"read_ahead_kb": 4096}, 1.0, False), random.Random(SEED))
    assert base.volume
    for number in range(results):
        volume = replace(base.volume, source=f"bucket-{number}")
        path = f"/mnt/{number}"
        store(tree.host, replace(base, path=path, run=None, volume=volume))
    shared = SharedResults(tree.host)
    wanted = replace(base.volume, source=f"bucket-{results // 2}", volume_class=None)
    assert shared.best(wanted, lambda: None)
    one = Mount("/mnt/7", base.fstype, base.source, "0:40")
    ours, theirs = [], []
    for _ in range(LOOKUPS):
        began = time.perf_counter()
        assert shared.best(wanted, lambda: None)
        between = time.perf_counter()
        assert saved_for(tree.host, one)
        ours.append(between - began)
        theirs.append(time.perf_counter() - between)
    return statistics.median(ours) / statistics.median(theirs)


_HEADS = ("", "")


def _make() -> str:
    with tempfile.TemporaryDirectory() as name:
        came = week(Path(name, "week"))
        ratio = lookup_ratio(Path(name, "lookup"))
    counts = came.counts
    share = counts["first tuned"] / counts["first to be tuned"]
    rows = [
        ("mounts, the first ones of a volume", str(counts["first"])),
        ("mounts, later ones", str(counts["later"])),
        ("tuned at first sight, of those with something to gain", f"{share:.1%}"),
        ("wrong values at first sight", str(counts["first wrong"])),
        ("wrong values after the node had measured", str(counts["later wrong"])),
        ("hosts that got a result that is wrong everywhere, at most", str(came.exposed)),
        ("bytes stored on a host, at most", str(came.most_bytes)),
        (f"time of a lookup among {RESULTS} results / of reading one result", f"{ratio:.2f}"),
    ]
    return table(_HEADS, rows)


FLEET = Section(
    "A fleet, simulated",
    f"The simulation has {NODES} hosts with {VOLUMES} volumes each, of {PROFILES} profiles, for a "
    f"week. Each volume is mounted {MOUNTS} times at different paths; {FLAT:.0%} of the profiles "
    f"gain nothing, {ODD:.0%} of the volumes differ from their profile, and {WRONG:.0%} of the "
    "canary's results are right for no other host. Speeds are random; resolving, storing, "
    f"exporting and importing use fusetune's own code. A host judges from {PAIRS} pairs with "
    f"{NOISE:.0%} noise whether a shared result is worse than the kernel's defaults.",
    (_HEADS,),
    _make,
)
