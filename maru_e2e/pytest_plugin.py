"""The plugin of pytest for authors of adapters: ``pytest --pyargs e2e.conformance --maru-connector NAME``.

It does nothing in other runs, and imports the rig only when it is asked for.
"""

from __future__ import annotations

import pytest

from maru_e2e import hidden

_OPTION = "--maru-connector"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("maru-e2e", "the contract of KV-cache connectors (--pyargs e2e.conformance)")
    group.addoption(
        _OPTION, action="append", default=[], metavar="NAME",
        help="An adapter to check: its entry point's name, package.module:Class or FILE.toml; several add up.",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Refuses, in one sentence, what can't be loaded."""
    names = config.getoption(_OPTION)
    if not names:
        return
    if why := hidden():
        raise pytest.UsageError(why)
    from e2e.base.errors import SettingsError
    from e2e.connectors.table import load

    for name in names:
        try:
            load(name)
        except SettingsError as error:
            raise pytest.UsageError(f"{_OPTION}: {error}") from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "maru_connector" in metafunc.fixturenames:
        metafunc.parametrize("maru_connector", metafunc.config.getoption(_OPTION) or [None], indirect=True)


@pytest.fixture
def maru_connector(request: pytest.FixtureRequest) -> str:
    """The name of an adapter to check."""
    if getattr(request, "param", None) is None:
        pytest.fail(f"no adapter is named; give {_OPTION} NAME.", pytrace=False)
    return request.param
