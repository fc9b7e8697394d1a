# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of a second instance, according to the shipped recipes."""

import pytest

from fusetune.recipes.load import SHIPPED, read_recipe
from fusetune.recipes.second import not_safe_with, second_words
from fusetune.recipes.served import without_background

RECIPES = [read_recipe(path, check_writers=False) for path in sorted(SHIPPED.glob("*.toml"))]


def test_each_that_may_only_read_says_how() -> None:
    read_only = [one.server for one in RECIPES if one.server.second == "read-only"]
    assert len(read_only) >= 12
    assert all(server.second_with for server in read_only)


@pytest.mark.parametrize(
    ("recipe", "words", "second"),
    [
        ("gocryptfs", "gocryptfs -fg /c /m", "gocryptfs -ro -fg /c /m"),
        ("encfs", "encfs -f /c /m -o big_writes", "encfs -f /c /m -o big_writes,ro"),
        ("s3fs", "s3fs b /m -o nonempty", "s3fs b /m -o nonempty,ro"),
        ("s3fs", "s3fs b /m -o use_cache=/c", "s3fs b /m -o use_cache={private},ro"),
        ("gcsfuse", "gcsfuse --cache-dir /c b /m", "gcsfuse -o ro --cache-dir={private} b /m"),
        ("geesefs", "geesefs b /m", "geesefs -o ro b /m"),
        (
            "seaweedfs",
            "weed mount -dir=/m -cacheDir=/c --localSocket /s",
            "weed mount -readOnly -dir=/m -cacheDir={private} -localSocket={private}/socket",
        ),
        (
            "rclone",
            "rclone mount --rc r: /m",
            "rclone mount --cache-dir={private} --rc=false r: /m",
        ),
        ("mirrorfs", "mirrorfs /s /m", "mirrorfs -o counters={private}/counters /s /m"),
        (
            "alluxio",
            "java -cp x alluxio.fuse.AlluxioFuse -o big_writes -m /m -r /",
            "java -cp x alluxio.fuse.AlluxioFuse -o big_writes,ro -m /m -r /",
        ),
        ("bindfs", "bindfs /s /m", "bindfs /s /m"),
    ],
)
def test_the_words_of_a_second_instance(recipe: str, words: str, second: str) -> None:
    server = read_recipe(SHIPPED / f"{recipe}.toml").server
    assert " ".join(second_words(server, words.split())) == second


@pytest.mark.parametrize(
    ("words", "before"),
    [
        ("gocryptfs -fg -notifypid=7 -q /c /m", "gocryptfs -q /c /m"),
        ("gocryptfs -fg -q /c /m", "gocryptfs -fg -q /c /m"),  # the administrator wants it
        ("gocryptfs -q -fg -notifypid=7 /c /m", "gocryptfs -q -fg -notifypid=7 /c /m"),
        ("gocryptfs -fg", "gocryptfs -fg"),
    ],
)
def test_what_gocryptfs_adds_in_the_background_is_left_out(words: str, before: str) -> None:
    added = read_recipe(SHIPPED / "gocryptfs.toml").server.background
    assert " ".join(without_background(tuple(words.split()), added)) == before


@pytest.mark.parametrize(
    ("recipe", "words", "unsafe"),
    [
        ("juicefs", "juicefs mount --writeback redis:// /m", ["--writeback"]),
        ("juicefs", "juicefs mount --writeback=false redis:// /m", []),
        ("ratarmount", "ratarmount -w /o a.tar /m", ["-w"]),
        ("gcsfuse", "gcsfuse --config-file=/c b /m", ["--config-file"]),
        ("gcsfuse", "gcsfuse b /m", []),
    ],
)
def test_what_a_second_instance_is_not_safe_with(
    recipe: str, words: str, unsafe: list[str]
) -> None:
    assert not_safe_with(read_recipe(SHIPPED / f"{recipe}.toml").server, words.split()) == unsafe
