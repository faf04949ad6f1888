//! Attempts to break out, in every tier that runs here.

#[cfg(target_arch = "x86_64")]
mod attempts;
#[path = "cases.rs"]
mod bwrap;
#[path = "cases.rs"]
mod gvisor;
#[path = "cases.rs"]
mod jail;
#[cfg(target_arch = "x86_64")]
mod shown;
mod targets;

/// The part of the suite that leaves most behind, in a process of its own, and what is there when it has
/// ended.
#[test]
fn afterward_nothing_is_left() {
    let mut part = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["flood", "bomb", "survives", "surviving"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(part.wait().unwrap().success());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !pybench_testing::sessions::left(part.id()).is_empty()
        && std::time::Instant::now() < until
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(
        pybench_testing::sessions::left(part.id()),
        Vec::<String>::new()
    );
}
