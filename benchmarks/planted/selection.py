"""Faults in sealed searches: the price of selection, the law of the number of runs, and leaks of that number."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="selection-pays-one-share-less",
        breaks="the best of many runs pays η shares of a run's loss and not η + 1",
        file="tuner/privacy/accountant/selection.py",
        old="shift = log(high / low) + (shape + 1) * log_r",
        new="shift = log(high / low) + shape * log_r",
        test="tests/privacy/accountant/test_selection.py::test_the_shift_is_the_proven_formula_at_the_best_epsilon_one",
    ),
    Fault(
        name="no-delta-in-the-price",
        breaks="the price of selection leaves out the δ of one run",
        file="tuner/privacy/accountant/selection.py",
        old="log1p((1 - gamma) / gamma * low * delta_of(first) * exp(-first))",
        new="log1p(0.0 * (1 - gamma) / gamma * low * delta_of(first) * exp(-first))",
        test="tests/privacy/accountant/test_brute_force.py::test_realised_delta_never_exceeds_the_claim_in_any_mode",
    ),
    Fault(
        name="learning-sampler-is-free",
        breaks="the price of selection leaves out that the sampler follows the scores",
        file="tuner/privacy/accountant/selection.py",
        old="shift = log(high / low) + (shape + 1)",
        new="shift = (shape + 1)",
        test="tests/privacy/accountant/test_selection.py::test_a_sampler_that_learns_pays_for_its_ratio",
    ),
    Fault(
        name="cut-of-the-law-is-free",
        breaks="δ does not cover the cut of the number of runs",
        file="tuner/privacy/accountant/selection.py",
        old="return (1 + exp(min(epsilon, 700.0))) * law.tail(at_most)",
        new="return 0.0 * law.tail(at_most)",
        test="tests/privacy/accountant/test_selection.py::test_the_cut_costs_what_it_moves",
    ),
    Fault(
        name="one-direction-of-adjacency",
        breaks="the profile of a run covers a removed record and not an added one",
        file="tuner/privacy/accountant/selection.py",
        old="for one in (distribution.remove, distribution.add):",
        new="for one in (distribution.add,):",
        test="tests/privacy/accountant/test_selection.py"
        "::test_profile_is_the_larger_direction_and_agrees_with_the_librarys_on_a_finer_grid",
    ),
    Fault(
        name="number-of-runs-of-another-law",
        breaks="the number of runs is drawn from another law than the one that is priced",
        file="tuner/privacy/accountant/run_laws.py",
        old="place = Decimal(bits(_BITS)) / Decimal(2**_BITS)",
        new="place = (Decimal(bits(_BITS)) / Decimal(2**_BITS)) ** 2",
        test="tests/privacy/accountant/test_run_laws.py::test_draws_follow_the_law",
    ),
    Fault(
        name="number-of-runs-in-the-status",
        breaks="the status file of a sealed search shows how many runs there are",
        file="tuner/runner/selection.py",
        old='detail="", pid=None)',
        new='detail="", pid=None, runs=len([*sweep.trials.iterdir()]))',
        test="tests/cli/test_selection.py::test_nothing_that_can_be_seen_tells_how_many_runs_there_were",
    ),
    Fault(
        name="number-of-runs-drawn-again",
        breaks="a sealed search that lost its number of runs draws another one after results were seen",
        file="tuner/sweep/sealed.py",
        old="        if begun:\n            raise TunerError(",
        new="        if begun and not sweep.root.exists():\n            raise TunerError(",
        test="tests/cli/test_selection_resume.py::test_a_number_that_is_lost_is_never_drawn_again",
    ),
    Fault(
        name="ties-broken-by-order",
        breaks="the first run wins a tie, which reveals the order of the runs",
        file="tuner/sweep/sealed.py",
        old="best_trial(trials, mode=mode, tie=tie)",
        new="best_trial(trials, mode=mode)",
        test="tests/cli/test_selection.py::test_a_tie_is_broken_by_a_secret_and_not_by_the_order",
    ),
    Fault(
        name="sealed-entries-tell-the-hour",
        breaks="the time of an entry at the end of a sealed search reveals how long its runs took",
        file="tuner/privacy/ledger/chain.py",
        old="        return search.opened_time",
        new="        return datetime.now(UTC).isoformat()",
        test="tests/privacy/ledger/test_ledger.py::test_a_sealed_search_is_charged_once_and_as_a_whole",
    ),
    Fault(
        name="sealed-search-begun-twice",
        breaks="a sealed search that is charged once makes its runs a second time",
        file="tuner/privacy/ledger/search_rules.py",
        old='if not whole or search.status != "open" or search.begun:',
        new="if not whole:",
        test="tests/privacy/ledger/test_ledger.py::test_a_sealed_search_is_charged_once_and_as_a_whole",
    ),
    Fault(
        name="sealed-search-draws-from-a-public-seed",
        breaks="candidates of a sealed search come from a known seed",
        file="tuner/study/samplers/random.py",
        old="PriorSampler(random.SystemRandom()) if request.secret else RandomSampler",
        new="RandomSampler",
        test="tests/study/test_prior.py::test_a_secret_sampler_has_no_seed",
    ),
)
