#!/usr/bin/env python3
"""Measures haulier beside the servers its users have today.

Servers run pinned to one core, the load generator to another; they take turns round by round, after every answer was
checked byte by byte. The result goes to docs/benchmarks.md and bench/results/latest.json, which keeps the workloads
that this run left out. Loopback only; one run at a time on a machine (BENCH_LOCK names the lock file); Linux.
"""

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import tempfile
import time

import files
import load
import measure
import report
import servers
from workloads import WORKLOADS

LOCK = os.environ.get("BENCH_LOCK") or os.path.join(tempfile.gettempdir(), "haulier-bench.lock")
SERVER_CORE, CLIENT_CORE = 0, 1
WARM_UP = 40  # requests: every PHP process has met the script, every file is in its cache


def cores():
    """Where servers and clients run: apart if the machine has two cores."""
    if os.cpu_count() < 2:
        return {0}, {0}
    return {SERVER_CORE}, {CLIENT_CORE}


def generate(workload, server, connections, serial):
    """Runs the workload's generator once."""
    origin = f"https://127.0.0.1:{server.tls_port}" if workload.tls else f"http://127.0.0.1:{server.port}"
    url, cpus, place = origin + workload.path, cores()[1], server.place.path
    if workload.tool == "ab":
        return load.ab(url, workload.requests, connections, cpus, f"127.0.0.{2 + serial % 60}", place)
    if workload.tool == "wrk":
        return load.wrk(url, connections, workload.seconds, cpus)
    if workload.tool == "h2load":
        return load.h2load(url, workload.requests, connections, workload.streams, cpus)
    if workload.tool == "burst":
        return load.burst(server.port, workload.path, workload.requests, connections, cpus, place)
    port = server.tls_port if workload.tls else server.port
    return load.sequence(port, workload.path, workload.requests, cpus, workload.tls)


def one_round(workload, server, connections, serial):
    """One server's turn: what the generator saw, and what the server's process tree spent."""
    measure.pin(server.roots, cores()[0])
    with measure.PeakRss(server.roots) as rss:
        before, (busy, stolen), own, began = (
            measure.Usage(server.roots),
            measure.machine_busy(),
            time.process_time(),
            time.time(),
        )
        result = generate(workload, server, connections, serial)
        wall = time.time() - began
        time.sleep(0.05)  # what the last answers still cost
        spent, php = measure.Usage(server.roots).since(before)
        busy_after, stolen_after = measure.machine_busy()
    foreign = busy_after - busy - spent - php - result["client_cpu"] - (time.process_time() - own)
    done = max(result["done"], 1)
    return dict(
        result,
        server_us=1e6 * spent / done,
        php_us=1e6 * php / done,
        cpu_us=1e6 * (spent + php) / done,
        rss=rss.peak,
        pss=measure.pss(server.roots),
        foreign=foreign / wall,
        steal=(stolen_after - stolen) / wall,
    )


def idle_round(workload, name, place, haulier, connections):
    """Memory of silent connections, on a server started for this: memory once taken is seldom given back."""
    with servers.Server(name, place, haulier) as server:
        measure.pin(server.roots, cores()[0])
        for _ in range(3):
            if wrong := files.wrong_answer(place.docroot, server.port, workload.path):
                raise servers.CannotStart(f"{name}: {wrong}")
        time.sleep(0.3)
        before = measure.pss(server.roots, with_php=False)
        with load.IdleConnections(server.port, workload.path, connections, cores()[1]) as idle:
            time.sleep(0.5)
            after = measure.pss(server.roots, with_php=False)
        return dict(
            done=idle.kept,
            failed=connections - idle.kept,
            per_connection=(after - before) / max(idle.opened, 1),
            pss=after,
        )


def announce(workload, connections, row):
    if workload.tool == "idle":
        said = f"{row['per_connection']:9,.0f} bytes a connection"
    else:
        said = f"{row['rps']:11,.1f}/s  cpu {row['cpu_us']:9,.1f} us"
    others = "  (others used the machine)" if row.get("foreign", 0) > report.FOREIGN else ""
    print(
        f"  {workload.name} c={connections} round {row['round'] + 1}  {row['server']:11}{said}"
        f"  failed {row['failed']:.0f}"
        f"{others} {row.get('note', '')}",
        flush=True,
    )


def take_turns(workload, running, place, haulier, rounds):
    """All rounds of one workload, interleaved; the rows in the order they were measured."""
    rows, serial = [], int(time.time()) % 60
    for wanted in workload.connections:
        connections = min(wanted, load.descriptors() - 200)
        if connections < wanted:
            print(
                f"  {workload.name}: {connections:,} connections instead of {wanted:,}; the limit is low (ulimit -Hn)"
            )
        for number in range(rounds):
            for name in taking_part(workload, running):
                serial += 1
                if workload.tool == "idle":
                    row = idle_round(workload, name, place, haulier, connections)
                else:
                    row = one_round(workload, running[name], connections, serial)
                rows.append(dict(row, server=name, connections=connections, round=number))
                announce(workload, connections, rows[-1])
    return rows


def taking_part(workload, running):
    return [name for name in ["haulier", *workload.peers] if name in running]


def start_all(names, place, haulier, stack):
    """The servers that came up, by name; says of each other one why it is left out."""
    running = {}
    for name in names:
        if not servers.available(name, haulier):
            print(f"{name}: not on this machine, left out")
            continue
        try:
            running[name] = stack.enter_context(servers.Server(name, place, haulier))
        except servers.CannotStart as error:
            if name == "haulier":
                raise
            print(f"{error}; left out")
    return running


def those_that_answer(workload, running, place):
    """Without the servers whose answer is not the right one; the others are warm afterwards."""
    good = {}
    for name in taking_part(workload, running):
        wrong = None
        for _ in range(WARM_UP if workload.tool != "sequence" else 1):
            if workload.tls:
                wrong = wrong or files.wrong_over_tls(place.docroot, running[name].tls_port, workload.path)
                continue
            wrong = wrong or files.wrong_answer(
                place.docroot, running[name].port, workload.path, http2=workload.tool == "h2load"
            )
        if wrong:
            print(f"  {workload.name}: {name} is left out, it answers {wrong}")
        else:
            good[name] = running[name]
    return good


def the_only_run():
    """The lock, held until we end."""
    if not os.path.exists(LOCK):
        os.close(os.open(LOCK, os.O_CREAT, 0o644))
    lock = open(LOCK)  # for reading, so that it may be another user's
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"Another measurement holds {LOCK}; waiting for it.", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="workloads:\n" + "\n".join(f"  {w.name:17}{w.what}" for w in WORKLOADS.values()),
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="all when none is named")
    parser.add_argument(
        "--haulier", default=os.environ.get("HAULIER"), metavar="PATH", help="the binary (or HAULIER=PATH)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers-only", action="store_true", help="measure the peers alone; writes no report")
    parser.add_argument("--results", default=report.RESULTS, metavar="FILE")
    parser.add_argument("--page", default=report.PAGE, metavar="FILE")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    if not chosen.peers_only and not (chosen.haulier and os.access(chosen.haulier, os.X_OK)):
        parser.error("which haulier? Give --haulier PATH, or --peers-only")
    return chosen


def measure_all(chosen, haulier, place, stack):
    """Runs the chosen workloads; (results by workload, versions by server)."""
    workloads = [WORKLOADS[name] for name in chosen.workloads or WORKLOADS]
    names = list(dict.fromkeys(name for workload in workloads for name in ["haulier", *workload.peers]))
    running = start_all([name for name in names if name != "haulier" or haulier], place, haulier, stack)
    versions = {name: servers.version(name, haulier) for name in running}
    versions["PHP"] = place.php
    results = {}
    for workload in workloads:
        print(f"{workload.name}: {workload.what}")
        good = those_that_answer(workload, running, place)
        results[workload.name] = dict(
            when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            versions=versions,
            rows=take_turns(workload, good, place, haulier, chosen.rounds),
        )
        report.print_workload(workload, results[workload.name])
    return results


def main():
    chosen = arguments()
    haulier = None if chosen.peers_only else os.path.abspath(chosen.haulier)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    with the_only_run(), contextlib.ExitStack() as stack:
        place = servers.Place()
        stack.callback(place.remove)
        results = measure_all(chosen, haulier, place, stack)
    if haulier:
        report.save(results, chosen.results, chosen.page)
        print(f"Written: {chosen.page}, {chosen.results}")


if __name__ == "__main__":
    try:
        main()
    except servers.CannotStart as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
