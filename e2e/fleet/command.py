"""``--executor ray``: the flow of a run whose engine keys are played wherever the cluster has room.

What nodes record is gathered as it grows. A task that its node took with it is given to another one, which goes on from
there as ``--resume`` does: what was judged is kept, and what was not is played again.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from e2e.attempt import clean_up
from e2e.base.errors import (
    EXIT_CORRUPT,
    EXIT_ENGINE,
    EXIT_INCONCLUSIVE,
    EXIT_PASS,
    EXIT_RIG,
    EXIT_USAGE,
    EngineError,
    RigError,
    SettingsError,
)
from e2e.chosen import chosen, parts_of
from e2e.fleet.cluster import cluster
from e2e.fleet.node import Task, Told
from e2e.fleet.share import Need, Share
from e2e.fleet.whole import Whole
from e2e.grid.cells import by_engine
from e2e.part import KeyPart
from e2e.report.escape import one_line
from e2e.run import refuse_crowded
from e2e.settings.settings import Settings
from e2e.settings.world import environment_for_nodes, ray_address, state_dir
from e2e.stack.ledger import Ledger
from e2e.standing import judged_on_the_way_out

#: Exit codes of a share that was judged, and of one that another node would refuse, too.
JUDGED = (EXIT_PASS, EXIT_CORRUPT, EXIT_INCONCLUSIVE, EXIT_ENGINE)
REFUSED = {EXIT_USAGE: SettingsError, EXIT_RIG: RigError}
#: So often a share may be lost. A dead node is offered again until Ray has noticed, so one loss may count twice.
LOSSES = 5
#: Longest time in which no node answers at all, as where each waits for room that others hold. Seconds.
SILENCE_S = 600.0


class Tasks(Protocol):
    """See ``cluster.Cluster``."""

    busy: bool

    def start(self, share: Share) -> None: ...

    def end(self, share: Share) -> None: ...

    def answers(self, *, limit_s: float) -> Iterator[tuple[Share, Told]]: ...


def run(settings: Settings) -> int:
    """As ``e2e.run.run``. What can be refused is refused before any engine starts, by what this machine knows."""
    clean_up()
    made_of, adapter, grid = chosen(settings)
    keys = by_engine(grid.cells, adapter)
    parts, _ = parts_of(keys, grid, settings, adapter, made_of)
    refuse_crowded(settings, adapter, parts)
    with (
        Whole(settings) as whole,
        judged_on_the_way_out(lambda kind, **data: None, whole.report),
        Ledger(run_id=f"ray-{uuid.uuid4().hex[:8]}", state_dir=state_dir()) as ledger,
        cluster(ledger, task_of(settings), address=ray_address(), runtime_env=settings.runtime_env) as found,
    ):
        needs = needed(parts, found.nodes(), cuda=settings.device == "cuda")
        for number, (key, cells) in enumerate(keys.items(), start=1):
            whole.add((number, len(keys)), key, [cell.id for cell in cells], needs.get(key, Need(1)))
        play(whole, found)
    return whole.report()


def task_of(settings: Settings) -> Task:
    return Task(settings.as_json(), environment_for_nodes(), str(Path.cwd()))


def needed(parts: Sequence[KeyPart], nodes: Sequence[Need], *, cuda: bool) -> dict[str, Need]:
    """Engine key -> what it takes of a node: as many GPUs as it has ranks; of CPUs all, since an engine there computes
    on what it finds. SettingsError where no node has it."""
    cpus = min((node.cpus for node in nodes if node.cpus >= 1), default=1.0)
    needs = {part.key: Need(1, part.ranks) if cuda else Need(cpus) for part in parts}
    for key, need in needs.items():
        if not any(need.cpus <= node.cpus and need.gpus <= node.gpus for node in nodes):
            raise SettingsError(
                f"--executor ray: {key} takes {need} of one node, and no node of the cluster has as much; start one "
                "that has, or leave it out by --cell."
            )
    return needs


def play(whole: Whole, tasks: Tasks) -> None:
    """Until each share has ended. Raises, once the others have, for one that could not be played."""
    failed: list[RigError] = []
    for share in whole.shares:
        if not share.whole():
            tasks.start(share)
    while tasks.busy:
        for share, told in tasks.answers(limit_s=SILENCE_S):
            for line in share.add(told):
                say(share, line)
            whole.grew()
            if (why := loss(told)) and share.lost < LOSSES:
                share.lost += 1
                say(share, f"lost ({why}); another task goes on with it")
                tasks.start(share)
            elif why or told.code is not None:
                tasks.end(share)
                failed += failure(share, told, why)
    for error in failed:
        raise error


def loss(told: Told) -> str:
    """Why somebody else may have more luck with it; empty where it goes on, or has ended for good."""
    killed = told.code not in (None, *JUDGED, *REFUSED)
    return told.lost or (f"its run ended with {told.code}" if killed else "")


def failure(share: Share, told: Told, why: str) -> list[RigError]:
    if why:
        return [EngineError(f"engine key {share.key} was lost {LOSSES + 1} times ({why}); --resume goes on with it.")]
    if told.code in REFUSED:
        return [REFUSED[told.code](f"engine key {share.key}: {share.last.removeprefix('maru-e2e: ')}")]
    return []


def say(share: Share, line: str) -> None:
    print(one_line(f"{share.key}: {line}"), file=sys.stderr, flush=True)
