"""What makes a field of a settings class a flag, a variable and a key of a ``--config`` file at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict

PREFIX = "MARU_E2E_"
#: A parameter of a command whose fields are flags of that command.
FLAT = Parameter(name="*")
#: How help shows a switch.
ON_OFF = {True: "on", False: "off"}.__getitem__
#: The cyclopts for Python 3.10 doesn't know it.
_HAS_METAVAR = "metavar" in inspect.signature(Parameter).parameters


class Flags(BaseModel):
    """What a command was given. ``model_fields_set`` tells what was given from what holds by default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @property
    def given(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.model_fields_set}


def variable(name: str) -> str:
    return PREFIX + name.upper().replace("-", "_")


def flag(
    name: str,
    help: str,
    *,
    metavar: str | None = None,
    default: str | bool | Callable[[Any], str] | None = None,
    variables: tuple[str, ...] = (),
    off: str | None = None,
) -> Parameter:
    """``--name``, the variable ``MARU_E2E_<NAME>`` (or those of ``variables``, the first that is set) and the key
    ``name`` of a file.

    ``default``: how help shows the field's default, where that isn't its own text; False: not at all. ``off``: the flag
    that unsets it.
    """
    more = {"metavar": metavar} if _HAS_METAVAR else {}
    return Parameter(
        name=f"--{name}", help=help, show_default=default, env_var=variables or variable(name),
        show_env_var=False, negative=off or (), n_tokens=None if metavar is None else 1 + metavar.count(" "),
        show_choices=False, accepts_keys=False, json_dict=False, json_list=False, **more,
    )  # fmt: skip
