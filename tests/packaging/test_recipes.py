# SPDX-License-Identifier: GPL-2.0-or-later
"""The recipes match Debian's packages: each server starts and has the recipe's options."""

import re
import tempfile
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fusetune.recipes.config_text import ConfigText
from tests.kernel.suites import inside
from tests.libfuse.suites import SUITES
from tests.native.mirror import CHECKOUT
from tests.system import tree

_SUITES = tuple(suite.name for suite in SUITES)
#: Packages that are missing in a suite.
_MISSING = {
    "bookworm": {"curlftpfs", "virtiofsd"},
    "trixie": {"unionfs-fuse"},
    "sid": {"unionfs-fuse"},
}
_LIBRARIES = {"libfuse2": b"libfuse.so.2", "libfuse3": b"libfuse3.so."}
#: Options in a library of the server's package other than libfuse.
_OWN_LIBRARIES = {"ceph-fuse": "usr/lib/*/ceph/libceph-common.so.*"}
#: Bad options that cannot be found: mergerfs 2.41 is in no suite yet, and the linker keeps "sync"
#: as the end of another word.
_UNFOUND = {"mergerfs: async-read", "ntfs-3g: sync"}
#: Arguments to start a program with, if not --help.
_HELP = {"rclone": "mount --help", "securefs": "mount --help", "gocryptfs": "-hh"}
_PLACES = ("usr/bin", "usr/sbin", "usr/libexec", "bin", "sbin")


@dataclass(frozen=True)
class Recipe:
    """A recipe's file, and the package of the server that it describes."""

    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.content["name"])

    @property
    def package(self) -> str:
        """Debian's package."""
        return str(self.content["server"]["package"])

    @property
    def names(self) -> list[str]:
        """Possible names of its programs and manual pages."""
        return [*self.content["server"].get("program", []), self.package]


def _recipes() -> list[Recipe]:
    """Return the recipes whose server is in Debian; mirrorfs is ours."""
    files = sorted((CHECKOUT / "fusetune" / "recipes").glob("*.toml"))
    contents = [tomllib.loads(file.read_text()) for file in files if file.stem != "mirrorfs"]
    return [Recipe(content) for content in contents if "package" in content["server"]]


def _packages(suite: str) -> set[str]:
    return {recipe.package for recipe in _recipes()} - _MISSING[suite]


def _tree(suite: str) -> Path:
    """Return a suite's servers and their dependencies, unpacked, without documentation."""
    wanted = sorted({*_packages(suite), "base-files", "coreutils", "dash"})
    options = (
        "--variant=extract",
        f"--include={','.join(wanted)}",
        "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=APT::Install-Recommends "false"',
    )
    return tree.made(suite, "recipes", options, f"deb {tree.archive()} {suite} main")


def _found(directory: Path, names: list[str]) -> dict[str, Path]:
    """Return a tree's programs with these names."""
    paths = [directory / place / name for name in names for place in _PLACES]
    return {path.name: path for path in reversed(paths) if path.is_file()}


def _helps(directory: Path, out: Path, programs: Mapping[str, Path]) -> dict[str, bytes]:
    """Start each program in the tree and return its help texts, by name."""
    lines = [
        f"timeout 20 /{path.relative_to(directory)} {_HELP.get(name, '--help')} "
        f">/out/{name} 2>&1 </dev/null || echo $? >/out/{name}.status"
        for name, path in programs.items()
    ]
    ended = inside(directory, out, {}, "\n".join(lines), 600)
    assert ended.returncode == 0, ended.stdout
    for status in out.glob("*.status"):
        # 124 to 127: it hung, or the system could not start it.
        said = status.with_suffix("").read_text(errors="replace")
        assert not 124 <= int(status.read_text()) <= 127, f"{status.stem} did not start: {said}"
    return {name: (out / name).read_bytes() for name in programs}


def _pages(directory: Path, names: list[str]) -> Iterator[bytes]:
    """Yield the manual pages whose name begins with one of these."""
    for page in sorted((directory / "usr/share/man").glob("man[1-8]/*.gz")):
        if page.name.startswith(tuple(names)):
            text = zlib.decompress(page.read_bytes(), wbits=31)
            yield re.sub(rb"\\f.|\\&|\\s-?\d", b"", text.replace(rb"\-", b"-"))


def _library(directory: Path, program: bytes) -> tuple[str, bytes]:
    """Return which libfuse a program is linked with, and its library's content."""
    for name, soname in _LIBRARIES.items():
        if soname in program:
            (path,) = {
                path.resolve() for path in directory.glob(f"usr/lib/*/{soname.decode()}*")
            } or {path.resolve() for path in directory.glob(f"lib/*/{soname.decode()}*")}
            return name, path.read_bytes()
    return "", b""


def _has(evidence: tuple[bytes, ...], option: str) -> bool:
    """Return whether a text, or a program, has the name of an option as a whole word."""
    name = re.compile(rb"(?<![\w.])(?<!\w-)%b(?![\w-])" % re.escape(option.encode()))
    return any(name.search(each) for each in evidence)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without Debian's own."""
    upstream = re.sub(r"^\d+:|[+~-].*$", "", version)
    return tuple(map(int, re.findall(r"\d+", upstream)))


def _version(directory: Path, package: str) -> tuple[int, ...]:
    """Return the version of a tree's package: that of its changelog's newest entry."""
    (changelog,) = (directory / "usr/share/doc" / package).glob("changelog.Debian.gz")
    first = zlib.decompress(changelog.read_bytes(), wbits=31).decode().partition("\n")[0]
    return _numbers(first.partition("(")[2].partition(")")[0])


def _applies(option: Mapping[str, Any], version: tuple[int, ...], library: str) -> bool:
    """Return whether a server of this version and library has an option that was tried."""
    return (
        option["proof"] == "tried"
        and _numbers(option.get("since", "0")) <= version
        and ("until" not in option or version <= _numbers(option["until"]))
        and (not library or library in option.get("library", [library]))
    )


@dataclass(frozen=True)
class Server:
    """A recipe's server in a suite: its version, libfuse, and all texts about options."""

    recipe: Recipe
    version: tuple[int, ...]
    library: str
    evidence: tuple[bytes, ...]

    def lacks(self, *names: str) -> list[str]:
        """Return which of these option names are not found anywhere."""
        return [f"{self.recipe.name}: {name}" for name in names if not _has(self.evidence, name)]


@cache
def _servers(suite: str) -> list[Server]:
    """Start all servers of a suite and return their output and manual pages."""
    directory = _tree(suite)
    recipes = [recipe for recipe in _recipes() if recipe.package in _packages(suite)]
    names = [name for recipe in recipes for name in recipe.names]
    with tempfile.TemporaryDirectory(prefix="recipes-") as out:
        helps = _helps(directory, Path(out), _found(directory, names))
    return [_server(recipe, directory, helps) for recipe in recipes]


def _server(recipe: Recipe, directory: Path, helps: Mapping[str, bytes]) -> Server:
    programs = _found(directory, recipe.names)
    own = directory.glob(_OWN_LIBRARIES.get(recipe.name, "nothing"))
    contents = [path.read_bytes() for path in (*programs.values(), *own)]
    library, content = _library(directory, b"".join(contents))
    texts = [*(helps[name] for name in programs), *_pages(directory, recipe.names)]
    version = _version(directory, recipe.package)
    return Server(recipe, version, library, (*texts, *contents, content))


@pytest.mark.parametrize("suite", _SUITES)
def test_each_option_is_known_to_the_packaged_server(suite: str) -> None:
    """The search must not find an option that no server has."""
    planted = "no-such-option"
    servers = _servers(suite)
    lacking = [
        each
        for server in servers
        for each in server.lacks(
            *(
                option["name"]
                for option in server.recipe.content.get("option", [])
                if _applies(option, server.version, server.library)
            ),
            planted,
        )
    ]
    assert lacking == [f"{server.recipe.name}: {planted}" for server in servers]


def test_each_bad_option_is_known_to_the_server_of_a_suite() -> None:
    """A bad option has no version, so one suite that has it is enough."""
    named: set[str] = set()
    known: set[str] = set()
    for server in (server for suite in _SUITES for server in _servers(suite)):
        bad = [
            (each.get("command") or each["option"]).partition("{")[0].strip()
            for each in server.recipe.content.get("bad", [])
        ]
        here = {f"{server.recipe.name}: {each}" for each in bad}
        named |= here
        known |= here - set(server.lacks(*bad))
    assert named - known == _UNFOUND


def _values(recipe: Recipe) -> dict[str, str]:
    """Return a value for each key of a server's configuration file that is not its default."""
    values = {}
    for each in (*recipe.content["option"], *recipe.content["bad"]):
        known = each.get("values") or map(str, each.get("range", [each.get("value")]))
        values[each["file"]] = next(one for one in known if one != each.get("default"))
    return values


@pytest.mark.parametrize("suite", _SUITES)
def test_a_server_reads_what_is_written_into_its_file(suite: str, tmp_path: Path) -> None:
    """The server's own check accepts them, and must refuse a key that it does not have."""
    checked = []
    for recipe in (one for one in _recipes() if "file_check" in one.content["server"]):
        facts, values = recipe.content["server"], _values(recipe) | {"no_such": "1"}
        text = ConfigText("# nobody's\n[global]\nno key = 1 ; x\n", facts["file_format"])
        for key, value in values.items():
            for change in text.changes(key, value, facts["file_sections"]) or ():
                text = text.changed(change)
        (tmp_path / recipe.name).write_text(str(text))
        command = " ".join(facts["file_check"])
        lines = [
            f"{{ {command.format(file=f'/out/{recipe.name}', key=key)} && echo 0 || echo 1; }} "
            f">/out/{key} 2>&1 </dev/null"
            for key in values
        ]
        done = inside(_tree(suite), tmp_path, {}, "\n".join(lines), 600)
        assert done.returncode == 0, done.stdout
        said = {key: (tmp_path / key).read_text().split() for key in values}
        assert said.pop("no_such")[-1] == "1"
        assert said == {key: [values[key], "0"] for key in said}
        checked.append(recipe.name)
    assert checked == ["ceph-fuse"]
