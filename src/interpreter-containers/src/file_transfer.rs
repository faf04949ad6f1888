//! Transfers files to and from a remote workspace. For each file: a 4-byte length and the path, an 8-byte
//! length and the contents; at the end a zero length. Lengths are big-endian. Received data is untrusted.
//!
//! The format is not `tar` because that has links, sparse files and extended headers, which the receiver would
//! have to refuse, and no place for the files that were skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use pybench_interpreter::{Collected, CollectedFile, Limits};

/// Maximum length of a path, bytes.
const MAX_PATH: usize = 4096;
/// Maximum number of skipped files reported.
const MAX_REFUSED: usize = 200;
/// The length that marks a skipped file; its path contains the reason.
const REFUSED: u64 = u64::MAX;

/// Python program that writes the received files to `/given`.
pub(super) const RECEIVE: &str = "\
import os, shutil, sys
def take(count):
    data = sys.stdin.buffer.read(count)
    assert len(data) == count
    return data
while length := int.from_bytes(take(4), 'big'):
    path = '/given/' + take(length).decode()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    size = int.from_bytes(take(8), 'big')
    if path.endswith('/'): continue
    with open(path, 'wb') as file:
        while size:
            piece = take(min(size, 1 << 20))
            file.write(piece); size -= len(piece)
    os.chmod(path, 0o755 if '/bin/' in path else 0o444)
open('/given/complete', 'w').close()
print('ok')";

/// Python program that sends the regular files of `./output`; like `collect.rs` it follows no links and does
/// not block on pipes.
pub(super) const SEND: &str = "\
import os, stat, sys
most_files, most_bytes = int(sys.argv[1]), int(sys.argv[2])
out = sys.stdout.buffer
def head(text, size):
    path = text.encode('utf-8', 'replace')[:4096]
    out.write(len(path).to_bytes(4, 'big') + path + size.to_bytes(8, 'big'))
def refuse(path, why): head(f'{path}: {why}', (1 << 64) - 1)
def walk(folder, path, depth):
    global most_files, most_bytes
    for name in sorted(os.listdir(folder)):
        here = f'{path}/{name}'
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(kind) and depth < 16:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=folder)
            walk(fd, here, depth + 1)
            os.close(fd)
            continue
        if not stat.S_ISREG(kind): refuse(here, 'not a regular file'); continue
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        size = os.fstat(fd).st_size
        if most_files < 1 or size > most_bytes: refuse(here, 'over the limit')
        else:
            data = os.read(fd, size)
            most_files -= 1; most_bytes -= len(data)
            head(here, len(data)); out.write(data)
        os.close(fd)
root = os.open('output', os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
walk(root, 'output', 0)
out.write(bytes(4))";

/// Python program that prints a digest of the workspace: names, types, permissions, links and contents.
pub(super) const DIGEST: &str = "\
import hashlib, os, stat
digest, left = hashlib.sha256(), 50_000
def walk(folder, depth):
    global left
    names = sorted(os.listdir(folder))
    left -= len(names)
    assert left >= 0 and depth < 64
    for name in names:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        link = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(mode) else ''
        digest.update(repr((os.fsencode(name), mode, link)).encode())
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            if stat.S_ISDIR(mode): walk(fd, depth + 1)
            else:
                with open(fd, 'rb', closefd=False) as file: digest.update(hashlib.file_digest(file, 'sha256').digest())
            os.close(fd)
    digest.update(b'.')
walk(os.open('.', os.O_RDONLY), 0)
print(digest.hexdigest())";

/// Sends the files below `from` as `to/…`.
pub(super) async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    from: &Path,
    to: &str,
) -> io::Result<()> {
    let mut left = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        if !from.is_dir() {
            head(writer, &to, fs::metadata(&from)?.len()).await?;
            tokio::io::copy(&mut tokio::fs::File::open(&from).await?, writer).await?;
            continue;
        }
        head(writer, &format!("{to}/"), 0).await?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            if entry.file_name() != "__pycache__" {
                let name = entry.file_name();
                left.push((entry.path(), format!("{to}/{}", name.to_string_lossy())));
            }
        }
    }
    Ok(())
}

/// Sends the end marker.
pub(super) async fn finish(writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    writer.write_u32(0).await?;
    writer.shutdown().await
}

async fn head(writer: &mut (impl AsyncWrite + Unpin), path: &str, size: u64) -> io::Result<()> {
    let length = u32::try_from(path.len()).map_err(io::Error::other)?;
    writer.write_u32(length).await?;
    writer.write_all(path.as_bytes()).await?;
    writer.write_u64(size).await
}

/// Receives files from [`SEND`]; the sender is untrusted.
///
/// # Errors
/// If the data is malformed, names a path outside `output`, or exceeds the limits.
pub(super) async fn receive(
    reader: &mut (impl AsyncRead + Unpin),
    limits: &Limits,
) -> io::Result<Collected> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut found, mut names) = (Collected::default(), BTreeSet::new());
    let mut room = limits.output_mib << 20;
    loop {
        let length = reader.read_u32().await? as usize;
        if length == 0 {
            break;
        }
        if length > MAX_PATH {
            return Err(wrong("a path is too long"));
        }
        let mut path = vec![0; length];
        reader.read_exact(&mut path).await?;
        let path = String::from_utf8(path).map_err(|_| wrong("a path is not UTF-8"))?;
        let size = reader.read_u64().await?;
        if size == REFUSED {
            if found.refused.len() >= MAX_REFUSED {
                return Err(wrong("too many refusals"));
            }
            found.refused.push(path);
            continue;
        }
        if !is_output(&path) || !names.insert(path.clone()) {
            return Err(wrong("an invalid or repeated path"));
        }
        if size > room || found.files.len() >= limits.output_files {
            return Err(wrong("more files or bytes than the limits"));
        }
        room -= size;
        let mut bytes = Vec::new(); // grows with the received bytes, not with the announced size
        reader.take(size).read_to_end(&mut bytes).await?;
        if bytes.len() as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        found.files.push(CollectedFile { path, bytes });
    }
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    found.refused.sort();
    Ok(found)
}

fn is_output(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    parts.next() == Some(Component::Normal("output".as_ref()))
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && !path.contains("//")
        && !path.contains("/./")
        && !path.ends_with('/')
        && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    fn read(mut bytes: &[u8]) -> io::Result<Collected> {
        let limits = Limits {
            output_mib: 1,
            output_files: 2,
            ..Limits::default()
        };
        block_on(receive(&mut bytes, &limits))
    }

    fn packed(files: &[(&str, u64, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (path, size, content) in files {
            block_on(head(&mut bytes, path, *size)).unwrap();
            bytes.extend_from_slice(content);
        }
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn files_and_skipped_files_are_received() {
        let bytes = packed(&[
            ("output/b", 2, b"xy"),
            ("output/link: not a regular file", REFUSED, b""),
            ("output/a/c", 0, b""),
        ]);
        let found = read(&bytes).unwrap();
        let paths: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["output/a/c", "output/b"]);
        assert_eq!(found.files[1].bytes, b"xy");
        assert_eq!(found.refused, ["output/link: not a regular file"]);
    }

    #[test]
    fn invalid_data_is_refused() {
        for path in [
            "/etc/passwd",
            "output/../x",
            "output",
            "output/",
            "data/x",
            "output//x",
            "output/./x",
            "../output/x",
        ] {
            assert!(read(&packed(&[(path, 0, b"")])).is_err(), "{path}");
        }
        assert!(read(&packed(&[("output/a", 0, b""), ("output/a", 0, b"")])).is_err());
        assert!(read(&packed(&[("output/a", 2 << 20, b"")])).is_err());
        assert!(
            read(&packed(&[
                ("output/a", 0, b""),
                ("output/b", 0, b""),
                ("output/c", 0, b"")
            ]))
            .is_err()
        );
        assert!(read(&packed(&[("output/a", 1 << 19, b"less")])).is_err());
        assert!(read(b"\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn fuzz_files() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = read(bytes);
            if let Ok(found) = read(&packed(&[("output/x", bytes.len() as u64, bytes)])) {
                assert_eq!(found.files[0].bytes, bytes);
            }
        });
    }
}
