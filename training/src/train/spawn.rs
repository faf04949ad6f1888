//! Starts several processes of this program on one machine, if neither torchrun nor Slurm does.

use std::env;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dependent_process::{depend, free_port, terminate};
use crate::exit::{ChildError, interrupted, usage};
use crate::interrupt::{self, Deferral};

/// Processes on one machine.
const MAX_PROCESSES: usize = 64;

/// Whether this process was started as one of several.
pub(super) fn has_rank() -> bool {
    env::var_os("RANK").is_some()
}

/// Starts `count` processes with the arguments of this one and waits for them. If one fails, the others are killed,
/// because they would wait for it.
pub(super) fn spawn_processes(count: usize) -> Result<()> {
    if count > MAX_PROCESSES {
        return Err(usage(format!(
            "--processes {count}: at most {MAX_PROCESSES} on one machine; use torchrun or Slurm for more"
        )));
    }
    let mut children = vec![];
    // The first signal is passed on to the processes, the second kills them.
    let _deferral = Deferral::of(usize::MAX);
    let result = start(count, &mut children).and_then(|()| wait_for_all(&mut children));
    for child in &mut children {
        // Fails for processes that have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

fn start(count: usize, children: &mut Vec<Child>) -> Result<()> {
    let program = env::current_exe().context("the path of this program")?;
    let port = free_port(Ipv4Addr::LOCALHOST.into())?;
    let threads = available_parallelism().map_or(1, |all| (all.get() / count).max(1));
    for rank in 0..count {
        let mut command = Command::new(&program);
        command
            .args(env::args_os().skip(1))
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", count.to_string())
            .env("LOCAL_WORLD_SIZE", count.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        if env::var_os("OMP_NUM_THREADS").is_none() {
            command.env("OMP_NUM_THREADS", threads.to_string());
        }
        // The others must not keep on training alone.
        depend(&mut command);
        children.push(command.spawn().context("starting a process of this run")?);
    }
    Ok(())
}

fn wait_for_all(children: &mut [Child]) -> Result<()> {
    let mut passed_on = false;
    loop {
        let signals = interrupt::received();
        if signals > 0 && !passed_on {
            passed_on = true;
            children.iter().for_each(terminate);
        }
        let mut running = 0;
        let mut failed = None;
        for (rank, child) in children.iter_mut().enumerate() {
            match child.try_wait()? {
                None => running += 1,
                Some(status) if status.success() => {}
                Some(status) => failed = failed.or(Some((rank, status))),
            }
        }
        match failed {
            _ if signals > 1 => return Err(interrupted("stopped at once")),
            Some(_) if passed_on && running > 0 => {}
            Some(_) if passed_on => {
                return Err(interrupted(
                    "interrupted; run the same command again to continue",
                ));
            }
            Some((rank, status)) => {
                let text = format!("process {rank} failed with {status}; see its messages above");
                return Err(ChildError::new(text, status).into());
            }
            None if running == 0 => return Ok(()),
            None => {}
        }
        sleep(Duration::from_millis(50));
    }
}
