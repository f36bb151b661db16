"""Commands that check and explain: verify, doctor, explain."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tuner.cli.options import address_option, data_option, json_option, print_answer, print_json, storage_option

__all__ = ["tune_doctor", "tune_explain", "tune_verify"]


@click.command("verify", short_help="Check a privacy card against its ledger.")
@click.argument("card", type=click.Path(path_type=Path))
@click.option(
    "--ledger",
    metavar="URL",
    envvar="DP_TUNER_LEDGER",
    help="Address of the card's ledger, for example sqlite:////srv/ledger.db. Default: the ledger in the experiment "
    "file next to the card.",
)
@json_option
def tune_verify(card: Path, ledger: str | None, as_json: bool) -> None:
    """Recompute a privacy card from its ledger with independent accountants, and print the answer with its reasons.

    The answer is yes if all checks passed, and no if a check failed. Otherwise it is "not confirmed": nothing
    contradicts the card, but some parts could not be confirmed or judged. Exit code 0 means yes.
    """
    from tuner.export.verification import verify_card

    values, text = verify_card(card, ledger)
    print_answer(values, text, as_json=as_json)
    sys.exit(0 if values["ok"] else 1)


@click.command("doctor", short_help="Check the installation, or the machines of a cluster, and suggest fixes.")
@click.argument("file", required=False)
@data_option
@storage_option
@address_option
@json_option
@click.option("--fix", is_flag=True, help="Change the scripts `tune` and `dp-tune` so that they start this program.")
@click.option(
    "--drill",
    is_flag=True,
    help="Test the recovery: kill processes of a small public search, resume it, and check its charges.",
)
def tune_doctor(
    file: str | None, data_dir: str | None, storage: str, address: str | None, as_json: bool, fix: bool, drill: bool
) -> None:
    """Check the installation: scripts, packages, dependencies, data sets, tokens and open ports. Suggest fixes.

    With --address, check every machine of a Ray cluster instead: versions, code, shared storage, memory, disk, clock
    and token. With FILE too, also check the data, GPUs and own model of this experiment. `tune run` checks the same.

    With --drill, run a small search on public digits, with a ledger of its own. The drill kills a worker and the
    driver, and resumes the search. Then it checks that the charged steps, the drawn noise and the entries in MLflow
    agree. With --address too, the drill runs on that cluster.
    """
    from tuner.doctor import diagnose, diagnosis_text, fix_script

    if drill:
        if file is not None or fix:
            raise click.UsageError("--drill runs a search of its own. Leave out FILE and --fix.")
        _drill(address, storage, data_dir, as_json=as_json)
        return
    if file is not None and address is None:
        raise click.UsageError("FILE is only checked on the machines of a cluster. Name the cluster with --address.")
    if address is not None:
        _doctor_of_cluster(address, file, data_dir, storage, as_json=as_json)
        return
    if fix:
        for path in fix_script():
            click.echo(f"wrote {path}", err=as_json)
    found = diagnose(data_dir)
    print_answer({"findings": [vars(each) for each in found]}, diagnosis_text(found), as_json=as_json)
    sys.exit(0 if all(each.ok for each in found) else 1)


def _drill(address: str | None, storage: str, data_dir: str | None, *, as_json: bool) -> None:
    from tuner.drill.drill import run_drill

    found = run_drill(
        address=address, storage=storage, data_dir=data_dir, say=lambda line: click.echo(line, err=as_json)
    )
    print_answer(found.values(), found.text(), as_json=as_json)
    sys.exit(1 if found.problems else 0)


def _doctor_of_cluster(address: str, file: str | None, data_dir: str | None, storage: str, *, as_json: bool) -> None:
    from tuner.sweep.cluster_check import check_cluster
    from tuner.sweep.preflight import check_model, prepare

    prepared = None if file is None else prepare(file, (), data_dir=data_dir)
    if prepared is not None:
        check_model(prepared)  # so that the code of an own model is found
    checked = check_cluster(address, prepared, storage=storage if prepared is None else prepared.experiment.storage)
    problems = [vars(problem) for problem in checked.problems]
    values = {"machines": checked.machines, "problems": problems, "warnings": checked.warnings}
    lines = [checked.table, *checked.warnings, *map(str, checked.problems)]
    print_answer(values, "\n".join(lines), as_json=as_json)
    sys.exit(checked.exit_code)


@click.command("explain", short_help="Explain an error code, or list all codes.")
@click.argument("code", required=False)
@json_option
def tune_explain(code: str | None, as_json: bool) -> None:
    """Explain the error CODE at the end of an error message, and its exit code. Without CODE, list all codes."""
    from tuner.error_codes import code_list, explain

    values = code_list() if code is None else explain(code)
    if as_json:
        print_json(values)
    elif code is None:
        for name, sentence in values.items():
            click.echo(f"{name:<28} {sentence}")
    else:
        click.echo(f"{values['code']} (exit code {values['exit_code']}: {values['family']})\n{values['explanation']}")
