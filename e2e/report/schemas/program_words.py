"""What each field of program.json is; its types are those that the player plays (base/program.py)."""

from __future__ import annotations

from collections.abc import Mapping

_SEND = "A Send, as site and name"
_CLAIM, _DO = {"claim": "Which claim it is."}, {"do": "Which step it is."}
_SITE = {"site": "Name of the engine."}
_BREAK = {
    **_DO,
    "what": "engine, server, object, space and the like.",
    "how": "What is done to it.",
    "target": "Name of the site, server or store; store/server where a store has several.",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "Program": {
        "sites": "Engines.",
        "texts": "Prompts, as recipes; steps refer to them by index.",
        "steps": "What is done, in this order.",
        "scenario": "Name of the story.",
    },
    "Site": {
        "name": "By which steps refer to it.",
        "connector": "Has it one, or is it plain?",
        "store": "Pool that it is given; sites of one store share it.",
        "settings": "Axes in which it differs from its cell.",
        "kv_tokens": "Tokens of room in its KV cache; null: all that its texts need at once.",
        "step": "Tokens of a prefill step; null: its cell's.",
        "pool": "Room in its store; null: enough.",
        "slow_s": "Seconds that its connector's moves beside the compute take longer.",
        "weights": "0: the model's; else the seed of others of the same shape.",
        "in_use": "Do others use it, so that nothing there may be reset or overwritten?",
    },
    "Pool": {"tokens": "Of KV.", "evicts": "Does it, once full, evict what was used least, or refuse what is new?"},
    "Text": {
        "tokens": "Its length.",
        "like": "Index of an earlier text that stands in front of it.",
        "shared": "How many tokens of that.",
        "follows": f"{_SEND}: its answer to that text stands behind these, as in the next turn of a chat.",
        "body": "Index of an earlier text whose tokens stand behind these.",
    },
    "Start": {**_DO, **_SITE},
    "Stop": {**_DO, **_SITE, "killed": "Is it killed, and asked nothing before?"},
    "Send": {
        **_DO,
        **_SITE,
        "name": "By which claims refer to it.",
        "texts": "Indices of what it sends, each once.",
        "claims": "What it must show.",
        "at_once": "Requests at a time.",
        "answer": "Tokens to generate; null: as many as the run asks for.",
        "salt": "Equal for what may share KV; empty is the cell's own.",
        "gone_s": "Seconds after which the client goes away.",
        "spread_s": "Seconds over which requests at once go out.",
        "gone_tokens": "Tokens after which the client goes away.",
        "after_s": "Seconds that the client waits first.",
        "lora": "Seed of the LoRA adapter that answers; 0: none.",
        "settings": "Axes in which its requests differ from their site.",
    },
    "Forget": {**_DO, **_SITE},
    "Scribble": {**_DO, **_SITE},
    "Empty": {**_DO, "store": "Which one forgets all that it holds."},
    "Break": {**_BREAK, "after_s": "Seconds into the step beside which it stands."},
    "Mend": _BREAK,
    "Together": {**_DO, "steps": "All at once."},
    "Cold": _CLAIM,
    "Served": {**_CLAIM, "external": "From the connector?", "hits": "By text, in the order of the Send."},
    "Missed": _CLAIM,
    "Like": {**_CLAIM, "steps": f"{_SEND} each: their answers are equal."},
    "Computed": {**_CLAIM, "step": f"{_SEND}: it computed the same KV."},
    "Loaded": {**_CLAIM, "step": f"{_SEND}: it computed the KV that was read."},
    "Happened": {**_CLAIM, "what": "A counter of vLLM, the connector or the player.", "least": "At least so often."},
    "Hit": {"local": "Tokens from vLLM's own prefix cache.", "external": "Tokens from the connector."},
    "Span": {"least": "Lower end, included.", "most": "Upper end, included."},
}  # fmt: skip
