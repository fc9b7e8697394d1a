# SPDX-License-Identifier: GPL-2.0-or-later
"""Signatures of exported files, made and checked by OpenSSH (ssh-keygen(1), ``-Y``)."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fusetune.errors import FusetuneError
from fusetune.text import printable

_PROGRAM = "ssh-keygen"
#: Namespace of the signature, so that signatures for other purposes are not accepted.
_NAMESPACE = "fusetune"
_SECONDS = 60.0  # the key may be on a token that must be touched


def sign(content: bytes, key: Path) -> str:
    """Return the signature of ``content`` by the SSH key in a file or in ssh-agent.

    Raises FusetuneError.
    """
    return _ask(["sign", "-f", str(key), "-n", _NAMESPACE], content)


def signer_of(content: bytes, signature: str, signers: Path) -> str:
    """Return the signer of ``content`` from the file ``signers`` (ssh-keygen(1), ALLOWED SIGNERS).

    Raises FusetuneError if none of them did.
    """
    with tempfile.TemporaryDirectory(prefix="fusetune-") as directory:
        file = Path(directory, "signature")
        file.write_text(signature, encoding="utf-8")
        known = ["-s", str(file), "-f", str(signers)]
        try:
            found = _ask(["find-principals", *known], b"").splitlines()
        except FusetuneError as error:
            raise FusetuneError(
                f"the signature is by none of the signers in {signers}: {error}"
            ) from error
        if not found:
            raise FusetuneError(f"the signature is by none of the signers in {signers}")
        _ask(["verify", "-I", found[0], "-n", _NAMESPACE, *known], content)
        return printable(found[0])


def _ask(words: Sequence[str], content: bytes) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [_PROGRAM, "-Y", *words],
            input=content,
            capture_output=True,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise FusetuneError(
            f"{_PROGRAM} is not installed: it signs and checks exports; install openssh-client, "
            "or openssh on Fedora"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise FusetuneError(f"{_PROGRAM} did not end within {_SECONDS:.0f} s") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise FusetuneError(f"{_PROGRAM}: {printable(said[-1]) if said else 'it failed'}")
    return done.stdout.decode(errors="replace")
