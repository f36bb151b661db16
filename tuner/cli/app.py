"""The commands, and no logic: each parses its words, calls one function, prints its answer and sets its exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import click

from tuner import __version__
from tuner.cli.budget import budget, json_option, say_json
from tuner.cli.landscape import landscape
from tuner.cli.ray import RAY, ray_command
from tuner.errors import BudgetRefusedError, InputError, SweepInterrupted, TunerError

__all__ = ["cli", "main"]


class Commands(click.Group):
    """Our commands, and those of Ray's own `tune` script, which are imported only when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Ours in the order of their writing; Ray's stand in the epilogue."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Ours by name, else Ray's."""
        if cmd_name in RAY:
            return ray_command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run the program; every expected error is one message on standard error and its family's exit code."""
        from search_spaces.errors import DomainError
        from trainables.errors import TrainableError

        try:
            answer = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            code, message = SweepInterrupted.exit_code, "interrupted"
        except TunerError as error:
            code, message = error.exit_code, str(error)
        except (TrainableError, DomainError) as error:
            code, message = InputError.exit_code, str(error)
        except OSError as error:  # a folder that is full, gone or closed to us: the system's words say it best
            where = f"{error.filename}: " if error.filename else ""
            code, message = TunerError.exit_code, f"{where}{error.strerror or error}"
        else:
            sys.exit(answer if isinstance(answer, int) else 0)
        # An interruption is the user's wish, and can be gone on with.
        click.echo(message if code == SweepInterrupted.exit_code else f"error: {message}", err=True)
        sys.exit(code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is none of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], [*self.commands, *RAY], n=1)
            if close:
                raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from error
            raise


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Ray Tune's own commands are here too: list-trials, list-experiments (lsx), add-note. "
    "The same program is called dp-tune and python -m tuner. "
    "Exit codes: 0 done, 1 failed, 2 bad input, 3 refused by the budget, 130 interrupted (resumable).",
)
@click.version_option(__version__, prog_name="dp-tuner")
def cli() -> None:
    """Hyper-parameter search for private deep learning, with a privacy budget that is true."""


_file = click.argument("file", type=str)
_set = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one value: search.trials=4. Repeatable.",
)
_data = click.option(
    "--data-dir", type=click.Path(), envvar="DP_TUNER_DATA", help="Folder with the data sets (default ./data)."
)
_json = json_option
_storage = click.option(
    "--storage",
    type=click.Path(),
    default="runs",
    envvar="DP_TUNER_STORAGE",
    show_default=True,
    help="Folder of sweeps.",
)
_local = click.option("--local", is_flag=True, help="In this process, one trial at a time, without Ray.")
_address = click.option("--address", default=None, help="A running Ray cluster (default: this machine alone).")
_quiet = click.option("--quiet", is_flag=True, help="Plain lines, and only the ones that matter.")


@cli.command()
@click.argument("path", type=click.Path(dir_okay=False), default="experiment.yaml")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def init(path: str, force: bool) -> None:
    """Write a commented experiment file to start from."""
    from tuner.experiment.shipped_files import write_template

    write_template(Path(path), force=force)
    click.echo(f"wrote {path}. Next: tune plan {path}")


@cli.command()
@click.argument("files", nargs=-1, required=True)
@_set
def validate(files: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Check experiment files; all problems at once, nothing is run."""
    from search_spaces.errors import DomainError
    from trainables.errors import TrainableError
    from tuner.runner.planning import validate_file

    wrong = 0
    for name in files:
        try:
            path, warnings = validate_file(name, overrides)
        except (TunerError, TrainableError, DomainError) as error:
            click.echo(f"error: {error}", err=True)
            wrong += 1
            continue
        click.echo(f"{path}: valid")
        for warning in warnings:
            click.echo(f"{path}: warning: {warning}", err=True)
    sys.exit(InputError.exit_code if wrong else 0)


@cli.command(short_help="What a search will cost; nothing is run.")
@_file
@_set
@_data
@_json
@click.option("--timing/--no-timing", default=True, help="Guess the wall time by a few steps on random numbers.")
def plan(file: str, overrides: tuple[str, ...], data_dir: str | None, as_json: bool, timing: bool) -> None:
    """What a search will cost: trials, steps, ε of one trial and of all, noise, hours. Nothing is run."""
    from tuner.runner.planning import plan_command

    values = plan_command(file, overrides, data_dir=data_dir, timing=timing, say=None if as_json else click.echo)
    if as_json:
        say_json(values)
    if values["refused"]:
        raise BudgetRefusedError(str(values["refused"]))


@cli.command()
@_file
@_set
@_data
@_local
@_address
@_quiet
@_json
@click.option("--resume", is_flag=True, help="Go on with the newest sweep of this experiment.")
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
def run(
    file: str,
    overrides: tuple[str, ...],
    data_dir: str | None,
    local: bool,
    address: str | None,
    quiet: bool,
    as_json: bool,
    resume: bool,
    dry_run: bool,
) -> None:
    """Run a search. FILE is a path, else the name of a shipped experiment (see `ls`)."""
    from tuner.runner.commands import RunOptions, run_file

    options = RunOptions(data_dir=data_dir, local=local, address=address, quiet=quiet, as_json=as_json)
    sys.exit(run_file(file, overrides, options, resume=resume, dry_run=dry_run))


@cli.command("resume")
@click.argument("name")
@_set
@_data
@_local
@_address
@_quiet
@_json
@_storage
def resume_command(
    name: str,
    overrides: tuple[str, ...],
    data_dir: str | None,
    local: bool,
    address: str | None,
    quiet: bool,
    as_json: bool,
    storage: str,
) -> None:
    """Go on with a sweep; a finished one only with more trials.

    Noise, data and cap stay as they are, so more trials (--set search.trials=N) can only use what the cap still holds:
    with `noise_multiplier: auto` that is what pruning freed.
    """
    from tuner.runner.commands import RunOptions, resume_sweep
    from tuner.sweep.folder import find

    options = RunOptions(data_dir=data_dir, local=local, address=address, quiet=quiet, as_json=as_json)
    sys.exit(resume_sweep(find(Path(storage), name), overrides, options))


@cli.command(short_help="Ask a running sweep to stop; what it has is kept.")
@click.argument("name")
@_storage
def stop(name: str, storage: str) -> None:
    """Ask a running sweep to stop: running trials end, no new one starts, the rest of the budget is kept.

    A sealed search then releases nothing and stays charged; `tune resume` goes on with it.
    """
    from tuner.report.status import request_stop
    from tuner.sweep.folder import find

    click.echo(request_stop(find(Path(storage), name)))


@cli.command()
@click.argument("name", required=False)
@_storage
@_json
def status(name: str | None, storage: str, as_json: bool) -> None:
    """How sweeps stand: state, trials, best score, budget."""
    from tuner.report.status import status_text, status_values

    values = status_values(Path(storage), name)
    say_json(values) if as_json else click.echo(status_text(values))


@cli.command()
@click.argument("name")
@_storage
@click.option("--every", type=click.FloatRange(min=0.2), default=2.0, show_default=True, help="Seconds between looks.")
def watch(name: str, storage: str, every: float) -> None:
    """Follow a sweep that runs elsewhere, until it ends."""
    from tuner.report.status import follow
    from tuner.sweep.folder import find

    follow(find(Path(storage), name), every=every)


@cli.command(short_help="The trials of a sweep, or one of them with its scores.")
@click.argument("name")
@click.argument("trial", required=False)
@_storage
@_json
def show(name: str, trial: str | None, storage: str, as_json: bool) -> None:
    """All trials of a sweep, or one TRIAL (its number or id) with its scores by step; of a sealed one its winner."""
    from tuner.report.status import trial_text, trial_values
    from tuner.sweep.folder import find

    values = trial_values(find(Path(storage), name), trial)
    say_json(values) if as_json else click.echo(trial_text(values))


@cli.command(short_help="Send to MLflow what it has not got yet.")
@click.argument("name")
@_storage
@click.option("--uri", default=None, help="Another tracking address than the sweep's own; all records are sent there.")
def sync(name: str, storage: str, uri: str | None) -> None:
    """Send to MLflow what a sweep has recorded and the tracking server has not yet acknowledged."""
    from tuner.report.status import sync_tracking
    from tuner.sweep.folder import find

    click.echo(sync_tracking(find(Path(storage), name), uri))


budget.short_help = "What every data set in the ledger has spent in all."
cli.add_command(budget)


@cli.command("ls")
@click.argument("path", required=False)
@_storage
@_json
@click.option("--shipped", is_flag=True, help="Only the experiments that come with the program.")
@click.pass_context
def ls_command(ctx: click.Context, path: str | None, storage: str, as_json: bool, shipped: bool) -> None:
    """Shipped experiments and sweeps. With a PATH: Ray Tune's `ls` of that folder."""
    if path is not None:
        ctx.invoke(ray_command("ls"), experiment_path=str(Path(path).resolve()))
        return
    from tuner.experiment.shipped_files import shipped_files, shipped_text
    from tuner.report.status import status_text, status_values

    if as_json:
        sweeps = {} if shipped else status_values(Path(storage), None)
        say_json({"shipped": {name: str(path) for name, path in shipped_files().items()}, **sweeps})
        return
    click.echo(shipped_text())
    if not shipped:
        click.echo()
        click.echo(status_text(status_values(Path(storage), None)))


@cli.command()
@click.argument("name")
@click.argument("destination", type=click.Path(), default=".")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def cp(name: str, destination: str, force: bool) -> None:
    """Copy a shipped experiment file, to make it your own."""
    from tuner.experiment.shipped_files import copy_shipped

    click.echo(f"wrote {copy_shipped(name, Path(destination), force=force)}")


@cli.command(short_help="One HTML page with the trials, the plots and the budget.")
@click.argument("name")
@click.option("--out", type=click.Path(), default=None, help="The page to write (default: report.html in the sweep).")
@_storage
def report(name: str, out: str | None, storage: str) -> None:
    """One self-contained HTML page with the trials, the plots and the budget."""
    from tuner.report.status import write_report
    from tuner.sweep.folder import find

    click.echo(f"wrote {write_report(find(Path(storage), name), Path(out) if out else None)}")


@cli.command(short_help="The best trial's model, its configuration and its privacy card.")
@click.argument("name")
@click.option("--out", type=click.Path(), default=None, help="Folder to write (default: exports/NAME).")
@click.option(
    "--by",
    type=click.Choice(["curve", "score"]),
    default=None,
    help="What chooses the trial (default: the score). The curve is that of a unimodal search, while one top stands.",
)
@_storage
@_data
@_json
def export(
    name: str, out: str | None, by: Literal["curve", "score"] | None, storage: str, data_dir: str | None, as_json: bool
) -> None:
    """The best trial's model, its configuration as a file that trains again, and its privacy card."""
    from tuner.runner.commands import RunOptions, export_command
    from tuner.sweep.folder import find

    options = RunOptions(data_dir=data_dir, as_json=as_json)
    sys.exit(export_command(find(Path(storage), name), Path(out) if out else None, options, by=by))


@cli.command(short_help="Train one exported configuration, charged like any run.")
@_file
@_set
@_data
@_local
@_quiet
@_json
@click.option("--out", type=click.Path(), default=None, help="Folder to write (default: exports/NAME).")
def train(
    file: str,
    overrides: tuple[str, ...],
    data_dir: str | None,
    local: bool,
    quiet: bool,
    as_json: bool,
    out: str | None,
) -> None:
    """Train one exported configuration: charged like any run, with model and card at the end."""
    from tuner.runner.commands import RunOptions, train_file

    options = RunOptions(data_dir=data_dir, local=local, address=None, quiet=quiet, as_json=as_json)
    sys.exit(train_file(file, overrides, options, out=Path(out) if out else None))


@cli.command(short_help="Recompute a privacy card from its ledger: yes or no.")
@click.argument("card", type=click.Path(exists=True, dir_okay=False))
@click.option("--ledger", default=None, envvar="DP_TUNER_LEDGER", help="Its ledger (default: of the file beside it).")
@_json
def verify(card: str, ledger: str | None, as_json: bool) -> None:
    """Recompute a privacy card from its ledger, by other accountants, and say yes or no, and why."""
    from tuner.export.verification import verify_card

    report = verify_card(Path(card), ledger)
    say_json(report.values) if as_json else click.echo(report.text)
    sys.exit(0 if report.ok else 1)


landscape.short_help = "How flat the loss around exported models is."
cli.add_command(landscape)


@cli.command()
@click.option("--uri", default="sqlite:///runs/mlflow.db", show_default=True, help="Tracking store to show.")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
def ui(uri: str, port: int) -> None:
    """Open MLflow's pages on this machine (Ctrl-C ends them)."""
    from tuner.report.status import serve_ui

    sys.exit(serve_ui(uri, port=port))


@cli.command(short_help="Who owns `tune`, what is missing, and what to do.")
@_data
@_json
@click.option("--fix", is_flag=True, help="Take the names `tune` and `dp-tune` back for this program.")
def doctor(data_dir: str | None, as_json: bool, fix: bool) -> None:
    """Who owns `tune` and every package, what is missing, and what to do about it."""
    from tuner.doctor import diagnose, findings_text, fix_script

    if fix:
        for path in fix_script():
            click.echo(f"wrote {path}", err=as_json)
    findings = diagnose(data_dir)
    say_json({"findings": [vars(finding) for finding in findings]}) if as_json else click.echo(findings_text(findings))
    sys.exit(0 if all(finding.ok for finding in findings) else 1)


def main() -> None:
    """Run the program; what `tune`, `dp-tune` and `python -m tuner` call."""
    cli.main(prog_name="tune")
