"""The simulator on programs whose times are known, and predictions from runs whose every interval is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sylvie_trace.cli import main
from sylvie_trace.decision import ControllerConfig
from sylvie_trace.reader import read_run
from sylvie_trace.schema import Epoch
from sylvie_trace.whatif import Prediction, Scenario, parse_rate, whatif
from sylvie_trace.whatif.program import COORDINATE, GRADIENT, POST, TAKE, WORK, Op, programs
from sylvie_trace.whatif.simulate import Cost, Machine, Step, simulate

Make = Callable[..., Any]
SITE = (2, 0, 0, 0)
MACHINE = Machine(
    goodput=100.0,
    burst_bytes=0.0,
    exchange_s=0.0,
    gradient_s=0.0,
    coordinate_s=0.0,
    shared_core=False,
    cpu_per_byte=0.0,
)


def step(mode: str, before: float, beside: float, after: float, cost: Cost, gradient: float = 0.0) -> Step:
    ops = (
        Op(WORK, before),
        Op(POST, site=SITE),
        Op(WORK, beside),
        Op(TAKE, site=SITE),
        Op(WORK, after),
        Op(GRADIENT),
        Op(COORDINATE),
    )
    return Step(mode, ops, {SITE: cost}, (gradient,))


def machine(**changes: Any) -> Machine:
    return Machine(**{**MACHINE.__dict__, **changes})


def test_a_synchronous_epoch_waits_for_what_it_cannot_overlap() -> None:
    own = step("sync", 1.0, 2.0, 3.0, Cost(0.5, 0.25, 500.0))
    # 1 + encode 0.5, then 5 s of bytes beside 2 s of work, decode 0.25, 3.
    assert simulate([[own] * 2] * 2, MACHINE) == pytest.approx([1 + 0.5 + 5 + 0.25 + 3] * 2)
    short = step("sync", 1.0, 2.0, 3.0, Cost(0.5, 0.25, 100.0))
    assert simulate([[short]] * 2, MACHINE) == pytest.approx([1 + 0.5 + 2 + 0.25 + 3])


def test_an_asynchronous_epoch_is_the_longer_of_work_and_background() -> None:
    hidden = step("async", 1.0, 2.0, 3.0, Cost(0.5, 0.25, 300.0))
    assert simulate([[hidden] * 4] * 2, MACHINE)[1:3] == pytest.approx([6.0, 6.0])
    bound = step("async", 1.0, 2.0, 3.0, Cost(0.5, 0.25, 900.0))
    times = simulate([[bound] * 6] * 2, MACHINE)
    assert times[3:5] == pytest.approx([0.5 + 9 + 0.25] * 2, rel=0.01)
    # On a shared core the codec's time comes on top of the work.
    assert simulate([[hidden] * 4] * 2, machine(shared_core=True))[1:3] == pytest.approx([6.75, 6.75])


def test_everybody_waits_for_the_slowest() -> None:
    slow, fast = (step("sync", w, 0.0, 1.0, Cost(0.0, 0.0, 100.0)) for w in (5.0, 1.0))
    assert simulate([[slow], [fast], [fast]], MACHINE) == pytest.approx([5 + 1 + 1])


def test_fixed_times_gradients_and_bursts() -> None:
    own = step("sync", 1.0, 0.0, 1.0, Cost(0.0, 0.0, 100.0), gradient=200.0)
    fixed = machine(exchange_s=0.1, gradient_s=0.2, coordinate_s=0.3)
    assert simulate([[own]] * 2, fixed) == pytest.approx([1 + 0.1 + 1 + 1 + 0.2 + 2 + 0.3])
    # A burst of 60 bytes passes at once; it is full again after the pause before the gradients.
    assert simulate([[own]] * 2, machine(burst_bytes=60.0)) == pytest.approx([1 + 0.4 + 1 + 1.4], abs=0.03)
    # The network takes a fifth of the core while 100 bytes/s pass: one second of work beside two of bytes lasts longer.
    beside = step("sync", 0.0, 1.0, 0.0, Cost(0.0, 0.0, 50.0))
    busy = machine(shared_core=True, cpu_per_byte=0.002)
    assert simulate([[beside]] * 2, busy) == pytest.approx([0.5 + (1 - 0.5 * 0.8)])


def test_a_burst_of_any_size_comes_to_an_end() -> None:
    own = step("sync", 0.013, 0.007, 0.011, Cost(0.001, 0.001, 1.7e6), gradient=3e5)
    for burst in (1.0, 65537.0, 131072.0, 499999.9):
        shaped = machine(goodput=25e6 * 0.9564, burst_bytes=burst, exchange_s=0.0049, coordinate_s=0.0044)
        times = simulate([[own] * 6] * 2, shaped)
        bound = 0.013 + 0.001 + 1.7e6 / shaped.goodput
        assert all(bound - 2 * burst / shaped.goodput < took < bound + 0.1 for took in times)


def test_two_transfers_share_the_link() -> None:
    """In an asynchronous epoch the weight gradients travel beside the rows."""
    ops = (Op(POST, site=SITE), Op(GRADIENT), Op(COORDINATE))
    both = Step("async", ops, {SITE: Cost(0.0, 0.0, 100.0)}, (100.0,))
    assert simulate([[both]] * 2, MACHINE) == pytest.approx([2.0])


def test_weight_gradients_travel_behind_backward_bucket_by_bucket() -> None:
    """Of three buckets two go with the posts of backward, and the last message of an asynchronous one after all sums."""
    sites = [(3, 0, 1, 0), (2, 0, 1, 0)]
    ops = (Op(WORK, 1.0), Op(POST, site=sites[0]), Op(WORK, 4.0), Op(POST, site=sites[1]), Op(WORK, 4.0), Op(GRADIENT))
    costs = {site: Cost(0.0, 0.0, 100.0) for site in sites}
    buckets = (100.0, 200.0, 50.0)
    steps = [[Step("async", ops, costs, buckets)]] * 2
    # Sums: 1 s beside rows that share the link until 3 s, 2 s from 5 s, the last half second from 9 s.
    assert simulate(steps, MACHINE) == pytest.approx([9.5])
    behind = [[Step("async", (*ops, Op(TAKE, site=sites[1])), costs, buckets)] * 3] * 2
    assert simulate(behind, MACHINE)[1:] == pytest.approx([9.5, 9.5], abs=0.6)
    assert simulate([[Step("async", ops[:-2], costs, buckets)]] * 2, MACHINE) == pytest.approx([5.0])  # no sum: nobody waits


def made(synthetic: Make, schedule: str = "sync", cores: int = 2, **changes: Any) -> Any:
    """A run with 1-bit rows (132 bytes a message) whose transfer takes just the 7 ms of its bytes."""

    def change(rank: int, record: Any) -> Any:
        if isinstance(record, Epoch):
            return msgspec.structs.replace(record, gradient_allreduce_bytes=0)
        return record

    run = synthetic(epochs=15, controller=ControllerConfig(bits=1, schedule=schedule), change=change, **changes)
    info = json.loads(run.directory.run_json.read_text())
    info["links"] = [{"src": 0, "dst": 1, "rtt_s": 0.0, "bytes_per_s": 132 / 0.007}]
    info["devices"] = [{"rank": r, "host": str(r), "cores": cores, "threads": 1} for r in range(2)]
    run.directory.run_json.write_text(json.dumps(info))
    return run


def ask(run: Any, **scenario: Any) -> Prediction:
    return whatif(read_run(run.path), Scenario(**{"goodput": 132 / 0.007, **scenario}))


def test_the_run_itself_is_reproduced(synthetic: Make) -> None:
    for schedule in ("sync", "async"):
        found = ask(made(synthetic, schedule))
        assert found.measured_s == pytest.approx(0.05) and found.speedup == pytest.approx(1.0, rel=1e-3)
        assert found.check_s == pytest.approx(0.05, rel=1e-3) and found.low <= 0.0501 and found.high >= 0.0499


def test_another_rate_width_and_schedule(synthetic: Make) -> None:
    run = made(synthetic)
    assert ask(run, goodput=132 / 0.014).epoch_s == pytest.approx(0.057, rel=1e-3)
    # 10 rows of 16 columns: 20 bytes at 1 bit, 160 at 8 bits, beside 112 of metadata and header.
    assert ask(run, bits=8).epoch_s == pytest.approx(0.043 + 0.007 * 272 / 132, rel=1e-3)
    plain = ask(run, bits=32)  # 640 + 32 bytes, half of the codec's 5 ms
    assert plain.epoch_s == pytest.approx(0.043 - 0.0025 + 0.007 * 672 / 132, rel=1e-3)
    assert plain.bytes_per_rank == 672
    # Asynchronously the transfer and, with a core to spare, the codec run behind the work.
    assert ask(run, schedule="async").epoch_s == pytest.approx(0.038, rel=0.01)
    assert ask(made(synthetic, cores=1), schedule="async").epoch_s == pytest.approx(0.043, rel=0.01)
    # A link too slow to hide: the transfer is all there is.
    assert ask(run, schedule="async", goodput=132 / 0.1).epoch_s == pytest.approx(0.105, rel=0.08)
    assert ask(run, latency_s=0.003).epoch_s == pytest.approx(0.05 + 0.003 + 4 * 0.003, rel=1e-3)


def test_takes_that_leave_no_trace_are_put_where_synchronous_epochs_have_them(synthetic: Make) -> None:
    run = read_run(made(synthetic, "async").path)
    program = programs(run, [12])[0][0]
    kinds = [op.kind for op in program.ops if op.kind != WORK]
    assert kinds == [POST, TAKE, GRADIENT, COORDINATE]
    assert program.work_s == pytest.approx(0.045)


def test_more_ranks_are_a_guess_that_says_so(synthetic: Make) -> None:
    found = ask(made(synthetic), ranks=8)
    assert found.compute_s == pytest.approx(0.033) and found.epoch_s < 0.05
    assert any("guessed" in said for said in found.assumptions)


def test_from_the_command_line(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(synthetic)
    assert main(["whatif", str(run.path), "--link", "0.2mbit", "--bits", "4", "--schedule", "async", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["low"] <= answer["epoch_s"] <= answer["high"]
    assert answer["scenario"]["bits"] == 4 and answer["scenario"]["goodput"] == pytest.approx(25000 * 1448 / 1514)
    assert main(["whatif", str(run.path)]) == 0
    assert "an epoch takes 50 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--link", "fast"], "'fast' is not a number"),
        (["--bits", "3"], "bits 3 is unknown"),
        (["--latency", "-1"], "must be a number of seconds"),
        (["--ranks", "1"], "ask about 2 or more"),
        (["--schedule", "later"], "invalid choice"),
    ],
)
def test_bad_questions_are_refused(
    synthetic: Make, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["whatif", str(made(synthetic).path), *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1


def test_runs_that_cannot_answer_are_refused(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    for run, said in (
        (synthetic(epochs=12), "no measured link"),
        (synthetic(epochs=12, trace=False), "run with --trace"),
        (synthetic(epochs=1), "no epoch after the warm-up"),
    ):
        assert main(["whatif", str(run.path), "--link", "1gbit"]) == 2
        assert said in capsys.readouterr().err


def test_rates() -> None:
    assert parse_rate("200mbit") == 25e6 and parse_rate("1gbit") == 125e6
