//! Files that deceive the host when it collects them.

use pybench_interpreter::Tier;
use pybench_testing::sessions::*;

use super::{start, tier};

#[tokio::test(flavor = "multi_thread")]
async fn files_exchanged_while_they_are_collected_deceive_nobody() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
import os, threading
os.makedirs('output/folder', exist_ok=True)
open('output/steady', 'w').write('own')
def exchange():
    while True:
        for make in (lambda p: open(p, 'w').write('own'), lambda p: os.symlink('/etc/passwd', p), lambda p: os.mkfifo(p)):
            make('output/new')
            os.rename('output/new', 'output/folder/x')
            os.rename('output/folder', 'output/moved')
            os.symlink('/etc', 'output/folder')
            os.remove('output/folder')
            os.rename('output/moved', 'output/folder')
threading.Thread(target=exchange, daemon=True).start()";
    session.run(code).await;
    let mut seen = 0;
    for _ in 0..200 {
        for file in session.outputs().await.files {
            assert!(matches!(file.bytes.as_slice(), b"own" | b""), "{file:?}");
            seen += 1;
        }
    }
    assert!(seen >= 200, "what stays is always collected: {seen}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_files_deceive_nobody() {
    if tier() != Tier::Jail {
        return; // the host collects files of all tiers in the same way
    }
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
import os
os.chdir('output')
names = ['a\\nb', '\\u202egnp.exe', '..\\u2215..\\u2215passwd', '...', '-rf', '~', 'CON', 'x' * 255, 'e\\u0301', '\\x1b]0;owned\\x07']
for name in [*names, b'\\xff', b'\\xed\\xa0\\x80']: open(name, 'w').write('own')
len(names)";
    let count = session.run(code).await.plain();
    let collected = session.outputs().await;
    assert_eq!(collected.files.len().to_string(), count);
    for file in &collected.files {
        let name = file.path.strip_prefix("output/").unwrap();
        assert!(!name.contains('/') && name != "..", "{file:?}");
        assert_eq!(file.bytes, b"own");
    }
    assert_eq!(collected.refused.len(), 2, "{:?}", collected.refused);
    let reason = "the name is not UTF-8";
    assert!(collected.refused.iter().all(|line| line.ends_with(reason)));
    session.close().await;
}
