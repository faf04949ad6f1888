//! Runs the table of attempts in one tier: a group in one session, attempt by attempt.

use super::{start_with, tier};
use crate::attack::attempts::{self, Attempt, Outside::*};
use crate::attack::targets;
use pybench_interpreter::{SessionSpec, Tier};
use pybench_testing::sessions::{Look, start_in, with_limits};

const OWN_MEMORY: &str = "what its kernel keeps is the session's own memory";
const IGNORED: &str = "its kernel takes the option and does nothing with it";

/// Attempts that say nothing in a tier, and why.
const SENSELESS: &[(Tier, &str, &str)] = &[
    (
        Tier::Gvisor,
        "a_higher_priority",
        "its kernel keeps the number and schedules nothing by it",
    ),
    (
        Tier::Gvisor,
        "safety_from_the_memory_killer",
        "its kernel keeps the number; the host's takes a sandbox as a whole",
    ),
    (
        Tier::Gvisor,
        "a_flood_of_terminals",
        "its kernel makes them, and no other session has them",
    ),
    (Tier::Gvisor, "a_flood_of_timers", OWN_MEMORY),
    (
        Tier::Gvisor,
        "a_flood_of_descriptors_on_their_way",
        OWN_MEMORY,
    ),
    (Tier::Gvisor, "a_setting_of_its_network", OWN_MEMORY),
    (
        Tier::Gvisor,
        "a_file_system_of_ones_own",
        "its kernel has the device, and mounts nothing without privileges",
    ),
    (
        Tier::Gvisor,
        "a_tunnel",
        "its kernel has the device, and makes no interface without privileges",
    ),
    (Tier::Gvisor, "a_packet_mark", IGNORED),
    (Tier::Gvisor, "a_foreign_address", IGNORED),
    (Tier::Gvisor, "forged_connections", IGNORED),
    (
        Tier::Bwrap,
        "a_flood_of_terminals",
        "bubblewrap mounts its own without a limit (docs/security.md)",
    ),
];

macro_rules! groups {
    ($($group:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $group() {
                withstand(attempts::$group::ATTEMPTS).await;
            }
        )*
    };
}

groups!(
    network, files, writes, devices, privileges, namespaces, kernel, processes
);

#[tokio::test(flavor = "multi_thread")]
async fn floods() {
    for attempt in attempts::floods::ATTEMPTS {
        withstand(std::slice::from_ref(attempt)).await;
    }
}

/// Makes the attempts in one session.
async fn withstand(attempts: &[Attempt]) {
    let limits = with_limits(|limits| {
        limits.memory_mib = 512;
        limits.processes = 48;
        limits.cell_seconds = 30;
        limits.file_mib = 32;
    });
    let Some(mut session) = start_with(limits).await else {
        return;
    };
    let mut succeeded = Vec::new();
    for attempt in attempts.iter().filter(|attempt| makes_sense(attempt)) {
        let code = code(attempt);
        if targets::claim(attempt.name) {
            show_outside(attempt, &code).await;
        }
        let seen = session.run(&format!("{code}outcome")).await;
        if seen.plain() != "False" && seen.stopped.is_none() {
            succeeded.push(format!("{}: {seen:?}", attempt.name));
        }
    }
    session.close().await;
    assert!(
        succeeded.is_empty(),
        "these got through:\n{}",
        succeeded.join("\n")
    );
}

fn makes_sense(attempt: &Attempt) -> bool {
    let senseless = |(of, name, _): &&(Tier, &str, &str)| (*of, *name) == (tier(), attempt.name);
    let reason = SENSELESS.iter().find(senseless);
    if let Some((tier, name, reason)) = reason {
        eprintln!("{name} does not apply to the tier {tier:?}: {reason}");
    }
    reason.is_none()
}

/// Python that sets `outcome` to whether the attempt succeeds.
fn code(attempt: &Attempt) -> String {
    let lines = attempt.body.trim().lines();
    let lines: String = lines.map(|line| format!("    {line}\n")).collect();
    format!(
        "{}\ndef attack():\n{lines}\ntry: outcome = bool(attack())\nexcept Exception as error: outcome = False; print(repr(error))\n",
        targets::prelude()
    )
}

/// Shows that it succeeds where nothing stands in its way, as far as that is harmless.
async fn show_outside(attempt: &Attempt, code: &str) {
    let name = attempt.name;
    let (worked, seen) = match attempt.outside {
        WorksForRoot if !rustix::process::geteuid().is_root() => return,
        NotTried(reason) => {
            eprintln!("{name} is not tried outside: {reason:?}");
            return;
        }
        Works | WorksForRoot | Depends => {
            let seen = super::outside(&format!("{code}print(outcome)"));
            (seen.lines().last() == Some("True"), seen)
        }
        WorksInNone => {
            let open = start_in(Tier::Unsandboxed, SessionSpec::default()).await;
            let Some(mut session) = open else {
                return;
            };
            let seen = session.run(&format!("{code}outcome")).await;
            session.close().await;
            (seen.plain() == "True", format!("{seen:?}"))
        }
    };
    match (worked, attempt.outside) {
        (true, _) => eprintln!("{name} succeeds outside"),
        (false, Depends) => eprintln!("{name}: this machine refuses it outside, too: {seen}"),
        (false, _) => panic!("{name} does not even work outside, so it shows nothing: {seen}"),
    }
}
