//! Checks what sessions need from the machine: Python, user namespaces, disk space, programs, fonts.

use std::path::{Path, PathBuf};

use super::Finding;
use pybench_interpreter::default_cache_dir;
use pybench_interpreter::environment::Environment;

const PROBES: &[fn() -> Finding] = &[environment, user_namespaces, space, ffmpeg, zbar, cjk_fonts];

/// Free disk space recommended for runs, bytes.
const ENOUGH: u64 = 5 << 30;

/// Folders of shared libraries.
const LIBRARIES: &[&str] = &["/usr/lib", "/usr/lib64", "/lib", "/lib64"];

/// Folder of fonts.
const FONTS: &str = "/usr/share/fonts";

/// Parts of the file names of fonts with Chinese, Japanese and Korean characters.
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
            .remedy("pybench setup"),
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
        false => Finding::good(NAME, "ordinary users may create them"),
        true => Finding::missing(
            NAME,
            "the kernel refuses them to ordinary users",
            "only root can start sessions, or a bubblewrap with its own AppArmor profile",
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
            format!("{} cannot be accessed", cache.display()),
            "downloads and environments cannot be stored",
        )
        .remedy("set PYBENCH_CACHE to a writable folder");
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
            "the environment takes 1.6 GiB, and a run up to several GiB more",
        ),
    }
}

fn ffmpeg() -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("ffmpeg"))
        .find(|path| path.is_file());
    match found {
        Some(path)
            if ["/usr/bin", "/bin"]
                .iter()
                .any(|folder| path.starts_with(folder)) =>
        {
            Finding::good("ffmpeg", path.display().to_string())
        }
        Some(path) => Finding::weak(
            "ffmpeg",
            path.display().to_string(),
            "sessions find programs only in /usr/bin and /bin, so they cannot read MP3 and video",
        )
        .remedy("apt-get install ffmpeg"),
        None => Finding::missing("ffmpeg", "not found", "sessions cannot read MP3 and video")
            .remedy("apt-get install ffmpeg"),
    }
}

fn zbar() -> Finding {
    match library("libzbar.so.0") {
        Some(path) => Finding::good("zbar", path.display().to_string()),
        None => Finding::missing(
            "zbar",
            "libzbar.so.0 not found",
            "QR codes and barcodes can be created but not read or checked",
        )
        .remedy("apt-get install libzbar0"),
    }
}

/// Finds a shared library in the system folders, including those of the architecture.
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
        .remedy("apt-get install fonts-noto-cjk, then pybench setup"),
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
    fn cjk_fonts_are_recognized_by_name() {
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
    fn every_finding_that_is_not_good_names_its_costs() {
        for finding in examine() {
            let good = finding.state == super::super::State::Good;
            assert_eq!(good, finding.costs.is_none(), "{finding:?}");
        }
    }
}
