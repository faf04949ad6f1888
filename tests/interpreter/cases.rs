//! The interpreter as its users see it: real sessions in the real sandbox and environment.

use std::time::{Duration, Instant};

use crate::support::*;
use pybench::interpreter::{ForkKind, InterpreterError, Limits, Output, SessionSpec, Stopped};

async fn start() -> Option<Live> {
    start_with(SessionSpec::default()).await
}

async fn start_with(spec: SessionSpec) -> Option<Live> {
    start_in(tier_of(module_path!()), spec).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_result_comes() {
    let Some(mut session) = start().await else {
        return;
    };
    assert_eq!(session.run("1 + 1").await.plain(), "2");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_persists_between_cells() {
    let Some(mut session) = start().await else {
        return;
    };
    session.run("import math\nx = 20").await;
    assert_eq!(session.run("x + math.floor(1.5)").await.plain(), "21");
    assert_eq!(
        session.run("_ * 2, Out[2], In[2]").await.plain(),
        "(42, 21, 'x + math.floor(1.5)')"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_stand_in_order() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
import sys, subprocess
print('one')
print('warning', file=sys.stderr)
subprocess.run(['echo', 'two'])
!echo three
display('four')
print('five', end='')
'six'";
    let seen = session.run(code).await;
    let expected = [
        ("stdout", "one\n"),
        ("stderr", "warning\n"),
        ("stdout", "two\nthree\n"),
        ("display", "'four'"),
        ("stdout", "five"),
        ("result", "'six'"),
    ];
    assert_eq!(seen.brief(), expected);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rich_outputs_are_captured() {
    let Some(mut session) = start().await else {
        return;
    };
    let seen = session
        .run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
        .await;
    let Output::Result { data } = &seen.outputs[0] else {
        panic!("{seen:?}")
    };
    assert!(data["text/html"].contains("<table") && data["text/plain"].contains("a"));

    let seen = session
        .run("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.title('中文')\nprint('after')")
        .await;
    let display = seen.outputs.iter().find_map(|output| match output {
        Output::Display { data } => Some(data),
        _ => None,
    });
    let data = display.unwrap_or_else(|| panic!("no figure: {seen:?}"));
    assert!(data["image/png"].starts_with("iVBOR"));
    assert_eq!(data["text/plain"], "<Figure size 640x480 with 1 Axes>");
    let figure_last = seen.brief().iter().position(|(kind, _)| *kind == "display");
    assert_eq!(
        figure_last,
        Some(seen.brief().len() - 1),
        "figures are shown at the end: {seen:?}"
    );

    let seen = session
        .run("%matplotlib inline\nfrom PIL import Image\nImage.new('RGB', (3, 3))")
        .await;
    assert!(
        matches!(&seen.outputs[0], Output::Result { data } if data["image/png"].starts_with("iVBOR"))
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_come_with_their_traceback() {
    let Some(mut session) = start().await else {
        return;
    };
    let error = session
        .run("def f():\n    return 1 / 0\nprint('before')\nf()")
        .await
        .error
        .unwrap();
    assert_eq!(
        (error.ename.as_str(), error.evalue.as_str()),
        ("ZeroDivisionError", "division by zero")
    );
    assert!(
        error.traceback.contains("in f()") && error.traceback.contains("1 / 0"),
        "{}",
        error.traceback
    );
    assert!(!error.traceback.contains('\x1b'));

    let error = session.run("x = = 1").await.error.unwrap();
    assert_eq!(error.ename, "SyntaxError");
    let error = session.run("import sys; sys.exit(3)").await.error.unwrap();
    assert_eq!(error.ename, "SystemExit");
    let seen = session.run("exit()\nprint('\\ud800', float('nan'))").await;
    assert_eq!(seen.error, None);
    assert_eq!(session.run("2").await.plain(), "2");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipython_semantics_hold() {
    let Some(mut session) = start().await else {
        return;
    };
    let seen = session.run("%%bash\necho from bash").await;
    assert_eq!(seen.text("stdout"), "from bash\n");
    let seen = session.run("names = !echo a; echo b\nnames").await;
    assert_eq!(seen.plain(), "['a', 'b']");
    let seen = session.run("import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.gather(*[asyncio.sleep(0, i) for i in range(3)])").await;
    assert_eq!(seen.plain(), "[0, 1, 2]");
    let seen = session.run("%%time\nsum(range(10))").await;
    assert!(seen.text("stdout").contains("Wall time: …"), "{seen:?}");
    assert_eq!(session.run("%pwd").await.plain(), "'/workspace'");
    assert_eq!(session.run("5;").await.outputs, []);
    for code in ["input('name? ')", "import getpass; getpass.getpass()"] {
        let error = session.run(code).await.error.unwrap();
        assert_eq!(error.ename, "StdinNotImplementedError");
        assert!(
            error.evalue.contains("input() is not available"),
            "{}",
            error.evalue
        );
    }
    let error = session.run("import subprocess\nsubprocess.run(['cat'], check=True, timeout=5); open('/dev/stdin').read()").await.error;
    assert_eq!(error, None, "standard input is empty, not waiting");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pip_explains_itself() {
    let Some(mut session) = start().await else {
        return;
    };
    for code in [
        "%pip install nosuchpackage",
        "!pip install nosuchpackage",
        "!python -m pip install nosuchpackage",
    ] {
        let seen = session.run(code).await;
        assert!(
            seen.text("stderr")
                .contains("packages cannot be installed here"),
            "{code}: {seen:?}"
        );
    }
    let seen = session.run("!pip install -q pandas").await;
    assert!(
        seen.text("stdout")
            .starts_with("Requirement already satisfied: pandas"),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wheelhouse_can_be_installed_from() {
    let folder = shared_folder();
    make_wheel(folder.path());
    let spec = SessionSpec {
        wheelhouse: Some(folder.path().to_owned()),
        ..SessionSpec::default()
    };
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    let seen = session.run("%pip install -q tinywheel").await;
    let seen = (
        seen,
        session.run("import tinywheel; tinywheel.ANSWER").await,
    );
    assert_eq!(seen.1.plain(), "42", "{seen:?}");
    let seen = session.run("!pip install -q othername").await;
    assert!(
        seen.text("stderr").contains("No matching distribution"),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_interrupts_and_the_session_lives_on() {
    let Some(mut session) = start_with(with_limits(|limits| limits.cell_seconds = 2)).await else {
        return;
    };
    session.run("x = 7").await;
    for code in [
        "print('begun')\nwhile True: pass",
        "print('begun')\n!sleep 60",
        "print('begun')\nimport subprocess; subprocess.run(['sleep', '60'])",
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
    let Some(mut session) = start_with(with_limits(|limits| limits.cell_seconds = 2)).await else {
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
async fn an_interrupt_from_elsewhere_works() {
    let Some(mut session) = start().await else {
        return;
    };
    let handle = session.inner.interrupt_handle();
    handle.interrupt(); // nothing runs: no effect on the next cell
    assert_eq!(session.run("'fine'").await.plain(), "'fine'");
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        handle.interrupt();
    });
    let begun = Instant::now();
    let seen = session.run("import time\ntime.sleep(50)").await;
    assert_eq!(seen.stopped, Some(Stopped::Interrupted));
    assert!(begun.elapsed() < Duration::from_secs(45));
    later.await.unwrap();
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn death_is_told_and_the_session_starts_anew() {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_same_seed_gives_equal_observations() {
    const CELLS: &[&str] = &[
        "import random, numpy as np, uuid, tempfile, os\nrandom.random(), random.Random().random(), np.random.rand(2), np.random.default_rng().random()",
        "class Thing: pass\nthings = {Thing() for _ in range(50)}\nprint(list(things)[:3], hash('text'), {str(i) for i in range(9)})",
        "print(uuid.uuid4(), tempfile.mkdtemp(), os.getpid(), object())",
        "import pandas as pd\ndf = pd.DataFrame(np.random.randn(5, 2)).sample(frac=1)\ndisplay(df.style.highlight_max()); df",
        "import matplotlib.pyplot as plt\nplt.scatter(*np.random.rand(2, 9)); plt.savefig('output/a.png'); plt.show()",
        "from sklearn.cluster import KMeans\nKMeans(3, n_init=2).fit(np.random.rand(30, 2)).inertia_",
        "from faker import Faker\nFaker().name()",
        "import folium\nfolium.Map()._repr_html_()[:20000]",
        "from tqdm import tqdm\nfor _ in tqdm(range(3)): pass",
        "import jieba\nlist(jieba.cut('我来到北京清华大学'))",
    ];
    let mut runs = Vec::new();
    for seed in [11, 11, 12] {
        let spec = SessionSpec {
            seed,
            ..SessionSpec::default()
        };
        let Some(mut session) = start_with(spec).await else {
            return;
        };
        let mut seen = Vec::new();
        for cell in CELLS {
            let observation = session.run(cell).await;
            assert_eq!(observation.error, None, "{cell}");
            seen.push(observation);
        }
        seen.push(session.run("random.random()").await);
        runs.push((seen, session.outputs().await));
        session.close().await;
    }
    for (first, second) in runs[0].0.iter().zip(&runs[1].0) {
        assert_eq!(first, second);
    }
    assert_eq!(runs[0].1, runs[1].1);
    assert_ne!(runs[0].0[0], runs[2].0[0], "another seed is another run");
}

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
    let Some(interpreter) = interpreter_of(tier_of(module_path!())) else {
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
async fn sessions_run_side_by_side() {
    let Some(interpreter) = interpreter_of(tier_of(module_path!())) else {
        return;
    };
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            let interpreter = interpreter.clone();
            tokio::spawn(async move {
                let mut session = Live {
                    inner: interpreter.start(SessionSpec::default()).await.unwrap(),
                };
                session
                    .run(&format!(
                        "x = {number}; open('output/x', 'w').write(str(x))"
                    ))
                    .await;
                let text = session.run("x, open('output/x').read()").await.plain();
                session.close().await;
                assert_eq!(text, format!("({number}, '{number}')"));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn limits_have_sane_defaults() {
    let limits = Limits::default();
    assert!(limits.file_mib <= limits.memory_mib);
}

#[tokio::test(flavor = "multi_thread")]
async fn displays_of_every_kind_are_kept() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
from IPython.display import *
display(HTML('<b>x</b>'), Markdown('**x**'), Latex('$x$'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'),
        JSON({'a': [1]}), Javascript('x()'), Image(data=b'\\x89PNG\\r\\n\\x1a\\n', format='png'))
display({'application/x-own': {'a': 1}, 'text/plain': 'own'}, raw=True)";
    let seen = session.run(code).await;
    let mimes: Vec<_> = seen
        .outputs
        .iter()
        .flat_map(|output| match output {
            Output::Display { data } => data.keys().cloned().collect(),
            _ => Vec::new(),
        })
        .filter(|mime| mime != "text/plain")
        .collect();
    let expected = [
        "text/html",
        "text/markdown",
        "text/latex",
        "image/svg+xml",
        "application/json",
        "application/javascript",
        "image/png",
        "application/x-own",
    ];
    assert_eq!(mimes, expected, "{seen:?}");
    let seen = session
        .run("handle = display('one', display_id=True)\nhandle.update('two')\nclear_output()")
        .await;
    assert_eq!(
        seen.brief(),
        [("display", "'one'"), ("display", "'two'")],
        "what was shown stays"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn magics_work() {
    let Some(mut session) = start().await else {
        return;
    };
    let text = |seen: &pybench::interpreter::Observation| seen.text("stdout");
    session
        .run("%%writefile output/part.py\nvalue = 6 * 7\nprint('ran')")
        .await;
    let seen = session.run("%run output/part.py\nvalue").await;
    assert_eq!(
        (text(&seen).as_str(), seen.plain().as_str()),
        ("ran\n", "42")
    );
    let seen = session
        .run("%%capture caught\nprint('hidden'); display(1)")
        .await;
    assert_eq!(seen.outputs, []);
    assert_eq!(session.run("caught.stdout").await.plain(), "'hidden\\n'");
    let seen = session.run("%timeit -n 2 -r 2 pass").await;
    assert_eq!(text(&seen), "… per loop\n");
    let seen = session.run("%%sh\necho shell; echo bad >&2; exit 3").await;
    assert_eq!(
        (text(&seen).as_str(), seen.text("stderr").as_str()),
        ("shell\n", "bad\n")
    );
    assert_eq!(seen.error.unwrap().ename, "CalledProcessError");
    let seen = session.run("!exit 7\n_exit_code").await;
    assert_eq!(seen.plain(), "7");
    let seen = session.run("name = 'x y'\n!echo {name} $name").await;
    assert_eq!(text(&seen), "x y x y\n");
    session.run("%cd output").await;
    assert_eq!(session.run("%pwd").await.plain(), "'/workspace/output'");
    let seen = session.run("%%html\n<i>x</i>").await;
    assert!(
        matches!(&seen.outputs[0], Output::Display { data } if data["text/html"] == "<i>x</i>\n")
    );
    let seen = session.run("%nosuchmagic").await;
    assert!(seen.text("stderr").contains("not found"), "{seen:?}");
    session
        .run("%config InlineBackend.figure_format = 'svg'")
        .await;
    let seen = session.run("len?").await;
    assert!(
        seen.outputs.is_empty() || !seen.text("stdout").is_empty(),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_cells_share_one_loop() {
    let Some(mut session) = start().await else {
        return;
    };
    session
        .run("import asyncio\nasync def later(x): await asyncio.sleep(0.01); return x\ntask = asyncio.create_task(later(5))\nawait asyncio.sleep(0)")
        .await;
    assert_eq!(session.run("await task").await.plain(), "5");
    let code = "async def numbers():\n    for i in range(3): yield i\n[i async for i in numbers()]";
    assert_eq!(session.run(code).await.plain(), "[0, 1, 2]");
    let seen = session.run("asyncio.run(later(6))").await;
    assert_eq!(seen.plain(), "6", "{seen:?}");
    let error = session.run("await later(1 / 0)").await.error.unwrap();
    assert_eq!(error.ename, "ZeroDivisionError");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_and_late_output_are_heard() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "import threading, time\nt = threading.Thread(target=lambda: print('from a thread')); t.start(); t.join()";
    assert_eq!(session.run(code).await.text("stdout"), "from a thread\n");
    session
        .run("import subprocess\nchild = subprocess.Popen('sleep 0.3; echo late', shell=True)")
        .await;
    let seen = session.run("child.wait()\nprint('after')").await;
    assert_eq!(seen.text("stdout"), "late\nafter\n");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comms_are_ignored() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
try:
    from comm import create_comm
    create_comm(target_name='x', data={}).send({})
except ImportError:
    pass
'fine'";
    let seen = session.run(code).await;
    assert_eq!(
        (seen.plain().as_str(), seen.outputs.len()),
        ("'fine'", 1),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_is_ended_and_the_next_cell_is_told() {
    let Some(mut session) = start_with(with_limits(|limits| limits.idle_seconds = Some(1))).await
    else {
        return;
    };
    session
        .run("x = 1; open('output/kept', 'w').write('y')")
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seen = session
        .run("'x' in dir(), open('output/kept').read()")
        .await;
    assert_eq!(seen.plain(), "(False, 'y')");
    assert!(seen.text("stderr").contains("no cell for 1 s"), "{seen:?}");
    let seen = session.run("1").await;
    assert_eq!(seen.text("stderr"), "");
    assert!(matches!(
        session.inner.fork().await,
        Err(InterpreterError::Fork(_))
    ));
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_session_goes_its_own_way() {
    let spec = SessionSpec {
        seed: 5,
        ..SessionSpec::default()
    };
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    session
        .run("import random, time\nx = [random.random()]\nopen('output/a', 'w').write(str(time.time_ns()))")
        .await;
    session.run("1 / 0").await;
    let (copy, kind) = session.inner.fork().await.unwrap();
    let mut copy = Live { inner: copy };
    assert!(matches!(kind, ForkKind::Process | ForkKind::Replay));
    let look = "x, random.random(), open('output/a').read(), In[1][:6]";
    let (ours, theirs) = (session.run(look).await, copy.run(look).await);
    assert_eq!(ours, theirs);
    session
        .run("x = 'ours'; open('output/a', 'w').write('ours')")
        .await;
    copy.run("x = 'theirs'; open('output/b', 'w').write('theirs')")
        .await;
    assert_eq!(session.run("x").await.plain(), "'ours'");
    assert_eq!(copy.run("x").await.plain(), "'theirs'");
    let (mine, other) = (session.outputs().await, copy.outputs().await);
    let paths = |found: &pybench::interpreter::Collected| -> Vec<String> {
        found.files.iter().map(|file| file.path.clone()).collect()
    };
    assert_eq!(paths(&mine), ["output/a"]);
    assert_eq!(paths(&other), ["output/a", "output/b"]);
    assert_eq!(mine.files[0].bytes, b"ours");
    session.close().await;
    assert_eq!(copy.run("x").await.plain(), "'theirs'");
    copy.close().await;
}
