# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the service ends for good, what it set goes, and nothing else."""

from fusetune.changes.apply import set_knobs
from fusetune.changes.journal import Journal
from fusetune.changes.overrides import overrides
from fusetune.desired.config import load
from fusetune.desired.history import history_of
from fusetune.desired.host_limits import raise_limits
from fusetune.desired.put_back import put_back, put_back_all
from fusetune.desired.reconcile import reconcile
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import save, saved_for
from fusetune.knobs import SYSTEM
from fusetune.mounts.mount import Mount
from tests.unit.config_files import configure
from tests.unit.conftest import STOCK, Tree
from tests.unit.knob_values import knobs

CONFIG = "[[mount]]\nmax_background = 64\nmax_ratio = 5\n"


def tuned(tree: Tree, mount: Mount) -> None:
    """Set what the configuration says, as the service does."""
    resolver = Resolver(tree.host, load(tree.host))
    reconcile(resolver, mount, by="watch")


def test_what_was_set_goes_and_comes_again(tree: Tree, mounted: Mount) -> None:
    configure(tree, CONFIG)
    save(tree.host, mounted, {"read_ahead_kb": 512}, "auto", 1.5)
    said: list[str] = []
    for _ in range(2):
        tuned(tree, mounted)
        assert tree.values() == STOCK | {
            "max_background": 64,
            "max_ratio": 5,
            "read_ahead_kb": 512,
        }
        put_back_all(tree.host, said.append)
        assert tree.values() == STOCK
        assert tree.journals() == []
    assert saved_for(tree.host, mounted)
    assert len(said) == 2
    assert said[0].startswith("/mnt/one: ")
    assert "max_ratio 5 -> 1" in said[0]
    last = history_of(tree.host, mounted).entries[-1]
    assert (last.command, last.reasons) == ("watch", ["the service ended"])


def test_what_others_set_stays(tree: Tree, mounted: Mount) -> None:
    configure(tree, CONFIG)
    set_knobs(tree.host, mounted, knobs(read_ahead_kb=256))
    tuned(tree, mounted)
    tree.write("sys/class/bdi/0:40/max_ratio", "7\n")
    put_back_all(tree.host, lambda line: None)
    assert tree.values() == STOCK | {"max_ratio": 7, "read_ahead_kb": 256}
    assert overrides(tree.host, mounted) == {}
    tuned(tree, mounted)
    assert tree.values() == STOCK | {
        "max_background": 64,
        "max_ratio": 7,
        "read_ahead_kb": 256,
    }


def test_it_goes_back_to_what_was_before_the_service_alone(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_background=99))
    configure(tree, CONFIG)
    resolver = Resolver(tree.host, load(tree.host))
    reconcile(resolver, mounted, respect=False)
    assert [c.new for c in put_back(tree.host, mounted)] == [99, 1]
    assert tree.values() == STOCK | {"max_background": 99}
    assert put_back(tree.host, mounted) == []
    assert Journal(tree.host, mounted).originals["max_background"] == STOCK["max_background"]


def test_limits_of_the_host_that_were_raised_go_too(tree: Tree, mounted: Mount) -> None:
    limit = next(knob for knob in SYSTEM if knob.name == "fs.pipe-max-size")
    tree.write(limit.file, "1048576\n")
    configure(tree, '[[mount]]\npath = "/mnt/one"\npipe_max_size = "4M"\n')
    resolver = Resolver(tree.host, load(tree.host))
    raise_limits(tree.host, resolver.needs(mounted), resolver.config.settings)
    assert tree.read(limit.file).strip() == str(4 << 20)
    said: list[str] = []
    put_back_all(tree.host, said.append)
    assert tree.read(limit.file).strip() == "1048576"
    assert said == ["this host: fs.pipe-max-size 4194304 -> 1048576"]
