"""Tests of the tool itself, without the program under test: `python -m unittest discover tools/golden/random`."""

import io
import json
import tempfile
import unittest
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

import case
import check
import decoders
import draw
import encoders
import published
import vocabulary
from case import Outcome
from draw import STATED_NOT, either, seldom, usual
from program import Answer, Panicked, Refused, judge


class Drawing(unittest.TestCase):
    def test_a_seed_gives_the_same_configuration_and_others_give_others(self):
        for family in (*decoders.FAMILIES, *encoders.FAMILIES):
            drawn = [draw.draw(family.fields, f"{family.name} {seed}") for seed in range(8)]
            again = [draw.draw(family.fields, f"{family.name} {seed}") for seed in range(8)]
            self.assertEqual(drawn, again, family.name)
            self.assertGreater(len({str(d) for d in drawn}), 4, family.name)

    def test_usual_values_are_drawn_as_often_as_is_said(self):
        fields = {"a": usual(1, 2, 3), "b": seldom(1, 2), "c": either(1, 2)}
        drawn = [draw.draw(fields, str(seed)) for seed in range(4000)]
        share = lambda key: sum(d[key] == 1 for d in drawn) / len(drawn)
        self.assertAlmostEqual(share("a"), 0.7, delta=0.03)
        self.assertAlmostEqual(share("b"), 0.96, delta=0.02)
        self.assertAlmostEqual(share("c"), 0.5, delta=0.03)
        self.assertEqual({d["a"] for d in drawn}, {1, 2, 3})

    def test_later_fields_see_earlier_ones(self):
        fields = {"heads": either(4, 8), "keys": lambda d: either(d["heads"], 1)}
        for seed in range(20):
            drawn = draw.draw(fields, str(seed))
            self.assertIn(drawn["keys"], (drawn["heads"], 1))

    def test_one_field_is_changed_at_a_time(self):
        fields = {"a": usual(1, 2), "_b": either(3, 4), "c.d": lambda d: usual(d["a"], 9), "e": 5}
        self.assertEqual(list(draw.changes(fields)), [{"a": 2}, {"c.d": 9}])
        self.assertEqual(draw.with_usual(fields, {"a": 2}), {"a": 2, "_b": 3, "c.d": 2, "e": 5})

    def test_fields_that_a_value_opens_are_changed_with_it(self):
        fields = {"kind": usual("plain", "scaled"), "factor": lambda d: usual(4, 8) if d["kind"] == "scaled" else STATED_NOT}
        self.assertEqual(list(draw.changes(fields)), [{"kind": "scaled"}, {"kind": "scaled", "factor": 8}])

    def test_what_is_unusual_is_told(self):
        fields = {"size": either(1, 2), "a": usual(1, 2), "b": lambda d: usual(d["a"], 5)}
        self.assertEqual(draw.unusual(fields, {"size": 2, "a": 2, "b": 2}), {"a": 2})

    def test_dots_lead_into_dicts_and_what_is_not_stated_is_left_out(self):
        drawn = {"a": 1, "_b": 2, "c.d": 3, "c.e": STATED_NOT, "f": None}
        self.assertEqual(draw.nested(drawn), {"a": 1, "c": {"d": 3}, "f": None})

    def test_names_of_families_are_their_own(self):
        for families in (decoders.FAMILIES, encoders.FAMILIES):
            names = [family.name for family in families]
            self.assertEqual(len(names), len(set(names)))

    def test_seeds_are_read(self):
        self.assertEqual(check.seeds("0..3"), [0, 1, 2])
        self.assertEqual(check.seeds("7"), [7])
        self.assertEqual(check.seeds("1,5"), [1, 5])


class Publishing(unittest.TestCase):
    def test_positions_get_their_older_names(self):
        config = {"dtype": "float32", "rope_parameters": {
            "rope_type": "linear", "factor": 4.0, "rope_theta": 5e5, "partial_rotary_factor": 0.5}}
        self.assertEqual(published.flat(config), {
            "torch_dtype": "float32", "rope_theta": 5e5, "partial_rotary_factor": 0.5,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0}})
        self.assertEqual(published.gptneox(config)["rotary_pct"], 0.5)

    def test_windows_get_their_period_only_if_it_is_theirs(self):
        kinds = ["sliding_attention"] * 3 + ["full_attention"]
        self.assertEqual(published.every_fourth({"layer_types": kinds}), {"sliding_window_pattern": 4})
        other = ["full_attention"] * 4
        self.assertEqual(published.every_fourth({"layer_types": other}), {"layer_types": other})


class Vocabularies(unittest.TestCase):
    def test_texts_are_told_apart(self):
        for kind in ("bytes", "gemma", "gemma4", "phi", "sentencepiece", "nemotron"):
            for today in (True, False):
                with tempfile.TemporaryDirectory() as folder:
                    texts = vocabulary.make(Path(folder), kind, today)
                    whole = Path(folder) / "tokenizer.json"
                    if whole.exists():
                        self.assertEqual(len(json.loads(whole.read_text())["model"]["vocab"]), len(texts), kind)
                known = [text for text in texts if text]
                self.assertEqual(len(known), len(set(known)), kind)
                self.assertGreater(len(known), 300, kind)


class Verdicts(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(1)
        self.tokens, self.texts = rng.integers(0, 40, 30).tolist(), [f"t{i}" for i in range(40)]
        logits = rng.normal(size=(30, 40)).astype(np.float64)
        self.expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def answered(self, numbers: np.ndarray) -> Answer:
        best = np.argsort(-numbers, 1)[:, :20]
        return Answer([self.texts[t] for t in self.tokens], [row[t] for row, t in zip(numbers, self.tokens)],
                      [{self.texts[i]: row[i] for i in ids} for row, ids in zip(numbers, best)])

    def off(self, numbers: np.ndarray) -> float:
        return case.distance(self.answered(numbers), self.expected, self.tokens, self.texts)

    def test_the_same_numbers_agree(self):
        self.assertEqual(self.off(self.expected), 0.0)

    def test_a_planted_difference_is_found(self):
        wrong = self.expected.copy()
        wrong[17, np.argmax(wrong[17])] += 3e-4
        self.assertAlmostEqual(self.off(wrong), 3e-4, places=9)
        wrong[17, self.tokens[17]] = float("nan")
        self.assertEqual(self.off(wrong), float("inf"))

    def test_an_answer_that_cannot_be_read_is_no_agreement(self):
        answer = self.answered(self.expected)
        with self.assertRaises(ValueError):
            case.distance(answer, self.expected, self.tokens, ["other"] * 40)
        short = Answer(answer.tokens[:9], answer.own[:9], answer.likeliest[:9])
        with self.assertRaises(ValueError):
            case.distance(short, self.expected, self.tokens, self.texts)

    def test_the_program_is_held_to_what_float32_can_do(self):
        self.assertEqual(case.held(2.5e-4, 1e-4)[0], case.RIGHT)
        self.assertEqual(case.held(2.5e-3, 1e-4)[0], case.UNSTEADY)
        self.assertEqual(case.held(1.0, 1e-4)[0], case.DIFFERS)
        self.assertEqual(case.held(5e-3, 2e-3)[0], case.UNSTEADY)

    def test_ends_of_the_program_are_told_apart(self):
        judge(0, "all is well")
        with self.assertRaisesRegex(Refused, "config.json: no"):
            judge(1, "a note\nerror: config.json: no\n")
        for status, text in ((101, "thread 'main' panicked at x.rs:1"), (1, "thread 'w' panicked at y.rs:2"), (-11, "")):
            with self.assertRaises(Panicked):
                judge(status, text)

    def test_failing_cases_are_repeated_with_their_command(self):
        options = Namespace(program="P", encoders=False, images=False, llama_cpp=None, tokenizer_model=False, form=None, table=None)
        good, bad = check.Case("llama", 3), check.Case("gemma2", 4)
        said = io.StringIO()
        with redirect_stdout(said):
            status = check.report(options, [(good, Outcome(case.RIGHT, off=1e-6)), (bad, Outcome(case.DIFFERS, off=0.5))])
        self.assertEqual(status, 1)
        self.assertIn("--program P --families gemma2 --seeds 4", said.getvalue())
        self.assertNotIn("--families llama", said.getvalue())
        with redirect_stdout(io.StringIO()):
            self.assertEqual(check.report(options, [(good, Outcome(case.REFUSED))]), 0)

    def test_the_table_counts_by_family(self):
        outcomes = [(check.Case("a", 0), Outcome(case.RIGHT)), (check.Case("a", 1), Outcome(case.DIFFERS)),
                    (check.Case("b", 0), Outcome(case.UNABLE))]
        self.assertIn("| a | 1 | 0 | 1 | 0 | 0 |\n| b | 0 | 0 | 0 | 0 | 1 |\n| all | 1 | 0 | 1 | 0 | 1 |", check.table(outcomes))


if __name__ == "__main__":
    unittest.main()
