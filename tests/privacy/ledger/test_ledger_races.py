"""What a process may do to another: race it, and die on it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from ledgers import left_steps

from tuner.errors import BudgetRefusedError
from tuner.privacy.ledger.ledger import Ledger


def test_threads_and_processes_racing_never_pass_the_cap(ledger: Ledger, search: str) -> None:
    script = (
        "import sys\n"
        "from tuner.errors import BudgetRefusedError\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "from tuner.privacy.accountant.mechanism import SampledGaussian\n"
        "ledger, who, won = Ledger.open(sys.argv[1], create=False), sys.argv[2], 0\n"
        "for i in range(40):\n"
        "    try:\n"
        "        ledger.reserve('first', f'{who}{i}', 30)\n"
        "        ledger.lease('first', f'{who}{i}', 30, SampledGaussian(0.05, 2.0))\n"
        "        won += 30\n"
        "    except BudgetRefusedError:\n"
        "        pass\n"
        "print(won)\n"
    )
    command = [sys.executable, "-c", script, ledger.url]
    racers = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True) for who in "pq"]
    errors: list[BaseException] = []

    def here() -> None:
        try:
            for i in range(5):
                ledger.reserve(search, f"{threading.get_ident()}-{i}", 1)
        except BudgetRefusedError:
            pass
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=here) for _ in range(2)]
    for thread in threads:
        thread.start()
    won = sum(int(racer.communicate(timeout=60)[0]) for racer in racers)
    for thread in threads:
        thread.join()
    assert not errors
    state = ledger.search_state(search)
    assert state.leased_steps == won
    assert state.leased_steps + state.reserved_steps <= state.filter.step_cap
    assert left_steps(state) < 30  # both were stopped by the cap and by nothing else
    ledger.verify_chain()


def test_kill_minus_nine_leaves_every_lease_that_was_answered(ledger: Ledger, search: str) -> None:
    script = (
        "import sys\n"
        "from tuner.privacy.ledger.ledger import Ledger\n"
        "from tuner.privacy.accountant.mechanism import SampledGaussian\n"
        "ledger = Ledger.open(sys.argv[1], create=False)\n"
        "ledger.reserve('first', 'victim', 1000)\n"
        "while True:\n"
        "    ledger.lease('first', 'victim', 1, SampledGaussian(0.05, 2.0))\n"
        "    print(1, flush=True)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", script, ledger.url], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    answered = sum(int(victim.stdout.readline()) for _ in range(25))
    victim.send_signal(signal.SIGKILL)
    answered += sum(int(line) for line in victim.communicate(timeout=60)[0].split())
    leased = ledger.search_state(search).trials["victim"].leased
    assert answered <= leased <= answered + 1
    ledger.verify_chain()
    ledger.settle(search, "victim", answered)
    assert left_steps(ledger.search_state(search)) == 1000 - leased
