# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``module``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.kmod.state import Built, Loaded, Report, State
from fusetune.report.documents.base import Document, FullPath, MountPoint, Text
from fusetune.report.documents.sources import (
    SourceAge,
    SourceVersion,
    source_age,
    source_version,
)
from fusetune.schema import Rule


@dataclass(frozen=True)
class LoadedModule:
    """A module in the kernel."""

    version: Annotated[
        str | None, "Version that it names; null where it names none, as the kernel's own."
    ]
    srcversion: Annotated[
        str | None, "Checksum of its source, as in /sys/module; null where there is none."
    ]
    built_in: Annotated[bool, "Whether it is part of the kernel."]


@dataclass(frozen=True)
class KernelBuild:
    """What there is of a module for a kernel."""

    kernel: Annotated[Text, "Release of the kernel."]
    state: Annotated[
        str,
        "installed; built: but not installed; skipped: it is not tried for this kernel; failed: "
        "the last build ended in an error; none: nothing of these.",
        Rule(enum=["installed", "built", "skipped", "failed", "none"]),
    ]
    version: Annotated[
        str | None,
        "Version that is installed or built; null where it is not known, or there is none.",
    ]
    reason: Annotated[Text | None, "Why it is not installed; null where it is."]
    log: Annotated[Sequence[Annotated[str, "A line."]], "Last lines of a build that failed."]
    log_file: Annotated[FullPath | None, "Where the whole log is; null where no build failed."]
    source: Annotated[
        SourceVersion | None,
        "Where the code of what is installed was taken from; null where that is not known.",
    ]
    source_reason: Annotated[
        Text | None, "Why that is older than the kernel's own; null where it is not."
    ]


@dataclass(frozen=True)
class StockModule:
    """The kernel's own module."""

    name: Annotated[str, "Its name.", Rule(pattern="^[a-z0-9_]+$")]
    replaced: Annotated[bool, "Whether ours is loaded in its place, and not beside it."]
    loaded: Annotated[LoadedModule | None, "The module in the kernel; null where it is not loaded."]
    mounts: Annotated[Sequence[MountPoint], "Where file systems of it are mounted."]


@dataclass(frozen=True)
class TunedModule:
    """A module of ours."""

    name: Annotated[str, "Its name, as DKMS knows it.", Rule(pattern="^[a-z0-9_-]+$")]
    loaded: Annotated[LoadedModule | None, "The module in the kernel; null where it is not loaded."]
    as_installed: Annotated[
        bool | None,
        "Whether what is loaded is what is installed for the running kernel; null where that is "
        "not known.",
    ]
    control_mounted: Annotated[bool, "Whether its control file system is mounted."]
    age: Annotated[
        SourceAge | None,
        "How old its code is beside the running kernel's; null where it is not loaded or does not "
        "name its source.",
    ]
    mounts: Annotated[Sequence[MountPoint], "Where file systems of it are mounted."]
    sources: Annotated[
        Sequence[Annotated[Text, "A version."]], "Versions whose source is there, the newest last."
    ]
    kernels: Annotated[Sequence[KernelBuild], "The kernels that are installed."]
    stock: StockModule

    def parts(self, running: str) -> Iterator[str]:
        """Yield its state; ``running``: the release of the running kernel."""
        state = "not loaded"
        if self.loaded:
            state = f"{self.loaded.version}, loaded"
            if self.as_installed is False:
                state += "; a different one is installed: run 'fusetune module unload', then 'load'"
        yield f"{self.name}: {state}"
        stock = self.stock.loaded
        how = ("built in" if stock.built_in else "loaded") if stock else "not loaded"
        yield f"  {'in place of' if self.stock.replaced else 'beside'} {self.stock.name} ({how})"
        if self.age:
            yield f"  {self.age.summary}"
        for one in (self, self.stock):
            if one.mounts:
                yield f"  mounted by {one.name}: {', '.join(one.mounts)}"
        if not self.sources:
            yield "  its source is not in /usr/src"
        for build in self.kernels:
            yield from _build(build, running)


def _build(one: KernelBuild, running: str) -> Iterator[str]:
    mark = "*" if one.kernel == running else " "
    what = f"{one.state} {one.version or ''}".rstrip()
    if one.source:
        what += f", made from {one.source.package_version or one.source.version}"
    if one.source_reason:
        what += f", {one.source_reason}"
    yield f"{mark} {one.kernel}: {what}" + (f": {one.reason}" if one.reason else "")
    if one.log_file:
        yield f"    see {one.log_file}"


@dataclass(frozen=True)
class ModuleReport(Document):
    """State of our kernel modules, for 'module status', and after 'build', 'load' and 'unload'."""

    SCHEMA = "module"
    COMMANDS = ("module",)

    dry_run: Annotated[bool, "Whether nothing was run."]
    commands: Annotated[
        Sequence[Annotated[Sequence[Annotated[str, "A word."]], "One command.", Rule(minItems=1)]],
        "What was run, or with --dry-run would be, in order.",
    ]
    kernel: Annotated[Text, "Release of the running kernel."]
    secure_boot: Annotated[
        bool | None, "Whether the firmware's Secure Boot is on; null where it does not say."
    ]
    lockdown: Annotated[
        str | None,
        "The kernel's lockdown mode; null where it does not say.",
        Rule(enum=["none", "integrity", "confidentiality"]),
    ]
    signatures_enforced: Annotated[
        bool, "Whether the kernel takes only modules whose signature it knows."
    ]
    enrol: Annotated[
        Sequence[Annotated[Text, "A command."]],
        "What makes it accept the signature of ours, before a restart; empty where nothing is "
        "needed.",
    ]
    modules: Annotated[Sequence[TunedModule], "The modules of ours.", Rule(minItems=1)]

    def parts(self) -> Iterator[str]:
        """Yield what was run, then the state of each module."""
        yield from (" ".join(command) for command in self.commands)
        if self.dry_run:
            yield "dry run: nothing was run" if self.commands else "nothing to do"
            return
        boot = ", Secure Boot" if self.secure_boot else ""
        signed = ", loads only signed modules" if self.signatures_enforced else ""
        yield f"kernel {self.kernel}{boot}{signed}"
        for module in self.modules:
            yield from module.parts(self.kernel)
        for line in self.enrol:
            yield f"to have its signature accepted: {line}"
        if self.enrol:
            yield "then restart, and confirm the key at boot"


def module_report(report: Report, dry_run: bool = False) -> ModuleReport:
    """Return the document of 'module status', 'build', 'load' and 'unload'."""
    return ModuleReport(
        dry_run,
        report.commands,
        report.kernel,
        report.signing.secure_boot,
        report.signing.lockdown,
        report.signing.enforced,
        report.signing.enrol,
        [_module(state) for state in report.states],
    )


def _module(state: State) -> TunedModule:
    return TunedModule(
        state.kind.name,
        _loaded(state.loaded),
        state.as_installed,
        state.control_mounted,
        source_age(state.age) if state.age else None,
        state.points,
        state.sources,
        [_kernel(one) for one in state.kernels],
        StockModule(
            state.kind.stock, state.kind.replaces, _loaded(state.stock), state.stock_points
        ),
    )


def _loaded(module: Loaded | None) -> LoadedModule | None:
    return LoadedModule(module.version, module.srcversion, module.built_in) if module else None


def _kernel(one: Built) -> KernelBuild:
    return KernelBuild(
        one.kernel,
        one.state,
        one.version,
        one.reason,
        one.log,
        one.log_file,
        source_version(one.source) if one.source else None,
        one.source_reason,
    )
