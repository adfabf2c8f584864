"""Stands in for vLLM's API server in a container whose life is tested. STAND_IN: "ready" serves and dies at a request
for /crash, "refuse" raises, "silent" never serves."""

import argparse
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os._exit(9)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getuid()).encode())

    def log_message(self, *words):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    args, _ = parser.parse_known_args()
    print("stand-in", os.environ["STAND_IN"], flush=True)
    if os.environ["STAND_IN"] == "refuse":
        raise ValueError("this engine refuses")
    if os.environ["STAND_IN"] == "silent":
        time.sleep(600)
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    HTTPServer((args.host, args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
