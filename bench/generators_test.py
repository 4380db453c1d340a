"""What the generators say is read rightly."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))

import generators


class Reading(unittest.TestCase):
    def test_every_generator_is_read(self):
        wrk = "  484713 requests in 3.00s, 112.3MB read\nRequests/sec: 161571.01\n"
        self.assertEqual(generators.requests_of_wrk(wrk), (484713, 161571.01))
        ab = "Complete requests:      50\nRequests per second:    30543.68 [#/sec] (mean)\n"
        self.assertEqual(generators.requests_of_ab(ab), (50, 30543.68))
        h2load = (
            "finished in 3.00s, 173562.00 req/s, 20MB/s\n"
            "requests: 520686 total, 520686 started, 520686 done, 520686 succeeded, 0 failed\n"
        )
        self.assertEqual(generators.requests_of_h2load(h2load), (520686, 173562.0))
        document = json.dumps({"points": [{"total": {"requests": 7, "requests_per_second": 3.5}}]}, indent=2)
        self.assertEqual(generators.requests_of_haulier(document), (7, 3.5))

    def test_costs_stand_beside_ours(self):
        row = {"rate": [100.0], "cpu": [5.0], "user": [1.0]}
        text = generators.table({"haulier": row, "wrk": {**row, "cpu": [4.0]}})
        self.assertIn("1.25×", text.splitlines()[-1])

    def test_rates_agree_or_it_is_said(self):
        def row(rate):
            return {"rate": [rate], "cpu": [5.0], "user": [1.0]}

        words = generators.agreement({"haulier": row(102.0), "wrk": row(100.0), "h2load": row(110.0)})
        self.assertEqual(words, "rates: wrk agrees (+2.0%), h2load DOES NOT AGREE (-7.3%)")


if __name__ == "__main__":
    unittest.main()
