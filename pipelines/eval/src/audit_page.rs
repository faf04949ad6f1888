//! The page of an audit in the documentation.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::suite::{Origin, SuiteAudit};

/// Maximum number of tasks that a page names as failing.
const MAX_LISTED: usize = 50;

/// Path of the page of a benchmark, relative to the project root.
pub(crate) fn path(suite: &str) -> PathBuf {
    PathBuf::from(format!("docs/suite-audits/{suite}.md"))
}

/// Where the files of a benchmark were read.
pub(crate) struct Checkout {
    pub(crate) folder: PathBuf,
    /// Whether `fetch` compared them with the commit; not if the user named the folder.
    pub(crate) is_verified: bool,
}

/// The page. It depends only on the benchmark and the scores: paths in the checkout are relative.
pub(crate) fn render(
    suite: &str,
    origin: &Origin,
    audit: &SuiteAudit,
    checkout: &Checkout,
) -> String {
    let SuiteAudit {
        summary,
        markdown,
        problems,
        ..
    } = audit;
    let (repository, commit, license) = (origin.repository, origin.commit, origin.license);
    let verified = match checkout.is_verified {
        true => "",
        false => " The files are a copy that was not compared with this commit.",
    };
    let mut text = format!(
        "# Audit of {suite}\n\nWritten by `pybench eval audit --suite {suite} --write`; [what an audit does](../suites.md#audit). \
         Source: {repository}, {commit} (license: {license}).{verified}\n\n{}\n\n{}\n",
        summary.trim(),
        markdown.trim_end()
    );
    if !problems.is_empty() {
        let _ = writeln!(text, "\n{} tasks fail the audit:\n", problems.len());
    }
    for (task, problem) in problems.iter().take(MAX_LISTED) {
        let problem = problem.split_whitespace().collect::<Vec<_>>().join(" ");
        let folder = format!("{}/", checkout.folder.display());
        let problem = problem.replace(&folder, "");
        let _ = writeln!(text, "- {task}: {problem}");
    }
    if problems.len() > MAX_LISTED {
        let _ = writeln!(text, "\nThe first {MAX_LISTED} are listed.");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const ORIGIN: Origin = Origin {
        repository: "https://example.org/set.git",
        commit: "0123abc",
        files: &[],
        license: "MIT",
        cache: "suites/set",
    };

    #[test]
    fn the_page_has_the_source_the_table_and_what_fails() {
        let mut audit = SuiteAudit {
            json: Value::Null,
            markdown: "| tasks |\n| --- |\n| 3 |\n".into(),
            summary: "Set: 3 of 3 references pass.".into(),
            problems: Vec::new(),
        };
        let mut checkout = Checkout {
            folder: "/here/set".into(),
            is_verified: true,
        };
        let page = render("set", &ORIGIN, &audit, &checkout);
        for part in [
            "# Audit of set\n",
            "https://example.org/set.git, 0123abc (license: MIT).\n\n",
            "\n\nSet: 3 of 3 references pass.\n\n| tasks |\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.ends_with("| 3 |\n"), "{page}");
        audit.problems = (0..60)
            .map(|n| (format!("t{n}"), "/here/set/a.csv:\nno file".into()))
            .collect();
        checkout.is_verified = false;
        let page = render("set", &ORIGIN, &audit, &checkout);
        let unverified =
            "(license: MIT). The files are a copy that was not compared with this commit.\n\n";
        assert!(page.contains(unverified), "{page}");
        assert!(
            page.contains("\n60 tasks fail the audit:\n\n- t0: a.csv: no file\n"),
            "{page}"
        );
        assert_eq!(page.matches("\n- t").count(), MAX_LISTED);
        assert!(page.ends_with("\nThe first 50 are listed.\n"), "{page}");
        assert_eq!(path("set"), PathBuf::from("docs/suite-audits/set.md"));
    }
}
