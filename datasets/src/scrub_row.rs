//! Scrubs every text of a row.

use pybench_types::check::CheckSpec;
use serde_json::Value;

use crate::Row;
use crate::scrub::{Scrubber, SecretCounts};

impl Scrubber {
    /// Scrub every text of a row. [`Row::scrubbed`] counts the findings.
    pub fn row(&self, row: &mut Row) -> SecretCounts {
        let mut found = SecretCounts::default();
        let mut clean = |text: &mut String| {
            let scrubbed = self.text(text);
            if scrubbed.found.total() > 0 {
                *text = scrubbed.text;
                found.merge(&scrubbed.found);
            }
        };
        row.messages.iter_mut().for_each(|m| clean(&mut m.content));
        row.tools.iter_mut().for_each(&mut clean);
        for text in [
            &mut row.query,
            &mut row.subcategory,
            &mut row.keyword,
            &mut row.template,
            &mut row.teacher,
            &mut row.environment,
            &mut row.grading.reference,
        ] {
            clean(text);
        }
        row.provenance.iter_mut().for_each(&mut clean);
        row.task_license.iter_mut().for_each(&mut clean);
        row.task_source.iter_mut().for_each(&mut clean);
        for file in &mut row.files {
            clean(&mut file.name);
            clean(&mut file.origin);
            file.license.iter_mut().for_each(&mut clean);
        }
        for file in &mut row.grading.held_out {
            clean(&mut file.name);
            clean(&mut file.origin);
            file.license.iter_mut().for_each(&mut clean);
        }
        row.outputs.iter_mut().for_each(|o| clean(&mut o.path));
        row.grading.outputs.iter_mut().for_each(&mut clean);
        row.checks.iter_mut().for_each(|c| clean(&mut c.subject));
        row.interpreter.network.iter_mut().for_each(&mut clean);
        for check in &mut row.grading.checks {
            scrub_check(check, &mut clean);
        }
        row.scrubbed += u32::try_from(found.total()).unwrap_or(u32::MAX);
        found
    }
}

/// Scrub every text of a check. A check that would become invalid is left unchanged.
fn scrub_check(check: &mut CheckSpec, clean: &mut impl FnMut(&mut String)) {
    let Ok(mut value) = serde_json::to_value(&*check) else {
        return;
    };
    let before = value.clone();
    walk(&mut value, clean);
    if value != before
        && let Ok(scrubbed) = serde_json::from_value(value)
    {
        *check = scrubbed;
    }
}

fn walk(value: &mut Value, clean: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => clean(text),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, clean)),
        Value::Object(map) => map.values_mut().for_each(|item| walk(item, clean)),
        _ => {}
    }
}
