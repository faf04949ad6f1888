//! `pybench <stage> …` becomes `pybench-<stage> …`, found beside this program or in the PATH.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pybench::run::{ExitCode as Code, closest};

const PREFIX: &str = "pybench-";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let stages = stages();
    let Some(stage) = args.next() else {
        eprint!("{}", help(&stages));
        return Code::Usage.into();
    };
    match stage.to_str() {
        Some("-h" | "--help" | "help") => {
            print!("{}", help(&stages));
            Code::Success.into()
        }
        Some("-V" | "--version") => {
            println!("pybench {}", env!("CARGO_PKG_VERSION"));
            Code::Success.into()
        }
        name => match name.and_then(|name| stages.get(name)) {
            Some(program) => become_stage(program, args),
            None => unknown(&stage, &stages),
        },
    }
}

/// Replace this process; returns only when that fails.
fn become_stage(program: &Path, args: impl Iterator<Item = OsString>) -> ExitCode {
    let error = Command::new(program).args(args).exec();
    eprintln!("error: {} cannot be run: {error}", program.display());
    Code::Environment.into()
}

fn unknown(stage: &OsStr, stages: &BTreeMap<String, PathBuf>) -> ExitCode {
    let stage = stage.to_string_lossy();
    let hint = closest(&stage, stages.keys().map(String::as_str))
        .map(|best| format!(": did you mean `{best}`?"))
        .unwrap_or_default();
    eprintln!("error: no stage `{stage}`{hint}\n");
    eprint!("{}", help(stages));
    Code::Usage.into()
}

fn help(stages: &BTreeMap<String, PathBuf>) -> String {
    let mut text = String::from(
        "Makes, trains and evaluates language models that solve tasks by running Python.\n\n\
         Usage: pybench <STAGE> [ARGUMENTS]\n\nStages, each with a --help of its own:\n",
    );
    for stage in stages.keys() {
        text += &format!("  {stage}\n");
    }
    if stages.is_empty() {
        text += "  none found: build them, or put their folder into PATH\n";
    }
    text
}

/// Programs named `pybench-<stage>`; the one beside this program wins over the PATH.
fn stages() -> BTreeMap<String, PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    let mut stages = BTreeMap::new();
    for program in folders.flat_map(programs) {
        let name = program.file_name().and_then(OsStr::to_str);
        let stage = name.and_then(|name| name.strip_prefix(PREFIX));
        // Build folders hold `pybench-crawl.d` and the like beside the programs.
        let stage = stage.filter(|stage| !stage.contains('.') && is_executable(&program));
        if let Some(stage) = stage.map(str::to_owned) {
            stages.entry(stage).or_insert(program);
        }
    }
    stages
}

fn programs(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
