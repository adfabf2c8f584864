"""``maru-e2e gain``: is a change worth it? Two settings, or two connectors, measured in turn and judged against noise.

With an axis, both settings run on one engine, chosen per request; with two connectors, engines alternate. Side ``a2``
is ``a`` once more: how far it is from ``a`` is the noise. Every setting is first proven by the exact oracle.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.attempt import Name, begin, clean_up, under_way
from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError, UsageError
from e2e.base.program import Text
from e2e.chosen import part_of, usable
from e2e.grid.axes import axis as axis_of
from e2e.grid.cells import Grid, by_engine, expand
from e2e.judge import sequential
from e2e.judge.gain import Asked, judge_gain, settled
from e2e.material import Material, material
from e2e.part import KeyPart
from e2e.play.player import After, Player
from e2e.play.timed import Branch
from e2e.recording.journal import read
from e2e.replay.prompts import build_prompts
from e2e.report import gain as report_gain
from e2e.report.files import judged, write_reports
from e2e.run import shown
from e2e.settings.settings import RECORDING, Settings
from e2e.settings.world import engine_python

#: Within one pair each order of the sides comes equally often.
ORDERS = (("a", "b", "a2"), ("b", "a2", "a"), ("a2", "a", "b"), ("a2", "b", "a"), ("b", "a", "a2"), ("a", "a2", "b"))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """``axis`` with two ``values``, or two ``specs`` (names or TOML files). ``repeats``: pairs per length, concurrency,
    and look or round. ``looks``: how often as many are drawn at most, where an axis is compared; ``rounds``: engine
    starts per side where engines alternate, whose pairs hang together too much to be looked at early. ``effect``: the
    smallest saving that matters, a share of TTFT."""

    axis: str | None = None
    values: tuple[str, ...] = ()
    specs: tuple[str, ...] = ()
    concurrency: tuple[int, ...] = (1, 8)
    repeats: int = 10
    rounds: int = 2
    looks: int = 3
    effect: float = 0.05

    def __post_init__(self) -> None:
        if bool(self.axis) == bool(self.specs):
            raise SettingsError("gain compares --axis NAME VALUE VALUE, or --a with --b; give one of the two.")
        if self.axis and len(self.values) != 2:
            raise SettingsError(f"--axis {self.axis} takes two values, such as --axis placement index kernel.")
        if self.axis and len({axis_of(self.axis).parse(value) for value in self.values}) == 1:
            raise SettingsError(f"--axis {self.axis} names {self.values[0]} twice; the noise is measured anyway.")
        if self.specs and len({*self.specs}) == 1:
            raise SettingsError("--a and --b name one connector twice; the noise is measured anyway.")
        if min(self.concurrency) < 1 or max(self.concurrency) > 64:
            raise SettingsError("--concurrency takes numbers from 1 to 64, such as 1,8.")

    def require_figure(self, *, lengths: int) -> None:
        """Raises SettingsError where so many prompt lengths can't make the pairs that a figure takes."""
        times = self.rounds if self.specs else self.asked.looks
        fewest = sequential.fewest(sequential.spent(self.asked.looks, self.asked.looks))
        if (pairs := self.repeats * times * lengths) < fewest:
            least = -(-fewest // (times * lengths))
            raise SettingsError(
                f"--repeats {self.repeats} makes {pairs} pairs, a figure takes {fewest}; give {least} or more."
            )

    @property
    def asked(self) -> Asked:
        return Asked(1 if self.specs else self.looks, self.effect, self.axis)


def gain(settings: Settings, wanted: Wanted) -> int:
    """Measures, judges, reports; returns the exit code of the contract."""
    wanted.require_figure(lengths=len({*settings.lengths}) or settings.prompts)
    clean_up()
    python = engine_python(settings.engine_python)
    sides = {"a": wanted.specs[0], "b": wanted.specs[-1]} if wanted.specs else {"a": settings.connector}
    adapters = {side: usable(name, settings, python=python) for side, name in sides.items()}
    made_of = material(settings, python=python)
    if made_of.encode is None:
        raise SettingsError(f"gain tells tokens itself: model {settings.model} must be a folder with a tokenizer.json.")
    comparison = (AxisGain if wanted.axis else SpecGain)(wanted, settings, adapters, made_of)
    for side, adapter in adapters.items():
        if why := adapter.crowded(starts=comparison.starts(side)):
            raise SettingsError(f"connector {adapter.name}: {why}")
    name = Name.new()
    with under_way(
        settings, made_of, name, comparison.parts, steps=comparison.steps, report=lambda: report(settings.out),
        alone=True,
    ) as player:  # fmt: skip
        comparison.run(player, name.run_id)
    return report(settings.out)


def report(folder: Path, *, out: Path | None = None) -> int:
    """From the recording alone, written there or to ``out``; also ``maru-e2e gain --judge DIR``."""
    events = read(folder / RECORDING)
    found = judge_gain(events)
    if found is None:
        raise UsageError(f"{folder} holds no comparison; make one with maru-e2e gain.")
    with judged(found.exit_code):
        report_gain.write(found, events, out or folder)
        write_reports(events, found.cells, directory=out or folder, exhibits=shown(events, found.cells))
    return found.exit_code


class _Gain:
    """What is compared is fixed when it is made, so that what can't be compared is refused before anything is
    written. ``adapters``: side -> adapter; both sides share one where an axis is compared. ``grid``: of side a."""

    grid: Grid
    parts: Sequence[KeyPart]

    def __init__(self, wanted: Wanted, settings: Settings, adapters: Mapping[str, Adapter], made_of: Material) -> None:
        self.wanted, self.settings, self.adapters, self.made_of = wanted, settings, adapters, made_of

    @property
    def steps(self) -> Mapping[str, int]:
        """Kind -> number, for the time left; see report/progress.py."""
        raise NotImplementedError

    def starts(self, side: str) -> int:
        """Of engines with the connector of this side."""
        raise NotImplementedError

    def run(self, player: Player[KeyPart], run_id: str) -> None:
        """Every cell is proven before it is measured: only what is right may be fast."""
        raise NotImplementedError

    def cells(self, adapter: Adapter, grid: Mapping[str, Sequence[object]]) -> Grid:
        """The grid narrowed by --cell, of which an axis that only another side has is left out."""
        known = {name: tuple(values) for name, values in grid.items() if name in adapter.axes}
        foreign = frozenset().union(*(other.axes for other in self.adapters.values())) - adapter.axes
        asked = ({name: chosen[name] for name in chosen if name not in foreign} for chosen in self.settings.cells)
        selection = replace(self.settings.selection, grid=(known,), cells=tuple(asked))
        return expand(
            selection, adapter, defaults=self.settings.axis_defaults, fixed=self.settings.axis_fixed
        ).require_cells()

    def part(self, adapter: Adapter, key: str, cells: Sequence[Cell]) -> KeyPart:
        """As for a run, with room for all prompts that run at once."""
        made = part_of(key, cells, self.settings, adapter, self.made_of)
        return replace(made, room=max(self.wanted.concurrency) * (made.longest + 2 * made.block_size))

    def branch(
        self, name: str, run_id: str, part: KeyPart, sides: Mapping[str, Cell], *, round: int,
        numbers: Iterator[int], order: Callable[[int], Iterable[tuple[int, str]]], launched: Sequence[str],
    ) -> Branch:  # fmt: skip
        each, encode = max(self.wanted.concurrency), self.made_of.encode
        prompts = {
            n: build_prompts(self.made_of.texts, encode, texts=[Text(n)] * each, nonce=f"{run_id}/gain/{name}/{n}")
            for n in dict.fromkeys(part.lengths.lengths)
        }
        rule = part.hit_rule(next(iter(sides.values())))
        pair = {"branch": name, **{side: cell.id for side, cell in sides.items()}}
        return Branch(
            name=name, round=round, sides=sides, prompts=prompts, rule=rule, numbers=numbers, order=order,
            concurrency=self.wanted.concurrency, repeats=self.wanted.repeats, launched=launched, salt=f"{run_id}.gain",
            looks=self.wanted.asked.looks,
            enough=lambda events, at_once: settled(events, self.wanted.asked, pair, at_once),
        )  # fmt: skip

    def begin(
        self, player: Player[KeyPart], mode: str, names: Mapping[str, str], pairs: Sequence[Mapping[str, str]]
    ) -> None:  # fmt: skip
        begin(player, self.settings, self.adapters["a"], self.grid, self.parts)
        player.record(
            "gain.plan", mode=mode, axis=self.wanted.axis, names=dict(names), pairs=list(pairs),
            concurrency=list(self.wanted.concurrency), lengths=list(self.settings.lengths), repeats=self.wanted.repeats,
            rounds=1 if mode == "axis" else self.wanted.rounds, device=self.settings.device, attempt=1,
            looks=self.wanted.asked.looks, effect=self.wanted.effect,
            double=any(adapter.abilities.double_of for adapter in self.adapters.values()), machine=platform.platform(),
        )  # fmt: skip


class AxisGain(_Gain):
    """Both settings of each branch on one engine, request by request."""

    def __init__(self, wanted: Wanted, settings: Settings, adapters: Mapping[str, Adapter], made_of: Material) -> None:
        super().__init__(wanted, settings, adapters, made_of)
        axis, values, adapter = wanted.axis, wanted.values, adapters["a"]
        if axis not in adapter.axes or axis in adapter.engine_axes:
            raise SettingsError(
                f"connector {adapter.name} can't choose {axis} per request; compare two connector files, --a and --b."
            )
        # loads are asynchronous everywhere, so that overlap is compared with its like
        self.grid = self.cells(
            adapter,
            {
                "layout": ("NHD", "HND"), "storage_format": ("chunkwise", "layerwise"), "overlap": ("off", "on"),
                "load": ("async",), "placement": ("index",), axis: values,
            },
        )  # fmt: skip
        self.pairs = [pair for pair in _pairs(self.grid.cells, axis).items() if {*pair[1]} == {*values}]
        if not self.pairs:
            raise SettingsError(f"no pair of cells differs in {axis} alone; widen --cell.")
        by_key = by_engine([cell for _, at in self.pairs for cell in at.values()], adapter)
        self.parts = [self.part(adapter, key, cells) for key, cells in by_key.items()]

    @property
    def steps(self) -> Mapping[str, int]:
        keys, cells = len(self.parts), sum(len(part.cells) for part in self.parts)
        return {"start": 2 * keys, "baseline": keys, "cell": cells, "branch": len(self.pairs)}

    def starts(self, side: str) -> int:
        return len(self.parts)

    def run(self, player: Player[KeyPart], run_id: str) -> None:
        a, b = self.wanted.values
        pairs = [{"branch": name, "a": at[a].id, "b": at[b].id} for name, at in self.pairs]
        self.begin(player, "axis", {"a": a, "b": b}, pairs)
        numbers = itertools.count()
        for part in self.parts:
            mine = [(name, {"a": at[a], "b": at[b], "a2": at[a]}) for name, at in self.pairs if at[a] in part.cells]
            branches = [
                self.branch(
                    name, run_id, part, sides, round=1, numbers=numbers, launched=("a", "b"),
                    order=lambda number: enumerate(ORDERS[number % len(ORDERS)]),
                )
                for name, sides in mine
            ]  # fmt: skip
            for ready in player.plain([part]):
                player.cells(ready, after=[_measured(player, branch, branch.name) for branch in branches])


class SpecGain(_Gain):
    """Two connectors, each in turn on an engine of its own, several times over."""

    def __init__(self, wanted: Wanted, settings: Settings, adapters: Mapping[str, Adapter], made_of: Material) -> None:
        super().__init__(wanted, settings, adapters, made_of)
        grids = {side: self.cells(adapter, {"layout": ("NHD", "HND")}) for side, adapter in adapters.items()}
        self.grid = grids["a"]
        axes = adapters["a"].axes & adapters["b"].axes
        found = {side: _alike(grid.cells, axes, adapters[side]) for side, grid in grids.items()}
        shared = [name for name in found["a"] if name in found["b"]]
        if not shared:
            raise SettingsError("the two connectors have no cell in common; narrow both with --cell.")
        self.branches: dict[str, dict[str, KeyPart]] = {}
        for name in shared:
            cells = {side: _named(found[side][name], side) for side in ("a", "b")}
            parts = {side: self.part(adapters[side], cell.id, [cell]) for side, cell in cells.items()}
            if parts["a"].lengths.lengths != parts["b"].lengths.lengths:
                raise SettingsError(
                    "the two connectors are served at different prompt lengths; give both with --lengths."
                )
            self.branches[name] = parts
        self.parts = [part for parts in self.branches.values() for part in parts.values()]

    @property
    def steps(self) -> Mapping[str, int]:
        turns = len(self.branches) * self.wanted.rounds * len(ORDERS[0])
        cells = 2 * len(self.branches)
        return {"start": cells + turns, "baseline": cells, "cell": cells, "branch": turns}

    def starts(self, side: str) -> int:
        return len(self.branches) * self.wanted.rounds * sum(place.startswith(side) for place in ORDERS[0])

    def run(self, player: Player[KeyPart], run_id: str) -> None:
        names = {side: adapter.name for side, adapter in self.adapters.items()}
        if names["a"] == names["b"]:
            names = {side: Path(spec).stem for side, spec in zip("ab", self.wanted.specs, strict=True)}
        pairs = [{"branch": n, **{s: p.cells[0].id for s, p in parts.items()}} for n, parts in self.branches.items()]
        self.begin(player, "specs", names, pairs)
        for name, parts in self.branches.items():
            turns = self._turns(player, run_id, name, parts)
            if not (all(player.plain([part]) for part in parts.values()) and all(turns)):
                for part in parts.values():  # what is left of either side compares nothing
                    player.judge_rest(part)

    def _turns(
        self, player: Player[KeyPart], run_id: str, name: str, parts: Mapping[str, KeyPart]
    ) -> Iterator[bool]:  # fmt: skip
        """Plays one turn after the other, each on an engine of its own; tells whether it came to its end."""
        for turn in range(1, self.wanted.rounds + 1):
            for place, side in enumerate(ORDERS[turn % len(ORDERS)]):
                part = parts[side[0]]
                cell = part.cells[0]
                branch = self.branch(
                    name, run_id, part, {side: cell}, round=turn, numbers=itertools.count(1),
                    order=lambda _, at=(place, side): [at], launched=(side,) if side != "a2" and turn == 1 else (),
                )  # fmt: skip
                unproven = [] if player.standing.knows(cell.id) else [cell.id]
                yield player.cells(part, unproven, [_measured(player, branch, f"{name}, {side}, turn {turn}")])


def _measured(player: Player[KeyPart], branch: Branch, name: str) -> After:
    return After(name, lambda engines: branch.play(engines["connector"], player.record))


def _pairs(cells: Sequence[Cell], axis: str) -> dict[str, dict[str, Cell]]:
    """Branch (the id without the axis) -> value of the axis -> cell."""
    pairs: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        follow = (axis, "load", "release_after_layers")
        branch = replace(cell, settings={name: v for name, v in cell.settings.items() if name not in follow}).id
        pairs.setdefault(branch, {})[str(cell.settings[axis])] = cell
    return pairs


def _alike(cells: Sequence[Cell], axes: frozenset[str], adapter: Adapter) -> dict[str, Cell]:
    """What a cell is on ``axes``, as an id -> the one cell that is so. Raises SettingsError where several are."""
    found: dict[str, Cell] = {}
    for cell in cells:
        name = replace(cell, settings={axis: cell.settings[axis] for axis in axes if axis in cell.settings}).id
        if name in found:
            raise SettingsError(
                f"connector {adapter.name} has {found[name].id} and {cell.id}, which the other does not tell apart; "
                "give one by --cell."
            )
        found[name] = cell
    return found


def _named(cell: Cell, side: str) -> Cell:
    return replace(cell, settings={**cell.settings, "connector": side})
