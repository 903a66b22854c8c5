//! What every store promises, as clauses: one list, run on all of them, none skipped.
//!
//! A clause is a plain async function over a [`Ground`], on which it makes the stores that it needs.
//! `store_clauses!` names them all; the tests call it once per kind of store.
// A clause that does not hold must panic, and says where.
#![allow(clippy::unwrap_used, missing_docs)]

pub mod ground;
pub mod keys;
pub mod attempts;
pub mod races;
pub mod queue;
pub mod lists;
pub mod retention;
pub mod certificates;
pub mod model;

pub use ground::{Ground, Kind};

/// Hands the list of all clauses, `module::name`, to the macro `$each`.
#[macro_export]
macro_rules! store_clauses {
    ($each:ident) => {
        $each! {
            keys::r1_a_key_names_one_job;
            keys::r1_owners_do_not_share_keys;
            keys::r1_many_posts_of_one_key_at_once_make_one_job;
            keys::r1_keys_are_compared_byte_by_byte;
            keys::r2_the_same_key_with_another_input_is_refused;
            keys::r2_the_same_key_with_another_input_is_refused_in_every_state;
            keys::r2_another_version_of_the_fingerprint_is_another_intent;
            keys::conflicts_beyond_a_hundred_are_refused_and_not_noted;
            keys::r3_a_refused_intent_changes_nothing;
            keys::duplicates_are_counted_and_noted_once;
            keys::joined_duplicates_are_counted_together;
            keys::a_key_cancelled_before_its_post_leaves_a_cancelled_job;
            keys::a_post_after_its_cancel_fills_the_intent_in_once;
            keys::cancel_by_key_closes_the_job_and_repeats_itself;
            keys::an_id_that_is_taken_is_refused_and_nothing_is_written;
            attempts::a_submit_with_a_slot_starts_in_the_same_commit;
            attempts::a_submit_that_is_not_due_yet_waits_in_line;
            attempts::r4_no_attempt_starts_beside_an_open_one;
            attempts::r4_a_racing_task_gets_a_second_attempt_beside_a_running_one_only;
            attempts::r5_silence_is_unknown_and_blocks;
            attempts::r6_the_first_to_finish_wins_and_repeats_itself;
            attempts::r7_the_loser_is_dropped_and_noted_without_its_result;
            attempts::r8_a_late_answer_to_an_ended_attempt_is_only_noted;
            attempts::r9_no_attempt_goes_elsewhere_without_a_certificate;
            attempts::every_state_of_an_attempt_is_kept_whole;
            attempts::a_failed_job_says_why_and_can_be_reopened;
            attempts::a_resolution_says_whose_word_it_was;
            attempts::an_event_for_no_job_and_for_no_attempt_changes_nothing;
            attempts::a_hundred_attempts_are_kept_in_order;
            races::r6_of_two_completions_of_which_the_first_is_held_open_one_wins;
            races::r4_of_two_starts_of_which_the_first_is_held_open_one_happens;
            races::a_cancel_that_meets_a_held_completion_comes_second;
            races::a_bad_command_never_fails_its_neighbours;
            queue::a_claim_serves_by_priority_then_due_time_then_age;
            queue::a_claim_takes_what_it_has_slots_for_and_says_what_is_left;
            queue::a_claim_takes_nothing_that_is_not_due_and_says_when;
            queue::a_claim_leaves_other_providers_alone;
            queue::a_job_that_may_not_start_does_not_hold_up_the_line;
            queue::two_claims_never_get_the_same_job;
            queue::the_reaper_turns_attempts_of_other_nodes_unknown;
            queue::the_reaper_works_in_bounded_batches;
            queue::deadlines_of_queued_jobs_come_earliest_first;
            queue::awaited_providers_are_those_of_queued_jobs;
            lists::jobs_are_listed_newest_first_in_pages;
            lists::jobs_are_filtered_by_everything_a_filter_names;
            lists::a_list_of_a_large_owner_is_a_list_all_the_same;
            lists::attempts_are_listed_newest_first_in_pages;
            lists::attempts_are_filtered_by_everything_a_filter_names;
            lists::unknown_attempts_come_longest_first;
            lists::a_job_is_found_by_its_attempts;
            lists::texts_are_kept_byte_by_byte;
            lists::the_census_counts_what_is_open;
            retention::r12_a_pruned_job_leaves_its_key_which_never_runs_again;
            retention::r12_an_open_or_unknown_job_is_never_pruned;
            retention::jobs_are_pruned_by_age_in_bounded_steps;
            retention::what_changed_since_a_glance_is_read_at_once;
            certificates::one_run_of_a_contract_at_a_provider_goes_on_at_a_time;
            certificates::a_pass_issues_a_certificate_and_is_told_once;
            certificates::a_failed_run_takes_back_what_the_pair_had;
            certificates::a_run_that_lost_its_lease_has_lost_its_say;
            certificates::a_certificate_is_suspended_once_and_noted_where_it_showed;
            certificates::a_suspension_takes_back_what_was_issued_before_for_the_same_contract;
            certificates::of_the_certificates_that_hold_the_newest_of_each_contract_is_named;
            certificates::certificates_go_when_they_ended_long_ago;
            certificates::r9_a_claim_starts_elsewhere_only_what_stands_on_a_certificate_that_holds;
            certificates::r9_a_node_that_is_configured_otherwise_starts_nothing_on_a_certificate;
            certificates::r9_a_start_loses_a_certificate_that_does_not_hold;
            certificates::r9_a_start_at_the_first_provider_stands_on_nothing;
            certificates::r9_a_submit_that_goes_elsewhere_waits_for_a_claim;
            certificates::r9_what_is_unproved_is_planned_anew;
            certificates::r9_a_suspension_that_meets_a_held_start_comes_second;
            certificates::r9_a_suspension_that_meets_a_held_claim_comes_second;
            lists::work_is_counted;
            lists::a_closed_store_says_so;
        }
    };
}
