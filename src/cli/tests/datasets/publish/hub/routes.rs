//! What the Hub answers, route by route.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{Entry, Inside, Shared, TOKEN, Tree, answer, as_json, hex, missing};

pub(super) fn route(
    inside: &mut Inside,
    shared: &Shared,
    method: &Method,
    uri: &axum::http::Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response<Body> {
    let path = uri.path().trim_start_matches('/').to_owned();
    let bearer = headers.get("authorization").and_then(|v| v.to_str().ok());
    inside.authorized.extend(bearer.map(str::to_owned));
    let known = bearer == Some(format!("Bearer {TOKEN}").as_str());
    let parts: Vec<&str> = path.split('/').collect();
    let query = uri.query().unwrap_or_default();
    match (method.as_str(), parts.as_slice()) {
        ("PUT", ["lfs", oid]) => put(inside, oid, body),
        ("PUT", ["lfs", oid, number]) => {
            let number: usize = number.parse().unwrap();
            inside
                .pieces
                .insert(((*oid).to_owned(), number), body.clone());
            answer(200, &[("etag", &format!("\"{oid}-{number}\""))], "")
        }
        ("POST", ["lfs", oid, "complete"]) => complete(inside, oid, body),
        ("POST", ["lfs", oid, "verify"]) if known => match inside.objects.contains_key(*oid) {
            true => as_json(&json!({})),
            false => missing("EntryNotFound"),
        },
        ("GET" | "HEAD", _) if !known && is_private(inside, &parts) => {
            answer(401, &[("x-error-code", "RepoNotFound")], "")
        }
        ("POST", _) if !known && !path.contains("paths-info") => {
            let said = "Invalid username or password.";
            answer(
                401,
                &[("x-error-message", said)],
                json!({"error": said}).to_string(),
            )
        }
        ("POST", ["api", "repos", "create"]) => create(inside, body),
        (
            _,
            [
                "api",
                kind @ ("datasets" | "models"),
                owner,
                name,
                rest @ ..,
            ],
        ) => {
            let repo = match *kind {
                "datasets" => format!("datasets/{owner}/{name}"),
                _ => format!("{owner}/{name}"),
            };
            if !inside.repos.contains_key(&repo) {
                return missing("RepoNotFound");
            }
            api(inside, shared, &repo, method, rest, query, body)
        }
        ("POST", [.., name, "info", "lfs", "objects", "batch"]) if name.ends_with(".git") => {
            batch(inside, shared, body)
        }
        (
            "GET" | "HEAD",
            ["datasets", _, _, "resolve", revision, file @ ..]
            | [_, _, "resolve", revision, file @ ..],
        ) => {
            let (repo, file) = (&parts[..parts.len() - file.len() - 2], file.join("/"));
            resolve(
                inside,
                shared,
                &repo.join("/"),
                revision,
                &file,
                method,
                headers,
            )
        }
        _ => missing("NoRoute"),
    }
}

fn is_private(inside: &Inside, parts: &[&str]) -> bool {
    let repo = match parts {
        ["api", "datasets", owner, name, ..] | ["datasets", owner, name, ..] => {
            format!("datasets/{owner}/{name}")
        }
        ["api", "models", owner, name, ..] | [owner, name, ..] => format!("{owner}/{name}"),
        _ => return false,
    };
    inside.repos.get(&repo).is_none_or(|repo| repo.private)
}

fn put(inside: &mut Inside, oid: &str, body: &Bytes) -> Response<Body> {
    if hex(&Sha256::digest(body)) != oid {
        return answer(400, &[], "another hash");
    }
    inside.objects.insert(oid.to_owned(), body.clone());
    answer(200, &[], "")
}

fn complete(inside: &mut Inside, oid: &str, body: &Bytes) -> Response<Body> {
    let asked: Value = serde_json::from_slice(body).unwrap();
    let parts = asked["parts"].as_array().unwrap();
    let mut all = Vec::new();
    for (number, part) in (1..).zip(parts) {
        assert_eq!(part["partNumber"], number);
        assert_eq!(part["etag"], format!("\"{oid}-{number}\""));
        all.extend_from_slice(&inside.pieces[&(oid.to_owned(), number)]);
    }
    put(inside, oid, &all.into())
}

fn create(inside: &mut Inside, body: &Bytes) -> Response<Body> {
    let asked: Value = serde_json::from_slice(body).unwrap();
    let text = |key: &str| asked[key].as_str().unwrap().to_owned();
    let prefix = if text("type") == "dataset" {
        "datasets/"
    } else {
        ""
    };
    let repo = format!("{prefix}{}/{}", text("organization"), text("name"));
    if inside.repos.contains_key(&repo) {
        return answer(
            409,
            &[],
            json!({"error": "You already created this"}).to_string(),
        );
    }
    inside.create(&repo, asked["private"] == true);
    as_json(&json!({"url": format!("/{repo}")}))
}

fn api(
    inside: &mut Inside,
    shared: &Shared,
    repo: &str,
    method: &Method,
    rest: &[&str],
    query: &str,
    body: &Bytes,
) -> Response<Body> {
    let at = |inside: &Inside, revision: &str| {
        let commits = &inside.repos[repo].commits;
        let found = commits.iter().find(|c| c.0 == revision);
        found
            .or(commits.last().filter(|_| revision == "main"))
            .cloned()
    };
    match (method.as_str(), rest) {
        ("GET", [] | ["revision", _]) => {
            let revision = rest.get(1).copied().unwrap_or("main");
            let Some((oid, tree, _)) = at(inside, revision) else {
                return missing("RevisionNotFound");
            };
            let siblings: Vec<_> = tree.keys().map(|p| json!({"rfilename": p})).collect();
            let license = inside.licenses.get(repo);
            as_json(&json!({
                "id": repo.trim_start_matches("datasets/"), "sha": oid,
                "private": inside.repos[repo].private, "siblings": siblings, "tags": [],
                "cardData": {"license": license},
                "downloads": 0, "likes": 0, "disabled": false, "gated": false,
                "lastModified": "2026-01-01T00:00:00.000Z",
            }))
        }
        ("GET", ["tree", revision, folder @ ..]) => match at(inside, revision) {
            Some((_, tree, _)) => {
                let recursive = query.to_lowercase().contains("recursive=true");
                let base = if repo.starts_with("datasets/") {
                    ""
                } else {
                    "models/"
                };
                let folder = folder.join("/");
                let path = format!("{base}{repo}/tree/{revision}/{folder}");
                let all = listing(&tree, &folder.replace("%2F", "/"), recursive);
                page(inside, shared, &path, query, all)
            }
            None => missing("RevisionNotFound"),
        },
        ("POST", ["paths-info", revision]) => match at(inside, revision) {
            Some((_, tree, _)) => {
                let text = String::from_utf8_lossy(body).into_owned();
                let asked = text.split('&').filter_map(|p| p.strip_prefix("paths="));
                let asked: Vec<String> = asked.map(|p| p.replace("%2F", "/")).collect();
                let all = listing(&tree, "", true);
                let all = all.into_iter();
                let some = all.filter(|e| asked.iter().any(|a| e["path"] == a.as_str()));
                as_json(&Value::from(some.collect::<Vec<_>>()))
            }
            None => missing("RevisionNotFound"),
        },
        ("GET", ["xet-write-token" | "xet-read-token", _]) => match &inside.xet {
            Some(cas) => xet_token(&cas.url),
            None => missing("NoRoute"),
        },
        ("POST", ["preupload", "main"]) => preupload(body),
        ("POST", ["commit", "main"]) => commit(inside, repo, body),
        _ => missing("NoRoute"),
    }
}

/// In the body for Rust's client, in headers for Python's.
fn xet_token(url: &str) -> Response<Body> {
    let (token, end) = ("a-token-of-the-store", 4_000_000_000_u64);
    let body = json!({"casUrl": url, "accessToken": token, "exp": end});
    let headers = [
        ("content-type", "application/json"),
        ("x-xet-cas-url", url),
        ("x-xet-access-token", token),
        ("x-xet-token-expiration", &end.to_string()),
    ];
    answer(200, &headers, body.to_string())
}

fn listing(tree: &Tree, folder: &str, recursive: bool) -> Vec<Value> {
    let mut folders = std::collections::BTreeSet::new();
    let mut entries = Vec::new();
    for (path, entry) in tree {
        let rest = match folder {
            "" => Some(path.as_str()),
            folder => path.strip_prefix(folder).and_then(|p| p.strip_prefix('/')),
        };
        let Some(rest) = rest else { continue };
        let begin = path.len() - rest.len();
        let ends = rest.match_indices('/').map(|(at, _)| begin + at);
        let inner: Vec<usize> = ends.collect();
        folders.extend(
            inner
                .iter()
                .take(if recursive { 99 } else { 1 })
                .map(|at| path[..*at].to_owned()),
        );
        if recursive || inner.is_empty() {
            entries.push(match entry {
                Entry::Small(bytes) => {
                    let mut hash = Sha1::new();
                    hash.update(format!("blob {}\0", bytes.len()));
                    hash.update(bytes);
                    let oid = hex(&hash.finalize());
                    json!({"type": "file", "path": path, "size": bytes.len(), "oid": oid})
                }
                Entry::Large { oid, size } => json!({
                    "type": "file", "path": path, "size": size, "oid": hex(&Sha1::digest(oid)),
                    "lfs": {"oid": oid, "size": size, "pointerSize": 130},
                }),
            });
        }
    }
    let folder = |path: String| json!({"type": "directory", "path": path, "size": 0, "oid": hex(&Sha1::digest(path.as_bytes()))});
    folders.into_iter().map(folder).chain(entries).collect()
}

fn page(
    inside: &Inside,
    shared: &Shared,
    path: &str,
    query: &str,
    all: Vec<Value>,
) -> Response<Body> {
    let cursor = query.split('&').find_map(|p| p.strip_prefix("cursor="));
    let from: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
    let some: Vec<Value> = all.iter().skip(from).take(inside.page).cloned().collect();
    let next = from + some.len();
    let mut response = as_json(&Value::from(some));
    if next < all.len() {
        let query = query.split('&').filter(|p| !p.starts_with("cursor="));
        let query = query.collect::<Vec<_>>().join("&");
        let path = path.trim_end_matches('/');
        let link = format!(
            "<http://{}/api/{path}?{query}&cursor={next}>; rel=\"next\"",
            shared.address
        );
        response.headers_mut().insert("link", link.parse().unwrap());
    }
    response
}

fn preupload(body: &Bytes) -> Response<Body> {
    let asked: Value = serde_json::from_slice(body).unwrap();
    let mode = |file: &Value| {
        let path = file["path"].as_str().unwrap();
        let sample = STANDARD.decode(file["sample"].as_str().unwrap()).unwrap();
        let large =
            path.ends_with(".parquet") || path.ends_with(".safetensors") || sample.contains(&0);
        json!({"path": path, "uploadMode": if large { "lfs" } else { "regular" },
            "shouldIgnore": path.ends_with(".ignored")})
    };
    let files: Vec<Value> = asked["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(mode)
        .collect();
    as_json(&json!({"files": files}))
}

fn batch(inside: &Inside, shared: &Shared, body: &Bytes) -> Response<Body> {
    let asked: Value = serde_json::from_slice(body).unwrap();
    let object = |object: &Value| {
        let (oid, size) = (
            object["oid"].as_str().unwrap(),
            object["size"].as_u64().unwrap(),
        );
        if inside.objects.contains_key(oid) {
            return json!({"oid": oid, "size": size});
        }
        let place = format!("http://{}/lfs/{oid}", shared.address);
        let verify = json!({"href": format!("{place}/verify")});
        let upload = match inside.piece {
            Some(piece) if size as usize > piece => {
                let mut header = json!({"chunk_size": piece.to_string()});
                for number in 1..=(size as usize).div_ceil(piece) {
                    header[format!("{number:05}")] = format!("{place}/{number}").into();
                }
                json!({"href": format!("{place}/complete"), "header": header})
            }
            _ => json!({"href": place}),
        };
        json!({"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}})
    };
    let objects: Vec<Value> = asked["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(object)
        .collect();
    let offered = asked["transfers"].as_array().into_iter().flatten();
    let by_xet = inside.xet.is_some() && offered.into_iter().any(|way| way == "xet");
    as_json(&json!({"transfer": if by_xet { "xet" } else { "basic" }, "objects": objects}))
}

fn commit(inside: &mut Inside, repo: &str, body: &Bytes) -> Response<Body> {
    inside.settle();
    let text = std::str::from_utf8(body).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let (head, mut tree, _) = inside.repos[repo].head().clone();
    let header = &lines[0]["value"];
    if header["parentCommit"]
        .as_str()
        .is_some_and(|parent| parent != head)
    {
        let said = "A commit has happened since. Please refresh and try again.";
        return answer(412, &[("x-error-message", said)], "");
    }
    for line in &lines[1..] {
        let value = &line["value"];
        let path = value["path"].as_str().unwrap().to_owned();
        match line["key"].as_str().unwrap() {
            "file" => {
                let bytes = STANDARD.decode(value["content"].as_str().unwrap()).unwrap();
                tree.insert(path, Entry::Small(bytes.into()));
            }
            "lfsFile" => {
                let oid = value["oid"].as_str().unwrap().to_owned();
                let size = value["size"].as_u64().unwrap();
                if inside.objects.get(&oid).map(Bytes::len) != Some(size as usize) {
                    return answer(400, &[], json!({"error": "no such object"}).to_string());
                }
                tree.insert(path, Entry::Large { oid, size });
            }
            "deletedFile" => {
                tree.remove(&path).expect("only what is there is deleted");
            }
            other => panic!("{other}"),
        }
    }
    let message = header["summary"].as_str().unwrap().to_owned();
    let oid = inside.push(repo, tree, &message);
    as_json(
        &json!({"success": true, "commitOid": oid, "commitUrl": format!("/{repo}/commit/{oid}")}),
    )
}

fn resolve(
    inside: &Inside,
    shared: &Shared,
    repo: &str,
    revision: &str,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Response<Body> {
    let Some(found) = inside.repos.get(repo) else {
        return missing("RepoNotFound");
    };
    let commits = &found.commits;
    let commit = commits.iter().find(|c| c.0 == revision);
    let Some((oid, tree, _)) = commit.or(commits.last().filter(|_| revision == "main")) else {
        return missing("RevisionNotFound");
    };
    let mut by_xet = None;
    let (bytes, etag) = match tree.get(path) {
        None => return missing("EntryNotFound"),
        Some(Entry::Small(bytes)) => (bytes.clone(), hex(&Sha1::digest(bytes))),
        Some(Entry::Large { oid, .. }) => {
            let hash = inside.xet.as_ref().and_then(|cas| cas.hashes.get(oid));
            let route = format!("http://{}/api/{repo}/xet-read-token/main", shared.address);
            by_xet = hash.map(|hash| (hash.clone(), route));
            (inside.objects[oid].clone(), oid.clone())
        }
    };
    let range = headers.get("range").and_then(|range| range.to_str().ok());
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let size = bytes.len();
    let (status, part) = match range {
        Some((from, to)) => {
            let from: usize = from.parse().unwrap();
            let to = to.parse::<usize>().map_or(size, |to| (to + 1).min(size));
            (206, from..to)
        }
        None => (200, 0..size),
    };
    let (etag, length) = (format!("\"{etag}\""), part.len().to_string());
    let total = size.to_string();
    let content_range = format!("bytes {}-{}/{size}", part.start, part.end.saturating_sub(1));
    let mut all = vec![
        ("etag", etag.as_str()),
        ("x-linked-etag", etag.as_str()),
        ("x-linked-size", total.as_str()),
        ("x-repo-commit", oid.as_str()),
        ("content-length", length.as_str()),
    ];
    if let Some((hash, route)) = &by_xet {
        all.push(("x-xet-hash", hash));
        all.push(("x-xet-refresh-route", route));
    }
    if status == 206 {
        all.push(("content-range", content_range.as_str()));
    }
    match *method == Method::HEAD {
        true => answer(status, &all, ""),
        false => answer(status, &all, bytes.slice(part)),
    }
}
