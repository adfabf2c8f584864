"""Engines that run already: who answers there, and with what."""

import http_servers
from http_servers import address
from row import Row


def attach(name, role, says, *more, at=None, code=2):
    return Row(name, ("run", "--attach", at or address(role), *more), code, says, given=http_servers.serve)


NO_VLLM = ("is no vLLM", "--attach")

ROWS = (
    attach("attach: nobody there", "", ("nobody answers at http://127.0.0.1:1", "start the engine"),
           at="http://127.0.0.1:1"),
    attach("attach: no such host", "", ("nobody answers", "correct --attach"), at="http://no-such-host.invalid:8000"),
    attach("attach: no URL", "", ("'localhost:8000' is no address", "http://127.0.0.1:8000"), at="localhost:8000"),
    attach("attach: https where http is spoken", "", ("does not speak TLS",),
           at=address("whole").replace("http:", "https:")),
    attach("attach: {} for everything", "braces", NO_VLLM),
    attach("attach: [] for everything", "list", NO_VLLM),
    attach("attach: HTML for everything", "html", NO_VLLM),
    attach("attach: deeply nested", "deep", NO_VLLM),
    attach("attach: bytes of no text", "binary", NO_VLLM),
    attach("attach: 404 for everything", "nothing", (*NO_VLLM, "HTTP 404")),
    attach("attach: 500 for everything", "failing", (*NO_VLLM, "HTTP 500")),
    attach("attach: a vLLM without a model", "no-model", ("/v1/models", "no model")),
    attach("attach: models of another form", "odd-models", ("/v1/models", "no model")),
    attach("attach: a connection that is lost", "lost", ("nobody answers",)),
    attach("attach: a key is needed", "key", ("needs a key (HTTP 401)", "give --api-key", "MARU_E2E_API_KEY")),
    attach("attach: forbidden", "forbidden", ("needs a key (HTTP 403)", "--api-key")),
    attach("attach: a gateway that wants a key for all", "key-for-all", ("needs a key (HTTP 401)", "--api-key")),
    attach("attach: the wrong key", "key", ("needs a key (HTTP 401)", "refuses the one that was given"),
           "--api-key", "sk-1"),
    attach("attach: no dev routes", "no-dev",
           ("without its dev routes", "VLLM_SERVER_DEV_MODE=1", "--worker-extension-cls e2e.inside.extension")),
    attach("attach: no reset of the prefix cache", "no-reset", ("without its dev routes", "VLLM_SERVER_DEV_MODE=1")),
    attach("attach: no worker extension", "no-extension",
           ("no worker extension", "HTTP 500", "--worker-extension-cls e2e.inside.extension.RigExtension")),
    attach("attach: a worker that tells nothing", "no-results", ("no worker extension", "--worker-extension-cls")),
    attach("attach: a worker that tells an odd layout", "odd-layout", ("tells what the rig can't use", "NHD or HND")),
    attach("attach: a worker that tells a table", "odd-table", ("tells what the rig can't use", "NHD or HND")),
    attach("attach: a worker that tells an odd block size", "odd-block",
           ("tells what the rig can't use", "block_size: 'many'")),
    attach("attach: no /tokenize", "whole", ("tokenizing", "HTTP 404"), code=4),
    attach("attach: tokens of another form", "odd-tokens", ("/tokenize", "is it a vLLM server?"), code=4),
    attach("attach: lengths that its model does not take", "whole", ("5000 is too long", "takes 4088 tokens"),
           "--lengths", "5000"),
    attach("attach: a layout that it does not have", "whole", ("HND",), "--cell", "layout=HND"),
)  # fmt: skip
