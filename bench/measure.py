"""What a process tree costs: CPU time, memory, and whether somebody else used the machine meanwhile (Linux)."""

import contextlib
import os
import resource
import threading
import time
from dataclasses import dataclass


@dataclass
class Process:
    parent: int
    name: str
    reaped_cpu: float  # seconds of children that ended and were waited for


def process(pid):
    """A live process, or None."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return Process(int(fields[1]), name, (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK"))


def tree(roots):
    """The live processes that descend from `roots`, by pid."""
    everyone = {int(name): process(name) for name in os.listdir("/proc") if name.isdigit()}
    children = {}
    for pid, known in everyone.items():
        if known:
            children.setdefault(known.parent, []).append(pid)
    found, todo = {}, list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found and everyone.get(pid):
            found[pid] = everyone[pid]
            todo += children.get(pid, [])
    return found


def cpu_clock(pid):
    """CPU seconds of a live process, all its threads, to the nanosecond."""
    try:
        return time.clock_gettime_ns(((~pid) << 3) | 2) / 1e9
    except OSError:
        return 0.0


class Usage:
    """CPU seconds of a tree so far; processes whose name begins with `php` are booked apart."""

    def __init__(self, roots):
        self.server = self.php = 0.0
        for pid, known in tree(roots).items():
            seconds = cpu_clock(pid) + known.reaped_cpu
            if known.name.startswith("php"):
                self.php += seconds
            else:
                self.server += seconds

    def since(self, before):
        return self.server - before.server, self.php - before.php


class PeakRss(threading.Thread):
    """The highest sum of resident sizes over a tree, sampled ten times a second; shared pages count once a process."""

    def __init__(self, roots):
        super().__init__(daemon=True)
        self.roots, self.peak, self.ended = roots, 0, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        turn, pids = 0, []
        while not self.ended.is_set():
            if turn % 10 == 0:
                pids = list(tree(self.roots))
            turn += 1
            self.peak = max(self.peak, sum(map(resident, pids)))
            self.ended.wait(0.1)


def resident(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def pss(roots, with_php=True):
    """Proportional set size of a tree in bytes: shared pages are divided among those who share them."""
    total = 0
    for pid, known in tree(roots).items():
        if not with_php and known.name.startswith("php"):
            continue
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def pin(roots, cpus):
    """Keeps every thread of a tree on `cpus`; what it starts later inherits that."""
    for pid in tree(roots):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread), cpus)


def machine_busy():
    """CPU seconds used by anybody, and seconds stolen by the host, since boot."""
    with open("/proc/stat") as file:
        value = [int(text) / os.sysconf("SC_CLK_TCK") for text in file.readline().split()[1:]]
    return value[0] + value[1] + value[2] + value[5] + value[6], value[7]
