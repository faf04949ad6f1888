//! Tasks that are said less precisely.

use pybench_types::held_out::composition;
use pybench_types::id::Digest;

use super::*;

#[test]
fn a_task_said_less_precisely_is_the_same_task() {
    let crawled = file(&table(120)).1;
    let makes = |seed: u64| {
        let (file, bytes) = file(&table(120));
        let seed = TaskSeed {
            foreign_names: None,
            seed,
            language: [Language::En, Language::Zh][seed as usize % 2],
            medium: Medium::Table,
            messy: false,
            renamed: true,
            avoided: &HeldOutRule::default(),
        };
        make(&file, &bytes, seed, str::to_owned).unwrap()
    };
    let mut kinds = BTreeSet::new();
    for (seed, Made { task, files }) in (0..60).filter_map(|seed| Some((seed, makes(seed)?))) {
        let of = |file: &pybench_types::task::TaskFile| {
            let is_it = |bytes: &&Vec<u8>| Digest::of_bytes(bytes) == file.id;
            files.iter().find(is_it).unwrap_or(&crawled).clone()
        };
        let bytes: Vec<Vec<u8>> = task.files.iter().map(of).collect();
        let Some(said) = imprecise(&task, &bytes, seed) else {
            continue;
        };
        assert_eq!(Some(&said), imprecise(&task, &bytes, seed).as_ref());
        assert_ne!(said.query, task.query);
        assert_ne!(said.id, task.id);
        assert_eq!(said.id, said.compute_id());
        assert_eq!((&said.checks, &said.files), (&task.checks, &task.files));
        let plan = |task: &pybench_types::task::Task| Plan::of(task).unwrap();
        assert_eq!(plan(&said), plan(&task));
        let wordings = composition(&said).1;
        let (exact, added) = wordings.split_at(composition(&task).1.len());
        assert_eq!(exact, composition(&task).1);
        assert!(!added.is_empty(), "{}", said.query);
        assert!(added.iter().all(|name| is_wording(name)), "{added:?}");
        kinds.extend(added.to_vec());
    }
    for kind in ["en/0", "en/1", "zh/0", "zh/1"] {
        let name = format!("imprecise/{kind}");
        assert!(kinds.contains(&name), "{name} is missing in {kinds:?}");
    }
}
