//! `pybench init` on a folder of one's own files: the recipe works, and its tasks use the files.

use std::fs;
use std::path::Path;
use std::process::Output;

use pybench_run::ExitCode;
use pybench_testing::sessions::default_interpreter_works as interpreter_is_here;
use pybench_types::task::Task;

use crate::support::fixture::code;

fn pybench(command: &str, args: &[&str], folder: &Path) -> Output {
    let mut program = crate::support::pybench(command);
    program
        .args(args)
        .current_dir(folder)
        .env_remove("PYBENCH_ROOT");
    program.output().unwrap()
}

fn succeeded(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), Some(0), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr
}

/// Two tables, a text, a text with a hostile name, a broken workbook, and a program.
fn write_files(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let cities = ["Rom", "Paris", "Wien", "Oslo"];
    let rows = (0..60).map(|i| format!("{},{},{}.5\n", cities[i % 4], 1990 + i, i * i % 17));
    let table: String = rows.collect();
    fs::write(
        folder.join("sales.csv"),
        format!("city,year,price\n{table}"),
    )
    .unwrap();
    let rows = (0..40).map(|i| format!("{},{}\n", ["a", "b", "c"][i % 3], i));
    let table: String = rows.collect();
    fs::write(folder.join("stock.csv"), format!("kind,count\n{table}")).unwrap();
    let text = "# Notes\n\nThe first year was good. The second was better.\n".repeat(20);
    fs::write(folder.join("notes.md"), &text).unwrap();
    fs::write(folder.join("odd\nname = 1.txt"), "A line.\n".repeat(30)).unwrap();
    fs::write(folder.join("broken.xlsx"), b"PK\x03\x04broken").unwrap();
    fs::write(folder.join("tool.exe"), b"MZ\0\0").unwrap();
}

#[test]
fn a_folder_becomes_a_recipe_whose_tasks_use_its_files() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write_files(&root.join("Sales 2024"));
    let said = succeeded(&pybench("init", &["--files", "Sales 2024"], root));
    for part in [
        "6 files found: 4 usable (2 csv, 1 txt, 1 md), 1 broken, 1 left out",
        "1 broken: not a readable office package",
        "wrote sales-2024-tasks.toml and .gitignore",
        "pybench synthesize sales-2024-tasks.toml --preview 5",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let recipe = fs::read_to_string(root.join("sales-2024-tasks.toml")).unwrap();
    assert!(recipe.contains("path = \"Sales 2024\""), "{recipe}");
    assert!(
        recipe.contains("#   broken.xlsx: not a readable"),
        "{recipe}"
    );
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap();
    assert!(ignored.contains("/data/runs/"), "{ignored}");
    // Nothing else is left behind, and nothing is overwritten.
    assert!(!root.join("data").exists());
    let again = pybench("init", &["--files", "Sales 2024"], root);
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(
        code(&again) == Some(ExitCode::BadInput as i32) && stderr.contains("--recipe"),
        "{stderr}"
    );

    let said = succeeded(&pybench("crawl", &["sales-2024-tasks.toml"], root));
    assert!(said.contains("crawl: 6 files found: 4 usable"), "{said}");
    if !interpreter_is_here() {
        return;
    }
    succeeded(&pybench("query", &["sales-2024-tasks.toml"], root));
    let tasks = fs::read_to_string(root.join("data/runs/sales-2024-tasks/tasks.jsonl")).unwrap();
    let tasks: Vec<Task> = tasks
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(tasks.len() > 5, "{} tasks", tasks.len());
    assert!(tasks.iter().all(|task| !task.files.is_empty()));
}

#[test]
fn a_folder_without_usable_files_is_refused_with_the_reasons() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::create_dir(root.join("f")).unwrap();
    fs::write(root.join("f/tool.exe"), b"MZ\0\0").unwrap();
    for (folder, reason) in [
        ("f", "no known signature and no known extension"),
        ("g", "--files g: no such folder"),
        ("s3://bucket", "expected s3://BUCKET/PATH"),
        ("hf://datasets/o/n", "a recipe names a commit"),
    ] {
        let output = pybench("init", &["--files", folder], root);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(ExitCode::BadInput as i32), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
    assert!(!root.join("f-tasks.toml").exists());
}
