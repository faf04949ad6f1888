//! Encrypted connections to PostgreSQL. The certificate of the server is always checked.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName,
};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, client};

use crate::RunError;

/// Encrypts connections to servers whose certificates are trusted.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

/// The files (PEM) by which this process proves who it is.
#[derive(Clone, Copy)]
pub(super) struct ClientIdentity<'a> {
    pub(super) certificate: &'a Path,
    pub(super) key: &'a Path,
}

impl Tls {
    /// Trusts the certificates in `ca_file` (PEM), or the authorities that this machine trusts.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a file has no certificate or key; [`RunError::Environment`] if this machine has none.
    pub(super) fn new(
        ca_file: Option<&Path>,
        identity: Option<ClientIdentity<'_>>,
    ) -> Result<Self, RunError> {
        let roots = match ca_file {
            Some(path) => named_roots(path)?,
            None => system_roots()?,
        };
        let failed = |error: tokio_rustls::rustls::Error| RunError::Internal(error.to_string());
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let key = client_key(identity.key)?;
                let certificates = certificates("client_cert_file", identity.certificate)?;
                let config = config.with_client_auth_cert(certificates, key);
                config
                    .map_err(|error| wrong("client_key_file", identity.key, &error.to_string()))?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

fn wrong(key: &str, path: &Path, why: &str) -> RunError {
    RunError::BadInput(format!("postgres.{key} {}: {why}", path.display()))
}

/// The certificates in the file that a key of the profile names, at least one.
fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, RunError> {
    let unreadable = |error: pem::Error| wrong(key, path, &error.to_string());
    let found = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(unreadable)?;
    match found.is_empty() {
        true => Err(wrong(key, path, "there is no certificate in it (PEM)")),
        false => Ok(found),
    }
}

fn client_key(path: &Path) -> Result<PrivateKeyDer<'static>, RunError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let why = format!("there is no private key without a password in it (PEM): {error}");
        wrong("client_key_file", path, &why)
    })
}

fn named_roots(path: &Path) -> Result<RootCertStore, RunError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", path)? {
        roots.add(certificate).map_err(|error| {
            let why = format!(
                "{error}; it has to hold the certificate of the authority that signed that of the server"
            );
            wrong("ca_file", path, &why)
        })?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, RunError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Machines have some that cannot be parsed.
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        true => Err(RunError::Environment(
            "this machine has no certificates of authorities: install the package ca-certificates, or name a file with \
             postgres.ca_file in the profile"
                .to_owned(),
        )),
        false => Ok(roots),
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, InvalidDnsNameError> {
        Ok(Handshake {
            connector: self.0.clone(),
            server: ServerName::try_from(domain.to_owned())?,
        })
    }
}

/// Encrypts one connection.
pub(super) struct Handshake {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connected = self.connector.connect(self.server, stream).await?;
            Ok(Encrypted(connected))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is checked, so no third party gets the password.
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
