//! Several processes of this program on one machine, where neither torchrun nor Slurm starts them.

use std::env;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Most processes on one machine.
const MOST: usize = 64;

/// Whether somebody has told this process its place.
pub(super) fn launched() -> bool {
    env::var_os("RANK").is_some()
}

/// Starts `count` processes with this one's arguments and waits for them. Where one fails, the others
/// are ended: they would wait for it.
pub(super) fn launch(count: usize) -> Result<()> {
    if count > MOST {
        bail!("--processes {count}: at most {MOST} on one machine; torchrun and Slurm start more");
    }
    let mut children = vec![];
    let result = start(count, &mut children).and_then(|()| watch(&mut children));
    for child in &mut children {
        // Those that are over are no longer there.
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

fn start(count: usize, children: &mut Vec<Child>) -> Result<()> {
    let program = env::current_exe().context("this program's own path")?;
    // Free now, and most likely still so when the first process takes it.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let threads = available_parallelism().map_or(1, |all| (all.get() / count).max(1));
    for rank in 0..count {
        let mut command = Command::new(&program);
        command
            .args(env::args_os().skip(1))
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", count.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        if env::var_os("OMP_NUM_THREADS").is_none() {
            command.env("OMP_NUM_THREADS", threads.to_string());
        }
        children.push(command.spawn().context("another process of this run")?);
    }
    Ok(())
}

fn watch(children: &mut [Child]) -> Result<()> {
    loop {
        let mut left = 0;
        for (rank, child) in children.iter_mut().enumerate() {
            match child.try_wait()? {
                None => left += 1,
                Some(status) if status.success() => {}
                Some(status) => bail!("process {rank} ended with {status}; its words stand above"),
            }
        }
        if left == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
}
