"""A small simulator of ranks, cores and one network: every rank's program replayed under a scenario.

A rank has a main thread, which runs its program, a background thread, which works off what the main thread posts, one
exchange after the other, and one that sums weight gradients, bucket by bucket while backward runs. Work is served by cores,
bytes by the link; whoever shares a core or the link gets an equal part.
A collective starts when its last rank is ready, takes a fixed time and then its bytes: those of the busiest rank.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from sylvie_trace.columns import DIRECTIONS
from sylvie_trace.schema import ASYNC, BACKWARD
from sylvie_trace.whatif.program import COORDINATE, GRADIENT, POST, TAKE, WORK, Op, Site

_CPU, _DELAY, _LINK = "cpu", "delay", "link"
_TINY = 1e-12
_BACKWARD = DIRECTIONS[BACKWARD]
#: A shaped link's burst passes at this rate, bytes/s.
_BURST_RATE = 1e9


@dataclass(frozen=True)
class Cost:
    """What one exchange of one rank costs in the scenario."""

    encode_s: float
    decode_s: float
    bytes: float


@dataclass(frozen=True)
class Step:
    """A rank's epoch in the scenario: ops in order, costs by site, bytes of the weight gradients by bucket."""

    mode: str
    ops: tuple[Op, ...]
    costs: dict[Site, Cost]
    gradient_bytes: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The link (bytes/s, burst), fixed seconds of a collective by kind, and how ranks share their cores.

    ``shared_core``: a rank's two threads share one core. ``cpu_per_byte``: seconds of a rank's core that the network takes
    for every byte of a collective.
    """

    goodput: float
    burst_bytes: float
    exchange_s: float
    gradient_s: float
    coordinate_s: float
    shared_core: bool
    cpu_per_byte: float


Request = tuple[object, ...]
Thread = Generator[Request, None, None]


@dataclass(eq=False)
class _Task:
    kind: str
    left: float
    rank: int
    then: Callable[[], None]


@dataclass
class _World:
    """Everything that moves; ``run`` ends when nobody has anything left to do."""

    machine: Machine
    ranks: int
    now: float = 0.0
    tasks: list[_Task] = field(default_factory=list)
    waiting: dict[object, list[Thread]] = field(default_factory=dict)
    happened: set[object] = field(default_factory=set)
    arrived: dict[object, list[tuple[Thread, float]]] = field(default_factory=dict)
    tokens: float = 0.0

    def advance(self, thread: Thread) -> None:
        """Let a thread go on until it needs time or somebody else."""
        while True:
            try:
                request = next(thread)
            except StopIteration:
                return
            if request[0] == _CPU:
                _, rank, seconds = request
                assert isinstance(rank, int) and isinstance(seconds, float)
                if seconds <= _TINY:
                    continue
                self.tasks.append(_Task(_CPU, seconds, rank, lambda: self.advance(thread)))
                return
            if request[0] == "wait":
                if request[1] in self.happened:
                    continue
                self.waiting.setdefault(request[1], []).append(thread)
                return
            _, key, fixed_s, size = request
            assert isinstance(fixed_s, float) and isinstance(size, float)
            self._meet(key, thread, fixed_s, size)
            return

    def signal(self, key: object) -> None:
        """Something happened: wake whoever waits for it."""
        self.happened.add(key)
        for thread in self.waiting.pop(key, []):
            self.advance(thread)

    def _meet(self, key: object, thread: Thread, fixed_s: float, size: float) -> None:
        here = self.arrived.setdefault(key, [])
        here.append((thread, size))
        if len(here) < self.ranks:
            return
        del self.arrived[key]
        biggest = max(each for _, each in here)

        def done() -> None:
            for one, _ in here:
                self.advance(one)

        def move() -> None:
            self.tasks.append(_Task(_LINK, max(biggest, _TINY), -1, done))

        self.tasks.append(_Task(_DELAY, max(fixed_s, _TINY), -1, move))

    def run(self) -> None:
        """Serve everything to its end."""
        while self.tasks:
            rates = self._rates()
            step = min(task.left / rate for task, rate in zip(self.tasks, rates, strict=True) if rate > 0)
            moving = any(task.kind == _LINK for task in self.tasks)
            if moving and self.tokens > 0:
                step = min(step, self.tokens / max(_BURST_RATE - self.machine.goodput, 1.0))
            self._spend(step, moving)
            finished = []
            for task, rate in zip(self.tasks, rates, strict=True):
                task.left -= rate * step
                if task.left <= _TINY * max(1.0, rate):
                    finished.append(task)
            self.now += step
            self.tasks = [task for task in self.tasks if task not in finished]
            for task in finished:
                task.then()

    def _spend(self, step: float, moving: bool) -> None:
        """The token bucket drains while bytes move faster than the rate, and fills again while they do not."""
        burst = self.machine.burst_bytes
        if moving and self.tokens > 0:
            left = self.tokens - (_BURST_RATE - self.machine.goodput) * step
            self.tokens = left if left >= 1 else 0.0  # of a rounding's remainder nothing can be drained
        elif not moving:
            self.tokens = min(burst, self.tokens + self.machine.goodput * step)

    def _rates(self) -> list[float]:
        machine = self.machine
        flows = sum(task.kind == _LINK for task in self.tasks)
        speed = max(_BURST_RATE, machine.goodput) if self.tokens > 0 else machine.goodput
        stolen = min(0.9, machine.cpu_per_byte * speed) if flows else 0.0
        threads = [0] * self.ranks
        for task in self.tasks:
            if task.kind == _CPU:
                threads[task.rank] += 1
        rates = []
        for task in self.tasks:
            if task.kind == _LINK:
                rates.append(speed / flows)
            elif task.kind == _CPU:
                rates.append((1 - stolen) / threads[task.rank] if machine.shared_core else 1.0)
            else:
                rates.append(1.0)
        return rates


def simulate(steps: Sequence[Sequence[Step]], machine: Machine) -> list[float]:
    """Seconds of every epoch, the maximum over ranks; ``steps[rank][place]`` are run one after the other."""
    count = len(steps)
    world = _World(machine, count, tokens=machine.burst_bytes)
    starts: list[list[float]] = [[] for _ in range(count)]
    for rank in range(count):
        world.advance(_main(world, rank, steps[rank], starts[rank]))
        world.advance(_background(world, rank, steps[rank]))
        world.advance(_sums(world, rank, steps[rank]))
    world.run()
    assert all(len(each) == len(steps[0]) + 1 for each in starts), "the programs of the ranks do not fit each other"
    return [max(own[i + 1] - own[i] for own in starts) for i in range(len(steps[0]))]


def _main(world: _World, rank: int, steps: Sequence[Step], starts: list[float]) -> Thread:
    machine = world.machine
    posted: list[set[Site]] = []
    for place, step in enumerate(steps):
        starts.append(world.now)
        posted.append(set())
        backward = [op.site for op in step.ops if op.kind == POST and op.site is not None and op.site[2] == _BACKWARD]
        due = _sums_due(backward, len(step.gradient_bytes))
        held = None
        for op in step.ops:
            if op.kind == WORK:
                yield (_CPU, rank, op.seconds)
            elif op.kind == GRADIENT:
                for bucket in range(len(step.gradient_bytes)):
                    world.signal(("gradients", rank, place, bucket))
                yield ("wait", ("summed", rank, place))
            elif op.kind == COORDINATE:
                yield ("meet", (COORDINATE, place), machine.coordinate_s, 0.0)
                _let_go(world, rank, place, held)
                held = None
            elif op.kind == POST and op.site is not None:
                if step.mode != ASYNC:
                    yield (_CPU, rank, step.costs[op.site].encode_s)
                posted[place].add(op.site)
                if step.mode == ASYNC and backward and op.site == backward[-1]:
                    held = op.site  # it leaves behind weight gradients and coordination
                else:
                    world.signal(("queue", rank, place, op.site))
                for bucket in due.get(op.site, ()):
                    world.signal(("gradients", rank, place, bucket))
            elif op.kind == TAKE and op.site is not None:
                yield from _take(rank, place, op.site, steps, posted)
        _let_go(world, rank, place, held)
    starts.append(world.now)


def _let_go(world: _World, rank: int, place: int, held: Site | None) -> None:
    """Queue what was held back, if anything was."""
    if held is not None:
        world.signal(("queue", rank, place, held))


def _sums_due(backward: Sequence[Site], buckets: int) -> dict[Site, list[int]]:
    """With which post of a backward pass the gradients of which buckets are there: spread evenly, the last one's at the end."""
    due: dict[Site, list[int]] = {}
    for bucket in range(buckets - 1 if backward else 0):
        place = -(-(bucket + 1) * len(backward) // (buckets - 1)) - 1
        due.setdefault(backward[place], []).append(bucket)
    return due


def _sums(world: _World, rank: int, steps: Sequence[Step]) -> Thread:
    """Sums buckets in their order, each as soon as its gradients are there."""
    for place, step in enumerate(steps):
        for bucket, size in enumerate(step.gradient_bytes):
            yield ("wait", ("gradients", rank, place, bucket))
            last = bucket == len(step.gradient_bytes) - 1
            yield ("meet", (GRADIENT, place, bucket), world.machine.gradient_s if last else 0.0, size)
        world.signal(("summed", rank, place))


def _take(rank: int, place: int, site: Site, steps: Sequence[Step], posted: Sequence[set[Site]]) -> Thread:
    """Rows of this epoch, decoded here; or those of the epoch before, which a synchronous one decoded already."""
    if steps[place].mode != ASYNC:
        if site in posted[place]:
            yield ("wait", ("arrived", rank, place, site))
            yield (_CPU, rank, steps[place].costs[site].decode_s)
    elif place > 0 and steps[place - 1].mode == ASYNC and site in posted[place - 1]:
        yield ("wait", ("decoded", rank, place - 1, site))


def _background(world: _World, rank: int, steps: Sequence[Step]) -> Thread:
    """Works off the posts in their order, which is the order of the ops of all epochs."""
    order = [(place, op.site) for place, step in enumerate(steps) for op in step.ops if op.kind == POST]
    for place, site in order:
        assert site is not None
        yield ("wait", ("queue", rank, place, site))
        cost, behind = steps[place].costs[site], steps[place].mode == ASYNC
        if behind:
            yield (_CPU, rank, cost.encode_s)
        yield ("meet", ("rows", place, site), world.machine.exchange_s, cost.bytes)
        world.signal(("arrived", rank, place, site))
        if behind:
            yield (_CPU, rank, cost.decode_s)
            world.signal(("decoded", rank, place, site))
