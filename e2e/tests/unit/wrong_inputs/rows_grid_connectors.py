"""Grid files, connector files, connector classes that can't be imported, placement and doctor."""

from __future__ import annotations

from row import Row

TABLE = '[connector]\nname = "mine"\nclass = "Mine"\nmodule_path = "mine"\n'

SERVER = TABLE + '[[connector.servers]]\nname = "store"\n'


def given(**files: str):
    """``mine__toml``: the text of mine.toml."""

    def write(folder):
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)

    return write


def grid(name: str, text: str, *says: str) -> Row:
    return Row(f"grid file: {name}", ("cells", "--grid", "g.toml"), 2, ("g.toml", *says), given(g__toml=text))


def file(name: str, text: str, *says: str) -> Row:
    argv = ("cells", "--connector", "c.toml")
    return Row(f"connector file: {name}", argv, 2, ("c.toml", *says), given(c__toml=text))


def imported(name: str, module: str, *says: str) -> Row:
    found = '[connector.env]\nPYTHONPATH = "."\n'
    return Row(
        f"connector class: {name}", ("run", "--connector", "c.toml"), 2,
        ("connector class 'Mine' can't be used", "check class, module_path and env.PYTHONPATH", *says),
        given(c__toml=TABLE + found, mine__py=module),
    )  # fmt: skip


ROWS = (
    grid("nothing in it", "", "one table [grid]", "it has none"),
    grid("no TOML", "grid", "is no TOML"),
    grid("table misspelt", "[gird]\nlayout = ['NHD']", "gird is unknown; did you mean grid?"),
    grid("axes outside the table", "layout = ['NHD']", "layout is unknown; put axes into the table [grid]"),
    grid("axis misspelt", "[grid]\nlayuot = ['NHD']", "'layuot' is unknown; did you mean layout?"),
    grid("axis that nobody has", "[grid]\nzzz = [1]", "'zzz' is unknown; use layout,", "or load_failure_policy."),
    grid("topology, a word of old", "[grid]\ntopology = ['same']", "'topology' is unknown"),
    grid("value misspelt", "[grid]\nlayout = ['NDH']", "'NDH' is unknown; use NHD or HND"),
    grid("value in a list of its own", "[grid]\nlayout = [['NHD']]", "['NHD'] is unknown"),
    grid("no value", "[grid]\nlayout = []", "axis layout has no value"),
    grid("a table where values belong", "[grid.layout]\nNHD = 1", "{'NHD': 1} is unknown; use NHD or HND"),
    grid("true where a number belongs", "[grid]\nchunk_tokens = [true]", "True is no whole number from 1 on (tokens)"),
    grid("a negative number", "[grid]\nblock_size = [-16]", "-16 is no whole number from 1 on"),
    grid("no rank", "[grid]\ntensor_parallel = [0]", "0 is no whole number from 1 on (ranks)"),
    grid("no policy", "[grid]\nload_failure_policy = ['retry']", "'retry' is unknown; use fail or recompute."),
    grid("half a rank", "[grid]\ntensor_parallel = [1.5]", "1.5 is no whole number from 1 on (ranks)"),
    grid("ranks in words", "[grid]\ntensor_parallel = ['two']", "is no whole number from 1 on (ranks)"),
    grid("a connector", "[grid]\nconnector = ['maru']", "choose it with --connector"),
    Row(
        "a folder as grid",
        ("cells", "--grid", "g.toml"),
        2,
        ("g.toml", "Is a directory"),
        lambda at: (at / "g.toml").mkdir(),
    ),
    Row(
        "axis that this connector lacks",
        ("cells", "--cell", "kv_cache_dtype=fp8"),
        2,
        ("embedded has no axis kv_cache_dtype", "it has layout"),
    ),
    *(
        Row(
            f"ranks for {name}",
            ("cells", "--connector", name, "--cell", "tensor_parallel=2"),
            2,
            (f"{name} has no axis tensor_parallel", "it has"),
        )
        for name in ("example", "offloading", "lmcache", "maru")
    ),
    *(
        Row(f"ranks: {word}", ("cells", "--cell", word), 2, (says,))
        for word, says in {
            "tensor_parallel=two": "axis tensor_parallel: 'two' is no whole number from 1 on (ranks).",
            "tensor_parallel=-2": "axis tensor_parallel: '-2' is no whole number from 1 on (ranks).",
            "tensor_parallel=": "'tensor_parallel=' is no axis=value; write layout=HND,overlap=on.",
            "tensor_parallel_size=2": "axis 'tensor_parallel_size' is unknown; did you mean tensor_parallel?",
            "tp=2": "axis 'tp' is unknown; use layout,",
        }.items()
    ),
    *(
        Row(
            f"{ranks} ranks for a model of 9 heads over 3",
            ("run", "--cell", f"tensor_parallel={ranks}"),
            2,
            (f"{ranks} ranks can't share this model's 9 heads over 3 KV heads", "another --model"),
        )
        for ranks in (2, 4, 6)
    ),
    file("no such table", "", "one table [connector]", "it has none"),
    file("table misspelt", TABLE.replace("connector]", "conector]"), "conector is unknown; did you mean connector?"),
    file("a second table", TABLE + "[other]", "other is unknown", "one table [connector]"),
    file("class misspelt", TABLE.replace("class", "clas"), "clas is unknown; did you mean class?"),
    file("key that nobody knows", TABLE + "zzz = 1", "connector.zzz is unknown; use name, class,"),
    file(
        "class is missing", '[connector]\nname = "mine"', "connector.class is missing; give the name of a Python class"
    ),
    file(
        "name with a blank", TABLE.replace('"mine"', '"my own"', 1), "connector.name must be a name of letters, digits"
    ),
    file("empty name", TABLE.replace('"mine"', '""', 1), "connector.name must be a name of letters"),
    file(
        "class with its module", TABLE.replace("Mine", "my.Mine"), "connector.class must be the name of a Python class"
    ),
    file("module as a path", TABLE.replace('h = "mine"', 'h = "a/b.py"'), "module_path must be a dotted Python module"),
    file("granularity of no token", TABLE + "granularity = 0", 'granularity must be "block", a whole number'),
    file("granularity in words", TABLE + 'granularity = "page"', 'granularity must be "block", a whole number'),
    file(
        "more held back than nothing", TABLE + "hold_back = -1", "hold_back must be a whole number of tokens from 0 on"
    ),
    file("short by less than nothing", TABLE + "short_by = -1", "short_by must be a whole number of tokens from 0 on"),
    file("short by a block", TABLE + 'short_by = "block"', "short_by must be a whole number of tokens from 0 on"),
    file("short by half a token", TABLE + "short_by = 0.5", "short_by must be a whole number of tokens"),
    file("short by yes", TABLE + "short_by = true", "short_by must be a whole number of tokens"),
    file("short by a text", TABLE + 'short_by = "48"', "short_by must be a whole number of tokens from 0 on"),
    file("short by a list", TABLE + "short_by = [0, 48]", "short_by must be a whole number of tokens from 0 on"),
    file("short by without end", TABLE + "short_by = inf", "short_by must be a whole number of tokens from 0 on"),
    file("short by no number", TABLE + "short_by = nan", "short_by must be a whole number of tokens from 0 on"),
    file("short by a day", TABLE + "short_by = 2026-01-01", "short_by must be a whole number of tokens from 0 on"),
    file(
        "short by in a table", TABLE + "[connector.short_by]\ntokens = 1", "short_by must be a whole number of tokens"
    ),
    file("a miss as a share", TABLE + "may_miss = 0.33", "may_miss must be true or false"),
    file("a miss as a list", TABLE + "may_miss = [true]", "may_miss must be true or false"),
    file("loss in words", TABLE + '[connector.abilities]\nlossy = "int8"', "abilities.lossy must be true or false"),
    file("loss as a share", TABLE + "[connector.abilities]\nlossy = 0.01", "abilities.lossy must be true or false"),
    file("loss beside the abilities", TABLE + "lossy = true", "connector.lossy is an ability", "[connector.abilities]"),
    file(
        "loss misspelt",
        TABLE + "[connector.abilities]\nlosy = true",
        "connector.abilities.losy is unknown; did you mean lossy?",
    ),
    file("hits among the abilities", TABLE + "[connector.abilities]\nmay_miss = true", "abilities.may_miss is unknown"),
    file("a miss in words", TABLE + 'may_miss = "at times"', "may_miss must be true or false"),
    file("a miss as a number", TABLE + "may_miss = 1", "may_miss must be true or false"),
    file("a miss misspelt", TABLE + "may_mis = true", "may_mis is unknown; did you mean may_miss?"),
    file("short by, by its English name", TABLE + "short_of = 1", "short_of is unknown; did you mean short_by?"),
    file("flags in one text", TABLE + 'engine_args = "--x 1"', "engine_args must be a list of texts, one a word"),
    file("a date in extra", TABLE + "[connector.extra]\nsince = 2026-01-01", "extra.since must be a text, a number"),
    file("a number that is none", TABLE + "[connector.extra]\nratio = nan", "extra.ratio must be a text, a number"),
    file("extra as a text", TABLE + 'extra = "x"', "connector.extra must be a table [connector.extra]"),
    file("a number in env", TABLE + "[connector.env]\nDEBUG = 1", 'env.DEBUG must be a text, such as "1"'),
    file("a variable with =", TABLE + '[connector.env]\n"A=B" = "1"', 'under a name without "="'),
    file("a zero byte in env", TABLE + '[connector.env]\nA = "\\u0000"', "env.A must be a text"),
    file(
        "server whose ready line is no pattern", SERVER + 'ready = "["', "servers[0].ready must be a regular expression"
    ),
    file(
        "server without command and address", SERVER, "takes a command that starts it, or the address of one that runs"
    ),
    file("server without a name", TABLE + "[[connector.servers]]", "connector.servers[0].name is missing"),
    file("server's key misspelt", SERVER + 'comand = ["x"]', "servers[0].comand is unknown; did you mean command?"),
    file("server's place without a port", SERVER + 'address = "localhost"', "servers[0].address must be host:port"),
    file("one server, not a list", TABLE + '[connector.servers]\nname = "x"', "servers must be a list of tables"),
    file("witness that nobody knows", TABLE + '[connector.witness]\nname = "x"', "connector.witness.name must be maru"),
    file(
        "ability misspelt",
        TABLE + "[connector.abilities]\nsaltd = false",
        "connector.abilities.saltd is unknown; did you mean salted?",
    ),
    file(
        "ability of another home",
        TABLE + "[connector.abilities]\nhas_counters = true",
        "connector.abilities.has_counters is unknown; did you mean counters?",
    ),
    file(
        "ability that is the embedded connector's",
        TABLE + "[connector.abilities]\nplants_faults = true",
        "connector.abilities.plants_faults is unknown; use counters",
    ),
    file("limit among the abilities", TABLE + "[connector.abilities]\nlongest_prompt = 9", "longest_prompt is unknown"),
    file("abilities twice", TABLE + "[connector.abilities]\n[connector.abilities]", "is no TOML"),
    file("ability as a table", TABLE + "[connector.abilities.salted]", "abilities.salted must be true or false"),
    file("ability as a date", TABLE + "[connector.abilities]\nlora = 2026-01-01", "lora must be true or false"),
    file("less than no pool", TABLE + "[connector.abilities]\npool_bytes = -1", "pool_bytes must be a whole number"),
    file("half a pool", TABLE + "[connector.abilities]\npool_bytes = 0.5", "pool_bytes must be a whole number"),
    file("abilities of a server", SERVER + 'abilities = ["x"]', "connector.servers[0].abilities is unknown"),
    file("ability in words", TABLE + '[connector.abilities]\nsalted = "no"', "abilities.salted must be true or false"),
    file("ability as a number", TABLE + "[connector.abilities]\nlora = 1", "abilities.lora must be true or false"),
    file("abilities as a list", TABLE + 'abilities = ["salted"]', "connector.abilities must be a table [connector.abi"),
    file(
        "a pool of nothing", TABLE + "[connector.abilities]\npool_bytes = 0", "pool_bytes must be a whole number of b"
    ),
    file("a pool in words", TABLE + '[connector.abilities]\npool_bytes = "2G"', "pool_bytes must be a whole number of"),
    file(
        "witness without its server",
        TABLE + '[connector.witness]\nname = "maru"\ninstance = "x"',
        "connector.witness.address is missing; witness maru needs address and instance",
    ),
    file("refusal without a reason", TABLE + "[[connector.refuses]]\nmultiple_of = 2", "refuses[0].why is missing"),
    file("chunks without their axis", TABLE + 'granularity = "chunk_tokens"', "give connector.axes.chunk_tokens too"),
    file("axis without a value", TABLE + "[connector.axes]\nvariant = []", "axes.variant has no value"),
    file(
        "value that the axis lacks",
        TABLE + "[connector.when.variant.new]",
        "connector.axes.variant does not hold 'new'",
    ),
    file(
        "role that vLLM lacks", TABLE + 'kv_role = "both"', 'kv_role must be "kv_both", "kv_producer" or "kv_consumer"'
    ),
    Row(
        "connector file: a value that the rig's axis lacks",
        ("cells", "--connector", "c.toml"),
        2,
        ("connector mine: axis overlap: 'maybe' is unknown; use off or on",),
        given(c__toml=TABLE + '[connector.axes]\noverlap = ["maybe"]'),
    ),
    Row(
        "connector file that is not there",
        ("cells", "--connector", "c.toml"),
        2,
        ("c.toml", "can't be read", "No such file"),
    ),
    imported("a module that is not there", "import nowhere_at_all", "No module named 'nowhere_at_all'"),
    imported("not in its module", "", "mine has no class Mine"),
    imported("no class", "Mine = 1", "mine.Mine is no class"),
    imported("broken code", "def", "SyntaxError"),
    imported("sys.exit(0)", "import sys; sys.exit(0)", "importing it ends Python (SystemExit: 0)"),
    imported("SystemExit with words", "raise SystemExit('no licence')", "(SystemExit: no licence)"),
    imported("os._exit(0)", "import os; os._exit(0)", "its import ended Python with exit code 0"),
    imported("a crash", "import os; os.abort()", "its import ended Python with signal 6"),
    imported("a loop of imports", "from mine import Mine", "cannot import name 'Mine'"),
    Row(
        "placement without torch",
        ("placement", "--device", "cpu"),
        2,
        ("placement needs torch: ModuleNotFoundError: No module named 'torch'", "scripts/setup", "maru-e2e setup"),
        given(torch__py="raise ModuleNotFoundError(\"No module named 'torch'\")"),
    ),
    Row(
        "placement with a torch that crashes",
        ("placement", "--device", "cpu"),
        2,
        ("placement needs torch: its import ended with exit code -6",),
        given(torch__py="import os; os.abort()"),
    ),
    Row(
        "placement where nothing can be written",
        ("placement", "--device", "cpu", "--out", "/proc/placement"),
        2,
        ("--out: /proc/placement can't be written", "choose another folder"),
        given(torch__py=""),
    ),
    Row(
        "placement into a file", ("placement", "--out", "file"), 2, ("'file' is a file; give a folder",), given(file="")
    ),
    Row(
        "doctor: server without a port",
        ("doctor", "--connector-server", "localhost"),
        2,
        ("'localhost' is no address", "127.0.0.1:5555"),
    ),
    Row("doctor: port that can't be", ("doctor", "--connector-server", "h:70000"), 2, ("'h:70000' is no address",)),
)
