"""How engines start: a word that is no way to start one, wherever it stands."""

from row import Row


def row(name, words, *says, given=None, **environ):
    return Row(f"start: {name}", tuple(words), 2, says, given, environ)


def config(text):
    return lambda at: (at / "run.toml").write_text(text)


FILE = ("run", "--config", "run.toml")
USE = "use fork or stock"

ROWS = (
    row("typo", ("run", "--start", "frok"), "--start: 'frok' is unknown", USE),
    row("other typo", ("run", "--start", "stok"), "--start: 'stok' is unknown", USE),
    row("a word of multiprocessing", ("run", "--start", "spawn"), "--start: 'spawn' is unknown", USE),
    row("empty", ("run", "--start", ""), "--start", USE),
    row("blank", ("run", "--start", " "), "--start", USE),
    row("no value", ("run", "--start"), "--start is missing a value"),
    row("both", ("run", "--start", "fork,stock"), "--start: 'fork,stock' is unknown", "fork or stock"),
    row("a switch", ("run", "--no-start"), "--no-start is unknown"),
    row("in faults", ("faults", "--start", "zygote"), "--start: 'zygote' is unknown", USE),
    row("in gain", ("gain", "--axis", "placement", "index", "kernel", "--start", "1"), "--start: '1' is unknown", USE),
    row("in cells", ("cells", "--start", "no"), "--start: 'no' is unknown", USE),
    row("of a command that starts none", ("judge", "ran", "--start", "fork"), "--start is unknown"),
    row("variable", ("run",), "MARU_E2E_START: 'slow' is unknown", USE, MARU_E2E_START="slow"),
    row("variable of gain", ("gain", "--axis", "overlap", "on", "off"), "MARU_E2E_START: 'x'", MARU_E2E_START="x"),
    row("file", FILE, "start", "'forked' is unknown", USE, given=config('start = "forked"\n')),
    row("number in a file", FILE, "run.toml: start: '1' is unknown", USE, given=config("start = 1\n")),
    row("switch in a file", FILE, "run.toml: start: 'True' is unknown", USE, given=config("start = true\n")),
    row("list in a file", FILE, "run.toml: start takes one value", given=config('start = ["fork"]\n')),
    row("key with a typo", FILE, "starts", "did you mean start?", given=config('starts = "fork"\n')),
)
