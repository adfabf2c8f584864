"""Adapters that somebody else wrote: by an entry point of the group ``maru_e2e.connectors``, or as ``module:Class``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isclass

from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError

GROUP = "maru_e2e.connectors"
_ATTRIBUTES = ("name", "axes", "engine_axes", "description")
#: Attributes of an adapter that are facts of its ``abilities`` now -> what they are called there.
FORMER = {name: name for name in ("plants_faults", "owns_store", "longest_prompt")} | {"has_counters": "counters"}


def offered() -> Mapping[str, Sequence[EntryPoint]]:
    """Name -> the entry points of that name; more than one where distributions clash."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=GROUP):
        if point not in found[point.name]:
            found[point.name].append(point)
    return found


def by_entry_point(name: str, points: Sequence[EntryPoint]) -> type[Adapter]:
    """Raises SettingsError when more than one distribution offers the name, or when what it offers is no adapter."""
    whose = [point.dist.name if point.dist else point.value for point in points]
    if len(points) > 1:
        raise SettingsError(
            f"connector {name!r} is offered by {' and '.join(whose)}; uninstall one, or name module:Class."
        )
    return by_path(points[0].value, told_by=f"connector {name!r} of {whose[0]}")


def by_path(path: str, *, told_by: str = "") -> type[Adapter]:
    """``package.module:Class``. Raises SettingsError, in one sentence, for whatever keeps it from being an adapter."""
    told_by = told_by or f"connector {path!r}"
    module, _, attribute = (part.strip() for part in path.partition(":"))
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise SettingsError(f"{told_by}: {path!r} is no place of a class; write package.module:Class.")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise SettingsError(f"{told_by}: {module} needs {error.name}, which is not installed here.") from error
        raise SettingsError(
            f"{told_by}: there is no module {error.name}; install it here, or set PYTHONPATH."
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that ends Python is no adapter either
        raise SettingsError(f"{told_by}: importing {module} fails ({_one_line(error)}).") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise SettingsError(f"{told_by}: {module} has no {attribute}; check its name.")
    if not isclass(found):
        raise SettingsError(f"{told_by}: {path} is no class but {type(found).__name__}; name an adapter's class.")
    if lacking := lacks(found):
        raise SettingsError(
            f"{told_by}: {path} is no adapter, it lacks {', '.join(lacking)}; see {Adapter.__module__}."
        )
    return found


def lacks(found: type) -> list[str]:
    """What an adapter must have and this class has not; a dataclass's field without a default counts as had."""
    if not issubclass(found, Adapter):
        return [f"the base class {Adapter.__module__}.Adapter"]
    fields = getattr(found, "__dataclass_fields__", {})
    lacking = [name for name in _ATTRIBUTES if not hasattr(found, name) and name not in fields]
    former = {was: now for was, now in FORMER.items() if hasattr(found, was)}
    lacking += [f"abilities = Abilities({now}=...) in place of {was}" for was, now in former.items()]
    return lacking + sorted(found.__abstractmethods__)


def made(found: type[Adapter], name: str, given: Mapping[str, object]) -> Adapter:
    """Raises SettingsError when it can't be made of what was given."""
    try:
        return found(**given)
    except Exception as error:
        raise SettingsError(
            f"connector {name!r} can't be made ({_one_line(error)}); an adapter needs no argument."
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
