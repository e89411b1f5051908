//! TLS for addresses other than loopback: the certificate and its private key, from files that are
//! read again when they change. Only TLS 1.3, and no client certificates.

use crate::log;
use crate::settings::Settings;
use crate::trusted_file::{self, FileStamp, Secrecy};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate in use, and its files.
pub(crate) struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    state: RwLock<TlsState>,
}

struct TlsState {
    config: Arc<ServerConfig>,
    /// The files that were read last, also those with mistakes.
    stamps: [Option<FileStamp>; 2],
}

impl Tls {
    /// The certificate of the settings; `None` if they name none.
    ///
    /// # Errors
    /// Why the files cannot be used.
    pub(crate) fn load(settings: &Settings) -> Result<Option<Self>, String> {
        let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
            return Ok(None);
        };
        let stamps = [certificate, key].map(|path| FileStamp::read(path));
        let config = read_config(certificate, key)?;
        Ok(Some(Self {
            certificate: certificate.clone(),
            key: key.clone(),
            state: RwLock::new(TlsState { config, stamps }),
        }))
    }

    /// Reads the files again, if they have changed or `is_requested`. Files that cannot be used are
    /// reported once, and the certificate stays as it is.
    pub(crate) fn reload(&self, is_requested: bool) {
        let stamps = [&self.certificate, &self.key].map(|path| FileStamp::read(path));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if stamps == state.stamps && !is_requested {
            return;
        }
        state.stamps = stamps;
        match read_config(&self.certificate, &self.key) {
            Ok(config) => {
                log::info(&format!("{} is in use now", self.certificate.display()));
                state.config = config;
            }
            Err(what) => log::warn(&format!("{what}; the certificate stays as it was")),
        }
    }

    /// Accepts the handshake of a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&state.config).into()
    }
}

fn read_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let pem = read(certificate, Secrecy::Public)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| {
        let path = certificate.display();
        format!("{path} is not a certificate, or a chain of them, in PEM")
    })?;
    // An error of the parser may have a part of the file in it.
    let private = PrivateKeyDer::from_pem_slice(&read(key, Secrecy::Secret)?).map_err(|_| {
        let path = key.display();
        format!("{path} is not a private key in PEM without a password")
    })?;
    let unusable = |error: tokio_rustls::rustls::Error| {
        let paths = (certificate.display(), key.display());
        format!("cannot use {} with {}: {error}", paths.0, paths.1)
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Sessions to resume would stay in memory.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, String> {
    let read = trusted_file::read(path, secrecy);
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn unusable_files_are_explained_without_their_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str, mode| {
            std::fs::write(path(name), text).unwrap();
            std::fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
        };
        let settings = Settings {
            certificate: Some(path("cert.pem")),
            key: Some(path("key.pem")),
            ..Settings::default()
        };
        let why = || Tls::load(&settings).err().unwrap();
        assert!(why().contains("cert.pem: No such file"), "{}", why());
        write("cert.pem", "text", 0o644);
        assert!(why().ends_with("cert.pem is not a certificate, or a chain of them, in PEM"));
        let pem = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
        write("cert.pem", &pem("CERTIFICATE"), 0o644);
        assert!(why().contains("key.pem: No such file"), "{}", why());
        write("key.pem", &pem("PRIVATE KEY"), 0o644);
        assert!(why().ends_with("key.pem: every user may read it: chmod o-r FILE"));
        write("key.pem", "-----BEGIN s3cret\n", 0o600);
        assert!(why().ends_with("key.pem is not a private key in PEM without a password"));
        assert!(!why().contains("s3cret"));
        write("key.pem", &pem("PRIVATE KEY"), 0o600);
        assert!(why().starts_with("cannot use "), "{}", why());
        assert!(Tls::load(&Settings::default()).unwrap().is_none());
    }
}
