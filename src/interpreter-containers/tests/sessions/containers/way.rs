//! The way out of containers, as it is in the tiers of `interpreter`: by the stand-ins, and live.

use std::sync::{Arc, OnceLock};

use super::{engine, podman_here, stand_in};
use pybench_interpreter::{Interpreter, LocalInterpreter, SessionSpec};
use pybench_testing::sessions::Live;

#[path = "../interpreter/network.rs"]
mod network;

async fn start() -> Option<Live> {
    start_with(SessionSpec::default()).await
}

async fn start_with(spec: SessionSpec) -> Option<Live> {
    static MADE: OnceLock<Option<Arc<LocalInterpreter>>> = OnceLock::new();
    let made = MADE.get_or_init(|| make().map(Arc::new)).clone()?;
    let inner = made.start(spec).await.unwrap();
    Some(Live { inner })
}

/// By the module's own name.
fn make() -> Option<LocalInterpreter> {
    let (live, name) = match module_path!() {
        path if path.ends_with("way_live") => (true, "podman"),
        path if path.ends_with("way_podman") => (false, "podman"),
        _ => (false, "docker"),
    };
    // The program's folder stays for as long as the process: its interpreter does.
    let settings = if live {
        let (settings, podman) = podman_here()?;
        std::mem::forget(podman);
        settings
    } else {
        let folder = stand_in("docker.py", name)?;
        let settings = engine(folder.path(), name);
        std::mem::forget(folder);
        settings
    };
    let made = match name {
        "podman" => pybench_interpreter_containers::podman(&settings),
        _ => pybench_interpreter_containers::docker(&settings),
    };
    Some(made.unwrap())
}
