//! The messages that os-ken's tests have recorded, read from an installed os-ken 3.1.1 (later ones and Debian's have
//! none). They come from os-ken itself, from libofproto and from Open vSwitch; each has a twin as JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use twinpath_openflow::{BadAction, BadMatch, Field, Header, Message};
use twinpath_test_skip::skip_without;

/// Messages recorded in os-ken 3.1.1, and those among them that match or set a field which some vendor has defined.
const RECORDED: usize = 104;
const REFUSED: usize = 20;

/// The folder of os-ken's tests.
fn tests_of_os_ken() -> Option<PathBuf> {
    let find = "import importlib.util as u; print(u.find_spec('os_ken').submodule_search_locations[0])";
    let found =
        Command::new("python3").args(["-c", find]).output().ok().filter(|output| output.status.success())?;
    let folder = Path::new(String::from_utf8(found.stdout).ok()?.trim()).join("tests");
    folder.join("packet_data/of13").is_dir().then_some(folder)
}

/// Whether the twin of a message names a field that the specification does not define.
fn has_other_field(twin: &str) -> bool {
    let names = twin.lines().filter_map(|line| line.trim().strip_prefix("\"field\": \""));
    names
        .filter_map(|rest| rest.split('"').next())
        .any(|name| Field::ALL.iter().all(|field| field.name() != name))
}

#[test]
fn recorded_messages_are_the_same_when_written_again() {
    let Some(folder) = tests_of_os_ken() else {
        skip_without("os-ken 3.1.1 with its recorded messages, as `pip install os-ken==3.1.1` installs it");
        return;
    };
    let (mut count, mut refused) = (0, 0);
    for entry in fs::read_dir(folder.join("packet_data/of13")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".packet") {
            continue;
        }
        count += 1;
        let bytes = fs::read(&path).unwrap();
        let message = match Message::decode(&bytes) {
            Ok(message) => message,
            Err(error) => {
                let twin = folder.join("unit/ofproto/json/of13").join(format!("{name}.json"));
                assert!(has_other_field(&fs::read_to_string(twin).unwrap()), "{name}: {error}");
                assert!([BadMatch::BadField.into(), BadAction::BadSetType.into()].contains(&error), "{name}");
                refused += 1;
                continue;
            }
        };
        let mut written = Vec::new();
        message.encode(Header::of(&bytes).unwrap().xid, &mut written).unwrap();
        assert_eq!(written, bytes, "{name}: {message:?}");
    }
    assert_eq!((count, refused), (RECORDED, REFUSED));
}
