"""Load generators: figures in their texts, and their agreement."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "generators"))

import generators


def row(rate, server=1.0, own=0.3, **times):
    return {"rate": [rate], "cpu": [5.0], "user": [1.0], "cores": [[server, own]], **times}


class Reading(unittest.TestCase):
    def test_every_generator_is_read(self):
        wrk = (
            "    Latency     1.07ms    1.15ms  10.04ms   86.27%\n  Latency Distribution\n     50%  644.00us\n"
            "     99%    5.32ms\n  484713 requests in 3.00s, 112.3MB read\nRequests/sec: 161571.01\n"
        )
        self.assertEqual(generators.figures_of_wrk(wrk), (484713, 161571.01, 644.0, 5320.0))
        ab = "Complete requests:      50\nRequests per second:    30543.68 [#/sec] (mean)\n"
        self.assertEqual(generators.figures_of_ab(ab), (50, 30543.68, None, None))
        table = "Percentage served,Time in ms\n0,0.304\n50,0.745\n99,4.560\n100,5.912\n"
        self.assertEqual(generators.figures_of_ab(ab, table), (50, 30543.68, 745.0, 4560.0))
        h2load = (
            "finished in 3.00s, 173562.00 req/s, 20MB/s\n"
            "requests: 520686 total, 520686 started, 520686 done, 520686 succeeded, 0 failed\n"
        )
        self.assertEqual(generators.figures_of_h2load(h2load), (520686, 173562.0, None, None))
        log = "".join(f"1795302235485505\t200\t{time}\n" for time in range(100, -1, -1))
        self.assertEqual(generators.figures_of_h2load(h2load, log), (520686, 173562.0, 50, 99))
        total = {"requests": 7, "requests_per_second": 3.5, "latency": {"percentiles": [[50.0, 9], [99.0, 12]]}}
        document = json.dumps({"points": [{"total": total}]}, indent=2)
        self.assertEqual(generators.figures_of_haulier(document), (7, 3.5, 9, 12))

    def test_a_generator_that_costs_less_has_a_ratio_above_one(self):
        rows = generators.table({"haulier": row(100.0), "wrk": {**row(100.0), "cpu": [4.0]}})["rows"]
        self.assertEqual(rows[1]["name"], "wrk")
        self.assertEqual(rows[1]["cells"], [100.0, None, None, 1.0, 0.3, 4.0, 1.0, 1.25])

    def test_rates_agree_if_the_server_was_the_limit(self):
        rows = {"haulier": row(102.0, p50=[50.5], p99=[99.0]), "wrk": row(100.0, p50=[50.0], p99=[100.0])}
        self.assertEqual(
            generators.agreement({**rows, "h2load": row(110.0)}),
            [
                "the server was the limit",
                "wrk agrees (rate +2.0%, p50 +1.0%, p99 -1.0%)",
                "h2load DOES NOT AGREE (rate -7.3%)",
            ],
        )

    def test_rates_need_not_agree_if_a_generator_was_the_limit(self):
        words = generators.agreement({"haulier": row(102.0), "ab": row(90.0, own=0.99)})
        self.assertIn("the generator was the limit", words[0])
        words = generators.agreement({"haulier": row(102.0, server=0.6), "ab": row(90.0)})
        self.assertIn("neither core", words[0])

    def test_the_cores_of_this_machine_are_counted(self):
        for worked, passed in generators.busy([0]):
            self.assertTrue(0 < worked <= passed)


if __name__ == "__main__":
    unittest.main()
