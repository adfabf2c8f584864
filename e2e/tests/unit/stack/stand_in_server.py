"""Stands in for vLLM's API server where process life is tested. Behaviour comes from the environment:

STAND_IN  "ready": serves; "refuse": raises; "silent": never serves; "deaf": serves, and ignores SIGINT;
          "crash": serves, and dies by SIGKILL at a request for /crash; "mapped": maps the file SEGMENT, and dies.
At /self it tells what it was started with.
STAND_IN_CHILD  "1": first starts a child that leaves the process group and ignores SIGINT.
"""

import argparse
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

CHILD = "import os, signal, time; os.setsid(); signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os.kill(os.getpid(), signal.SIGKILL)
        told = itself() if self.path == "/self" else {"data": [{"id": "model", "max_model_len": 4096}]}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def itself():
    signals = (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)
    return {
        "argv": sys.argv, "environ": dict(os.environ), "path": sys.path, "main": __name__, "cwd": os.getcwd(),
        "tmp": tempfile.gettempdir(), "leads": os.getsid(0) == os.getpid(), "files": os.listdir("/proc/self/fd"),
        "input": os.readlink("/proc/self/fd/0"), "output": [os.readlink(f"/proc/self/fd/{n}") for n in (1, 2)],
        "signals": {name.name: repr(signal.getsignal(name)) for name in signals},
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args, _ = parser.parse_known_args()
    mode = os.environ["STAND_IN"]
    print("(APIServer pid=1) INFO 01-01 00:00:00 [x.py:1] stand-in", mode, flush=True)
    if os.environ.get("STAND_IN_CHILD"):
        subprocess.Popen([sys.executable, "-c", CHILD])
    if mode == "refuse":
        raise ValueError("this engine refuses")
    if mode == "mapped":
        with open(os.environ["SEGMENT"], "w+b") as file:
            file.truncate(64)
            mapped = mmap.mmap(file.fileno(), 64)
        time.sleep(2)
        mapped.close()
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "silent":
        time.sleep(600)
    if mode == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    HTTPServer(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
