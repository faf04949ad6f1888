//! A whole dataset in one step: split, shards, card; the old dataset or the new one, never half.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::card::{self, About};
use crate::row::category_name;
use crate::shards::{self, ShardSettings};
use crate::split::{self, Place, Split, SplitRow, SplitSettings};
use crate::stats::Stats;
use crate::{DatasetError, Row};

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
}

/// Write a dataset: `README.md` and `data/*.parquet`. An existing dataset in `folder` is replaced
/// in one step. The caller sees to it that nobody else writes there.
pub fn write(
    folder: &Path,
    rows: Vec<Row>,
    split_settings: &SplitSettings,
    shard_settings: &ShardSettings,
    about: &About,
) -> Result<Written, DatasetError> {
    let split = split_rows(&rows, split_settings);
    let (train, test) = distribute(rows, &split);
    let written = Written {
        train: Stats::of(&train),
        test: Stats::of(&test),
        split,
    };
    let parent = parent(folder)?;
    remove_leftovers(parent)?;
    let temporary = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .tempdir_in(parent)
        .map_err(DatasetError::io(parent))?;
    let data = temporary.path().join("data");
    fs::create_dir(&data).map_err(DatasetError::io(&data))?;
    shards::write(&data, "train", &train, shard_settings)?;
    if !test.is_empty() {
        shards::write(&data, "test", &test, shard_settings)?;
    }
    let text = card::render(about, &written);
    write_synced(&temporary.path().join("README.md"), text.as_bytes())?;
    open_to_readers(temporary.path())?;
    replace(temporary, folder)?;
    Ok(written)
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
