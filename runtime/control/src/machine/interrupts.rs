//! Which CPUs the interrupts of an interface go to.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use twinpath_sys::affinity::parse_cpu_list;

/// In ascending order; empty for a device that has none of its own, as those made of software: their frames come on the CPU
/// that sent them, which is awake.
pub(super) fn cpus_of(interface: &str) -> Vec<usize> {
    cpus_under(&Path::new("/sys/class/net").join(interface).join("device"), Path::new("/proc/irq"))
}

fn cpus_under(device: &Path, irqs: &Path) -> Vec<usize> {
    let names = |directory: &Path| -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let mut numbers = names(&device.join("msi_irqs"));
    // virtio devices are children of the one that has the interrupts.
    numbers.extend(names(&device.join("../msi_irqs")));
    let cpus = numbers.iter().filter_map(|irq| {
        let text = fs::read_to_string(irqs.join(irq).join("effective_affinity_list")).ok()?;
        parse_cpu_list(text.trim()).ok()
    });
    cpus.flatten().collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_the_device_or_its_parent() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("pci/virtio0/driver", "");
        put("pci/msi_irqs/25", "msix");
        put("pci/msi_irqs/26", "msix");
        put("irq/25/effective_affinity_list", "3\n");
        put("irq/26/effective_affinity_list", "1\n");
        put("irq/27/effective_affinity_list", "0\n");
        let of = |device: &str| cpus_under(&root.path().join(device), &root.path().join("irq"));
        assert_eq!(of("pci/virtio0"), [1, 3]);
        assert_eq!(of("pci"), [1, 3]);
        assert_eq!(of("none"), [0; 0]);
    }
}
