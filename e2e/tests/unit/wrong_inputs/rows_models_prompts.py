"""Models, prompt lengths and texts: all that is refused before an engine is started."""

import json

from row import Row
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = [f"word{number}" for number in range(600)]
CONFIG = {
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "hidden_size": 64,
    "max_position_embeddings": 2048,
}  # fmt: skip


def model(**changes):
    """A folder ``model`` that has all that is looked at; ``changes``: file -> content, None: no such file."""

    def make(folder):
        where = folder / "model"
        where.mkdir()
        tokenizer = Tokenizer(
            models.WordLevel({word: n for n, word in enumerate(["<unk>", *WORDS])}, unk_token="<unk>")
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        files = {
            "config.json": json.dumps(CONFIG), "model.safetensors": "weights", "tokenizer.json": tokenizer.to_str(),
        } | {name.replace("_", "."): content for name, content in changes.items()}  # fmt: skip
        for name, content in files.items():
            if content is not None:
                (where / name).write_text(content)
        texts(words=" ".join(WORDS))(folder)

    return make


def texts(**files):
    """A folder ``texts``; content as text or bytes."""

    def make(folder):
        where = folder / "texts"
        where.mkdir(exist_ok=True)
        for name, content in files.items():
            (where / f"{name}.txt").write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def both(*makers):
    def make(folder):
        for maker in makers:
            maker(folder)

    return make


def run(name, words, says, *, given=model()):  # noqa: B008
    return Row(name, ("run", "--device", "cpu", "--prompts-dir", "texts", *words), 2, says, given=given)


def of_model(name, says, *words, **changes):
    return run(name, ("--model", "model", *words), says, given=model(**changes))


ROWS = (
    run("model: no such hub id", ("--model", "no-such-org/no-such-model-0"),
        ("model 'no-such-org/no-such-model-0'", "or a model folder")),
    run("model: a hub id with a blank", ("--model", "org/a b"), ("'org/a b' is no hub id", "or a model folder")),
    run("model: no such folder", ("--model", "./nothing"), ("no folder that exists", "a hub id like org/name")),
    run("model: a name that nobody knows", ("--model", "smollm3"), ("no folder that exists", "smollm2")),
    run("model: a file", ("--model", "texts/words.txt"), ("is a file", "give a folder")),
    of_model("model: no config.json", ("has no config.json",), config_json=None),
    of_model("model: config.json is HTML", ("config.json can't be read", "fetch the model again"),
             config_json="<html>"),
    of_model("model: config.json is a list", ("config.json can't be read", "fetch the model again"), config_json="[]"),
    of_model("model: no weights", ("has no weights",), model_safetensors=None),
    of_model("model: weights that were not fetched", ("has no weights",), model_safetensors=""),
    of_model("model: no tokenizer", ("has no tokenizer",), tokenizer_json=None),
    of_model("model: a tokenizer of another form", ("tokenizer.json can't be read",), tokenizer_json="{}"),
    of_model("lengths: more than the model takes", ("2041 is too long", "takes 2040 tokens beside an answer"),
             "--lengths", "2041"),
    of_model("lengths: solved ones that the model does not take", ("the model takes 291", "--lengths"),
             config_json=json.dumps({**CONFIG, "max_position_embeddings": 299})),
    of_model("lengths: too short to be served", ("1 is too short",), "--lengths", "1"),
    of_model("lengths: too short for a secret and a question", ("prompt of 20 tokens can't hold", "use at least"),
             "--lengths", "20"),
    of_model("max-tokens: more than the model takes", ("2048 is too many", "takes 2048 tokens"),
             "--max-tokens", "2048"),
    of_model("pool: smaller than one cell", ("the pool is 1 MiB", "--pool-size"), "--pool-size", "1M",
             config_json=json.dumps({**CONFIG, "num_hidden_layers": 64})),
    of_model("kv cache: smaller than one arm", ("--kv-cache-size is 1 MiB", "one arm needs"), "--kv-cache-size", "1M",
             config_json=json.dumps({**CONFIG, "num_hidden_layers": 64})),
    run("texts: few different tokens", ("--model", "model"), ("hold 3 different tokens", "give more or longer files"),
        given=both(model(), texts(words="word1 word2 word3 " * 900))),
    run("texts: one is not UTF-8", ("--model", "model"), ("latin.txt is not UTF-8", "convert it"),
        given=both(model(), texts(latin="Müller".encode("latin-1")))),
    run("texts: one is empty", ("--model", "model"), ("empty.txt is empty", "fill it or remove it"),
        given=both(model(), texts(empty=" \n"))),
    Row("gain: a model that it can't tell the tokens of",
        ("gain", "--axis", "placement", "index", "kernel", "--device", "cpu", "--model", "model"), 2,
        ("gain tells tokens itself", "tokenizer.json"), given=model(tokenizer_json=None, tokenizer_model="old")),
)  # fmt: skip
