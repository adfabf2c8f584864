"""Programs that Hypothesis makes of steps, as far as they can be built."""

from __future__ import annotations

import msgspec
from fake import ONE, PLAIN, TEXTS, again, send
from hypothesis import strategies as st

from e2e.base.program import Break, Empty, Mend, Program, Site, Start, Stop, Together

KILL, SUSPEND = Break("engine", "kill", "one"), Break("server", "suspend", "index")
SITES = (PLAIN, ONE, Site("two"), Site("far", store="else"))
STEPS = st.one_of(
    st.sampled_from(SITES).map(lambda site: (Start(site.name),)),
    st.builds(lambda site, killed: (Stop(site.name, killed=killed),), st.sampled_from(SITES), st.booleans()),
    st.builds(lambda site, name: (send(name, site),), st.sampled_from(SITES), st.sampled_from("stuvwxyz")),
    st.sampled_from([(SUSPEND,), (Mend("server", "suspend", "index"),), (Empty("pool"),), (KILL,)]),
    st.builds(
        lambda name, other: (Together((send(name, ONE), send(other, Site("two")), SUSPEND)),), st.sampled_from("abc"),
        st.sampled_from("def"),
    ),
)  # fmt: skip


def buildable(pieces: list) -> Program:
    """As many of the steps as make a program."""
    steps: tuple = ()
    for piece in pieces:
        try:
            steps = Program(SITES, TEXTS, (*steps, *piece), "mix").steps
        except ValueError:
            continue
    return Program(SITES, TEXTS, steps, "mix")


def _rerun(site: Site, like: str, name: str) -> tuple:
    *before, looked = again(site, send(like, site))
    return (*before, msgspec.structs.replace(looked, name=name))


#: What comes from the connector, too.
RERUNS = st.builds(_rerun, st.sampled_from(SITES), st.sampled_from("stuv"), st.sampled_from("wxyz"))


def programs(most: int = 14) -> st.SearchStrategy[Program]:
    return st.lists(STEPS | RERUNS, max_size=most).map(buildable)
