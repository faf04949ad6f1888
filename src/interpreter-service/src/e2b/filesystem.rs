//! `filesystem.Filesystem` of E2B's sandbox daemon: unary calls of the Connect protocol, in JSON.

use std::sync::Arc;

use axum::extract::{Extension, FromRequest, Path, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::inside;
use crate::body;
use crate::error::ApiError;
use crate::files::blocking;
use crate::registry::Sandbox;
use pybench_interpreter::{EntryKind, FileEntry, FileError, Files};
use pybench_types::clock;

/// The arguments of all calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(in super::super) struct Arguments {
    /// Path of the file or folder.
    path: String,
    /// `ListDir`: levels of folders to list.
    depth: usize,
    /// `Move`: old path.
    source: String,
    /// `Move`: new path.
    destination: String,
}

/// Handles a call.
pub(in super::super) async fn call(
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let answer = async {
        let body::Json(arguments) = body::Json::<Arguments>::from_request(request, &()).await?;
        let files = sandbox.files()?.clone();
        let known = blocking(move || perform(&files, &method, &arguments)).await?;
        let unknown = || ApiError::new(StatusCode::NOT_IMPLEMENTED, "this method is not supported");
        Ok(known.ok_or_else(unknown)??)
    };
    match answer.await {
        Ok(value) => axum::Json::<Value>(value).into_response(),
        Err(error) => connect_error(&error),
    }
}

/// An error response of the Connect protocol.
fn connect_error(error: &ApiError) -> Response {
    let body = json!({"code": error.connect_code(), "message": error.message});
    (error.status, axum::Json(body)).into_response()
}

fn perform(files: &Files, method: &str, arguments: &Arguments) -> Option<Result<Value, FileError>> {
    let path = &arguments.path;
    let one =
        |entry: Result<FileEntry, FileError>| entry.map(|entry| json!({"entry": info(&entry)}));
    let list = || {
        let entries = files.list(path, arguments.depth.max(1))?;
        Ok(json!({"entries": entries.iter().map(info).collect::<Vec<_>>()}))
    };
    Some(match method {
        "Stat" => one(files.stat(path)),
        "MakeDir" => one(files.make_folder(path)),
        "Move" => one(files.rename(&arguments.source, &arguments.destination)),
        "ListDir" => list(),
        "Remove" => files.remove(path).map(|()| json!({})),
        _ => return None,
    })
}

/// `EntryInfo` in protobuf's JSON.
fn info(entry: &FileEntry) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "FILE_TYPE_FILE",
        EntryKind::Folder => "FILE_TYPE_DIRECTORY",
        EntryKind::Link => "FILE_TYPE_SYMLINK",
        EntryKind::Other => "FILE_TYPE_UNSPECIFIED",
    };
    let path = inside(&entry.path);
    let mut info = json!({
        "name": path.rsplit('/').next(),
        "type": kind,
        "path": path,
        "size": entry.size.to_string(), // protobuf's JSON writes 64-bit integers as strings
        "mode": entry.mode,
        "permissions": permissions(entry),
        "owner": "user",
        "group": "user",
        "modifiedTime": clock::rfc3339_of_unix(entry.modified),
    });
    if let Some(target) = &entry.target {
        info["symlinkTarget"] = target.as_str().into();
    }
    info
}

/// Permissions in the format of `ls -l`.
fn permissions(entry: &FileEntry) -> String {
    let kind = match entry.kind {
        EntryKind::Folder => 'd',
        EntryKind::Link => 'l',
        EntryKind::File | EntryKind::Other => '-',
    };
    let bit = |(place, letter): (usize, char)| match entry.mode >> (8 - place) & 1 {
        1 => letter,
        _ => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate().map(bit);
    std::iter::once(kind).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_have_the_format_of_ls() {
        let entry = FileEntry {
            path: "a/b.txt".to_owned(),
            kind: EntryKind::File,
            size: 5,
            mode: 0o640,
            modified: 0,
            target: None,
        };
        let info = info(&entry);
        assert_eq!(info["permissions"], "-rw-r-----");
        assert_eq!(
            (info["name"].as_str(), info["path"].as_str()),
            (Some("b.txt"), Some("/workspace/a/b.txt"))
        );
        assert_eq!(info["modifiedTime"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn fuzz_arguments() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = body::parse::<Arguments>(bytes);
        });
    }
}
