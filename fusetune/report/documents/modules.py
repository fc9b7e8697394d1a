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

    version: Annotated[str | None, "Its version; null if it has none, like the kernel's own."]
    srcversion: Annotated[
        str | None, "Checksum of its source, as in /sys/module; null if there is none."
    ]
    built_in: Annotated[bool, "Whether it is part of the kernel."]


@dataclass(frozen=True)
class KernelBuild:
    """The state of a module for one kernel."""

    kernel: Annotated[Text, "Release of the kernel."]
    state: Annotated[
        str,
        "installed; built: but not installed; skipped: not attempted for this kernel; failed: "
        "the last build failed; none: not installed, built or tried.",
        Rule(enum=["installed", "built", "skipped", "failed", "none"]),
    ]
    version: Annotated[
        str | None,
        "Version that is installed or built; null if there is none or it is unknown.",
    ]
    reason: Annotated[Text | None, "Why it is not installed; null if it is."]
    log: Annotated[Sequence[Annotated[str, "A line."]], "Last lines of the log of a failed build."]
    log_file: Annotated[FullPath | None, "The complete log; null if no build failed."]
    source: Annotated[
        SourceVersion | None,
        "The source of the installed module's code; null if unknown.",
    ]
    source_reason: Annotated[
        Text | None, "Why that source is older than the kernel's own; null if it is not."
    ]


@dataclass(frozen=True)
class StockModule:
    """The kernel's own module."""

    name: Annotated[str, "Its name.", Rule(pattern="^[a-z0-9_]+$")]
    replaced: Annotated[bool, "Whether ours replaces it instead of being loaded beside it."]
    loaded: Annotated[LoadedModule | None, "The module in the kernel; null if it is not loaded."]
    mounts: Annotated[Sequence[MountPoint], "Mount points of its file systems."]


@dataclass(frozen=True)
class TunedModule:
    """One of our modules."""

    name: Annotated[str, "Its name, as DKMS knows it.", Rule(pattern="^[a-z0-9_-]+$")]
    loaded: Annotated[LoadedModule | None, "The module in the kernel; null if it is not loaded."]
    as_installed: Annotated[
        bool | None,
        "Whether the loaded module is the one installed for the running kernel; null if unknown.",
    ]
    control_mounted: Annotated[bool, "Whether its control file system is mounted."]
    age: Annotated[
        SourceAge | None,
        "How old its code is compared with the running kernel's; null if it is not loaded or does "
        "not name its source.",
    ]
    mounts: Annotated[Sequence[MountPoint], "Mount points of its file systems."]
    sources: Annotated[
        Sequence[Annotated[Text, "A version."]], "Versions whose source is installed, newest last."
    ]
    kernels: Annotated[Sequence[KernelBuild], "The installed kernels."]
    stock: StockModule

    def parts(self, running: str) -> Iterator[str]:
        """Yield its state; ``running``: the release of the running kernel."""
        state = "not loaded"
        if self.loaded:
            state = f"{self.loaded.version}, loaded"
            if self.as_installed is False:
                state += "; another version is installed: run 'fusetune module unload', then 'load'"
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
            yield "  its source is missing in /usr/src"
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
    """State of our kernel modules, after 'module status', 'build', 'load' and 'unload'."""

    SCHEMA = "module"
    COMMANDS = ("module",)

    dry_run: Annotated[bool, "Whether nothing was run."]
    commands: Annotated[
        Sequence[Annotated[Sequence[Annotated[str, "A word."]], "One command.", Rule(minItems=1)]],
        "The commands that were run, or would be with --dry-run, in order.",
    ]
    kernel: Annotated[Text, "Release of the running kernel."]
    secure_boot: Annotated[
        bool | None, "Whether Secure Boot is enabled in the firmware; null if unknown."
    ]
    lockdown: Annotated[
        str | None,
        "The kernel's lockdown mode; null if unknown.",
        Rule(enum=["none", "integrity", "confidentiality"]),
    ]
    signatures_enforced: Annotated[
        bool, "Whether the kernel only loads modules with a trusted signature."
    ]
    enrol: Annotated[
        Sequence[Annotated[Text, "A command."]],
        "Commands that enroll our signing key, to be run before a reboot; empty if none is needed.",
    ]
    modules: Annotated[Sequence[TunedModule], "Our modules.", Rule(minItems=1)]

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
            yield f"to enroll the signing key: {line}"
        if self.enrol:
            yield "then reboot, and confirm the key at boot"


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
