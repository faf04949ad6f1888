//! Writes Harbor task folders: an image with the pinned Python packages of our sessions, the instruction, the
//! checker with the task's reference as the test, and the expert's cells as the solution. Running a task does
//! not need pybench. Files that are the same for every task are in `pipelines/library/export/harbor`.

use std::path::Path;

use pybench_checks::{checker_sources, checker_task};
use pybench_interpreter::{recorder, requirements};
use pybench_run::{ContentStore, RunError};
use pybench_types::task::{Language, Task, TaskFile, TaskOrigin};

use super::export_check::CheckedTask;
use super::tree::Tree;

const DOCKERFILE: &str = include_str!("../../export/harbor/Dockerfile");
const SITECUSTOMIZE: &str = include_str!("../../export/harbor/sitecustomize.py");
const SCORE: &str = include_str!("../../export/harbor/score.py");
const SOLVE: &str = include_str!("../../export/harbor/solve.py");

const TEST_SH: &str = "#!/bin/sh\nexec python3 -P -s \"$(dirname \"$0\")/score.py\"\n";
const SOLVE_SH: &str = "#!/bin/sh\nexec python3 \"$(dirname \"$0\")/solve.py\"\n";
/// The Dockerfile line that copies the input files into the image; omitted if there are none.
const COPY_DATA: &str = "COPY data /app/data\n";

/// A task with a solution that passes its checks.
pub struct SolvedTask {
    /// Name of its folder.
    pub name: String,
    /// The seed that it was made with, if it has one of its own.
    pub seed: Option<u64>,
    pub task: Task,
    /// The expert's cells as they were run.
    pub cells: Vec<String>,
    /// The expert's answer.
    pub answer: String,
}

impl From<&CheckedTask> for SolvedTask {
    fn from(checked: &CheckedTask) -> Self {
        Self {
            name: checked.key.to_string(),
            seed: Some(checked.key.seed),
            task: checked.task.clone(),
            cells: checked.cells.clone(),
            answer: checked.answer.clone(),
        }
    }
}

/// Writes the folders of tasks to `out`, which must not exist or must be empty; it appears when it is complete.
///
/// # Errors
/// [`RunError::Conflict`] if `out` holds something; a file cannot be read or written.
pub fn write_folders(
    out: &Path,
    tasks: &[SolvedTask],
    store: &ContentStore,
) -> Result<(), RunError> {
    let tree = Tree::create(out)?;
    for task in tasks {
        write(&tree, task, store)?;
    }
    tree.finish()
}

/// Writes the folder of one task.
pub(super) fn write(
    tree: &Tree,
    solved: &SolvedTask,
    store: &ContentStore,
) -> Result<(), RunError> {
    let (task, name) = (&solved.task, &solved.name);
    let put = |path: &str, content: &str| tree.file(&format!("{name}/{path}"), content);
    put("task.toml", &settings(solved)?)?;
    put("instruction.md", &instruction(task))?;
    environment(tree, name, task, store)?;
    tests(tree, name, task, store)?;
    tree.program(&format!("{name}/solution/solve.sh"), SOLVE_SH)?;
    put("solution/solve.py", SOLVE)?;
    put("solution/answer.txt", &solved.answer)?;
    for (number, cell) in solved.cells.iter().enumerate() {
        put(&format!("solution/cells/{:02}.py", number + 1), cell)?;
    }
    Ok(())
}

fn settings(solved: &SolvedTask) -> Result<String, RunError> {
    let task = &solved.task;
    let text = |value: &str| toml::Value::from(value).to_string();
    let language = serde_json::to_value(task.language)?;
    let language = language.as_str().unwrap_or_default();
    let made_of = match &task.origin {
        TaskOrigin::Library { template, .. } => format!("template = {}\n", text(template)),
        TaskOrigin::Composed { skeleton, .. } => format!("operations = {}\n", text(skeleton)),
        _ => String::new(),
    };
    let seed = solved.seed.map(|seed| format!("seed = \"{seed}\"\n"));
    Ok(format!(
        "schema_version = \"1.1\"\n\n\
         [task]\n\
         name = \"pybench/{name}\"\n\
         description = {description}\n\
         keywords = [{category}, {keyword}]\n\n\
         [metadata]\n\
         category = {category}\n\
         {made_of}\
         language = {language}\n\
         {seed}\
         task_id = \"{id}\"\n\n\
         [agent]\n\
         timeout_sec = 900.0\n\
         user = \"agent\"\n\n\
         [verifier]\n\
         timeout_sec = 1500.0\n\
         user = \"root\"\n\n\
         [environment]\n\
         build_timeout_sec = 1800.0\n\
         cpus = 2\n\
         memory_mb = 4096\n\
         storage_mb = 10240\n",
        name = solved.name,
        description = text(&format!("{}, written by pybench", task.keyword)),
        category = text(task.category.name()),
        keyword = text(&task.keyword),
        language = text(language),
        seed = seed.unwrap_or_default(),
        id = task.id,
    ))
}

/// The query, the location of the files, and the path of the answer file, which is how the answer reaches the
/// checks.
fn instruction(task: &Task) -> String {
    let files: Vec<_> = task
        .files
        .iter()
        .map(|f| format!("`data/{}`", f.name))
        .collect();
    let files = files.join(", ");
    let place = match (task.language, files.is_empty()) {
        (Language::En, false) => format!(
            "Work in `/app`, to which every path above is relative; {files} lies there. Python 3 with the usual \
             packages is installed. Save files under `output/`."
        ),
        (Language::En, true) => "Work in `/app`, to which every path above is relative. Python 3 with the usual \
             packages is installed. Save files under `output/`."
            .to_owned(),
        (Language::Zh, false) => format!(
            "请在 `/app` 中工作，上文的路径都相对于它，其中有 {files}。已安装 Python 3 和常用的包。文件保存在 `output/` 下。"
        ),
        (Language::Zh, true) => {
            "请在 `/app` 中工作，上文的路径都相对于它。已安装 Python 3 和常用的包。文件保存在 `output/` 下。".to_owned()
        }
    };
    let answer = match task.language {
        Language::En => {
            "At the end write your whole answer to the user, with the lines asked for, to `/app/answer.txt`."
        }
        Language::Zh => "最后请把给用户的完整回答（包括所要求的各行）写入 `/app/answer.txt`。",
    };
    format!("{}\n\n---\n\n{place}\n\n{answer}\n", task.query)
}

/// Writes the files that the image is built from.
fn environment(tree: &Tree, name: &str, task: &Task, store: &ContentStore) -> Result<(), RunError> {
    let put = |path: &str, content: &str| tree.file(&format!("{name}/environment/{path}"), content);
    let copy = if task.files.is_empty() { "" } else { COPY_DATA };
    put("Dockerfile", &format!("{DOCKERFILE}{copy}"))?;
    put("requirements.lock", requirements())?;
    put("record/sitecustomize.py", SITECUSTOMIZE)?;
    put("record/pybench_record/__init__.py", "")?;
    for (path, source) in recorder() {
        put(&format!("record/pybench_record/{path}"), source)?;
    }
    files(
        tree,
        &format!("{name}/environment/data"),
        &task.files,
        store,
    )
}

/// Writes what the verifier gets after the agent has ended: pristine inputs, reference and checker.
fn tests(tree: &Tree, name: &str, task: &Task, store: &ContentStore) -> Result<(), RunError> {
    let put = |path: &str, content: &str| tree.file(&format!("{name}/tests/{path}"), content);
    tree.program(&format!("{name}/tests/test.sh"), TEST_SH)?;
    put("score.py", SCORE)?;
    let described = checker_task(task, "check", 0);
    put("task.json", &serde_json::to_string_pretty(&described)?)?;
    for (path, source) in checker_sources() {
        put(&format!("checker/{path}"), source)?;
    }
    files(tree, &format!("{name}/tests/data"), &task.files, store)?;
    files(
        tree,
        &format!("{name}/tests/held_out"),
        &task.held_out,
        store,
    )
}

fn files(
    tree: &Tree,
    folder: &str,
    files: &[TaskFile],
    store: &ContentStore,
) -> Result<(), RunError> {
    for file in files {
        tree.file(&format!("{folder}/{}", file.name), store.get(&file.id)?)?;
    }
    Ok(())
}
