"""The flags of the command line, each declared once. None means not given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from e2e.settings.settings import ENGINE_IMAGE

Grid = Annotated[
    str | None, typer.Option(help="default, full, pairwise, or a TOML file with a table [grid].", metavar="GRID")
]
Cells = Annotated[
    list[str] | None,
    typer.Option("--cell", help="Narrow or change the grid; several are alternatives.", metavar="axis=value,..."),
]
Connector = Annotated[
    str | None,
    typer.Option(
        help="embedded (default), maru, lmcache, offloading, example, decode-bench, ..., or a TOML file.",
        metavar="NAME|FILE.toml",
        envvar="MARU_E2E_CONNECTOR",
    ),
]
ConnectorServer = Annotated[
    str | None,
    typer.Option(
        help="A running server of the connector (maru-server, LMCache) instead of fresh ones.",
        metavar="HOST:PORT",
        envvar="MARU_SERVER_URL",
    ),
]
Attach = Annotated[str | None, typer.Option(help="Use a running engine instead of starting any.", metavar="URL")]
Lengths = Annotated[str | None, typer.Option(help="Prompt lengths in tokens; solved by default.", metavar="n,n,...")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out (default: the newest).")]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the run [default: results/<UTC time>].", metavar="DIR", envvar="MARU_E2E_OUT"),
]
Model = Annotated[
    str | None,
    typer.Option(help="smollm2 (default), a model folder, or a hub id.", metavar="MODEL", envvar="MARU_E2E_MODEL"),
]
Strict = Annotated[
    bool | None,
    typer.Option(
        "--strict/--no-strict", help="A cell that can't see a class of fault is inconclusive.", show_default=False
    ),
]
Device = Annotated[
    str | None, typer.Option(help="auto (default), cpu or cuda.", metavar="DEVICE", envvar="MARU_E2E_DEVICE")
]
Attention = Annotated[
    str | None, typer.Option(help="strided (default on CPU), stock, or a backend of vLLM.", metavar="BACKEND")
]
PoolSize = Annotated[str | None, typer.Option(help="Pool of the embedded connector, such as 2G.", metavar="SIZE")]
KvCacheSize = Annotated[str | None, typer.Option(help="KV cache of an engine, such as 1G.", metavar="SIZE")]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens to generate per request [default: 8].", metavar="N")]
StartLimit = Annotated[
    float | None, typer.Option("--start-limit-s", help="Longest engine start in seconds [default: 300].", metavar="S")
]
RequestLimit = Annotated[
    float | None, typer.Option("--request-limit-s", help="Longest request in seconds [default: 120].", metavar="S")
]
LaunchWith = Annotated[str | None, typer.Option("--launcher", help="process (default) or docker.", metavar="LAUNCHER")]
Image = Annotated[
    str | None,
    typer.Option(help=f"Engine image of --launcher docker [default: {ENGINE_IMAGE}].", metavar="NAME"),
]
Digests = Annotated[
    bool | None,
    typer.Option("--digests/--no-digests", help="Hash KV in the engine [default: on].", show_default=False),
]
Prompts = Annotated[int | None, typer.Option(help="How many prompt lengths to solve.", metavar="N")]
Faults = Annotated[
    list[str] | None, typer.Option("--fault", help="A fault to plant; several add up. All by default.", metavar="NAME")
]
Rounds = Annotated[int | None, typer.Option(help="How often each clean cell is replayed [default: 1].", metavar="N")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run.", metavar="DIR")]
NightFolder = Annotated[Path, typer.Argument(help="Folder of a night of scripts/nightly.", metavar="DIR")]
History = Annotated[
    Path | None, typer.Option(help="Folder of earlier nights [default: the one that DIR lies in].", metavar="DIR")
]
Axis = Annotated[
    tuple[str, str, str] | None,
    typer.Option(help="Compare two values of an axis, such as placement index kernel.", metavar="AXIS A B"),
]
SpecA = Annotated[str | None, typer.Option("--a", help="Compare this connector ...", metavar="NAME|FILE.toml")]
SpecB = Annotated[str | None, typer.Option("--b", help="... with this one.", metavar="NAME|FILE.toml")]
AtOnce = Annotated[
    str | None, typer.Option("--concurrency", help="Requests at once [default: 1,8].", metavar="n,n,...")
]
Repeats = Annotated[int, typer.Option(help="Pairs per length, concurrency and round.", metavar="N", min=2)]
GainRounds = Annotated[int, typer.Option("--rounds", help="Engine starts per side of --a and --b.", min=1, metavar="N")]
JudgeOnly = Annotated[
    Path | None, typer.Option("--judge", help="Judge a recorded comparison again; nothing is run.", metavar="DIR")
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer shapes in the benchmark.")]
ApiKey = Annotated[
    str | None,
    typer.Option(help="Key of the engine of --attach; never recorded.", metavar="KEY", envvar="MARU_E2E_API_KEY"),
]
PromptsDir = Annotated[
    str | None,
    typer.Option(help="Texts (*.txt) for the prompts instead of the shipped ones.", metavar="DIR"),
]
EnginePython = Annotated[
    str | None,
    typer.Option(help="The Python that has vLLM [default: this one, or that of maru-e2e setup].", metavar="PATH"),
]
Vllm = Annotated[str | None, typer.Option(help="Another version of vLLM, such as 0.23.0.", metavar="VERSION")]
Venv = Annotated[Path | None, typer.Option(help="The environment [default: one of the user].", metavar="DIR")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")]
