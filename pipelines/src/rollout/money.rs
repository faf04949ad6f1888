//! What a run may spend, and the refusal to spend without a bound.

use pybench::llm::{Price, price_of};
use pybench::run::{Budget, BudgetCap, Recipe, RunError, TeacherChoice};

/// The price of the recipe's teacher: its own, else the table's, half of it in batches; `None` when
/// unknown. The expert costs nothing.
pub(crate) fn price(teacher: &TeacherChoice) -> Option<Price> {
    price_of(teacher)
}

/// The budget in the journal's units, rounded down.
pub(crate) fn cap(budget: &Budget) -> BudgetCap {
    BudgetCap {
        // The cast saturates.
        micro_usd: budget.usd.map(|usd| (usd * 1e6) as u64),
        tokens: budget.tokens,
    }
}

/// Refuses a run that could spend without a bound, or whose bound could not be kept.
pub(crate) fn check(recipe: &Recipe) -> Result<(), RunError> {
    for (_, teacher) in recipe.models() {
        if let TeacherChoice::Openai { model, .. } = teacher {
            bounded(model, price(teacher), &recipe.budget)?;
        }
    }
    Ok(())
}

/// The same for a model at that price.
pub(crate) fn bounded(model: &str, price: Option<Price>, budget: &Budget) -> Result<(), RunError> {
    let (usd, tokens) = (budget.usd, budget.tokens);
    let refuse = |text: String| Err(RunError::BadInput(text));
    match price {
        Some(price) if price == Price::default() => Ok(()),
        Some(_) if usd.is_none() && tokens.is_none() => refuse(format!(
            "`{model}` costs money and no budget is set: set `budget.usd` (`--set budget.usd=5`; \
             `--dry-run` says what to expect)"
        )),
        None if usd.is_some() => refuse(format!(
            "`budget.usd` cannot be kept: the price of `{model}` is not known; set `teacher.price` \
             (US dollars per million tokens: {{ prompt = 1.0, completion = 2.0 }})"
        )),
        None if tokens.is_none() => refuse(format!(
            "the price of `{model}` is not known and no budget is set: set `teacher.price` (zeros for \
             a server of your own), or `budget.tokens`"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(model: &str, price: &str, budget: &str) -> Recipe {
        let text = format!(
            "name = \"t\"\ncrawl = {{ sources = [] }}\nquery = {{ tasks = 1 }}\n\
             budget = {{ {budget} }}\n\
             teacher = {{ kind = \"openai\", model = \"{model}\", base_url = \"http://h\"{price} }}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn money_is_spent_only_within_a_bound() {
        const FREE: &str = ", price = { prompt = 0.0, completion = 0.0 }";
        const PAID: &str = ", price = { prompt = 1.0, completion = 0.0 }";
        for (model, price, budget, refused) in [
            ("gpt-4o", "", "", Some("--set budget.usd")),
            ("gpt-4o", "", "usd = 1.0", None),
            ("gpt-4o", "", "tokens = 1000", None),
            ("mine", "", "", Some("teacher.price")),
            ("mine", "", "usd = 1.0", Some("teacher.price")),
            ("mine", "", "tokens = 1000", None),
            ("mine", FREE, "", None),
            ("mine", PAID, "", Some("budget.usd")),
            ("mine", PAID, "usd = 1.0", None),
        ] {
            let case = format!("{model} {price} {budget}");
            match (check(&recipe(model, price, budget)), refused) {
                (Ok(()), None) => {}
                (Err(error), Some(way_out)) => {
                    assert!(error.to_string().contains(way_out), "{case}: {error}");
                }
                (end, _) => panic!("{case}: {end:?}"),
            }
        }
    }

    #[test]
    fn the_recipes_price_wins() {
        let own = recipe("gpt-4o", ", price = { prompt = 9.0, completion = 9.0 }", "");
        assert_eq!(price(&own.teacher).unwrap().prompt, 9.0);
        let batched = recipe("gpt-4o", ", batch = true", "");
        assert_eq!(
            price(&batched.teacher).unwrap().prompt,
            1.25,
            "half of the table's"
        );
        let live = batched.teacher.live();
        assert_eq!(price(&live).unwrap().prompt, 2.5);
        assert_eq!(
            cap(&recipe("m", "", "usd = 0.0000019").budget).micro_usd,
            Some(1)
        );
    }
}
