# SPDX-License-Identifier: GPL-2.0-or-later
"""click's shell functions, with fixes for versions up to 8.1.8."""

from click.shell_completion import FishComplete, ZshComplete, add_completion_class

_FUNCTION, _END, _ = ZshComplete.source_template.rpartition("\n}\n")


class _Fish(FishComplete):
    """Also completes words with a comma, such as the arguments of -o."""

    source_template = FishComplete.source_template.replace('split ","', 'split --max 1 ","')


class _Zsh(ZshComplete):
    """Also works if zsh autoloads the file at the first tab and runs all of it at each one."""

    source_template = (
        f"{_FUNCTION}{_END}\n"
        "if [[ $funcstack[1] == _%(prog_name)s ]]; then\n"
        '    %(complete_func)s "$@"\n'
        "else\n"
        "    compdef %(complete_func)s %(prog_name)s\n"
        "fi\n"
    )


def register() -> None:
    """Register these with click."""
    for shell in (_Fish, _Zsh):
        add_completion_class(shell)
