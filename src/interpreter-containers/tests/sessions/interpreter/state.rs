//! What sessions begin with, share and do not: seeds, folders, neighbors, branches.

use std::time::Instant;

use super::{start, start_with};
use pybench_interpreter::{InterpreterError, SessionSpec};
use pybench_testing::sessions::*;

#[tokio::test(flavor = "multi_thread")]
async fn workbooks_carry_the_time_only_in_sessions_that_are_not_replayed() {
    const WRITE: &str = "import re, zipfile, pandas as pd\n\
        for engine in ['xlsxwriter', 'openpyxl']:\n    \
            pd.DataFrame({'a': [1]}).to_excel('output/a.xlsx', engine=engine)\n    \
            book = zipfile.ZipFile('output/a.xlsx')\n    \
            dates = re.findall(r'W3CDTF\">(....)', book.read('docProps/core.xml').decode())\n    \
            print(dates, {part.date_time[0] for part in book.infolist()}, len(pd.read_excel('output/a.xlsx')))\n\
        print(os.environ.get('SOURCE_DATE_EPOCH'))";
    for system_randomness in [false, true] {
        let spec = SessionSpec {
            system_randomness,
            ..SessionSpec::default()
        };
        let Some(mut session) = start_with(spec).await else {
            return;
        };
        session.run("import os").await;
        let seen = session.run(WRITE).await.text("stdout");
        let fixed = "['1980', '1980'] {1980} 1";
        assert_eq!(
            seen.contains(&format!("{fixed}\n{fixed}\n315532800")),
            !system_randomness,
            "{seen}"
        );
        assert_eq!(seen.contains("None"), system_randomness, "{seen}");
    }
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
async fn sessions_run_side_by_side() {
    let Some(interpreter) = interpreter_of(super::tier()) else {
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
    let copy = session.inner.fork().await.unwrap();
    let mut copy = Live { inner: copy };
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
    let paths = |found: &pybench_interpreter::Collected| -> Vec<String> {
        found.files.iter().map(|file| file.path.clone()).collect()
    };
    assert_eq!(paths(&mine), ["output/a"]);
    assert_eq!(paths(&other), ["output/a", "output/b"]);
    assert_eq!(mine.files[0].bytes, b"ours");
    session.close().await;
    assert_eq!(copy.run("x").await.plain(), "'theirs'");
    copy.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_folders_are_fresh() {
    const LOOK: &str = "
import os, tempfile
sorted(os.listdir('/tmp')), os.listdir('/dev/shm'), tempfile.gettempdir(), os.path.expanduser('~')";
    const LEAVE: &str = "
for folder in ('/tmp', '/dev/shm'): open(folder + '/left', 'w').write('x')
os.path.dirname(tempfile.mkdtemp())";
    let (Some(mut one), Some(mut two)) = (start().await, start().await) else {
        return;
    };
    let fresh = one.run(LOOK).await.plain();
    assert!(fresh.ends_with("[], '/tmp', '/tmp')"), "{fresh}");
    assert_eq!(one.run(LEAVE).await.plain(), "'/tmp'");
    assert_ne!(one.run(LOOK).await.plain(), fresh);
    assert_eq!(
        two.run(LOOK).await.plain(),
        fresh,
        "of one that runs beside it"
    );
    one.run("os._exit(0)").await;
    assert_eq!(one.run(LOOK).await.plain(), fresh, "of one that restarts");
    one.close().await;
    two.close().await;
    let Some(mut three) = start().await else {
        return;
    };
    assert_eq!(
        three.run(LOOK).await.plain(),
        fresh,
        "of one that starts later"
    );
    three.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_seed_is_the_environments() {
    const LOOK: &str = "
import subprocess, sys
print(hash('text'), hash('other'))
!{sys.executable} -c \"print(hash('text'), hash('other'))\"";
    let mut seen = Vec::new();
    for seed in [1, 2] {
        let spec = SessionSpec {
            seed,
            ..SessionSpec::default()
        };
        let Some(mut session) = start_with(spec).await else {
            return;
        };
        seen.push(session.run(LOOK).await.text("stdout"));
        session.close().await;
    }
    let lines: Vec<&str> = seen.iter().flat_map(|text| text.lines()).collect();
    assert_eq!(lines.len(), 4, "{seen:?}");
    assert!(lines.iter().all(|line| *line == lines[0]), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_all_of_the_state() {
    // Where nothing is warm, importing takes long on a busy machine.
    let spec = with_limits(|limits| limits.cell_seconds = 600);
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    for cell in [
        "import os, random, numpy as np, pandas as pd, matplotlib.pyplot as plt",
        "rng = np.random.default_rng(); drawn = rng.random(3), np.random.rand(), random.random()",
        "squares = (n * n for n in range(9)); next(squares), next(squares)",
        "class Thing:\n    def __init__(self): self.me = self\nthing = Thing(); alias = thing",
        "df = pd.DataFrame({'a': range(4)}).sample(frac=1)\ndf",
        "os.environ['MINE'] = 'x'; os.makedirs('output/deep'); os.chdir('output/deep')\nopen('a', 'w').write('1'); open('b', 'w').write('2'); os.remove('a')",
        "fig, ax = plt.subplots(); ax.plot([1, 2]); plt.close(fig)",
        "raise KeyError('k')",
    ] {
        session.run(cell).await;
    }
    let begun = Instant::now();
    let copy = session.inner.fork().await.unwrap();
    eprintln!("forked in {:?}", begun.elapsed());
    let mut copy = Live { inner: copy };
    let again = copy.inner.fork().await.unwrap();
    let mut again = Live { inner: again };
    for look in [
        "drawn, rng.random(3), np.random.rand(), random.random()",
        "next(squares), list(squares), thing.me is alias, df, os.environ['MINE']",
        "os.getcwd(), sorted(os.listdir()), open('b').read(), len(ax.lines), len(In), sorted(Out)",
        "open('c', 'w').write(str(random.random()))",
    ] {
        let ours = session.run(look).await;
        assert_eq!(ours.error, None, "{ours:?}");
        assert_eq!(ours, copy.run(look).await);
        assert_eq!(ours, again.run(look).await);
    }
    assert_eq!(session.outputs().await, copy.outputs().await);
    for live in [session, copy, again] {
        live.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_repeated_is_not_forked() {
    let Some(mut session) = start().await else {
        return;
    };
    session.run("import time\nprint(time.time_ns())").await;
    let refused = session.inner.fork().await.err();
    assert!(
        matches!(&refused, Some(InterpreterError::Fork(why)) if why.contains("cell 1 gave another result")),
        "{refused:?}"
    );
    assert_eq!(session.run("'lives'").await.plain(), "'lives'");
    session.close().await;
}
