"""Tests of the replay: hand-computed stages, and the published points of the documents' machines."""

import io
import unittest
from dataclasses import replace

import replay
from replay import Machine, Share, Stage, Step

# Two nodes of four cores: 100 bytes/s local, 25 across; a core alone reads 80, and 40 across.
SMALL = Machine(((100.0, 25.0), (25.0, 100.0)), 4, 80.0, 40.0, 50.0, 10.0, 1.0, 2.0, 3.0, 5.0)
NOTHING = Share(0.0, 0.0)


def stage(lines: dict[int, tuple[float, float]], end: str = "stop", int8: float = 0.0,
          instructions: Share = NOTHING) -> Stage:
    """Bytes that the threads of each node divide, by memory."""
    of = {node: {memory: Share(0.0, amount) for memory, amount in enumerate(row)} for node, row in lines.items()}
    work = {node: Share(0.0, int8) for node in lines}
    return Stage(end, of, work, {node: NOTHING for node in lines}, {node: instructions for node in lines})


def step(*stages: Stage, engine: str = "arclight") -> Step:
    return Step(engine, "tp", "m", 2, 1, stages)


class Fetching(unittest.TestCase):
    def test_two_threads_share_a_memory_by_hand(self):
        # Both take 100 bytes of memory 0. The second has a link of 25 bytes/s: 4 s. The first has the rest of the
        # memory, 75 bytes/s, which is less than the 80 of a core: 1.333 s.
        loads = [replay.Load(0, 1, (100.0, 0.0), (100.0, 0.0)), replay.Load(1, 1, (100.0, 0.0), (100.0, 0.0))]
        ends = replay.fetch(SMALL, loads)
        self.assertAlmostEqual(ends[0], 100 / 75)
        self.assertAlmostEqual(ends[1], 4.0)

    def test_what_one_leaves_the_others_have(self):
        # A link of 90 bytes/s, so both have 50 bytes/s of memory 0 until the first has its 50 bytes, after 1 s.
        # The second then reads the 50 bytes that it has left at the 80 bytes/s of its core.
        fast = replace(SMALL, read=((100.0, 90.0), (90.0, 100.0)), core_other=80.0)
        loads = [replay.Load(0, 1, (50.0, 0.0), (50.0, 0.0)), replay.Load(1, 1, (100.0, 0.0), (100.0, 0.0))]
        ends = replay.fetch(fast, loads)
        self.assertAlmostEqual(ends[0], 1.0)
        self.assertAlmostEqual(ends[1], 1.0 + 50 / 80)

    def test_a_thread_alone_has_its_own_rate(self):
        ends = replay.fetch(SMALL, [replay.Load(0, 1, (40.0, 20.0), (40.0, 20.0))])
        # 40 / 80 + 20 / 40 s; the link would take 0.8 s.
        self.assertAlmostEqual(ends[0], 1.0)

    def test_a_matrix_of_equal_bandwidths_gives_the_time_of_one_node(self):
        equal = replace(SMALL, read=((100.0, 100.0), (100.0, 100.0)), core_other=80.0)
        alone = replay.stage_seconds(equal, stage({0: (300.0, 0.0)}), 4)
        self.assertAlmostEqual(alone, 3.0)
        for lines in ({0: (300.0, 0.0), 1: (0.0, 300.0)}, {0: (150.0, 150.0), 1: (150.0, 150.0)},
                      {0: (0.0, 300.0), 1: (300.0, 0.0)}):
            self.assertAlmostEqual(replay.stage_seconds(equal, stage(lines), 4), alone)
            self.assertAlmostEqual(replay.stage_seconds(equal, stage(lines), 1), 300 / 80)

    def test_all_lines_of_one_memory_take_twice_as_long_at_least(self):
        lines = stage({0: (300.0, 0.0), 1: (300.0, 0.0)})
        self.assertAlmostEqual(replay.stage_seconds(SMALL, lines, 4), 300 / 25)


class Stages(unittest.TestCase):
    def test_products_go_on_beside_fetching_and_own_work_is_not_divided(self):
        made = stage({0: (100.0, 0.0)}, int8=1000.0)
        self.assertAlmostEqual(replay.stage_seconds(SMALL, made, 4), 1000 / 4 / 50)
        alone = stage({0: (0.0, 0.0)}, instructions=Share(4e9, 8e9))
        self.assertAlmostEqual(replay.stage_seconds(SMALL, alone, 4), (4e9 + 8e9 / 4) / replay.INSTRUCTIONS)

    def test_lines_that_every_thread_fetches_come_from_memory_once(self):
        # Each of four threads fetches 60 bytes for itself, and they divide 340. A node reads 400 bytes of its memory, in
        # 4 s. A thread has 60 + 85 bytes, which take less; from a cache of 20 bytes/s its 60 take 3 s more.
        lines = {0: {0: Share(60.0, 340.0)}}
        made = replace(stage({0: (0.0, 0.0)}), lines=lines)
        self.assertAlmostEqual(replay.stage_seconds(SMALL, made, 4), 4.0)
        self.assertAlmostEqual(replay.stage_seconds(replace(SMALL, cache=20.0), made, 4), 4.0 + 3.0)
        # A core alone: 400 bytes at 80 bytes/s, or 340 of them and 60 at 20 bytes/s.
        self.assertAlmostEqual(replay.stage_seconds(SMALL, made, 1), 5.0)
        self.assertAlmostEqual(replay.stage_seconds(replace(SMALL, cache=20.0), made, 1), 340 / 80 + 60 / 20)

    def test_shares_follow_from_two_counts(self):
        # Every thread does 10, and 80 are divided; one thread alone of all does everything; everything is divided.
        self.assertEqual(Share.of(90.0, 50.0), Share(10.0, 80.0))
        self.assertEqual(Share.of(90.0, 90.0), Share(90.0, 0.0))
        self.assertEqual(Share.of(90.0, 45.0), Share(0.0, 90.0))
        self.assertEqual(Share(10.0, 80.0).each(4), 30.0)

    def test_waits_are_those_of_the_cost_model(self):
        self.assertEqual(SMALL.wait("local", [4, 4], True), 4 * 1 + 2 * 3)
        self.assertEqual(SMALL.wait("global", [4, 0], True), 4 * 1 + 2 * 3)
        self.assertEqual(SMALL.wait("global", [4, 4], True), 8 * 1.5 + 2 * 5)
        self.assertEqual(SMALL.wait("global", [4, 4], False), 4 + 6 + 2 * 2 + 2 * 5)
        self.assertEqual((SMALL.wait("local", [1, 1], False), SMALL.wait("stop", [4, 4], False)), (0.0, 0.0))

    def test_a_step_is_the_sum_of_stages_and_waits(self):
        made = step(stage({0: (300.0, 0.0), 1: (0.0, 300.0)}, "global"), stage({0: (100.0, 0.0), 1: (0.0, 0.0)}))
        self.assertAlmostEqual(replay.step_seconds(SMALL, made, 4), 3 + 24 + 1)
        with self.assertRaisesRegex(ValueError, "5 threads on a node of 4"):
            replay.step_seconds(SMALL, made, 5)

    def test_the_last_layer_is_repeated(self):
        work = [0, 7, 3, 5, 3, 5, 90]
        made = step(*(stage({0: (n, 0.0)}, int8=n) for n in work))
        self.assertEqual(replay.layer(made.stages), (4, 2, 2))
        grown = [replay.products(s) for s in made.grown(4).stages]
        self.assertEqual(grown, [0, 7, 3, 5, 3, 5, 3, 5, 3, 5, 90])
        with self.assertRaisesRegex(ValueError, "no two layers"):
            replay.layer(made.stages[:3])


class Reading(unittest.TestCase):
    HEAD = "engine,placement,model,nodes,threads,tokens,stage,end,thread,node,instructions,int8,f32,lines0,lines1\n"
    ROWS = ("a,tp,m,2,1,1,0,stop,0,0,100,64,0,10,0\n" "a,tp,m,2,1,1,0,stop,2,1,100,64,0,2,10\n"
            "a,tp,m,2,2,1,0,stop,0,0,60,32,0,6,0\n" "a,tp,m,2,2,1,0,stop,1,0,50,32,0,5,0\n"
            "a,tp,m,2,2,1,0,stop,2,1,60,32,0,2,5\n" "a,tp,m,2,2,1,0,stop,3,1,50,32,0,2,5\n")

    def test_two_counts_make_a_step(self):
        made, = replay.read_steps(io.StringIO("# a comment\n" + self.HEAD + self.ROWS))
        self.assertEqual((made.nodes, made.tokens, made.used), (2, 1, [0, 1]))
        self.assertEqual(made.stages[0].lines[0][0], Share(2 * 64, 8 * 64))
        self.assertEqual(made.stages[0].lines[1], {0: Share(2 * 64, 0), 1: Share(0, 10 * 64)})
        self.assertEqual(made.stages[0].instructions[0], Share(20, 80))

    def test_a_count_that_is_missing_is_named(self):
        rows = "".join(self.ROWS.splitlines(keepends=True)[:2])
        with self.assertRaisesRegex(ValueError, "a tp m 2 1: counts with one and with two threads"):
            replay.read_steps(io.StringIO(self.HEAD + rows))

    def test_a_matrix_takes_the_place_of_the_machine_s(self):
        names = ("core, own memory", "core, other memory", "core, int8", "core, f32", "arrival, own node",
                 "arrival, other node", "line, own node", "line, other node")
        known = {"cores_per_node": 4, "figures": [{"what": name, "value": 1.0} for name in names],
                 "read_bytes_per_second": [[2.0]]}
        self.assertEqual(Machine.of(known).read, ((2.0,),))
        topo = {"access": {"read_bytes_per_second": [[5.0, 1.0], [1.0, 5.0]]}}
        self.assertEqual(Machine.of(known, topo).read, ((5.0, 1.0), (1.0, 5.0)))
        topo["access"]["read_bytes_per_second"][0][1] = None
        with self.assertRaisesRegex(ValueError, "not measured"):
            Machine.of(known, topo)


if __name__ == "__main__":
    unittest.main()
