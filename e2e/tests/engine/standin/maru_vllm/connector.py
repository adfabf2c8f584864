import logging
import os

import zmq

from e2e.connectors.maru.rpc import HANDSHAKE, decode, encode
from e2e.inside.connector import EmbeddedConnector

logger = logging.getLogger(__name__)
REPORT_STATS = 0xF2
#: Read by the rig as text, to know which keys this "version" heeds.
HEEDED = (
    "maru_server_url", "maru_pool_size", "maru_instance_id", "maru_kv_chunk_tokens", "maru_use_layerwise",
    "maru_async_load", "maru_overlap_load_with_compute", "maru_overlap_release_after_layers",
)  # fmt: skip


class MaruKVConnector(EmbeddedConnector):
    def __init__(self, vllm_config, role, kv_cache_config=None):
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._url, self._instance = extra["maru_server_url"], extra["maru_instance_id"]
        folder = os.path.join(self._instance, "double")
        os.makedirs(folder, exist_ok=True)
        extra["embedded_pool_dir"] = folder
        super().__init__(vllm_config, role, kv_cache_config)
        self._told = 0
        self._call(HANDSHAKE, {})

    # what the rig may not see here, since real Maru has none of it
    rig_evidence = None

    def _call(self, kind, payload):
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._url)
            socket.send(encode(kind, payload, sequence=1))
            if socket.poll(280_000):  # as July's connector: it hangs while /health says 200
                return decode(socket.recv(), source=self._url)
        raise ConnectionError(self._url)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._call(HANDSHAKE, {})
        found, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        if found:
            chunk = self._config.chunk_tokens
            total = found + num_computed_tokens
            logger.info(
                "Maru KV hit: req=%s, %d chunks (%d tokens), new=%d beyond computed=%d",
                request.request_id, total // chunk, total, found, num_computed_tokens,
            )  # fmt: skip
        return found, later

    def wait_for_save(self):
        super().wait_for_save()
        for load in self._pool.evidence.loads(self._told):
            self._told = max(self._told, load["id"])
            tokens, chunk = load["tokens"], self._config.chunk_tokens
            packed = "packed-loaded" if load["storage_format"] == "chunkwise" else "loaded"
            logger.info("Maru: %s %d layers x %d chunks (%d tokens)", packed, load["layers"], tokens // chunk, tokens)
        totals = self._pool.evidence.counters()
        entry = {"op_type": "batch_retrieve", "client_id": self._instance, "total_bytes": totals.get("loaded_bytes", 0)}
        self._call(REPORT_STATS, {"entries": [entry]})
