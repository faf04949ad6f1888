//! The binary as a user runs it: a run on a tiny model, killed and resumed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::data;
use pybench_test_needs::program::write_program;

/// A folder with a tiny model, conversations and a recipe.
pub(crate) struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    pub(crate) fn new(train: &str) -> Self {
        Self::shaped(&serde_json::json!({}), &format!("max_seq_len=128\n{train}"))
    }

    /// The same with other values in `config.json`, and the whole of `[train]`.
    pub(crate) fn shaped(shape: &serde_json::Value, train: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("start");
        std::fs::create_dir(&model).unwrap();
        let template = data("templates/chatml");
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(template.join(file), model.join(file)).unwrap();
        }
        let config = std::fs::read_to_string(data("llama/config.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
        config["vocab_size"] = 520.into();
        config["max_position_embeddings"] = 512.into();
        for (key, value) in shape.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let config =
            pybench_training::model::ModelConfig::parse(config.to_string().as_bytes()).unwrap();
        let random =
            pybench_training::model::Model::random(config, 3, tch::Kind::Float, tch::Device::Cpu);
        pybench_training::model::save_model(&random, &model, &model).unwrap();
        Self::of(folder, &model, train)
    }

    /// Uses an existing model.
    pub(crate) fn on(model: &Path, train: &str) -> Self {
        Self::of(tempfile::tempdir().unwrap(), model, train)
    }

    fn of(folder: tempfile::TempDir, model: &Path, train: &str) -> Self {
        let line = |n: usize| {
            let text = format!("number {n} ").repeat(1 + n % 5);
            serde_json::json!({"messages": [
                {"role": "user", "content": format!("say {n}")},
                {"role": "assistant", "content": text},
            ], "held_out_template": n.is_multiple_of(2)})
            .to_string()
        };
        let lines = |range: std::ops::Range<usize>| range.map(line).collect::<Vec<_>>().join("\n");
        std::fs::write(folder.path().join("train.jsonl"), lines(0..40)).unwrap();
        std::fs::write(folder.path().join("test.jsonl"), lines(40..46)).unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let recipe = format!(
            "name='tiny'\nseed=1\nmodel='{}'\n[[data]]\npath='{}'\n[held_out]\npath='{}'\n[train]\n{train}\n",
            model.display(),
            at("train.jsonl"),
            at("test.jsonl")
        );
        std::fs::write(folder.path().join("recipe.toml"), recipe).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, out: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-train"));
        command
            .arg("run")
            .arg(self.path("recipe.toml"))
            .arg("--out")
            .arg(self.path(out));
        // One thread: two on a busy machine wait for each other.
        command.env("OMP_NUM_THREADS", "1");
        command.env("PYBENCH_CACHE", self.path("cache"));
        command
    }

    pub(crate) fn run(&self, out: &str) -> (bool, String) {
        let output = self.command(out).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

pub(crate) fn losses(out: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap()
}

/// What `pybench-train losses` prints: loss and number of tokens of each conversation.
fn conversation_losses(model: &Path, data: &Path) -> Vec<(f64, f64)> {
    let output = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
        .arg("losses")
        .args([model, data])
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (
                line["loss"].as_f64().unwrap(),
                line["tokens"].as_f64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_run_learns_and_leaves_a_model() {
    let project = Project::new("batch_size=4\nmax_steps=30\n[optimizer]\nlearning_rate=0.02");
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    let results = losses(&project.path("out"));
    for group in ["unseen_files", "held_out_templates"] {
        let loss = |when: &str| results[when][group].as_f64().unwrap();
        assert!(loss("after") < 0.8 * loss("before"), "{results}");
    }
    assert!(project.path("out/model/model.safetensors").exists());
    assert!(project.path("out/model/tokenizer.json").exists());
    let metrics = std::fs::read_to_string(project.path("out/metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().count(), 30);
    for plot in [
        "held_out.svg",
        "loss.svg",
        "learning_rate.svg",
        "report.html",
    ] {
        let text = std::fs::read_to_string(project.path("out").join(plot)).unwrap();
        assert!(text.contains("<polyline"), "{plot}");
    }
    let curve = std::fs::read_to_string(project.path("out/held_out.jsonl")).unwrap();
    let steps = curve.lines().map(|line| {
        let point: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(point["unseen_files"].is_f64() && point["held_out_templates"].is_f64());
        point["step"].as_u64().unwrap()
    });
    assert_eq!(steps.collect::<Vec<_>>(), [0, 8, 16, 24, 30]);
    let mut events = std::fs::read_dir(project.path("out/tensorboard")).unwrap();
    let size = events.next().unwrap().unwrap().metadata().unwrap().len();
    assert!(size > 30 * 100, "{size} bytes of events");
    // Of the held-out rows, every second one has a held-out template.
    let rows = conversation_losses(&project.path("out/model"), &project.path("test.jsonl"));
    assert_eq!(rows.len(), 6);
    for (first, group) in ["held_out_templates", "unseen_files"].iter().enumerate() {
        let of_group = || rows.iter().skip(first).step_by(2);
        let sum: f64 = of_group().map(|(loss, tokens)| loss * tokens).sum();
        let tokens: f64 = of_group().map(|(_, tokens)| tokens).sum();
        let after = results["after"][*group].as_f64().unwrap();
        assert!(
            (sum / tokens - after).abs() < 1e-4 * after,
            "{rows:?} {after}"
        );
    }
}

/// A replacement of `pybench-eval` that keeps its recipe and writes a report.
const EVALUATION: &str = r#"#!/bin/sh
set -eu
recipe=$1 folder=$5/$3
mkdir -p "$folder/report"
cp "$recipe" "$folder/asked.toml"
cat > "$folder/report/report.json" <<'END'
{"agents": [{"agent": "after", "measures": [{"measure": "strict", "overall": {"rate": 0.25, "tasks": 8}}]},
            {"agent": "silent", "measures": []}]}
END
"#;

#[test]
fn a_model_is_evaluated_on_what_it_generates() {
    let project = Project::new("batch_size=2\nmax_steps=2");
    let program = project.path("evaluation");
    write_program(&program, EVALUATION);
    let asked =
        "name='mine'\ncheckpoints=true\n[agents.nobody]\nkind='script'\nscript='do-nothing'\n";
    std::fs::write(project.path("eval.toml"), asked).unwrap();
    let plain = std::fs::read_to_string(project.path("recipe.toml")).unwrap();
    let shown = program.display();
    let agents = |server: &str| {
        let more = format!("[agent_eval]\nrecipe='eval.toml'\nprogram='{shown}'\n{server}");
        std::fs::write(project.path("recipe.toml"), format!("{plain}{more}")).unwrap();
        let (good, text) = project.run("out");
        assert!(good, "{text}");
        let asked = std::fs::read_to_string(project.path("out/agent_eval/asked.toml")).unwrap();
        let asked: toml::Table = toml::from_str(&asked).unwrap();
        assert_eq!(asked["checkpoints"].as_bool(), Some(false));
        let agents = asked["agents"].as_table().unwrap().clone();
        agents
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let ours = agents("");
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        ["after", "before", "nobody"]
    );
    let model = ours["after"]["model"].as_str().unwrap();
    assert!(Path::new(model).join("model.safetensors").exists());
    let results = losses(&project.path("out"));
    let wanted = serde_json::json!({"after": {"tasks": 8, "passed": 0.25}});
    assert_eq!(results["agent_eval"], wanted);
    let page = std::fs::read_to_string(project.path("out/report.html")).unwrap();
    assert!(page.contains("25.0 % of 8"), "{page}");
    let theirs = agents("server_url='http://127.0.0.1:1/v1'\nserved_model_name='mine'\n");
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ["after", "nobody"]);
    assert_eq!(theirs["after"]["model"].as_str(), Some("mine"));
    write_program(&program, "#!/bin/sh\nexit 5\n");
    let (good, text) = project.run("out");
    assert!(!good && text.contains("trained model is in"), "{text}");
}

#[test]
fn low_rank_training_learns() {
    let project = Project::new(
        "batch_size=4\nmax_steps=30\n[optimizer]\nlearning_rate=0.05\n[lora]\nrank=4\nalpha=8",
    );
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    let results = losses(&project.path("out"));
    let loss = |when: &str| results[when]["unseen_files"].as_f64().unwrap();
    assert!(loss("after") < loss("before"), "{results}");
}

/// The newest checkpoint of a run, by name.
pub(crate) fn newest(out: &Path) -> Option<OsString> {
    let found = std::fs::read_dir(out.join("checkpoints"));
    let names = found.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name());
    names
        .filter(|n| n.to_string_lossy().starts_with("step-"))
        .max()
}

/// Kills a run up to four times; how often it did.
fn kill(project: &Project, out: &str) -> u32 {
    let mut kills = 0;
    for round in 0u32..20 {
        let mut child = project
            .command(out)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // After at least one more checkpoint, at a random moment.
        let newest = || newest(&project.path(out));
        let before = newest();
        while newest() == before && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(u64::from(round * 7 % 11)));
        if child
            .try_wait()
            .unwrap()
            .is_some_and(|status| status.success())
        {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if kills == 4 {
            break;
        }
    }
    kills
}

#[test]
fn a_run_killed_at_any_step_ends_with_the_same_bits() {
    let project = Project::new(
        "batch_size=3\nmicro_batch_size=2\nmax_steps=40\n[checkpoint]\nsave_steps=3\nsave_total_limit=2",
    );
    assert_killed_runs_end_with_the_same_bits(&project);
}

/// Compares a run that is killed and resumed several times with one that is not.
pub(crate) fn assert_killed_runs_end_with_the_same_bits(project: &Project) {
    let (good, text) = project.run("whole");
    assert!(good, "{text}");
    let whole = std::fs::read(project.path("whole/model/model.safetensors")).unwrap();
    // On a busy machine this test may sleep until a run is over.
    let runs = (0..5).map(|n| format!("killed-{n}"));
    let mut runs = runs.map(|out| (kill(project, &out), out));
    let (kills, out) = runs
        .find(|(kills, _)| *kills > 0)
        .expect("every run was over before it could be killed");
    let (good, text) = project.run(&out);
    assert!(good, "{text}");
    let out = project.path(&out);
    let killed = std::fs::read(out.join("model/model.safetensors")).unwrap();
    assert!(whole == killed, "the weights differ after {kills} kills");
    let metrics = |out: &Path| {
        let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let rows = text
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        rows.map(|row| (row["step"].clone(), row["loss"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(metrics(&project.path("whole")), metrics(&out));
}

#[test]
fn another_recipe_does_not_go_on_with_this_run() {
    let project = Project::new("batch_size=2\nmax_steps=4\n[checkpoint]\nsave_steps=2");
    assert!(project.run("out").0);
    let recipe = std::fs::read_to_string(project.path("recipe.toml")).unwrap();
    std::fs::write(
        project.path("recipe.toml"),
        recipe.replace("max_steps=4", "max_steps=6"),
    )
    .unwrap();
    let (good, text) = project.run("out");
    assert!(!good && text.contains("its recipe differs"), "{text}");
}
