# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for the tests of our modules; slow ones are made once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kernel import machine, runs
from tests.kernel.suites import MODULES, SUITES, Suite, import_module

Machines = dict[str, Future[machine.Results]]
MACHINES = pytest.StashKey[Machines]()


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source of each of our modules as import_kernel.py makes it, for all series."""
    directory = tmp_path_factory.mktemp("import")
    sources = [suite.source() for suite in SUITES]
    for name in MODULES:
        done = import_module(name, directory / name, *sources)
        assert done.returncode == 0, done.stderr
    return {name: directory / name for name in MODULES}


@pytest.fixture(scope="session")
def built(
    request: pytest.FixtureRequest,
    modules: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Suite], tuple[Path, str]]]:
    """Return the modules that a suite built, and the output of the build.

    All builds are queued at once and run two at a time, then the machines if a test needs them.
    Other tests run meanwhile. A machine often waits, and seldom needs more than one processor.
    """

    def make(suite: Suite) -> tuple[Path, str]:
        out = tmp_path_factory.mktemp(f"built-{suite.name}")
        return out, machine.build(suite, tuple(modules.values()), out)

    with ThreadPoolExecutor(2) as pool:
        made = {suite: pool.submit(make, suite) for suite in SUITES}
        tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
        asked = [
            str(test.callspec.params["run"]) for test in tests if "results" in test.fixturenames
        ]
        request.config.stash[MACHINES] = _machines(pool, made, dict.fromkeys(asked))
        yield lambda suite: made[suite].result()
        pool.shutdown(cancel_futures=True)  # those that no test has waited for


def _machines(
    pool: Executor, made: Mapping[Suite, Future[tuple[Path, str]]], names: Iterable[str]
) -> Machines:
    """Start the machines with these names."""

    def run(one: runs.Run) -> machine.Results:
        image, built = machine.image_of(one.suite), made[one.suite].result()[0]
        return machine.run(image, built, *one.checks, parameters=one.parameters)

    return {name: pool.submit(run, runs.RUNS[name]) for name in names}


@pytest.fixture(scope="session")
def results(
    built: Callable[[Suite], tuple[Path, str]], request: pytest.FixtureRequest
) -> Callable[[str], machine.Results]:
    """Return the results of one of `runs.RUNS`."""
    return lambda name: request.config.stash[MACHINES][name].result()
