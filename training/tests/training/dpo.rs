//! Direct preference optimization: its loss and gradients are TRL's, and runs on preference pairs learn, resume, and
//! compute the log-probabilities of the reference model once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pybench_training::model::GradientCheckpointing;
use pybench_training::torch::kernels::Emulation;
use pybench_training::train::{Dataset, DpoConfig, Pair, TokenizedDocument};
use pybench_training_data::{
    LengthLimit, Overflow, RecordKind, Renderer, Source, TokenClass, tokenize,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind};

use crate::processes::{finish, start};
use crate::run::{Project, assert_killed_runs_end_with_the_same_bits, losses};
use crate::support::{distance, expected, gradients, model};

const TOLERANCE: f64 = 1e-4;

/// A pair of the batch that TRL has seen.
#[derive(Deserialize)]
struct Row {
    prompt_ids: Vec<i64>,
    chosen_ids: Vec<i64>,
    rejected_ids: Vec<i64>,
}

#[derive(Deserialize)]
struct Cases {
    pairs: Vec<Row>,
    cases: BTreeMap<String, DpoConfig>,
}

fn cases() -> Cases {
    let bytes = fs::read(crate::support::data("dpo").join("cases.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The chosen and the rejected conversation, with a loss weight on the reply.
fn documents(row: &Row) -> [TokenizedDocument; 2] {
    [&row.chosen_ids, &row.rejected_ids].map(|reply| TokenizedDocument {
        ids: [&row.prompt_ids[..], reply].concat(),
        weights: [vec![0.0; row.prompt_ids.len()], vec![1.0; reply.len()]].concat(),
        location: String::new(),
    })
}

#[test]
fn loss_metrics_and_gradients_are_those_of_trl() {
    compare();
}

#[test]
fn so_are_those_of_emulated_kernels() {
    let _emulation = Emulation::begin();
    compare();
}

fn compare() {
    let (model, expected) = (model("llama"), expected("dpo"));
    let Cases { pairs, cases } = cases();
    let rows: Vec<Vec<usize>> = (0..pairs.len()).map(|n| vec![2 * n, 2 * n + 1]).collect();
    let mut compared = 0;
    for (name, config) in &cases {
        let wanted = |key: &str, shape: &[i64]| {
            let key = format!("{name}.{key}");
            expected
                .tensor(&key, shape, Kind::Float, Device::Cpu)
                .unwrap()
        };
        let numbers = |key: &str, count: usize| -> Vec<f64> {
            Vec::try_from(wanted(key, &[count as i64]).to_kind(Kind::Double)).unwrap()
        };
        let columns = ["ref_chosen_logps", "ref_rejected_logps"];
        let [chosen, rejected] = columns.map(|column| numbers(column, pairs.len()));
        let reference = chosen.into_iter().zip(rejected);
        let reference = reference.map(|(chosen, rejected)| Pair { chosen, rejected });
        let documents = pairs.iter().flat_map(documents).collect();
        let data = Dataset::from_pairs(documents, reference.collect(), 0);
        let batch = data.batch(&rows, Device::Cpu).unwrap();
        let count = pairs.len() as f64;
        let chosen_tokens: usize = pairs.iter().map(|row| row.chosen_ids.len()).sum();
        for memory in [GradientCheckpointing::Off, GradientCheckpointing::ALL] {
            let mut measured = None;
            let (ids, layout, targets) = (&batch.ids, &batch.layout, &batch.targets);
            let pending =
                model.backward_documents_head(ids, layout, targets, count, memory, |logps| {
                    let scale = count / chosen_tokens as f64;
                    let (loss, sums) =
                        config.batch_loss(logps, targets.per_document(), &batch.reference, scale);
                    measured = Some(sums.means(count));
                    loss
                });
            let loss = pending.loss().mean();
            pending.finish(|_| Ok::<_, ()>(())).unwrap();
            let off = (loss - numbers("loss", 1)[0]).abs() / loss;
            assert!(off <= 1e-5, "{name} loss: {off:e}");
            let measured = serde_json::to_value(measured.unwrap()).unwrap();
            let names = [
                "rewards/chosen",
                "rewards/rejected",
                "rewards/accuracies",
                "rewards/margins",
                "logps/chosen",
                "logps/rejected",
            ];
            for (key, wanted) in names.into_iter().zip(numbers("metrics", names.len())) {
                let found = measured[key].as_f64().unwrap();
                assert!(
                    (found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0),
                    "{name} {key}: {found} {wanted}"
                );
            }
            for (parameter, gradient) in gradients(&model) {
                let wanted = wanted(&format!("grad.{parameter}"), &gradient.size());
                let off = distance(&gradient, &wanted);
                assert!(off <= TOLERANCE, "{name} {parameter}: {off:e}");
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "{compared} gradients compared");
}

/// A pair that prefers short replies to long ones.
fn pair(number: usize) -> Value {
    let says = |role: &str, content: String| json!({"role": role, "content": content});
    let prompt = [
        says("user", format!("say {number}")),
        says("assistant", "what?".into()),
        says("user", format!("the number {number}")),
    ];
    json!({
        "prompt": prompt,
        "chosen": [says("assistant", format!("number {number}"))],
        "rejected": [says("assistant", format!("number {number} ").repeat(2 + number % 4))],
    })
}

/// Replaces the data of a project by pairs in two files.
fn with_pairs(project: &Project) {
    let lines = |range: std::ops::Range<usize>| -> String {
        range.map(|number| format!("{}\n", pair(number))).collect()
    };
    let folder = project.path("pairs");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.jsonl"), lines(0..9)).unwrap();
    fs::write(folder.join("b.jsonl"), lines(9..16)).unwrap();
    fs::write(project.path("test.jsonl"), lines(20..26)).unwrap();
    let train = project.path("train.jsonl").display().to_string();
    edit(project, &train, &folder.display().to_string());
    edit(project, "[train]", "kind='preference'\n[train]");
}

fn edit(project: &Project, from: &str, to: &str) {
    let path = project.path("recipe.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

fn project(train: &str, rest: &str) -> Project {
    let project = Project::new(&format!("{train}\n[dpo]\nbeta=0.2\n{rest}"));
    with_pairs(&project);
    project
}

fn metrics(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_run_learns_to_prefer_the_chosen_replies() {
    for rest in [
        "",
        "[lora]\nrank=4\nalpha=8\ndropout=0.1\n",
        "[lora]\nrank=4\nalpha=8\nquantization='nf4'\n",
    ] {
        let rate = if rest.is_empty() { 0.002 } else { 0.02 };
        let project = project(
            "batch_size=8\nmicro_batch_size=4\nnum_epochs=10",
            &format!("{rest}[optimizer]\nlearning_rate={rate}\n"),
        );
        let (good, text) = project.run("out");
        assert!(good, "{text}");
        let out = project.path("out");
        let steps = metrics(&out);
        assert_eq!(steps.len(), 20);
        let value = |step: &Value, key: &str| step[key].as_f64().unwrap();
        // Before the first step the model is the reference, but for dropout.
        let first = &steps[0];
        if !rest.contains("dropout") {
            assert!((value(first, "loss") - 2f64.ln()).abs() < 1e-6, "{first}");
            assert!(value(first, "rewards/margins").abs() < 1e-6, "{first}");
        }
        let last = steps.last().unwrap();
        assert!(value(last, "loss") < 0.5, "{rest} {last}");
        assert!(value(last, "rewards/margins") > 0.5, "{rest} {last}");
        assert_eq!(value(last, "rewards/accuracies"), 1.0, "{rest} {last}");
        assert!(value(last, "logps/chosen") < 0.0);
        let results = losses(&out);
        assert!((value(&results["before"], "preference_loss") - 2f64.ln()).abs() < 1e-6);
        assert!(
            value(&results["after"], "preference_loss") < 0.5,
            "{results}"
        );
        assert_eq!(value(&results["after"], "rewards/accuracies"), 1.0);
        let page = fs::read_to_string(out.join("report.html")).unwrap();
        for words in [
            "accuracy of pairs",
            "rewards/margins",
            "Log-probability of a reply",
        ] {
            assert!(page.contains(words), "{words}");
        }
        for file in ["ref_logps", "ref_logps_held_out"] {
            assert!(out.join(file).with_extension("safetensors").exists());
        }
    }
}

#[test]
fn a_run_killed_at_any_step_ends_with_the_same_bits() {
    let project = project(
        "batch_size=3\nmicro_batch_size=2\nmax_steps=40",
        "[checkpoint]\nsave_steps=3\nsave_total_limit=2\n",
    );
    assert_killed_runs_end_with_the_same_bits(&project);
}

#[test]
fn updates_in_the_backward_pass_give_the_same_bits() {
    let project = project(
        "batch_size=2\nmicro_batch_size=2\nmax_steps=4\ngradient_checkpointing=true",
        "[optimizer]\nmax_grad_norm=0\n",
    );
    let weights = |out: &str| fs::read(project.path(out).join("model/model.safetensors")).unwrap();
    let (good, text) = project.run("after");
    assert!(good, "{text}");
    edit(
        &project,
        "max_grad_norm=0",
        "max_grad_norm=0\noptimizer_in_bwd=true",
    );
    let (good, text) = project.run("within");
    assert!(good, "{text}");
    assert!(weights("after") == weights("within"));
}

#[test]
fn two_processes_do_what_one_does() {
    let project = project(
        "batch_size=3\nmax_steps=5",
        "[optimizer]\nlearning_rate=0.001\n",
    );
    let (good, text) = project.run("one");
    assert!(good, "{text}");
    finish(start(&project, "two", 2));
    let steps = ["one", "two"].map(|out| metrics(&project.path(out)));
    for (one, two) in steps[0].iter().zip(&steps[1]) {
        for key in ["loss", "rewards/margins", "logps/rejected", "grad_norm"] {
            let values = [one, two].map(|step| step[key].as_f64().unwrap());
            let off = (values[0] - values[1]).abs();
            assert!(off < 1e-4 * values[0].abs().max(1.0), "{key}: {values:?}");
        }
    }
    let read = |out: &str| fs::read(project.path(out).join("ref_logps.safetensors")).unwrap();
    assert_eq!(read("one").len(), read("two").len());
}

#[test]
fn the_reference_is_computed_once() {
    let project = project("batch_size=4\nmax_steps=3", "[checkpoint]\nsave_steps=1\n");
    let computed = |text: &str| {
        text.matches("log-probabilities of the reference model for")
            .count()
    };
    let (good, first) = project.run("out");
    assert!(good, "{first}");
    assert_eq!(
        computed(&first),
        2,
        "training pairs and held-out pairs: {first}"
    );
    let (good, again) = project.run("out");
    assert!(good, "{again}");
    assert_eq!(computed(&again), 0, "{again}");
    // Those of other data are not used.
    let path = project.path("pairs/b.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("say 9", "say nine")).unwrap();
    let _ = fs::remove_dir_all(project.path("out/checkpoints"));
    let (good, other) = project.run("out");
    assert!(good, "{other}");
    assert_eq!(computed(&other), 1, "{other}");
}

#[test]
fn a_dry_run_names_pairs_and_reference() {
    let project = project("batch_size=4\nnum_epochs=2", "");
    let output = project.command("out").arg("--dry-run").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    for words in [
        "per epoch: 16 pairs",
        "8 steps of 4 pairs",
        "the log-probabilities of the reference model for 22 pairs",
        "  reference  ",
    ] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
    assert!(!project.path("out").exists());
}

#[test]
fn what_cannot_be_trained_says_where_and_why() {
    let project = project("batch_size=4\nmax_steps=2", "");
    let refused = |line: &str, words: &[&str]| {
        let path = project.path("pairs/b.jsonl");
        fs::write(&path, format!("{}\n{line}\n", pair(3))).unwrap();
        let output = project.command("out").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{text}");
        for words in words {
            assert!(text.contains(words), "{words} is missing in {text}");
        }
    };
    let with = |chosen: &str| {
        let mut pair = pair(5);
        pair["chosen"][0]["content"] = chosen.into();
        pair.to_string()
    };
    refused("{\"chosen\": []}", &["b.jsonl:2", "no column rejected"]);
    refused(
        &with(&"long ".repeat(200)),
        &["b.jsonl:2", "train.max_seq_len", "\"drop\""],
    );
    // The tokenizer joins the line end of the header with that of the reply.
    refused(&with("\n\nwell"), &["b.jsonl:2", "not a prefix"]);
    fs::write(
        project.path("pairs/b.jsonl"),
        format!("{}\n", with(&"long ".repeat(200))),
    )
    .unwrap();
    edit(&project, "[train]", "[train]\noverflow='drop'");
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    for (from, to, words) in [
        (
            "[train]\noverflow='drop'",
            "[train]\noverflow='cut_at_turn'",
            "a pair cannot be cut",
        ),
        ("beta=0.2", "beta=0", "dpo.beta = 0"),
        (
            "beta=0.2",
            "beta=0.2\nlabel_smoothing=0.1",
            "only the loss_type \"robust\"",
        ),
        (
            "beta=0.2",
            "beta=0.2\nloss_weights=[1.0, 2.0]",
            "one weight for each loss",
        ),
        ("beta=0.2", "rpo_alpha=1", "dpo.loss_weights"),
        ("[dpo]\nbeta=0.2", "", "pairs need the section [dpo]"),
    ] {
        let path = project.path("recipe.toml");
        let good = fs::read_to_string(&path).unwrap();
        edit(&project, from, to);
        let output = project.command("out").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(words), "{words} is missing in {text}");
        fs::write(path, good).unwrap();
    }
}

/// Supervised training, then preference optimization of its model.
#[test]
fn a_stage_goes_on_from_a_supervised_one() {
    let project = project("batch_size=4\nmax_steps=3", "");
    let text = fs::read_to_string(project.path("recipe.toml")).unwrap();
    let supervised = project.path("sft.jsonl");
    let row = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    fs::write(&supervised, format!("{row}\n")).unwrap();
    let text = text
        .replace("[dpo]", "[stage.dpo.dpo]")
        .replace("kind='preference'", "");
    let text = format!(
        "stages=['sft','dpo']\n{text}\n[stage.sft]\ndata=[{{path='{0}'}}]\nheld_out={{path='{0}'}}\n[stage.dpo.held_out]\nkind='preference'\n",
        supervised.display()
    );
    fs::write(project.path("recipe.toml"), text).unwrap();
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    assert!(text.contains("stage dpo") && project.path("out/dpo/model/model.safetensors").exists());
    let first = &metrics(&project.path("out/dpo"))[0];
    assert!(
        (first["loss"].as_f64().unwrap() - 2f64.ln()).abs() < 1e-6,
        "the reference is the model of the stage before: {first}"
    );
    let (good, again) = project.run("out");
    assert!(
        good && again.matches("already done").count() == 2,
        "{again}"
    );
}

/// A template that writes a space before a reply, which the tokenizer joins with the first word. The model writes the
/// space itself, so the token belongs to the reply.
#[test]
fn a_token_that_begins_after_the_prompt_belongs_to_the_reply() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("t.jinja");
    let source = "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}";
    fs::write(&template, source).unwrap();
    let chatml = crate::support::data("templates/chatml");
    let renderer = Renderer::load_with(&chatml, Some(&template)).unwrap();
    let says = |role: &str, content: &str| json!([{"role": role, "content": content}]);
    let row = json!({"prompt": says("user", "say"), "chosen": says("assistant", "data in"), "rejected": says("assistant", "lines")});
    let path = folder.path().join("pairs.jsonl");
    fs::write(&path, row.to_string()).unwrap();
    let source = Source {
        kind: RecordKind::Preference,
        ..Source::from_path(&path)
    };
    let limit = LengthLimit {
        max_seq_len: 64,
        overflow: Overflow::Error,
    };
    let store = tokenize(&source, &renderer, limit, folder.path()).unwrap();
    assert_eq!(store.len(), 2);
    for (document, reply) in [" data in<|im_end|>", " lines<|im_end|>"]
        .into_iter()
        .enumerate()
    {
        let tokens = store.ids(document).zip(store.classes(document));
        let (trained, prompt): (Vec<_>, Vec<_>) =
            tokens.partition(|(_, class)| **class == TokenClass::Trained as u8);
        let text = |tokens: Vec<(u32, &u8)>| {
            let ids: Vec<u32> = tokens.into_iter().map(|(id, _)| id).collect();
            renderer.tokenizer.decode(&ids).unwrap()
        };
        assert_eq!([text(prompt), text(trained)], ["[INST] say [/INST]", reply]);
    }
}

/// Pairs that `pybench loop` has written.
#[test]
fn the_pairs_of_a_loop_are_trained() {
    let project = Project::shaped(
        &json!({"max_position_embeddings": 4096}),
        "max_seq_len=4096\nbatch_size=2\nmax_steps=6\n[optimizer]\nlearning_rate=0.002\n[dpo]\nbeta=0.5\n",
    );
    let file = crate::support::data("dpo").join("preferences.jsonl");
    let train = project.path("train.jsonl").display().to_string();
    edit(&project, &train, &file.display().to_string());
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    assert!(text.contains("per epoch: 2 pairs"), "{text}");
    let steps = metrics(&project.path("out"));
    let value = |step: usize, key: &str| steps[step][key].as_f64().unwrap();
    assert!((value(0, "loss") - 2f64.ln()).abs() < 1e-6);
    assert!(
        value(5, "loss") < 0.5 && value(5, "rewards/margins") > 0.5,
        "{}",
        steps[5]
    );
    // Conversations are held out, whose loss is measured as in supervised training.
    let results = losses(&project.path("out"));
    assert!(results["after"]["unseen_files"].is_f64(), "{results}");
}
