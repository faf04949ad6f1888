//! The checker's Python sources, embedded in the binary so that the digest always matches the code.

macro_rules! sources {
    ($($path:literal),* $(,)?) => {
        /// Path in the checker's folder → source.
        pub(super) const SOURCES: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../python/", $path)))),*];
    };
}

sources![
    "answers.py",
    "chart/__init__.py",
    "chart/axes.py",
    "chart/labels.py",
    "chart/marks.py",
    "chart/picture.py",
    "chart/polar.py",
    "chart/rc.py",
    "chart/redraw.py",
    "chart/seen.py",
    "checker.py",
    "checks/__init__.py",
    "checks/audio.py",
    "checks/calls.py",
    "checks/denotation.py",
    "checks/docx.py",
    "checks/frames.py",
    "checks/html.py",
    "checks/image.py",
    "checks/json.py",
    "checks/model.py",
    "checks/number.py",
    "checks/pdf.py",
    "checks/plot.py",
    "checks/program.py",
    "checks/property.py",
    "checks/qr.py",
    "checks/symbolic.py",
    "checks/table.py",
    "checks/text.py",
    "checks/values.py",
    "clouds.py",
    "common.py",
    "delimited.py",
    "evaluate.py",
    "foreign/run_calls.py",
    "foreign/run_model.py",
    "foreign/run_program.py",
    "foreign_inputs.py",
    "formulas.py",
    "function_tests.py",
    "inputs.py",
    "judge.py",
    "mutate/__init__.py",
    "mutate/audio.py",
    "mutate/audit.py",
    "mutate/calls.py",
    "mutate/denotation.py",
    "mutate/docx.py",
    "mutate/frames.py",
    "mutate/html.py",
    "mutate/image.py",
    "mutate/json.py",
    "mutate/model.py",
    "mutate/number.py",
    "mutate/pdf.py",
    "mutate/plot.py",
    "mutate/program.py",
    "mutate/property.py",
    "mutate/qr.py",
    "mutate/restate.py",
    "mutate/symbolic.py",
    "mutate/table.py",
    "mutate/text.py",
    "mutate/values.py",
    "pictures.py",
    "plots/__init__.py",
    "plots/compare.py",
    "plots/read.py",
    "ref.py",
    "shown.py",
    "soundness.py",
    "sounds.py",
    "tables.py",
    "videos.py",
    "webpages.py",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_source_is_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "py") {
                    found.push(
                        path.strip_prefix(&root)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    );
                }
            }
        }
        found.sort();
        let mut known: Vec<_> = super::SOURCES
            .iter()
            .map(|(path, _)| path.to_string())
            .collect();
        known.sort();
        assert_eq!(found, known);
    }
}
