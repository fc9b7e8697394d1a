# SPDX-License-Identifier: GPL-2.0-or-later
"""How a server gets the module: the words before its command, and a service's drop-in."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fusetune.errors import FusetuneError, UsageError
from fusetune.intercept import way
from fusetune.intercept.options import MODULE_OPTIONS, is_ours, module_options, wants_module
from fusetune.intercept.service import disable, enable
from fusetune.libfuse import installed as lib
from fusetune.libfuse.installed import uses_libfuse3
from fusetune.libfuse.switch import carry_out
from fusetune.mount_helper import Request, helper_command, split_options, translated
from tests.unit.conftest import CHECKOUT, Tree

_PROGRAM = "usr/lib/fusetune-intercept"  # where a Tree has vendors' files
_DROP_IN = "etc/systemd/system/cloud.service.d/70-fusetune-intercept.conf"


@pytest.fixture
def installed(tree: Tree) -> Tree:
    """A tree with the interceptor in it, as its package puts it there."""
    program = tree.write(_PROGRAM, "")
    program.chmod(0o755)
    assert way.interceptor(tree.host) == tree.host.vendor_dir / "fusetune-intercept"
    return tree


def _service(tree: Tree, *lines: str) -> None:
    tree.write("etc/systemd/system/cloud.service", "\n".join(["[Service]", *lines, ""]))


# Options


def test_options_are_those_of_the_module() -> None:
    tuned = CHECKOUT / "dkms" / "fusetuned" / "tuned"
    text = "".join((tuned / name).read_text() for name in ("options.c", "forced.c"))
    assert sorted(re.findall(r'fsparam_(\w+)\("(\w+)"', text)) == sorted(
        ("flag" if option.takes is None else "u32", name) for name, option in MODULE_OPTIONS.items()
    )


def test_options_of_the_module() -> None:
    assert module_options("tuned,max_pages=64,,no_file_caps,tuned_required") == [
        "max_pages=64",
        "no_file_caps",
    ]
    assert wants_module("max_pages=64,tuned")
    assert wants_module("tuned_required")
    assert not wants_module("max_pages=64")
    assert is_ours("max_pages=64")
    assert not is_ours("max_write=64")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tuned,splice=off", "'splice' is not an option of the module fusetuned, and this server"),
        ("max_pages", "'max_pages': max_pages takes"),
        ("max_pages=4K", "max_pages takes"),
        ("no_file_caps=1", "no_file_caps takes no value"),
    ],
)
def test_wrong_options(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        module_options(text)


# The way


def test_words_before_a_command(installed: Tree) -> None:
    program = str(installed.host.vendor_dir / "fusetune-intercept")
    assert way.prefix(installed.host, "tuned") == [program, "--"]
    words = way.prefix(installed.host, "tuned_required,max_pages=64,no_file_caps")
    assert words == [program, "--options", "max_pages=64,no_file_caps", "--required", "--"]
    assert way.without_prefix([*words, "rclone", "mount", "--", "a:"]) == [
        *("rclone", "mount", "--", "a:")
    ]
    assert way.without_prefix(["rclone", "--", "mount"]) == ["rclone", "--", "mount"]


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A program that is linked with libfuse3 according to ldd, here a script; others are not.

    Root runs it as nobody. It prints nothing about programs of other names, nor as root.
    """
    with TemporaryDirectory() as directory:
        ldd = Path(directory, "ldd")
        ldd.parent.chmod(0o755)
        ldd.write_text(
            "#!/bin/sh\n[ $(id -u) -ne 0 ] || exit 1\n"
            'case $(readlink "$1") in */linked) echo "libfuse3.so.3 => ..." ;; esac\n'
        )
        ldd.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        yield shutil.copy("/bin/true", str(ldd.with_name("linked")))


def test_a_program_that_only_its_owner_can_read_is_unknown(linked: str) -> None:
    assert uses_libfuse3(linked)
    Path(linked).chmod(0o750)
    assert uses_libfuse3(linked) is None


def test_an_ldd_that_hangs(linked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib, "_SECONDS", 0.2)
    Path(linked).with_name("ldd").write_text("#!/bin/sh\nexec sleep 60\n")
    assert uses_libfuse3(linked) is None


def test_way_of_a_program(tree: Tree, tmp_path: Path, linked: str) -> None:
    """It is unknown what a script will start, so its mounts are intercepted."""
    script = tmp_path / "server"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert not way.by_library(tree.host, linked)
    tree.write("usr/lib64/fusetune/libfuse3.so.3", "")
    assert way.by_library(tree.host, linked)
    # The library can set the writeback cache for the server, but has no keep_cache.
    assert way.by_library(tree.host, linked, "tuned,writeback_cache,max_pages=64")
    assert not way.by_library(tree.host, linked, "tuned,keep_cache")
    assert not way.by_library(tree.host, "/bin/sh")
    assert not way.by_library(tree.host, str(script))
    assert not way.by_library(tree.host, "no-such-program")


def test_module_that_is_required(tree: Tree) -> None:
    tree.write("proc/filesystems", "nodev\tfuse\nnodev\tfusetunedctl\n")
    with pytest.raises(FusetuneError, match="the module fusetuned is not loaded, but tuned_req"):
        way.check_module(tree.host)
    tree.write("proc/filesystems", "nodev\tfuse\nnodev\tfusetuned\n")
    way.check_module(tree.host)


# Services


def test_a_service_and_back(installed: Tree) -> None:
    _service(installed, "ExecStart=-/usr/bin/rclone mount %i: \\", '  "$POINT"  --rc')
    host = installed.host
    program = host.vendor_dir / "fusetune-intercept"
    change = enable(host, "cloud", "max_pages=512,no_file_caps")
    carry_out(host, change)
    assert change.remedy == "systemctl restart cloud.service"
    assert installed.read(_DROP_IN).splitlines()[2:] == [
        "[Service]",
        "ExecStartPre=-+/usr/bin/fusetune set host --for-unit %n "
        "--for tuned,max_pages=512,no_file_caps",
        "ExecStart=",
        f"ExecStart=-{program} --options max_pages=512,no_file_caps -- "
        '/usr/bin/rclone mount %i:    "$POINT"  --rc',
    ]
    again = enable(host, "cloud.service", "tuned,max_pages=512,no_file_caps")
    assert again.after == again.before  # it is not prefixed twice
    carry_out(host, disable(host, "cloud"))
    assert [path.name for path in (installed.root / "etc/systemd/system").iterdir()] == [
        "cloud.service"
    ]
    assert disable(host, "cloud").before is None


@pytest.mark.parametrize(
    ("lines", "apart"),
    [
        (["Type=forking"], True),
        (["Type=forking", "PIDFile=/run/cloud.pid"], False),
        (["Type=forking", "Type=notify"], False),
        ([], False),
    ],
)
def test_main_process_of_a_forking_service(installed: Tree, lines: list[str], apart: bool) -> None:
    """systemd guesses it if it is the only process, so the listener is in another cgroup."""
    _service(installed, "ExecStart=/usr/bin/rclone", *lines)
    text = enable(installed.host, "cloud", "").after or ""
    assert ("\nDelegate=yes\n" in text, " --apart -- " in text) == (apart, apart)


def test_a_service_that_may_open_some_devices(installed: Tree) -> None:
    _service(installed, "ExecStart=/usr/bin/rclone", "DeviceAllow=/dev/fuse rw", "User=root")
    text = enable(installed.host, "cloud", "").after
    assert text
    assert "\nDeviceAllow=/dev/fusetuned rw\n" in text


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [
        (["DevicePolicy=closed"], True),
        (["DevicePolicy=closed", "DevicePolicy=auto"], False),
        (["DeviceAllow=/dev/fuse rw", "DeviceAllow="], False),
    ],
)
def test_devices_that_a_service_may_open(
    installed: Tree, lines: list[str], *, allowed: bool
) -> None:
    """Only the last value of DevicePolicy= counts; a line of ours alone would be a limit."""
    _service(installed, "ExecStart=/usr/bin/rclone", *lines)
    text = enable(installed.host, "cloud", "").after or ""
    assert ("DeviceAllow=" in text) == allowed


@pytest.mark.parametrize(
    ("lines", "filtered"),
    [
        (["SystemCallFilter=@system-service @mount", "SystemCallFilter=~@resources"], True),
        (["SystemCallFilter=~@privileged"], True),
        (["SystemCallFilter=~@privileged", "SystemCallFilter="], False),
        ([], False),
    ],
)
def test_system_calls_that_a_service_may_use(
    installed: Tree, lines: list[str], *, filtered: bool
) -> None:
    """A line of ours alone would forbid all other calls; a later one would replace it."""
    _service(installed, "ExecStart=/usr/bin/rclone", *lines)
    found = re.findall(
        "^SystemCallFilter=(.*)$", enable(installed.host, "cloud", "").after or "", re.M
    )
    assert len(found) == filtered
    assert all({"seccomp", "pidfd_getfd"} <= set(one.split()) for one in found)
    later = installed.write(
        "etc/systemd/system/cloud.service.d/override.conf", "[Service]\nSystemCallFilter=~setns\n"
    )
    why = rf"{later} sets SystemCallFilter=, and .*: rename it to sort before 70-fusetune"
    with pytest.raises(FusetuneError, match=why):
        enable(installed.host, "cloud", "")


@pytest.mark.parametrize(
    "lines",
    [
        ["ExecStart=+/bin/a", "User=cloud"],
        ["ExecStart=-!/bin/a", "DynamicUser=yes"],
        ["ExecStart=/bin/a", "User=cloud", "User=root", "DynamicUser=1", "DynamicUser=False"],
        ["ExecStart=/bin/a", "User=cloud", "User="],
        ["ExecStart=/bin/a", "RootDirectory=/srv", "RootDirectory=/"],
    ],
)
def test_a_service_that_runs_as_root(installed: Tree, lines: list[str]) -> None:
    """By a mark, or by the last value of each setting (systemd.service(5), systemd.exec(5))."""
    _service(installed, *lines)
    assert enable(installed.host, "cloud", "").after


def test_a_service_of_a_libfuse3_server(installed: Tree, linked: str) -> None:
    """It gets the library; another way at the same time is refused."""
    installed.write("usr/lib64/fusetune/libfuse3.so.3", "")
    _service(installed, f"ExecStart={linked} /a /b")
    change = enable(installed.host, "cloud", "tuned,splice=off")
    assert change.path.name == "50-fusetune-libfuse.conf"
    assert "AssertPathExists" not in (change.after or "")
    text = enable(installed.host, "cloud", "tuned_required,splice=off").after or ""
    assert text.endswith("=tuned,splice=off\n[Unit]\nAssertPathExists=/dev/fusetuned\n")
    installed.write(_DROP_IN, "[Service]\n")
    why = "already uses the module in another way; run 'fusetune disable cloud'"
    with pytest.raises(FusetuneError, match=why):
        enable(installed.host, "cloud", "tuned")


def _library_drop_in(tree: Tree, server: str, options: str, *lines: str) -> list[str]:
    """Enable the library for a service; return the Environment= of the drop-in."""
    tree.write("usr/lib64/fusetune/libfuse3.so.3", "")
    _service(tree, f"ExecStart={server} /a /b", *lines)
    carry_out(tree.host, enable(tree.host, "cloud", options))
    again = enable(tree.host, "cloud", options)
    assert again.after == again.before  # nothing is added twice
    text = tree.read("etc/systemd/system/cloud.service.d/50-fusetune-libfuse.conf")
    written = [line.strip() for line in text.splitlines()]
    return [line for line in written if line.startswith(("Environment=", "# If"))]


@pytest.mark.parametrize(
    ("lines", "options", "expected"),
    [
        (
            [],
            "max_pages=64",
            ["LD_LIBRARY_PATH=/usr/lib64/fusetune", "FUSETUNE_OPTIONS=max_pages=64"],
        ),
        (
            ["Environment=LD_LIBRARY_PATH=/opt/lib FUSETUNE_OPTIONS=direct_io", "Environment=A=1"],
            "max_pages=64",
            [
                "LD_LIBRARY_PATH=/usr/lib64/fusetune:/opt/lib",
                "FUSETUNE_OPTIONS=direct_io,max_pages=64",
            ],
        ),
        # The last one counts; the service keeps options of its own if there are none of ours.
        (
            [
                "Environment=LD_LIBRARY_PATH=/old FUSETUNE_OPTIONS=direct_io",
                "Environment=LD_LIBRARY_PATH=/new",
            ],
            "",
            ["LD_LIBRARY_PATH=/usr/lib64/fusetune:/new"],
        ),
        (
            ["Environment=LD_LIBRARY_PATH=/old", "Environment=", "Environment=A=1"],
            "",
            ["LD_LIBRARY_PATH=/usr/lib64/fusetune"],
        ),
        # Quotes, continued lines; specifiers are expanded again, and $ means nothing.
        (
            ['Environment="A=1 2" \'LD_LIBRARY_PATH=/opt/%i/my "$lib":/100%%\' \\', " B=2"],
            "",
            ['"LD_LIBRARY_PATH=/usr/lib64/fusetune:/opt/%i/my \\"$lib\\":/100%%"'],
        ),
    ],
)
def test_variables_of_the_service_are_kept(
    installed: Tree, linked: str, lines: list[str], options: str, expected: list[str]
) -> None:
    """systemd uses the last Environment= of each variable, so the drop-in repeats them."""
    found = _library_drop_in(installed, linked, options, *lines)
    assert [line for line in found if line[0] != "#"] == [f"Environment={one}" for one in expected]
    own = any(name in one for one in expected for name in (":/", "direct_io"))
    assert any(line[0] == "#" for line in found) == own


def test_variables_of_a_drop_in_are_kept(installed: Tree, linked: str) -> None:
    installed.write(
        "etc/systemd/system/cloud.service.d/10-own.conf",
        "[Service]\nEnvironment=LD_LIBRARY_PATH=/own\n",
    )
    lines = _library_drop_in(installed, linked, "", "Environment=LD_LIBRARY_PATH=/opt/lib")
    assert lines[-1] == "Environment=LD_LIBRARY_PATH=/usr/lib64/fusetune:/own"


@pytest.mark.parametrize(
    ("text", "options", "replaced"),
    [
        ("Environment=LD_LIBRARY_PATH=/x", "", "LD_LIBRARY_PATH"),
        ("Environment=", "", "LD_LIBRARY_PATH"),
        ("Environment=FUSETUNE_OPTIONS=direct_io", "splice=off", "FUSETUNE_OPTIONS"),
        ("Environment=FUSETUNE_OPTIONS=direct_io", "", None),
        ("Environment=A=LD_LIBRARY_PATH=/x", "", None),
    ],
)
def test_a_later_drop_in_would_replace_our_variables(
    installed: Tree, linked: str, text: str, options: str, replaced: str | None
) -> None:
    installed.write("usr/lib64/fusetune/libfuse3.so.3", "")
    _service(installed, f"ExecStart={linked} /a /b")
    later = installed.write(
        "etc/systemd/system/cloud.service.d/override.conf", f"[Service]\n{text}\n"
    )
    if replaced is None:
        assert enable(installed.host, "cloud", options).after
        return
    why = f"{later} replaces {replaced}, and .*: rename it to sort before 50-fusetune-libfuse.conf"
    with pytest.raises(FusetuneError, match=why):
        enable(installed.host, "cloud", options)


def test_variables_that_cannot_be_written_again(installed: Tree, linked: str) -> None:
    with pytest.raises(FusetuneError, match=r"^an Environment= of cloud\.service has an escape"):
        _library_drop_in(installed, linked, "", r"Environment=LD_LIBRARY_PATH=/a\x20b")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["ExecStart=/bin/a", "ExecStart=/bin/b"], "does not have exactly one ExecStart="),
        (["Type=oneshot"], "does not have exactly one ExecStart="),
        (["ExecStart=@/bin/a b"], "begins with @"),
        (["ExecStart=/bin/a", "User=cloud"], "does not run as root"),
        (["ExecStart=/bin/a", "DynamicUser=yes"], "does not run as root"),
        (["ExecStart=/bin/a", "User=root", "User=no"], "does not run as root"),
        (["ExecStart=!!/bin/a", "User=cloud"], "does not run as root"),
        (["ExecStart=/bin/a", "RootDirectory=/srv"], "sets RootDirectory=, and fusetune-interc"),
        (["ExecStart=/bin/a", "RootImage=/srv/root.raw"], "sets RootImage=, and fusetune-interc"),
    ],
)
def test_a_service_that_cannot_have_it(installed: Tree, lines: list[str], why: str) -> None:
    _service(installed, *lines)
    with pytest.raises(FusetuneError, match=why):
        enable(installed.host, "cloud", "")


def test_a_later_drop_in_would_outweigh_ours(installed: Tree) -> None:
    _service(installed, "ExecStart=/usr/bin/rclone")
    later = installed.write(
        "etc/systemd/system/cloud.service.d/override.conf", "[Service]\nExecStart=\nExecStart=/x\n"
    )
    why = rf"{later} sets ExecStart=, and .*: rename it to sort before 70-fusetune-intercept.conf"
    with pytest.raises(FusetuneError, match=why):
        enable(installed.host, "cloud", "")
    later.write_text("[Service]\nNice=5\n")
    assert enable(installed.host, "cloud", "").after


# Long options, which go to mount(2)


@pytest.fixture(scope="module")
def without_descriptor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What removes the caller's descriptor from its options, as a program."""
    if not shutil.which("gcc"):
        pytest.skip("missing: gcc")
    program = tmp_path_factory.mktemp("intercept") / "options_without_descriptor"
    ours = CHECKOUT / "intercept"
    flags = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-D_GNU_SOURCE"]
    sources = [Path(__file__).with_name("options_without_descriptor.c"), ours / "options.c"]
    subprocess.run(["gcc", *flags, f"-I{ours}", "-o", program, *sources], check=True, timeout=60)
    return program


@pytest.mark.parametrize(
    ("given", "others"),
    [
        ("", ""),
        ("fd=5", ""),
        ("fd=5,rootmode=40000", "rootmode=40000,"),
        ("rootmode=40000,fd=5", "rootmode=40000,"),
        ("ro,,fd=5,fd=6,max_read=7,", "ro,max_read=7,"),
        ("fdx=5,fd,xfd=5", "fdx=5,fd,xfd=5,"),
        # Commas within the quotes of a label, and quotes that are not.
        ('fd=5,context="a,fd=6,b",user_id=0', 'context="a,fd=6,b",user_id=0,'),
        ('rootcontext="a,fd=6', 'rootcontext="a,fd=6,'),
        ('subtype="a,fd=6,b"', 'subtype="a,b",'),
    ],
)
def test_only_the_descriptor_is_removed(without_descriptor: Path, given: str, others: str) -> None:
    done = subprocess.run(
        [without_descriptor, given], capture_output=True, text=True, check=True, timeout=10
    )
    assert done.stdout == f"{others}\n"


# mount.fusetune


def test_helper_of_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options, others = split_options("ro,max_pages=64,tuned_required,max_write=4096", is_ours)
    assert (options, others) == ("max_pages=64,tuned_required", "ro,max_write=4096")
    request = Request("cloud", ["src", "/mnt"], ["-s"], "")
    assert helper_command(request, others) == [
        *("mount.fuse3", "src", "/mnt", "-t", "fuse.cloud", "-s", "-o", "ro,max_write=4096")
    ]
    for name in ("mount.cloud", "mount.fuse.cloud"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert helper_command(request, "") == [name, "src", "/mnt", "-s"]


def test_required_of_the_library() -> None:
    """The library does not know the word; the module's presence is checked before."""
    request = Request("sshfs", ["a:", "/mnt"], [], "tuned_required,ro,max_pages=64")
    command, options = translated(request)
    assert options == "tuned,max_pages=64"
    assert command[-2:] == ["-o", "ro"]
