import re

import pytest

from e2e.observe.logs import PATTERNS, count_lines, find_lines

#: as vLLM 0.32 writes them
LINES = {
    "kv_layout": "(EngineCore pid=5910) INFO 11-29 16:11:56 [utils.py:347] Using LBHNC KV cache layout.",
    "prefix_reset": "(EngineCore pid=5910) INFO 11-29 16:13:50 [block_pool.py:861] Successfully reset prefix cache",
    "prefix_reset_refused": "WARNING Failed to reset prefix cache because some blocks (7) are not freed yet",
    "load_recovered": "WARNING Recovered from KV load failure: 1 request(s) rescheduled (64 tokens affected).",
    "load_failed": "ERROR Failing 2 request(s) due to KV load failure (failure_policy=fail). Request IDs: x",
    "attention_backend": "INFO Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
    "preempted": "INFO [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, Preemptions: 3",
    "extension": "Injected <class 'e.Ext'> into <class 'w.Worker'> for extended collective_rpc calls",
    "engine_dead": "ERROR [core.py:2663] EngineCore encountered a fatal error.",
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_knows_its_line_and_no_other(name):
    text = "\n".join(LINES.values())
    (found,) = [line for line in find_lines(text) if line.name == name]
    assert (found.number, found.text) == (list(LINES).index(name) + 1, LINES[name])


def test_groups_hold_the_values():
    groups = {line.name: dict(line.groups) for line in find_lines("\n".join(LINES.values()))}
    assert groups["kv_layout"] == {"layout": "LBHNC"}
    assert groups["load_failed"] == {"requests": "2"}
    assert groups["prefix_reset_refused"] == {"blocks": "7"}
    assert groups["attention_backend"] == {"backend": "FLASH_ATTN"}
    assert groups["preempted"] == {"count": "3"}


def test_the_short_form_of_the_backend_line():
    (line,) = find_lines("INFO [cuda.py:446] Using TRITON_ATTN backend.")
    assert line.groups == {"backend": "TRITON_ATTN"}


def test_own_patterns_and_counts():
    text = "one\ntwo fish\ntwo birds\n"
    assert [line.number for line in find_lines(text, {"two": re.compile("^two")})] == [2, 3]
    assert count_lines("\n".join([LINES["prefix_reset"]] * 2 + [LINES["prefix_reset_refused"]]), "prefix_reset") == 2
    assert find_lines("") == []
