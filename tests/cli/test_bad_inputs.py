"""The formal list of bad input: one clear line with its code each; nothing is charged, and nothing is left behind."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_files import FILES, TEXT, Bad, arrays
from command_fakes import Tune
from filelock import FileLock

from tuner.error_codes import EXIT_CODES
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.sweep.folder import SweepFolder

FIX = re.compile(
    r"(?<![\w-])(Write|Remove|Choose|Use|Set|Add|Give|Grant|Name|Number|Correct|Check|Make|Put|Raise|Lower|Leave|Replace|"
    r"Restore|Save|Wait|Start|Run|Resume|Clamp|Swap|Train|Mount|Plan|Known|Did you mean|has the keys|such as|"
    r"add --|use: tune)\b|`tune [a-z ]+|Options and arguments:"
)
"""What a message says to do. Every message must say something of the kind."""


def words(
    command: str, code: str, says: str = "", *, exit: int = 2, given: Callable[[Path], object] | None = None
) -> Bad:
    """A command with an experiment file that is right."""
    return Bad(tuple(command.split()), code, says, TEXT, valid=True, given=given or (lambda folder: None), exit=exit)


def database(folder: Path) -> None:
    with sqlite3.connect(folder / "other.db") as raw:
        raw.execute("CREATE TABLE things (id INTEGER)")


def cap(folder: Path) -> None:
    Tune(folder)("budget", "set", "digits", "--epsilon", "20", "--delta", "1e-4")


def known(folder: Path) -> None:
    """Make a ledger with a search on digits, which have no cap."""
    from tuner.privacy.ledger.ledger import Ledger

    Tune(folder)("budget", "set", "iris", "--epsilon", "20", "--delta", "1e-4")
    ledger = Ledger.open(Tune(folder).ledger_url, create=False)
    ledger.open_search("digits", "s", filter=TotalSteps(SampledGaussian(0.1, 2.0), 10), epsilon=4.0, delta=1e-5)


BUDGET = "--epsilon 3 --delta 1e-5"
COMMANDS: dict[str, Bad] = {
    # the command line
    "an unknown command": words("pln e.yaml", "usage", "'plan'"),
    "a missing argument": words("plan", "usage", "FILE"),
    "an argument too many": words("init a.yaml b.yaml", "usage", "b.yaml"),
    "an unknown option": words("plan e.yaml --tming", "usage", "'--timing'"),
    "an option without its value": words("plan e.yaml --set", "usage", "tune plan --help"),
    "a word for a number": words("watch tiny --every often", "usage", "--every"),
    "a number out of its range": words("ui --port 99999", "usage", "--port"),
    "a choice that is none": words("export tiny --by luck", "usage", "'curve', 'score'"),
    "two formats at once": words("show tiny --csv --json", "usage", "--csv"),
    "a file for a doctor of this machine": words("doctor e.yaml", "usage", "--address"),
    "an option without an equals sign": words("plan e.yaml --set search.trials", "override-invalid",
        "--set search.trials:"),
    "an option into a value": words("plan e.yaml --set privacy.epsilon.x=1", "override-invalid"),
    "an option that is no YAML": words("plan e.yaml --set privacy.epsilon=[3", "yaml-invalid", "the value must be"),
    "an option for an unknown key": words("plan e.yaml --set search.trails=1", "key-unknown", "'trials'"),
    "an option for a key of another section": words("plan e.yaml --set search.seed=1", "key-unknown",
        "'seed' at the top level"),
    "an option out of range": words("plan e.yaml --set privacy.epsilon=-1", "value-out-of-range",
        "--set privacy.epsilon=8"),
    "a cluster and this process": words("run e.yaml --local --address 1.2.3.4:6379", "options-conflict"),
    "a new ledger where nobody can write": words("run e.yaml --dry-run --set ledger=sqlite:////proc/x.db",
                                                 "ledger-folder-unwritable"),
    "a dry run of a resume": words("run e.yaml --dry-run --resume", "options-conflict"),
    "a cap for a dry run": words("run e.yaml --dry-run --dataset-cap 9", "options-conflict"),
    "a cap that is no number": words("run e.yaml --local --dataset-cap much", "dataset-cap-invalid"),
    "a cap below the claim": words("run e.yaml --local --dataset-cap 1", "dataset-cap-invalid"),
    "a total given up for nothing": words("run e.yaml --local --void-total because", "options-conflict"),
    "a resume of what never ran": words("run e.yaml --resume", "sweep-not-found"),
    "an unknown code": words("explain sweep-runing", "unknown-code", "'sweep-running'"),
    "Ray Client as a cluster": words("run e.yaml --address ray://host:10001", "cluster-address"),
    # experiments
    "a file that is not there": words("run frist.yaml", "experiment-not-found", "'first.yaml'",
        given=lambda folder: (folder / "first.yaml").write_text(TEXT)),
    "a file that nothing resembles": words("run else.yaml", "experiment-not-found", "a shipped experiment. `tune ls"),
    "a shipped file misspelt": words("plan digits_dpils.yaml", "experiment-not-found", "'digits_dplis.yaml'"),
    "a folder as a file": words("validate .", "experiment-not-found", "is a folder"),
    "a file that is no text": words("validate b.yaml", "file-unreadable", "b.yaml",
        given=lambda folder: (folder / "b.yaml").write_bytes(b"name: \xe9\n")),
    "a file that is too large": words("validate b.yaml", "file-unreadable", "1000000 bytes",
        given=lambda folder: (folder / "b.yaml").write_bytes(b"# " * 600_000)),
    "a shipped file that is none": words("cp digits_gn", "experiment-not-found", "'digits_gen.yaml'"),
    "a copy over a file": words("cp digits_gen e.yaml", "file-exists"),
    "a template over a file": words("init e.yaml", "file-exists"),
    "a template in a folder that is not there": words("init no_folder/e.yaml", "file-not-writable"),
    # names of sweeps
    **{
        f"{command} of a sweep that does not exist": words(f"{command} nosuch", "sweep-not-found", "'nosuch'")
        for command in ("status", "watch", "show", "resume", "stop", "rm", "sync", "report", "compare", "export", "ui")
    },
    # data
    "a check of a file that is not there": words("data check owm.npz", "own-file-missing", "'own.npz'", given=arrays),
    "a check of a file that is no npz": words("data check e.yaml", "own-file-format"),
    "a check of users that the file lacks": words("data check own.npz --unit user", "own-file-format", given=arrays),
    "an audit of a study": words("audit e.yaml --set privacy.private=false", "audit-not-private"),
    "a training of several trials": words("train e.yaml --local", "train-not-single"),
    "a training without privacy": words("train e.yaml --local --set privacy.private=false", "train-not-private"),
    # ledgers and budgets
    "a ledger that is not there": words("budget", "no-ledger"),
    "a ledger by a path": words("budget --ledger ./my.db", "ledger-url", "sqlite:///my.db"),
    "a ledger's password": words("budget --ledger postgresql://me:secret@host/db", "ledger-url-password"),
    "a ledger of another program": words("budget --ledger sqlite:///other.db", "ledger-foreign", exit=1,
        given=database),
    "a ledger that is no database": words("budget --ledger sqlite:///e.yaml", "ledger-damaged", exit=1),
    "a ledger in a missing folder": words(f"budget --ledger sqlite:///no/a.db set digits {BUDGET}",
        "ledger-folder-missing"),
    "a budget of NaN": words("budget set digits --epsilon nan --delta 1e-5", "epsilon-out-of-range"),
    "a negative budget": words("budget set digits --epsilon -1 --delta 1e-5", "epsilon-out-of-range"),
    "a δ above one": words("budget set digits --epsilon 1 --delta 2", "delta-out-of-range"),
    "a budget without δ": words("budget set digits --epsilon 1", "usage", "--delta"),
    "an order of one": words(f"budget set digits {BUDGET} --order 1", "order-out-of-range"),
    "an order that is a word": words(f"budget set digits {BUDGET} --order high", "renyi-order-invalid"),
    "a misspelt data set": words(f"budget set digts {BUDGET}", "dataset-unknown", "digits"),
    "a data set with a slash": words(f"budget set a/b/c {BUDGET} --new", "ledger-name-invalid"),
    "a share without a cap": words(f"budget grant digits me {BUDGET}", "cap-not-set", exit=3, given=known),
    "a share above the cap": words("budget grant digits me --epsilon 30 --delta 1e-5", "shares-exceed-cap", exit=3,
        given=cap),
    "a share that nobody has": words("budget revoke digits me", "share-not-found", given=cap),
    "a data set that the ledger does not know": words("budget show iris", "dataset-unknown", "digits", given=cap),
    "a report into a missing folder": words("budget report digits --out no/b.html", "output-path-invalid", given=cap),
    "a public file that is not there": words("budget public open owm.npz", "own-file-missing", given=cap),
    # cards, exports and addresses
    "a card that is not there": words("verify privacy_card.json", "card-not-found"),
    "a file that is no card": words("verify e.yaml", "card-not-found"),
    "a folder as a card": words("verify .", "card-not-found"),
    "a landscape of no export": words("landscape . --public-data", "export-not-found"),
    "a store that is not there": words("ui", "tracking-store-not-found"),
    "a list of trials of no Ray sweep": words("list-trials .", "no-ray-experiment"),
}  # fmt: skip
"""Kinds of mistakes in a command. The experiment file is right, or there is none."""


def held(folder: Path) -> FileLock:
    """Hold the sweep's lock, as the process that runs it does."""
    (sweep,) = Tune(folder).sweeps
    lock = FileLock(sweep / "sweep.lock")
    lock.acquire()
    return lock


def begun(folder: Path) -> None:
    (folder / "runs" / "fresh-20260101-000000-abcdef" / "trials").mkdir(parents=True)


def stopped(folder: Path) -> None:
    """Let the sweep be one that was interrupted: it is open in the ledger, and its status file says so."""
    from tuner.privacy.ledger.ledger import Ledger

    sweep = SweepFolder(Tune(folder).sweeps[0])
    Ledger.open(Tune(folder).ledger_url, create=False).reopen_search(sweep.id)
    sweep.write_status(state="interrupted")


def taken(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "experiment.yaml").write_text("# my own file")


def damaged(folder: Path) -> None:
    (folder / "dp-tuner" / "ledger.db").write_bytes(b"not a ledger" * 100)


SWEEPS: dict[str, Bad] = {
    "a trial that does not exist": words("show tiny 99", "trial-not-found"),
    "a misspelt name": words("show tniy", "sweep-not-found", "'tiny'"),
    "a sweep that runs is removed": words("rm tiny --yes", "sweep-running", given=held),
    "a sweep that runs is resumed": words("resume tiny --local --set search.trials=9", "sweep-running", given=held),
    "a sweep with a result is removed": words("rm tiny", "sweep-has-result"),
    "another claim for a resume": words("resume tiny --local --set privacy.epsilon=99", "resume-changes-setting"),
    "another seed for a resume": words("resume tiny --local --set seed=99", "resume-changes-setting"),
    "a sweep that never started is shown": words("show fresh", "sweep-incomplete", given=begun),
    "a sweep that never started is resumed": words("resume fresh --local", "sweep-incomplete", given=begun),
    "an export of a sweep that has not ended": words("export tiny", "sweep-not-finished", given=stopped),
    "the top of a curve that no search fitted": words("export tiny --by curve", "no-curve"),
    "an export into a file": words("export tiny --out e.yaml", "output-unwritable"),
    "an export over other files": words("export tiny --out other", "output-taken", given=taken),
    "a report into a folder that is not there": words("report tiny --out no/r.html", "output-path-invalid"),
    "a comparison into a folder that is not there": words("compare tiny --out no/c.html", "output-path-invalid"),
    "a comparison with what does not exist": words("compare tiny other", "sweep-not-found", "'other'"),
    "a tracking server's password": words("sync tiny --uri http://me:secret@host", "tracking-uri-password"),
    "a folder for MLflow to send to": words("sync tiny --uri runs/mlflow", "tracking-uri-invalid"),
    "a search beyond the cap of the data": words("run e.yaml --local", "dataset-cap-exceeded", exit=3,
        given=lambda folder: Tune(folder)("budget", "set", "digits", "--epsilon", "9", "--delta", "1e-4")),
    "a cap below what is committed": words("budget set digits --epsilon 1 --delta 1e-6", "cap-below-committed"),
    "another cap than that of the data": words("run e.yaml --local --dataset-cap 9", "dataset-cap-differs", given=cap),
    "a ledger that was damaged": words("run e.yaml --local", "ledger-damaged", exit=1, given=damaged),
    "a ledger that is gone": words("resume tiny --local --set search.trials=3", "ledger-not-found", exit=1,
        given=lambda folder: (folder / "dp-tuner" / "ledger.db").unlink()),
    "an exact landscape without a word": words("landscape runs", "public-data-unconfirmed"),
}  # fmt: skip
"""Kinds of mistakes about a sweep that has ended."""


def left(folder: Path) -> dict[str, str]:
    """Return what is in a folder, without locks and what SQLite keeps next to a database."""
    passing = ("-wal", "-shm", ".lock", ".pyc")
    return {
        str(path.relative_to(folder)): "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(passing) and path.name != "__pycache__"
    }


def charges(tune: Tune) -> list[str]:
    """Return the kinds of the ledger's entries, or nothing if it is no ledger."""
    try:
        return tune.entries
    except sqlite3.DatabaseError:
        return []


def check(tune: Tune, bad: Bad) -> None:
    """Run the command, and check all that holds for every kind of bad input."""
    if bad.text is not None:
        (tune.folder / "e.yaml").write_text(bad.text)
    kept = bad.given(tune.folder)  # a lock lasts as long as it is kept
    before, entries = left(tune.folder), charges(tune)
    said = tune(*bad.words, code=bad.exit)  # fails for a traceback
    assert EXIT_CODES[bad.code] == bad.exit
    (message,) = said.err.splitlines()
    assert re.fullmatch(rf"error: .* \[{bad.code}\]", message), message
    assert len(re.findall(r" \[[a-z]+(-[a-z]+)*\]", message)) == 1, message
    assert FIX.search(message), f"it does not say what to do: {message}"
    assert bad.says in message, message
    assert "secret" not in message
    if bad.text is not None and not bad.valid:
        lines = bad.text.splitlines()
        number = next((at for at, each in enumerate(lines, start=1) if bad.line in each), 1)
        assert message.startswith(f"error: e.yaml:{number}: "), message
    assert (left(tune.folder), charges(tune)) == (before, entries), "nothing is charged, and nothing is left behind"
    del kept


@pytest.mark.parametrize("kind", FILES)
def test_a_wrong_file_is_one_clear_line(bare: Tune, kind: str) -> None:
    check(bare, FILES[kind])


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_wrong_command_is_one_clear_line(bare: Tune, kind: str) -> None:
    check(bare, COMMANDS[kind])


@pytest.mark.parametrize("kind", SWEEPS)
def test_a_wrong_word_about_a_sweep_is_one_clear_line(charged: Tune, kind: str) -> None:
    check(charged, SWEEPS[kind])


def test_the_list_is_long_and_right_input_passes(bare: Tune) -> None:
    """The control: what is wrong in the list is not the file that all kinds start from."""
    kinds = [*FILES, *COMMANDS, *SWEEPS]
    assert len(set(kinds)) == len(kinds) >= 80
    assert not FIX.search("error: e.yaml:1: schema: must be 1 (got 2). [value-not-allowed]")
    (bare.folder / "e.yaml").write_text(TEXT)
    assert bare("validate", "e.yaml").err == ""
    bare("run", "e.yaml", "--local", "--dry-run")
    assert bare.entries == []
