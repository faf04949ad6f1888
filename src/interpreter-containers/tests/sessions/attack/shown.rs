//! How the cases beside the table are shown to succeed outside, or why they are not.

use super::attempts::Outside::{self, *};
use super::attempts::Reason::*;

const CASES: &[(&str, Outside)] = &[
    // cases.rs
    ("the_hosts_loopback_is_out_of_reach", Works),
    ("there_is_no_way_out_and_no_name_service", NotTried(Jail)), // it would go to a real address
    ("abstract_sockets_of_the_host_are_out_of_reach", Works),
    ("other_kinds_of_sockets_are_refused", NotTried(Jail)), // one by one in the table
    ("host_files_are_not_there", Works),
    ("the_hosts_environment_stays_outside", NotTried(Jail)), // as one of the table
    ("only_its_own_processes_are_seen", NotTried(Jail)),
    ("it_has_no_privileges", NotTried(Jail)),
    ("dangerous_calls_are_refused", NotTried(Jail)), // one by one in the table
    ("nothing_of_the_system_can_be_written", NotTried(Machine)),
    ("set_uid_programs_give_nothing", NotTried(Jail)), // as one of the table
    ("a_memory_bomb_hits_only_itself", NotTried(Bomb)),
    ("a_fork_bomb_is_stopped", NotTried(Bomb)),
    ("unread_connections_hold_little_memory", NotTried(Flood)),
    (
        "spinning_children_get_no_more_than_allowed",
        NotTried(Inside),
    ),
    ("what_spins_pauses_with_its_cell", NotTried(Inside)),
    ("the_memory_killer_prefers_it_in_any_case", NotTried(Jail)), // as one of the table
    ("files_cannot_fill_the_machine", NotTried(Flood)),
    ("signals_reach_nobody_else", NotTried(Signal)),
    ("hostile_frames_cost_only_the_session", NotTried(Inside)),
    ("a_forged_end_deceives_no_later_cell", NotTried(Inside)),
    (
        "tampering_with_its_own_streams_is_harmless",
        NotTried(Inside),
    ),
    ("nothing_survives_the_end", NotTried(Inside)),
    (
        "files_exchanged_while_they_are_collected_deceive_nobody",
        NotTried(Inside),
    ),
    // neighbors.rs
    ("another_session_is_out_of_reach", WorksInNone),
    ("the_warm_server_is_out_of_reach", WorksForRoot),
    ("the_checkers_inputs_stay_as_they_are", WorksInNone),
    (
        "a_recorder_that_lies_is_bounded_and_believed_by_nobody",
        NotTried(Inside),
    ),
    // network.rs
    ("hosts_that_are_not_listed_stay_out_of_reach", Works),
    ("a_flood_of_connections_hits_only_itself", NotTried(Flood)),
    ("the_proxy_stays_the_hosts", NotTried(Inside)),
    (
        "a_door_leads_to_the_proxy_and_cannot_be_moved",
        NotTried(Inside),
    ),
    // random.rs
    ("random_calls_touch_nobody_else", NotTried(Machine)),
];

#[test]
fn every_case_says_how_it_is_shown() {
    let sources = [
        include_str!("cases.rs"),
        include_str!("neighbors.rs"),
        include_str!("network.rs"),
        include_str!("random.rs"),
    ];
    let mut lines = sources.iter().flat_map(|text| text.lines());
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("#[tokio::test") {
            continue;
        }
        let name = lines.find_map(|line| line.strip_prefix("async fn ")?.strip_suffix("() {"));
        found.push(name.unwrap());
    }
    let known: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, known);
}
