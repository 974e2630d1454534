//! Attaching a bare program at tc ingress, by a link that ends with its object.

use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};
use twinpath_sys::packet_socket::interface_name;

/// Loads `object` with one of its constants set, and attaches a program of it to an interface of the calling thread's
/// namespace, before all others. The error is the reason, in words.
pub(crate) fn attach(
    object: &[u8],
    (constant, value): (&str, u32),
    program: &str,
    ifindex: u32,
) -> Result<Ebpf, String> {
    let name = interface_name(ifindex).map_err(|error| error.to_string())?;
    let object = EbpfLoader::new().override_global(constant, &value, true).load(object);
    let mut object = object.map_err(|error| error.to_string())?;
    let section = object.program_mut(program).ok_or_else(|| format!("no {program}"))?;
    let classifier: &mut SchedClassifier = section.try_into().map_err(|error| format!("{error}"))?;
    classifier.load().map_err(|error| error.to_string())?;
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    classifier.attach_with_options(&name, TcAttachType::Ingress, order).map_err(|error| error.to_string())?;
    Ok(object)
}
