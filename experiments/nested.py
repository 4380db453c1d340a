"""Plans that a script writes, because they have too many servers for a plan by hand. `haulier bench run` measures them."""

import json
import os
import subprocess
import sys

CONF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench/conf")
FPM = "php-fpm@PHP_VERSION@ -F -c '@PLACE@/php.ini' -y '@RUN@/php-fpm.conf'"


def run(asked, text, name):
    """Runs a plan and returns its page. `asked` is the input of the script. The plan prints to standard error."""
    plan, page = f"{asked['place']}/{name}.toml", f"{asked['place']}/{name}.json"
    with open(plan, "w") as file:
        file.write(text)
    command = [asked["haulier"], "bench", "run", plan, *["--quick"] * asked["quick"], "-o", page]
    code = subprocess.run(command, stdout=sys.stderr).returncode
    if not os.path.exists(page):
        raise SystemExit(f"{name}: haulier bench run ended with {code}")
    with open(page) as file:
        return json.load(file)["pages"][0]


def head(asked, title, **env):
    """`[plan]` and `[values]` for servers with the configurations of the benchmark, on the cores of the script's plan."""
    cores = {name: ",".join(map(str, asked[name])) for name in ("server_cores", "client_cores")}
    lines = "".join(f"{name} = {quoted(value)}\n" for name, value in cores.items())
    docroot = quoted(f"{asked['place']}/docroot")
    return f"""[plan]
title = {quoted(title)}
prepare = "cp '{CONF}/php.ini' '@PLACE@/php.ini'"
env = {table(dict(env, PHP_INI_SCAN_DIR="", PHPRC="@PLACE@"))}
{lines}
[values]
DOCROOT = {docroot}
ROOT_DIR = {docroot}
APP = "plain"
FRONT = ""
FASTCGI = ""
HTTPS = ""
HTTP2 = ""
TLS = ""
KEEPALIVE = "keepalive 6; keepalive_timeout 5s; keepalive_requests 1000000;"
KEEP_CONN = "on"

"""


def part(title, flags, targets, more=""):
    """A `[[table]]`."""
    return f"[[table]]\ntitle = {quoted(title)}\nflags = {quoted(flags)}\ntargets = {table(targets)}\n{more}\n"


def table(pairs):
    """An inline table of TOML."""
    return "{ " + ", ".join(f"{quoted(name)} = {quoted(value)}" for name, value in pairs.items()) + " }"


def quoted(text):
    """A string of TOML."""
    return json.dumps(text, ensure_ascii=False)


def points(page):
    """(target, point) of every run of a page."""
    for part in page["parts"]:
        if part["part"] == "run":
            for point in part["run"]["points"]:
                yield part["run"]["targets"][point["target"]], point


def left_out(page):
    """Servers and parts that were not measured, with the reasons."""
    failed = {part["title"]: part["why"] for part in page["parts"] if part["part"] == "failed"}
    return dict(page["left_out"]) | failed
