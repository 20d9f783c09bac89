//! Every tier 1 case that the project has set itself, and where it is shown. `tests/layering.rs` looks each of them up, so
//! that a case that is renamed, moved or removed is noticed.

/// Where a case is shown.
#[derive(Debug)]
pub enum Tested {
    /// A case of this id in the adversarial suite.
    Suite,
    /// Tests elsewhere: `tests/FILE.rs::name`.
    By(&'static [&'static str]),
}

use Tested::{By, Suite};

/// The cases by id.
pub const TIER_1: &[(&str, Tested)] = &[
    ("P01", Suite),
    ("P02", Suite),
    ("P03", Suite),
    ("P04", Suite),
    ("P06", Suite),
    ("P07", Suite),
    ("P08", Suite),
    ("P09", Suite),
    ("P13", Suite),
    ("P15", Suite),
    (
        "S01",
        By(&[
            "tests/e2e/deaths.rs::s01_a_killed_server_ends_all_its_tasks_and_nothing_is_forgotten",
            "tests/e2e/deaths.rs::s01_a_killed_launcher_ends_all_its_tasks_and_nothing_is_forgotten",
            "tests/e2e/deaths.rs::s01_both_killed_at_once_end_all_tasks_and_nothing_is_forgotten",
            "tests/e2e/deaths.rs::s01_without_the_death_signal_tasks_outlive_their_launcher",
        ]),
    ),
    ("S02", Suite),
    ("S03", Suite),
    (
        "S04",
        By(&[
            "tests/e2e/deaths.rs::s04_while_the_launcher_is_stopped_kernel_limits_hold_and_then_time_is_enforced_and_told",
            "tests/e2e/deaths.rs::s04_while_the_server_is_stopped_the_launcher_enforces_time_and_nothing_is_lost",
        ]),
    ),
    (
        "S06",
        By(&[
            "tests/e2e/restarts.rs::s06_after_a_crash_and_after_an_orderly_stop_everything_is_as_it_was_and_nothing_runs_twice",
        ]),
    ),
    ("S07", Suite),
    ("S10", By(&["tests/e2e/exhaustion.rs::s10_a_full_disk_cuts_output_short_and_nothing_else"])),
    ("S12", By(&["tests/vm/small.rs::small_when_memory_is_used_up_tasks_die_and_the_daemon_lives"])),
    (
        "S14",
        By(&[
            "tests/e2e/shutdown.rs::s14_sigterm_stops_every_task_records_it_and_ends_in_time",
            "tests/e2e/shutdown.rs::s14_while_it_drains_starts_are_unavailable_and_a_second_signal_kills_at_once",
            "tests/e2e/shutdown.rs::s14_an_interrupt_to_the_whole_foreground_group_is_an_orderly_end",
        ]),
    ),
    ("C01", Suite),
    ("C02", Suite),
    ("C03", Suite),
    ("C05", Suite),
    ("C06", Suite),
    ("C07", Suite),
    ("C08", Suite),
    ("C20", Suite),
    ("N01", Suite),
    ("N02", Suite),
    ("N03", Suite),
    ("N05", Suite),
    ("N06", Suite),
    ("N07", Suite),
    ("N11", Suite),
    ("F01", Suite),
    ("F02", Suite),
    ("F03", Suite),
    ("F04", Suite),
    ("F07", Suite),
    ("F08", Suite),
    ("F09", Suite),
    ("F10", Suite),
    ("F14", Suite),
    ("F15", Suite),
    ("F18", Suite),
    ("F20", Suite),
    ("F23", Suite),
    ("K01", Suite),
    ("K02", Suite),
    ("K03", Suite),
    ("K04", Suite),
    ("K07", Suite),
    ("K10", Suite),
    ("K11", Suite),
    ("K21", Suite),
    ("W01", Suite),
    ("W02", Suite),
    ("W09", Suite),
    ("L01", Suite),
    ("L02", Suite),
    ("L05", Suite),
    ("L22", Suite),
    (
        "L08",
        By(&[
            "tests/e2e/api/secrets.rs::l08_what_a_task_is_given_is_in_no_log",
            "tests/e2e/api/secrets.rs::l08_what_a_client_says_forges_no_line",
        ]),
    ),
    ("R01", Suite),
    ("R02", Suite),
    ("R03", Suite),
    ("R04", Suite),
    ("R07", Suite),
    ("R08", Suite),
    ("R09", Suite),
    ("R10", Suite),
    ("R12", Suite),
    ("R13", Suite),
    ("R15", Suite),
    ("R29", Suite),
    (
        "A01",
        By(&["tests/e2e/api/authorization.rs::a01_another_owners_task_is_answered_like_an_unknown_one_to_the_byte"]),
    ),
    ("A04", By(&["tests/e2e/api/handshake.rs::a04_whoever_has_no_sound_certificate_meets_no_handler"])),
    ("A05", By(&["tests/e2e/api/handshake.rs::a05_only_tls_1_3_with_http2_is_spoken"])),
    (
        "A07",
        By(&[
            "tests/e2e/api/token.rs::a07_a_token_is_one_task_when_the_answer_was_lost",
            "tests/e2e/api/token.rs::a07_a_token_is_one_task_over_a_restart_and_a_kill",
        ]),
    ),
    (
        "A08",
        By(&[
            "tests/e2e/api/floods.rs::a08_five_thousand_half_handshakes_keep_nobody_out",
            "tests/e2e/api/floods.rs::a08_strangers_of_few_addresses_keep_nobody_out",
            "tests/e2e/api/floods.rs::a08_pings_and_settings_without_end_are_not_stored",
            "tests/e2e/api/floods.rs::a08_headers_that_never_end_end_the_connection",
            "tests/e2e/api/floods.rs::a08_streams_that_are_reset_as_soon_as_they_are_opened_end_the_connection",
        ]),
    ),
    ("A09", By(&["tests/e2e/api/readers.rs::a09_a_reader_that_never_reads_stops_nobody"])),
    (
        "A10",
        By(&[
            "tests/e2e/api/readers.rs::a10_a_thousand_readers_of_one_task_each_get_every_byte",
            "tests/e2e/api/readers.rs::a10_a_thousand_readers_that_break_off_leave_nothing",
        ]),
    ),
    ("A11", By(&["tests/e2e/api/readers.rs::a11_wherever_a_reader_begins_it_gets_exactly_the_rest"])),
    ("A12", By(&["tests/e2e/api/requests.rs::a12_what_is_too_much_is_refused_before_anything_is_started"])),
    ("A14", By(&["tests/e2e/api/requests.rs::a14_an_exec_error_is_the_answer_and_leaves_no_task"])),
    (
        "A15",
        By(&[
            "tests/e2e/api/ends.rs::a15_a_hundred_stops_at_once_and_later_ones_are_one_end",
            "tests/e2e/api/ends.rs::a15_stops_that_race_the_natural_end_give_one_final_status",
        ]),
    ),
    (
        "A17",
        By(&[
            "tests/e2e/api/authorization.rs::a17_what_the_profile_does_not_grant_is_refused_to_users_and_administrators",
        ]),
    ),
    ("A18", By(&["tests/e2e/api/ends.rs::a18_a_signal_reaches_the_main_process_of_that_task_alone"])),
    ("A19", By(&["tests/e2e/api/tenants.rs::a19_a_flood_of_one_tenant_is_refused_and_the_others_are_served"])),
    ("A20", By(&["tests/e2e/api/secrets.rs::a20_keys_and_state_are_private_from_their_creation"])),
    ("U01", Suite),
    ("U02", Suite),
    ("U03", Suite),
    ("U20", Suite),
    ("U21", Suite),
    ("U22", Suite),
    (
        "U05",
        By(&[
            "tests/e2e/doctor.rs::a_missing_controller_is_named_refused_and_only_by_choice_reduced",
            "tests/adversarial::C07",
        ]),
    ),
];
