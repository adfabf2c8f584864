import pytest

from e2e.base.errors import EngineAnswer, EngineCrashed
from e2e.base.event import Event
from e2e.observe.effective import observe_engine

#: cut from vLLM 0.32's /server_info?config_format=json
SERVER = {
    "vllm_config": {
        "cache_config": {
            "block_size": 128,
            "kv_cache_layout": None,
            "enable_prefix_caching": True,
            "num_gpu_blocks": 67,
        },
        "scheduler_config": {"max_num_batched_tokens": 512, "async_scheduling": False},
        "model_config": {"dtype": "torch.float32", "max_model_len": 4096},
        "kv_transfer_config": None,
        "device_config": {"device_type": "cpu"},
    },
    "vllm_env": {"VLLM_BATCH_INVARIANT": False},
    "system_env": {"torch_version": "2.13.0+cpu", "python_version": "3.11.7 (main, May  9 2026)"},
}
WORKER = {"layout": "NHD", "block_size": 16, "max_num_batched_tokens": 512, "versions": {"torch": "2.13.0"}}
MISSING = EngineAnswer("not there.", status=404)


class Engine:
    def __init__(self, *, worker=MISSING, server=MISSING, version="0.32.0"):
        self.answers, self.asked = {"rig_info": worker, "server": server, "version": version}, []

    def _answer(self, name):
        self.asked.append(name)
        if isinstance(self.answers[name], Exception):
            raise self.answers[name]
        return self.answers[name]

    def collective_rpc(self, method):
        answer = self._answer(method)
        return answer if isinstance(answer, list) else [answer]

    def server_info(self):
        return self._answer("server")

    def version(self):
        return self._answer("version")


def observe(engine):
    events = []

    def record(kind, **data):
        events.append(Event(kind, data))
        return events[-1]

    assert observe_engine(engine, "e", record) is events[-1]
    return events[-1]["effective"], [event for event in events if event.kind == "note"]


def test_what_the_worker_says_is_enough():
    engine = Engine(worker=WORKER, server=SERVER)
    effective, notes = observe(engine)
    assert effective == {**WORKER, "versions": {"torch": "2.13.0", "vllm": "0.32.0"}}
    assert "server" not in engine.asked
    assert not notes


def test_ranks_that_do_not_say_alike_are_told():
    other = {**WORKER, "layout": "HND", "device": "cuda:1"}
    effective, _ = observe(Engine(worker=[{**WORKER, "device": "cuda:0"}, other]))
    assert (effective["ranks"], effective["layout"]) == (2, "NHD")
    assert effective["ranks_differ"] == {"layout": ["NHD", "HND"]}
    effective, _ = observe(Engine(worker=[WORKER, WORKER]))
    assert effective["ranks"] == 2
    assert "ranks_differ" not in effective


def test_without_the_extension_the_api_process_tells_what_it_knows():
    effective, notes = observe(Engine(server=SERVER))
    assert effective == {
        "block_size": 128,
        "enable_prefix_caching": True,
        "num_blocks": 67,
        "max_num_batched_tokens": 512,
        "async_scheduling": False,
        "dtype": "float32",
        "max_model_len": 4096,
        "batch_invariant": False,
        "versions": {"vllm": "0.32.0", "torch": "2.13.0+cpu", "python": "3.11.7"},
    }
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("device", "said", "mode"),
    [("cuda", True, True), ("cuda", "1", True), ("cuda", "0", False), ("cuda", False, False), ("cpu", True, False)],
)
def test_batch_invariant_is_what_has_such_kernels(device, said, mode):
    config = {**SERVER["vllm_config"], "device_config": {"device_type": device}}
    server = {**SERVER, "vllm_config": config, "vllm_env": {"VLLM_BATCH_INVARIANT": said}}
    assert observe(Engine(server=server))[0]["batch_invariant"] is mode


def test_a_worker_that_knows_half_wins_over_the_api_process():
    effective, _ = observe(Engine(worker={"layout": "NHD", "block_size": 16}, server=SERVER))
    assert (effective["layout"], effective["block_size"], effective["num_blocks"]) == ("NHD", 16, 67)


def test_nothing_known_is_nothing_said():
    effective, notes = observe(Engine(version=MISSING))
    assert effective == {"versions": {}}
    assert len(notes) == 3


@pytest.mark.parametrize("odd", [{"vllm_config": "text"}, {"vllm_config": {"cache_config": "CacheConfig(...)"}}, {}])
def test_another_versions_form_is_no_crash(odd):
    effective, _ = observe(Engine(server=odd))
    assert effective == {"versions": {"vllm": "0.32.0"}}


def test_a_dead_engine_raises():
    with pytest.raises(EngineCrashed):
        observe(Engine(worker=EngineCrashed("gone.")))
