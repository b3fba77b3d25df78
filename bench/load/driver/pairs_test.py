"""The statistics of pairs.py against cases whose answer is known. Run by ctest, or as a program."""

import json
import math
import random
import sys
import unittest

import pairs
from pairs import Plan, median_interval

# Prints pairs for ever, or as many as --pairs says, whose ratio is 0.9 with the noise of the first argument.
SOURCE = """
import json, os, random, signal, sys, time
most = int(sys.argv[sys.argv.index("--pairs") + 1])
noise = random.Random(int(sys.argv[2]))
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
done = 0
while done < most and not stopped:
    rate = noise.uniform(50, 150)  # of the machine, from pair to pair: it must not matter
    pair = {"server": {"rate": 0.9 * rate * noise.lognormvariate(0, float(sys.argv[1]))}, "reference": {"rate": rate}}
    print(json.dumps(pair), flush=True)
    done += 1
    time.sleep(0.001)  # a short slice
print(json.dumps({"done": done}), flush=True)
os._exit(0)  # an interpreter that ends by itself puts the default of SIGTERM back
"""


def measure(noise, plan, seed=1):
    return pairs.measure([sys.executable, "-c", SOURCE, noise, seed], pairs.by("rate"), plan)


class Ranks(unittest.TestCase):
    def test_published_ones(self):
        # Tables of the sign test, two-sided, 5 %: https://en.wikipedia.org/wiki/Sign_test, and any book.
        for count, k in ((5, 0), (6, 1), (8, 1), (9, 2), (20, 6), (25, 8), (40, 14), (50, 18), (100, 40)):
            self.assertEqual(pairs.rank(count), k, count)

    def test_probability_is_the_least_that_suffices(self):
        for count in range(6, 401):
            k = pairs.rank(count)
            inside = [1 - 2 * sum(math.comb(count, i) for i in range(below)) / 2 ** count for below in (k, k + 1)]
            self.assertGreaterEqual(inside[0], 0.95, count)
            self.assertLess(inside[1], 0.95, count)


class Intervals(unittest.TestCase):
    def test_ends_are_order_statistics(self):
        values = list(range(1, 41))
        random.Random(3).shuffle(values)
        self.assertEqual(median_interval(values), (20.5, 14, 27, 40))

    def test_of_few_values_is_without_end(self):
        self.assertEqual(median_interval([1, 1, 1, 1, 1]), (1, -math.inf, math.inf, 5))
        self.assertTrue(median_interval([1, 1, 1, 1, 1]).wide)
        self.assertEqual(median_interval([3, 1, 2, 6, 5, 4]), (3.5, 1, 6, 6))

    def test_wide_is_more_than_four_percent_to_each_side(self):
        self.assertFalse(pairs.Interval(1.0, 0.961, 1.039, 40).wide)
        self.assertTrue(pairs.Interval(1.0, 0.955, 1.039, 40).wide)
        self.assertTrue(pairs.Interval(0.5, 0.475, 0.525, 40).wide)
        self.assertTrue(pairs.Interval(0.0, 0.0, 0.0, 40).wide)

    def test_hold_the_median_as_often_as_they_say(self):
        """Of skewed values too, a third of which are disturbed; and not much more often, else they would say nothing."""
        noise = random.Random(11)
        trials, held = 3000, 0
        for _ in range(trials):
            values = [noise.lognormvariate(0, 1.5 if noise.random() < 0.3 else 0.05) for _ in range(41)]
            interval = median_interval(values)
            held += interval.low <= 1 <= interval.high
        self.assertGreater(held / trials, 0.94)
        self.assertLess(held / trials, 0.99)

    def test_outliers_do_not_move_it(self):
        values = [0.95 + 0.001 * (i % 10) for i in range(40)]
        quiet, disturbed = median_interval(values), median_interval([*values[:34], 9, 9, 9, 0.01, 0.01, 0.01])
        self.assertAlmostEqual(quiet.median, disturbed.median, delta=0.001)
        self.assertAlmostEqual(quiet.low, disturbed.low, delta=0.002)
        self.assertAlmostEqual(quiet.high, disturbed.high, delta=0.002)


class Measuring(unittest.TestCase):
    def test_ends_at_the_least_where_nothing_disturbs(self):
        found, rest = measure(0.01, Plan(40, 400, 0.02, 100, 20))
        # The program may print another pair or more before it gets SIGTERM.
        self.assertGreaterEqual(len(found), 40)
        self.assertLess(len(found), 400)
        self.assertEqual(rest, [{"done": len(found)}])
        self.assertAlmostEqual(pairs.summarize("x", found, pairs.by("rate"), "")["ratio"], 0.9, delta=0.01)

    def test_goes_on_until_the_interval_is_narrow(self):
        ratios = []
        noise = random.Random(5)
        plan = Plan(40, 400, 0.02, 100, 20)
        while not pairs.is_enough(ratios, plan):
            ratios.append(noise.lognormvariate(0, 0.1))
        self.assertGreater(len(ratios), 60)
        self.assertEqual((len(ratios) - 40) % pairs.LOOK_EVERY, 0)
        self.assertLessEqual(median_interval(ratios).half_width, 0.02)

    def test_has_an_end_and_says_that_it_is_wide(self):
        found, _ = measure(2, Plan(40, 80, 0.02, 100, 20))
        row = pairs.summarize("x", found, pairs.by("rate"), "")
        self.assertEqual((len(found), row["pairs"], row["wide"]), (80, 80, True))
        self.assertEqual(len(row["ratios"]), 80)

    def test_two_runs_agree(self):
        medians = [pairs.summarize("x", measure(0.1, Plan(40, 400, 0.02, 100, 20), seed)[0], pairs.by("rate"), "")["ratio"]
                   for seed in (1, 2)]
        self.assertLess(abs(medians[0] / medians[1] - 1), 0.03)

    def test_a_program_that_fails_is_no_result(self):
        with self.assertRaises(RuntimeError):
            pairs.measure([sys.executable, "-c", "raise SystemExit(1)"], pairs.by("rate"), Plan(40, 80, 0.02, 100, 20))

    def test_a_slice_without_an_answer_makes_no_ratio(self):
        idle = {"server": {"rate": 5}, "reference": {"rate": 0}}
        found = [{"server": {"rate": 5, "wrong": 1}, "reference": {"rate": 10}}] * 6 + [idle]
        row = pairs.summarize("x", found, pairs.by("rate"), "")
        self.assertEqual((row["ratio"], row["pairs"], row["discarded"], row["wrong"]), (0.5, 6, 1, 6))
        json.dumps(row)


class Ratios(unittest.TestCase):
    def test_of_use_is_turned_round(self):
        pair = {"server": {"cpu_us": 4}, "reference": {"cpu_us": 2}}
        self.assertEqual((pairs.by("cpu_us")(pair), pairs.per("cpu_us")(pair)), (2, 0.5))
        self.assertIsNone(pairs.by("rate")(pair))


if __name__ == "__main__":
    unittest.main()
