//! Installing packages.

use super::{start, start_with};
use pybench_interpreter::SessionSpec;
use pybench_testing::sessions::*;

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
