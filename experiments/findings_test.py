"""What is said of an experiment, from the tables of its page."""

import unittest

import findings
import run


def script(title, *tables, part="script"):
    return {"title": title, "part": part, "outcome": {"sentences": [], "tables": list(tables), "charts": []}}


def table(rows, title=""):
    columns = [{"name": name} for name in next(iter(rows.values()))]
    return {"title": title, "columns": columns, "rows": [{"name": name, "cells": list(row.values())} for name, row in rows.items()]}


def measured(title, figures):
    """A part of `haulier bench`: CPU time in the server by target."""
    points = []
    for number, cpu in enumerate(figures.values()):
        server = {"cpu_us_per_request": cpu, "php_cpu_us_per_request": 0.0, "pss_bytes": 1}
        total = {"requests_per_second": 1.0, "server": server, "latency": {"percentiles": [[50.0, 1], [99.0, 2]]}}
        points.append({"target": number, "total": total})
    targets = [{"name": name} for name in figures]
    return {"title": title, "part": "run", "run": {"targets": targets, "points": points}}


def slice_of(number, cpu):
    return {"round": number, "server": cpu and {"cpu_us_per_request": cpu}}


def beside_readers(kept, complete="200 of 200"):
    return {
        "kept": kept,
        "p99 alone": 100.0,
        "p99 beside": None if kept == 0 else 120.0,
        "downloads complete": complete,
        "script busy": 40.0,
    }


def of(name, *parts):
    return {found.question: found for found in findings.of(name, {"parts": list(parts)})}


class Findings(unittest.TestCase):
    def test_nothing_is_said_of_what_was_not_measured(self):
        for name in run.NAMES:
            self.assertEqual(of(name), {})
            broken = [{"title": title, "part": "failed", "why": "it ended"} for title in ("Fast readers", findings.SLOW)]
            self.assertEqual(of(name, *broken), {})

    def test_a_goal_is_held_against_the_peer_it_names_and_the_best_peer_stands_beside(self):
        cpu = {"haulier zend_send_file": 80.0, "lighttpd X-Sendfile": 100.0, "nginx X-Accel-Redirect": 70.0}
        found = of("zds", measured("Fast readers", cpu))
        goal = found["CPU of a download, fast readers: zend_send_file"]
        self.assertEqual((goal.ratio, goal.outcome()), (0.8, "holds"))
        self.assertEqual(found["CPU of a download, any way"].outcome(), "behind")

    def test_slices_are_compared_with_those_of_the_same_round(self):
        part = measured("Fast readers", {"haulier X-Sendfile": 200.0, "lighttpd X-Sendfile": 220.0})
        ours, theirs = part["run"]["points"]
        # The machine was slow in one round, and one slice was not measured.
        ours["slices"] = [slice_of(0, 80.0), slice_of(1, 240.0), slice_of(0, 84.0), slice_of(1, None)]
        theirs["slices"] = [slice_of(1, 300.0), slice_of(0, 100.0), slice_of(0, 100.0), slice_of(1, 1.0)]
        found = of("zds", part)
        goal, any_way = (found[f"CPU of a download, {rest}"] for rest in ("fast readers: X-Sendfile", "any way"))
        self.assertEqual((goal.ratio, goal.outcome()), (0.8, "holds"))
        self.assertEqual((any_way.ratio, any_way.holds), (0.8, None))

    def test_the_worst_of_haulier_s_ways_counts(self):
        rows = {
            "haulier zend_send_file": beside_readers(1.01),
            "haulier X-Sendfile": beside_readers(0.93),
            "Apache mod_php fpassthru": beside_readers(0, "32 of 200, 3 wrong"),
        }
        found = of("zds", script(findings.SLOW, table(rows)))
        rate = found["A light page’s rate beside 200 slow readers"]
        self.assertEqual((rate.haulier, rate.outcome()), ("93 % to 101 %", "MISSED"))
        self.assertEqual(rate.peer, "0 % (Apache mod_php fpassthru)")
        self.assertEqual(found["Readers that got every byte"].outcome(), "holds")

    def test_worker_mode_is_held_against_servers_without_one(self):
        cpu = {"haulier, worker mode": 30.0, "haulier": 60.0, "nginx + php-fpm": 100.0, "FrankenPHP, worker mode": 20.0}
        found = of("symfony", measured("Worker mode, twenty at once", cpu))
        goal = found["CPU of a request in worker mode, beside peers without one"]
        self.assertEqual((goal.ratio, goal.outcome()), (0.3, "holds"))
        self.assertEqual(found["CPU of a request in worker mode, beside haulier without it"].outcome(), "MISSED")

    def test_the_ratio_of_rounds_counts_before_that_of_medians(self):
        rows = {"haulier br 4": {"CPU": 140.0, "bytes": 2.0}, "nginx br 4": {"CPU": 120.0, "bytes": 2.0}}
        pairs = {"haulier br 4 / nginx br 4": {"CPU, median of the rounds": 0.9, "least": 0.8, "most": 1.3}}
        question = "br 4, CPU of the page (1.00 × the bytes)"
        for tables, shown in (([], ["MISSED", "1.17 ×"]), ([table(pairs, "Side by side")], ["holds", "0.90 ×"])):
            goal = of("zstd", script("Every coding, every level", table(rows), *tables))[question]
            self.assertEqual([goal.outcome(), goal.cells()[3]], shown)

    def test_a_single_wrong_file_of_ours_is_a_goal_missed(self):
        rows = {"haulier get": {"cut": "right"}, "haulier get -x 16": {"cut": "WRONG FILE"}, "curl": {"cut": "right"}}
        found = of("download", script("A server that cannot be trusted", table(rows)))["Wrong files called complete"]
        self.assertEqual((found.haulier, found.outcome(), found.peer), ("1", "MISSED", "0 of 1 others did so"))

    def test_the_latest_of_all_ends_counts_and_one_that_failed_is_no_end(self):
        tails = table({"haulier get": {"Apache": 6_000.0}, "curl": {"Apache": 5_000.0}}, "After the last byte")
        question = "Longest time from the last byte to the end"
        for cell, shown in ((60_000.0, "60 ms"), ("hangs", "hangs")):
            cells = table({"none": {"Apache, to a file": 7_000.0}, "-x 16": {"Apache, to a file": cell}}, "haulier get in the cells of 2005")
            found = of("download", script("Today’s programs", tails, cells))[question]
            self.assertEqual((found.haulier, found.outcome()), (shown, "MISSED"))
        found = of("download", script("Today’s programs", tails))[question]
        self.assertEqual(found.cells()[:3], ["holds", "6 ms", "5 ms (curl)"])

    def test_the_sweep_counts_every_failure_and_what_is_kept_at_its_top(self):
        rates = {"100": {"haulier": 50_000.0, "nginx": 40_000.0}, "19,000": {"haulier": 46_000.0, "nginx": 20_000.0}}
        failed = {"100": {"haulier": 0, "nginx": 0}, "19,000": {"haulier": 0, "nginx": 7}}
        title = "Files, caches, and what is made"
        tables = [table(rates, "zimg’s echo, requests a second by connections"), table(failed, "zimg’s echo, failed requests")]
        found = of("zimg", script(title, *tables))
        self.assertEqual(found["Failures up to 19,000 connections"].cells(), ["holds", "0", "7 (nginx)", "–", "none"])
        self.assertEqual(found["Share of its best rate at 19,000 connections"].cells()[1], "92 %")

    def test_missed_goals_are_named_before_the_rest(self):
        said = findings.sentences(
            [
                findings.Finding("memory", "9 MB", "3 MB (nginx)", 3.0),
                findings.Finding("CPU", "9 µs", "10 µs (nginx)", 0.9, "≤ 0.8 ×", False),
                findings.Finding("failures", "0", goal="none", holds=True),
            ]
        )
        self.assertEqual(said[:2], ["1 of 2 goals hold", "missed: CPU: 9 µs, 0.90 × 10 µs (nginx), wanted ≤ 0.8 ×"])
        self.assertEqual(said[2:], ["behind the best peer: memory (3.00 ×)"])


if __name__ == "__main__":
    unittest.main()
