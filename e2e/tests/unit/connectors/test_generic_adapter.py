import pytest

from e2e.base.cell import Cell
from e2e.base.connector import OVERLAP_UNSEEN, Abilities
from e2e.base.errors import SettingsError
from e2e.connectors.maru.witness import MaruWitness
from e2e.connectors.table import load, names
from e2e.grid.cells import expand
from e2e.grid.selection import Selection

CELL = Cell({"layout": "NHD", "block_size": 16})
WHOLE = """
[connector]
name = "mine"
class = "Mine"
module_path = "my.mod"
granularity = 256
hold_back = 2
engine_args = ["--enforce-eager"]
[connector.extra]
path = "{pool_dir}/kv"
deep = { list = ["{pool_dir}", 1] }
[connector.env]
PYTHONPATH = "/srv/mine"
"""


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_whole_file(tmp_path):
    adapter = load(write(tmp_path, WHOLE))
    config = adapter.config(CELL, pool_dir="/pool", block_size=16)
    assert adapter.name == "mine"
    assert config.as_kv_transfer_config() == {
        "kv_connector": "Mine",
        "kv_role": "kv_both",
        "kv_connector_module_path": "my.mod",
        "kv_connector_extra_config": {"path": "/pool/kv", "deep": {"list": ["/pool", 1]}},
        "kv_load_failure_policy": "fail",
    }
    assert config.engine_args == ("--enforce-eager",)
    assert config.env == {"PYTHONPATH": "/srv/mine"}
    assert adapter.hit_rule(CELL, block_size=16).external(514) == 512
    assert adapter.step(CELL, block_size=16) == 512


FULL = """
[connector]
name = "two-builds"
class = "MaruKVConnector"
module_path = "maru_vllm"
granularity = "chunk_tokens"
kv_role = "kv_producer"
kv_load_failure_policy = "recompute"
longest_prompt = 4096
[connector.axes]
variant = ["july", "new"]
overlap = [false, true]
chunk_tokens = [128, 256]
[connector.extra]
url = "tcp://{store.address}"
chunk = "{chunk_tokens}"
[connector.when.variant.july.env]
PYTHONPATH = "/srv/july"
[connector.when.variant.new.env]
PYTHONPATH = "/srv/new"
[connector.when.overlap.on]
extra = { overlap = true }
engine_args = ["--no-async-scheduling"]
[[connector.servers]]
name = "store"
command = ["store", "--port", "{store.port}", "--dir", "{pool_dir}"]
ready = "listening"
probe = "tcp"
[connector.witness]
name = "maru"
address = "{store.address}"
instance = "{pool_dir}"
[[connector.refuses]]
multiple_of = 128
why = "it kills the engine."
"""


def test_two_builds_with_servers_and_axes_of_their_own(tmp_path):
    adapter = load(write(tmp_path, FULL))
    cells = {cell.id: cell for cell in expand(Selection(), adapter).cells}
    assert len(cells) == 16
    assert {cell.get("variant") for cell in cells.values()} == {"july", "new"}
    cell = next(
        c for c in cells.values() if (c.get("variant"), c.get("overlap"), c.get("chunk_tokens")) == ("new", "on", 128)
    )
    config = adapter.config(cell, pool_dir="/pool", block_size=16)
    assert config.extra == {"url": "tcp://{store.address}", "chunk": 128, "overlap": True}
    assert (config.env, config.engine_args) == ({"PYTHONPATH": "/srv/new"}, ("--no-async-scheduling",))
    (server,) = config.services
    assert server.argv == ("store", "--port", "{store.port}", "--dir", "/pool")
    assert (config.witness.reader, config.witness.about["instance"], adapter.abilities.counters) == (
        MaruWitness,
        "/pool",
        True,
    )
    told = config.placed({"store": "127.0.0.1:9"}).as_kv_transfer_config()
    assert told["kv_connector_extra_config"]["url"] == "tcp://127.0.0.1:9"
    assert (told["kv_role"], told["kv_load_failure_policy"]) == ("kv_producer", "recompute")
    assert adapter.hit_rule(cell, block_size=16).external(514) == 512
    assert (adapter.refuses(cell, 256), adapter.refuses(cell, 257)) == ("it kills the engine.", None)


def test_values_that_the_file_lacks_are_left_out_with_the_reason(tmp_path):
    text = '[connector]\nname = "mine"\nclass = "Mine"\n[connector.axes]\noverlap = [false]'
    grid = expand(Selection(), load(write(tmp_path, text)))
    assert {cell.get("overlap") for cell in grid.cells} == {"off"}
    assert {invalid.why for invalid in grid.invalid} == {"mine knows overlap off only."}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[connector.axes]", '[connector.axes]\nvaraint = ["x"]', "axis 'varaint' is unknown"),
        ('"new"]', '"new", "a b"]', "axis variant: 'a b' is no word of letters, digits"),
        ("[128, 256]", "[0]", "axis chunk_tokens: '0' is no whole number from 1 on"),
        ("when.variant.july", "when.variant.juli", "connector.axes.variant does not hold 'juli'"),
        ("[connector.axes]", "[connector.axes]\nload = []", "connector.axes.load has no value"),
        ("ready =", "redy =", "connector.servers[0].redy is unknown; did you mean ready?"),
        ('probe = "tcp"', 'probe = "udp"', "connector.servers[0].probe must be maru or tcp"),
        ("command = [", "address = [", "connector.servers[0].address must be host:port"),
        ('name = "maru"', 'name = "nobody"', "connector.witness.name must be maru"),
        (
            'instance = "{pool_dir}"\n',
            "",
            "witness.instance is missing; witness maru needs address and instance",
        ),
        ("multiple_of = 128", "multiple_of = 0", "connector.refuses[0].multiple_of must be a whole number"),
        ('"recompute"', '"ignore"', 'connector.kv_load_failure_policy must be "fail" or "recompute"'),
        ("chunk_tokens = [128, 256]\n", "", 'granularity is "chunk_tokens"; give connector.axes.chunk_tokens'),
    ],
)
def test_what_a_file_may_not_hold_beside(tmp_path, old, new, sentence):
    assert old in FULL
    with pytest.raises(SettingsError) as caught:
        expand(Selection(), load(write(tmp_path, FULL.replace(old, new, 1))))
    assert sentence in str(caught.value)


def test_abilities_are_those_of_the_file_and_strict_where_it_is_silent(tmp_path):
    silent = load(write(tmp_path, '[connector]\nname = "x"\nclass = "X"')).abilities
    assert silent == Abilities()
    assert load(write(tmp_path, FULL)).abilities == Abilities(counters=True, longest_prompt=4096)
    stated = "[connector.abilities]\nsalted = false\npool_bytes = 7\ncounters = false\nowns_store = true\n"
    found = load(write(tmp_path, FULL + stated)).abilities
    assert found == Abilities(owns_store=True, pool_bytes=7, longest_prompt=4096, salted=False)


def test_waits_that_nobody_tells_of_are_a_blind_spot_only_where_the_file_says_so(tmp_path):
    text = '[connector]\nname = "mine"\nclass = "Mine"\n[connector.axes]\noverlap = ["off", "on"]\n'
    told = load(write(tmp_path, text + "[connector.abilities]\nwaits_seen = false"))
    for overlap, spots in (("on", [OVERLAP_UNSEEN]), ("off", [])):
        cell = Cell({"layout": "NHD", "overlap": overlap})
        assert [spot["fault_class"] for spot in told.blind(cell)] == spots
        assert load(write(tmp_path, text)).blind(cell) == []


def test_least_file_serves_whole_blocks_but_the_last_token(tmp_path):
    adapter = load(write(tmp_path, '[connector]\nname = "x"\nclass = "X"\ngranularity = "block"'))
    assert adapter.hit_rule(CELL, block_size=32).external(65) == 64
    assert adapter.hit_rule(CELL, block_size=32).external(64) == 32
    assert adapter.config(CELL, pool_dir="/p", block_size=32).module_path is None


@pytest.mark.parametrize("args", ['"--max-num-batched-tokens", "4096"', '"--max-num-batched-tokens=4096"'])
def test_step_of_the_file_is_not_overruled(tmp_path, args):
    adapter = load(write(tmp_path, f'[connector]\nname = "x"\nclass = "X"\nengine_args = [{args}]'))
    assert adapter.step(CELL, block_size=16) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("= 1", "is no TOML"),
        ("", "holds one table [connector]; it has none"),
        ('[connector]\nname = "x"\nclass = "X"\n[conector]', "conector is unknown; did you mean connector?"),
        ('[connector]\nname = "x"', "connector.class is missing; give the name of a Python class"),
        (
            '[connector]\nname = "x"\nclass = "X"\nhold_bak = 1',
            "connector.hold_bak is unknown; did you mean hold_back?",
        ),
        (
            '[connector]\nname = "x"\nclass = "X"\ngranularity = "chunk"',
            'granularity must be "block", a whole number of tokens',
        ),
        (
            '[connector]\nname = "x"\nclass = "X"\ngranularity = 0',
            'granularity must be "block", a whole number of tokens',
        ),
        (
            '[connector]\nname = "x"\nclass = "X"\nhold_back = -1',
            "connector.hold_back must be a whole number of tokens from 0 on",
        ),
        (
            '[connector]\nname = "x"\nclass = "X"\nhold_back = true',
            "connector.hold_back must be a whole number of tokens from 0 on",
        ),
        ('[connector]\nname = "a/b"\nclass = "X"', "connector.name must be a name of letters, digits"),
        (
            '[connector]\nname = "x"\nclass = "X"\nengine_args = "--x"',
            "connector.engine_args must be a list of texts",
        ),
        (
            '[connector]\nname = "x"\nclass = "X"\n[connector.env]\nA = 1',
            "connector.env.A must be a text",
        ),
    ],
)
def test_bad_files_get_one_sentence_naming_file_and_key(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.toml: can't be read \(No such file"):
        load(str(tmp_path / "none.toml"))


def test_file_that_is_not_text(tmp_path):
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="is no TOML"):
        load(str(tmp_path / "b.toml"))


@pytest.mark.parametrize(("name", "hint"), [("exmaple", "did you mean example? Use"), ("zzz", "use")])
def test_unknown_name(name, hint):
    with pytest.raises(SettingsError) as caught:
        load(name)
    assert str(caught.value) == (
        f"connector {name!r} is unknown; {hint} {', '.join(names())}, a FILE.toml or package.module:Class."
    )


def test_pool_size_is_for_connectors_with_a_pool():
    sized = load("embedded", pool_bytes=1 << 20).config(CELL, pool_dir="/p", block_size=16)
    assert sized.extra["maru_pool_size"] == 1 << 20
    with pytest.raises(SettingsError, match="example has no pool of its own"):
        load("example", pool_bytes=1)


def test_a_pace_is_for_pools_whose_pace_can_be_set():
    paced = load("embedded", pool_pace="1GB/s").with_pool(1 << 20, evicts=True)
    assert paced.config(CELL, pool_dir="/p", block_size=16).extra["embedded_pool_pace"] == "1GB/s"
    assert "embedded_pool_pace" not in load("embedded").config(CELL, pool_dir="/p", block_size=16).extra
    for other in ("maru", "example"):
        with pytest.raises(SettingsError, match=f"connector {other} has no pool whose pace can be set; leave out"):
            load(other, pool_pace="1GB/s")
