#!/usr/bin/env python3
"""The script of the plan: images as files, as variants from a cache, and as variants that are made.

haulier with each of its caches and stores against nginx's image_filter, PHP's GD and ImageMagick behind nginx and php-fpm.
Needs what `make bench` needs, and libnginx-mod-http-image-filter, php-gd, imagemagick, memcached, redis-server; a server
without its program is left out by name. The name of an image is the MD5 of its bytes, which a plan cannot know. So this
script makes the picture, writes the plan, and has haulier run it. Reads and writes JSON.

    service.py fill PORT PHOTO PATH     uploads the picture to a server, and requests PATH until its caches are filled
"""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE)]

import nested  # noqa: E402
from nested import CONF, FPM, part, table  # noqa: E402

IMAGE_FILTER = "/usr/lib/nginx/modules/ngx_http_image_filter_module.so"
VERSITYGW = shutil.which("versitygw") or os.path.expanduser("~/go/bin/versitygw")
SWEEP = (100, 300, 1000, 2000, 5000, 10000, 15000, 19000)
SWEEP_OF_PEERS = (100, 1000, 5000, 10000, 19000)
ECHO = "zimg works!"
WARM = "?w=400&h=300&q=60"
COLD = "?w={60..599}&q=75"  # another width for every request, so that no cache helps

HAULIER = """
[server]
threads = @CORES@
http = "127.0.0.1:@PORT@"
admin = "off"
[log]
access = "off"
[limits]
connections_per_ip = 0
keepalive_requests = 1_000_000
[site.img]
[site.img.images]
store = "@STORE@"
cache = [@CACHE@]
compat = "zimg"
workers = @CORES@
queue = 1000
variants = 0
"""
BUCKET = """
[store.bucket]
endpoint = "http://127.0.0.1:@PORT_STORE@"
region = "us-east-1"
key = "access"
secret = "secret"
"""
MEMCACHED = "memcached -l 127.0.0.1 -U 0 -u root -m 512 -p @PORT_CACHE@"
REDIS = "redis-server --bind 127.0.0.1 --save '' --port @PORT_CACHE@ --dir '@RUN@'"
OBJECTS = f"sh -c \"mkdir -p '@RUN@/objects/bucket' && exec '{VERSITYGW}' --port 127.0.0.1:@PORT_STORE@ posix '@RUN@/objects'\""
NGINX = "nginx -c '@RUN@/nginx.conf'"


class Server:
    """A server of the plan: its tables of settings, as TOML."""

    def __init__(self, key, run, files, values=(), needs=(), **more):
        self.key, self.run, self.files, self.values = key, run, files, dict(values)
        self.needs, self.more = list(needs), more

    def text(self):
        lines = [f"[server.{self.key}]", f"run = {json.dumps(self.run)}", f"files = {table(self.files)}"]
        lines += [f"values = {table(self.values)}"] * bool(self.values) + [f"needs = {json.dumps(self.needs)}"]
        return "\n".join(lines + [f"{name} = {nested.quoted(value)}" for name, value in self.more.items()]) + "\n\n"


class Contestants:
    """The servers, and for each name: its table, server and path."""

    def __init__(self, place, photo):
        self.place, self.photo, self.servers, self.names = place, photo, [], {}
        with open(photo, "rb") as file:
            self.image = f"/{hashlib.md5(file.read()).hexdigest()}"

    def add(self, name, kind, path, server):
        if server not in self.servers:
            self.servers.append(server)
        self.names[name] = (kind, server.key, path)

    def template(self, name, text):
        path = f"{self.place}/{name}"
        with open(path, "w") as file:
            file.write(text)
        return path

    def ours(self, key, caches, helper=(), with_bucket=False, path=WARM):
        """haulier with an image service whose caches and store are given."""
        fill = f"python3 '{HERE}/service.py' fill @PORT@ '{self.photo}' '{path}'"
        values = {"STORE": "s3://bucket" if with_bucket else "@RUN@/store", "CACHE": caches}
        files = {"haulier.toml": self.template(f"{key}.toml", HAULIER + (BUCKET if with_bucket else ""))}
        run = [*helper, *[OBJECTS] * with_bucket, "'@HAULIER@' run -c '@RUN@/haulier.toml'"]
        return Server(key, run, files, values, [VERSITYGW] * with_bucket, ready="/echo", setup=fill)

    def nginx(self, key, ready, change=lambda text: text, fpm=FPM, needs=()):
        with open(f"{CONF}/nginx.conf") as file:
            files = {"nginx.conf": self.template(f"{key}.conf", change(file.read())), "php-fpm.conf": f"{CONF}/php-fpm.conf"}
        return Server(key, [fpm, NGINX], files, needs=needs, ready=ready)


def image_filter(text):
    """nginx's configuration with a location whose images image_filter makes."""
    return f"load_module {IMAGE_FILTER};\n" + text.replace(
        "location / {",
        "location /resized/ { rewrite ^/resized(/.*)$ $1 break;"
        " image_filter resize $arg_w -; image_filter_jpeg_quality 75; image_filter_buffer 20M; }\n"
        "        location / {",
    )


def contestants(place, photo):
    found = Contestants(place, photo)
    memory, image = '"memory:64MiB"', found.image
    plain = {"haulier.toml": f"{CONF}/haulier.toml"}
    ours = Server("haulier", ["'@HAULIER@' run -c '@RUN@/haulier.toml'"], plain, ready="/small.jpg")
    nginx = found.nginx("nginx", "/small.jpg")
    found.add("static, 10 KB: haulier", "files", "/small.jpg", ours)
    found.add("static, 10 KB: nginx", "files", "/small.jpg", nginx)
    in_memory, in_bucket = found.ours("memory", memory), found.ours("bucket", memory, with_bucket=True)
    found.add("original: haulier, a directory", "files", f"{image}?p=0", in_memory)
    found.add("original: haulier, an object store", "files", f"{image}?p=0", in_bucket)
    found.add("warm: haulier, memory", "files", image + WARM, in_memory)
    found.add("warm: haulier, disk alone", "files", image + WARM, found.ours("disk", '"disk:@RUN@/cache:256MiB"'))
    memcached = found.ours("memcached", '"memcached://127.0.0.1:@PORT_CACHE@"', [MEMCACHED])
    redis = found.ours("redis", '"redis://127.0.0.1:@PORT_CACHE@"', [REDIS])
    found.add("warm: haulier, memcached alone", "files", image + WARM, memcached)
    found.add("warm: haulier, Redis alone", "files", image + WARM, redis)
    found.add("warm: haulier, memory, object store", "files", image + WARM, in_bucket)
    found.add("cold: haulier", "cold", image, found.ours("cold", "", path="?w=100"))
    found.add("cold: haulier, object store", "cold", image, found.ours("cold-bucket", "", with_bucket=True, path="?w=100"))
    filter_needs = [IMAGE_FILTER]
    found.add("cold: nginx image_filter", "cold", "/resized/photo.jpg", found.nginx("filter", "/small.jpg", image_filter, needs=filter_needs))
    if not subprocess.run(["php", "-r", "exit((int) !extension_loaded('gd'));"], stdout=subprocess.DEVNULL).returncode:
        gd = found.nginx("gd", "/gd.php?w=100", fpm=f"{FPM} -d extension=gd")
        found.add("cold: nginx and PHP, GD", "cold", "/gd.php", gd)
    if shutil.which("convert"):
        found.add("cold: nginx and PHP, ImageMagick", "cold", "/magick.php", nginx)
    if program := shutil.which("imgproxy"):
        settings = f"IMGPROXY_LOCAL_FILESYSTEM_ROOT='{place}/docroot' IMGPROXY_WORKERS=@CORES@"
        more = "IMGPROXY_REQUESTS_QUEUE_SIZE=1000 IMGPROXY_LOG_LEVEL=error"
        run = f"env IMGPROXY_BIND=127.0.0.1:@PORT@ {settings} {more} '{program}'"
        # Its widths stand in the path, so it has a list of its own.
        found.add("cold: imgproxy", "cold in paths", "/", Server("imgproxy", [run], {}, ready="/health"))
    return found


IMGPROXY = "/insecure/rs:fit:{60..599}:0/q:75/plain/local:///photo.jpg@jpg"


def plan(asked, found):
    """Tables of files and variants; and zimg's echo at growing concurrency, beside files of the same text."""
    widths, paths = found.template("widths.txt", COLD + "\n"), found.template("paths.txt", IMGPROXY + "\n")
    flags = {
        "files": "-c 8 --slice 1500ms --rounds 3",
        "cold": f"-c 8 -n 160 --rounds 3 --urls '{widths}'",
        "cold in paths": f"-c 8 -n 160 --rounds 3 --urls '{paths}'",
    }
    out = nested.head(asked, "Images", ROOT_ACCESS_KEY="access", ROOT_SECRET_KEY="secret")
    peers = [
        Server("lighttpd", ["lighttpd -D -f '@RUN@/lighttpd.conf'"], {"lighttpd.conf": f"{CONF}/lighttpd.conf"}, ready="/echo.txt"),
        Server("h2o", ["h2o -c '@RUN@/h2o.conf'"], {"h2o.conf": f"{CONF}/h2o.conf"}, ready="/echo.txt"),
    ]
    out += "".join(server.text() for server in found.servers + peers)
    for kind, line in flags.items():
        targets = {name: key + path for name, (of, key, path) in found.names.items() if of == kind}
        if targets:
            out += part(kind, line, {plain(name): target for name, target in targets.items()})
    sweep = "-n 38000 -s 18 --no-keepalive"
    levels = {"sweep": SWEEP, "sweep of peers": SWEEP_OF_PEERS}
    levels = {name: ",".join(str(one) for one in of if one <= 1000 or not asked["quick"]) for name, of in levels.items()}
    out += part("sweep", f"-c {levels['sweep']} {sweep} --rounds 3", {"haulier": "memory/echo"}, f"expect = {nested.quoted(ECHO)}\n")
    targets = {name: f"{name}/echo.txt" for name in ("nginx", "lighttpd", "h2o")}
    out += part("sweep of peers", f"-c {levels['sweep of peers']} {sweep} --rounds 1", targets, f"expect = {nested.quoted(ECHO)}\n")
    return out


def plain(name):
    """The name of a target: it has no colon."""
    return name.replace(": ", " · ")


def measured(page, found):
    """(name → a row for each slice, server → the sweep by connections)"""
    names = {plain(name): name for name in found.names}
    results, rows = {}, {}
    for target, point in nested.points(page):
        name, slices, total = target["name"], point["slices"], point["total"]
        if name in names:
            results[names[name]] = [row_of(cut) for cut in slices if cut["requests"]]
        else:
            rate = statistics.median(cut["requests_per_second"] for cut in slices)
            row = dict(connections=point["connections"], rps=rate, failed=sum(total["failures"].values()))
            rows.setdefault(name, []).append(row)
    return {name: results[name] for name in found.names if results.get(name)}, rows


def row_of(cut):
    cpu = (cut["server"] or {}).get("cpu_us_per_request") or 0.0
    return dict(rps=cut["requests_per_second"], cpu=cpu, failed=cut["failed"], p99=cut["p99_us"] / 1000)


def make_photos(place):
    """A picture with the detail of a photograph, and its 10 KB for the static file."""
    docroot = f"{place}/docroot"
    os.makedirs(docroot)
    photo, small = f"{docroot}/photo.jpg", f"{docroot}/small.jpg"
    draw = ["-seed", "7", "-size", "1920x1280", "plasma:tomato-steelblue", "-attenuate", "0.15", "+noise", "Gaussian"]
    subprocess.run(["convert", *draw, "-quality", "88", photo], check=True)
    for quality in range(90, 5, -3):
        subprocess.run(["convert", photo, "-resize", "400x300!", "-quality", str(quality), small], check=True)
        if os.path.getsize(small) <= 10_240:
            break
    for name in ("gd.php", "magick.php"):
        shutil.copy(f"{HERE}/php/{name}", docroot)
    with open(f"{docroot}/echo.txt", "w") as file:
        file.write(ECHO)
    return photo


def ask(port, method, path, body=None):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, {"Content-Type": "jpeg"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def fill(port, photo, path):
    """Uploads the picture, and requests a variant until it is in the caches, which are filled after the first answer."""
    with open(photo, "rb") as file:
        content = file.read()
    identity = hashlib.md5(content).hexdigest()
    status, said = ask(port, "POST", "/upload", content)
    if identity.encode() not in said:
        raise SystemExit(f"the upload was answered {status} {said[:200]!r}")
    status, body = ask(port, "GET", f"/{identity}{path}")
    if status != 200 or not body.startswith(b"\xff\xd8\xff"):
        raise SystemExit(f"{path} is answered {status} with {body[:60]!r}")
    for _ in range(10):
        time.sleep(0.1)
        if ask(port, "GET", f"/{identity}{path}")[1] != body:
            raise SystemExit("two answers differ")


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def outcome(results, rows, missing):
    """Sentences, tables and the curve of the sweep, as output of the script."""
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
    tables = [{"columns": columns, "rows": body, "note": "“Cold”: each request asks for another width, and there is no cache."}]
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
    return {"sentences": said, "tables": tables, "charts": charts}


def swept(rows, levels, key):
    """A table of the sweep: a row for each number of connections, a column for each server."""
    cells = {name: {row["connections"]: row[key] for row in of} for name, of in rows.items()}
    titles = {"rps": "zimg’s echo, requests a second by connections", "failed": "zimg’s echo, failed requests"}
    return {
        "title": titles[key],
        "columns": [{"name": name} for name in rows],
        "rows": [{"name": f"{level:,}", "cells": [of.get(level) for of in cells.values()]} for level in levels],
        "note": "A connection for each request. The peers send a file with the same text; they are measured once, at fewer steps.",
    }


def main():
    if sys.argv[1:2] == ["fill"]:
        return fill(int(sys.argv[2]), *sys.argv[3:])
    asked = json.load(sys.stdin)
    found = contestants(asked["place"], make_photos(asked["place"]))
    page = nested.run(asked, plan(asked, found), "images")
    results, rows = measured(page, found)
    missing = nested.left_out(page)
    for server in found.servers:
        if why := missing.pop(server.key, None):
            missing |= {name: why for name, (_, key, _) in found.names.items() if key == server.key}
    json.dump(outcome(results, rows, missing), sys.stdout)


if __name__ == "__main__":
    main()
