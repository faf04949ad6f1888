//! Inputs, outputs and how much of them.

use super::start_with;
use pybench_interpreter::{Limits, SessionSpec};
use pybench_testing::sessions::*;

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_read_only_whatever_their_names() {
    let folder = shared_folder();
    let source = folder.path().join("source");
    std::fs::write(&source, "given").unwrap();
    let names = [
        "data/a b.csv",
        "data/子 文件夹/数据.csv",
        "candidate/output/y.png",
        "checker/checker.py",
        "top.txt",
    ];
    let spec = SessionSpec {
        inputs: names
            .iter()
            .map(|name| (name.to_string(), source.clone()))
            .collect(),
        ..SessionSpec::default()
    };
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    for name in names {
        let code = format!("
import os, shutil
tried = []
name = {name:?}
assert open(name).read() == 'given'
for attempt in [lambda: open(name, 'w'), lambda: open(name, 'a'), lambda: os.remove(name), lambda: os.rename(name, 'x'),
                lambda: os.chmod(name, 0o777), lambda: os.rename(name.split('/')[0], 'moved')]:
    try:
        attempt()
        tried.append('done')
    except OSError as error:
        tried.append('refused')
tried, open(name).read()");
        assert_eq!(
            session.run(&code).await.plain(),
            format!(
                "({}, 'given')",
                "['refused', 'refused', 'refused', 'refused', 'refused', 'refused']"
            ),
            "{name}"
        );
    }
    let error = session.run("open('data/new', 'w')").await.error.unwrap();
    assert_eq!(error.ename, "OSError", "{error:?}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn escaping_inputs_are_refused() {
    let Some(interpreter) = interpreter_of(super::tier()) else {
        return;
    };
    for name in ["../evil", "/etc/evil", "data/../../evil"] {
        let spec = SessionSpec {
            inputs: [(name.to_owned(), "/etc/hostname".into())].into(),
            ..SessionSpec::default()
        };
        assert!(interpreter.start(spec).await.is_err(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_collected_by_the_host() {
    let Some(mut session) = start_with(with_limits(|limits| limits.output_mib = 2)).await else {
        return;
    };
    let seen = session
        .run(
            "
import os
os.makedirs('output/图 表')
open('output/图 表/结果 1.csv', 'w').write('a,b')
open('output/large.bin', 'wb').write(bytes(3 << 20))
os.symlink('/etc/passwd', 'output/link')
os.symlink('/', 'output/root')
os.mkfifo('output/fifo')
open('one', 'w').write('x'); os.link('one', 'output/hard')
try: os.link('/etc/passwd', 'output/passwd')
except OSError as error: print(error.strerror)
try: os.mknod('output/device', 0o60600, os.makedev(8, 0))
except OSError as error: print(error.strerror)
",
        )
        .await;
    assert_eq!(
        seen.text("stdout"),
        "Invalid cross-device link\nOperation not permitted\n"
    );
    let found = session.outputs().await;
    let paths: Vec<_> = found
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.bytes.as_slice()))
        .collect();
    assert_eq!(paths, [("output/图 表/结果 1.csv", &b"a,b"[..])]);
    let refused = [
        "output/fifo: a named pipe",
        "output/hard: a hard link",
        "output/large.bin: more than 2 MiB in all",
        "output/link: a symbolic link",
        "output/root: a symbolic link",
    ];
    assert_eq!(found.refused, refused);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_output_are_cut() {
    let Some(mut session) = start_with(with_limits(|limits| limits.output_chars = 1000)).await
    else {
        return;
    };
    let seen = session
        .run("print('BEGIN')\nfor i in range(300_000): print('x' * 80)\nprint('END')")
        .await;
    let text = seen.text("stdout");
    assert!(
        text.starts_with("BEGIN\n") && text.ends_with("END\n"),
        "{text}"
    );
    assert!(
        text.contains("characters of output cut here") && text.chars().count() < 1200,
        "{text}"
    );
    let seen = session.run("!yes | head -c 50000000; echo END").await;
    assert!(seen.text("stdout").ends_with("END\n"));
    let seen = session
        .run("for i in range(3000): display(i)\nprint('END')")
        .await;
    assert!(seen.outputs.len() < 3000);
    let seen = session.run("'y' * 1_000_000").await;
    assert!(seen.plain().chars().count() < 1200);
    let seen = session.run("raise ValueError('z' * 1_000_000)").await;
    assert!(seen.error.unwrap().traceback.chars().count() < 1200);
    session.close().await;
}

#[test]
fn limits_have_sane_defaults() {
    let limits = Limits::default();
    assert!(limits.file_mib <= limits.memory_mib);
}
