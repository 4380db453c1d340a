#!/usr/bin/env python3
"""The script of a plan: what slow clients cost the others.

    slow_clients.py PATH

Measures the rate of PATH alone, beside clients that do not read their 10 MB (PATH?long), and beside clients that send two
bytes of a body a second. Reads and writes JSON.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

CLIENTS = 16
BODY = 1000  # bytes; at two a second longer than any measurement
LEAST_SHARE = 0.9  # of the rate alone, the goal


def connect(server, request):
    connection = socket.create_connection(("127.0.0.1", server["port"]), 10)
    connection.sendall(request.encode())
    return connection


@contextlib.contextmanager
def readers(server, path):
    """Clients that have read the beginning of a long answer, and then nothing."""
    request = f"GET {path}?long HTTP/1.1\r\nHost: 127.0.0.1:{server['port']}\r\n\r\n"
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(connect(server, request)) for _ in range(CLIENTS)]
        for connection in connections:
            connection.settimeout(0.5)
            # A server whose workers are all held answers no further client.
            with contextlib.suppress(TimeoutError):
                connection.recv(1024)
        yield


@contextlib.contextmanager
def senders(server, path):
    """Clients that send two bytes a second."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server['port']}\r\nContent-Length: {BODY}\r\n\r\n"
    is_over = threading.Event()
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(connect(server, head)) for _ in range(CLIENTS)]

        def send():
            while not is_over.wait(1):
                for connection in connections:
                    # The server may have given up a client.
                    with contextlib.suppress(OSError):
                        connection.sendall(b"xx")

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield
        finally:
            is_over.set()
            sending.join()


def rate(asked, server, path):
    """Answers with 200 a second, over 8 kept connections."""
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "run.json")
        duration = "500ms" if asked["quick"] else "4s"
        command = [asked["haulier"], "bench", "-q", "-c", "8", "--duration", duration, "--timeout", "2s"]
        command += ["--json", report, f"{server['url']}{path}"]
        ended = subprocess.run(command, capture_output=True, text=True)
        if not os.path.exists(report):
            # Not one answer.
            print(ended.stderr, file=sys.stderr)
            return 0.0
        with open(report) as file:
            total = json.load(file)["points"][0]["total"]
    return total["statuses"].get("200", 0) / total["duration_s"]


def measure(asked, server, path):
    """[rate alone, its share beside readers, its share beside senders]"""
    alone = rate(asked, server, path)
    if not alone:
        raise SystemExit(f"{server['about']} does not answer {path}")
    shares = []
    for slow in (readers, senders):
        with slow(server, path):
            beside = rate(asked, server, path)
        shares.append(beside / rate(asked, server, path))
    return [alone, *shares]


def goal(text, share):
    return {"goal": text, "measured": f"{share:.2f}", "is_reached": share >= LEAST_SHARE}


def main():
    asked, (path,) = json.load(sys.stdin), sys.argv[1:]
    rows = [{"name": server["about"], "cells": measure(asked, server, path)} for server in asked["servers"]]
    columns = [
        {"name": "requests/s alone", "best": "most"},
        {"name": "of it beside readers", "best": "most"},
        {"name": "of it beside senders", "best": "most"},
    ]
    goals = []
    if not asked["quick"]:
        for row in rows:
            if row["name"].startswith("haulier"):
                _, reading, sending = row["cells"]
                goals.append(goal(f"{row['name']}: {LEAST_SHARE} of its rate beside readers", reading))
                goals.append(goal(f"{row['name']}: {LEAST_SHARE} of its rate beside senders", sending))
    json.dump({"tables": [{"columns": columns, "rows": rows}], "goals": goals}, sys.stdout)


if __name__ == "__main__":
    main()
