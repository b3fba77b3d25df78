"""What verdicts.py makes of figures and intervals. Run by ctest, or as a program."""

import unittest

import verdicts


def row(value, low, high, target, less_is_better=False, gate=True):
    return {"case": "c", "server": "idetcd", "ratio": value, "low": low, "high": high, "target": target, "unit": "u",
            "less_is_better": less_is_better, "gate": gate}


class Judging(unittest.TestCase):
    def test_at_least(self):
        self.assertEqual(verdicts.judge(row(0.95, 0.90, 1.0, 0.95)), "holds")
        self.assertEqual(verdicts.judge(row(0.94, 0.90, 0.95, 0.95)), "unclear")
        self.assertEqual(verdicts.judge(row(0.94, 0.93, 0.949, 0.95)), "fails")

    def test_at_most(self):
        self.assertEqual(verdicts.judge(row(450, 440, 460, 450, True)), "holds")
        self.assertEqual(verdicts.judge(row(451, 450, 460, 450, True)), "unclear")
        self.assertEqual(verdicts.judge(row(451, 450.5, 460, 450, True)), "fails")

    def test_near(self):
        def near(value, low, high):
            return verdicts.judge({**row(value, low, high, 1), "near": 0.03})
        self.assertEqual(near(0.98, 0.9, 1.1), "holds")
        self.assertEqual(near(0.96, 0.94, 0.98), "unclear")
        self.assertEqual(near(1.05, 1.02, 1.08), "unclear")
        self.assertEqual(near(1.05, 1.04, 1.08), "fails")
        self.assertEqual(near(0.9, 0.88, 0.96), "fails")

    def test_a_figure_without_interval_is_what_it_is(self):
        exact = {"case": "c", "server": "idetcd", "value": 0.01, "target": 0, "unit": "u", "less_is_better": True, "gate": True}
        self.assertEqual(verdicts.judge(exact), "fails")
        self.assertEqual(verdicts.judge({**exact, "value": 0.0}), "holds")
        self.assertIn("FAILS   gate  c: 0.010, at most 0 u", verdicts.as_text(verdicts.of_run([exact]), []))

    def test_gates_come_first_and_a_missing_one_is_named(self):
        judged = verdicts.of_run([row(1, 1, 1, 0.9, gate=False), {"case": "c", "server": "echo"}, row(2, 2, 2, 0.9)])
        self.assertEqual([found["ratio"] for found, _ in judged], [2, 1])
        self.assertIn("FAILS   gate  x: not measured", verdicts.as_text(judged, ["x"]))


class Comparing(unittest.TestCase):
    def test_three_percent(self):
        rows = [row(1.029, 1, 1, 1), {**row(0.96, 1, 1, 1), "server": "NSD"}, {"case": "c", "server": "echo", "rate": 5}]
        earlier = [row(1.0, 1, 1, 1), {**row(1.0, 1, 1, 1), "server": "NSD"}, {**row(1.0, 1, 1, 1), "server": "gone"}]
        differences = verdicts.compare(rows, earlier)
        self.assertEqual([round(share, 3) for _, _, share in differences], [0.029, -0.04])
        text = verdicts.comparison_as_text(differences)
        self.assertIn("agrees   c, idetcd", text)
        self.assertIn("DIFFERS  c, NSD", text)
        self.assertTrue(verdicts.disagree(differences))
        self.assertFalse(verdicts.disagree(differences[:1]))

    def test_another_machine_is_no_disagreement(self):
        def differences(now, before):
            return verdicts.compare([{**row(0.7, 1, 1, 1), "reference_cpu_us": now}],
                                    [{**row(0.78, 1, 1, 1), "reference_cpu_us": before}])
        self.assertTrue(verdicts.disagree(differences(2.1, 2.0)))
        self.assertFalse(verdicts.disagree(differences(0.9, 2.1)))
        self.assertIn("changed  c, idetcd: 0.700, 0.780 before, -10.3% (so has the machine: 2.10 µs",
                      verdicts.comparison_as_text(differences(0.9, 2.1)))


if __name__ == "__main__":
    unittest.main()
