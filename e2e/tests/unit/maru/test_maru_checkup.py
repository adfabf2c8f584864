"""What the doctor says of Maru, of machines that are described."""

import pytest

from e2e.connectors.maru import rpc
from e2e.connectors.maru.adapter import Maru
from e2e.connectors.maru.build import Build, misread
from e2e.connectors.maru.checkup import Seen, lines

JULY = Build(version="0.1.0", commit="4fd29ce", source="0", keys=frozenset({"maru_pool_size"}), kernels=False)
BUILT = Build(version="1", commit="c", source="0", keys=frozenset({"maru_use_layerwise"}), kernels=True)


def of(found, what):
    return [line for line in found if line.what == what]


@pytest.mark.parametrize(
    ("version", "device", "words"),
    [
        ((0, 22), "cuda", []),
        ((0, 23), "cuda", ["take 0.26 or newer"]),
        ((0, 25), "cuda", ["take 0.26 or newer"]),
        ((0, 26), "cuda", ["--attention TRITON_ATTN"]),
        ((0, 32), "cpu", []),
    ],
)
def test_what_july_makes_of_a_version(version, device, words):
    found = of(lines(Seen(build=JULY, vllm=version), device=device), "Maru")
    told = [word for word in ("take 0.26 or newer", "--attention TRITON_ATTN") for x in found if word in x.cure]
    assert told == words
    refused = misread(JULY, version, device=device, attention=None if device == "cuda" else "strided")
    assert [f"{line.says}; {line.cure}." for line in found if line.state == "no"] == ([refused] if refused else [])


@pytest.mark.parametrize(
    ("seen", "state", "says"),
    [
        (
            Seen(build=JULY, lacking=("maru-resource-manager",)),
            "no",
            "maru-resource-manager neither beside that Python",
        ),
        (Seen(build=JULY), "no", "mount namespaces are not allowed"),
        (Seen(build=JULY, namespaces=True), "ok", "each engine gets fresh ones"),
    ],
)
def test_servers(seen, state, says):
    (line,) = of(lines(seen, device="cpu"), "Maru's servers")
    assert (line.state, says in line.says) == (state, True)
    assert line.state == "ok" or line.cure


def test_of_a_server_that_is_given_nothing_is_owed():
    assert of(lines(Seen(build=JULY, given=True), device="cpu"), "Maru's servers") == []


@pytest.mark.parametrize(
    ("build", "vllm", "says"),
    [(JULY, (0, 22), "are not built"), (BUILT, (0, 26), "are never reached"), (BUILT, (0, 22), None)],
)
def test_kernels_that_place_nothing(build, vllm, says):
    notes = [line.says for line in lines(Seen(build=build, vllm=vllm), device="cpu") if line.state == "note"]
    assert len(notes) == (1 if says else 0)
    assert all(says in note for note in notes)


def test_without_maru_one_line_says_how_to_bring_it():
    (line,) = lines(Seen(), device="cpu")
    assert line.state == "no"
    assert "MARU_REQUIREMENT" in line.cure


def test_a_given_server_is_asked_in_its_own_words(monkeypatch):
    monkeypatch.setattr(rpc, "FIRST_S", 0.2)
    line = Maru(build=JULY, server="127.0.0.1:9").server_answers()
    assert (line.state, line.what) == ("no", "maru-server")
    assert "did not answer" in line.says
    assert Maru(build=None, server="127.0.0.1:9").server_answers() is None
    assert Maru(build=JULY).server_answers() is None
