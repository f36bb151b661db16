"""The program `tune`: its commands, and the conversion of errors to messages and exit codes."""

from __future__ import annotations

import atexit
import codecs
import gc
import io
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from trainables.suggestions import meant, near
from tuner import __version__
from tuner.cli import audit, checks, landscape, plan, search, sweeps
from tuner.cli.budget import tune_budget
from tuner.cli.data import tune_data
from tuner.cli.ray import RAY, ray_command
from tuner.errors import InputError, SweepInterrupted, TunerError, disk_full, is_disk_full
from tuner.passwords import hide_password
from tuner.signals import end_as_ctrl_c, exit_code

__all__ = ["SHORT", "cli", "main", "without_socks_warning"]


class Commands(click.Group):
    """Group of our commands and of the commands in Ray's `tune` script. Only a call of a Ray command imports Ray."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return our commands in the order of the help page. Ray's commands are named in the text below this list."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return our command of this name. Without one, return Ray's command, or None if Ray has none either."""
        if cmd_name in RAY:
            return ray_command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. If it does not exist, the error suggests the command with the most similar name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = near(args[0], [*self.commands, *RAY])
            raise click.UsageError(f"{error.message}{meant(close)}", ctx) from error

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run the program. An expected error becomes one message on standard error and an exit code."""
        from search_spaces.errors import DomainError
        from trainables.errors import TrainableError

        try:
            answer = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:  # it is the help page
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _fail(_usage(error, kwargs.get("args", args[0] if args else None)), InputError.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _fail(SweepInterrupted("interrupted", "interrupted"), exit_code())
        except SweepInterrupted as error:
            _fail(error, exit_code())
        except TunerError as error:
            _fail(error, error.exit_code)
        except (TrainableError, DomainError) as error:
            _fail(error, getattr(error, "exit_code", InputError.exit_code))
        except OSError as error:  # the message of the operating system is the clearest
            where = f"{error.filename}: " if error.filename else ""
            if is_disk_full(error):
                _fail(disk_full(str(error.filename or "")), TunerError.exit_code)
            _fail(TunerError("system-error", f"{where}{error.strerror or error}"), TunerError.exit_code)
        sys.exit(answer if isinstance(answer, int) else 0)


def _fail(error: Exception, code: int) -> None:
    """Print the error and end the program. The message of an interruption does not start with ``error:``."""
    text = hide_password(str(error))  # a library's message may have an address with a password
    click.echo(text if isinstance(error, SweepInterrupted) else f"error: {text}", err=True)
    sys.exit(code)


def _usage(error: click.ClickException, given: Sequence[str] | None) -> InputError:
    """Return click's error in our form: what is wrong, and which command lists the options. `given` are the words."""
    said = error.format_message()
    if isinstance(error, click.NoSuchOption):
        said = f"No such option {error.option_name!r}.{meant(error.possibilities or ())}"
    context = getattr(error, "ctx", None)
    first = [word for word in (sys.argv[1:] if given is None else given)[:1] if word in cli.commands]
    command = " ".join(["tune", *(first if context is None else context.command_path.split()[1:])])
    return InputError("usage", f"{said}{'' if said[-1:] in '.?!' else '.'} Options and arguments: {command} --help")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Ray Tune's own commands are available too: list-trials, list-experiments (lsx), add-note. "
    "The program can also be called as dp-tune or python -m tuner. "
    "Exit codes: 0 done, 1 failed, 2 bad input, 3 refused by the budget, 130 interrupted (143 by SIGTERM, 129 by "
    "SIGHUP). An interrupted sweep can be resumed. "
    "Every error ends with a code in brackets. tune explain CODE explains the error.",
)
@click.version_option(__version__, prog_name="dp-tuner")
def cli() -> None:
    """Hyper-parameter search for differentially private deep learning, within a privacy budget."""


for _command in (  # in the order of the help page
    search.tune_init,
    plan.tune_validate,
    plan.tune_plan,
    tune_data,
    search.tune_run,
    search.tune_resume,
    sweeps.tune_stop,
    sweeps.tune_status,
    sweeps.tune_watch,
    sweeps.tune_show,
    sweeps.tune_rm,
    sweeps.tune_sync,
    tune_budget,
    sweeps.tune_ls,
    sweeps.tune_cp,
    sweeps.tune_report,
    sweeps.tune_compare,
    search.tune_export,
    search.tune_train,
    checks.tune_verify,
    audit.tune_audit,
    landscape.tune_landscape,
    sweeps.tune_ui,
    checks.tune_doctor,
    checks.tune_explain,
):
    cli.add_command(_command)


def without_socks_warning() -> None:
    """Hide the warning of urllib3 that PySocks is not installed, which MLflow's import of requests would show.

    Requests hides it by a filter of its own. That filter is lost if another thread leaves a block of
    `warnings.catch_warnings` meanwhile, and MLflow is imported in a thread.
    """
    warnings.filterwarnings("ignore", message="SOCKS support in urllib3")


def spell_out() -> None:
    """Let terminals and files whose encoding lacks a character get its name or number, and not an error."""

    def spelt(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        missing = error.object[error.start : error.end]
        named = (_NAMES.get(each) or each.encode("ascii", "backslashreplace").decode() for each in missing)
        return "".join(named), error.end

    codecs.register_error("spelt", spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # neither closed nor replaced
            stream.reconfigure(errors="spelt")


_NAMES = {
    "ε": "epsilon",
    "δ": "delta",
    "λ": "lambda",
    "σ": "sigma",
    "√": "sqrt ",
    "±": "+-",
    "·": "*",
    "×": "x",
    "–": "-",
    "−": "-",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "…": "...",
    "█": "#",
    "▓": "=",
    "░": ".",
}
"""What is written where the encoding lacks a character."""

SHORT = ("validate", "plan", "status", "show", "ls", "explain")
"""Commands that end within seconds, and so without the need to collect garbage. It takes a tenth of their time."""


def main() -> None:
    """Run the program: the entry point of `tune`, `dp-tune` and `python -m tuner`."""
    end_as_ctrl_c()
    without_socks_warning()
    spell_out()
    # Before the interpreter ends, it would search all modules for garbage. With torch this takes a third of a second.
    atexit.register(gc.freeze)
    if set(sys.argv[1:2]) & set(SHORT):
        gc.disable()
    cli.main(prog_name="tune")
