"""The measurement itself: every engine in turn on the same file, round after round."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from engines import ARCLIGHT, AnswerError, Contestant, Figure
from measure import Run, run
from results import Row
from workload import Test, groups


@dataclass(frozen=True)
class Model:
    shape: str
    type: str
    # One that somebody has; none: `arclight synth` makes it.
    given: Path | None = field(default=None, compare=False)

    @staticmethod
    def parse(name: str) -> "Model":
        shape, colon, kind = name.strip().partition(":")
        if not (shape and colon and kind):
            raise ValueError(f"no model {name!r}: write it as qwen3-0.6b:q4_0")
        return Model(shape, kind)

    @staticmethod
    def of_file(name: str) -> "Model":
        """Of a file that is there, named after it: the type stands at the end, as in `gemma-3-Q4_K_M.gguf`."""
        file = Path(name).expanduser().resolve()
        if not file.is_file():
            raise ValueError(f"no file {name}")
        shape, type_ = re.fullmatch(r"(.+?)(?:[-._](i?q\d\w*|tq\d\w*|bf16|f16|f32|mxfp4))?",
                                    file.stem.lower()).groups()
        return Model(shape, type_ or "-", file)

    def __str__(self) -> str:
        return f"{self.shape}:{self.type}"

    @property
    def file_name(self) -> str:
        return f"{self.shape}-{self.type}.gguf"


@dataclass(frozen=True)
class Session:
    """Who is measured, and how."""
    contestants: list[Contestant]   # Arclight first
    tests: list[Test]
    rounds: int
    threads: int
    wrap: list[str]
    work: Path
    timeout: float  # seconds a command

    def measure(self, model: Model, file: Path, tell: Callable[[Row], None]) -> None:
        for number in range(1, self.rounds + 1):
            for group in groups(self.tests):
                ours: dict[Test, Figure] = {}
                for contestant in self.contestants:
                    done, figures = self.ask(contestant, file, group)
                    if contestant.engine == ARCLIGHT:
                        ours = figures
                    for test in group:
                        tell(result_row(model, number, contestant, test, done,
                                        figures.get(test), ours.get(test)))

    def ask(self, contestant: Contestant, file: Path, group: list[Test]) \
            -> tuple[Run, dict[Test, Figure]]:
        command = contestant.command(file, group, self.threads)
        done = run(command, self.wrap, self.work, self.timeout)
        if done.error:
            return done, {}
        try:
            return done, contestant.figures(done.stdout, group, done.stderr)
        except AnswerError as e:
            return replace(done, error=str(e)), {}


def result_row(model: Model, number: int, contestant: Contestant, test: Test, done: Run,
               figure: Figure | None, ours: Figure | None) -> Row:
    speed = figure.tokens_per_second if figure else None
    limit = ours.limit if ours else None
    peer = contestant.engine != ARCLIGHT
    return Row(
        model=model.shape, type=model.type, test=str(test), round=number,
        engine=contestant.engine, flags=contestant.flags,
        tokens_per_second=speed,
        ratio=ours.tokens_per_second / speed if peer and speed and ours else None,
        limit=limit,
        # A limit that is beaten was measured while other programs had the machine.
        of_limit=speed / limit if speed and limit and speed <= limit else None,
        read_gb_s=billions(ours and ours.read),
        int8_gmac_s=billions(ours and ours.int8),
        bf16_gmac_s=billions(ours and ours.bf16),
        foreign_pct=done.load.foreign if done.load else None,
        steal_pct=done.load.steal if done.load else None,
        disturbed="yes" if done.load and done.load.disturbed else "",
        error=done.error or "",
    )


def billions(value: float | None) -> float | None:
    return value / 1e9 if value else None
