"""Whoever is somebody else is served nothing of what was stored: another salt, adapter, dtype, model or tenant."""

from __future__ import annotations

from e2e.base.program import (
    Claims,
    Cold,
    Computed,
    Like,
    Loaded,
    Missed,
    Program,
    Send,
    Served,
    Site,
    Start,
    Step,
    Stop,
    Text,
)
from e2e.scenarios.arms import BASELINE, COLD, CONNECTOR, forgotten
from e2e.scenarios.cross import OTHERWISE
from e2e.scenarios.sized import Scenario, Sized

#: Seeds of two adapters, and of the other weights.
ADAPTERS, WEIGHTS = (1, 2), 1
ALONE = (BASELINE.name, "cold")


class Identity(Scenario):
    """The same text under another salt, by another adapter, other weights, another dtype and another tenant: each would
    be a hit if it were not for that, and none may be."""

    name = "identity"
    needs = ("salted", "survives_restart")

    def program(self, cell: Sized) -> Program:
        tokens = min(cell.lengths)
        hit = Served(True, (cell.hit(tokens),))
        tenant = Site("tenant")
        others = [Site("weights", weights=WEIGHTS)]
        if (dtype := cell.settings.get("dtype")) is not None:
            others.append(Site("dtype", settings={"dtype": OTHERWISE["dtype"](dtype)}))
        adapters = ADAPTERS if cell.abilities.lora else ()
        plain = [Send(named(seed), BASELINE.name, (0,), (Cold(),), lora=seed) for seed in (0, *adapters)]
        return Program(
            (BASELINE, CONNECTOR, tenant, *others),
            (Text(tokens),),
            (
                *plain,
                asked("cold", CONNECTOR, Cold(), Like((ALONE,)), Computed(ALONE)),
                asked("other_salt", CONNECTOR, Missed(), Like((ALONE,)), Loaded(COLD), salt="other"),
                *(step for seed in adapters for step in adapter(seed, hit)),
                *again(CONNECTOR, hit, Like((ALONE, COLD)), Loaded(COLD)),
                Start(tenant.name),
                asked("apart", tenant, Missed(), Like((ALONE,)), Loaded(COLD), salt=tenant.name),
                *again(tenant, hit, Like((ALONE,)), Loaded(COLD)),
                Stop(tenant.name),
                *(step for site in others for step in stranger(site, hit)),
            ),
            self.name,
        )


def named(seed: int) -> str:
    return f"lora_{seed}" if seed else "cold"


def asked(name: str, site: Site, *claims: Claims, salt: str = "", lora: int = 0) -> Send:
    return Send(name, site.name, (0,), claims, salt=salt, lora=lora)


def again(site: Site, *claims: Claims, lora: int = 0) -> tuple[Step, ...]:
    """Whoever is the same is served: what was missed before was missed for its identity alone."""
    name = f"{named(lora)}_again" if lora else "again"
    return *forgotten(site), asked(name, site, *claims, lora=lora)


def adapter(seed: int, hit: Served) -> tuple[Step, ...]:
    alone, first = (BASELINE.name, named(seed)), (CONNECTOR.name, named(seed))
    computed = asked(named(seed), CONNECTOR, Missed(), Like((alone,)), Computed(alone), Loaded(alone), lora=seed)
    return computed, *again(CONNECTOR, hit, Like((alone, first)), Loaded(first), lora=seed)


def stranger(site: Site, hit: Served) -> tuple[Step, ...]:
    """What it computes itself, under a salt that nobody else has, is what it must say."""
    own = asked("own", site, Cold(), salt=site.name)
    missed = asked("apart", site, Missed(), Like((own.where,)), Loaded(own.where))
    return (
        *(Start(site.name), own, *forgotten(site), missed),
        *again(site, hit, Like((own.where,)), Loaded(own.where)),
        Stop(site.name),
    )
