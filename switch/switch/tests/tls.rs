//! Controllers with TLS: those that prove who they are get answers, others are closed and counted.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use twinpath_config::values::Endpoint;
use twinpath_forwarding::openflow::{OpenFlowSwitch, SwitchInfo};
use twinpath_openflow_wire::{Desc, Frames, Hello, Message};
use twinpath_switch::controllers::{Controllers, Tls};
use twinpath_test_fuzz::seed::datapath::Maps;
use twinpath_time::{Duration, Instant};

const START: Instant = Instant::from_nanos(1 << 40);

/// The longest data of an echo that one message holds, about.
const ECHO_LEN: usize = 60_000;

fn run<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limit = Duration::from_secs(20);
    runtime.block_on(async { tokio::time::timeout(limit, test()).await.expect("it ends in time") })
}

/// Writes key and certificate of an end, which this authority has signed, and that of the authority.
fn issue(folder: &Path, names: &[&str], authority: &str) {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = ca.self_signed(&ca_key).expect("signed");
    std::fs::write(folder.join(format!("{authority}.pem")), signed.pem()).expect("written");
    let issuer = Issuer::new(ca, ca_key);
    for name in names {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![format!("{name}.example")]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).expect("written");
        std::fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).expect("written");
    }
}

fn tls(folder: &Path, name: &str, authority: &str) -> Tls {
    let file = |name: String| folder.join(name);
    Tls::load(
        &file(format!("{name}-key.pem")),
        &file(format!("{name}.pem")),
        &file(format!("{authority}.pem")),
    )
    .expect("files of this test")
}

fn controllers(tls: Option<Tls>) -> Controllers<Maps> {
    let info = SwitchInfo { datapath_id: 77, desc: Desc::default(), flows_max: 10, packet_in_rate: 10 };
    Controllers::new(OpenFlowSwitch::new(info, Maps::default()), tls)
}

async fn listening(tls: Tls) -> (Controllers<Maps>, SocketAddr) {
    let mut controllers = controllers(Some(tls));
    let address = controllers.listen(&"tls:127.0.0.1:0".parse().expect("an address")).await;
    (controllers, address.expect("it is bound").expect("it is TCP"))
}

async fn turn_until(controllers: &mut Controllers<Maps>, mut so: impl FnMut(&Controllers<Maps>) -> bool) {
    while !so(controllers) {
        controllers.wait(START).await;
        controllers.turn(START);
    }
}

/// A controller that sends long messages and reads them back.
fn echoes(folder: &Path, address: SocketAddr) {
    let read = |name: &str| CertificateDer::from_pem_file(folder.join(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(read("ours.pem")).expect("an authority");
    let key = PrivateKeyDer::from_pem_file(folder.join("controller-key.pem")).expect("a key");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![read("controller.pem")], key)
        .expect("they belong together");
    let name = ServerName::try_from("switch.example").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).expect("it listens"));
    let mut bytes = Vec::new();
    Message::Hello(Hello { version: 4, versions: None }).encode(1, &mut bytes).expect("it is short");
    stream.write_all(&bytes).expect("the switch takes it");
    let (mut frames, mut buffer) = (Frames::new(), [0; 4096]);
    for number in 0..10 {
        bytes.clear();
        Message::EchoRequest(vec![number; ECHO_LEN].into()).encode(1, &mut bytes).expect("it fits");
        stream.write_all(&bytes).expect("the switch takes it");
        let mut echoed = None;
        while echoed.is_none() {
            let len = stream.read(&mut buffer).expect("the switch answers");
            let mut rest = &buffer[..len];
            while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
                if let Message::EchoReply(data) = Message::decode(message).expect("a message") {
                    echoed = Some(data);
                }
            }
        }
        assert_eq!(echoed.as_deref(), Some(&[number; ECHO_LEN][..]));
    }
}

#[test]
fn a_controller_that_the_authority_knows_talks_to_the_switch_whichever_end_connects() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        issue(folder.path(), &["switch", "controller"], "ours");
        let (mut controllers, address) = listening(tls(folder.path(), "switch", "ours")).await;
        let path = folder.path().to_owned();
        let controller = std::thread::spawn(move || echoes(&path, address));
        turn_until(&mut controllers, |controllers| controllers.connections() > 0).await;
        turn_until(&mut controllers, |controllers| controllers.connections() == 0).await;
        controller.join().expect("all came back");

        // Another switch connects, as to a controller: both greet.
        let mut other = self::controllers(Some(tls(folder.path(), "controller", "ours")));
        other.connect(Endpoint::Tls(address.to_string()));
        while !other.has_controller() || !controllers.has_controller() {
            tokio::select! {
                () = controllers.wait(START) => controllers.turn(START),
                () = other.wait(START) => other.turn(START),
            }
        }
        assert_eq!((controllers.broke_tls(), other.broke_tls()), (0, 0));
    });
}

#[test]
fn unknown_peers_and_garbage_are_closed_and_counted() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        issue(folder.path(), &["switch"], "ours");
        issue(folder.path(), &["unknown"], "theirs");
        let (mut controllers, address) = listening(tls(folder.path(), "switch", "ours")).await;
        // It believes the switch, and is not believed.
        let mut unknown = self::controllers(Some(tls(folder.path(), "unknown", "ours")));
        unknown.connect(Endpoint::Tls(address.to_string()));
        while controllers.broke_tls() < 1 {
            tokio::select! {
                () = controllers.wait(START) => controllers.turn(START),
                () = unknown.wait(START) => unknown.turn(START),
            }
        }
        // It does not believe the switch.
        let mut doubter = self::controllers(Some(tls(folder.path(), "unknown", "theirs")));
        doubter.connect(Endpoint::Tls(address.to_string()));
        while doubter.broke_tls() < 1 {
            tokio::select! {
                () = controllers.wait(START) => controllers.turn(START),
                () = doubter.wait(START) => doubter.turn(START),
            }
        }
        assert!(!unknown.has_controller() && !doubter.has_controller());
        let before = controllers.broke_tls();
        let mut garbage = TcpStream::connect(address).expect("it listens");
        garbage.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).expect("there is room");
        turn_until(&mut controllers, |controllers| controllers.broke_tls() > before).await;
        turn_until(&mut controllers, |controllers| controllers.connections() == 0).await;
        assert!(!controllers.has_controller());
    });
}

#[test]
fn who_goes_before_both_have_proved_who_they_are_leaves_no_connection_behind() {
    run(async || {
        let folder = tempfile::tempdir().expect("a folder");
        issue(folder.path(), &["switch"], "ours");
        let (mut controllers, address) = listening(tls(folder.path(), "switch", "ours")).await;
        // By FIN, after a part of a handshake too, and by RST.
        for (bytes, is_reset) in [(&[][..], false), (&[0x16, 3, 1, 2][..], false), (&[], true)] {
            let mut client = TcpStream::connect(address).expect("it listens");
            client.write_all(bytes).expect("there is room");
            turn_until(&mut controllers, |controllers| controllers.connections() > 0).await;
            let linger = is_reset.then_some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&client, linger).expect("set");
            drop(client);
            // Time stands still: no deadline ends it.
            turn_until(&mut controllers, |controllers| controllers.connections() == 0).await;
        }
    });
}

#[test]
fn files_that_are_not_what_they_should_be_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    issue(folder.path(), &["switch"], "ours");
    issue(folder.path(), &["unknown"], "theirs");
    let load = |key: &str, certificate: &str, authority: &str| {
        let file = |name: &str| folder.path().join(name);
        Tls::load(&file(key), &file(certificate), &file(authority)).expect_err("refused").to_string()
    };
    for (files, needs) in [
        (["none", "switch.pem", "ours.pem"], "a private key in"),
        (["switch.pem", "switch.pem", "ours.pem"], "a private key in"),
        (["switch-key.pem", "switch-key.pem", "ours.pem"], "its certificate in"),
        (["unknown-key.pem", "switch.pem", "ours.pem"], "its certificate in"),
        (["switch-key.pem", "switch.pem", "switch-key.pem"], "the authority's certificate in"),
    ] {
        let [key, certificate, authority] = files;
        let said = load(key, certificate, authority);
        assert!(said.contains(needs), "{files:?}: {said}");
    }
}
