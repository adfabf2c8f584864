"""A connector's report of a failed load is counted though it counts nothing itself, and vLLM hears it as before."""

from types import SimpleNamespace

from e2e.inside.load_errors import LoadErrors


def test_reports_are_counted_and_passed_on():
    answers = [set(), {3, 4}, set(), {1}]
    connector = SimpleNamespace(get_block_ids_with_load_errors=lambda: answers.pop(0))
    errors = LoadErrors(connector)
    assert [connector.get_block_ids_with_load_errors() for _ in range(4)] == [set(), {3, 4}, set(), {1}]
    assert errors.told(None) == {"counters": {"load_failures": 2}, "loads": []}


def test_requests_that_were_not_received_are_counted_too():
    results = [SimpleNamespace(failed_recving=set()), SimpleNamespace(failed_recving={"r"})]
    connector = SimpleNamespace(get_transfer_results=lambda finished: results[finished])
    errors = LoadErrors(connector)
    assert [connector.get_transfer_results(at) for at in (0, 1)] == results
    assert errors.failures == 1


def test_what_the_connector_counts_itself_stands():
    errors = LoadErrors(SimpleNamespace(get_block_ids_with_load_errors=lambda: {1}))
    own = {"counters": {"load_failures": 7, "hit_tokens": 64}, "loads": [{"id": 1}], "fired": {"x": 1}}
    assert errors.told(own) == own


def test_an_old_connector_reports_nothing():
    assert LoadErrors(SimpleNamespace()).told(None)["counters"] == {"load_failures": 0}
