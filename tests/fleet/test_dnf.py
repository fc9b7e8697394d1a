# SPDX-License-Identifier: GPL-2.0-or-later
"""The role on a host with dnf: a Debian tree that says it is Fedora, and a signed repository.

The package in it is made for this test.
"""

from pathlib import Path

from tests.fleet.hosts import Fleet
from tests.native.mirror import CHECKOUT
from tests.native.requirements import requires
from tests.system import tree
from tests.system.container import Container

pytestmark = requires("ansible-playbook", "systemd-nspawn", "mmdebstrap")

_TOOLS_PACKAGES = ("dnf", "rpm", "createrepo-c", "gpg", "gpg-agent")
_FEDORA = 'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=41\nPRETTY_NAME="Fedora Linux 41"\n'
_SPEC = """\
Name: fleet-test
Version: 1
Release: 1
Summary: Made for a test
License: GPL-2.0-or-later
BuildArch: noarch
%description
Made for a test.
%files
"""
_BUILD = """
set -e
export GNUPGHOME=/root/gnupg
mkdir -m 700 $GNUPGHOME
gpg --batch -q --passphrase '' --quick-gen-key test
rpmbuild --quiet -bb --define '_rpmdir /packages' --define '_build_name_fmt rpm/%{NAME}.rpm' /x.spec
bash /repo.sh /packages /repository
gpgconf --kill all
"""
_UNSIGNED = """
set -e
cd /repository/dnf
rpmsign --delsign *.rpm
rm -r repodata
createrepo_c --quiet .
dnf -q clean all
"""


def test_the_role_installs_from_a_repository(tmp_path: Path) -> None:
    with Container(packages=(*tree.HOST_PACKAGES, *_TOOLS_PACKAGES)) as host:
        host.path("/etc/yum.repos.d").mkdir()
        host.run("rm", "/etc/os-release", "/etc/debian_version")
        host.path("/etc/os-release").write_text(_FEDORA)
        host.path("/etc/redhat-release").write_text("Fedora release 41 (Forty One)\n")
        host.path("/x.spec").write_text(_SPEC)
        host.path("/repo.sh").write_text((CHECKOUT / "packaging" / "repo.sh").read_text())
        host.run("sh", "-c", _BUILD, timeout=120)
        key = tmp_path / "key.asc"
        key.write_text(host.path("/repository/fusetune.asc").read_text())
        fleet = Fleet(tmp_path / "fleet", {"fedora": host})
        role = {
            "role": "fusetune.fusetune.fusetune",
            "fusetune_packages": ["fleet-test"],
            "fusetune_repository": "file:///repository/dnf",
            "fusetune_repository_key": str(key),
        }
        play = [{"hosts": "all", "gather_facts": False, "roles": [role]}]
        done = fleet.play(play)
        assert done.status == 0, done.text
        assert host.run("rpm", "-q", "fleet-test").stdout == "fleet-test-1-1.noarch\n"
        assert fleet.play(play).of("changed") == {"fedora": 0}

        host.run("rpm", "-e", "fleet-test")
        host.run("sh", "-c", _UNSIGNED)
        done = fleet.play(play)
        assert done.status != 0, done.text
        assert host.run("rpm", "-q", "fleet-test", check=False).returncode != 0
