"""Faults around a search: what a cluster would waste, and what others could read."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

_FACTS = "tests/cli/test_cluster_facts.py"

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="checkpoint-of-any-search",
        breaks="a trial of a user's Tuner continues the checkpoint of a search with a larger claim",
        file="tuner/ray_users/trainable.py",
        old="if {name: state.get(name) for name in self._search} != self._search:",
        new="if not state:",
        test="tests/ray_users/test_trainable.py::test_a_checkpoint_of_another_search_or_ledger_is_refused_also_by_rays_"
        "name",
    ),
    Fault(
        name="checkpoint-that-the-ledger-does-not-know",
        breaks="a user's Tuner continues with an older copy of the ledger, which lacks charges",
        file="tuner/ray_users/trainable.py",
        old='        self._charge.require_charged(state["runs"])\n',
        new="",
        test="tests/ray_users/test_trainable.py::test_an_older_copy_of_the_ledger_is_refused_with_a_checkpoint_that_it_"
        "does_not_know",
    ),
    Fault(
        name="checkpoints-not-seen-back",
        breaks="a machine that writes where the driver does not look spends the whole budget on models that are lost",
        file="tuner/sweep/cluster_facts.py",
        old="    elif not _seen(expected.folder",
        new="    elif False and not _seen(expected.folder",
        test=f"{_FACTS}::test_each_fault_is_one_problem",
    ),
    Fault(
        name="report-without-checkpoint",
        breaks="a search goes on although the driver does not see the checkpoint of a report",
        file="tuner/executors/ray/runner.py",
        old="            require_checkpoint(self.setup.folder",
        new="            False and require_checkpoint(self.setup.folder",
        test="tests/executors/test_ray.py::test_a_report_whose_checkpoint_the_driver_does_not_see_stops_the_search",
    ),
    Fault(
        name="open-cluster-admitted",
        breaks="whoever reaches the cluster's ports reads the key of the noise from the checkpoints",
        file="tuner/sweep/cluster_facts.py",
        old='    if facts["token"] != "disabled":',
        new='    if facts["token"]:',
        test=f"{_FACTS}::test_each_fault_is_one_problem",
    ),
    Fault(
        name="checksum-of-records-without-a-salt",
        breaks="a machine's answer about private records is a checksum, which helps to guess them",
        file="tuner/executors/ray/machine.py",
        old='_digest([Path(path)], question["salt"])',
        new="_digest([Path(path)])",
        test=f"{_FACTS}::test_data_are_compared_without_a_checksum_that_could_be_kept",
    ),
    Fault(
        name="ray-reached-from-outside",
        breaks="other machines can reach the Ray of a search on one machine",
        file="tuner/executors/ray/session.py",
        old='(ray_constants, "ENABLE_RAY_CLUSTER", False)',
        new='(ray_constants, "ENABLE_RAY_CLUSTER", True)',
        test="tests/executors/test_ray_doors.py::test_on_one_machine_ray_listens_on_the_loopback_alone_and_asks_for_a_token",
    ),
    Fault(
        name="ray-without-a-token",
        breaks="other accounts of the machine can enter the Ray of a search",
        file="tuner/executors/ray/session.py",
        old='"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN"',
        new='"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN"',
        test="tests/executors/test_ray_doors.py::test_on_one_machine_ray_listens_on_the_loopback_alone_and_asks_for_a_token",
    ),
    Fault(
        name="tracking-password-kept",
        breaks="a password of the tracking server is stored in sweeps, reports and exports",
        file="tuner/recorder/mlflow_store.py",
        old="    if has_password(uri):",
        new="    if False and has_password(uri):",
        test="tests/cli/test_bad_inputs.py::test_a_wrong_file_is_one_clear_line",
    ),
    Fault(
        name="study-for-everybody",
        breaks="every account can read the study's journal, with the times of reports",
        file="tuner/study/storage.py",
        old="    create_private(journal)",
        new="    pass",
        test="tests/cli/test_security.py::test_what_a_sweep_keeps_is_for_its_account_alone",
    ),
)
