//! What stays after the end of a session: nothing.

use std::time::Duration;

use pybench_interpreter::SessionSpec;
use pybench_testing::sessions::*;

use super::{PRELUDE, in_gvisor, start, start_with, tier};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_survives_the_end() {
    // The other tiers' daemons run beside these.
    let marker = format!("61.{}{}", tier() as u8, std::process::id());
    let daemon = format!(
        "
{PRELUDE}
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)]
            os.execvp('sleep', ['sleep', '{marker}'])
        os._exit(0)
'left'"
    );
    let running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let commands =
            processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let daemon = format!("sleep\0{marker}\0");
        commands
            .filter(|command| *command == daemon.as_bytes())
            .count()
    };
    if in_gvisor() {
        return nothing_of_gvisor_survives(&daemon, &marker).await;
    }
    let Some(mut session) = start_with(goes_on()).await else {
        return;
    };
    assert_eq!(session.run(&daemon).await.plain(), "'left'");
    assert!(becomes(3, running).await);
    session.close().await;
    assert_eq!(running(), 0);

    let Some(mut session) = start_with(goes_on()).await else {
        return;
    };
    session.run(&daemon).await;
    assert!(becomes(3, running).await);
    drop(session);
    assert!(becomes(0, running).await, "dropping ends it, too");
    dropped_ones_have_ended().await;
    let mine = format!("{}-", std::process::id());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.contains(&format!("sessions/{mine}")),
        "a mount is left"
    );
}

/// A session whose processes do not pause before they have begun.
fn goes_on() -> SessionSpec {
    with_limits(|limits| limits.background = true)
}

/// The host ends a tier's sessions one after another: when one that is closed now has gone, groups and
/// folders of those dropped before have, too. If this process ended earlier, they would stay.
async fn dropped_ones_have_ended() {
    if let Some(session) = start().await {
        session.close().await;
    }
}

/// Whether a count gets there within a while.
async fn becomes(wanted: usize, count: impl Fn() -> usize) -> bool {
    for _ in 0..1500 {
        if count() == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// The host sees no process of gVisor's kernel, but the kernel itself.
async fn nothing_of_gvisor_survives(daemon: &str, marker: &str) {
    let kernels = || -> Vec<u32> {
        let below = below(std::process::id()).into_iter();
        below
            .filter_map(|(pid, command)| command.contains("runsc").then_some(pid))
            .collect()
    };
    for close in [true, false] {
        let others = kernels();
        let Some(mut session) = start_with(goes_on()).await else {
            return;
        };
        session.run(daemon).await;
        let count = format!(
            "sum({marker:?} in open(f'/proc/{{p}}/cmdline').read() for p in os.listdir('/proc') if p.isdigit())"
        );
        let mut begun = "0".to_owned();
        for _ in 0..300 {
            begun = session.run(&count).await.plain();
            if begun == "3" {
                break;
            }
        }
        assert_eq!(begun, "3");
        // Some may be of tests that run beside; those go, too.
        let mut left: Vec<u32> = kernels()
            .into_iter()
            .filter(|pid| !others.contains(pid))
            .collect();
        assert!(!left.is_empty());
        match close {
            true => session.close().await,
            false => drop(session),
        }
        for _ in 0..3000 {
            left.retain(|pid| kernels().contains(pid));
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(left, Vec::<u32>::new());
    }
    dropped_ones_have_ended().await;
}
