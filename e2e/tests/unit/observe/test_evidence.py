import pytest

from e2e.base.errors import EngineAnswer, EngineCrashed
from e2e.base.event import Event
from e2e.observe.evidence import EvidenceWindow, rig_request


@pytest.mark.parametrize("tail", ["", "-0", "-0-90abcdef", "-12-00000000"])
def test_the_rigs_request_is_found_in_the_engines(tail):
    request = "HND.connector.1.HND-layerwise-overlap_on-kernel.external.3.ab12cd34"
    expected = request if tail else f"cmpl-{request}"
    assert rig_request(f"cmpl-{request}{tail}") == expected


def test_a_foreign_form_stays_as_it_is():
    assert rig_request("chatcmpl-1-0") == "chatcmpl-1-0"


class Extension:
    def __init__(self, *states):
        self.states, self.asked = list(states), []

    def __call__(self, method, after_id):
        assert method == "rig_evidence"
        self.asked.append(after_id)
        state = self.states.pop(0)
        if isinstance(state, Exception):
            raise state
        return state if isinstance(state, list) else [state]


def state(hits, loads=(), **fired):
    return {
        "counters": {"hit_tokens": hits},
        "loads": [{"id": i, "request": f"cmpl-r{i}-0"} for i in loads],
        "fired": fired,
    }


def run(extension, arms=1):
    events = []
    window = EvidenceWindow(extension, lambda kind, **data: events.append(Event(kind, data)), engine="e")
    for _ in range(arms):
        with window.arm(cell="c", arm="external"):
            pass
    return events


def test_counters_loads_and_faults_of_this_arm_only():
    extension = Extension(
        state(100, [1, 2]), state(356, [3], axes_swapped=2), state(356, axes_swapped=2), state(360, [4], axes_swapped=2)
    )
    first, fired, second = run(extension, arms=2)
    assert extension.asked == [0, 2, 3, 3]
    assert first["counters"] == {"hit_tokens": 256}
    assert first["loads"] == [{"id": 3, "request": "r3", "engine_request": "cmpl-r3-0"}]
    assert (fired.kind, fired["fault"], fired["count"], fired["cell"]) == ("fault.fired", "axes_swapped", 2, "c")
    assert (second.kind, second["counters"]) == ("connector.evidence", {"hit_tokens": 4})


def test_every_rank_tells_its_own():
    before = [state(0, [1]), state(0, [1, 2])]
    after = [state(256, [2]), state(512, [2, 3], bit_flip=1)]
    first, second, fired = run(Extension(before, after))
    assert [(e["rank"], e["counters"]["hit_tokens"], [load["id"] for load in e["loads"]]) for e in (first, second)] == [
        (0, 256, [2]), (1, 512, [3]),
    ]  # fmt: skip
    assert (fired.kind, fired["rank"], fired["count"]) == ("fault.fired", 1, 1)


def test_one_rank_says_nothing_of_ranks():
    (event,) = run(Extension(state(0), state(256)))
    assert "rank" not in event.data


def test_a_counter_that_appears_started_at_zero_and_fired_may_be_missing():
    before, after = {"counters": {}, "loads": []}, {"counters": {"loads": 3}, "loads": []}
    (event,) = run(Extension(before, after))
    assert event["counters"] == {"loads": 3}


def test_a_connector_without_counters_records_nothing_and_is_asked_once():
    extension = Extension(None)
    assert run(extension, arms=3) == []
    assert len(extension.asked) == 1


def test_an_engine_without_the_extension_is_noted_once():
    extension = Extension(EngineAnswer("no such method.", status=500))
    (note,) = run(extension, arms=3)
    assert note.kind == "note"
    assert "no such method" in note["text"]


def test_a_dead_engine_raises():
    with pytest.raises(EngineCrashed):
        run(Extension(state(1), EngineCrashed("gone.")))


def test_loads_since_anyone_looked():
    window = EvidenceWindow(Extension(state(0, [1, 2]), state(0)), lambda kind, **data: None, engine="e")
    assert [load["request"] for load in window.loads()] == ["r1", "r2"]
    assert window.loads() == []
    deaf = EvidenceWindow(Extension(EngineAnswer("no such method.", status=404)), lambda kind, **data: None, engine="e")
    assert deaf.loads() == []
