//! A whole dataset in one step: split, shards, card; the old dataset or the new one, never half.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use pybench::id::Digest;
use pybench::run::ContentStore;
use pybench::task::TaskFile;

use crate::card::{self, About};
use crate::proof::{self, Root};
use crate::row::category_name;
use crate::scrub::{Report, Scrubber};
use crate::shards::{self, ShardSettings};
use crate::split::{self, Place, Split, SplitRow, SplitSettings};
use crate::stats::Stats;
use crate::{DatasetError, Row, RowFile};

/// Temporary folders beside a dataset begin so; those of a dead process are removed.
const TEMPORARY: &str = ".pybench-dataset-";

/// What was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Statistics of the train split.
    pub train: Stats,
    /// Statistics of the test split.
    pub test: Stats,
    /// How the split came out.
    pub split: Split,
    /// Digest of all rows; the card names it.
    pub digest: Digest,
    /// What the scrubber took out.
    pub scrub: Report,
    /// Input files that the dataset carries, and their bytes.
    pub files: (usize, u64),
}

/// Folder of the input files of a dataset: each under its digest.
pub const FILES: &str = "files";

/// Write a dataset: `README.md` and `data/*.parquet`. An existing dataset in `folder` is replaced
/// in one step. The caller sees to it that nobody else writes there.
///
/// Every row goes through the [`Scrubber`] of this machine first.
pub fn write(
    folder: &Path,
    rows: Vec<Row>,
    split_settings: &SplitSettings,
    shard_settings: &ShardSettings,
    about: &About,
) -> Result<Written, DatasetError> {
    let scrubber = Scrubber::of_machine();
    write_with(
        folder,
        rows,
        (split_settings, shard_settings),
        about,
        &scrubber,
        None,
    )
}

/// As [`write`], with that scrubber. Where `store` has the input files of the rows, the dataset carries
/// them below [`FILES`], so that others can run the rows again: all that state a licence and hold
/// nothing that the scrubber would take out.
pub fn write_with(
    folder: &Path,
    mut rows: Vec<Row>,
    (split_settings, shard_settings): (&SplitSettings, &ShardSettings),
    about: &About,
    scrubber: &Scrubber,
    store: Option<&ContentStore>,
) -> Result<Written, DatasetError> {
    let mut scrub = Report::default();
    for row in &mut rows {
        let found = scrubber.row(row);
        scrub.rows += usize::from(found.total() > 0);
        scrub.found.merge(&found);
    }
    let split = split_rows(&rows, split_settings);
    let (train, test) = distribute(rows, &split);
    let mut written = Written {
        train: Stats::of(&train),
        test: Stats::of(&test),
        split,
        digest: root(&train, &test),
        scrub,
        files: (0, 0),
    };
    let new = Folder::begin(folder)?;
    let data = new.path().join("data");
    fs::create_dir(&data).map_err(DatasetError::io(&data))?;
    shards::write(&data, "train", &train, shard_settings)?;
    if !test.is_empty() {
        shards::write(&data, "test", &test, shard_settings)?;
    }
    if let Some(store) = store {
        let mut named = BTreeMap::new();
        for row in train.iter().chain(&test) {
            let shown = row.files.iter().map(RowFile::as_task_file);
            for file in shown.chain(row.grading.held_out.iter().cloned()) {
                named.entry(file.id.clone()).or_insert(file);
            }
        }
        carry_files(
            &new.path().join(FILES),
            named,
            store,
            scrubber,
            &mut written,
        )?;
    }
    new.finish(about, written, folder)
}

/// A dataset on its way into its place.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    /// Beside the place it is for; what dead processes left there goes.
    pub(crate) fn begin(place: &Path) -> Result<Self, DatasetError> {
        let parent = parent(place)?;
        remove_leftovers(parent)?;
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempdir_in(parent);
        Ok(Self(temporary.map_err(DatasetError::io(parent))?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// With its card, in its place.
    pub(crate) fn finish(
        self,
        about: &About,
        written: Written,
        place: &Path,
    ) -> Result<Written, DatasetError> {
        let text = card::render(about, &written);
        write_synced(&self.path().join("README.md"), text.as_bytes())?;
        open_to_readers(self.path())?;
        replace(self.0, place)?;
        Ok(written)
    }
}

fn root(train: &[Row], test: &[Row]) -> Digest {
    let mut root = Root::default();
    for (split, rows) in [("train", train), ("test", test)] {
        for row in rows {
            root.add(split, &proof::row_digest(row));
        }
    }
    root.digest()
}

/// Put input files beside the rows.
pub(crate) fn carry_files(
    folder: &Path,
    named: BTreeMap<Digest, TaskFile>,
    store: &ContentStore,
    scrubber: &Scrubber,
    written: &mut Written,
) -> Result<(), DatasetError> {
    for (id, file) in named {
        let from = store.path(&id);
        if file.licence.is_none() || !from.is_file() {
            continue;
        }
        let bytes = fs::read(&from).map_err(DatasetError::io(&from))?;
        let found = scrubber.file(&bytes);
        if found.total() > 0 {
            written
                .scrub
                .withheld
                .push((id.to_string(), file.name, found));
            continue;
        }
        let to = folder.join(&id.as_str()[..2]).join(id.as_str());
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(DatasetError::io(parent))?;
        }
        // The bytes of a store never change: they need not be there twice.
        if fs::hard_link(&from, &to).is_err() {
            fs::write(&to, &bytes).map_err(DatasetError::io(&to))?;
        }
        written.files.0 += 1;
        written.files.1 += bytes.len() as u64;
    }
    Ok(())
}

fn split_rows(rows: &[Row], settings: &SplitSettings) -> Split {
    let row = |row: &'_ Row| -> (String, &'static str, Vec<String>) {
        let category = category_name(row.category);
        (row.template.clone(), category, row.shared_keys.clone())
    };
    let owned: Vec<_> = rows.iter().map(row).collect();
    let rows: Vec<SplitRow<'_>> = owned
        .iter()
        .map(|(template, category, keys)| SplitRow {
            template,
            category,
            keys,
        })
        .collect();
    split::split(&rows, settings)
}

fn distribute(rows: Vec<Row>, split: &Split) -> (Vec<Row>, Vec<Row>) {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (mut row, place) in rows.into_iter().zip(&split.places) {
        row.held_out_template = split.held_out.contains(&row.template);
        match place {
            Place::Train => train.push(row),
            Place::Test => test.push(row),
            Place::Dropped => {}
        }
    }
    (train, test)
}

fn parent(folder: &Path) -> Result<&Path, DatasetError> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => {
            return Err(DatasetError::Setting(format!(
                "{} cannot hold a dataset: name a folder below it",
                folder.display()
            )));
        }
    };
    fs::create_dir_all(parent).map_err(DatasetError::io(parent))?;
    Ok(parent)
}

/// Remove what a killed process left.
fn remove_leftovers(parent: &Path) -> Result<(), DatasetError> {
    for entry in fs::read_dir(parent).map_err(DatasetError::io(parent))? {
        let path = entry.map_err(DatasetError::io(parent))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(TEMPORARY)) {
            fs::remove_dir_all(&path).map_err(DatasetError::io(&path))?;
        }
    }
    Ok(())
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), DatasetError> {
    let mut file = File::create_new(path).map_err(DatasetError::io(path))?;
    file.write_all(bytes).map_err(DatasetError::io(path))?;
    file.sync_all().map_err(DatasetError::io(path))
}

/// A temporary folder is its maker's alone; a dataset is for others to read.
fn open_to_readers(folder: &Path) -> Result<(), DatasetError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(DatasetError::io(folder))
}

/// Put the new dataset in the place of the old one, which goes with the temporary folder.
fn replace(new: tempfile::TempDir, folder: &Path) -> Result<(), DatasetError> {
    match renameat_with(CWD, new.path(), CWD, folder, RenameFlags::EXCHANGE) {
        Ok(()) => new.close().map_err(DatasetError::io(folder)),
        // There is no old one.
        Err(Errno::NOENT) => {
            let path = new.keep();
            fs::rename(&path, folder).map_err(DatasetError::io(folder))
        }
        // A file system that cannot exchange: for a moment there is neither.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::remove_dir_all(folder).map_err(DatasetError::io(folder))?;
            let path = new.keep();
            fs::rename(&path, folder).map_err(DatasetError::io(folder))
        }
        Err(error) => Err(DatasetError::io(folder)(error.into())),
    }
}
