//! What sessions use of the machine, and what its absence costs.

use std::path::{Path, PathBuf};

use super::Finding;
use crate::interpreter::environment::Environment;
use crate::run::default_cache_dir;

/// The questions.
const PROBES: &[fn() -> Finding] = &[environment, user_namespaces, space, ffmpeg, zbar, cjk_fonts];

/// Space below which a run may stop for the disk, bytes.
const ENOUGH: u64 = 5 << 30;

/// Where libraries lie, beside what the loader's cache names.
const LIBRARIES: &[&str] = &["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib"];

/// Where fonts lie.
const FONTS: &str = "/usr/share/fonts";

/// Names of fonts that have Chinese, Japanese and Korean characters.
const CJK: &[&str] = &[
    "cjk",
    "wqy",
    "wenquanyi",
    "sourcehan",
    "source-han",
    "uming",
    "ukai",
    "droidsansfallback",
];

pub(super) fn examine() -> Vec<Finding> {
    PROBES.iter().map(|probe| probe()).collect()
}

fn environment() -> Finding {
    const NAME: &str = "Python";
    match Environment::find() {
        Ok(found) => Finding::good(NAME, found.root.display().to_string()),
        Err(error) => Finding::missing(NAME, error.to_string(), "no session can be run")
            .remedy("./justw setup"),
    }
}

fn user_namespaces() -> Finding {
    const NAME: &str = "user namespaces";
    if rustix::process::geteuid().is_root() {
        return Finding::good(NAME, "not needed to start sessions as root");
    }
    let number = |path| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let refused = number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0)
        || number("/proc/sys/user/max_user_namespaces") == Some(0)
        || number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    match refused {
        false => Finding::good(NAME, "an ordinary user may make them"),
        true => Finding::missing(
            NAME,
            "the kernel refuses them to ordinary users",
            "sessions can be started only by root, or by a bubblewrap with a profile of its own",
        )
        .remedy("sysctl -w kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0"),
    }
}

fn space() -> Finding {
    const NAME: &str = "disk space";
    let cache = default_cache_dir();
    let there = cache.ancestors().find(|folder| folder.exists());
    let stat = there.map(rustix::fs::statvfs);
    let Some(Ok(stat)) = stat else {
        return Finding::missing(
            NAME,
            format!("{} cannot be looked at", cache.display()),
            "downloads and environments cannot be kept",
        )
        .remedy("set PYBENCH_CACHE to a folder that can be written");
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let seen = format!(
        "{:.1} GiB free in {}",
        free as f64 / f64::from(1 << 30),
        cache.display()
    );
    match free >= ENOUGH {
        true => Finding::good(NAME, seen),
        false => Finding::weak(
            NAME,
            seen,
            "the environment takes 1.6 GiB, a run up to some GiB more",
        ),
    }
}

fn ffmpeg() -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("ffmpeg"))
        .find(|path| path.is_file());
    match found {
        Some(path) if path.starts_with("/usr") || path.starts_with("/bin") => {
            Finding::good("ffmpeg", path.display().to_string())
        }
        Some(path) => Finding::weak(
            "ffmpeg",
            path.display().to_string(),
            "sessions see programs below /usr only: they cannot read mp3 and video",
        )
        .remedy("apt-get install ffmpeg"),
        None => Finding::missing("ffmpeg", "not found", "sessions cannot read mp3 and video")
            .remedy("apt-get install ffmpeg"),
    }
}

fn zbar() -> Finding {
    match library("libzbar.so.0") {
        Some(path) => Finding::good("zbar", path.display().to_string()),
        None => Finding::missing(
            "zbar",
            "libzbar.so.0 not found",
            "QR codes and barcodes can be drawn but not read, nor checked",
        )
        .remedy("apt-get install libzbar0"),
    }
}

/// A shared library in the folders of the system and those of its architecture.
fn library(name: &str) -> Option<PathBuf> {
    let architecture = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = LIBRARIES.iter().map(PathBuf::from);
    let mut folders = folders.flat_map(|folder| [folder.join(&architecture), folder]);
    folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.exists()))
}

fn cjk_fonts() -> Finding {
    match font(Path::new(FONTS), 4) {
        Some(path) => Finding::good("CJK fonts", path.display().to_string()),
        None => Finding::missing(
            "CJK fonts",
            format!("none below {FONTS}"),
            "Chinese, Japanese and Korean labels in charts are drawn as boxes",
        )
        .remedy("apt-get install fonts-noto-cjk, then ./justw setup"),
    }
}

fn font(folder: &Path, depth: usize) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            folders.push(path);
        } else if is_cjk(&entry.file_name().to_string_lossy()) {
            return Some(path);
        }
    }
    let deeper = depth.checked_sub(1)?;
    folders.into_iter().find_map(|folder| font(&folder, deeper))
}

fn is_cjk(file: &str) -> bool {
    let name = file.to_ascii_lowercase();
    let font = [".ttf", ".otf", ".ttc"]
        .iter()
        .any(|end| name.ends_with(end));
    font && CJK.iter().any(|known| name.contains(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fonts_are_told_by_their_names() {
        for name in [
            "NotoSansCJK-Regular.ttc",
            "wqy-zenhei.ttc",
            "SourceHanSansSC.otf",
        ] {
            assert!(is_cjk(name), "{name}");
        }
        for name in ["DejaVuSans.ttf", "NotoSansCJK.conf", "cjk"] {
            assert!(!is_cjk(name), "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        assert_eq!(font(folder.path(), 4), None);
        let path = folder.path().join("a/b/NotoSerifCJK.ttc");
        std::fs::write(&path, "").unwrap();
        assert_eq!(font(folder.path(), 4), Some(path));
    }

    #[test]
    fn what_is_missing_says_what_it_costs_and_what_to_do() {
        for finding in examine() {
            let good = finding.state == super::super::State::Good;
            assert_eq!(good, finding.costs.is_none(), "{finding:?}");
        }
    }
}
