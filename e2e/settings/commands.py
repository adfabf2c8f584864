"""Which flags each command has: the groups of a run's settings, and its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from e2e.settings import parsers, quantities
from e2e.settings.flags import PREFIX, Flags, flag
from e2e.settings.parsers import at_least, one_of, word
from e2e.settings.settings import (
    ApiKey,
    Attached,
    Beside,
    Cells,
    Connected,
    Device,
    Digested,
    EnginePython,
    Engines,
    Executed,
    Grids,
    Judged,
    Kept,
    Launched,
    MaxTokens,
    Out,
    Planted,
    Prompted,
    Prompts,
    PromptsDir,
    Scenarios,
    Served,
    Sharded,
    Timed,
)


class Configured(Flags):
    """``config`` is read before the rest, by ``sources.from_file``."""

    config: Annotated[
        Path | None,
        word(parsers.path),
        flag("config", "A TOML file with flags, such as max-tokens = 4; flags and variables win.", metavar="FILE.toml"),
    ] = None


class RunFlags(
    Configured, Kept, Sharded, Executed, Judged, Digested, Prompted, Timed, Beside, Launched, Attached, Engines, Served,
    Connected, Scenarios, Cells, Grids,
):  # fmt: skip
    pass


class FaultFlags(
    Configured, Kept, Sharded, Executed, Digested, Prompted, Beside, Launched, Engines, Served, Connected, Scenarios,
    Cells, Grids, Planted,
):  # fmt: skip
    prompts: Prompts = 2
    max_tokens: MaxTokens = 4


class GainFlags(Configured, Prompted, Engines, Served, Connected, Cells):
    """``axis``: its name and two values."""

    axis: Annotated[
        tuple[str, str, str] | None,
        parsers.comparison(),
        flag("axis", "Compare two values of an axis, such as placement index kernel.", metavar="AXIS A B"),
    ] = None
    a: Annotated[
        str | None,
        word(parsers.connector),
        flag("a", "Compare this connector ...", metavar="NAME|FILE.toml|MODULE:CLASS"),
    ] = None
    b: Annotated[
        str | None, word(parsers.connector), flag("b", "... with this one.", metavar="NAME|FILE.toml|MODULE:CLASS")
    ] = None
    concurrency: Annotated[
        tuple[int, ...],
        parsers.numbers("requests; write 1,8"),
        flag("concurrency", "Requests at once.", metavar="n,n,...", default="1,8"),
    ] = (1, 8)
    repeats: Annotated[
        int, at_least(2), flag("repeats", "Pairs per length, concurrency, and look or round.", metavar="N")
    ] = 10
    looks: Annotated[
        int,
        at_least(1),
        flag("looks", "Of --axis: how often as many pairs are drawn, at most.", metavar="N"),
    ] = 3
    effect: Annotated[
        float,
        word(quantities.percent),
        flag("effect", "Smallest saving of TTFT that matters, in percent.", metavar="PERCENT"),
    ] = 5.0
    rounds: Annotated[int, at_least(1), flag("rounds", "Engine starts per side of --a and --b.", metavar="N")] = 2
    out: Out = Path("results")
    judge: Annotated[
        Path | None,
        word(parsers.path),
        flag("judge", "Judge a recorded comparison again; nothing is run.", metavar="DIR"),
    ] = None


def _own(name: str) -> tuple[str, ...]:
    """The canary's variable, where another command has a flag of that name which means something else."""
    return (f"{PREFIX}CANARY_{name}",)


class CanaryFlags(Configured):
    """``targets``: addresses of engines in use. ``share``: of the tokens that a target serves; ``tokens_a_minute`` and
    ``store_tokens``, an hour, of each. ``token_bytes``, ``store``: bytes; ``store_share``: of it, an hour, for all
    targets together. ``resets``, ``locates``: more than reading is allowed. ``keeps``: bytes. ``for_s`` and ``probes``:
    None, until it is stopped."""

    targets: Annotated[
        tuple[str, ...],
        parsers.each(parsers.url),
        flag("target", "An engine in use; give several that share a store.", metavar="URL", default=False),
    ] = ()
    api_key: ApiKey = Field(default=None, exclude=True)
    api_key_file: Annotated[
        SecretStr | None,
        word(parsers.key_file),
        flag("api-key-file", "A file that holds the key of the engines.", metavar="FILE"),
    ] = Field(default=None, exclude=True)
    tokens_a_minute: Annotated[
        int, at_least(1), flag("tokens-a-minute", "Tokens that probes may take of each engine.", metavar="N")
    ] = 6000
    share: Annotated[
        float,
        word(quantities.share),
        flag("share", "Part of an engine's served tokens that may be ours.", metavar="SHARE", default="0.5%"),
    ] = 0.005
    store_tokens: Annotated[
        int, at_least(1), flag("store-tokens", "Tokens of KV that each engine may store for us an hour.", metavar="N")
    ] = 100_000
    token_bytes: Annotated[
        int | None,
        word(quantities.size),
        flag("token-bytes", "Bytes of a token's KV in the store.", metavar="SIZE", default="not known"),
    ] = None
    store: Annotated[
        int | None, word(quantities.size), flag("store", "Size of the store.", metavar="SIZE", default="not known")
    ] = None
    store_share: Annotated[
        float,
        word(quantities.share),
        flag("store-share", "Part of --store that may be put there an hour.", metavar="SHARE", default="1%"),
    ] = 0.01
    longest: Annotated[int, at_least(256), flag("longest", "The longest prompt in tokens.", metavar="N")] = 1024
    max_tokens: MaxTokens = 12
    chunk: Annotated[int, at_least(1), flag("chunk", "Tokens of a chunk of the store, if known.", metavar="N")] = 256
    block: Annotated[int, at_least(1), flag("block", "Tokens of a block of vLLM, if known.", metavar="N")] = 16
    step: Annotated[
        int | None, at_least(1), flag("step", "Tokens of a prefill step, if known.", metavar="N", default="not known")
    ] = None
    batch_invariant: Annotated[
        bool,
        word(parsers.switch),
        flag("batch-invariant", "They run with VLLM_BATCH_INVARIANT=1: exact beside others, too.", default=False),
    ] = False
    resets: Annotated[
        bool,
        word(parsers.switch),
        flag("reset", "A lone engine's own cache may be emptied (dev mode), so that it loads.", default=False),
    ] = False
    locates: Annotated[
        bool,
        word(parsers.switch),
        flag("locate", "The rig's worker extension may be asked where a load is wrong.", default=False),
    ] = False
    request_limit_s: Annotated[
        float,
        word(quantities.seconds),
        flag("request-limit-s", "Longest request in seconds.", metavar="S", default="{:g}".format),
    ] = 60.0
    prompts_dir: PromptsDir = None
    listen: Annotated[
        tuple[str, int],
        word(parsers.listen),
        flag("listen", "Where /metrics and /healthz are.", metavar="HOST:PORT", default="127.0.0.1:9464"),
    ] = ("127.0.0.1", 9464)
    keeps: Annotated[
        int, word(quantities.room), flag("keep", "Room on disk for recordings.", metavar="SIZE", default="256M")
    ] = 256 << 20
    out: Annotated[
        Path,
        word(parsers.folder),
        flag("out", "Folder of the recordings.", metavar="DIR", default="results/canary", variables=_own("OUT")),
    ] = Path("results/canary")
    for_s: Annotated[
        float | None,
        word(quantities.duration),
        flag("for", "Stop after so long.", metavar="TIME", default="never", variables=_own("FOR")),
    ] = None
    probes: Annotated[int | None, at_least(1), flag("probes", "Stop after so many.", metavar="N", default="never")] = (
        None
    )

    @property
    def key(self) -> str | None:
        """Of the engines; never recorded."""
        given = self.api_key or self.api_key_file
        return given.get_secret_value() if given else None


class PlacementFlags(Flags):
    out: Annotated[Path, word(parsers.folder), flag("out", "Folder for the results.", metavar="DIR")] = Path(
        "results/placement"
    )
    device: Device = "cpu"
    engine_python: EnginePython = None
    quick: Annotated[bool, word(parsers.switch), flag("quick", "Fewer shapes in the benchmark.", default=False)] = False


class JudgeFlags(Flags):
    """MARU_E2E_OUT is the folder of a run; the reports of another one must not land there."""

    out: Annotated[
        Path | None,
        word(parsers.folder),
        flag(
            "out", "Write the reports there.", metavar="DIR", default="the run's folder",
            variables=("MARU_E2E_JUDGE_OUT",),
        ),
    ] = None  # fmt: skip


class ScoreboardFlags(Flags):
    out: Annotated[
        Path | None,
        word(parsers.folder),
        flag(
            "out", "Write scoreboard.md and scoreboard.json there.", metavar="DIR", default="printed only",
            variables=("MARU_E2E_SCOREBOARD_OUT",),
        ),
    ] = None  # fmt: skip


class MergeFlags(Flags):
    """MARU_E2E_OUT is the folder of a run, such as a shard's."""

    out: Annotated[
        Path | None,
        word(parsers.folder),
        flag(
            "out", "Folder of the whole.", metavar="DIR", default="results/<UTC time>",
            variables=("MARU_E2E_MERGE_OUT",),
        ),
    ] = None  # fmt: skip


class ShrinkFlags(Flags):
    """What is shrunk is what its run was asked for, so that none of that is asked here."""

    cell: Annotated[
        str | None,
        parsers.some("a cell's id"),
        flag("cell", "The corrupt cell.", metavar="ID", default="the only one", variables=("MARU_E2E_SHRINK_CELL",)),
    ] = None
    starts: Annotated[int, at_least(1), flag("starts", "Engine starts, at most.", metavar="N")] = 12
    minutes: Annotated[
        float, word(quantities.minutes), flag("minutes", "Minutes, at most.", metavar="N", default="{:g}".format)
    ] = 15.0
    out: Annotated[
        Path | None,
        word(parsers.folder),
        flag(
            "out", "Folder of the search.", metavar="DIR", default="DIR/shrunk-ID", variables=("MARU_E2E_SHRINK_OUT",)
        ),
    ] = None
    resume: Annotated[bool, word(parsers.switch), flag("resume", "Continue the search in --out.", default=False)] = (
        False
    )


class DoctorFlags(Served):
    engine_python: EnginePython = None


class NightFlags(Flags):
    history: Annotated[
        Path | None,
        word(parsers.path),
        flag("history", "Folder of earlier nights.", metavar="DIR", default="the one that DIR lies in"),
    ] = None


class SetupFlags(Flags):
    """Another ``device`` than this machine's can be set up for."""

    vllm: Annotated[
        str | None,
        flag("vllm", "Another version of vLLM, such as 0.23.0.", metavar="VERSION", default="the one that fits"),
    ] = None
    venv: Annotated[
        Path | None, word(parsers.path), flag("venv", "The environment.", metavar="DIR", default="one of the user")
    ] = None
    device: Annotated[str, one_of("auto", "cpu", "cuda"), flag("device", "auto, cpu or cuda.", metavar="DEVICE")] = (
        "auto"
    )
    dry_run: Annotated[bool, word(parsers.switch), flag("dry-run", "Say what would be done.", default=False)] = False
