"""A canary beside engines in use: what it is given."""

import socket

from row import Row

URL = ("--target", "http://127.0.0.1:1")
#: Held until the tests end.
_TAKEN = socket.socket()
_TAKEN.bind(("127.0.0.1", 0))
_TAKEN.listen()


def canary(name, words, says, *, target=URL, code=2, **more):
    return Row(f"canary: {name}", ("canary", *target, *words), code, says, **more)


def file(name, content):
    def given(folder):
        path = folder / name
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)

    return given


def recorded_by_another(folder):
    """A folder that a file stands in the way of."""
    (folder / "out").mkdir()
    (folder / "out" / "canary.lock").mkdir()


ROWS = (
    canary("no target", (), ("needs an engine in use", "--target http://HOST:PORT"), target=()),
    canary("no address", (), ("--target", "'localhost:8000' is no address", "http://127.0.0.1:8000"),
           target=("--target", "localhost:8000")),
    canary("an address with a query", (), ("--target", "is no address"), target=("--target", "http://h:1/?x=1")),
    canary("an address with port 0", (), ("--target", "is no address"), target=("--target", "http://127.0.0.1:0")),
    canary("one engine twice", (), ("--target names one engine twice",), target=URL * 2),
    canary("one engine twice, with a slash", (), ("--target names one engine twice",),
           target=(*URL, "--target", "http://127.0.0.1:1/")),
    canary("too many engines", (), ("27 engines", "start another"),
           target=tuple(w for n in range(1, 28) for w in ("--target", f"http://127.0.0.1:{n}"))),
    canary("--attach", ("--attach", "http://127.0.0.1:1"), ("--attach is unknown",)),
    canary("two keys", ("--api-key", "sk-1", "--api-key-file", "key"), ("--api-key and --api-key-file", "give one"),
           given=file("key", "sk-2\n")),
    canary("a key file that is not there", ("--api-key-file", "key"), ("--api-key-file", "'key' can't be read")),
    canary("a key file that is a folder", ("--api-key-file", "."), ("--api-key-file", "'.' can't be read")),
    canary("an empty key file", ("--api-key-file", "key"), ("--api-key-file", "is empty"), given=file("key", "\n")),
    canary("a key file of two lines", ("--api-key-file", "key"), ("--api-key-file", "no HTTP header takes"),
           given=file("key", "one\ntwo\n")),
    canary("a key file of bytes", ("--api-key-file", "key"), ("--api-key-file", "is no text"),
           given=file("key", b"\xff\xfe\x00")),
    canary("a share of words", ("--share", "some"), ("--share", "'some' is no share", "0.5%")),
    canary("a share of nothing", ("--share", "0"), ("--share", "above 0")),
    canary("a share of more than all", ("--share", "120%"), ("--share", "up to 100%")),
    canary("a share that is no number", ("--share", "nan"), ("--share", "'nan' is no share")),
    canary("no budget", ("--tokens-a-minute", "0"), ("--tokens-a-minute", "0 is too small")),
    canary("a budget of words", ("--tokens-a-minute", "few"), ("--tokens-a-minute", "'few' is no whole number")),
    canary("no room in the store", ("--store-tokens", "0"), ("--store-tokens", "0 is too small")),
    canary("a store of unknown tokens", ("--store", "64G"), ("--store", "--token-bytes", "128K")),
    canary("a store of words", ("--store", "big"), ("--store", "'big' is no size")),
    canary("tokens of no bytes", ("--token-bytes", "0"), ("--token-bytes", "'0' is no size")),
    canary("more than the store", ("--store-share", "200%"), ("--store-share", "up to 100%")),
    canary("prompts that are too short", ("--longest", "100"), ("--longest", "100 is too small", "256")),
    canary("prompts that hold no chunk", ("--longest", "512", "--chunk", "512"),
           ("--longest 512 holds no chunk of 512",)),
    canary("a chunk of half a block", ("--chunk", "24"), ("--chunk 24 is no multiple of --block 16",)),
    canary("no step", ("--step", "0"), ("--step", "0 is too small")),
    canary("an address to listen at that is none", ("--listen", "9464"),
           ("--listen", "'9464' is no address", "127.0.0.1:9464")),
    canary("a port that there is not", ("--listen", "127.0.0.1:70000"), ("--listen", "is no address to listen at")),
    canary("an address that is taken", ("--listen", f"127.0.0.1:{_TAKEN.getsockname()[1]}"),
           ("--listen", "can't be had", "choose another")),
    canary("an address of somebody else", ("--listen", "192.0.2.1:9464"), ("--listen", "can't be had")),
    canary("room for nothing", ("--keep", "10K"), ("--keep", "'10K' holds no recording", "1M")),
    canary("room of words", ("--keep", "much"), ("--keep", "is no size")),
    canary("a time of words", ("--for", "ever"), ("--for", "is no time up to a day")),
    canary("no probes", ("--probes", "0"), ("--probes", "0 is too small")),
    canary("a folder that is a file", ("--out", "out"), ("--out", "is a file"), given=file("out", "")),
    canary("a folder that can't be locked", ("--out", "out"), ("canary.lock can't be written",),
           given=recorded_by_another),
    canary("no such texts", ("--prompts-dir", "texts"), ("--prompts-dir", "is no folder")),
    canary("an unknown key of a file", ("--config", "canary.toml"),
           ("canary.toml: shares is no setting of canary", "share"), given=file("canary.toml", "shares = 0.1\n")),
    canary("a wrong value of a file", ("--config", "canary.toml"), ("canary.toml: share", "'2' is no share"),
           given=file("canary.toml", "share = 2\n")),
    canary("a list in a file where one goes", ("--config", "canary.toml"), ("canary.toml: listen takes one value",),
           given=file("canary.toml", 'listen = ["a:1", "b:2"]\n')),
    canary("an unknown flag", ("--tokens-per-minute", "1"), ("--tokens-per-minute is unknown", "--tokens-a-minute")),
)  # fmt: skip
