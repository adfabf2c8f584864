"""On logs of real failing starts (vLLM 0.32 CPU), and on short ones for what those lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.stack.root_cause import root_cause

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


def test_the_first_of_a_chain_the_last_of_several():
    text = log(
        (CORE, traceback("ImportError: a plugin that was only left out")),
        (CORE, traceback("KeyError: 'layers.0'")),
        (CORE, "\nThe above exception was the direct cause of the following exception:\n"),
        (CORE, traceback("RuntimeError: connector failed")),
    )
    assert root_cause(text) == "KeyError: 'layers.0'"


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
