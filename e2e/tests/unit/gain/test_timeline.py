"""How much of a load hides behind the forward, from intervals; and what a report says and draws of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from e2e.base.event import Event
from e2e.base.gain import Hidden
from e2e.judge.timeline import hidden, loads, timelines, union
from e2e.report import html, markdown, plots, timeline
from e2e.report.document import Fold, Plot

#: Three layers: copied back to back, each placed on another stream once it is there; the forward begins when one is.
ROWS = {
    "to_device": [(0, 100), (100, 200), (200, 300), (900, 901)], "from_device": [(950, 960)],
    "placement": [(100, 110), (200, 210), (300, 310)],
    "attention": [(150, 170), (250, 270)], "forward": [(120, 150), (170, 205), (265, 400)],
}  # fmt: skip
NAMES = {"a": "index", "b": "kernel"}


def recorded(rows=ROWS, *, layers=3, side="a", branch="HND"):
    config = Event("engine.config", {"engine": "e", "effective": {"num_layers": layers}})
    data = {"branch": branch, "side": side, "engine": "e", "length": 4105, "rows": rows}
    return [config, Event("gain.timeline", data)]


def test_each_layer_has_its_own_copies_and_its_placement():
    assert loads(ROWS["to_device"], ROWS["placement"]) == [
        [(100, 110), (0, 100)], [(200, 210), (100, 200)], [(300, 310), (200, 300)],
    ]  # fmt: skip


def test_what_hides_is_what_the_forward_runs_beside():
    (found,) = timelines(recorded())
    # the last copy, of the forward's own input, is none of the load
    assert found.load_us == 310
    # of layer 0 nothing; of layer 1 120 to 205 of its 100 to 210; of layer 2 all from 250 on and 200 to 205
    assert found.layers == (Hidden(0, 110, 0), Hidden(1, 110, 85 / 110), Hidden(2, 110, 65 / 110))
    assert found.share == (205 - 120 + 310 - 250) / 310
    assert found.all_us == 400


def test_layers_are_told_only_where_each_was_placed_by_itself():
    assert timelines(recorded(layers=30))[0].layers == ()
    assert timelines(recorded(layers=None))[0].layers == ()
    assert timelines(recorded()[1:])[0].layers == ()


def test_of_a_connector_that_tells_no_placement_all_copies_are_the_load():
    (found,) = timelines(recorded({**ROWS, "placement": []}))
    assert (found.load_us, found.layers) == (301, ())


def test_nothing_copied_has_no_share():
    (found,) = timelines(recorded({row: [] for row in ROWS}))
    assert (found.load_us, found.share) == (0, None)
    assert "| HND | index | 4105 | 0.00 | - | 0.00 | 0.00 |" in markdown.render([*timeline.table([found], NAMES)])
    assert len([*timeline.pictures([found], NAMES)]) == 1


def test_a_load_in_the_models_own_stream_hides_nothing():
    one_after_another = {**ROWS, "attention": [(320, 330)], "forward": [(330, 400)]}
    assert timelines(recorded(one_after_another))[0].share == 0


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


@given(spans, spans)
def test_shares_are_as_counted_moment_by_moment(load, forward):
    def moments(intervals):
        return {at for start, end in intervals for at in range(start, end)}

    assert hidden(load, forward) == (len(moments(load)), len(moments(load) & moments(forward)))
    assert moments(union(load)) == moments(load)


def test_a_report_says_how_much_hid_and_draws_it():
    found = timelines([*recorded(), *recorded({**ROWS, "placement": [(300, 310)]}, side="b")])
    said = markdown.render([*timeline.table(found, NAMES)])
    assert "| HND | index | 4105 | 0.31 | 46.8 % | 0.17 | 0.40 | 0.0 % to 77.3 % of 3 |" in said
    assert "| HND | kernel | 4105 | 0.31 | 46.8 % | 0.17 | 0.40 | - |" in said
    page = [*timeline.pictures(found, NAMES)]
    assert [type(block) for block in page[1:]] == [Plot, Fold]
    assert page[1].says == (
        "HND, one request of 4105 tokens: index: 46.8 % of a load of 0.31 ms hid behind the forward, which had ended "
        "after 0.40 ms; kernel: 46.8 % of a load of 0.31 ms hid behind the forward, which had ended after 0.40 ms."
    )
    assert page[2].blocks[0].rows[1] == ("1", "110", "77.3 %")
    assert not [*timeline.table((), NAMES)]
    assert not [*timeline.pictures((), NAMES)]


def test_thousands_of_kernels_make_a_small_picture():
    many = [(at * 10.0, at * 10.0 + 7) for at in range(4096)]
    drawn = plots.timeline([(f"row {n}", n, many) for n in range(10)], rows=10)
    assert len(drawn) < 120_000
    assert drawn.count("row ") == 10
    found = timelines(recorded(dict.fromkeys(ROWS, many)))
    assert len(html.render([*timeline.pictures(found, NAMES)])) < 300_000
