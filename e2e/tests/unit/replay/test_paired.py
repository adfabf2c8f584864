from e2e.replay.paired import timed_cell


def test_a_request_names_its_cell():
    assert timed_cell("gain.HND-a.b-c.0123456789ab") == "HND-a.b-c"
    assert timed_cell("HND.connector.1.cell.cold.0.01234567") is None
