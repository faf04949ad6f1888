//! How the cases beside the table are shown to succeed outside, or why they are not, and how many attacks there are.

use super::attempts::Outside::{self, *};
use super::attempts::Reason::*;
use super::attempts::{self, Reason};

/// A case and how it is shown; `None`: it repeats attempts of the table for their exact answers, and does not count.
type Case = (&'static str, Option<Outside>);

/// The cases by the text of their file.
const CASES: &[(&str, &[Case])] = &[
    (
        include_str!("host.rs"),
        &[
            ("the_hosts_loopback_is_out_of_reach", None),
            (
                "there_is_no_way_out_and_no_name_service",
                Some(NotTried(Outward)),
            ),
            ("abstract_sockets_of_the_host_are_out_of_reach", None),
            ("other_kinds_of_sockets_are_refused", None),
            ("host_files_are_not_there", None),
            ("the_hosts_environment_stays_outside", None),
            ("only_its_own_processes_are_seen", Some(NotTried(Jail))),
            ("it_has_no_privileges", Some(NotTried(Jail))),
            ("dangerous_calls_are_refused", None),
            (
                "nothing_of_the_system_can_be_written",
                Some(NotTried(Machine)),
            ),
            ("set_uid_programs_give_nothing", None),
            ("signals_reach_nobody_else", Some(NotTried(Signal))),
        ],
    ),
    (
        include_str!("limits.rs"),
        &[
            ("a_memory_bomb_hits_only_itself", Some(NotTried(Bomb))),
            ("a_fork_bomb_is_stopped", Some(NotTried(Bomb))),
            (
                "unread_connections_hold_little_memory",
                Some(NotTried(Flood)),
            ),
            (
                "spinning_children_get_no_more_than_allowed",
                Some(NotTried(Inside)),
            ),
            ("what_spins_pauses_with_its_cell", Some(NotTried(Inside))),
            ("the_memory_killer_prefers_it_in_any_case", None),
            ("files_cannot_fill_the_machine", Some(NotTried(Flood))),
        ],
    ),
    (
        include_str!("frames.rs"),
        &[
            (
                "hostile_frames_cost_only_the_session",
                Some(NotTried(Inside)),
            ),
            (
                "a_forged_end_deceives_no_later_cell",
                Some(NotTried(Inside)),
            ),
            (
                "tampering_with_its_own_streams_is_harmless",
                Some(NotTried(Inside)),
            ),
            (
                "a_session_that_breaks_its_own_runner_is_answered_for",
                Some(NotTried(Inside)),
            ),
        ],
    ),
    (
        include_str!("outputs.rs"),
        &[
            (
                "files_exchanged_while_they_are_collected_deceive_nobody",
                Some(NotTried(Inside)),
            ),
            ("names_of_files_deceive_nobody", Some(NotTried(Inside))),
        ],
    ),
    (
        include_str!("endings.rs"),
        &[("nothing_survives_the_end", Some(NotTried(Inside)))],
    ),
    (
        include_str!("neighbors.rs"),
        &[
            ("another_session_is_out_of_reach", Some(WorksInNone)),
            ("the_warm_server_is_out_of_reach", Some(WorksForRoot)),
            ("the_checkers_inputs_stay_as_they_are", Some(WorksInNone)),
            (
                "a_recorder_that_lies_is_bounded_and_believed_by_nobody",
                Some(NotTried(Inside)),
            ),
        ],
    ),
    (
        include_str!("network.rs"),
        &[
            ("hosts_that_are_not_listed_stay_out_of_reach", Some(Works)),
            (
                "a_flood_of_connections_hits_only_itself",
                Some(NotTried(Flood)),
            ),
            ("the_proxy_stays_the_hosts", Some(NotTried(Inside))),
            (
                "a_door_leads_to_the_proxy_and_cannot_be_moved",
                Some(NotTried(Inside)),
            ),
        ],
    ),
    (
        include_str!("random.rs"),
        &[("random_calls_touch_nobody_else", Some(NotTried(Machine)))],
    ),
];

#[test]
fn every_case_says_how_it_is_shown() {
    for (source, cases) in CASES {
        let mut lines = source.lines();
        let mut found = Vec::new();
        while let Some(line) = lines.next() {
            if line.starts_with("#[tokio::test") {
                let name =
                    lines.find_map(|line| line.strip_prefix("async fn ")?.strip_suffix("() {"));
                found.push(name.unwrap());
            }
        }
        let known: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, known);
    }
}

/// What `docs/security.md` says of all attacks that count.
#[test]
fn the_documented_numbers_are_right() {
    let cases = CASES.iter().flat_map(|(_, cases)| cases.iter());
    let cases = cases.filter_map(|(name, outside)| Some((*name, (*outside)?)));
    let attempts = attempts::all().map(|attempt| (attempt.name, attempt.outside));
    let attacks: std::collections::BTreeMap<&str, Outside> = attempts.chain(cases).collect();
    let count = |is: &dyn Fn(&Outside) -> bool| attacks.values().filter(|of| is(of)).count();
    let not_tried = |reasons: &[Reason]| {
        count(&|outside| matches!(outside, NotTried(reason) if reasons.contains(reason)))
    };
    let rows = [
        (
            "shown to succeed outside, in every run",
            count(&|outside| matches!(outside, Works | WorksInNone)),
        ),
        (
            "the same, where the suite runs as root",
            count(&|outside| *outside == WorksForRoot),
        ),
        (
            "tried outside; they succeed where the kernel or the machine has what they need",
            count(&|outside| *outside == Depends),
        ),
        (
            "not tried: they would take all memory or processes, or fill the machine",
            not_tried(&[Bomb, Flood]),
        ),
        (
            "not tried: they would change or stop the machine, or end processes of others",
            not_tried(&[Machine, Signal]),
        ),
        (
            "not tried: they would go to addresses of others",
            not_tried(&[Outward]),
        ),
        (
            "not tried: they aim at the host's handling of a session, or at what a jail is made of",
            not_tried(&[Inside, Jail]),
        ),
        ("all", attacks.len()),
    ];
    let document = include_str!("../../../../../docs/security.md");
    for (what, count) in rows {
        let row = format!("| {what} | {count} |");
        assert!(
            document.contains(&row),
            "docs/security.md has no row `{row}`"
        );
    }
    assert!(attacks.len() >= 150);
}
