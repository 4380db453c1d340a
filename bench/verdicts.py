#!/usr/bin/env python3
"""How often `haulier bench` is right: equal servers, and one that is a tenth slower.

A scripted server answers after a fixed time on each connection, so the truth is known. Runs alternate between the two
questions. The bar: "no difference shown" in 95 of 100, the slower one found in 90 of 100.

    bench/verdicts.py --haulier target/release/haulier [--runs 100]
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FAST = 0.005
SLOW = FAST / 0.9


class Server:
    """Answers every request after the same time."""

    def __init__(self, delay):
        self.delay = delay
        self.port = None
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve(ready)), daemon=True).start()
        ready.wait()

    async def serve(self, ready):
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    async def answer(self, reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(self.delay)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def verdict(haulier, base, other):
    """The word for the rate of `other` against `base`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as document:
        urls = [f"A=http://127.0.0.1:{base.port}/", f"B=http://127.0.0.1:{other.port}/"]
        command = [haulier, "bench", "-q", "-c", "4", "-n", "200", "--rounds", "5", "--warmup", "100ms"]
        subprocess.run([*command, "--json", document.name, *urls], check=True, capture_output=True)
        run = json.load(open(document.name))
    return next(one["verdict"] for one in run["comparisons"] if one["metric"] == "requests_per_second")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--haulier", default="target/release/haulier")
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    haulier = os.path.abspath(arguments.haulier)
    one, same, slower = Server(FAST), Server(FAST), Server(SLOW)
    equal = found = 0
    for _ in range(arguments.runs):
        equal += verdict(haulier, one, same) == "no_difference"
        found += verdict(haulier, one, slower) == "worse"
    print(f"equal servers: no difference shown in {equal} of {arguments.runs}")
    print(f"a tenth slower: found in {found} of {arguments.runs}")
    sys.exit(0 if equal >= 0.95 * arguments.runs and found >= 0.9 * arguments.runs else 1)


if __name__ == "__main__":
    main()
