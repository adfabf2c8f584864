"""What one run is asked to do. Everything below ``settings`` takes typed arguments made from this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from e2e.grid.axes import Value
from e2e.grid.selection import GRIDS, Selection

RECORDING = "recording.jsonl"
#: What ``docker compose build engine-image`` makes.
ENGINE_IMAGE = "maru-e2e-engine:0.1.0"
#: A resumed run may change these: they don't change what is measured.
FREE_ON_RESUME = ("out", "resume", "argv", "strict", "start_limit_s", "request_limit_s", "engine_python")


class Settings(BaseModel):
    """``attach``: URL of a running engine, or None to start engines. ``out``: folder of the run. ``attention``:
    "strided" (the rig's own CPU backend), "stock", or a backend's name; None leaves it to vLLM. Sizes in bytes, limits
    in seconds, ``lengths`` in tokens (empty: ``prompts`` of them are solved). ``argv``: the command line, for the
    report. ``self_test``: every cell once more with each planted fault, or with those of ``faults``, and clean cells
    ``rounds`` times. ``connector_server``: host:port of a server of the connector that somebody else runs. ``api_key``:
    of the engine of ``attach``; it is never recorded, so a resumed run needs it again. ``prompts_dir``: a folder of
    texts, None for those of the package. ``engine_python``: the interpreter that has vLLM, None for this one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    grid: tuple[dict[str, tuple[Value, ...]], ...] = Field(default=tuple(dict(p) for p in GRIDS["default"]))
    cells: tuple[dict[str, Value], ...] = ()
    connector: str = "embedded"
    connector_server: str | None = None
    attach: str | None = None
    lengths: tuple[int, ...] = ()
    resume: bool = False
    out: Path = Path("results")
    model: str = "smollm2"
    strict: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    attention: str | None = None
    pool_bytes: int | None = None
    kv_cache_bytes: int | None = None
    max_tokens: int = 8
    start_limit_s: float = 300.0
    request_limit_s: float = 120.0
    digests: bool = True
    prompts: int = 3
    self_test: bool = False
    faults: tuple[str, ...] = ()
    rounds: int = 1
    launcher: Literal["process", "docker"] = "process"
    image: str = ENGINE_IMAGE
    api_key: SecretStr | None = Field(default=None, exclude=True)
    prompts_dir: Path | None = None
    engine_python: Path | None = None
    argv: tuple[str, ...] = ()

    @property
    def selection(self) -> Selection:
        return Selection(self.grid, self.cells)

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
        """As it stands in ``run.begin``, without the key; ``Settings.model_validate`` is the inverse."""
        return self.model_dump(mode="json")
