//! The suite of the store: every function of it, against each back end.
//!
//! A test is an `async fn` over a fresh [`Store`]; [`suite!`] runs them all for one way of making one. A second back
//! end is a second line at the end of this file.

mod act;
mod deliveries;
mod fixtures;
mod reading;
mod reports;
mod rollouts;
mod sqlite;

use tempfile::TempDir;

use super::Store;
use crate::edge::clock::Clock;

/// A fresh store, and what must live as long as it.
pub(super) struct Fresh {
    pub(super) store: Store,
    pub(super) folder: TempDir,
}

async fn fresh_sqlite() -> Fresh {
    let folder = TempDir::new().unwrap();
    let store = Store::open(&folder.path().join("state/meshplan.db"), Clock::default())
        .await
        .unwrap();
    Fresh { store, folder }
}

macro_rules! suite {
    ($backend:ident, $fresh:path, { $($room:ident: $($test:ident)*;)* }) => {
        mod $backend {
            $(mod $room {
                $(#[tokio::test]
                async fn $test() {
                    $crate::edge::store::suite::$room::$test($fresh().await).await;
                })*
            })*
        }
    };
}

suite!(on_sqlite, crate::edge::store::suite::fresh_sqlite, {
    act:
        what_a_pass_stored_is_what_the_next_one_sees
        an_act_that_was_decided_on_old_numbers_stores_nothing
        a_number_is_never_used_twice_with_other_bytes
        orders_and_assignments_of_many_nodes_are_all_stored
        a_block_and_its_queued_note_are_one_transaction
        a_pass_that_is_dropped_half_way_leaves_all_or_nothing
        an_answer_wakes_who_waits_for_it
        what_is_lifted_or_taken_away_is_gone
        assignments_in_memory_are_those_of_the_database_whoever_wrote_them
        after_an_act_that_was_not_stored_the_assignments_are_read_again;
    deliveries:
        it_comes_back_as_it_was_written_by_whoever_reads_it
        what_changes_on_one_machine_is_one_part
        an_act_that_was_not_stored_leaves_no_part_of_it_in_memory
        a_document_of_before_the_parts_loses_nothing_when_it_is_written_again
        what_may_leave_its_branch_is_what_nobody_has_walked;
    reading:
        a_session_finds_heads_leaves_and_declarations_as_they_were_signed
        a_key_of_a_record_that_left_the_list_opens_nothing
        the_records_of_the_newest_heads_are_kept
        a_timestamp_only_goes_forward
        a_delivery_goes_by_its_id_its_first_digits_and_its_name
        a_request_about_a_final_delivery_brings_it_into_the_snapshot
        a_delivery_that_is_not_back_everywhere_is_in_the_snapshot_until_it_is
        something_is_open_while_a_delivery_is_not_final_or_a_request_has_no_answer
        an_invitation_is_used_once_and_by_the_same_one_again
        a_webhook_is_stored_once_and_open_until_a_pass_has_looked
        an_outbox_row_is_done_once_and_failed_once_for_each_attempt
        what_is_remembered_under_a_name_comes_back;
    reports:
        an_older_report_never_replaces_a_newer_one
        the_newest_look_stays_beside_newer_reports
        the_same_report_again_is_a_duplicate_and_other_bytes_a_conflict
        two_hundred_reports_are_kept_of_each_node
        a_node_whose_newest_order_went_back_is_told_until_it_was_given_once_more
        a_node_whose_epoch_went_back_is_told_while_it_stands_until_it_was_given_once_more
        what_is_heard_in_memory_is_what_the_database_has
        what_one_node_says_in_one_batch_is_taken_in_its_order
        no_report_of_a_burst_is_lost_while_passes_read_and_write;
    rollouts:
        a_delivery_that_goes_out_again_is_another_rollout
        only_a_change_of_status_is_taken_down_and_an_arrival_by_the_nodes_own_clock
        archives_are_packed_kept_up_to_a_number_and_take_in_what_arrives_late
        events_are_numbered_in_order_stored_with_their_act_and_wake_who_follows
        looks_at_rollouts_that_are_not_over_or_all_put_away_write_nothing;
});
