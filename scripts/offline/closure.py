"""Which wheels a bundle needs: a walk over Requires-Dist, for a Python and a platform that need not be this one's.

A resolver asks for every dependency; a bundle for a host that already has torch must not carry gigabytes of it. So the
walk stops at names the host has, and at names that are left out on purpose, and says which.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections import deque
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

#: glibc versions of the platform tags that pip is told; it matches each tag exactly.
GLIBC = (5, 12, 17, 24, 26, 27, 28, 31, 34, 35, 39)
#: One package's download, in seconds.
DOWNLOAD_LIMIT_S = 1800


class BundleError(Exception):
    """What went wrong and what to do, in one sentence."""


@dataclass
class Closure:
    """``wheels``: canonical name -> file. ``had``, ``skipped``: requirements that were met by the host or left out."""

    wheels: dict[str, Path] = field(default_factory=dict)
    had: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


def close(wanted: list[str], *, alone: list[str], have: set[str], skip: set[str], python: str, folder: Path) -> Closure:
    """Downloads ``wanted`` (requirements) and all they need into ``folder``, and ``alone`` without what they need.

    ``have``: names the host has; ``skip``: names left out; both canonical, and beaten by ``wanted``.
    ``python``: "3.12". Raises BundleError."""
    done = Closure()
    specs: dict[str, SpecifierSet] = {}
    extras: dict[str, set[str]] = {}
    queue = deque(Requirement(text) for text in (*wanted, *alone))
    asked = {canonicalize_name(requirement.name) for requirement in queue}
    leaves = {canonicalize_name(Requirement(text).name) for text in alone}
    while queue:
        requirement = queue.popleft()
        name = canonicalize_name(requirement.name)
        if name in have and name not in asked:
            done.had.add(name)
            continue
        if name in skip and name not in asked:
            done.skipped.add(name)
            continue
        specs[name] = specs.get(name, SpecifierSet()) & requirement.specifier
        known = extras.setdefault(name, set())
        new_extras = set(requirement.extras) - known
        known |= new_extras
        held = done.wheels.get(name)
        fits = held is not None and specs[name].contains(version_of(held), prereleases=True)
        if fits and not new_extras:
            continue
        wheel = held if fits else fetch(f"{requirement.name}{specs[name]}", python=python, folder=folder)
        done.wheels[name] = wheel
        if name not in leaves:
            queue.extend(needs(wheel, extras=known, python=python))
    return done


def needs(wheel: Path, *, extras: set[str], python: str) -> list[Requirement]:
    """Requirements of a wheel on Linux x86-64 under ``python``."""
    environment = default_environment() | {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
    }  # fmt: skip
    found = []
    for text in metadata(wheel).get_all("Requires-Dist") or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate(environment | {"extra": extra}) for extra in ("", *extras)):
            found.append(requirement)
    return found


def metadata(wheel: Path):
    """The wheel's METADATA headers."""
    with zipfile.ZipFile(wheel) as archive:
        found = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
        return HeaderParser().parsestr(archive.read(next(found)).decode())


def version_of(wheel: Path):
    return parse_wheel_filename(wheel.name)[1]


def fetch(requirement: str, *, python: str, folder: Path) -> Path:
    """One wheel by pip; a folder that already holds a fitting file is not asked for again."""
    wanted = Requirement(requirement)
    name = canonicalize_name(wanted.name)
    held = [path for path in folder.glob("*.whl") if parse_wheel_filename(path.name)[0] == name]
    fitting = [path for path in held if wanted.specifier.contains(version_of(path), prereleases=True)]
    if fitting:
        return max(fitting, key=version_of)
    before = set(folder.glob("*.whl"))
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in GLIBC]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(folder)]
    command += [word for platform in platforms for word in ("--platform", platform)]
    try:
        ran = subprocess.run(
            [*command, requirement], capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BundleError(f"{requirement} was not downloaded in {DOWNLOAD_LIMIT_S} s; is the index slow?") from error
    new = set(folder.glob("*.whl")) - before
    if ran.returncode or len(new) != 1:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or ["pip gave no wheel"]
        raise BundleError(f"{requirement} has no wheel for Python {python}: {errors[-1]}; leave it out with --skip.")
    return new.pop()
