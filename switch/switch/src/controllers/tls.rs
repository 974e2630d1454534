//! TLS on a connection with a controller: each end proves by a certificate of one authority that it belongs there.
//!
//! The other end's name is not checked: the certificate of a controller says whose it is, not where it runs. The
//! authority must be one that is kept for this purpose (as `ovs-pki` makes one).

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use tokio::net::TcpStream;

/// A file that TLS needs and cannot use.
#[derive(Debug, thiserror::Error)]
#[error("TLS with controllers needs {what} in {}: {why}", path.display())]
pub struct TlsError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

/// Key and certificate of this end, and the authority of the other end's.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

const KEY: &str = "a private key";
const CERTIFICATE: &str = "its certificate";
const AUTHORITY: &str = "the authority's certificate";

impl Tls {
    /// Reads the files, in PEM.
    ///
    /// # Errors
    /// One that cannot be read, or does not fit the others.
    pub fn load(key: &Path, certificate: &Path, authority: &Path) -> Result<Self, TlsError> {
        let fault = |what, path: &Path, why: &dyn fmt::Display| TlsError {
            what,
            path: path.to_owned(),
            why: why.to_string(),
        };
        let certificates = |what, path: &Path| -> Result<Vec<CertificateDer<'static>>, TlsError> {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let read: Vec<_> = read.map_err(|error| fault(what, path, &error))?;
            if read.is_empty() { Err(fault(what, path, &"there is none")) } else { Ok(read) }
        };
        let own = certificates(CERTIFICATE, certificate)?;
        let own_key = PrivateKeyDer::from_pem_file(key).map_err(|error| fault(KEY, key, &error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(AUTHORITY, authority)? {
            roots.add(root).map_err(|error| fault(AUTHORITY, authority, &error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients.build().map_err(|error| fault(AUTHORITY, authority, &error))?;
        let misfit = |error: rustls::Error| fault(CERTIFICATE, certificate, &error);
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(misfit)?
            .with_client_cert_verifier(clients)
            .with_single_cert(own.clone(), own_key.clone_key())
            .map_err(misfit)?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(misfit)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ByAuthority { roots, provider }))
            .with_client_auth_cert(own, own_key)
            .map_err(misfit)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The end that connects. `address` is host and port.
    pub(crate) fn connect(&self, tcp: TcpStream, address: &str) -> io::Result<TlsStream> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        Ok(TlsStream::new(tcp, tls.into()))
    }

    /// The end that is connected to.
    pub(crate) fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        let tls = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        Ok(TlsStream::new(tcp, tls.into()))
    }
}

/// Accepts a controller whose certificate is the authority's, wherever it runs.
#[derive(Debug)]
struct ByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection with TLS. Nothing here waits.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) tcp: TcpStream,
    tls: Box<Connection>,
    /// Bytes that are deciphered and not read yet.
    readable: usize,
}

/// The socket as rustls reads and writes it.
struct Socket<'a>(&'a TcpStream);

impl io::Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    fn new(tcp: TcpStream, tls: Connection) -> Self {
        Self { tcp, tls: Box::new(tls), readable: 0 }
    }

    /// Whether something can be read without the socket.
    pub(crate) const fn has_readable(&self) -> bool {
        self.readable > 0
    }

    /// Whether there is something for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether bytes can be taken: not before both ends are authenticated.
    pub(crate) fn takes_bytes(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Reads what is deciphered.
    ///
    /// # Errors
    /// `WouldBlock`; `InvalidData`: the other end does not keep to TLS, or is not believed.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.readable == 0 {
            let count = self.tls.read_tls(&mut Socket(&self.tcp))?;
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // Tells the other end why, if there is room for it.
                    let _ = self.try_flush();
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            self.readable = state.plaintext_bytes_to_read();
            self.try_flush()?;
            if self.readable == 0 && (count == 0 || state.peer_has_closed()) {
                return Ok(0);
            }
        }
        let count = self.tls.reader().read(buffer)?;
        self.readable -= count.min(self.readable);
        Ok(count)
    }

    /// Takes bytes, as many as there is room for.
    ///
    /// # Errors
    /// `WouldBlock`: none.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_flush()?;
        if self.tls.wants_write() || !self.takes_bytes() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.tls.writer().write(bytes)?;
        self.try_flush()?;
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// It takes nothing more, for good.
    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
