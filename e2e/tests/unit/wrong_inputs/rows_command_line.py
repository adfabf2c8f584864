"""Flags and words of the command line, variables, files of settings, and runs that can't be continued."""

from row import Row

from e2e.base.event import SCHEMA
from e2e.recording.journal import Journal
from e2e.settings.settings import Settings


def row(name, words, *says, given=None, code=2, **environ):
    return Row(name, tuple(words.split()), code, says, given, environ)


def file(name, text):
    """Makes one file."""

    def make(at):
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return make


def config(text):
    return file("run.toml", text)


def folder(name):
    return lambda at: (at / name).mkdir()


def begun(name="ran", *, command="run", **settings):
    """A run that began and did not end."""

    def make(at):
        with Journal(at / name / "recording.jsonl") as journal:
            journal.record(
                "run.begin", run_id="r", attempt=1, schema=SCHEMA, command=["maru-e2e", command], versions={},
                machine={}, settings={**Settings().as_json(), **settings}, wall_time="",
            )  # fmt: skip

    return make


def noted(at):
    """A recording in which no run began."""
    with Journal(at / "results" / "a" / "recording.jsonl") as journal:
        journal.record("note", text="nobody answers")


WORDS = (
    row("no command", "", "give a command, such as run", "--help"),
    row("unknown command", "frobnicate", "'frobnicate' is no command", "use run, faults"),
    row("command with a typo", "doctr", "'doctr' is no command", "did you mean doctor?"),
    row("unknown flag", "run --wibble", "--wibble is unknown", "--help"),
    row("flag with a typo", "run --max-token 4", "--max-token is unknown", "did you mean --max-tokens?"),
    row("flag with underscores", "run --kv_cache 1G", "--kv_cache is unknown", "did you mean --kv-cache-size?"),
    row("flag of another command", "judge ran --strict", "--strict is unknown"),
    row("flag without its value", "run --model", "--model is missing a value"),
    row("flag twice", "run --model a --model b", "--model stands twice", "give it once"),
    row("a word too many", "run everything", "'everything' is one word too many"),
    row("two folders to judge", "judge a b", "'b' is one word too many"),
    row("judge without a folder", "judge", "FOLDER is missing a value"),
    row("switch with a value", "run --strict=perhaps", "--strict: 'perhaps'"),
    row("unknown shell", "completion tcsh", "'tcsh' can't be used"),
    Row("an empty place", ("run", "--out", ""), 2, ("--out: it is empty",)),
    Row("an empty file of settings", ("cells", "--config", ""), 2, ("--config: it is empty",)),
    Row("an empty word", ("run", "--model", ""), 2, ("--model: it is empty", "a model folder or a hub id")),
)

VALUES = (
    row("unknown grid", "run --grid huge", "--grid: 'huge' is unknown", "use default, full, pairwise or a FILE.toml"),
    row("grid with a typo", "run --grid parwise", "did you mean pairwise?"),
    row("grid file that is not there", "run --grid no.toml", "--grid: 'no.toml' can't be read"),
    row("grid file that is a folder", "run --grid g.toml", "'g.toml' can't be read", given=folder("g.toml")),
    row("grid twice", "run --grid full --grid default", "--grid: it takes one value"),
    row("axis value", "run --cell layout=NDH", "--cell: axis layout: 'NDH' is unknown", "use NHD or HND"),
    row("axis without value", "run --cell layout", "--cell: 'layout' is no axis=value", "layout=HND"),
    row("axis twice in a cell", "run --cell layout=HND,layout=NHD", "names layout twice"),
    row("connector as an axis", "run --cell connector=maru", "--cell: ", "choose it with --connector"),
    row("length that is none", "run --lengths 385,x", "--lengths: 'x' is no number of tokens", "write 385,1041"),
    row("length of nothing", "run --lengths 0", "--lengths: 0 is too small", "from 1 on"),
    row("lengths with a hole", "run --lengths 385,,1041", "--lengths: '' is no number of tokens"),
    row("no tokens", "run --max-tokens 0", "--max-tokens: 0 is too small", "from 1 on"),
    row("fewer than no tokens", "run --max-tokens=-3", "--max-tokens: -3 is too small"),
    row("tokens by halves", "run --max-tokens 1.5", "--max-tokens: '1.5' is no whole number"),
    row("no prompts", "run --prompts 0", "--prompts: 0 is too small"),
    row("no rounds", "faults --rounds 0", "--rounds: 0 is too small"),
    row("unknown fault", "faults --fault bit_flp", "--fault: ", "did you mean bit_flip?"),
    row("size without a number", "run --pool-size big", "--pool-size: 'big' is no size", "such as 2G"),
    row("a pace in words", "run --pool-pace fast", "--pool-pace: 'fast' is no pace", "as 20GB/s,300ns"),
    row("a pace without a unit", "run --pool-pace 20", "--pool-pace: '20' is no pace"),
    row("a pace of nothing", "run --pool-pace 0GB/s", "has a figure of 0", "20GB/s,300ns"),
    row("two bandwidths", "run --pool-pace 1GB/s,2GB/s", "names one of its two figures twice"),
    row("a latency of hours", "run --pool-pace 7200s", "a latency up to a second"),
    row("size of nothing", "run --kv-cache-size 0", "--kv-cache-size: '0' is no size"),
    row("size with a wrong unit", "run --kv-cache-size 2X", "'2X' is no size", "K, M, G or T"),
    row("limit of nothing", "run --start-limit-s 0", "--start-limit-s: 0 is too small"),
    row("limit in words", "run --request-limit-s soon", "--request-limit-s: 'soon' is no number of seconds"),
    row("no limit at all", "run --start-limit-s inf", "--start-limit-s: every wait has a limit"),
    row("limit that is no number", "run --start-limit-s nan", "--start-limit-s: nan is too small"),
    row("unknown device", "run --device tpu", "--device: 'tpu' is unknown", "use auto, cpu or cuda"),
    row("no such device here", "run --device cuda", "--device: no NVIDIA GPU answers here", "use --device cpu"),
    row("unknown attention", "cells --attention foo", "--attention: 'foo' is unknown", "strided, stock, or a backend"),
    row("attention with a typo", "cells --attention Strided", "did you mean strided?"),
    row("backend not as vLLM writes it", "cells --attention flash-attn", "did you mean FLASH_ATTN?"),
    row("unknown launcher", "run --launcher podman", "--launcher: 'podman' is unknown", "use process or docker"),
    row("address without scheme", "run --attach localhost:8000", "--attach: 'localhost:8000' is no address", "http://"),
    row("address with a port too large", "run --attach http://h:99999", "--attach: ", "Port out of range"),
    row("server without a port", "run --connector-server h", "--connector-server: 'h' is no address", "127.0.0.1:5555"),
    row("key with a blank", "run --api-key=\u00e9", "--api-key: ", "no HTTP header takes"),
    row("Python that is not there", "run --engine-python nopy", "--engine-python: 'nopy' is no program"),
    row("Python that is a folder", "run --engine-python ./p", "'./p' is no program", given=folder("p")),
    row("place that is a file", "run --out f", "--out: 'f' is a file; give a folder", given=file("f", "")),
    row(
        "requests at once by words", "gain --concurrency many", "--concurrency: 'many' is no number of requests", "1,8"
    ),
    row("too few pairs", "gain --axis placement index kernel --repeats 1", "--repeats: 1 is too small", "from 2 on"),
    row("no look", "gain --axis placement index kernel --looks 0", "--looks: 0 is too small", "from 1 on"),
    row("looks by words", "gain --axis placement index kernel --looks often", "--looks: "),
    row("an effect of nothing", "gain --axis placement index kernel --effect 0", "--effect: ", "such as 5"),
    row("an effect of all", "gain --axis placement index kernel --effect 100", "--effect: ", "between 0 and 100"),
    row("an effect by words", "gain --axis placement index kernel --effect small", "--effect: 'small' is no share"),
    row("an effect that is no number", "gain --axis placement index kernel --effect nan", "--effect: ", "such as 5"),
    row("unknown axis to compare", "gain --axis placment index kernel", "--axis: ", "did you mean placement?"),
    row("unknown value to compare", "gain --axis placement index gpu", "--axis: axis placement: 'gpu'"),
    row("one value to compare", "gain", "MARU_E2E_AXIS: give an axis and two values", MARU_E2E_AXIS="placement index"),
    row("two values are three words", "gain --axis placement index", "--axis is missing a value"),
)

CONTRADICTIONS = (
    row("attach and docker", "run --attach http://h:1 --launcher docker", "--attach", "--launcher docker", "drop one"),
    row("key for no engine", "run --api-key k", "--api-key is for the engine of --attach", "give both"),
    row("timed beside others", "run --timed --side-by-side 3", "--timed has the machine to itself", "3 shares it"),
    row(
        "an attached engine beside others",
        "run --attach http://h:1 --side-by-side 2",
        "engine processes of ours",
        "drop it or --attach",
    ),
    row("containers side by side", "run --launcher docker --side-by-side 2", "drop it or --launcher docker"),
    row("an attached engine alone", "run --attach http://h:1 --timed", "who uses that of --attach is not known"),
    row("a cluster to itself", "run --executor ray --timed", "--executor ray plays on others, too; drop one"),
    row("no engine at once", "run --side-by-side 0", "--side-by-side"),
    row("engines at once in words", "faults --side-by-side many", "--side-by-side"),
    row("a self-test that is timed", "faults --timed", "--timed"),
    row("no cell is left", "cells --cell overlap=on,load=sync", "needs load=async", "and 7 more", "widen --cell"),
    row("a value with itself", "gain --axis placement index index", "names index twice"),
    row("a connector with itself", "gain --a example --b example", "--a and --b name one connector twice"),
    row("one connector of two", "gain --a example", "--a and --b go together"),
    row("nothing to compare", "gain", "--axis NAME VALUE VALUE, or --a with --b"),
    row("both ways to compare", "gain --axis placement index kernel --a example --b maru", "give one of the two"),
    row("comparison of what was none", "gain --judge ran", "holds no comparison", given=begun()),
    row(
        "reports to where none can be",
        "judge ran --out /proc/nowhere",
        "can't write /proc/nowhere",
        "another folder by --out",
        given=begun(),
    ),
    row("judge of nothing", "judge nowhere", "nowhere holds no recording.jsonl", "the folder of a run"),
    row("a sum of nothing", "scoreboard", "FOLDERS is missing a value"),
    row("a sum with nothing", "scoreboard ran nowhere", "nowhere holds no recording.jsonl", given=begun()),
    row("a sum of the same twice", "scoreboard ran ./ran", "ran and ran hold the same run", "once", given=begun()),
    row("a sum to where none can be", "scoreboard ran --out /proc/nowhere", "can't write /proc/nowhere", given=begun()),
)

VARIABLES = (
    row("variable: connector", "run", "MARU_E2E_CONNECTOR: ", "did you mean embedded?", MARU_E2E_CONNECTOR="embeded"),
    row("variable: number", "run", "MARU_E2E_MAX_TOKENS: 'x' is no whole", MARU_E2E_MAX_TOKENS="x"),
    row("variable: switch", "run", "MARU_E2E_STRICT: 'si' is neither true nor false", MARU_E2E_STRICT="si"),
    row("variable: device", "cells", "MARU_E2E_DEVICE: 'gpu' is unknown", "auto, cpu or cuda", MARU_E2E_DEVICE="gpu"),
    row("variable: cell", "run", "MARU_E2E_CELL: axis layout: 'X'", MARU_E2E_CELL="layout=X"),
    row("variable: server", "doctor", "MARU_SERVER_URL: 'x' is no address", MARU_SERVER_URL="x"),
    row("variable: values of an axis", "gain", "names index twice", MARU_E2E_AXIS="placement index index"),
    row("variable: file", "run", "MARU_E2E_CONFIG: 'no.toml' can't be read", MARU_E2E_CONFIG="no.toml"),
    row("variable: half of a contradiction", "run --launcher docker", "(--attach is from MARU_E2E_ATTACH).",
        MARU_E2E_ATTACH="http://h:1"),
)  # fmt: skip

FILES = (
    row("file that is not there", "run --config no.toml", "--config: 'no.toml' can't be read (No such file"),
    row("file that is a folder", "run --config c", "--config: 'c' can't be read", given=folder("c")),
    row("file that is no TOML", "run --config run.toml", "--config: 'run.toml' is no TOML", given=config("= 1")),
    row("file that is no text", "run --config run.toml", "is no TOML",
        given=lambda at: (at / "run.toml").write_bytes(b"\xff\xfe")),
    row("file: key with a typo", "run --config run.toml", "run.toml: max-token is no setting of run",
        "did you mean max-tokens?", given=config("max-token = 4")),
    row("file: key of another command", "faults --config run.toml", "run.toml: strict is no setting of faults",
        given=config("strict = true")),
    row("file: key of another kind", "run --config run.toml", "run.toml: layout is no setting of run",
        given=config('layout = "HND"')),
    row("file: another file", "run --config run.toml", "run.toml: config is no setting",
        given=config('config = "b.toml"')),
    row("file: table", "run --config run.toml", "run.toml: cell is a table; give cell = value",
        given=config('[cell]\nlayout = "HND"')),
    row("file: name of a command", "run --config run.toml", "run.toml: run is no setting of run",
        given=config("[run]\nmax-tokens = 4")),
    row("file: wrong value", "run --config run.toml", "run.toml: max-tokens: 0 is too small",
        given=config("max-tokens = 0")),
    row("file: wrong type", "run --config run.toml", "run.toml: prompts: 'many' is no whole number",
        given=config('prompts = "many"')),
    row("file: several where one belongs", "run --config run.toml", "run.toml: model takes one value; give no list",
        given=config('model = ["a", "b"]')),
    row("file: list in a list", "run --config run.toml", "run.toml: lengths: ", given=config("lengths = [[1], [2]]")),
    row("file: switch as a word", "run --config run.toml", "run.toml: digests: 'maybe' is neither true nor false",
        given=config('digests = "maybe"')),
    row("file: one of a cell's axes", "run --config run.toml", "run.toml: cell: axis overlap: 'yes'",
        given=config('cell = ["layout=HND", "overlap=yes"]')),
)  # fmt: skip

SHARDS = (
    row("a share that is none", "run --shard two", "--shard: 'two' is no share; write 2/4"),
    row("a share beyond the last", "run --shard 5/4", "--shard: '5/4' is no share of 4; give 1/4 to 4/4"),
    row("the share before the first", "run --shard 0/4", "--shard: 0 is too small"),
    row("more shares than cells", "cells --shard 1/17", "--shard 1/17: there are 16 cells", "no more shares than"),
    row("merge: no run", "merge nowhere", "nowhere holds no recording.jsonl; give the folder of a run"),
    row("merge: one run twice", "merge ran ran", "the same run; give each once", given=begun()),
    row("merge: where a run is", "merge ran --out ran", "ran holds a run already", given=begun()),
)  # fmt: skip

EXECUTORS = (
    row("unknown executor", "run --executor slurm", "--executor: 'slurm' is unknown; use local or ray"),
    row("unknown executor by variable", "faults", "MARU_E2E_EXECUTOR: 'rya'", "use local or ray",
        MARU_E2E_EXECUTOR="rya"),
    row("nothing for a cluster to start", "run --executor ray --attach http://h:1", "--attach", "drop one"),
    row("an executor for a comparison", "gain --executor ray", "--executor is unknown"),
    row("surroundings for nobody", "run --runtime-env e.json", "--runtime-env is for --executor ray", "or drop it",
        given=file("e.json", "{}")),
    row("surroundings that are not there", "run --executor ray --runtime-env e.json", "'e.json' can't be read"),
    row("surroundings that are no JSON", "run --executor ray --runtime-env e.json", "'e.json' is no JSON",
        given=file("e.json", "pip: vllm")),
    row("surroundings that are a list", "run --executor ray --runtime-env e.json", "holds no JSON object",
        given=file("e.json", '["vllm"]')),
    row("a run here, continued on a cluster", "run --resume --out ran --executor ray", "can't change executor",
        given=begun()),
    row("a run on a cluster, continued here", "run --resume --out ran --executor local", "can't change executor",
        given=begun(executor="ray")),
    row("a run on a cluster, and no Ray there", "run --resume --out ran --attach http://h:1", "--executor ray", "drop",
        given=begun(executor="ray")),
)  # fmt: skip

RESUMED = (
    row("nothing to continue", "run --resume", "--resume: there is no run under results", "--out"),
    row("nothing to continue there", "run --resume --out nowhere", "no recording can be read at nowhere"),
    row("what never began", "run --resume", "there is no run under results", given=noted),
    row("what never began, by name", "run --resume --out results/a", "nothing to resume", given=noted),
    row("a comparison", "run --resume --out ran", "ran is a comparison", "maru-e2e gain", given=begun(command="gain")),
    row("a comparison as the newest", "run --resume", "there is no run under results",
        given=begun("results/a", command="gain")),
    row("another model", "run --resume --out ran --model x/y", "--resume can't change model", given=begun()),
    row("another model by variable", "run --resume --out ran", "--resume can't change model", given=begun(),
        MARU_E2E_MODEL="x/y"),
    row("a run as a self-test", "faults --resume --out ran", "--resume can't change self_test", given=begun()),
    row("settings of another version", "run --resume --out ran", "settings that this version can't use (max_tokens)",
        given=begun(max_tokens="many")),
    row("a place that has a run", "run --out ran", "ran holds a run already", "--resume", given=begun()),
)  # fmt: skip

ROWS = (*WORDS, *VALUES, *CONTRADICTIONS, *VARIABLES, *FILES, *SHARDS, *EXECUTORS, *RESUMED)
