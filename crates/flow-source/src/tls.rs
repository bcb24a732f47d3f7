//! TLS as libpq's `sslmode` means it, on rustls with the ring provider.
//!
//! The provider is named here: a process may contain several and none is the default.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::conninfo::{ConnInfo, SslMode};
use crate::error::SourceError;

/// Holds where systems keep their own roots, most common first.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

fn failed(what: &str, path: &Path, error: impl std::fmt::Display) -> SourceError {
    SourceError::Tls(format!("{what} {} cannot be used: {error}", path.display()))
}

fn home(file: &str) -> Option<std::path::PathBuf> {
    let home = std::env::var_os("HOME")?;
    Some(Path::new(&home).join(".postgresql").join(file))
}

/// Makes the client side of TLS for this connection.
///
/// # Errors
/// [`SourceError::Tls`] (reconfigure) for files that are missing or no PEM.
pub(crate) fn client_config(info: &ConnInfo) -> Result<Arc<ClientConfig>, SourceError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // libpq: a root certificate makes `require` as strict as `verify-ca`.
    let default_roots = home("root.crt").filter(|path| path.exists());
    let roots = info.sslrootcert.clone().or(default_roots);
    let level = match (info.sslmode, &roots) {
        (SslMode::Require, Some(_)) => SslMode::VerifyCa,
        (mode, _) => mode,
    };
    let verifier: Arc<dyn ServerCertVerifier> = match level {
        SslMode::Disable | SslMode::Prefer | SslMode::Require => Arc::new(AnyServer(provider.clone())),
        SslMode::VerifyCa | SslMode::VerifyFull => {
            let path = roots.ok_or_else(|| {
                SourceError::Tls("sslmode verifies the server but sslrootcert is not given".to_owned())
            })?;
            Arc::new(TrustedServer::new(
                &path,
                level == SslMode::VerifyFull,
                provider.clone(),
            )?)
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SourceError::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match client_identity(info)? {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| SourceError::Tls(format!("client certificate cannot be used: {error}")))?,
    };
    // Servers that speak TLS directly ask for it, and the others ignore it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(Arc::new(config))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_identity(info: &ConnInfo) -> Result<Option<Identity>, SourceError> {
    let (Some(cert), Some(key)) = (&info.sslcert, &info.sslkey) else {
        return match (&info.sslcert, &info.sslkey) {
            (None, None) => Ok(None),
            _ => Err(SourceError::Tls("sslcert and sslkey belong together".to_owned())),
        };
    };
    let chain = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed("sslkey", key, error))?;
    Ok(Some((chain, key)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SourceError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| failed("certificate file", path, error))?
        .collect();
    let all = all.map_err(|error| failed("certificate file", path, error))?;
    match all.is_empty() {
        true => Err(failed("certificate file", path, "it holds no certificate")),
        false => Ok(all),
    }
}

/// Accepts any certificate: encryption without knowing the peer, as `require` means.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts certificates that lead to a trusted root, and for `verify-full` name the host.
#[derive(Debug)]
struct TrustedServer {
    roots: Vec<CertificateDer<'static>>,
    store: Arc<RootCertStore>,
    inner: Arc<WebPkiServerVerifier>,
    name_counts: bool,
    provider: Arc<CryptoProvider>,
}

impl TrustedServer {
    fn new(path: &Path, name_counts: bool, provider: Arc<CryptoProvider>) -> Result<Self, SourceError> {
        let path = match path.as_os_str() == "system" {
            false => path,
            true => SYSTEM_ROOTS
                .iter()
                .map(Path::new)
                .find(|path| path.exists())
                .ok_or_else(|| SourceError::Tls("no system file of trusted roots was found".to_owned()))?,
        };
        let roots = certificates(path)?;
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        if store.is_empty() {
            return Err(failed("sslrootcert", path, "no certificate in it can be read"));
        }
        let store = Arc::new(store);
        let inner = WebPkiServerVerifier::builder_with_provider(store.clone(), provider.clone())
            .build()
            .map_err(|error| failed("sslrootcert", path, error))?;
        Ok(TrustedServer {
            roots,
            store,
            inner,
            name_counts,
            provider,
        })
    }
}

impl ServerCertVerifier for TrustedServer {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(cert)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        match rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.store,
            intermediates,
            now,
            algorithms,
        ) {
            Ok(()) => {}
            // A self-signed server certificate that the user put into sslrootcert is trusted by
            // being there; webpki refuses it because it is also a root.
            Err(rustls::Error::InvalidCertificate(error))
                if !matches!(
                    error,
                    CertificateError::Expired
                        | CertificateError::ExpiredContext { .. }
                        | CertificateError::NotValidYet
                        | CertificateError::NotValidYetContext { .. }
                ) && self.roots.iter().any(|root| root.as_ref() == cert.as_ref()) => {}
            Err(error) => return Err(error),
        }
        if self.name_counts {
            rustls::client::verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
