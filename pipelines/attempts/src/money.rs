//! Budgets and prices: refuses a run that could spend money without a limit.

use pybench_llm::price_of;
use pybench_run::Price;
use pybench_run::{Budget, ModelChoice, Recipe, RunError};

/// The price of a model: the one in the recipe, else the one in the price table, halved for batch
/// requests; `None` if it is unknown. The expert is free.
pub fn price(teacher: &ModelChoice) -> Option<Price> {
    price_of(teacher)
}

/// Refuses a recipe that could spend money without a limit, or whose limit cannot be enforced because a
/// price is unknown.
///
/// # Errors
/// [`RunError::BadInput`] says which key to set.
pub fn check(recipe: &Recipe) -> Result<(), RunError> {
    for (_, teacher) in recipe.models() {
        if let ModelChoice::Openai { model, .. } = teacher {
            bounded(model, price(teacher), &recipe.budget)?;
        }
    }
    Ok(())
}

/// Like [`check`], for one model at the given price.
pub fn bounded(model: &str, price: Option<Price>, budget: &Budget) -> Result<(), RunError> {
    let (usd, tokens) = (budget.usd, budget.tokens);
    let refuse = |text: String| Err(RunError::BadInput(text));
    match price {
        Some(price) if price == Price::default() => Ok(()),
        Some(_) if usd.is_none() && tokens.is_none() => refuse(format!(
            "`{model}` costs money and the recipe has no budget: set `budget.usd` (`--set \
             budget.usd=5`); `--dry-run` prints an estimate"
        )),
        None if usd.is_some() => refuse(format!(
            "`budget.usd` cannot be enforced because the price of `{model}` is unknown: set \
             `teacher.price` (US dollars per million tokens: {{ prompt = 1.0, completion = 2.0 }})"
        )),
        None if tokens.is_none() => refuse(format!(
            "the price of `{model}` is unknown and the recipe has no budget: set `teacher.price` (zeros \
             for your own server), or `budget.tokens`"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_run::BudgetCap;

    fn recipe(model: &str, price: &str, budget: &str) -> Recipe {
        let text = format!(
            "name = \"t\"\ncrawl = {{ sources = [] }}\nquery = {{ tasks = 1 }}\n\
             budget = {{ {budget} }}\n\
             teacher = {{ kind = \"openai\", model = \"{model}\", base_url = \"http://h\"{price} }}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_paid_model_needs_a_budget() {
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
    fn the_recipe_price_overrides_the_table() {
        let own = recipe("gpt-4o", ", price = { prompt = 9.0, completion = 9.0 }", "");
        assert_eq!(price(&own.teacher).unwrap().prompt, 9.0);
        let batched = recipe("gpt-4o", ", batch = true", "");
        assert_eq!(
            price(&batched.teacher).unwrap().prompt,
            1.25,
            "half of the price in the table"
        );
        let live = batched.teacher.live();
        assert_eq!(price(&live).unwrap().prompt, 2.5);
        let budget = recipe("m", "", "usd = 0.0000019").budget;
        assert_eq!(BudgetCap::of(&budget).micro_usd, Some(1));
    }
}
