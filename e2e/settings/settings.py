"""What one run is asked to do. Everything below ``settings`` takes typed arguments made from this.

The one home of the flags of a run: a field is a flag, a variable and a key of a ``--config`` file, and what is recorded
of it. Fields stand in groups; a command has the groups that its class in ``commands`` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from e2e.base.program import Program, program_of
from e2e.connectors.table import ADAPTERS, DEFAULT, SERVER_VARIABLES
from e2e.grid.axes import Value
from e2e.grid.cells import RERUN
from e2e.grid.selection import GRIDS, Selection
from e2e.scenarios.packs import stories
from e2e.settings import device as devices
from e2e.settings import parsers, program_file, quantities
from e2e.settings.flags import ON_OFF, Flags, flag, variable
from e2e.settings.parsers import at_least, one_of, word

RECORDING = "recording.jsonl"
#: What ``docker compose build engine-image`` makes.
ENGINE_IMAGE = "maru-e2e-engine:0.1.0"
#: A resumed run may change these: they don't change what is measured.
FREE_ON_RESUME = (
    "out", "resume", "argv", "strict", "start_limit_s", "request_limit_s", "engine_python", "start", "side_by_side",
    "runtime_env",
)  # fmt: skip
#: Shards of one grid may differ in these.
FREE_OF_SHARDS = ("shard", "executor", "runtime_env", *FREE_ON_RESUME)

Device = Annotated[
    Literal["cpu", "cuda"], word(devices.choose), flag("device", "auto, cpu or cuda.", metavar="DEVICE", default="auto")
]
Out = Annotated[
    Path, word(parsers.folder), flag("out", "Folder of the run.", metavar="DIR", default="results/<UTC time>")
]
EnginePython = Annotated[
    Path | None,
    word(parsers.python),
    flag("engine-python", "The Python that has vLLM.", metavar="PATH", default="this one, or that of maru-e2e setup"),
]
Prompts = Annotated[int, at_least(1), flag("prompts", "How many prompt lengths to solve.", metavar="N")]
ApiKey = Annotated[
    SecretStr | None,
    word(parsers.key),
    flag("api-key", "Key of an engine of somebody else; never recorded.", metavar="KEY"),
]
PromptsDir = Annotated[
    Path | None,
    word(parsers.texts),
    flag("prompts-dir", "Folder with texts (*.txt) for the prompts.", metavar="DIR", default="the shipped texts"),
]
MaxTokens = Annotated[int, at_least(1), flag("max-tokens", "Tokens to generate per request.", metavar="N")]


class Grids(Flags):
    grid: Annotated[
        tuple[dict[str, tuple[Value, ...]], ...],
        word(parsers.grid),
        flag("grid", "default, full, pairwise, or a TOML file with a table [grid].", metavar="GRID", default="default"),
    ] = tuple(dict(part) for part in GRIDS["default"])


class Cells(Flags):
    cells: Annotated[
        tuple[dict[str, Value], ...],
        parsers.each(parsers.cell),
        flag(
            "cell", "Narrow or change the grid; several are alternatives.", default="all", metavar="axis=value,...",
        ),
    ] = ()  # fmt: skip


class Scenarios(Flags):
    """``program``: as a recording has it, see ``base.program.plainly``. ``seed``, ``for_s``: of a soak, which takes
    about so many seconds."""

    scenarios: Annotated[
        tuple[str, ...],
        parsers.each(parsers.scenario),
        flag("scenario", "Story of each cell, or a pack of them; several add up.", metavar="NAME", default="replay"),
    ] = (RERUN,)
    program: Annotated[
        dict[str, object] | None,
        program_file.BUILDABLE,
        word(program_file.read),
        flag("program", "The story of each cell, as maru-e2e shrink wrote it.", metavar="FILE.json"),
    ] = None
    seed: Annotated[
        int,
        at_least(0),
        flag("seed", "Of --scenario soak: the same one makes the same story.", metavar="N"),
    ] = 0
    for_s: Annotated[
        float,
        word(quantities.duration),
        flag("for", "About how long a soak takes, such as 30m.", metavar="TIME", default="60s"),
    ] = 60.0


class Connected(Flags):
    connector: Annotated[
        str,
        word(parsers.connector),
        flag(
            "connector",
            f"{', '.join(ADAPTERS)}, a TOML file, or module:Class.",
            metavar="NAME|FILE.toml|MODULE:CLASS",
        ),
    ] = DEFAULT
    pool_bytes: Annotated[
        int | None,
        word(quantities.size),
        flag("pool-size", "The connector's pool, such as 2G.", metavar="SIZE"),
    ] = None
    pool_pace: Annotated[
        str | None,
        word(quantities.pace),
        flag("pool-pace", "Bandwidth and latency of the link to it, such as 20GB/s,300ns.", metavar="PACE"),
    ] = None


class Served(Flags):
    """``connector_server``: host:port of a server of the connector that somebody else runs."""

    connector_server: Annotated[
        str | None,
        word(parsers.address),
        flag(
            "connector-server",
            f"A running server of the connector instead of fresh ones; also {', '.join(SERVER_VARIABLES)}.",
            metavar="HOST:PORT",
            variables=(variable("connector-server"), *SERVER_VARIABLES),
        ),
    ] = None  # fmt: skip


class Attached(Flags):
    """``attach``: URL of a running engine, or None to start engines. ``api_key``: that it asks for; it is never
    recorded, so a resumed run needs it again."""

    attach: Annotated[
        str | None, word(parsers.url), flag("attach", "Use a running engine instead of starting any.", metavar="URL")
    ] = None
    api_key: ApiKey = Field(default=None, exclude=True)


class Engines(Flags):
    """``attention``: "strided" (the rig's own CPU backend), "stock", or a backend's name; None leaves it to vLLM.
    ``engine_python``: the interpreter that has vLLM, None for this one. ``start``: engines on a CPU are forks of one
    process that has imported vLLM, or each starts as a user's would. Sizes in bytes, limits in seconds."""

    model: Annotated[
        str, word(parsers.model), flag("model", "smollm2, a model folder, or a hub id.", metavar="MODEL")
    ] = "smollm2"
    device: Device = "cpu"
    attention: Annotated[
        str | None,
        word(parsers.attention),
        flag(
            "attention",
            "strided, stock, or a backend of vLLM.",
            metavar="BACKEND",
            default="strided on a CPU, else vLLM's choice",
        ),
    ] = None
    kv_cache_bytes: Annotated[
        int | None, word(quantities.size), flag("kv-cache-size", "KV cache of an engine, such as 1G.", metavar="SIZE")
    ] = None
    engine_python: EnginePython = None
    start: Annotated[
        Literal["fork", "stock"],
        one_of("fork", "stock"),
        flag("start", "Engines on a CPU: fork one process that has imported vLLM, or stock.", metavar="HOW"),
    ] = "fork"
    start_limit_s: Annotated[
        float,
        word(quantities.seconds),
        flag("start-limit-s", "Longest engine start in seconds.", metavar="S", default="{:g}".format),
    ] = 300.0
    request_limit_s: Annotated[
        float,
        word(quantities.seconds),
        flag("request-limit-s", "Longest request in seconds.", metavar="S", default="{:g}".format),
    ] = 120.0


class Beside(Flags):
    """``side_by_side``: engines of different engine keys that share the device; with more than one nothing is timed."""

    side_by_side: Annotated[
        int,
        at_least(1),
        flag("side-by-side", "Engines that run at once; with more than one no cell is timed.", metavar="N"),
    ] = 1


class Timed(Flags):
    """``timed``: no other engine of the rig runs on this machine meanwhile."""

    timed: Annotated[
        bool,
        word(parsers.switch),
        flag("timed", "Let no other run of the rig have engines here meanwhile; waits for its end.", default=False),
    ] = False


class Launched(Flags):
    launcher: Annotated[
        Literal["process", "docker"],
        one_of("process", "docker"),
        flag("launcher", "process or docker.", metavar="LAUNCHER"),
    ] = "process"
    image: Annotated[
        str, parsers.some("an image's name"), flag("image", "Engine image of --launcher docker.", metavar="NAME")
    ] = ENGINE_IMAGE


class Prompted(Flags):
    """``lengths`` in tokens (empty: ``prompts`` of them are solved). ``prompts_dir``: a folder of texts, None for those
    of the package."""

    lengths: Annotated[
        tuple[int, ...],
        parsers.numbers("tokens; write 385,1041"),
        flag("lengths", "Prompt lengths in tokens.", metavar="n,n,...", default="solved"),
    ] = ()
    prompts: Prompts = 3
    prompts_dir: PromptsDir = None
    max_tokens: MaxTokens = 8


class Digested(Flags):
    digests: Annotated[
        bool, word(parsers.switch), flag("digests", "Hash KV in the engine.", off="--no-digests", default=ON_OFF)
    ] = True


class Judged(Flags):
    strict: Annotated[
        bool,
        word(parsers.switch),
        flag("strict", "A cell that can't see a class of fault is inconclusive.", off="--no-strict", default=ON_OFF),
    ] = False


class Planted(Flags):
    """``faults``: those of a self-test, empty for all, "none" for clean cells alone. ``rounds``: how often each of its
    clean cells is replayed. ``once``: is each fault planted in one cell only, of each story that is to see it."""

    faults: Annotated[
        tuple[str, ...],
        parsers.words(parsers.faults),
        flag("fault", "A fault to plant; several add up. none: clean cells only.", metavar="NAME", default="all"),
    ] = ()
    rounds: Annotated[int, at_least(1), flag("rounds", "How often each clean cell is replayed.", metavar="N")] = 1
    once: Annotated[
        bool,
        word(parsers.switch),
        flag("once", "Plant each fault in the first cell only of each story that is to see it.", default=False),
    ] = False


class Sharded(Flags):
    """``shard``: (i, n), the i-th of n shares of the cells; None: all of them."""

    shard: Annotated[
        tuple[int, int] | None,
        word(parsers.shard),
        flag("shard", "Run one share of the cells only; maru-e2e merge puts them together.", metavar="I/N"),
    ] = None


class Executed(Flags):
    """``executor``: who plays engine keys: this process, one after the other, or a Ray cluster as tasks.
    ``runtime_env``: file of the surroundings that Ray is to make for them."""

    executor: Annotated[
        Literal["local", "ray"],
        one_of("local", "ray"),
        flag("executor", "local, or ray: engine keys are tasks of a Ray cluster.", metavar="EXECUTOR"),
    ] = "local"
    runtime_env: Annotated[
        Path | None,
        word(parsers.json_object),
        flag("runtime-env", "Runtime environment of --executor ray.", metavar="FILE.json"),
    ] = None


class Kept(Flags):
    out: Out = Path("results")
    resume: Annotated[
        bool,
        word(parsers.switch),
        flag("resume", "Continue the run in --out, by default the newest.", default=False),
    ] = False


class Settings(
    Kept, Sharded, Executed, Planted, Judged, Digested, Prompted, Timed, Beside, Launched, Attached, Engines, Served,
    Connected, Scenarios, Cells, Grids,
):  # fmt: skip
    """``argv``: the command line, for the report. ``self_test``: every cell once more with each planted fault, or with
    those of ``faults``, and clean cells ``rounds`` times."""

    self_test: bool = False
    argv: tuple[str, ...] = ()

    @property
    def selection(self) -> Selection:
        return Selection(self.grid, self.cells)

    @property
    def told(self) -> Program | None:
        """The program of ``--program``."""
        return program_of(self.program) if self.program is not None else None

    @property
    def stories(self) -> Mapping[str, int | None]:
        """Scenario -> cells that it is told of, None: all."""
        return {self.told.scenario: None} if self.told else stories(self.scenarios)

    @property
    def recording(self) -> Path:
        return self.out / RECORDING

    @property
    def axis_defaults(self) -> Mapping[str, Value]:
        """What suits the device where nobody chose. On a CPU bfloat16, as on GPUs, prefills twice as fast as float32;
        vLLM's own backend takes whole multiples of 32 tokens, 128 by default (docs/vllm.md#block-size)."""
        if self.device == "cuda" or self.attach:
            return {}
        return {"dtype": "bfloat16", **({} if self.attention == "strided" else {"block_size": 128})}

    @property
    def axis_fixed(self) -> Mapping[str, Value]:
        """What the attention backend decides: vLLM's own one for CPUs has one layout (docs/vllm.md#layouts)."""
        free = self.device == "cuda" or self.attach or self.attention == "strided"
        return {} if free else {"layout": "HND"}

    def as_json(self) -> dict[str, object]:
        """As it stands in ``run.begin``, without the key; ``Settings.recorded`` is the inverse."""
        return self.model_dump(mode="json")

    @classmethod
    def recorded(cls, values: Mapping[str, object]) -> Settings:
        """From values that are no words any more. Raises pydantic's ValidationError."""
        return cls.model_validate(values, context=parsers.READ)
