# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of a file, as a diff without secrets."""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetune.masking import mask_config_line, mask_fstab_line, mask_line
from fusetune.recipes.config_text import Setting


@dataclass(frozen=True)
class Edit:
    """A file's text before and after; None if there is no file.

    ``form``: the format of a server's configuration file, empty for other files. ``settings``: the
    changes in that file, in order; ``check``: the command that reads the file, as in a recipe.
    """

    file: Path
    before: str | None
    after: str | None
    form: str = ""
    settings: Sequence[Setting] = ()
    check: Sequence[str] = ()

    @property
    def is_fstab(self) -> bool:
        """Whether the file is fstab."""
        return self.file.name == "fstab" and not self.form

    @property
    def concerns_systemd(self) -> bool:
        """Whether systemd reads the file: fstab, or a drop-in."""
        return not self.form

    def reversed(self) -> "Edit":
        """Return the edit that reverts this one."""
        return Edit(self.file, self.after, self.before, self.form)

    def diff(self, secrets: Collection[str]) -> str:
        """Return the change as a unified diff for ``patch -p1 -d /``, without secrets."""
        name = str(self.file).lstrip("/")
        lines = difflib.unified_diff(
            self._masked(self.before or "", secrets),
            self._masked(self.after or "", secrets),
            "/dev/null" if self.before is None else f"a/{name}",
            "/dev/null" if self.after is None else f"b/{name}",
        )
        return "".join(lines)

    def _masked(self, text: str, secrets: Collection[str]) -> list[str]:
        mask = mask_fstab_line if self.is_fstab else mask_config_line if self.form else mask_line
        *lines, last = (mask(line, secrets) for line in text.split("\n"))
        ends = [f"{last}\n\\ No newline at end of file\n"] if last else []
        return [*(f"{line}\n" for line in lines), *ends]


def text_of(path: Path) -> str | None:
    """Return a file's text, decoded like `os.fsdecode`; None if it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
