//! Validates a template beyond its types.

mod matrix;

use std::collections::BTreeSet;

use minijinja::Environment;
use pybench_types::check::CheckSpec;
use pybench_types::task::Language;
use regex::Regex;

use super::keywords::Keywords;
use super::problem::{Problem, TomlSource, closest, with_suggestion};
use super::render;
use super::template::{Slot, Template, Text};

/// Minimum number of mutants in a template.
const MIN_MUTANTS: usize = 3;
/// Minimum number of phrasings per language.
const MIN_PHRASINGS: usize = 2;
/// Variable names that a slot must not have.
const RESERVED: [&str; 4] = ["file", "files", "lang", "readers"];

/// All problems of a template; empty if it is valid.
pub(super) fn validate(
    source: TomlSource<'_>,
    template: &Template,
    keywords: &Keywords,
) -> Vec<Problem> {
    let mut validator = Validator {
        source,
        template,
        environment: render::environment(),
        problems: Vec::new(),
    };
    validator.identity(keywords);
    validator.inputs();
    validator.slots();
    validator.query();
    validator.languages();
    validator.turns();
    validator.answers();
    validator.checks();
    validator.mutants();
    validator.matrix();
    validator.problems
}

struct Validator<'a> {
    source: TomlSource<'a>,
    template: &'a Template,
    environment: Environment<'static>,
    problems: Vec<Problem>,
}

type Names = BTreeSet<String>;

impl Validator<'_> {
    fn report(&mut self, place: &Text, message: impl Into<String>) {
        self.problems.push(self.source.at(&place.span(), message));
    }

    fn whole(&mut self, message: impl Into<String>) {
        self.problems.push(self.source.whole(message));
    }

    fn identity(&mut self, keywords: &Keywords) {
        let template = self.template;
        let path = format!("{}/{}.toml", template.category.name(), template.name());
        if !self.source.file.ends_with(&path) {
            self.report(
                &template.id,
                format!("a template with this id and category belongs in {path}"),
            );
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if template.name().is_empty() || !template.name().chars().all(plain) {
            self.report(
                &template.id,
                "an id may contain only lower-case letters, digits and hyphens",
            );
        }
        let name = template.keyword.get_ref();
        match keywords.get(name) {
            None => {
                let hint = keywords
                    .suggest(name)
                    .map(|k| format!("; did you mean `{k}`?"));
                let hint = hint.unwrap_or_else(|| "; add it to keywords.toml".into());
                self.report(&template.keyword, format!("unknown keyword `{name}`{hint}"));
            }
            Some(keyword) if keyword.category != template.category => {
                let right = keyword.category.name();
                self.report(
                    &template.keyword,
                    format!("keyword `{name}` belongs to category {right}"),
                );
            }
            Some(_) => {}
        }
    }

    fn inputs(&mut self) {
        let template = self.template;
        if template.inputs.len() > 2 {
            self.whole("a template has at most two inputs");
        }
        for (i, input) in template.inputs.iter().enumerate() {
            if input.kinds.is_empty() {
                self.whole(format!("input {i}: `kinds` lists no file type"));
            }
            if input
                .same_columns_as
                .is_some_and(|other| other != 0 || i != 1)
            {
                self.whole("`same_columns_as` is only valid in the second input, with the value 0");
            }
            let Some(split) = &input.split else { continue };
            if !(split.fraction > 0.0 && split.fraction < 1.0) {
                self.whole("`split.fraction` must be between 0 and 1");
            }
            if !template.slots.contains_key(&split.target) {
                self.whole(format!(
                    "`split.target`: no slot is named `{}`",
                    split.target
                ));
            }
        }
    }

    fn slots(&mut self) {
        for (name, slot) in &self.template.slots {
            if let Some(message) = slot_problem(name, slot.get_ref(), self.template) {
                self.problems.push(self.source.at(&slot.span(), message));
            }
        }
    }

    /// The names that are defined by slots, files and language.
    fn bound(&self) -> Names {
        let slots = self.template.slots.keys().cloned();
        let shared = self
            .template
            .inputs
            .iter()
            .any(|i| i.same_columns_as.is_some());
        let common = shared.then(|| "common".to_owned());
        let files = !self.template.inputs.is_empty();
        let files = files.then(|| "file".to_owned());
        let always = ["files", "lang"].map(str::to_owned);
        slots.chain(common).chain(files).chain(always).collect()
    }

    /// Checks that a string compiles and uses only known names.
    fn text(&mut self, text: &Text, known: &Names, what: &str) {
        let compiled = self.environment.template_from_str(text.get_ref());
        let used = match compiled {
            Ok(template) => template.undeclared_variables(false),
            Err(error) => {
                let line = error.line().unwrap_or(1);
                let message = format!("{what}: {error}");
                self.problems
                    .push(self.source.within(&text.span(), line, message));
                return;
            }
        };
        let mut unknown: Vec<_> = used
            .difference(&known.iter().cloned().collect())
            .cloned()
            .collect();
        unknown.sort();
        for name in unknown {
            let hint = closest(&name, known.iter().map(String::as_str));
            let hint = hint
                .map(|h| format!("; did you mean `{h}`?"))
                .unwrap_or_default();
            self.report(
                text,
                format!("{what} uses `{name}`, which is neither a slot nor a value read by an earlier turn{hint}"),
            );
        }
    }

    fn query(&mut self) {
        let known = self.bound();
        for language in [Language::En, Language::Zh] {
            let phrasings = self.template.query.get(language);
            let spoken = language == Language::En || self.template.has_chinese();
            if spoken && phrasings.len() < MIN_PHRASINGS {
                let name = format!("{language:?}").to_lowercase();
                self.whole(format!(
                    "query.{name} has fewer than {MIN_PHRASINGS} phrasings"
                ));
            }
            for phrasing in phrasings {
                let text = &phrasing.text;
                self.text(text, &known, "the query");
                for output in &self.template.outputs {
                    if !text.get_ref().contains(output.get_ref().as_str()) {
                        let message =
                            format!("the query does not spell out `{}`", output.get_ref());
                        self.report(text, message);
                    }
                }
            }
        }
        for output in &self.template.outputs {
            self.text(output, &known, "the output path");
            if !output.get_ref().starts_with("output/") {
                self.report(output, "an output path must start with `output/`");
            }
        }
        self.text(&self.template.reference.code, &known, "the reference");
    }

    /// A template is in English alone, or all of it is in Chinese, too.
    fn languages(&mut self) {
        let template = self.template;
        let thoughts = template.turns.iter().map(|turn| &turn.thought);
        let texts = thoughts.chain([&template.answer]);
        if template.has_chinese() && texts.into_iter().any(|text| text.zh.is_none()) {
            self.whole("some text is in Chinese, but not every thought and `final`; translate all or none of them");
        }
    }

    fn turns(&mut self) {
        let mut known = self.bound();
        if self.template.turns.is_empty() {
            self.whole("a template needs at least one [[turn]]");
        }
        let template = self.template;
        for (i, turn) in template.turns.iter().enumerate() {
            for text in turn.thought.all() {
                self.text(text, &known, "the thought");
            }
            self.text(&turn.cell, &known, "the cell");
            for (name, regex) in &turn.read {
                self.regex(name, regex);
                known.insert(name.clone());
            }
            if turn.mistake && i + 1 == template.turns.len() {
                self.report(
                    &turn.cell,
                    "a turn with `mistake = true` must be followed by a turn that fixes it",
                );
            }
        }
    }

    fn regex(&mut self, name: &str, regex: &Text) {
        match Regex::new(regex.get_ref()) {
            Err(error) => self.report(regex, format!("the regex of `{name}`: {error}")),
            Ok(compiled) if compiled.captures_len() != 2 => {
                let message =
                    format!("the regex of `{name}` needs exactly one group; write others as (?:…)");
                self.report(regex, message);
            }
            Ok(_) => {}
        }
        if self.bound().contains(name) {
            self.report(
                regex,
                format!("`{name}` is already a slot or a built-in variable"),
            );
        }
    }

    fn answers(&mut self) {
        let template = self.template;
        let bound = self.bound();
        let with = |names: Vec<&String>| -> Names { bound.iter().chain(names).cloned().collect() };
        let by_turns = with(
            template
                .reads_before(template.turns.len())
                .map(|r| r.0)
                .collect(),
        );
        let by_alternative = with(template.alternative.read.keys().collect());
        self.text(&template.alternative.cell, &bound, "the alternative");
        for (name, regex) in &template.alternative.read {
            self.regex(name, regex);
        }
        for text in template.answer.all() {
            self.text(text, &by_turns, "the final");
            self.text(text, &by_alternative, "the final (after the alternative)");
        }
    }

    fn checks(&mut self) {
        let template = self.template;
        if template.checks.is_empty() {
            self.whole("a template needs at least one [[check]]");
        }
        for check in &template.checks {
            let at = |message: String| self.source.at(&check.span(), message);
            let json = match serde_json::to_value(&check.get_ref().spec) {
                Ok(json) => json,
                Err(error) => {
                    self.problems.push(at(error.to_string()));
                    continue;
                }
            };
            if let Err(error) = serde_json::from_value::<CheckSpec>(json.clone()) {
                self.problems.push(at(with_suggestion(&error.to_string())));
                continue;
            }
            let problems = self.check_problems(&json);
            let problems: Vec<_> = problems.into_iter().map(at).collect();
            self.problems.extend(problems);
        }
    }

    /// Checks that a check refers to an existing output, to a label that all texts use, and to names that the
    /// reference defines.
    fn check_problems(&self, check: &serde_json::Value) -> Vec<String> {
        let template = self.template;
        let mut problems = Vec::new();
        let text = |key: &str| check.get(key).and_then(|v| v.as_str());
        if let Some(path) = text("path")
            && !template
                .outputs
                .iter()
                .any(|output| output.get_ref() == path)
        {
            problems.push(format!("`{path}` is not among `outputs`"));
        }
        for key in ["expected", "contains", "pages", "duration", "least"] {
            let Some(name) = text(key) else { continue };
            if !has_word(template.reference.code.get_ref(), name) {
                problems.push(format!("the reference does not define `{name}`"));
            }
        }
        if let Some(marker) = text("marker") {
            let queries = template.query.all().map(|wording| &wording.text);
            let mut texts = queries.chain(template.answer.all());
            if !texts.all(|text| text.get_ref().contains(marker)) {
                problems.push(format!(
                    "not every query and final text contains the label `{marker}`"
                ));
            }
        }
        problems
    }

    fn mutants(&mut self) {
        let template = self.template;
        if template.mutants.len() < MIN_MUTANTS {
            self.whole(format!("a template needs at least {MIN_MUTANTS} mutants"));
        }
        let mut names = BTreeSet::new();
        for mutant in &template.mutants {
            if !names.insert(mutant.name.get_ref()) {
                self.report(&mutant.name, "another mutant has this name");
            }
            match (mutant.turn, &mutant.find, &mutant.replace, &mutant.answer) {
                (Some(turn), Some(find), Some(replace), None) => {
                    self.replacement(&mutant.name, turn, find, replace);
                }
                (None, None, None, Some(answer)) => {
                    let mut known = self.bound();
                    known.extend(
                        template
                            .reads_before(template.turns.len())
                            .map(|r| r.0.clone()),
                    );
                    self.text(answer, &known, "the answer");
                }
                _ => self.report(
                    &mutant.name,
                    "a mutant needs either `turn`, `find` and `replace`, or `answer`",
                ),
            }
        }
    }

    fn replacement(&mut self, name: &Text, turn: usize, find: &Text, replace: &Text) {
        let template = self.template;
        let Some(cell) = template.turns.get(turn) else {
            let last = template.turns.len().saturating_sub(1);
            return self.report(name, format!("`turn` must be between 0 and {last}"));
        };
        let mut known = self.bound();
        known.extend(template.reads_before(turn).map(|r| r.0.clone()));
        self.text(find, &known, "`find`");
        self.text(replace, &known, "`replace`");
        // Texts with variables or blocks can only be compared after rendering, which the audit does.
        let literal = |text: &Text| !text.get_ref().contains(['{', '}']);
        let cell = &cell.cell;
        let count = cell.get_ref().matches(find.get_ref().as_str()).count();
        if literal(find) && (literal(cell) || count == 0) && count != 1 {
            let message =
                format!("`find` occurs {count} times in the cell of turn {turn}, not exactly once");
            self.report(find, message);
        }
    }
}

fn slot_problem(name: &str, slot: &Slot, template: &Template) -> Option<String> {
    let identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !identifier || RESERVED.contains(&name) {
        return Some(format!("`{name}` cannot be the name of a slot"));
    }
    let kinds = [
        slot.column.is_some(),
        slot.integer.is_some(),
        slot.choice.is_some(),
        slot.words.is_some(),
    ];
    if kinds.iter().filter(|k| **k).count() != 1 {
        return Some(
            "a slot must have exactly one of `column`, `integer`, `choice` and `words`".into(),
        );
    }
    if let Some(columns) = &slot.column {
        if columns.is_empty() {
            return Some("`column` lists no kind of column".into());
        }
        if slot.input >= template.inputs.len() {
            return Some(format!("there is no input {}", slot.input));
        }
    }
    if slot.integer.is_some_and(|[low, high]| low > high) {
        return Some("`integer` must be [smallest, largest]".into());
    }
    if slot.choice.as_ref().is_some_and(Vec::is_empty) {
        return Some("`choice` must not be empty".into());
    }
    None
}

/// Whether a text contains a word that is not part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let in_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(in_word) && !text[at + word.len()..].starts_with(in_word)
    })
}
