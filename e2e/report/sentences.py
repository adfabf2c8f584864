"""Finding -> one sentence. The only place where evidence becomes prose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from e2e.base.judgement import CellJudgement
from e2e.base.verdict import Finding, Reason

Evidence = Mapping[str, object]


def sentence(finding: Finding) -> str:
    """What the reason means, then what was seen: ``The engine crashed: OutOfMemoryError (HND.connector.1, run).``"""
    seen = detail(finding)
    return f"{meaning(finding.reason)}: {seen}" if seen else f"{meaning(finding.reason)}."


def detail(finding: Finding) -> str:
    """What was seen, without what it means; may be empty."""
    text = _DETAILS.get(finding.reason, _listed)(finding.evidence).rstrip(".")
    return f"{text}." if text else ""


def meaning(reason: Reason) -> str:
    """The reason's own sentence, without its full stop."""
    text = reason.sentence
    return text if text.startswith("vLLM") else text[0].upper() + text[1:]


def pattern(seen: Evidence) -> str:
    """What the digests say was done to the KV, in words; empty where they name no pattern."""
    name = str(seen.get("pattern") or "")
    try:
        return _PATTERNS[name].format_map(seen)
    except (KeyError, ValueError, TypeError):
        return name


def headline(cell: CellJudgement) -> str:
    """The worst finding of a cell as a sentence; empty for a pass."""
    return sentence(cell.findings[0]) if cell.findings else ""


def verdict_text(cell: CellJudgement) -> str:
    """``corrupt: logprobs differ``."""
    return cell.verdict.value if cell.reason is None else f"{cell.verdict.value}: {cell.reason.slug}"


def _where(seen: Evidence) -> str:
    """``baseline engine, arm external, prompt 2`` as far as it is there. That of the connector goes without saying."""
    engine = seen.get("engine", "connector")
    parts = ["" if engine == "connector" else f"{engine} engine"]
    parts += [f"{key} {seen[key]}" for key in ("arm", "prompt") if seen.get(key) is not None]
    prompts = seen.get("prompts")
    if isinstance(prompts, (list, tuple)) and prompts:
        parts.append(f"prompt{'s' if len(prompts) > 1 else ''} {', '.join(map(str, prompts))}")
    return ", ".join(part for part in parts if part)


def _join(where: str, what: str) -> str:
    return f"{where}: {what}" if where and what else where or what


def _difference(seen: Evidence) -> str:
    expected, found = [*_pair(seen.get("logprobs")), None, None][:2]
    at = f"output position {seen.get('position')}"
    if seen.get("kind") == "tokens":
        what = f"token {seen.get('found')} ({_number(found)}) instead of {seen.get('expected')} ({_number(expected)})"
    elif seen.get("kind") == "logprobs":
        what = f"token {seen.get('found')} has logprob {_number(found)} instead of {_number(expected)}"
    else:
        what = "the logprobs of tokens that were not chosen differ"
    text = f"{at}: {what}, compared with {seen.get('reference')}"
    if "noise" in seen:
        lead = "the found token is not among the reference's top"
        if seen.get("lead") is not None:
            lead = f"the expected token leads by {_number(seen['lead'])}"
        text += f"; {lead}, the baseline's own noise is {_number(seen['noise'])}"
    return _join(_where(seen), text)


def _pair(values: object) -> list[object]:
    return list(values) if isinstance(values, (list, tuple)) else []


def _number(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else "none" if value is None else str(value)


def _hit(seen: Evidence) -> str:
    if seen.get("source") == "prediction":
        return _join(_where(seen), "too short for the connector, which serves no token of it")
    if "expected" in seen:
        source = {"request": "the request reports", "connector": "the connector counts"}.get(
            str(seen.get("source")), f"{seen.get('source')} counts"
        )
        least = f"{seen['least']} to " if "least" in seen else ""
        return _join(_where(seen), f"{least}{seen['expected']} tokens were to be served, {source} {seen.get('found')}")
    return _listed(seen)


def _disagree(seen: Evidence) -> str:
    if "expected" in seen:
        return _join(
            _where(seen), f"{seen['expected']} tokens expected, {seen.get('source')} counts {seen.get('found')}"
        )
    return _listed(seen)


def _missing(seen: Evidence) -> str:
    what = seen.get("what")
    return _join(_where(seen), ", ".join(map(str, what)) if isinstance(what, (list, tuple)) else str(what or ""))


def _not_happened(seen: Evidence) -> str:
    return _join(_where(seen), f"{seen.get('what')}: {seen.get('found')}, of at least {seen.get('expected')}")


def _failed(seen: Evidence) -> str:
    at = ", ".join(str(seen[key]) for key in ("engine", "stage") if seen.get(key))
    where = ", ".join(part for part in (at, _where({k: v for k, v in seen.items() if k != "engine"})) if part)
    cause = " ".join(str(seen.get("cause") or seen.get("error") or "no cause known").split()).rstrip(".")
    return f"{cause} ({where})" if where else cause


def _setting(seen: Evidence) -> str:
    wanted, found = seen.get("expected"), seen.get("found")
    if "baseline" in seen:
        return f"{seen.get('axis')} is {found} with the connector, but {seen['baseline']} on the baseline engine"
    if "by_rank" in seen:
        return _join(_where(seen), f"{seen.get('axis')} by rank: {', '.join(map(str, seen['by_rank']))}")
    if "idle_loads" in seen:
        return _join(_where(seen), f"{seen['idle_loads']} loads placed nothing by {wanted}")
    if found is None:
        return _join(_where(seen), f"{seen.get('axis')}" + ("" if wanted is None else f" ({wanted} was asked for)"))
    return _join(_where(seen), f"{seen.get('axis')} is {found}, {wanted} was asked for")


#: What a pattern of judge/classify means; ``{...}`` are its details.
_PATTERNS = {
    "axes_swapped": "token and head axes are swapped",
    "shifted_by_n_slots": "it is shifted by {slots} slots",
    "neighbour_layer": "it is the KV of the layer {delta:+d} from it",
    "kv_swapped": "K and V are swapped",
    "stale": "it is the KV of prompt {of_prompt}",
    "zeros": "it is all zeros",
    "not_written": "nothing was written there: it still holds what the overwrite left",
    "truncated_tail": "nothing was written from token {from_token} on",
    "heads_permuted": "heads are permuted ({heads})",
    "bit_flips": "{flips} bits are flipped",
    "reinterpreted": "the values are of another scale or dtype",
    "unknown": "no known pattern fits",
}


_PLACE = (
    "layer", "head", "block", "token", "token_end", "wrong_pages", "pages", "wrong_share", "wrong_layers", "layers",
)  # fmt: skip


def _digest(seen: Evidence) -> str:
    """In vLLM's letters: L layer, C the K or V half, H head, B block of the request, N tokens."""
    if any(not isinstance(seen.get(key), (int, float)) for key in _PLACE):
        return _missing(seen)
    of = [f"read {seen['read']} of {seen['reads']}"] if "reads" in seen else []
    of += [f"rank {', '.join(map(str, seen['wrong_ranks']))} of {seen['ranks']}"] if "wrong_ranks" in seen else []
    return _join(
        ", ".join((_where(seen), *of)),
        f"first wrong at L {seen['layer']}, C {seen.get('kv')}, H {seen['head']}, B {seen['block']} (N {seen['token']} "
        f"to {seen['token_end'] - 1}); {seen['wrong_pages']} of {seen['pages']} pages ({seen['wrong_share']:.2%}) in "
        f"{seen['wrong_layers']} of {seen['layers']} layers; {pattern(seen)}",
    )


def _listed(seen: Evidence) -> str:
    where = _where(seen)
    rest = {k: v for k, v in seen.items() if k not in ("engine", "arm", "prompt", "prompts") and v is not None}
    return _join(where, ", ".join(f"{key} {value}" for key, value in rest.items()))


def _store_failed(seen: Evidence) -> str:
    if seen.get("no_room"):
        return _join(
            _where(seen), f"{seen['no_room']} chunks found no room in its pool; give it a larger pool, or empty it"
        )
    return _join(_where(seen), f"{seen.get('failed')} stores failed; {_first_error(seen)}")


def _load_failed(seen: Evidence) -> str:
    then = ", and the engine recomputed what was missing" if seen.get("recomputed") else ""
    return _join(_where(seen), f"{seen.get('found')} failed{then}; {_first_error(seen)}")


def _lossy(seen: Evidence) -> str:
    if seen.get("max_logprob_diff") is None:
        return "no answer could be compared"
    tokens = "the same tokens" if seen.get("tokens_equal") else "other tokens"
    share = seen.get("wrong_share")
    pages = f"; up to {share:.2%} of a prompt's pages differ by digests" if isinstance(share, (int, float)) else ""
    if isinstance(off := seen.get("page_off"), (int, float)):
        pages += f", those sampled by up to {off:.2%} of their largest value"
    return f"{tokens}, logprobs differ by up to {_number(seen['max_logprob_diff'])}{pages}"


def _first_error(seen: Evidence) -> str:
    errors = seen.get("errors")
    return f"its first error: {errors[0]}" if isinstance(errors, (list, tuple)) and errors else "see the engine's log"


_DETAILS: dict[Reason, Callable[[Evidence], str]] = {
    **dict.fromkeys(
        (
            Reason.TOKENS_DIFFER,
            Reason.LOGPROBS_DIFFER,
            Reason.BEYOND_NOISE,
            Reason.FIRST_ANSWER_DIFFERS,
            Reason.UNSTABLE_REFERENCE,
        ),
        lambda seen: _difference(seen) if "position" in seen else _digest(seen),
    ),
    Reason.DIGEST_DIFFERS: _digest,
    **dict.fromkeys((Reason.NO_HIT, Reason.PARTIAL_HIT, Reason.COLD_NOT_COLD, Reason.LOCAL_HIT_DIFFERS), _hit),
    Reason.NOT_ISOLATED: _hit,
    Reason.NOT_TRIED: lambda seen: ", ".join(map(str, _pair(seen.get("scenarios")))),
    Reason.SCENARIO_DID_NOT_HAPPEN: _not_happened,
    Reason.STORE_FAILED: _store_failed,
    Reason.LOAD_FAILED: _load_failed,
    Reason.LOSSY_BY_DECLARATION: _lossy,
    Reason.SOURCES_DISAGREE: _disagree,
    **dict.fromkeys((Reason.COUNTERS_MISSING, Reason.NOT_RUN, Reason.NO_BASELINE, Reason.ANSWER_INCOMPLETE), _missing),
    **dict.fromkeys((Reason.ENGINE_REFUSED, Reason.ENGINE_CRASHED, Reason.ENGINE_HUNG, Reason.REQUEST_FAILED), _failed),
    **dict.fromkeys((Reason.EFFECTIVE_DIFFERS, Reason.EFFECTIVE_UNKNOWN, Reason.PLACEMENT_NOT_USED), _setting),
}
