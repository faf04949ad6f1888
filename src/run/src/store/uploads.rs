//! Uploads in parts that were begun and not finished.
//!
//! A process that is killed leaves the parts that it has sent, which are paid for and which no list of files shows. An upload
//! whose first reply was lost is known to the server alone. `object_store` cannot list them, so this asks S3 itself.

use std::time::Duration;

use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpConnector, HttpRequestBody, ReqwestConnector};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Location;
use object_store::signer::Signer;
use object_store::{ClientOptions, Error};

use super::failure::StoreError;

/// An upload that can be aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upload {
    key: String,
    id: String,
}

/// The uploads below `prefix` that are not finished, at most as many as S3 lists at once.
pub(super) async fn abandoned_uploads(
    client: &AmazonS3,
    (region, options): (&str, &ClientOptions),
    prefix: &str,
) -> Result<Vec<Upload>, StoreError> {
    let uri = format!(
        "{}?prefix={}&uploads=",
        bucket_url(client).await?,
        prefix.replace('/', "%2F")
    );
    let request = http::Request::get(&uri).body(HttpRequestBody::empty());
    let mut request = request.map_err(|error| failed(&uri, Box::new(error)))?;
    let credential = client.credentials().get_credential().await?;
    AwsAuthorizer::new(&credential, "s3", region).authorize(&mut request, None);
    let connection = ReqwestConnector::default().connect(options)?;
    let answer = connection.execute(request).await;
    let answer = answer.map_err(|error| failed(&uri, Box::new(error)))?;
    let status = answer.status();
    let body = answer.into_body().bytes().await;
    let body = body.map_err(|error| failed(&uri, Box::new(error)))?;
    let text = String::from_utf8_lossy(&body);
    match status.is_success() {
        true => {
            let mut uploads = listed(&text);
            // A server that does not know the parameter lists those of other runs.
            uploads.retain(|upload| upload.key.starts_with(prefix));
            Ok(uploads)
        }
        false => Err(failed(&uri, format!("{status}: {text}").into())),
    }
}

/// Aborts an upload; one that has ended meanwhile is no error.
pub(super) async fn abort(client: &AmazonS3, upload: &Upload) -> Result<(), StoreError> {
    let location = Location::from(upload.key.as_str());
    match client.abort_multipart(&location, &upload.id).await {
        Err(Error::NotFound { .. }) => Ok(()),
        aborted => Ok(aborted?),
    }
}

/// The address of the bucket, with a slash at its end.
async fn bucket_url(client: &AmazonS3) -> Result<String, StoreError> {
    // Whether the bucket is a part of the host or of the path is known to the client alone.
    let key = Location::from("x");
    let signed = client
        .signed_url(http::Method::GET, &key, Duration::from_secs(1))
        .await?;
    let url = signed.as_str().split('?').next().unwrap_or_default();
    Ok(url.strip_suffix('x').unwrap_or(url).to_owned())
}

fn failed(uri: &str, source: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    tracing::debug!("{uri}: {source}");
    StoreError::Store(Error::Generic {
        store: "S3",
        source,
    })
}

/// The uploads in an answer of S3.
fn listed(xml: &str) -> Vec<Upload> {
    let elements = xml.split("<Upload>").skip(1);
    let uploads = elements.filter_map(|element| {
        Some(Upload {
            key: content(element, "Key")?,
            id: content(element, "UploadId")?,
        })
    });
    uploads.collect()
}

/// The text of the first element of this name.
fn content(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_read_from_the_answer() {
        let xml = "<?xml version=\"1.0\"?><ListMultipartUploadsResult><Bucket>b</Bucket><KeyMarker/><Upload>\
                   <Key>runs/a/files/0f</Key><UploadId>one&amp;two</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated>\
                   </Upload><Upload><UploadId>three</UploadId><Key>runs/a/b</Key></Upload></ListMultipartUploadsResult>";
        let upload = |key: &str, id: &str| Upload {
            key: key.to_owned(),
            id: id.to_owned(),
        };
        assert_eq!(
            listed(xml),
            [
                upload("runs/a/files/0f", "one&two"),
                upload("runs/a/b", "three")
            ]
        );
        assert_eq!(listed("<ListMultipartUploadsResult/>"), []);
        // Without an id there is nothing to abort.
        assert_eq!(listed("<Upload><Key>a</Key></Upload>"), []);
    }
}
