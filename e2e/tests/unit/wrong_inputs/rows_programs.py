"""Files of --program that are no program, or one that can't be played."""

import copy
import json

from row import Row

SEND = {"do": "send", "name": "cold", "site": "one", "texts": [0], "claims": [{"claim": "cold"}]}
GOOD = {"sites": [{"name": "one"}], "texts": [{"tokens": 513}], "steps": [SEND], "scenario": "mine"}
CELL = ("--cell", "layout=HND,storage_format=layerwise")
FROM = "give a file of maru-e2e shrink"


def changed(*path: object, to: object) -> str:
    table = place = copy.deepcopy(GOOD)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return json.dumps(table)


def row(name: str, content: str | bytes, *says: str, command: str = "run", more: tuple[str, ...] = ()) -> Row:
    def given(folder):
        (folder / "p.json").write_bytes(content if isinstance(content, bytes) else content.encode())

    return Row(f"--program: {name}", (command, "--program", "p.json", *CELL, *more), 2, ("--program", *says),
               given=given)  # fmt: skip


def step(**what: object) -> str:
    return changed("steps", to=[SEND, what])


SERVED = {**SEND, "name": "again", "claims": [{"claim": "served", "external": True}]}
ROWS = (
    Row("--program: no such file", ("run", "--program", "none.json"), 2, ("'none.json' can't be read",)),
    Row("--program: a folder", ("faults", "--program", "."), 2, ("'.' can't be read",)),
    Row("--program: an empty word", ("run", "--program", ""), 2, ("it is empty",)),
    Row("--program: nothing after it", ("run", "--program"), 2, ("--program",)),
    Row("--program: of a comparison", ("gain", "--program", "p.json"), 2, ("--program",)),
    Row("--program: in a variable", ("run",), 2, ("MARU_E2E_PROGRAM", "can't be read"),
        environ={"MARU_E2E_PROGRAM": "none.json"}),
    row("given twice", json.dumps(GOOD), "give it once", more=("--program", "p.json")),
    row("beside a scenario", json.dumps(GOOD), "--scenario", "drop one", more=("--scenario", "partial")),
    row("an empty file", "", "no program", FROM),
    row("no JSON", "scenario = 'replay'", "no program", FROM),
    row("torn", json.dumps(GOOD)[:-20], "no program", FROM),
    row("not UTF-8", json.dumps(GOOD).encode("utf-16"), "no program", FROM),
    row("nested without end", "[" * 9000 + "]" * 9000, "no program", FROM),
    row("a list", "[]", "Expected `object`", FROM),
    row("null", "null", "Expected `object`", FROM),
    row("a whole recording's event", json.dumps({"kind": "plan.cell", "data": GOOD}), "no program", FROM),
    row("without steps", changed("steps", to=[]), "sends nothing"),
    row("without texts", changed("texts", to=[]), "texts that there are not", FROM),
    row("a step of no kind", step(do="dance", site="one"), "no program", "dance"),
    row("a step without its kind", step(site="one"), "no program", "`do`"),
    row("a key that there is not", changed("texts", 0, "words", to=9), "unknown field `words`"),
    row("tokens as a word", changed("texts", 0, "tokens", to="many"), "$.texts[0].tokens"),
    row("no tokens", changed("texts", 0, "tokens", to=0), "a text has no tokens", FROM),
    row("a claim of no kind", changed("steps", 0, "claims", to=[{"claim": "fast"}]), "no program", "fast"),
    row("a Send that claims nothing", changed("steps", 0, "claims", to=[]), "one of Cold"),
    row("a site that there is not", step(do="forget", site="two"), "there is no site two"),
    row("two sites of one name", changed("sites", to=[{"name": "one"}] * 2), "two sites of one name"),
    row("no request at a time", changed("steps", 0, "at_once", to=0), "one request at a time", FROM),
    row("fewer than none at a time", changed("steps", 0, "at_once", to=-3), "one request at a time"),
    row("an answer of no token", changed("steps", 0, "answer", to=0), "at least one token"),
    row("requests spread over less than no time", changed("steps", 0, "spread_s", to=-0.5), "spreads its requests"),
    row("requests spread over a day", changed("steps", 0, "spread_s", to=86400), "over 0 to 600 seconds"),
    row("spread as a word", changed("steps", 0, "spread_s", to="1s"), "$.steps[0].spread_s"),
    row("no room in the KV cache", changed("sites", 0, "kv_tokens", to=0), "one has no room at all", FROM),
    row("less than no room in the KV cache", changed("sites", 0, "kv_tokens", to=-16), "one has no room at all"),
    row("room in the KV cache as a size", changed("sites", 0, "kv_tokens", to="1G"), "$.sites[0].kv_tokens"),
    row("a pool without room", changed("sites", 0, "pool", to={"tokens": 0, "evicts": True}), "no room at all"),
    row("a pool of no size", changed("sites", 0, "pool", to={"evicts": True}), "`tokens`"),
    row("a pool that neither evicts nor refuses", changed("sites", 0, "pool", to={"tokens": 9}), "`evicts`"),
    row("a pool that evicts at times", changed("sites", 0, "pool", to={"tokens": 9, "evicts": "lru"}), "evicts"),
    row("a pool as a size", changed("sites", 0, "pool", to="1G"), "$.sites[0].pool"),
    row("a pool by bytes", changed("sites", 0, "pool", to={"tokens": 9, "evicts": True, "bytes": 9}),
        "unknown field `bytes`"),
    row("two sizes of one store", changed("sites", to=[
        {"name": "one", "pool": {"tokens": 256, "evicts": True}}, {"name": "two"}]), "another size"),
    row("an adapter of no seed", changed("steps", 0, "lora", to=-1), "a seed is a whole number from 0 on", FROM),
    row("an adapter by its name", changed("steps", 0, "lora", to="mine"), "$.steps[0].lora"),
    row("weights of no seed", changed("sites", 0, "weights", to=-7), "a seed is a whole number from 0 on"),
    row("weights as a folder", changed("sites", 0, "weights", to="/models/other"), "$.sites[0].weights"),
    row("one adapter held against another", step(**{**SEND, "name": "other", "lora": 2, "claims": [
        {"claim": "missed"}, {"claim": "like", "steps": [["one", "cold"]]}]}), "other weights or another adapter"),
    row("one adapter's KV held against another's", step(**{**SEND, "name": "other", "lora": 2, "claims": [
        {"claim": "missed"}, {"claim": "loaded", "step": ["one", "cold"]}]}), "other weights or another adapter"),
    row("other weights held against the model's", json.dumps({**GOOD, "sites": [*GOOD["sites"], {
        "name": "two", "weights": 1}], "steps": [SEND, {**SEND, "site": "two", "claims": [
            {"claim": "cold"}, {"claim": "computed", "step": ["one", "cold"]}]}]}), "other weights or another adapter"),
    Row("--program: an adapter for a connector that takes none",
        ("run", "--program", "p.json", "--connector", "example", *CELL[:1], "layout=HND"), 2,
        ("connector example", "states no lora"),
        given=lambda folder: (folder / "p.json").write_text(changed("steps", 0, "lora", to=1)) and None),
    row("sent twice", changed("steps", to=[SEND, SEND]), "is sent twice"),
    row("served without a look", changed("steps", to=[SEND, SERVED]), "no claim looks at it"),
    row("a scenario that leads out of the folder", changed("scenario", to="../mine"), "no word of letters"),
    row("a scenario without a name", changed("scenario", to=""), "no word of letters"),
    row("a site that leads out of the folder", json.dumps(GOOD).replace('"one"', '"../one"'), "the site",
        "no word of letters"),
    row("a store that is a path", changed("sites", 0, "store", to="/dev/shm"), "the store", "no word of letters"),
    row("a site's setting of no axis", changed("sites", 0, "settings", to={"colour": "red"}), "'colour' is unknown"),
    row("a site's setting of no value", changed("sites", 0, "settings", to={"layout": "NDH"}), "'NDH'", "NHD or HND"),
    row("of cells", "{}", "no program", command="cells"),
    row("of a self-test", "{}", "no program", command="faults"),
)  # fmt: skip
