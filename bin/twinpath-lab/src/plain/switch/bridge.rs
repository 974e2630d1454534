//! The kernel's bridge, which has no process.

use anyhow::Context;
use rtnetlink::{LinkBridge, LinkUnspec};

use super::Running;

const NAME: &str = "bridge0";

pub(super) async fn start(ports: &[String]) -> anyhow::Result<Running> {
    let (connection, handle, _) = rtnetlink::new_connection().context("cannot open a netlink socket")?;
    let connection = tokio::spawn(connection);
    let made = handle.link().add(LinkBridge::new(NAME).up().build()).execute().await;
    made.context("cannot create a bridge")?;
    let bridge = crate::plain::reflect::interface_index(NAME)?;
    for port in ports {
        let enslaved = LinkUnspec::new_with_name(port).controller(bridge).up().build();
        handle
            .link()
            .set(enslaved)
            .execute()
            .await
            .with_context(|| format!("cannot give {port} to {NAME}"))?;
    }
    connection.abort();
    let uname = rustix::system::uname();
    let what = format!("the bridge of Linux {}", uname.release().to_string_lossy());
    Ok(Running { processes: Vec::new(), what, _programs: None })
}
