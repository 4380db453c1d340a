#!/usr/bin/env python3
"""The script of a plan: what silent connections take.

    idle.py PATH N      N connections to each server, with one answer each; then nothing more is said

Memory is the proportional size (PSS) of a server's processes without PHP's, before and after. Reads and writes JSON.
"""

import contextlib
import json
import os
import resource
import socket
import sys
import time

SOURCES = 16  # 127.0.0.2 and on, so that local ports never run out
BIND_WITHOUT_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: the port is chosen at connect, when the whole address pair is known
MOST_BYTES = 1536  # a connection, the goal


def processes():
    """(pid, parent, name) of all that live."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            text = file.read()
            name = text[text.index("(") + 1 : text.rindex(")")]
            yield int(pid), int(text[text.rindex(")") + 2 :].split()[1]), name


def tree(roots):
    """The processes that descend from `roots`, PHP's left out."""
    everyone = list(processes())
    found = {pid for pid, _, _ in everyone if pid in roots}
    while more := {pid for pid, parent, _ in everyone if parent in found and pid not in found}:
        found |= more
    return [pid for pid, _, name in everyone if pid in found and not name.startswith("php")]


def pss(roots):
    """Bytes; what several processes share is divided among them."""
    total = 0
    for pid in tree(roots):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def answered(port, path, index):
    """A connection that had its answer, or None."""
    connection = socket.socket()
    connection.settimeout(10)
    try:
        connection.setsockopt(socket.IPPROTO_IP, BIND_WITHOUT_PORT, 1)
        connection.bind((f"127.0.0.{2 + index % SOURCES}", 0))
        connection.connect(("127.0.0.1", port))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        if connection.recv(4096).startswith(b"HTTP/1.1 200"):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def measure(server, path, count):
    """[bytes a connection, connections lost, PSS with all of them]"""
    for index in range(3):
        first = answered(server["port"], path, index)
        if first is None:
            raise SystemExit(f"{server['about']} does not answer {path}")
        first.close()
    time.sleep(0.3)
    before = pss(server["pids"])
    opened = [one for index in range(count) if (one := answered(server["port"], path, index))]
    time.sleep(0.5)
    after = pss(server["pids"])
    kept = sum(map(is_open, opened))
    for connection in opened:
        connection.close()
    return [(after - before) / max(len(opened), 1), count - kept, after]


def goal(text, measured, is_reached):
    return {"goal": text, "measured": measured, "is_reached": is_reached}


def main():
    asked, (path, count) = json.load(sys.stdin), sys.argv[1:]
    count = 100 if asked["quick"] else int(count)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = [{"name": server["about"], "cells": measure(server, path, count)} for server in asked["servers"]]
    columns = [
        {"name": "memory a connection", "unit": "bytes", "best": "least"},
        {"name": "lost"},
        {"name": "memory (PSS)", "unit": "bytes"},
    ]
    goals = []
    if not asked["quick"] and rows[0]["name"] == "haulier":
        took, lost, _ = rows[0]["cells"]
        goals = [
            goal(f"memory a connection <= {MOST_BYTES:,} B", f"{took:,.0f} B", took <= MOST_BYTES),
            goal("lost <= 0", f"{lost}", lost == 0),
        ]
    json.dump({"tables": [{"columns": columns, "rows": rows}], "goals": goals}, sys.stdout)


if __name__ == "__main__":
    main()
