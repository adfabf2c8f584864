"""``maru-e2e gain``: is a change worth it? Two settings, or two connectors, measured in turn and judged against noise.

With an axis, both settings run on one engine, chosen per request; with two connectors, engines alternate. Side ``a2``
is ``a`` once more: how far it is from ``a`` is the noise. Every setting is first proven by the exact oracle.
"""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import EngineError, SettingsError, UsageError
from e2e.base.event import ARMS, Record
from e2e.connectors.table import load
from e2e.flow import Flow, Live, Name
from e2e.grid.axes import axis as axis_of
from e2e.grid.cells import Grid, by_engine, expand
from e2e.material import Material, material
from e2e.observe.metrics import Snapshot
from e2e.plan import KV_SPARE, KeyPlan
from e2e.recording.journal import Journal, read
from e2e.replay.paired import Sender, timed_cell
from e2e.replay.prompts import Prompt, build_prompts
from e2e.report import gain as report_gain
from e2e.report.files import judged, write_reports
from e2e.report.progress import Progress
from e2e.run import clean_up, plan_of, require_usable
from e2e.settings.settings import RECORDING, Settings
from e2e.settings.world import engine_python, secrets, state_dir
from e2e.stack.ledger import Ledger
from e2e.stack.zygote import Zygote
from e2e.standing import Standing, judged_on_the_way_out
from e2e.waits import until

try:
    from e2e.judge.gain import judge_gain
except ModuleNotFoundError as error:
    raise UsageError(f"gain needs {error.name}, which is not installed; pip install 'maru-e2e[gain]'.") from error

#: Within one pair each order of the sides comes equally often.
ORDERS = (("a", "b", "a2"), ("b", "a2", "a"), ("a2", "a", "b"), ("a2", "b", "a"), ("b", "a", "a2"), ("a", "a2", "b"))
#: Requests whose launches are counted, per side and length.
PROFILED = 3


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """``axis`` with two ``values``, or two ``specs`` (names or TOML files). ``repeats``: pairs per length, concurrency
    and round; ``rounds``: engine starts per side where engines alternate."""

    axis: str | None = None
    values: tuple[str, ...] = ()
    specs: tuple[str, ...] = ()
    concurrency: tuple[int, ...] = (1, 8)
    repeats: int = 10
    rounds: int = 2

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


def gain(settings: Settings, wanted: Wanted) -> int:
    """Measures, judges, reports; returns the exit code of the contract."""
    clean_up()
    python = engine_python(settings.engine_python)
    sides = {"a": wanted.specs[0], "b": wanted.specs[-1]} if wanted.specs else {"a": settings.connector}
    adapters = {
        side: load(name, pool_bytes=settings.pool_bytes, server=settings.connector_server, python=python)
        for side, name in sides.items()
    }
    for adapter in adapters.values():
        require_usable(adapter, settings)
    made_of = material(settings, python=python)
    if made_of.encode is None:
        raise SettingsError(f"gain tells tokens itself: model {settings.model} must be a folder with a tokenizer.json.")
    comparison = (AxisGain if wanted.axis else SpecGain)(wanted, settings, adapters, made_of)
    for side, adapter in adapters.items():
        if why := adapter.crowded(starts=comparison.starts(side)):
            raise SettingsError(f"connector {adapter.name}: {why}")
    name = Name.new()
    with (
        Ledger(run_id=name.run_id, state_dir=state_dir()) as ledger,
        Zygote(ledger=ledger) as zygote,
        Journal(settings.recording, secrets=secrets(settings)) as journal,
        judged_on_the_way_out(journal.record, lambda: report(settings.out)),
        Progress(sys.stderr, comparison.steps) as progress,
    ):
        standing = Standing(journal.record, directory=settings.out)
        comparison.run(
            {
                side: Flow(settings, adapter, made_of, standing, progress, name, ledger, zygote)
                for side, adapter in adapters.items()
            }
        )
        journal.record("run.end", attempt=1)
    return report(settings.out)


def report(folder: Path, *, out: Path | None = None) -> int:
    """From the recording alone, written there or to ``out``; also ``maru-e2e gain --judge DIR``."""
    events = read(folder / RECORDING)
    found = judge_gain(events)
    if found is None:
        raise UsageError(f"{folder} holds no comparison; make one with maru-e2e gain.")
    with judged(found.exit_code):
        report_gain.write(found, events, out or folder)
        write_reports(events, found.cells, directory=out or folder)
    return found.exit_code


class _Gain:
    """What is compared is planned when it is made, so that what can't be compared is refused before anything is
    written. ``adapters``: side -> adapter; both sides share one where an axis is compared."""

    def __init__(self, wanted: Wanted, settings: Settings, adapters: Mapping[str, Adapter], made_of: Material) -> None:
        self.wanted, self.settings, self.adapters, self.made_of = wanted, settings, adapters, made_of
        self.numbers = itertools.count()
        self.flows: Mapping[str, Flow] = {}

    @property
    def flow(self) -> Flow:
        return self.flows["a"]

    @property
    def record(self) -> Record:
        return self.flow.record

    @property
    def steps(self) -> Mapping[str, int]:
        """Kind -> number, for the time left; see report/progress.py."""
        raise NotImplementedError

    def starts(self, side: str) -> int:
        """Of engines with the connector of this side."""
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

    def planned(self, adapter: Adapter, key: str, cells: Sequence[Cell]) -> KeyPlan:
        """As for a run, with room for all prompts that run at once."""
        made = plan_of(key, cells, self.settings, adapter, self.made_of)
        if made.bytes_per_token and not self.settings.kv_cache_bytes:
            at_once = max(self.wanted.concurrency) * (max(made.lengths.lengths) + 2 * made.block_size)
            room = int(max(at_once, made.tokens) * KV_SPARE) * made.bytes_per_token
            made = replace(made, settings=self.settings.model_copy(update={"kv_cache_bytes": room}))
        return made

    def prompts(self, planned: KeyPlan, branch: str) -> dict[int, list[Prompt]]:
        """Length in tokens -> as many prompts as run at once, each with its own nonce."""
        each, texts, encode = max(self.wanted.concurrency), self.made_of.texts, self.made_of.encode
        return {
            n: build_prompts(texts, encode, lengths=[n] * each, nonce=f"{self.flow.run_id}/gain/{branch}/{n}")
            for n in dict.fromkeys(planned.lengths.lengths)
        }

    def prove(self, flow: Flow, planned: KeyPlan, live: Live, cell: Cell) -> None:
        """All arms of the exact oracle: only what is right may be fast."""
        place = {"cell": cell.id, "engine": live.name, "attempt": 1}
        with flow.progress.step("cell", f"proving {cell.id}"):
            self.record("cell.begin", **place)
            flow._arms(planned, live, cell, ARMS)
            self.record("cell.end", **place)
        flow._judge([cell])

    def sender(self, flow: Flow, live: Live, branch: str, cell: Cell) -> Sender:
        salt = f"{flow.run_id}.gain.{branch}.{cell.id}"
        return Sender(live.client, cell.id, salt, flow.adapter.timed_params(cell), flow.settings.request_limit_s)

    def sample(self, sender: Sender, live: Live, prompts: Sequence[Prompt], expected: int, **about: object) -> None:
        sender.forget_local()

        def metrics() -> Snapshot:
            return Snapshot.parse(live.client.metrics())

        before = metrics()
        answers = sender.send(prompts)
        told = before.ttft_count + len(prompts)
        after = until(metrics, lambda now: now.ttft_count >= told, limit_s=2.0, every_s=0.005)
        counted = after.since(before)
        self.record(
            "gain.sample", engine=live.name, concurrency=len(prompts), length=len(prompts[0]),
            ttft_s=[(answer.first_ns - answer.sent_ns) / 1e9 for answer in answers],
            server={"sum_s": after.ttft_sum - before.ttft_sum, "count": after.ttft_count - before.ttft_count},
            local=_either(counted, "local_cache_hit", "local_hits"),
            external=_either(counted, "external_kv_transfer", "external_hits"),
            expected=expected * len(prompts), **about,
        )  # fmt: skip

    def launches(self, sender: Sender, live: Live, prompts: Sequence[Prompt], **about: object) -> None:
        """Counted over requests of their own: a profiled request is slower."""
        try:
            live.client.collective_rpc("rig_profile", True)
            for prompt in prompts[:1] * PROFILED:
                sender.forget_local()
                sender.send([prompt])
            counts = live.client.collective_rpc("rig_profile", False)[0]
        except EngineError as error:
            self.record("note", text=f"Launches were not counted: {error}")
            return
        self.record(
            "gain.launches", engine=live.name, length=len(prompts[0]), requests=PROFILED, counts=counts, **about
        )

    def begin(self, mode: str, names: Mapping[str, str], pairs: Sequence[Mapping[str, str]]) -> None:
        self.record(
            "gain.plan", mode=mode, axis=self.wanted.axis, names=dict(names), pairs=list(pairs),
            concurrency=list(self.wanted.concurrency), lengths=list(self.settings.lengths), repeats=self.wanted.repeats,
            rounds=1 if mode == "axis" else self.wanted.rounds, device=self.settings.device, attempt=1,
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
        self.plans = [self.planned(adapter, key, cells) for key, cells in by_key.items()]

    @property
    def steps(self) -> Mapping[str, int]:
        keys, cells = len(self.plans), sum(len(planned.cells) for planned in self.plans)
        return {"start": 2 * keys, "baseline": keys, "cell": cells, "branch": len(self.pairs)}

    def starts(self, side: str) -> int:
        return len(self.plans)

    def run(self, flows: Mapping[str, Flow]) -> None:
        self.flows = flows
        self.flow.begin(self.grid, self.plans)
        a, b = self.wanted.values
        pairs = [{"branch": name, "a": at[a].id, "b": at[b].id} for name, at in self.pairs]
        self.begin("axis", {"a": a, "b": b}, pairs)
        for planned in self.plans:
            mine = [(name, {"a": at[a], "b": at[b], "a2": at[a]}) for name, at in self.pairs if at[a] in planned.cells]
            try:
                self._engine_key(planned, mine)
            except EngineError as error:
                self.flow.gave_up(planned.key, planned.cells, error)

    def _engine_key(self, planned: KeyPlan, pairs: Sequence[tuple[str, Mapping[str, Cell]]]) -> None:
        self.flow.baseline(planned)
        with self.flow._engine(planned, "connector") as live:
            for cell in planned.cells:
                self.prove(self.flow, planned, live, cell)
                self.flow._forget(live)
            for branch, sides in pairs:
                with self.flow.progress.step("branch", f"measuring {branch}"):
                    self._branch(planned, live, branch, sides)
                self.flow.progress.counted("measured", branch)
                self.flow._forget(live)

    def _branch(self, planned: KeyPlan, live: Live, branch: str, sides: Mapping[str, Cell]) -> None:
        senders = {side: self.sender(self.flow, live, branch, cell) for side, cell in sides.items()}
        rule = planned.hit_rule(sides["a"])
        for length, prompts in self.prompts(planned, branch).items():
            for side in ("a", "b"):
                senders[side].store(prompts)
            about = {"branch": branch, "round": 1}
            for at_once in self.wanted.concurrency:
                for side in ("a", "b"):  # not measured: the first of its shape may compile something
                    senders[side].forget_local()
                    senders[side].send(prompts[:at_once])
                live.evidence.loads()  # those so far aren't timed
                for repeat in range(self.wanted.repeats):
                    chosen = [prompts[(repeat + i) % len(prompts)] for i in range(at_once)]
                    number = next(self.numbers)
                    for place, side in enumerate(ORDERS[number % len(ORDERS)]):
                        self.sample(
                            senders[side], live, chosen, rule.external(length), **about, side=side, number=number,
                            order=place,
                        )  # fmt: skip
                record_overlap(self.record, live, branch)
            for side in ("a", "b"):
                self.launches(senders[side], live, prompts, branch=branch, side=side)


class SpecGain(_Gain):
    """Two connectors, each in turn on an engine of its own, several times over."""

    def __init__(self, wanted: Wanted, settings: Settings, adapters: Mapping[str, Adapter], made_of: Material) -> None:
        super().__init__(wanted, settings, adapters, made_of)
        self.grids = {side: self.cells(adapter, {"layout": ("NHD", "HND")}) for side, adapter in adapters.items()}
        axes = adapters["a"].axes & adapters["b"].axes
        found = {side: _alike(grid.cells, axes, adapters[side]) for side, grid in self.grids.items()}
        shared = [name for name in found["a"] if name in found["b"]]
        if not shared:
            raise SettingsError("the two connectors have no cell in common; narrow both with --cell.")
        self.branches: dict[str, dict[str, KeyPlan]] = {}
        for name in shared:
            cells = {side: _named(found[side][name], side) for side in ("a", "b")}
            plans = {side: self.planned(adapters[side], cell.id, [cell]) for side, cell in cells.items()}
            if plans["a"].lengths.lengths != plans["b"].lengths.lengths:
                raise SettingsError(
                    "the two connectors are served at different prompt lengths; give both with --lengths."
                )
            self.branches[name] = plans

    @property
    def steps(self) -> Mapping[str, int]:
        turns = len(self.branches) * self.wanted.rounds * len(ORDERS[0])
        cells = 2 * len(self.branches)
        return {"start": cells + turns, "baseline": cells, "cell": cells, "branch": turns}

    def starts(self, side: str) -> int:
        return len(self.branches) * self.wanted.rounds * sum(place.startswith(side) for place in ORDERS[0])

    def run(self, flows: Mapping[str, Flow]) -> None:
        self.flows = flows
        self.flow.begin(self.grids["a"], [planned for plans in self.branches.values() for planned in plans.values()])
        names = {side: adapter.name for side, adapter in self.adapters.items()}
        if names["a"] == names["b"]:
            names = {side: Path(spec).stem for side, spec in zip("ab", self.wanted.specs, strict=True)}
        pairs = [{"branch": n, **{s: p.cells[0].id for s, p in plans.items()}} for n, plans in self.branches.items()]
        self.begin("specs", names, pairs)
        for name, plans in self.branches.items():
            try:
                self._cell(name, plans)
            except EngineError as error:
                self.flow.gave_up(name, [cell for planned in plans.values() for cell in planned.cells], error)

    def _cell(self, branch: str, planned: Mapping[str, KeyPlan]) -> None:
        for side, flow in self.flows.items():
            flow.baseline(planned[side])
        prompts = self.prompts(planned["a"], branch)
        proven: set[str] = set()
        for turn in range(1, self.wanted.rounds + 1):
            for place, side in enumerate(ORDERS[turn % len(ORDERS)]):
                one = side[0]
                with self._measured(one, planned[one]) as live:
                    if one not in proven:
                        self.prove(self.flows[one], planned[one], live, planned[one].cells[0])
                        proven.add(one)
                    what = f"{branch}, {side}, turn {turn}"
                    with self.flow.progress.step("branch", f"measuring {what}"):
                        self._turn(branch, side, planned[one], live, prompts, turn=turn, order=place)
                    self.flow.progress.counted("measured", what)

    @contextmanager
    def _measured(self, side: str, planned: KeyPlan) -> Iterator[Live]:
        flow = self.flows[side]
        flow.started = max(each.started for each in self.flows.values())  # names stay unique among both
        with flow._engine(planned, "connector") as live:
            yield live

    def _turn(self, branch, side, planned, live, prompts, *, turn: int, order: int) -> None:
        cell = planned.cells[0]
        sender = self.sender(self.flows[side[0]], live, branch, cell)
        number = 0
        for length, same in prompts.items():
            expected = planned.hit_rule(cell).external(length)
            sender.store(same)
            for at_once in self.wanted.concurrency:
                sender.forget_local()
                sender.send(same[:at_once])
                live.evidence.loads()
                for repeat in range(self.wanted.repeats):
                    chosen = [same[(repeat + i) % len(same)] for i in range(at_once)]
                    number += 1
                    self.sample(
                        sender, live, chosen, expected, branch=branch, round=turn, side=side, number=number, order=order
                    )
                record_overlap(self.record, live, branch)
            if side != "a2" and turn == 1:
                self.launches(sender, live, same, branch=branch, side=side)


def record_overlap(record: Record, live: Live, branch: str) -> None:
    """Of the timed overlapped loads since the journal was read last: did the forward meet any under way? Nothing is
    told of a connector whose journal doesn't say (Maru's log)."""
    by_cell: dict[str, list[Mapping[str, object]]] = {}
    for row in live.evidence.loads():
        cell = timed_cell(row["request"])
        if cell and row.get("overlap") is True and "pending_at_forward" in row:
            by_cell.setdefault(cell, []).append(row)
    for cell, rows in by_cell.items():
        record(
            "gain.overlap", branch=branch, engine=live.name, cell=cell, loads=len(rows),
            pending=sum(row["pending_at_forward"] > 0 for row in rows),
            waited=sum(row["blocking_waits"] > 0 for row in rows),
        )  # fmt: skip


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


def _either(counted: Mapping[str, float], *names: str) -> int | None:
    return next((int(counted[name]) for name in names if name in counted), None)
