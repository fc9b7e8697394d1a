# SPDX-License-Identifier: GPL-2.0-or-later
"""The recipe of a server with an option of each kind, and the process that serves its mount."""

import json
import os
from collections.abc import Sequence
from typing import Any

from fusetune.recipes.load import read_recipe
from fusetune.recipes.recipe import Recipe
from tests import schemas
from tests.unit.conftest import Tree, process

#: Has an option in every notation, and one of each class.
RECIPE = """\
schema = "fusetune.recipe/1"
name = "ours"
about = "Ours"

[server]
fstype = ["fuse.ours"]
program = ["oursd"]
library = ["own", "libfuse3"]
options = "{way}"
subcommands = ["mount"]
secrets = ["door"]
second = "yes"
second_because = "it keeps no state"
source = "ours(1)"

[[option]]
name = "cache"
about = "A cache"
values = ["off", "some", "all"]
default = "off"
class = "safe"
proof = "tried"
source = "ours(1), cache"

[[option]]
name = "writeback"
about = "Writes gather"
flag = true
propose = "true"
workloads = ["small-write"]
slows = ["metadata"]
needs = ["cache=some|all"]
excludes = ["passthrough"]
class = "conditional"
condition = "no one else writes"
otherwise = "data is old"
proof = "tried"
source = "ours(1), writeback"

[[option]]
name = "passthrough"
about = "The kernel reads"
flag = true
propose = "true"
workloads = ["seq-read"]
kernel = "6.9"
root = true
class = "safe"
proof = "read"
source = "ours(1), passthrough"

[[option]]
name = "threads"
about = "Threads"
range = [1, 64]
unit = "threads"
default = "1"
propose = "8"
workloads = ["metadata"]
since = "2.1"
until = "3.0"
class = "safe"
proof = "tried"
source = "ours(1), threads"

[[option]]
name = "nosync"
about = "No sync"
flag = true
propose = "true"
class = "unsafe"
condition = "no crash comes"
otherwise = "data is lost"
proof = "read"
source = "ours(1), nosync"

[[bad]]
option = "max_read"
below = 65536
to = "131072"
kind = "harmful"
because = "requests are small"
instead = "give 131072"
source = "ours(1), max_read"

[[bad]]
option = "single"
command = "-s"
kind = "harmful"
workloads = ["metadata"]
because = "one thread serves"
instead = "leave it out"
source = "ours(1), -s"

[[bad]]
option = "readahead"
above = 131072
kind = "useless"
because = "the kernel takes less"
instead = "set read_ahead_kb"
source = "ours(1), readahead"
"""


def recipe_with(tree: Tree, way: str = "mount", *changes: tuple[str, str]) -> Recipe:
    """Write the recipe as the administrator's, with changed texts, and return it."""
    text = RECIPE.replace("{way}", way)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_recipe(tree.write("etc/recipes/ours.toml", text))


def serve(
    tree: Tree, *words: str, unit: str | None = None, environment: Sequence[str] = ()
) -> None:
    """Let process 10 serve the mount with this command line."""
    process(tree, 10, *(words or ("oursd", "a", "/mnt/one")), fds={3: "40"})
    exe = tree.root / "proc/10/exe"
    exe.unlink()
    os.symlink("/usr/bin/oursd", exe)
    tree.write("proc/10/maps", "")
    tree.write("proc/10/environ", "\0".join([*environment, ""]))
    where = f"/system.slice/{unit}" if unit else "/user.slice/session-1.scope"
    tree.write("proc/10/cgroup", f"0::{where}\n")


Told = tuple[int, str]


def document(told: Told) -> dict[str, Any]:
    found: dict[str, Any] = schemas.validate(json.loads(told[1]))
    return found
