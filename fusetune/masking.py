# SPDX-License-Identifier: GPL-2.0-or-later
"""Secrets in command lines, options and files are never shown: `MASK` replaces each.

Anything that looks like a secret is masked. Paths of files with secrets are shown.
"""

import re
from collections.abc import Collection, Iterator, Sequence

MASK = "***"

#: Parts of a name that make its value a secret, anywhere in the name.
_ANYWHERE = (
    *("pass", "secret", "token", "credential", "auth", "bearer", "cookie", "signature"),
    *("apikey", "accesskey", "privatekey", "accountkey", "sharedkey", "sas", "jwt"),
)
#: Whole words of a name that make its value a secret.
_WORDS = frozenset(
    {"key", "keys", "pw", "pwd", "psk", "pin", "cred", "creds", "sig", "session", "otp", "header"}
)
#: Harmless words that contain one of `_ANYWHERE`.
_INNOCENT = re.compile(r"passthrough|passive|bypass|compass|author(?!i[sz])")
#: Words of a name whose value is the path of a file; such a path is not secret.
_FILES = frozenset({"file", "path", "dir", "directory", "ring", "keyring", "passfile", "keyfile"})
#: Options whose value is a user, or USER:PASSWORD.
_USERS = frozenset({"user", "u", "proxyuser", "username"})
#: Schemes whose user name alone is not secret.
_PLAIN_USERS = frozenset({"ssh", "sftp"})

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.\-]*"
_SETTING = re.compile(rf"(?<![A-Za-z0-9_.\-])(-*{_NAME})[\"']?\s*[=:]\s*")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)([^\s]*)@")
_PAIR = re.compile(r"(?<![\w/])([^\s/@:,=]+):([^\s/@][^\s@]*)@")
_SPEECH = re.compile(r"(?i)\b(bearer|basic|digest)\s+\S+")
#: Patterns of well-known tokens.
_TOKENS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,}|xox[abprs]-[\w-]{10,}|glpat-[\w-]{15,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}[\w.-]*|AIza[\w-]{30,})|-----BEGIN [^-]*-----.*",
    re.DOTALL,
)
_SSHPASS = re.compile(r"\bsshpass\b.*", re.DOTALL)


def is_secret(name: str, value: str = "", more: Collection[str] = ()) -> bool:
    """Whether the value of the option or variable ``name`` is a secret.

    ``more``: further names with secret values.
    """
    bare = name.lstrip("-")
    if bare in {one.lstrip("-") for one in more}:
        return True
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", bare)]
    if value.startswith("/") and _FILES.intersection(words):
        return False
    joined = _INNOCENT.sub("", "".join(words))
    return (
        any(one in joined for one in _ANYWHERE)
        or bool(_WORDS.intersection(words))
        or joined.endswith(("key", "pwd"))
    )


def mask_text(text: str, more: Collection[str] = ()) -> str:
    """Return ``text`` without secrets; the rest of the text after a secret's name is masked."""
    for match in _SETTING.finditer(text):
        name, value = match[1], text[match.end() :]
        if is_secret(name, value.strip("\"'"), more):
            return _forms(text[: match.end()]) + MASK
        if name.lstrip("-").replace("_", "").lower() in _USERS and ":" in value:
            return _forms(text[: match.end()]) + value.partition(":")[0] + ":" + MASK
    return _forms(text)


def _forms(text: str) -> str:
    """Return ``text`` without secrets that are recognized by their form."""
    text = _SSHPASS.sub(f"sshpass {MASK}", text)
    text = _URL.sub(_masked_url, text)
    text = _PAIR.sub(rf"\1:{MASK}@", text)
    text = _SPEECH.sub(rf"\1 {MASK}", text)
    return _TOKENS.sub(MASK, text)


def _masked_url(match: re.Match[str]) -> str:
    scheme, user = match[1], match[2]
    if scheme[:-3].lower() in _PLAIN_USERS and not re.search("[:/@]", user):
        return match[0]
    return f"{scheme}{MASK}@"


def mask_items(text: str, more: Collection[str] = ()) -> str:
    """Return a list of mount options without secrets; a comma ends one unless escaped."""
    found = []
    for item in re.split(r"(?<!\\),", text):
        found.append(mask_text(item, more))
        if found[-1] != item and re.search("[\"']", item):
            break  # the secret may continue after the comma
    return ",".join(found)


def mask_line(text: str, more: Collection[str] = ()) -> str:
    """Return a line of a file without secrets; the rest is masked where a secret may continue."""
    pieces = re.split(r"(\s+)", text)
    for number, masked in enumerate(mask_words(pieces[::2], more)):
        word = pieces[2 * number]
        if masked != word and re.search(r"[\"'\\]", text):
            return "".join(pieces[: 2 * number]) + masked
        pieces[2 * number] = masked
    return "".join(pieces)


def mask_config_line(text: str, more: Collection[str] = ()) -> str:
    """Return a line of a server's configuration file without secrets.

    After a word that names a secret, the rest of the line is masked.
    """
    for match in re.finditer(r"[^\s=:#;\"']+", text):
        rest = text[match.end() :].lstrip(" \t=:\"'")
        if rest.strip() and is_secret(match[0], rest, more):
            return f"{mask_line(text[: match.end()], more)} {MASK}"
    return mask_line(text, more)


def mask_fstab_line(text: str, more: Collection[str] = ()) -> str:
    """Return a line of fstab without secrets."""
    pieces = re.split(r"(\s+)", text)
    if text.lstrip().startswith("#") or not 7 <= len(pieces) <= 13:
        return mask_line(text, more)
    pieces[0], pieces[6] = mask_text(pieces[0], more), mask_items(pieces[6], more)
    return "".join(pieces)


def mask_words(words: Sequence[str], more: Collection[str] = ()) -> list[str]:
    """Return the words of a command line without secrets.

    The word after an option with a secret's name is masked, whether or not it takes a value.
    """
    return list(_masked(words, more))


def _masked(words: Sequence[str], more: Collection[str]) -> Iterator[str]:
    last = previous = ""
    for word in words:
        before, previous = previous, word
        if last == "sshpass" or (last and is_secret(last, word, more)):
            yield MASK
            last = "sshpass" if last == "sshpass" and word == "-p" else ""
            continue
        if last.lstrip("-").replace("_", "").lower() in _USERS and ":" in word:
            yield f"{word.partition(':')[0]}:{MASK}"
        elif last == "-o":
            yield mask_items(word, more)
        elif word.startswith("-o"):
            yield f"-o{mask_items(word[2:], more)}"
        elif (short := word[:2]) in more and len(word) > 2 and short != "--":
            yield short + MASK
        else:
            yield mask_text(word, more)
        last = word.rstrip("=:") if re.match("-[^=]*$|.*[=:]$", word) else ""
        if word in ("=", ":"):
            last = before
        elif word.rpartition("/")[2] == "sshpass":
            last = "sshpass"
