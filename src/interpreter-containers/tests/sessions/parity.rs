//! The tiers show a session the same world: equal cells give equal observations, byte for byte.

use pybench_interpreter::SessionSpec;
use pybench_interpreter::Tier;
use pybench_testing::sessions::*;

/// What cells see of random state, packages, files, processes, errors and figures.
const CELLS: &[&str] = &[
    "import random\nprint(random.random(), random.Random().random())",
    "import os, sys, uuid, secrets, tempfile\nprint(uuid.uuid4(), secrets.token_hex(4), tempfile.mkdtemp())",
    "import numpy as np\nprint(np.random.rand(2), np.random.default_rng().random(), np.random.RandomState().rand())",
    "from faker import Faker\nprint(Faker().name(), Faker('zh_CN').address())",
    "print(sys.path, sys.argv, sys.executable, sys.prefix, sys.flags)",
    "print(dict(os.environ), os.getcwd(), os.getpid(), os.getuid(), os.getgid(), os.getgroups())",
    "print(sorted(os.listdir('/')), sorted(os.listdir('/tmp')), sorted(os.listdir('/dev')), sorted(os.listdir('/etc')))",
    "print([(root, sorted(folders), sorted(files)) for root, folders, files in os.walk('/opt/pybench')])",
    "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')), open('output/x', 'w').fileno())",
    "import resource\nprint([(n, resource.getrlimit(getattr(resource, n))) for n in dir(resource) if n.startswith('RLIMIT_')])",
    "import signal\nprint([signal.getsignal(s) for s in sorted(signal.valid_signals())])",
    "print([(n, os.stat(n).st_mode, os.stat(n).st_uid) for n in ['.', 'data', 'output', '/tmp', '/tmp/.ipython', '/tmp/matplotlib', '/dev/shm', '/usr', '/opt/env']])",
    "import socket\nprint(socket.gethostname(), socket.if_nameindex(), os.umask(0o22))",
    "print(sorted(get_ipython().user_ns), sorted(globals()), len(get_ipython().events.callbacks['post_run_cell']))",
    "%who\n%lsmagic",
    "!id; ls -la /workspace | grep -v ' \\.\\.$' | sed 's/[A-Z][a-z][a-z] .*:[0-9][0-9]//'; cat /proc/self/limits; ulimit -a; df -P /tmp /workspace /dev/shm | awk '{print $2, $6}'",
    "1 / 0",
    "def f(x):\n    return np.array([1, 2]) @ np.array(x)\nf([1, 2, 3])",
    "import pandas as pd\npd.read_csv('nothing.csv')",
    "pd.DataFrame({'a': [1]})['b']",
    "df = pd.DataFrame(np.random.randn(5, 3), columns=list('abc'))\ndisplay(df.describe(), df.style)\ndf",
    "df.plot(kind='bar', title='中文')",
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.scatter(*np.random.rand(2, 9))\nplt.savefig('output/a.png')\nplt.show()",
    "import matplotlib\nprint(matplotlib.get_backend(), {k: v for k, v in matplotlib.rcParams.items() if not k.startswith('_')})",
    "from scipy import stats\nstats.norm.rvs(size=3), stats.ttest_ind([1, 2, 3], [2, 3, 5])",
    "from sklearn.cluster import KMeans\nKMeans(3, n_init=2).fit(np.random.rand(30, 2)).inertia_",
    "import seaborn, networkx, statsmodels.api, jieba\nlist(jieba.cut('我来到北京清华大学'))",
    "from PIL import Image\nImage.fromarray(np.random.randint(0, 255, (8, 8, 3), dtype='uint8'))",
    "import warnings\nwarnings.warn('careful')\nprint(warnings.filters)",
    "import logging\nlogging.getLogger('x').warning('heard')\nprint(logging.root.handlers, logging.root.level)",
    "import threading, multiprocessing\nprint(threading.enumerate(), multiprocessing.get_start_method())",
    "print(random.random(), np.random.rand(), uuid.uuid4(), hash('text'), {str(i) for i in range(9)})",
    "import locale, time, datetime\nprint(locale.getlocale(), time.tzname, sys.stdout.encoding, sys.stdout.line_buffering, sys.getrecursionlimit())",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_tiers_show_the_same() {
    let spec = || SessionSpec {
        inputs: [("data/given.csv".to_owned(), "Cargo.toml".into())].into(),
        seed: 7,
        ..SessionSpec::default()
    };
    let (Some(mut jail), Some(mut bwrap)) = (
        start_in(Tier::Jail, spec()).await,
        start_in(Tier::Bwrap, spec()).await,
    ) else {
        return;
    };
    let mut differ = Vec::new();
    for cell in CELLS {
        let (ours, theirs) = (jail.run(cell).await, bwrap.run(cell).await);
        if ours != theirs {
            differ.push(format!("{cell}\n  jail:  {ours:?}\n  bwrap: {theirs:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    assert_eq!(jail.outputs().await, bwrap.outputs().await);
    jail.close().await;
    bwrap.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_jail_cells_run_all_the_same() {
    let Some(mut session) = start_in(Tier::Unsandboxed, SessionSpec::default()).await else {
        return;
    };
    session
        .run("import os; open('output/x', 'w').write('y')")
        .await;
    assert!(
        session
            .run("os.listdir('.')")
            .await
            .plain()
            .contains("output")
    );
    assert_eq!(session.outputs().await.files.len(), 1);
    session
        .run("import subprocess; subprocess.Popen(['sleep', '60'])")
        .await;
    session.close().await;
    let warnings = interpreter_of(Tier::Unsandboxed).unwrap().warnings();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("not isolated")),
        "{warnings:?}"
    );
}
