//! Sessions and what is beside them: other sessions, the warm server, the checker.

use super::frames::SPOOF;
use super::{PRELUDE, outside, start, start_with};
use pybench_interpreter::SessionSpec;
use pybench_interpreter::Tier;
use pybench_testing::sessions::*;
use pybench_types::observation::Output;

/// Offers what another session could reach if nothing stood between them; a mark tells it from others.
const VICTIM: &str = "
import os, socket, ctypes, threading
listener = socket.create_server(('127.0.0.1', 0))
hidden = socket.socket(socket.AF_UNIX); hidden.bind('\\0' + MARK); hidden.listen()
for path in ('/tmp/' + MARK, '/dev/shm/' + MARK): open(path, 'w').write('x')
queue = ctypes.CDLL(None).msgget(KEY, 0o1666)
print(listener.getsockname()[1], os.getpid())";

/// What of it another session reaches.
const INTRUDER: &str = "
import os, socket, ctypes, glob
def got(f):
    try: return bool(f())
    except OSError: return False
{
    'tcp': got(lambda: socket.create_connection(('127.0.0.1', PORT), 3)),
    'abstract': got(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + MARK) is None),
    'tmp': got(lambda: open('/tmp/' + MARK).read()),
    'shm': got(lambda: open('/dev/shm/' + MARK).read()),
    'queue': got(lambda: ctypes.CDLL(None).msgget(KEY, 0) >= 0),
    'files': got(lambda: [p for p in glob.glob(f'/proc/[0-9]*/cwd/{MARK}') if int(p.split('/')[2]) not in (1, os.getpid())]),
    'signal': got(lambda: PID > 2 and os.kill(PID, 0) is None),
}";

const CLEAN: &str = "
for path in ('/tmp/' + MARK, '/dev/shm/' + MARK): os.remove(path)
ctypes.CDLL(None).msgctl(queue, 0, None)";

/// What an intruder in one session reaches of a victim in another.
async fn reached(tier: Tier) -> Option<String> {
    // The other tiers' parts of the tests run beside this one, also those in no jail.
    let (part, own) = (super::tier(), std::process::id());
    let mark = format!("pybench-victim-{part:?}-{tier:?}-{own}");
    let key = 0x7000_0000 + ((part as u32) << 16) + (own & 0xffff);
    let known = format!("MARK, KEY = {mark:?}, {key}");
    let mut victim = start_in(tier, SessionSpec::default()).await?;
    let mut intruder = start_in(tier, SessionSpec::default()).await?;
    let seen = victim
        .run(&format!("{known}{VICTIM}\nopen(MARK, 'w').close()"))
        .await;
    let text = seen.text("stdout");
    let [port, pid] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{seen:?}");
    };
    let code = format!("{known}\nPORT, PID = {port}, {pid}{INTRUDER}");
    let found = intruder.run(&code).await;
    victim.run(CLEAN).await;
    victim.close().await;
    intruder.close().await;
    assert_eq!(found.error, None, "{found:?}");
    Some(found.plain())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_session_is_out_of_reach() {
    let Some(inside) = reached(super::tier()).await else {
        return;
    };
    assert!(!inside.contains("True"), "{inside}");
    if let Some(open) = reached(Tier::Unsandboxed).await {
        let shown = open.matches("True").count();
        assert!(
            shown >= 5,
            "without a jail most of it is reached (not what belongs to another user): {open}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_warm_server_is_out_of_reach() {
    const LOOK: &str = "
import glob, os
def is_server(path):
    try: return b'pybench_runner import server' in open(path + '/cmdline', 'rb').read()
    except OSError: return False
def tried(f):
    try: return f()
    except OSError: return 0
def sockets(p):
    return [fd for fd in glob.glob(p + '/fd/*') if tried(lambda: os.readlink(fd).startswith('socket:'))]
# A session of it is a fork, and so is the first process of that one's world.
own = {'/proc/1', f'/proc/{os.getpid()}'}
mine = [p for p in glob.glob('/proc/[0-9]*') if p not in own and is_server(p)]
memory = sum(tried(lambda: os.close(os.open(p + '/mem', os.O_RDWR)) is None) for p in mine)
print(len(mine) > 0, memory > 0, any(sockets(p) for p in mine), any(tried(lambda: os.kill(int(p.split('/')[2]), 0) is None) for p in mine))";
    // One that has started is from a server that stands.
    let Some(warm) = start_in(Tier::Jail, SessionSpec::default()).await else {
        return;
    };
    if rustix::process::geteuid().is_root() {
        assert_eq!(outside(LOOK), "True True True True");
    }
    if let Some(mut session) = start().await {
        let seen = session.run(LOOK).await;
        assert_eq!(seen.text("stdout").trim(), "False False False False");
        session.close().await;
    }
    warm.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkers_inputs_stay_as_they_are() {
    const TRY: &str = "
import os, shutil
def tried(f):
    try: f()
    except OSError: return False
    return True
name = 'candidate/output/y.csv'
done = [
    tried(lambda: os.chmod(name, 0o666)), tried(lambda: open(name, 'a').write('z')), tried(lambda: os.truncate(name, 0)),
    tried(lambda: os.rename('candidate', 'moved') or os.rename('moved', 'candidate')),
    tried(lambda: os.rename('candidate/output', 'candidate/moved') or os.rename('candidate/moved', 'candidate/output')),
    tried(lambda: os.symlink('/etc', 'candidate/output/link')), tried(lambda: os.utime(name)), tried(lambda: os.remove(name)),
]
any(done)";
    let folder = shared_folder();
    let source = folder.path().join("source");
    std::fs::write(&source, "given").unwrap();
    let spec = || SessionSpec {
        inputs: [("candidate/output/y.csv".to_owned(), source.clone())].into(),
        ..SessionSpec::default()
    };
    if let Some(mut open) = start_in(Tier::Unsandboxed, spec()).await {
        assert_eq!(open.run(TRY).await.plain(), "True");
        open.close().await;
    }
    let Some(mut session) = start_with(spec()).await else {
        return;
    };
    let seen = session.run(TRY).await;
    assert_eq!(seen.plain(), "False", "{seen:?}");
    let seen = session.run("open('candidate/output/y.csv').read()").await;
    assert_eq!(seen.plain(), "'given'");
    assert_eq!(std::fs::read_to_string(&source).unwrap(), "given");
    session.close().await;
}

/// What is recorded of a figure is a claim: `tests/checker.rs` has what the picture must prove. Here: it
/// costs the host no more than other output, and leads to no file.
#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_that_lies_is_bounded_and_believed_by_nobody() {
    let Some(mut session) = start().await else {
        return;
    };
    let lie = format!(
        "{PRELUDE}{SPOOF}
figure = {{'axes': [{{'title': 'x' * 100_000}}] * 20}}
for i in range(20): say(event='chart', cell=1, at=[0, 0], path='../../etc/passwd', figure=figure)
from pybench_runner import charts
charts.install(lambda path, record: 1 / 0)
import matplotlib.pyplot as plt
plt.plot([1]); plt.savefig('output/a.png'); plt.show(); print('on')"
    );
    let seen = session.run(&lie).await;
    let size = |output: &Output| match output {
        Output::Chart { figure, .. } => figure.as_str().len(),
        _ => 0,
    };
    let kept: usize = seen.outputs.iter().map(size).sum();
    assert!(kept < 64 << 20, "{kept}");
    assert_eq!(session.run("'lives'").await.plain(), "'lives'");
    let files = session.outputs().await.files;
    assert!(
        files.iter().all(|file| file.path.starts_with("output/")),
        "{files:?}"
    );
    session.close().await;
}
