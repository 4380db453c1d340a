"""Plans that a script writes: what has too many servers for a plan by hand is still measured by `haulier bench run`."""

import json
import os
import subprocess
import sys


def run(asked, text, name):
    """The page of a plan, given as text; `asked` is what the script was told. What it prints goes to standard error."""
    plan, page = f"{asked['place']}/{name}.toml", f"{asked['place']}/{name}.json"
    with open(plan, "w") as file:
        file.write(text)
    command = [asked["haulier"], "bench", "run", plan, *["--quick"] * asked["quick"], "-o", page]
    code = subprocess.run(command, stdout=sys.stderr).returncode
    if not os.path.exists(page):
        raise SystemExit(f"{name}: haulier bench run ended with {code}")
    with open(page) as file:
        return json.load(file)["pages"][0]


def cores(asked):
    """The cores of the script's own plan, as lines of `[plan]`."""
    lists = {name: ",".join(map(str, asked[name])) for name in ("server_cores", "client_cores")}
    return "".join(f'{name} = "{cores}"\n' for name, cores in lists.items())


def quoted(text):
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def left_out(page):
    """Name → why, of servers that took no part and parts that were not measured."""
    failed = {part["title"]: part["why"] for part in page["parts"] if part["part"] == "failed"}
    return dict(page["left_out"]) | failed
