//! Files from a list of URLs.

use std::sync::Arc;

use async_trait::async_trait;
use pybench_run::Failure;
use reqwest::Url;

use super::{Sink, Source, blocking, known_extension};
use pybench_files::name::printable;
use pybench_net::{FetchError, HttpClient, display_url};

/// One item per URL.
pub(super) struct Http {
    urls: Vec<String>,
    license: Option<String>,
    web: Arc<HttpClient>,
}

impl Http {
    pub(super) fn new(urls: Vec<String>, license: Option<String>, web: Arc<HttpClient>) -> Self {
        Self { urls, license, web }
    }
}

#[async_trait]
impl Source for Http {
    fn items(&self) -> Vec<String> {
        self.urls.clone()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let got = match self.web.get(item, sink.limits()).await {
            Ok(got) => got,
            // The refusal is final, so the file is left out and the unit does not fail.
            Err(FetchError::Refused(reason)) => {
                let origin =
                    Url::parse(item).map_or_else(|_| printable(item), |url| display_url(&url));
                return blocking(move || {
                    sink.left_out(&origin, reason);
                    Ok(())
                })
                .await;
            }
            Err(FetchError::Failed(failure)) => return Err(failure),
        };
        let license = self.license.clone();
        blocking(move || {
            if let Some(license) = license {
                sink.license(license);
            }
            sink.offer(&got.origin, &got.name, got.file, &known_extension);
            Ok(())
        })
        .await
    }
}
