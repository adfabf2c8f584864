"""The wheel unpacked, and what it declares that it needs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from declared import linked


@pytest.fixture(scope="session")
def site(wheel, tmp_path_factory) -> Path:
    """What pip would put into site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory) -> Path:
    """A folder that sees the distributions that the rig declares, and no other."""
    return linked(tmp_path_factory.mktemp("dependencies"))


@pytest.fixture(scope="session")
def with_pytest(tmp_path_factory) -> Path:
    """The same with the extra ``conformance``."""
    return linked(tmp_path_factory.mktemp("with-pytest"), "conformance")
