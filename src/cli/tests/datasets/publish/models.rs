//! Models: weights, tokenizer, and a card with where they come from.

use std::path::Path;

use axum::http::Method;
use pybench_run::ExitCode;

use crate::publish::fixture::{DatasetFixture, finish};
use crate::publish::hub::Hub;

/// A safetensors file of one tensor.
fn weights(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let header = r#"{"a": {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}}"#;
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend_from_slice(header.as_bytes());
    weights.resize(weights.len() + 400, 0);
    std::fs::write(path, weights).unwrap();
}

/// A whole model.
fn model(folder: &Path) {
    weights(&folder.join("model.safetensors"));
    for (name, text) in [
        (
            "config.json",
            r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#,
        ),
        (
            "tokenizer.json",
            r#"{"version": "1.0", "model": {"type": "BPE"}}"#,
        ),
        (
            "chat_template.jinja",
            "{% for m in messages %}{{ m.content }}{% endfor %}",
        ),
        ("optimizer.bin", "not for others"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_goes_with_its_lineage() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let run = fixture.root.path().join("run");
    model(&run.join("model"));
    let results = r#"{"recipe": "abc", "steps": 16, "before": {"unseen_files": 2.0}, "after": {"unseen_files": 1.5},
        "mixture": [{"source": "/home/ann.smith/rows", "records": 3, "tokens": 5, "trained": 2, "weight": 1.0, "share": 1.0}]}"#;
    std::fs::write(run.join("results.json"), results).unwrap();
    std::fs::write(run.join("loss.svg"), "<svg/>").unwrap();
    let report = fixture.root.path().join("report");
    std::fs::create_dir(&report).unwrap();
    std::fs::write(report.join("report.md"), "# Strict\n\n50 %\n").unwrap();
    std::fs::write(report.join("report.json"), "{}").unwrap();
    std::fs::write(fixture.root.path().join("r.toml"), "name = 'x'\n").unwrap();
    let all = [
        "--repo",
        "o/m",
        "--yes",
        "--license",
        "mit",
        "--base-model",
        "b/m",
        "--recipe",
        "r.toml",
        "--report",
        "report",
    ];
    let publish = || finish(&mut fixture.publish(&hub, &run, &all));
    let without = ["--repo", "o/m", "--yes"];
    finish(&mut fixture.publish(&hub, &run, &without)).failed(ExitCode::BadInput, "--license");
    publish().succeeded();
    let files = hub.inside().files("o/m");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            ".gitattributes",
            "README.md",
            "chat_template.jinja",
            "config.json",
            "evaluation/report.json",
            "evaluation/report.md",
            "model.safetensors",
            "tokenizer.json",
            "training/loss.svg",
            "training/recipe.toml",
            "training/results.json",
        ]
    );
    let card = std::str::from_utf8(&files["README.md"]).unwrap();
    for words in [
        "license: \"mit\"",
        "base_model:\n- \"b/m\"",
        "name = 'x'",
        "## Evaluation",
        "### Strict",
        "1.5000",
    ] {
        assert!(card.contains(words), "{words} is missing in {card}");
    }
    assert!(!card.contains("ann.smith"), "{card}");
    assert_eq!(
        files["model.safetensors"],
        std::fs::read(run.join("model/model.safetensors")).unwrap()
    );
    hub.inside().log.clear();
    let again = publish().succeeded();
    assert!(again.out.contains("nothing to upload"), "{}", again.out);
    assert_eq!(hub.inside().count(Method::POST, ""), 0);
    let path = run.join("model/model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    publish().failed(ExitCode::BadInput, "its header says 400");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_goes_alone_and_names_its_base_model_on_the_hub() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let run = fixture.root.path().join("run");
    let adapter = run.join("adapter");
    weights(&adapter.join("adapter_model.safetensors"));
    let config =
        r#"{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "/home/ann.smith/llama"}"#;
    for (name, text) in [
        ("adapter/adapter_config.json", config),
        ("adapter/tokenizer.json", r#"{"model": {"type": "BPE"}}"#),
        (
            "adapter/pybench.json",
            r#"{"dtype": "bf16", "nf4": true, "recipe": "abc"}"#,
        ),
        ("results.json", r#"{"recipe": "abc", "steps": 16}"#),
        ("recipe.toml", "name = 'x'\n"),
    ] {
        std::fs::write(run.join(name), text).unwrap();
    }
    hub.inside().create("o/base", false);
    hub.inside()
        .licenses
        .insert("o/base".into(), "apache-2.0".into());
    let publish = |more: &[&str]| {
        let more = [["--repo", "o/lora", "--yes"].as_slice(), more].concat();
        finish(&mut fixture.publish(&hub, &run, &more))
    };
    publish(&[]).failed(ExitCode::BadInput, "--base-model OWNER/NAME");
    publish(&["--base-model", "o/base"]).succeeded();
    let files = hub.inside().files("o/lora");
    let text = |name: &str| std::str::from_utf8(&files[name]).unwrap();
    let config: serde_json::Value = serde_json::from_str(text("adapter_config.json")).unwrap();
    assert_eq!(config["base_model_name_or_path"], "o/base");
    for words in [
        "library_name: peft",
        "license: \"apache-2.0\"",
        "base_model:\n- \"o/base\"",
        "A LoRA adapter of rank 8",
        "quantized to NF4",
        "name = 'x'",
    ] {
        assert!(
            text("README.md").contains(words),
            "{words} is missing in {}",
            text("README.md")
        );
    }
    for name in [
        "adapter_model.safetensors",
        "pybench.json",
        "tokenizer.json",
        "training/recipe.toml",
    ] {
        assert!(files.contains_key(name), "{name}");
    }
    assert!(
        files
            .values()
            .all(|file| !String::from_utf8_lossy(file).contains("ann.smith"))
    );
    // With the merged model beside it, the name of the run means that.
    model(&run.join("model"));
    let whole = publish(&["--base-model", "o/base"]).succeeded();
    assert!(
        hub.inside()
            .files("o/lora")
            .contains_key("model.safetensors"),
        "{}",
        whole.out
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recipe_license_and_report_must_belong_to_the_model() {
    let (hub, fixture) = (Hub::start().await, DatasetFixture::new());
    let root = fixture.root.path();
    let run = root.join("run");
    model(&run.join("model"));
    let results = r#"{"recipe": "abc", "steps": 16, "mixture": [{"source": "rows"}]}"#;
    std::fs::write(run.join("results.json"), results).unwrap();
    let publish = |more: &[&str]| {
        let more = [["--repo", "o/m"].as_slice(), more].concat();
        finish(&mut fixture.publish(&hub, &run, &more))
    };
    // The license of the base model, from its card on the Hub.
    publish(&[]).failed(ExitCode::BadInput, "--base-model");
    hub.inside().create("o/base", false);
    publish(&["--base-model", "o/base"]).failed(ExitCode::BadInput, "--license");
    hub.inside()
        .licenses
        .insert("o/base".into(), "apache-2.0".into());
    let done = publish(&["--base-model", "o/base"]).succeeded();
    assert!(done.out.contains("license: \"apache-2.0\""), "{}", done.out);
    publish(&["--base-model", "o/none"]).failed(ExitCode::BadInput, "(404)");
    // A recipe that contradicts the training results.
    let recipe = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    recipe(
        "right.toml",
        "[[data]]\npath = 'rows'\n[train]\nmax_steps = 16\n",
    );
    recipe("other.toml", "[[data]]\npath = 'others'\n");
    let with = |name: &str| publish(&["--license", "mit", "--recipe", name]);
    with("right.toml").succeeded();
    with("other.toml").failed(ExitCode::BadInput, "it trains on others");
    // The recipe in the run is used, and no other one is accepted.
    std::fs::copy(root.join("right.toml"), run.join("recipe.toml")).unwrap();
    let done = publish(&["--license", "mit"]).succeeded();
    assert!(done.out.contains("path = 'rows'"), "{}", done.out);
    with("other.toml").failed(ExitCode::BadInput, "omit --recipe");
    // A report of an evaluation of this model, and one of another.
    let eval = root.join("eval");
    std::fs::create_dir_all(eval.join("report")).unwrap();
    std::fs::write(eval.join("report/report.md"), "# Strict\n").unwrap();
    let agents = r#"{"frozen": {"agents": {"mine": {}}}}"#;
    std::fs::write(eval.join("report/report.json"), agents).unwrap();
    let evaluated = |model: &str| {
        let text = format!("[agents.mine]\nkind = 'checkpoint'\nmodel = '{model}'\n");
        std::fs::write(eval.join("recipe.toml"), text).unwrap();
        publish(&["--license", "mit", "--report", "eval/report"])
    };
    let done = evaluated("run").succeeded();
    assert!(
        done.out
            .contains("In this report the model is called `mine`."),
        "{}",
        done.out
    );
    evaluated("elsewhere/model").failed(ExitCode::BadInput, "other models (mine)");
    // The license in the training results takes precedence.
    let known = results.replace("\"steps\"", "\"license\": \"Apache-2.0\", \"steps\"");
    std::fs::write(run.join("results.json"), known).unwrap();
    let done = publish(&[]).succeeded();
    assert!(done.out.contains("license: \"apache-2.0\""), "{}", done.out);
    let done = publish(&["--license", "mit"]).succeeded();
    assert!(done.out.contains("although"), "{}", done.out);
    assert!(!hub.inside().repos.contains_key("o/m"), "nothing was sent");
}
