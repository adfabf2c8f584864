"""Stands in for vLLM's API server where process life is tested. Behaviour comes from the environment:

STAND_IN  "ready": serves; "refuse": raises; "silent": never serves; "deaf": serves, and ignores SIGINT;
          "crash": serves, and dies by SIGKILL at a request for /crash.
STAND_IN_CHILD  "1": first starts a child that leaves the process group and ignores SIGINT.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

CHILD = "import os, signal, time; os.setsid(); signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os.kill(os.getpid(), signal.SIGKILL)
        body = json.dumps({"data": [{"id": "model", "max_model_len": 4096}]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


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
    if mode == "silent":
        time.sleep(600)
    if mode == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    HTTPServer(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
