//! The predicted peak against the measured one.

use crate::run::{Project, losses};

/// Allowed difference from the prediction.
const TOLERANCE: f64 = 0.25;
/// Bytes beside it: the allocator's own, which depend on the moment and not on the model (30 MiB between runs on an idle
/// and on a busy machine).
const SLACK: f64 = 32.0 * 1048576.0;

/// Predicted and measured bytes of a model of 15 million parameters, with every token trained.
fn peaks(train: &str, rest: &str) -> (f64, f64) {
    let shape = serde_json::json!({
        "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64,
        "vocab_size": 16384, "max_position_embeddings": 2048, "tie_word_embeddings": true,
    });
    let train = format!("max_seq_len=1024\nmax_steps=2\nprompt_weight=1.0\n{train}\n");
    let project = Project::shaped(&shape, &format!("{train}\n{rest}"));
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    let memory = &losses(&project.path("out"))["memory"];
    let bytes = |name: &str| memory[name].as_f64().unwrap();
    println!("{train}{rest}: {text}");
    (bytes("planned"), bytes("measured"))
}

#[test]
fn the_peak_is_what_was_predicted() {
    let none = "[checkpoint]\nsave_steps=0\n";
    let ways = [
        ("", none.to_owned()),
        ("batch_size=2", none.to_owned()),
        ("gradient_checkpointing=true", none.to_owned()),
        ("", "[checkpoint]\nsave_steps=1\n".to_owned()),
        (
            "gradient_checkpointing=true",
            format!("{none}[optimizer]\nstate_dtype='8bit'\n"),
        ),
        ("dtype='bf16'", none.to_owned()),
        ("", format!("{none}[lora]\nrank=8\nalpha=16\n")),
        (
            "",
            format!("{none}[lora]\nrank=8\nalpha=16\nquantization='nf4'\n"),
        ),
    ];
    let mut wrong = vec![];
    for (train, rest) in ways {
        let (planned, measured) = peaks(train, &rest);
        let share = measured / planned;
        println!(
            "{train:?} {rest:?}: {:.0} MiB of {:.0}",
            measured / 1048576.0,
            planned / 1048576.0
        );
        if (measured - planned).abs() > TOLERANCE * planned + SLACK {
            wrong.push(format!(
                "{train:?} {rest:?}: {share:.2} of what was predicted"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
