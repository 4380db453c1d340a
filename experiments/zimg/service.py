#!/usr/bin/env python3
"""The script of the plan: an image as a file, a variant that is made, and one that is there.

haulier with each of its caches and stores against nginx's image_filter, PHP's GD and ImageMagick behind nginx and php-fpm.
Needs what `make bench` needs, and libnginx-mod-http-image-filter, php-gd, imagemagick, memcached, redis-server; what is
missing is left out by name. Reads and writes JSON.
"""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [f"{ROOT}/bench", HERE]

import load  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402

# What may go wrong with one of many: it is left out, and the others still count.
FAULTS = (servers.CannotStart, OSError, http.client.HTTPException, LookupError, ValueError, TypeError, AttributeError)
IMAGE_FILTER = "/usr/lib/nginx/modules/ngx_http_image_filter_module.so"
VERSITYGW = shutil.which("versitygw") or os.path.expanduser("~/go/bin/versitygw")
SWEEP = (100, 300, 1000, 2000, 5000, 10000, 15000, 19000)
SWEEP_OF_PEERS = (100, 1000, 5000, 10000, 19000)
ECHO = "zimg works!"
WARM = "?w=400&h=300&q=60"


class Missing(Exception):
    """Something this machine does not have; the text names it."""


def need(program):
    found = servers.find(program) or shutil.which(program)
    if not found:
        raise Missing(f"{program} is not installed")
    return found


def listening(port, process):
    deadline = time.time() + 30
    while time.time() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise servers.CannotStart(f"{process.args[0]} does not listen on {port}")


@contextlib.contextmanager
def helper(command, port, **env):
    """A server haulier talks to."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, **env),
    )
    try:
        listening(port, process)
        yield process
    finally:
        process.terminate()
        process.wait()


class Haulier(servers.Server):
    """haulier with an image service whose caches and store are given."""

    def __init__(self, place, haulier, caches, store=None, more=""):
        self.caches, self.store, self.more = caches, store, more
        super().__init__("haulier", place, haulier)

    def command(self, haulier):
        store = self.store or f"{self.run}/store"
        path = f"{self.run}/haulier.toml"
        caches = ", ".join(f'"{cache.format(run=self.run)}"' for cache in self.caches)
        with open(path, "w") as file:
            file.write(
                f'[server]\nthreads = {servers.CORES}\nhttp = "127.0.0.1:{self.port}"\nadmin = "off"\n'
                '[log]\naccess = "off"\n[limits]\nconnections_per_ip = 0\nkeepalive_requests = 1_000_000\n'
                f'[site.img]\n[site.img.images]\nstore = "{store}"\ncache = [{caches}]\ncompat = "zimg"\n'
                f"workers = {servers.CORES}\nqueue = 1000\nvariants = 0\n{self.more}"
            )
        return [haulier, "run", "-c", path]

    def upload(self, photo):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("POST", "/upload", photo, {"Content-Type": "jpeg"})
            answer = connection.getresponse().read().decode()
        identity = hashlib.md5(photo).hexdigest()
        if identity not in answer:
            raise servers.CannotStart(f"the upload was answered {answer}")
        return f"/{identity}"


class ImageFilter(servers.Server):
    """nginx with image_filter."""

    def __init__(self, place, haulier):
        super().__init__("nginx", place, haulier)

    def render(self, template, **values):
        path = super().render(template, **values)
        if template == "nginx.conf":
            with open(path) as file:
                text = file.read()
            text = f"load_module {IMAGE_FILTER};\n" + text.replace(
                "location / {",
                "location ~ ^/resized/(?<width>\\d+)/ { rewrite ^/resized/\\d+(/.*)$ $1 break;"
                " image_filter resize $width -; image_filter_jpeg_quality 75; image_filter_buffer 20M; }\n"
                "        location / {",
            )
            with open(path, "w") as file:
                file.write(text)
        return path


class ImgProxy(servers.Server):
    """imgproxy on the files of the document root."""

    def __init__(self, place, haulier):
        self.program = need("imgproxy")
        super().__init__("imgproxy", place, haulier)

    def command(self, haulier):
        settings = {
            "BIND": f"127.0.0.1:{self.port}",
            "LOCAL_FILESYSTEM_ROOT": self.place.docroot,
            "WORKERS": str(servers.CORES),
            "REQUESTS_QUEUE_SIZE": "1000",
            "LOG_LEVEL": "error",
        }
        return ["env", *(f"IMGPROXY_{name}={value}" for name, value in settings.items()), self.program]


class WithGd(servers.Server):
    """nginx and php-fpm, whose php.ini knows no extension by itself."""

    def __init__(self, place, haulier):
        super().__init__("nginx", place, haulier)

    def fpm(self):
        return [*super().fpm(), "-d", "extension=gd"]


@contextlib.contextmanager
def nothing():
    yield ""


@contextlib.contextmanager
def memcached():
    port = servers.free_port()
    with helper([need("memcached"), "-l", "127.0.0.1", "-U", "0", "-u", "root", "-m", "512", "-p", str(port)], port):
        yield f"memcached://127.0.0.1:{port}"


@contextlib.contextmanager
def redis():
    port = servers.free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [need("redis-server"), "--bind", "127.0.0.1", "--save", "", "--port", str(port), "--dir", folder]
        with helper(command, port):
            yield f"redis://127.0.0.1:{port}"


@contextlib.contextmanager
def bucket():
    if not os.access(VERSITYGW, os.X_OK):
        raise Missing("versitygw is not installed (make test builds it where Go is there)")
    port = servers.free_port()
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/bucket")
        command = [VERSITYGW, "--port", f"127.0.0.1:{port}", "posix", folder]
        with helper(command, port, ROOT_ACCESS_KEY="access", ROOT_SECRET_KEY="secret"):
            yield (
                f'[store.bucket]\nendpoint = "http://127.0.0.1:{port}"\nregion = "us-east-1"\nkey = "access"\n'
                'secret = "secret"\n'
            )


def fetch(port, path):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != 200 or not body.startswith(b"\xff\xd8\xff"):
        raise servers.CannotStart(f"{path} is answered {answer.status} with {body[:60]!r}")
    return body


def warm_up(server, path):
    """The variant is made and in its caches: they are filled behind the first answer."""
    body = fetch(server.port, path)
    for _ in range(10):
        time.sleep(0.1)
        if fetch(server.port, path) != body:
            raise servers.CannotStart("two answers differ")
    return len(body)


def measured(server, path, seconds, script=None):
    """One turn of wrk: requests a second, and CPU of the server's whole tree a request."""
    measure.pin(server.roots, servers.cores()[0])
    before = measure.Usage(server.roots)
    url = f"http://127.0.0.1:{server.port}{path}"
    command = ["wrk", "--latency", "-t1", "--timeout", "20s", "-c", "8", "-d", f"{seconds}s"]
    output, _, _ = load.run(command + (["-s", script] if script else []) + [url], servers.cores()[1], seconds + 30)
    parsed = load.parse_wrk(output)
    time.sleep(0.05)
    own, php = measure.Usage(server.roots).since(before)
    done = max(parsed["done"], 1)
    return dict(rps=parsed["rps"], cpu=1e6 * (own + php) / done, failed=parsed["failed"], p99=parsed["p99"])


def turns(place, haulier, photo):
    """(name, what it does with a running server) for every contestant; the server is started for each turn."""
    small = f"{place.docroot}/small.jpg"

    def ours(caches, path=WARM, script=None, with_cache=nothing, with_store=nothing):
        @contextlib.contextmanager
        def running():
            with with_cache() as cache, with_store() as table:
                named = [one for one in (*caches, cache) if one]
                store = "s3://bucket" if table else None
                with Haulier(place, haulier, named, store, table) as server:
                    image = server.upload(photo)
                    target = image + path
                    if "WIDTH" not in target:
                        warm_up(server, target)
                    yield server, target, script

        return running

    def static(name):
        @contextlib.contextmanager
        def running():
            with servers.Server(name, place, haulier) as server:
                yield server, "/small.jpg", None

        return running

    def peer(make, target, script):
        @contextlib.contextmanager
        def running():
            with make() as server:
                fetch(server.port, target.replace("WIDTH", "100"))
                yield server, target, script

        return running

    def image_filter():
        if not os.path.exists(IMAGE_FILTER):
            raise Missing("libnginx-mod-http-image-filter is not installed")
        return ImageFilter(place, haulier)

    def imgproxy():
        return ImgProxy(place, haulier)

    def gd():
        if subprocess.run(["php", "-r", "exit((int) !extension_loaded('gd'));"]).returncode:
            raise Missing("php-gd is not installed")
        return WithGd(place, haulier)

    def magick():
        need("convert")
        return servers.Server("nginx", place, haulier)

    cold = f"{HERE}/cold.lua"
    variants = "?w=WIDTH&q=75"
    yield "static, 10 KB: haulier", static("haulier")
    yield "static, 10 KB: nginx", static("nginx")
    yield "original: haulier, a directory", ours(["memory:64MiB"], "?p=0")
    yield "original: haulier, an object store", ours(["memory:64MiB"], "?p=0", with_store=bucket)
    yield "warm: haulier, memory", ours(["memory:64MiB"])
    yield "warm: haulier, disk alone", ours(["disk:{run}/cache:256MiB"])
    yield "warm: haulier, memcached alone", ours([], with_cache=memcached)
    yield "warm: haulier, Redis alone", ours([], with_cache=redis)
    yield "warm: haulier, memory, object store", ours(["memory:64MiB"], with_store=bucket)
    yield "cold: haulier", ours([], variants, cold)
    yield "cold: haulier, object store", ours([], variants, cold, with_store=bucket)
    yield "cold: nginx image_filter", peer(image_filter, "/resized/WIDTH/photo.jpg", cold)
    yield "cold: imgproxy", peer(imgproxy, "/insecure/rs:fit:WIDTH:0/q:75/plain/local:///photo.jpg@jpg", cold)
    yield "cold: nginx and PHP, GD", peer(gd, "/gd.php?w=WIDTH", cold)
    yield "cold: nginx and PHP, ImageMagick", peer(magick, "/magick.php?w=WIDTH", cold)
    assert os.path.exists(small)


def make_photos(place):
    """A picture with the detail of a photograph, and its 10 KB for the static file."""
    convert = need("convert")
    photo, small = f"{place.docroot}/photo.jpg", f"{place.docroot}/small.jpg"
    draw = ["-seed", "7", "-size", "1920x1280", "plasma:tomato-steelblue", "-attenuate", "0.15", "+noise", "Gaussian"]
    subprocess.run([convert, *draw, "-quality", "88", photo], check=True)
    for quality in range(90, 5, -3):
        subprocess.run([convert, photo, "-resize", "400x300!", "-quality", str(quality), small], check=True)
        if os.path.getsize(small) <= 10_240:
            break
    for name in ("gd.php", "magick.php"):
        shutil.copy(f"{HERE}/php/{name}", place.docroot)
    with open(photo, "rb") as file:
        return file.read()


def burst(place, server, path, connections):
    """A connection per request; every failure counts."""
    requests = str(max(20_000, 2 * connections))
    command = [f"{place.path}/burst", str(server.port), path, requests, str(connections), "18", ECHO]
    output, _, _ = load.run(command, servers.cores()[1], 60)
    return dict(load.from_json(output, connections), connections=connections)


def sweep(place, haulier, most, rounds):
    """Rows by server: zimg's echo at growing concurrency, and files of the same text from the peers."""
    with open(f"{place.docroot}/echo.txt", "w") as file:
        file.write(ECHO)
    found = {}

    def note(name, server, path, levels):
        for connections in (one for one in levels if one <= most):
            row = burst(place, server, path, connections)
            found.setdefault(name, []).append(row)
            print(f"sweep, {name}, {connections}: {row['rps']:,.0f} a second, {row['failed']:.0f} failed", flush=True)

    with Haulier(place, haulier, ["memory:64MiB"]) as server:
        measure.pin(server.roots, servers.cores()[0])
        for _ in range(rounds):
            note("haulier", server, "/echo", SWEEP)
    for name in ("nginx", "lighttpd", "h2o"):
        if servers.available(name, haulier):
            with contextlib.suppress(servers.CannotStart), servers.Server(name, place, haulier) as server:
                measure.pin(server.roots, servers.cores()[0])
                note(name, server, "/echo.txt", SWEEP_OF_PEERS)
    return {name: by_level(rows) for name, rows in found.items()}


def by_level(rows):
    """One row for each number of connections: the median rate, and all failures."""
    levels = dict.fromkeys(row["connections"] for row in rows)
    of = {level: [row for row in rows if row["connections"] == level] for level in levels}
    return [
        dict(connections=level, rps=median(rows, "rps"), failed=sum(row["failed"] for row in rows))
        for level, rows in of.items()
    ]


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def outcome(results, rows, missing):
    """Sentences, tables and the curve of the sweep, as the plan takes them."""
    body = []
    for name, turn in results.items():
        p99 = median([dict(p99=row["p99"] or 0) for row in turn], "p99")
        cells = [median(turn, "rps"), median(turn, "cpu"), 1000 * p99, sum(row["failed"] for row in turn)]
        body.append({"name": name, "cells": cells})
    columns = [
        {"name": "requests/s"},
        {"name": "CPU of a request", "unit": "time"},
        {"name": "p99", "unit": "time"},
        {"name": "failed"},
    ]
    tables = [{"columns": columns, "rows": body, "note": "“Cold” is another width for every request, with no cache at all."}]
    charts, said = [], [f"left out: {name} ({why})" for name, why in missing.items()]
    if rows:
        levels = sorted({row["connections"] for of in rows.values() for row in of})
        tables += [swept(rows, levels, "rps"), swept(rows, levels, "failed")]
        charts.append(
            {
                "title": "zimg’s echo: requests a second against connections",
                "x": {"name": "connections", "log": True},
                "y": {"name": "requests a second"},
                "series": [
                    {"name": name, "points": [[row["connections"], row["rps"]] for row in of]} for name, of in rows.items()
                ],
            }
        )
    return {"sentences": promises(results, rows) + said, "tables": tables, "charts": charts}


def swept(rows, levels, key):
    """A table of the sweep: a row for each number of connections, a column for each server."""
    cells = {name: {row["connections"]: row[key] for row in of} for name, of in rows.items()}
    titles = {"rps": "zimg’s echo, requests a second by connections", "failed": "zimg’s echo, failed requests"}
    return {
        "title": titles[key],
        "columns": [{"name": name} for name in rows],
        "rows": [{"name": f"{level:,}", "cells": [of.get(level) for of in cells.values()]} for level in levels],
        "note": "A connection for each request; the peers send a file of the same text, at fewer steps and once.",
    }


def promises(results, rows):
    """Each promise with what was measured."""
    said = []
    if "warm: haulier, memory" in results and "static, 10 KB: haulier" in results:
        ratio = median(results["warm: haulier, memory"], "rps") / max(median(results["static, 10 KB: haulier"], "rps"), 1e-9)
        holds = "holds" if ratio >= 0.9 else "does not hold"
        said.append(f"a warm variant at {ratio:.2f} × the rate of a static file of 10 KB (at least 0.9): {holds}")
    if "haulier" in rows:
        ours = rows["haulier"]
        failed, best = sum(row["failed"] for row in ours), max(row["rps"] for row in ours)
        top, share = ours[-1]["connections"], ours[-1]["rps"] / max(best, 1e-9)
        said.append(f"failures in the sweep up to {top:,}: {failed:.0f} (none): {'does not hold' if failed else 'holds'}")
        holds = "holds" if share >= 0.9 else "does not hold"
        said.append(f"at {top:,} connections haulier keeps {share:.2f} of its best rate (at least 0.9): {holds}")
    return said


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="TEXT", help="contestants whose name holds this; `sweep` for the sweep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--most", type=int, default=19_000, help="connections the sweep ends with")
    return parser.parse_args()


def wanted(chosen, name):
    return not chosen.only or any(part in name for part in chosen.only)


def main():
    chosen, asked = arguments(), json.load(sys.stdin)
    haulier = asked["haulier"]
    if asked["quick"]:
        chosen.rounds, chosen.seconds, chosen.most = 1, 1, 1000
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    results, rows, missing = {}, {}, {}
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        place = servers.Place()
        stack.callback(place.remove)
        photo = make_photos(place)
        for _ in range(chosen.rounds):
            for name, running in turns(place, haulier, photo):
                if name in missing or not wanted(chosen, name):
                    continue
                try:
                    with running() as (server, target, script):
                        row = measured(server, target, chosen.seconds, script)
                except Missing as why:
                    missing[name] = str(why)
                    print(f"{name}: left out, {why}", flush=True)
                    continue
                except FAULTS as why:
                    missing[name] = f"it failed: {why!r}"
                    print(f"{name}: {why!r}", flush=True)
                    continue
                results.setdefault(name, []).append(row)
                print(f"{name}: {row['rps']:,.0f} a second, {row['cpu']:,.0f} µs of CPU, {row['failed']:.0f} failed", flush=True)
        if wanted(chosen, "sweep"):
            try:
                rows = sweep(place, haulier, chosen.most, chosen.rounds)
            except FAULTS as why:
                missing["sweep"] = f"it failed: {why!r}"
    json.dump(outcome(results, rows, missing), sys.stdout)


if __name__ == "__main__":
    main()
