//! What cells show: results, displays, errors, magics, children.

use super::{start, start_with};
use pybench_testing::sessions::*;
use pybench_types::observation::Output;

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
    let error = session.run("import subprocess\nsubprocess.run(['cat'], check=True, timeout=60); open('/dev/stdin').read()").await.error;
    assert_eq!(error, None, "standard input is empty, not waiting");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn magics_work() {
    let Some(mut session) = start().await else {
        return;
    };
    let text = |seen: &pybench_types::observation::Observation| seen.text("stdout");
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
    // It speaks in the second cell, however late that comes.
    session
        .run("import subprocess\nchild = subprocess.Popen('until [ -e go ]; do sleep 0.05; done; echo late', shell=True)")
        .await;
    let seen = session
        .run("open('go', 'w').close()\nchild.wait()\nprint('after')")
        .await;
    assert_eq!(seen.text("stdout"), "late\nafter\n");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comms_are_ignored() {
    let Some(mut session) = start().await else {
        return;
    };
    let code = "
from comm import create_comm
heard = []
one = create_comm(target_name='x', data={'a': 1}, buffers=[b'y'])
one.on_msg(heard.append); one.send({'b': 2}); one.close()
manager = get_ipython().kernel.comm_manager
manager.register_target('x', heard.append)
manager.unregister_target('x', heard.append)
heard";
    let seen = session.run(code).await;
    assert_eq!(seen.brief(), [("result", "[]")], "{seen:?}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_inside_the_jail() {
    let Some(mut session) = start().await else {
        return;
    };
    let seen = session
        .run("!id -u; hostname; pwd; grep -E '^(NoNewPrivs|CapBnd)' /proc/self/status; ls /home /root 2>&1 | grep -c 'No such'")
        .await;
    assert_eq!(
        seen.text("stdout"),
        "1000\nsandbox\n/workspace\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n2\n",
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_outputs_are_dropped_and_too_large_figures_are_named() {
    let Some(mut session) = start().await else {
        return;
    };
    let many = "from IPython.display import HTML, display\nfor _ in range(16): display(HTML('x' * (5 << 20)))\n1";
    let seen = session.run(many).await;
    assert_eq!((seen.stopped, seen.plain()), (None, String::new()));
    assert!(seen.text("stderr").contains("further outputs were dropped"));
    let large = "get_ipython().display_pub.wire.send_chart(None, {'version': 1, 'axes': ['x' * (3 << 20)]})";
    let seen = session.run(large).await;
    let [Output::Chart { figure, .. }] = &seen.outputs[..] else {
        panic!("{seen:?}");
    };
    assert!(figure.as_str().contains("too large"), "{figure:?}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_recorded_when_saved_and_when_shown() {
    // Where nothing is warm, importing takes long on a busy machine.
    let spec = with_limits(|limits| limits.cell_seconds = 600);
    let Some(mut session) = start_with(spec).await else {
        return;
    };
    let seen = session
        .run("import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.savefig('output/a.png')\nplt.title('later')")
        .await;
    let charts: Vec<_> = seen
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::Chart { path, figure } => Some((path.as_deref(), figure.as_str().to_owned())),
            _ => None,
        })
        .collect();
    let [(Some("output/a.png"), saved), (None, shown)] = &charts[..] else {
        panic!("{charts:?}");
    };
    assert!(
        !saved.contains("later") && shown.contains("later"),
        "{charts:?}"
    );
    session.close().await;
}
