//! Costs of calls: a table of list prices, and upper bounds on tokens before a call.

use std::sync::LazyLock;

use serde::Deserialize;

use pybench_run::ModelChoice;
use pybench_run::Price;
use pybench_types::trajectory::Message;

#[derive(Deserialize)]
struct PriceTable {
    model: Vec<PriceEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceEntry {
    name: String,
    prompt: f64,
    completion: f64,
    /// Date of the list price, for human readers.
    #[serde(rename = "date")]
    _date: String,
}

static TABLE: LazyLock<Vec<PriceEntry>> = LazyLock::new(|| {
    // The table is compiled in; a test parses it.
    let table: Result<PriceTable, _> = toml::from_str(include_str!("prices.toml"));
    table.map(|table| table.model).unwrap_or_default()
});

/// List price of a well-known model; dated names (`gpt-4o-2024-08-06`) are recognized too.
pub fn known_price(model: &str) -> Option<Price> {
    let undated = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let entry = TABLE
        .iter()
        .find(|entry| entry.name == model)
        .or_else(|| TABLE.iter().find(|entry| entry.name == undated))?;
    Some(Price {
        prompt: entry.prompt,
        completion: entry.completion,
    })
}

/// Price of a model's tokens: that of the recipe or else of the table, halved for batches. `None` if unknown.
/// Models without an endpoint are free.
pub fn price_of(teacher: &ModelChoice) -> Option<Price> {
    let ModelChoice::Openai {
        model,
        price,
        batch,
        ..
    } = teacher
    else {
        return Some(Price::default());
    };
    let live = price.or_else(|| known_price(model))?;
    Some(if *batch { live.in_batches() } else { live })
}

/// Upper bound on the tokens of these messages: byte-level tokenizers make at most one token per byte, and chat
/// templates add a few per message.
pub fn token_bound(messages: &[Message]) -> u64 {
    const TEMPLATE: u64 = 16;
    let of = |message: &Message| message.content.len() as u64 + TEMPLATE;
    TEMPLATE + messages.iter().map(of).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_types::trajectory::Role;

    #[test]
    fn the_table_parses_and_dated_names_are_known() {
        assert!(TABLE.len() >= 5);
        let mini = known_price("gpt-4o-mini").unwrap();
        assert_eq!(known_price("gpt-4o-mini-2024-07-18"), Some(mini));
        assert_eq!(known_price("gpt-4.1").unwrap().prompt, 2.0);
        assert_eq!(known_price("my-model"), None);
        assert_eq!(known_price(""), None);
    }

    #[test]
    fn the_bound_covers_every_byte() {
        let messages = [
            Message::new(Role::User, "数据"),
            Message::new(Role::User, ""),
        ];
        assert_eq!(token_bound(&messages), 6 + 3 * 16);
    }
}
