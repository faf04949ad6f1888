//! What takes too long, is interrupted, dies or idles.

use std::time::{Duration, Instant};

use super::{start, start_with, tier};
use pybench_interpreter::{InterpreterError, Watcher};
use pybench_testing::sessions::*;
use pybench_types::observation::Stopped;

#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_interrupts_and_the_session_lives_on() {
    let Some(mut session) = start_with(with_limits(|limits| limits.cell_seconds = 5)).await else {
        return;
    };
    session.run("x = 7").await;
    for code in [
        "print('begun')\nwhile True: pass",
        "print('begun')\n!sleep 60",
        "print('begun')\nimport subprocess; subprocess.run(['sleep', '60'])",
        "print('begun')\n!trap '' INT; sleep 60; sleep 60",
    ] {
        let seen = session.run(code).await;
        assert_eq!(seen.stopped, Some(Stopped::Interrupted), "{code}: {seen:?}");
        assert_eq!(
            seen.error.as_ref().map(|e| e.ename.as_str()),
            Some("KeyboardInterrupt"),
            "{seen:?}"
        );
        assert!(seen.text("stdout").starts_with("begun"));
        assert_eq!(session.run("x").await.plain(), "7");
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ignoring_the_interrupt_costs_the_variables_but_no_files() {
    let Some(mut session) = start_with(with_limits(|limits| limits.cell_seconds = 5)).await else {
        return;
    };
    session
        .run("x = 7\nopen('output/kept.txt', 'w').write('kept')")
        .await;
    let seen = session.run("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: time.sleep(0.1)").await;
    assert_eq!(seen.stopped, Some(Stopped::Restarted));
    assert_eq!(seen.text("stdout"), "deaf\n");
    assert!(
        seen.error
            .unwrap()
            .evalue
            .contains("variables are gone, files are kept")
    );
    assert_eq!(session.run("'x' in dir()").await.plain(), "False");
    assert_eq!(
        session.run("open('output/kept.txt').read()").await.plain(),
        "'kept'"
    );
    assert_eq!(session.outputs().await.files.len(), 1);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_never_looks_for_signals_is_killed_with_a_notice() {
    let Some(mut session) = start_with(with_limits(|limits| limits.cell_seconds = 5)).await else {
        return;
    };
    let seen = session
        .run("x = 7\nprint('begun')\nsum(range(10 ** 13))")
        .await;
    assert_eq!(seen.stopped, Some(Stopped::Restarted), "{seen:?}");
    assert_eq!(seen.text("stdout"), "begun\n");
    let notice = seen.error.unwrap().evalue;
    assert!(
        notice.contains("did not heed the interrupt") && notice.contains("restarted"),
        "{notice}"
    );
    assert_eq!(session.run("'x' in dir()").await.plain(), "False");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_from_elsewhere_works() {
    let Some(mut session) = start().await else {
        return;
    };
    let handle = session.inner.interrupt_handle();
    handle.interrupt(); // nothing runs: no effect on the next cell
    assert_eq!(session.run("'fine'").await.plain(), "'fine'");
    let (watcher, mut told) = Watcher::new();
    let later = tokio::spawn(async move {
        told.recv().await; // it runs
        handle.interrupt();
    });
    let code = "import time\nprint('on', flush=True)\ntime.sleep(50)";
    let seen = session.inner.execute_live(code, watcher).await.unwrap();
    assert_eq!(seen.stopped, Some(Stopped::Interrupted), "{seen:?}");
    later.await.unwrap();
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn death_is_reported_and_the_session_restarts() {
    let Some(mut session) = start().await else {
        return;
    };
    for code in [
        "import os\nprint('last words')\nos._exit(3)",
        "import ctypes\nprint('last words')\nctypes.string_at(0)",
        "import os\nprint('last words')\nos.kill(os.getpid(), 9)",
    ] {
        let seen = session.run(code).await;
        assert_eq!(seen.stopped, Some(Stopped::Died), "{seen:?}");
        assert_eq!(seen.text("stdout"), "last words\n");
        assert_eq!(session.run("1").await.plain(), "1");
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_is_ended_and_the_next_cell_is_told() {
    let Some(mut session) = start_with(with_limits(|limits| limits.idle_seconds = Some(3))).await
    else {
        return;
    };
    let daemon = format!("sleep 600.{}{}", tier() as u8, std::process::id());
    let code = format!(
        "import subprocess\nx = 1; open('output/kept', 'w').write('y')\nchild = subprocess.Popen({daemon:?}.split())"
    );
    session.run(&code).await;
    // What it has started ends with it.
    let running = || {
        let mut below = below(std::process::id()).into_iter();
        below.any(|(_, command)| command.trim_end() == daemon)
    };
    let until = Instant::now() + Duration::from_secs(60);
    // One look may miss it: the processes above it come and go while they are read.
    let mut missed = 0;
    while missed < 20 && Instant::now() < until {
        missed = if running() { 0 } else { missed + 1 };
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seen = session
        .run("'x' in dir(), open('output/kept').read()")
        .await;
    assert_eq!(seen.plain(), "(False, 'y')");
    assert!(seen.text("stderr").contains("no cell for 3 s"), "{seen:?}");
    let seen = session.run("1").await;
    assert_eq!(seen.text("stderr"), "");
    assert!(matches!(
        session.inner.fork().await,
        Err(InterpreterError::Fork(_))
    ));
    session.close().await;
}
