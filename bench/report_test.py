"""Ratios, the best peer, and verdicts."""

import os
import tempfile
import unittest

import report
from workloads import WORKLOADS


def row(server, cpu_us, number=0, failed=0, connections=100, **more):
    return dict(
        server=server,
        cpu_us=cpu_us,
        round=number,
        failed=failed,
        connections=connections,
        done=10,
        rps=1e6 / cpu_us,
        p50=1.0,
        p99=2.0,
        server_us=cpu_us,
        php_us=0.0,
        client_cpu=1e-4,
        rss=1e6,
        pss=1e6,
        foreign=0.0,
        **more,
    )


class Comparison(unittest.TestCase):
    def test_the_best_peer_is_the_cheapest_that_failed_nothing(self):
        rows = [row("haulier", 5), row("nginx", 20), row("h2o", 10, failed=1), row("lighttpd", 15)]
        self.assertEqual(report.best_peer(rows, "cpu_us", 100), "lighttpd")

    def test_haulier_is_never_its_own_best_peer(self):
        self.assertIsNone(report.best_peer([row("haulier", 5)], "cpu_us", 100))

    def test_a_ratio_compares_only_within_a_round(self):
        rows = [row("haulier", 5, 0), row("nginx", 10, 0), row("haulier", 50, 1), row("nginx", 100, 1)]
        self.assertEqual(report.round_ratio(rows, "cpu_us", "haulier", "nginx", 100), 0.5)

    def test_a_goal_that_is_missed_is_called_missed(self):
        rows = [row("haulier", 80), row("nginx", 100)]
        self.assertEqual([verdict.met for verdict in report.verdicts(WORKLOADS["hello"], rows)], [False])
        rows = [row("haulier", 70), row("nginx", 100)]
        self.assertEqual([verdict.met for verdict in report.verdicts(WORKLOADS["hello"], rows)], [True])

    def test_failures_of_haulier_miss_the_goal_whoever_else_failed(self):
        rows = [row("haulier", 5, failed=1, connections=19_000), row("nginx", 10, failed=9, connections=19_000)]
        self.assertFalse(report.verdicts(WORKLOADS["19000"], rows)[0][0])

    def test_the_rate_at_the_top_is_held_against_the_best_of_all(self):
        rows = [row("haulier", 10, connections=1_000), row("haulier", 20, connections=19_000)]
        self.assertAlmostEqual(report.rate_against_best(rows, 19_000), 0.5)

    def test_without_haulier_nothing_is_judged(self):
        self.assertEqual(report.verdicts(WORKLOADS["hello"], [row("nginx", 10)]), [])


class Storing(unittest.TestCase):
    def test_a_later_run_keeps_the_workloads_it_left_out(self):
        with tempfile.TemporaryDirectory() as place:
            results, page = os.path.join(place, "results", "latest.json"), os.path.join(place, "page.md")
            for name in "hello", "10k":
                rows = [row("haulier", 5), row("nginx", 10)]
                report.save({name: dict(when="now", versions={"nginx": "nginx/1.22.1"}, rows=rows)}, results, page)
            with open(page) as file:
                text = file.read()
        self.assertIn("## hello\n", text)
        self.assertIn("## 10k\n", text)
        self.assertIn("| 10k      | cpu against the best peer (nginx) |     0.50 | at most 0.95 | met  |", text)


if __name__ == "__main__":
    unittest.main()
