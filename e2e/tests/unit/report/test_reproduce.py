"""The command that runs a cell again means that cell, whatever the run was asked for, and from any folder."""

from __future__ import annotations

import shlex

import pytest

from e2e.cli import app
from e2e.connectors.table import load
from e2e.faults.cells import planted, twins
from e2e.faults.info import Shape
from e2e.grid.cells import expand
from e2e.report.reproduce import reproduce
from e2e.settings.resolve import resolve_selection

SHAPE = Shape(packed=True, kv_heads=3, layers=30, block_size=16, chunk_tokens=256, served_chunks=4, prompts=2)


def parsed(argv):
    """(command, settings, cells), as the command line takes them; nothing is run."""
    command, bound, _ = app.parse_args(list(argv), print_error=False, exit_on_error=False)
    settings = resolve_selection(bound.kwargs["flags"], argv=argv)
    grid = expand(
        settings.selection, load(settings.connector), defaults=settings.axis_defaults, fixed=settings.axis_fixed
    )
    return command.__name__, settings, grid.cells


def again(cell, settings, **run):
    return shlex.split(reproduce(cell.settings, {"settings": settings.as_json(), "program": ["maru-e2e"], **run}))


@pytest.mark.parametrize(
    "words",
    [
        "run --device cpu", "run --device cpu --grid full --max-tokens 3 --strict",
        "run --device cpu --connector example --prompts=2", "run --device cpu --cell layout=HND,chunk_tokens=512",
        "run --device cpu --attention stock --lengths 513,1033 --out x --no-digests",
        "run --device cpu --connector offloading --model m",
    ],
)  # fmt: skip
def test_a_cell_of_a_run(words):
    _, settings, cells = parsed(shlex.split(words))
    for cell in cells[:: max(len(cells) // 12, 1)]:
        program, *argv = again(cell, settings)
        command, found, (only,) = parsed(argv)
        assert (program, command) == ("maru-e2e", "run")
        assert dict(only.settings) == dict(cell.settings)
        ignored = {"grid", "cells", "out", "argv", "resume"}
        assert found.model_dump(exclude=ignored) == settings.model_dump(exclude=ignored)


def test_cells_of_a_self_test():
    argv = shlex.split("faults --device cpu --cell layout=HND --rounds 2 --fault bit_flip --fault zero_layer")
    _, settings, cells = parsed(argv)
    settings = settings.model_copy(update={"self_test": True})
    made, _ = planted(cells, settings.faults, SHAPE, around=False)
    for cell in (made[0], made[-1]):
        command, found, (only,) = parsed(again(cell, settings)[1:])
        assert command == "faults"
        assert found.faults == (cell.settings["fault"],)
        assert {**only.settings, "fault": cell.settings["fault"]} == dict(cell.settings)
        assert (found.prompts, found.max_tokens) == (settings.prompts, settings.max_tokens)
    for cell in twins(cells, settings.rounds)[:3]:
        command, found, (only,) = parsed(again(cell, settings)[1:])
        assert command == "run"
        assert {**only.settings, "round": cell.settings["round"]} == dict(cell.settings)
        assert (found.prompts, found.max_tokens) == (settings.prompts, settings.max_tokens) == (2, 4)


def test_a_cell_of_a_comparison():
    argv = shlex.split("gain --axis placement index kernel --repeats 3 --concurrency=1,8 --device cpu --lengths 513")
    settings = resolve_selection(app.parse_args(["run", "--device", "cpu"])[1].kwargs["flags"], argv=argv)
    _, _, cells = parsed(["run", "--device", "cpu"])
    command, found, (only,) = parsed(again(cells[0], settings)[1:])
    assert (command, found.lengths, dict(only.settings)) == ("run", (513,), dict(cells[0].settings))


def test_the_command_works_from_any_folder():
    _, settings, cells = parsed(["run", "--device", "cpu"])
    words = again(cells[0], settings, program=["/v/bin/python", "-m", "maru_e2e"], folder="/srv/a b")
    assert words[:7] == ["cd", "/srv/a b", "&&", "/v/bin/python", "-m", "maru_e2e", "run"]
