"""On logs of real failing starts (vLLM 0.32 CPU), and on short ones for what those lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.stack.root_cause import errors_before, root_cause, stall

LOGS = Path(__file__).parents[2] / "recordings" / "logs"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "layout_not_supported",
            "ValueError: VLLM_KV_CACHE_LAYOUT=NHD does not satisfy every supported set; valid layouts: ['LBHNC'].",
        ),
        ("no_tokenizer", "ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers`"),
        ("kv_too_small", "ValueError: To serve at least one request with the model's max seq len (4096), (0.18 GiB"),
        ("port_taken", "OSError: [Errno 98] Address already in use"),
        ("no_connector_module", "ModuleNotFoundError: No module named 'nope'"),
        ("bad_field", "ValidationError: max_num_seqs: Input should be greater than or equal to 1"),
        ("worker_killed", "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting"),
    ],
)
def test_real_failures(log, cause):
    found = root_cause((LOGS / f"{log}.log").read_text())
    assert found.startswith(cause)
    assert "\n" not in found


ERROR = "(%s pid=%d) ERROR 11-29 16:22:55 [core.py:1] "


def log(*blocks: tuple[str, str]) -> str:
    return "\n".join(prefix + line for prefix, text in blocks for line in text.splitlines())


def traceback(exception: str) -> str:
    return f"Traceback (most recent call last):\n  File 'x', line 1, in f\n    g()\n    ^^^\n{exception}"


WORKER, CORE, API = ERROR % ("Worker_TP0", 3), ERROR % ("EngineCore", 2), "(APIServer pid=1) "


def test_the_innermost_process_knows():
    text = log(
        (CORE, traceback("RuntimeError: Worker failed with error 'boom', please check the stack trace above")),
        (WORKER, traceback("torch.OutOfMemoryError: CUDA out of memory.")),
        (API, traceback("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.")),
    )
    assert root_cause(text) == "torch.OutOfMemoryError: CUDA out of memory."


def test_second_hand_words_are_used_when_there_is_nothing_else():
    text = log((CORE, traceback("RuntimeError: Worker failed with error 'shape mismatch', please check the stack")))
    assert root_cause(text) == "shape mismatch"


EARLIER = "(EngineCore pid=2) ERROR 11-29 16:22:31 [core.py:1] "
LATER = "(EngineCore pid=2) ERROR 11-29 16:22:57 [core.py:1] "


def test_the_first_error_when_it_goes_down_not_its_consequences_nor_what_it_had_survived():
    text = log(
        (EARLIER, traceback("ImportError: a plugin that was only left out")),
        (CORE, traceback("KeyError: 'layers.0'")),
        (CORE, traceback("RuntimeError: a consequence")),
        (LATER, traceback("AssertionError: another one")),
    )
    assert root_cause(text) == "KeyError: 'layers.0'"


def test_the_first_of_a_chain():
    text = log(
        (CORE, traceback("KeyError: 'layers.0'")),
        (CORE, "\nThe above exception was the direct cause of the following exception:\n"),
        (CORE, traceback("RuntimeError: connector failed")),
    )
    assert root_cause(text) == "KeyError: 'layers.0'"


def test_an_exception_without_words_says_what_raised_it():
    frames = "Traceback (most recent call last):\n  File 's.py', line 9, in schedule\n    assert num_new_tokens > 0\n"
    assert root_cause(log((CORE, f"{frames}AssertionError"))) == "AssertionError: assert num_new_tokens > 0"
    marked = f"{frames}           ^^^^^^^^^^^^^^^^^^\nAssertionError"
    assert root_cause(log((CORE, marked))) == "AssertionError: assert num_new_tokens > 0"


def test_what_the_connector_logged_before_a_crash_stands_beside_it():
    text = log(
        (CORE, "Maru save error: 512 tokens exceeds chunk_size 256"),
        (CORE, "Maru save error: 512 tokens exceeds chunk_size 256"),
        (CORE, traceback("RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED")),
        (CORE, "an error after it"),
    )
    cause = root_cause(text)
    assert cause == "RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED"
    assert errors_before(text, cause) == ["Maru save error: 512 tokens exceeds chunk_size 256"]
    foreign = "[2026-11-30 05:02:19,025] maru ERROR: no pool (handler.py:1:maru_handler)\n" + text
    assert len(errors_before(foreign, cause)) == 2


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_real_failures_had_no_errors_before_but_their_own_tracebacks(name):
    text = (LOGS / f"{name}.log").read_text()
    assert errors_before(text, root_cause(text)) == []


def test_processes_whose_lines_interleave():
    one, two = traceback("ValueError: mine").splitlines(), traceback("RuntimeError: Engine core initialization failed.")
    lines = [line for pair in zip(one, two.splitlines(), strict=True) for line in (CORE + pair[0], API + pair[1])]
    assert root_cause("\n".join(lines)) == "ValueError: mine"


@pytest.mark.parametrize(
    "line",
    [
        "api_server.py: error: unrecognized arguments: --bananas",
        "/venv/bin/python: No module named vllm",
        "Fatal Python error: Segmentation fault",
        "terminate called after throwing an instance of 'c10::Error'",
    ],
)
def test_words_without_traceback(line):
    assert root_cause(f"INFO 11-29 16:22:55 [a.py:1] hello\n{line}\n") == line


@pytest.mark.parametrize(
    "text", ["", "INFO 11-29 16:22:55 [a.py:1] all is well\n", "Traceback (most recent call last):"]
)
def test_nothing_to_say(text):
    assert root_cause(text) == ""


COUNTS = (
    "(APIServer pid=1) INFO 11-30 05:04:03 [loggers.py:335] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
    "generation throughput: 0.0 tokens/s, Running: {} reqs, Waiting: {} reqs, {} KV cache usage: {}%, Prefix cache hit "
    "rate: 0.0%"
)


@pytest.mark.parametrize("device", ["GPU", "CPU"])
def test_an_engine_that_waits_for_ever_with_a_full_cache_is_told_by_its_own_line(device):
    text = "\n".join([COUNTS.format(1, 0, device, 38.3), COUNTS.format(0, 1, device, 100.0), "INFO something else"])
    said = stall(text)
    assert "blocks are not freed" in said
    assert f"Running: 0 reqs, Waiting: 1 reqs, {device} KV cache usage: 100.0%" in said
    assert "\n" not in said


def test_one_that_waits_with_room_left_waits_for_blocks_or_for_a_load():
    """As an engine said whose connector never gave blocks free: the third prompt needed more than the rest."""
    said = stall(COUNTS.format(0, 1, "CPU", 52.0))
    assert "nothing runs, yet 52.0% of the cache stay in use: blocks are not freed, or a load" in said
    assert "Running: 0 reqs, Waiting: 1 reqs, CPU KV cache usage: 52.0%" in said


@pytest.mark.parametrize(
    "text",
    ["", "INFO no counts", COUNTS.format(1, 1, "GPU", 100.0), COUNTS.format(0, 0, "GPU", 0.0),
     COUNTS.format(0, 1, "GPU", 100.0) + "\n" + COUNTS.format(1, 0, "GPU", 40.0)],
)  # fmt: skip
def test_an_engine_at_work_or_at_rest_does_not_wait(text):
    assert stall(text) == ""
