//! QUIC configurations with a certificate of `localhost` that is worth nothing: its key is public.

use std::sync::Arc;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, ServerConfig, TransportConfig};

const CERTIFICATE: &[u8] = include_bytes!("tls/cert.der");
const KEY: &[u8] = include_bytes!("tls/key.der");

pub(crate) fn server(transport: TransportConfig) -> ServerConfig {
    let chain = vec![CertificateDer::from(CERTIFICATE)];
    let mut config =
        ServerConfig::with_single_cert(chain, PrivatePkcs8KeyDer::from(KEY).into()).expect("a certificate");
    config.transport_config(Arc::new(transport));
    config
}

pub(crate) fn client(transport: TransportConfig) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).expect("a certificate");
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a configuration");
    config.transport_config(Arc::new(transport));
    config
}
