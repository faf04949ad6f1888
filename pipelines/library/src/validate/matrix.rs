//! Validates that every requirement of a query is marked in every wording, decided by a check and violated by a
//! mutant, and that every check decides a requirement.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::{Text, Validator, closest};
use crate::requirement::{Requirement, Wording, is_id};

static IMPORT: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"(?m)^\s*(?:from\s+(\w+)[\w.]*\s+import|import\s+([^\n#]+))").unwrap()
});

impl Validator<'_> {
    pub(super) fn matrix(&mut self) {
        let template = self.template;
        self.check_ids();
        for wording in template.query.all() {
            self.marks(wording);
        }
        for mutant in &template.mutants {
            self.violation(mutant.violates.as_ref(), &mutant.also);
        }
        if template.requirements.is_empty() {
            return self
                .whole("a template needs [requirements]; docs/requirements.md describes them");
        }
        for (id, requirement) in &template.requirements {
            let problems = self.requirement_problems(id, requirement.get_ref());
            let at = |message| self.source.at(&requirement.span(), message);
            self.problems.extend(problems.into_iter().map(at));
            self.names_in(requirement.get_ref());
        }
        self.checks_without_requirement();
        self.libraries();
    }

    fn check_ids(&mut self) {
        let mut seen = BTreeSet::new();
        for check in &self.template.checks {
            let Some(id) = &check.get_ref().id else {
                continue;
            };
            let message = match (is_id(id), seen.insert(id)) {
                (false, _) => {
                    format!("the id `{id}` may contain only lower-case letters, digits and hyphens")
                }
                (_, false) => format!("another check has the id `{id}`"),
                _ => continue,
            };
            self.problems.push(self.source.at(&check.span(), message));
        }
    }

    /// Each wording marks each requirement once and nothing else.
    fn marks(&mut self, wording: &Wording) {
        if let Some(problem) = &wording.problem {
            return self.report(&wording.text, problem.clone());
        }
        for mark in &wording.marks {
            self.requirement_exists(&wording.text, &mark.requirement);
            if mark.words.is_empty() {
                let message = format!(
                    "the mark of requirement `{}` contains no words",
                    mark.requirement
                );
                self.report(&wording.text, message);
            }
        }
        for id in self.template.requirements.keys() {
            let message = match wording.words(id).count() {
                1 => continue,
                0 => format!(
                    "this wording does not mark requirement `{id}`; write [[{id}|words]] where it states it"
                ),
                count => format!("this wording marks requirement `{id}` {count} times, not once"),
            };
            self.report(&wording.text, message);
        }
    }

    fn violation(&mut self, violates: Option<&Text>, also: &[Text]) {
        match violates {
            Some(violates) => self.requirement_exists(violates, violates.get_ref()),
            None => {
                for check in also {
                    self.report(check, "`also` is only valid in a mutant with `violates`");
                }
            }
        }
        for check in also {
            self.check_exists(check);
        }
    }

    fn requirement_exists(&mut self, place: &Text, id: &str) {
        if !self.template.requirements.contains_key(id) {
            let hint = hint(id, self.template.requirements.keys().map(String::as_str));
            self.report(
                place,
                format!("no requirement `{id}` in [requirements]{hint}"),
            );
        }
    }

    fn check_exists(&mut self, name: &Text) {
        if self.template.finding(name.get_ref()).is_none() {
            let ids = self
                .template
                .checks
                .iter()
                .filter_map(|check| check.get_ref().id.as_deref());
            let hint = hint(name.get_ref(), ids);
            self.report(
                name,
                format!("no check has the id `{}`{hint}", name.get_ref()),
            );
        }
    }

    fn requirement_problems(&self, id: &str, requirement: &Requirement) -> Vec<String> {
        let mut problems = Vec::new();
        if !is_id(id) {
            problems.push(format!(
                "the id `{id}` may contain only lower-case letters, digits and hyphens"
            ));
        }
        if requirement.checks.is_empty() {
            problems.push(format!(
                "requirement `{id}` has no check that decides it; name one in `checks`"
            ));
        }
        if !self
            .template
            .mutants
            .iter()
            .any(|mutant| mutant.violates(id))
        {
            problems.push(format!(
                "no mutant violates requirement `{id}`; add one with `violates = \"{id}\"`"
            ));
        }
        problems
    }

    /// The names that a requirement refers to exist.
    fn names_in(&mut self, requirement: &Requirement) {
        for check in &requirement.checks {
            self.check_exists(check);
        }
        for condition in requirement.conditions(true) {
            self.text(condition, &self.bound(), "the condition");
            if condition.get_ref().contains('\n') {
                self.report(condition, "`distinct` and `shows` must be one line");
            }
        }
    }

    fn checks_without_requirement(&mut self) {
        let template = self.template;
        let requirements = template.requirements.values();
        let named: BTreeSet<&str> = requirements
            .flat_map(|requirement| {
                requirement
                    .get_ref()
                    .checks
                    .iter()
                    .map(|check| check.get_ref().as_str())
            })
            .collect();
        for check in &template.checks {
            let decides = check
                .get_ref()
                .id
                .as_deref()
                .is_some_and(|id| named.contains(id));
            if !decides {
                let message = "this check decides no requirement; give it an `id` and name it in `checks` of one";
                self.problems.push(self.source.at(&check.span(), message));
            }
        }
    }

    /// The alternative uses other libraries than the expert, so that a check that fits one of them shows.
    fn libraries(&mut self) {
        let cells = self
            .template
            .turns
            .iter()
            .map(|turn| turn.cell.get_ref().as_str());
        let expert: BTreeSet<String> = cells.flat_map(imports).collect();
        let alternative = &self.template.alternative.cell;
        if imports(alternative.get_ref()).eq(expert.iter().cloned()) {
            let names = Vec::from_iter(expert).join(", ");
            let message = format!(
                "the alternative uses the same libraries as the turns ({names}); use others"
            );
            self.report(alternative, message);
        }
    }
}

fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let hint = closest(wrong, known).map(|name| format!("; did you mean `{name}`?"));
    hint.unwrap_or_default()
}

/// The top-level modules that a cell imports, sorted.
fn imports(cell: &str) -> impl Iterator<Item = String> + use<> {
    let mut found = BTreeSet::new();
    for captures in IMPORT.captures_iter(cell) {
        found.extend(captures.get(1).map(|name| name.as_str().to_owned()));
        let names = captures
            .get(2)
            .map_or("", |names| names.as_str())
            .split(',');
        let names = names.map(|name| name.trim().split([' ', '.']).next().unwrap_or_default());
        found.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    found.into_iter()
}
