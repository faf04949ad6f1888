//! Trajectories and outputs of hostile systems.

use std::path::Path;
use std::process::Command;

use pybench_eval::run::run;
use pybench_interpreter::environment_python;

use crate::fixture::{SuiteFixture, foreign, of, others, recipe, setup, tools};

/// Malicious and oversized outputs cannot harm the grading host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_trajectories_are_graded_within_limits() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    let theirs = fixture.path("theirs");
    others(&theirs);
    let make = r#"
import os, pickle
class Bomb:
    def __reduce__(self):
        return (os.system, ("touch /tmp/pybench-eval-bomb; kill -9 $PPID",))
pickle.dump(Bomb(), open("output/8.pkl", "wb"))
from PIL import Image
Image.new("1", (10000, 10000), 1).save("output/4.png")
with open("output/2.csv", "wb") as file:
    file.truncate(1 << 30)
os.unlink("output/12.png"); os.symlink("/etc/passwd", "output/12.png")
os.mkfifo("output/14_pipe.csv")
"#;
    let made = Command::new(environment_python().unwrap())
        .args(["-c", make])
        .current_dir(&theirs)
        .output();
    assert!(made.unwrap().status.success());
    let recipe = recipe("t", &[("theirs", foreign(&theirs))]);
    let setup = setup(&fixture, "run", fixture.bench(), recipe, &interpreter);
    let evaluation = run(&setup).await.unwrap();
    let score = |task: &str| of(&evaluation, "theirs", task).scores.upstream;
    assert_eq!(score("1"), Some(true), "an answer with control characters");
    assert_eq!(score("2"), Some(false), "a table of 1 GiB is skipped");
    assert_eq!(
        score("4"),
        Some(false),
        "a large picture is opened within limits"
    );
    assert_eq!(score("12"), Some(false), "a link is not followed");
    assert_eq!(
        score("14"),
        Some(true),
        "a named pipe in the folder is ignored"
    );
    assert!(score("8").is_some() || !of(&evaluation, "theirs", "8").ran());
    assert!(
        !Path::new("/tmp/pybench-eval-bomb").exists(),
        "a pickle reached the host"
    );
    let links = of(&evaluation, "theirs", "12").outputs.len();
    assert_eq!(links, 0);
}
