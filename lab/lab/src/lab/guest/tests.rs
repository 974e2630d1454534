use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;

use super::initramfs::Archive;
use super::message::Message;
use super::packages::archive;
use super::qemu::{major, version_of};
use super::watch::guest_cpu;
use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    Cli::try_parse_from(format!("lab {line}").split(' ')).unwrap().args
}

/// Name, mode, device, content.
type Unpacked = (String, u32, (u32, u32), Vec<u8>);

/// A parser of the format, written from its description.
fn unpacked(archive: &[u8]) -> Vec<Unpacked> {
    let mut entries = Vec::new();
    let mut at = 0;
    loop {
        assert_eq!(&archive[at..at + 6], b"070701", "at {at}");
        let field = |number: usize| {
            let start = at + 6 + 8 * number;
            u32::from_str_radix(std::str::from_utf8(&archive[start..start + 8]).unwrap(), 16).unwrap()
        };
        let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
        let device = (field(9), field(10));
        let name = std::str::from_utf8(&archive[at + 110..at + 110 + name_size - 1]).unwrap().to_owned();
        assert_eq!(archive[at + 110 + name_size - 1], 0);
        let start = (at + 110 + name_size).next_multiple_of(4);
        if name == "TRAILER!!!" {
            assert_eq!(start, archive.len());
            return entries;
        }
        entries.push((name, mode, device, archive[start..start + size].to_vec()));
        at = (start + size).next_multiple_of(4);
    }
}

#[test]
fn an_archive_holds_files_devices_and_every_parent_once() {
    let mut bytes = Vec::new();
    let mut archive = Archive::new(&mut bytes);
    for entry in [
        Entry::Directory("dev"),
        Entry::Device { name: "dev/null", major: 1, minor: 3 },
        Entry::Program { name: "init", bytes: b"12345" },
        Entry::File { name: "lib/x/a", bytes: b"" },
        Entry::File { name: "lib/x/b", bytes: b"123" },
        Entry::Link { name: "lib/y", to: "/lib/x" },
    ] {
        archive.add(&entry).unwrap();
    }
    archive.finish().unwrap();
    let expected = [
        ("dev", 0o040_755, (0, 0), ""),
        ("dev/null", 0o020_600, (1, 3), ""),
        ("init", 0o100_755, (0, 0), "12345"),
        ("lib", 0o040_755, (0, 0), ""),
        ("lib/x", 0o040_755, (0, 0), ""),
        ("lib/x/a", 0o100_644, (0, 0), ""),
        ("lib/x/b", 0o100_644, (0, 0), "123"),
        ("lib/y", 0o120_777, (0, 0), "/lib/x"),
    ];
    let expected =
        expected.map(|(name, mode, device, text)| (name.to_owned(), mode, device, text.as_bytes().to_vec()));
    assert_eq!(unpacked(&bytes), expected);
}

#[test]
fn modules_are_loaded_after_what_they_need() {
    let module = |needs: &str| format!("\x7fELF..\0license=GPL\0depends={needs}\0name=x\0").into_bytes();
    let known: BTreeMap<String, Vec<u8>> = [
        ("virtio_pci", module("virtio_ring,virtio-pci-modern-dev,virtio")),
        ("virtio", module("virtio_ring")),
        ("virtio_ring", module("")),
        ("virtio_pci_modern_dev", module("")),
        ("veth", b"no such section".to_vec()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into();
    let order = kernel::loading_order(&["veth", "virtio_pci", "ipv6", "virtio"], &known);
    assert_eq!(order, ["veth", "virtio_ring", "virtio_pci_modern_dev", "virtio", "virtio_pci"]);
    for (file, name) in [
        ("virtio-rng.ko.xz", Some("virtio_rng")),
        ("veth.ko", Some("veth")),
        ("veth.ko.sig", None),
        ("modules.order", None),
    ] {
        assert_eq!(kernel::module_name(file).as_deref(), name, "{file}");
    }
}

#[test]
fn packages_libraries_threads_and_versions_are_found_in_what_tools_print() {
    let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
    assert_eq!(kernel::needed_image(depends).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
    assert_eq!(kernel::needed_image("linux-image-6.1\n  Depends: kmod\n"), None);
    let listed = "\tlinux-vdso.so.1 (0x00007f37cc058000)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f37caf3e000)\n\
                  \t/lib64/ld-linux-x86-64.so.2 (0x00007f37cc05a000)\n";
    assert_eq!(
        tools::library_paths(listed),
        [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld-linux-x86-64.so.2")]
    );
    assert_eq!(["CPU 0/KVM\n", "CPU 1/TCG\n", "qemu-system\n"].map(guest_cpu), [Some(0), Some(1), None]);
    let version = version_of("QEMU emulator version 7.2.22 (Debian 1:7.2)\n");
    assert_eq!((version.as_str(), major(&version), major("10.0.2"), major("?")), ("7.2.22", 7, 10, 0));
    let targets = "bookworm Other http://a/\nbookworm-updates Debian http://b/\nbookworm Debian http://c/\n";
    assert_eq!((archive(targets, "bookworm"), archive(targets, "trixie")), (Some("http://c/"), None));
}

#[test]
fn the_command_line_names_the_accelerator_and_gives_the_guest_no_network() {
    let qemu = |data: &[&str]| Qemu {
        program: "qemu".into(),
        data: data.iter().map(PathBuf::from).collect(),
        version: "8.0.0".to_owned(),
    };
    let line = |accelerator: &Accelerator, qemu: &Qemu| {
        let machine = Machine {
            accelerator,
            qemu,
            nic: None,
            kernel: Path::new("/t/vmlinuz"),
            initramfs: Path::new("/t/initramfs"),
            console: Path::new("/t/console"),
        };
        machine.args().join(" ")
    };
    let kvm = line(&Accelerator::Kvm, &qemu(&[]));
    assert!(kvm.starts_with("-nodefaults -no-user-config -no-reboot "), "{kvm}");
    assert!(kvm.contains(" -accel kvm -cpu host -smp 2 "), "{kvm}");
    assert!(kvm.contains(" -kernel /t/vmlinuz -initrd /t/initramfs -append console=ttyS0 "), "{kvm}");
    assert!(kvm.ends_with(" -- lab-guest") && !kvm.contains("net") && !kvm.contains("tsc="), "{kvm}");
    let emulated = line(&emulated(false), &qemu(&["/t/share"]));
    assert!(emulated.contains(" -accel tcg,thread=multi -cpu max -smp 2 "), "{emulated}");
    assert!(emulated.contains(" tsc=reliable ") && !emulated.contains("icount"), "{emulated}");
    assert!(emulated.ends_with(" -L /t/share"), "{emulated}");
}

fn emulated(counted: bool) -> Accelerator {
    Accelerator::Emulated { because: "no".to_owned(), counted }
}

fn asked(line: &str, with: impl FnOnce(&LabRequest<'_>)) {
    let args = args(line);
    let lab = crate::lab::LABS.iter().find(|lab| lab.name == args.name).unwrap();
    let selection = Selection::new(lab, &args.only).unwrap();
    with(&LabRequest { lab, args: &args, selection: &selection, kernel: KERNEL });
}

#[test]
fn a_guest_whose_clock_counts_instructions_has_one_cpu_and_measures_what_holds_there() {
    let qemu = Qemu { program: "qemu".into(), data: Vec::new(), version: "8.0.0".to_owned() };
    let machine = Machine {
        accelerator: &emulated(true),
        qemu: &qemu,
        nic: None,
        kernel: Path::new("/t/vmlinuz"),
        initramfs: Path::new("/t/initramfs"),
        console: Path::new("/t/console"),
    };
    let line = machine.args().join(" ");
    assert!(line.contains(" -accel tcg,thread=single -cpu max -smp 1 "), "{line}");
    assert!(line.contains(" -icount shift=0,sleep=off"), "{line}");
    let counted = "kni --inside --only=guest-walk-attached,guest-walk-exception";
    asked("kni --guest", |asked| {
        assert!(asked.counted());
        assert_eq!(lab_args(asked, &emulated(true)).join(" "), counted);
        assert_eq!(lab_args(asked, &Accelerator::Kvm).join(" "), "kni --inside");
    });
    asked("kni --guest --only guest-walk-exception --check", |asked| {
        assert!(asked.counted());
        let line = lab_args(asked, &emulated(true)).join(" ");
        assert_eq!(line, "kni --inside --only=guest-walk-exception --check");
    });
    asked("kni --guest --only guest-walk-exception,walk-exception", |asked| assert!(!asked.counted()));
    asked("wakeup --guest", |asked| assert!(!asked.counted()));
}

#[test]
fn network_cards_have_slots_and_a_cable_and_the_lab_is_told_where_they_are() {
    let line = Nic::Igb.args().join(" ");
    for end in [1, 2] {
        assert!(line.contains(&format!("-device pcie-root-port,id=slot-{end},chassis={end} ")), "{line}");
        assert!(line.contains(&format!("-netdev hubport,id=cable-{end},hubid=0 ")), "{line}");
        assert!(line.contains(&format!("-device igb,bus=slot-{end},netdev=cable-{end},romfile=")), "{line}");
    }
    asked("devices --guest --nic igb --check", |asked| {
        assert!(asked.counted());
        let line = lab_args(asked, &Accelerator::Kvm).join(" ");
        assert_eq!(line, "devices --inside --between=eth0,eth1 --check");
        let understood = args(&line);
        assert_eq!(understood.between, ["eth0", "eth1"]);
    });
    asked("devices --guest --nic igb-vf", |asked| {
        let line = lab_args(asked, &Accelerator::Kvm).join(" ");
        assert_eq!(line, "devices --inside --between=eth2,eth3", "the cards themselves stay where they are");
        assert_eq!((Nic::IgbVf.args(), Nic::Igb.divided().len()), (Nic::Igb.args(), 0));
    });
    assert!(Cli::try_parse_from(["lab", "devices", "--nic", "igb"]).is_err());
}

#[test]
fn what_is_measured_in_a_guest_only_is_absent_elsewhere_and_refused_where_it_is_asked_for() {
    asked("kni", |asked| {
        let there = asked.selection.clone();
        assert!(there.rows.contains("guest-nfs-plain") && there.ratios.contains("guest-walk-attached"));
        let here = there.clone().outside_a_guest(asked.lab, &[]).unwrap();
        assert_eq!((there.rows.len() - here.rows.len(), there.ratios.len() - here.ratios.len()), (3, 2));
        assert!(here.rows.contains("nfs-plain"));
        for id in ["guest-walk-exception", "guest-nfs-plain"] {
            let error = there.clone().outside_a_guest(asked.lab, &[id.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(id) && error.contains("--guest"), "{error}");
        }
    });
}

#[test]
fn the_guest_runs_the_lab_that_was_asked_for() {
    let line =
        "wakeup --guest --only wake350-cpu,tick --seed 7 --repeat 2 --json x --html y --check --note hm";
    asked(line, |asked| {
        assert_eq!(asked.args.guest.as_deref(), Some(KERNEL));
        let inside = lab_args(asked, &Accelerator::Kvm);
        let expected = "wakeup --inside --repeat=2 --seed=7 --only=wake350-cpu,tick --note=hm --check";
        assert_eq!(inside.join(" "), expected);
        let understood = args(&inside.join(" "));
        assert_eq!((understood.seed, &understood.only), (Some(7), &asked.args.only));
        assert!(understood.inside && understood.guest.is_none());
    });
    assert_eq!(args("quick --guest=./linux.deb").guest.as_deref(), Some("./linux.deb"));
    let emulated = emulated(false);
    asked("quick", |asked| {
        assert_eq!(lab_args(asked, &emulated), ["quick", "--inside", "--repeat=1"]);
    });
    asked("quick --check", |asked| {
        assert_eq!(lab_args(asked, &emulated), ["quick", "--inside", "--check"]);
    });
    assert_eq!(longest(&args("quick --repeat 1"), &emulated), ROUND_MAX * 2 * EMULATED);
}

#[test]
fn a_message_is_one_line_whatever_is_in_it() {
    let text = "a\nb \"c\"\r\u{1b}[0m";
    for message in [Message::Html(text.to_owned()), Message::Alive, Message::Ended(3)] {
        let line = serde_json::to_string(&message).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Message>(&line).unwrap(), message);
    }
}
