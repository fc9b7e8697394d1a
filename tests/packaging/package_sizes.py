# SPDX-License-Identifier: GPL-2.0-or-later
"""The size of each package, and its installation time relative to the smallest's.

``python3 -m tests.packaging.package_sizes REPOSITORY`` prints the table in docs/packaging.md, for a
repository of trixie's packages made by packaging/repo.sh.
"""

import sys
import tempfile
from pathlib import Path

from tests.kernel.suites import USERLAND
from tests.packaging.trees import inside, user_tree


def main(repository: str) -> None:
    """Print the table; raises SystemExit with the output if an installation failed."""
    binds = (
        (Path(repository).absolute(), "/repo"),
        (Path(__file__).with_name("inside"), "/inside"),
    )
    script = f"export SUITE={USERLAND.name}\nsh /inside/package_sizes.sh"
    with tempfile.TemporaryDirectory() as out:
        done = inside(user_tree(USERLAND), Path(out), script, *binds)
    if done.returncode:
        sys.exit(done.stdout)
    print("| package | to download, kB | installed, kB | time |\n|---|---|---|---|")
    print(done.stdout, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
