use super::*;

/// The folder of a crate that is named after its tier.
fn crate_of_tier(path: &str) -> Option<String> {
    let (tier, rest) = path.split_once('/')?;
    let (name, file) = rest.split_once('/')?;
    let is_tier = ["pure", "memory", "engine", "io", "runtime"].contains(&tier);
    (is_tier && file.ends_with(".rs")).then(|| format!("{tier}/{name}"))
}

/// The errors that `rule` finds in a tree of these files.
fn errors(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let mut files: Vec<_> =
        files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect();
    // A file in `pure/x/` is of a crate of the tier pure.
    let crates: BTreeSet<String> = files
        .iter()
        .filter_map(|(path, _)| crate_of_tier(path))
        .filter(|of| !files.iter().any(|(path, _)| *path == format!("{of}/Cargo.toml")))
        .collect();
    for of in crates {
        let tier = first_of(&of).to_owned();
        files.push((
            format!("{of}/Cargo.toml"),
            Some(format!("[package.metadata.twinpath]\ntier = \"{tier}\"")),
        ));
    }
    rule(&Tree::new(files)).into_iter().map(|finding| finding.to_string()).collect()
}

/// Checks that `rule` finds exactly one error in `bad`, at that line, with `part` in its message, and none in `good`.
fn one_error(rule: Rule, path: &str, bad: &str, line: usize, part: &str, good: &str) {
    let found = errors(rule, &[(path, bad)]);
    assert_eq!(found.len(), 1, "one finding in {bad:?}: {found:?}");
    let place = if line == 0 { format!("{path}: ") } else { format!("{path}:{line}: ") };
    assert!(found[0].starts_with(&place), "{} begins with {place}", found[0]);
    assert!(found[0].contains(part), "{} has {part}", found[0]);
    let kept = errors(rule, &[(path, good)]);
    assert_eq!(kept, Vec::<String>::new(), "nothing in {good:?}");
}

fn manifest(name: &str, dependencies: &[&str]) -> String {
    let lines: String =
        dependencies.iter().map(|dependency| format!("{dependency}.workspace = true\n")).collect();
    format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n[dependencies]\n{lines}")
}

#[test]
fn files_that_do_not_parse_are_found() {
    one_error(
        source::every_file_parses,
        "pure/x/src/lib.rs",
        "fn a() {}\nfn b( {}",
        2,
        "does not parse",
        "fn a() {}",
    );
}

#[test]
fn a_dependency_that_nobody_names_is_found() {
    let rule = tiers::dependencies_are_used;
    let manifest = manifest("wire", &["some-crate"]);
    let found =
        |code: &str| errors(rule, &[("core/wire/Cargo.toml", &manifest), ("core/wire/src/lib.rs", code)]);
    assert_eq!(found("fn a() {}"), ["core/wire/Cargo.toml: some-crate is not used: remove it"]);
    // Neither the name as a word of a comment, nor a name that only begins with it.
    assert_eq!(found("// some_crate\nuse some_crate_of_others::b;").len(), 1);
    for used in [
        "use some_crate::b;",
        "fn a() { some_crate::b() }",
        "#[derive(some_crate::B)] struct A;",
        "m!(some_crate::b());",
    ] {
        assert_eq!(found(used), Vec::<String>::new(), "{used}");
    }
    let by_tests = "core/wire/Cargo.toml: some-crate is used by tests only: move it to [dev-dependencies]";
    assert_eq!(found("#[cfg(test)]\nmod tests { use some_crate::b; }"), [by_tests]);

    let root = "[workspace.dependencies]\nsome-crate = \"1\"\nleft-behind = \"1\"\n";
    let files = [
        ("Cargo.toml", root),
        ("core/wire/Cargo.toml", &manifest),
        ("core/wire/src/lib.rs", "use some_crate::b;"),
    ];
    assert_eq!(errors(rule, &files), ["Cargo.toml: left-behind is used by no crate: remove it"]);
}

fn of_tier(tier: &str, name: &str, dependencies: &[&str]) -> String {
    let tier = format!("[package.metadata.twinpath]\ntier = \"{tier}\"\n");
    format!("{}{tier}", manifest(name, dependencies))
}

#[test]
fn arrows_between_folders_and_tiers_that_point_up_are_found() {
    let tree = |user: &str, tier: &str, uses: &str| {
        let found = errors(
            tiers::arrows_point_down,
            &[
                ("core/wire/Cargo.toml", &of_tier("pure", "wire", &[])),
                ("core/port/Cargo.toml", &of_tier("io", "port", &[])),
                ("stack/udp/Cargo.toml", &of_tier("engine", "udp", &[])),
                ("service/serve/Cargo.toml", &of_tier("runtime", "serve", &[])),
                ("switch/forwarding/Cargo.toml", &of_tier("engine", "forwarding", &[])),
                (&format!("{user}/Cargo.toml"), &of_tier(tier, "new", &[uses])),
            ],
        );
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next().unwrap_or_default()
    };
    assert!(tree("core/new", "engine", "udp").contains("core/ may use itself only"));
    assert!(tree("switch/new", "runtime", "serve").contains("switch/ may use core/, stack/, ports/, host/"));
    assert!(tree("core/new", "pure", "port").contains("pure may use itself only"));
    assert!(tree("stack/new", "engine", "port").contains("engine may use pure, memory"));
    assert!(tree("switch/new", "io", "forwarding").contains("io may use pure, memory"));
    assert!(tree("stack/new", "engine", "rustix").contains("reaches the host"));
    assert!(tree("misc/new", "pure", "wire").contains("is in no folder of the house"));
    assert!(tree("core/new", "unheard", "wire").contains("give one of pure, memory"));
    for (user, tier, uses) in [
        ("stack/new", "engine", "wire"),
        ("cli/new", "runtime", "serve"),
        ("test/new", "test", "serve"),
        ("switch/new", "runtime", "forwarding"),
    ] {
        assert_eq!(tree(user, tier, uses), "");
    }
}

#[test]
fn a_dependency_for_tests_or_one_target_counts_too() {
    for section in ["dev-dependencies", "target.'cfg(unix)'.dependencies"] {
        let wire = format!(
            "[package]\nname = \"wire\"\n[package.metadata.twinpath]\ntier = \"pure\"\n[{section}]\nport.workspace = true\n"
        );
        let files =
            [("core/wire/Cargo.toml", wire.as_str()), ("core/port/Cargo.toml", &of_tier("io", "port", &[]))];
        assert_eq!(errors(tiers::arrows_point_down, &files).len(), 1, "{section}");
    }
}

#[test]
fn only_tests_use_the_test_folder_and_the_labs() {
    for (section, findings) in [("dependencies", 2), ("dev-dependencies", 0)] {
        let sys = format!(
            "[package]\nname = \"sys\"\n[package.metadata.twinpath]\ntier = \"io\"\n[{section}]\nskip.workspace = true\n"
        );
        for (beside, tier) in [("test/skip", "test"), ("lab/skip", "runtime")] {
            let files = [
                ("core/sys/Cargo.toml", sys.as_str()),
                (&format!("{beside}/Cargo.toml"), &of_tier(tier, "skip", &[])),
            ];
            // By its folder and by its tier.
            assert_eq!(errors(tiers::arrows_point_down, &files).len(), findings, "{section}");
        }
    }
}

#[test]
fn a_package_with_another_name_than_its_folder_is_found() {
    let rule = tiers::packages_are_named_as_their_folders;
    for (path, good) in [
        ("switch/openflow_wire/Cargo.toml", "twinpath-openflow-wire"),
        ("cli/Cargo.toml", "twinpath-cli"),
        ("test/fuzz/Cargo.toml", "twinpath-test-fuzz"),
        ("api/twinpath/Cargo.toml", "twinpath"),
    ] {
        let part = format!("is to be named {good}");
        one_error(rule, path, &manifest("twinpath-other", &[]), 0, &part, &manifest(good, &[]));
    }
}

#[test]
fn manifests_take_lints_and_versions_from_the_workspace() {
    let own_version = "[lints]\nworkspace = true\n[dependencies]\nserde = \"1\"\n";
    let shared = "[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\n";
    let path = "pure/x/Cargo.toml";
    one_error(tiers::manifests_follow_the_workspace, path, own_version, 0, "serde.workspace = true", shared);
    one_error(tiers::manifests_follow_the_workspace, path, "[package]\n", 0, "[lints]", shared);
}

#[test]
fn an_example_that_no_test_runs_is_found_and_a_crate_that_has_none() {
    let found = |keys: &str, code: &str| {
        let manifest = format!("[package]\nname = \"x\"\n{keys}");
        errors(
            tiers::only_examples_are_looked_for,
            &[("pure/x/Cargo.toml", &manifest), ("pure/x/src/lib.rs", code)],
        )
    };
    let (none, example) = ("//! X.", "//! X.\n//!\n//! ```\n//! assert!(true);\n//! ```");
    assert_eq!(found("[lib]\ndoctest = false", none), Vec::<String>::new());
    assert_eq!(found("", example), Vec::<String>::new());
    assert!(found("", none)[0].contains("add `doctest = false`"));
    assert!(found("[lib]\ndoctest = false", example)[0].contains("remove `doctest = false`"));
}

#[test]
fn a_command_that_names_no_package_of_ours_is_found() {
    let rule = tiers::named_packages_exist;
    let package = ("core/wire/Cargo.toml", &*manifest("twinpath-wire", &[]));
    let found = |line: &str| errors(rule, &[package, ("docs/a.md", line)]);
    assert_eq!(
        found("`cargo test -p twinpath-wire NAME`; `-p $(foreach crate,a,-p twinpath-$(crate))`"),
        [""; 0]
    );
    assert_eq!(found("cargo run -p twinpath-wires"), ["docs/a.md:1: there is no package twinpath-wires"]);
}

#[test]
fn a_product_that_is_built_with_what_labs_need_is_found() {
    let rule = tiers::labs_stay_out_of_the_product;
    let with = manifest("twinpath-cli", &["nfs3_client"]);
    let part = "is built with nfs3_client, which is for lab/ alone";
    one_error(rule, "cli/Cargo.toml", &with, 0, part, &with.replace("[dep", "[dev-dep"));
    assert_eq!(errors(rule, &[("lab/lab/Cargo.toml", &with)]), Vec::<String>::new());
}

#[test]
fn a_folder_without_a_readme_is_found() {
    let found =
        errors(tiers::each_folder_has_a_readme, &[("core/x/src/lib.rs", ""), ("stack/README.md", "")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("core/README.md: is missing"), "{found:?}");
}

#[test]
fn unsafe_outside_its_tiers_is_found() {
    let code = "fn f() {\n    // SAFETY: no\n    unsafe { g() }\n}";
    let rule: Rule = source::unsafe_stays_in_its_tiers;
    one_error(rule, "bin/x/src/main.rs", code, 3, "unsafe outside", "fn f() {}");
    assert_eq!(errors(rule, &[("memory/x/src/a.rs", code)]), Vec::<String>::new());
    one_error(rule, "test/x/src/a.rs", "fn f() { assert!(unsafe { g() }); }", 1, "unsafe outside", "");
}

#[test]
fn unsafe_without_a_remark_is_found() {
    let rule: Rule = source::each_unsafe_says_why_it_is_sound;
    let good = "// SAFETY: only read.\nunsafe impl Send for A {}";
    one_error(rule, "memory/x/src/a.rs", "\nunsafe impl Send for A {}", 2, "SAFETY:", good);
    let good = "fn f() {\n    // SAFETY: in bounds.\n    #[allow(unsafe_code, reason = \"r\")]\n    let a =\n        unsafe { g() };\n}";
    one_error(rule, "memory/x/src/a.rs", "fn f() {\n    unsafe { g() }\n}", 2, "SAFETY:", good);
    let good = "/// Reads.\n///\n/// # Safety\n/// In bounds.\nunsafe fn f() {}";
    one_error(rule, "memory/x/src/a.rs", "/// Reads.\nunsafe fn f() {}", 2, "# Safety", good);
}

#[test]
fn unsafe_without_a_reasoned_allow_is_found() {
    let rule: Rule = source::unsafe_is_allowed_with_a_reason;
    let good = "#![allow(unsafe_code, reason = \"shared memory\")]\nfn f() { unsafe { g() } }";
    one_error(rule, "memory/x/src/a.rs", "fn f() { unsafe { g() } }", 1, "does not opt in", good);
    let bad = "#![allow(unsafe_code)]\nfn f() { unsafe { g() } }";
    one_error(rule, "memory/x/src/a.rs", bad, 1, "without a reason", good);
}

#[test]
fn clocks_threads_and_files_are_found_below_runtime() {
    let rule: Rule = source::tiers_keep_off_clocks_threads_and_files;
    let good = "use std::time::Duration;\n#[cfg(test)]\nmod tests { use std::time::Instant; }";
    one_error(rule, "engine/x/src/a.rs", "use std::time::{Duration, Instant};", 1, "now:", good);
    one_error(
        rule,
        "pure/x/src/a.rs",
        "fn f() {\n    std::thread::spawn(g);\n}",
        2,
        "std::thread::spawn",
        good,
    );
    one_error(
        rule,
        "memory/x/src/a.rs",
        "fn f() { m!(rustix::time::clock_gettime(c)) }",
        1,
        "clock_gettime",
        good,
    );
    one_error(rule, "engine/x/src/a.rs", "use std::fs::File;", 1, "std::fs::File", good);
    assert_eq!(errors(rule, &[("runtime/x/src/a.rs", "use std::thread;")]), Vec::<String>::new());
    assert_eq!(errors(rule, &[("memory/x/src/a/tests.rs", "use std::thread;")]), Vec::<String>::new());
}

#[test]
fn the_wall_clock_is_for_reports_only() {
    let rule: Rule = source::nothing_depends_on_the_wall_clock;
    let good = "use std::time::Instant;\n#[cfg(test)]\nmod tests { use std::time::SystemTime; }";
    one_error(rule, "runtime/x/src/a.rs", "use std::time::SystemTime;", 1, "may be set", good);
    one_error(rule, "bin/x/src/a.rs", "fn f() { std::time::SystemTime::now(); }", 1, "may be set", good);
    one_error(rule, "io/x/src/a.rs", "fn f() { g(libc::CLOCK_REALTIME) }", 1, "CLOCK_REALTIME", good);
    one_error(rule, "io/x/src/a.rs", "fn f() { g(rustix::time::ClockId::Realtime) }", 1, "Realtime", good);
    let report = [("lab/lab/src/lab/mod.rs", "use std::time::{SystemTime, UNIX_EPOCH};")];
    assert_eq!(errors(rule, &report), Vec::<String>::new());
}

#[test]
fn a_lock_that_a_forked_child_would_wait_for_is_found() {
    let rule: Rule = source::children_wait_for_no_lock_of_a_parent;
    let good = "static A: OfProcess<Mutex<u8>> = OfProcess::new(Mutex::new(0), make);\n\
        #[cfg(test)]\nmod tests { static B: Mutex<u8> = Mutex::new(0); }";
    let bad = "fn f() {\n    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());\n}";
    one_error(rule, "sockets/leases/src/a.rs", bad, 2, "static ONE: Mutex", good);
    one_error(rule, "core/sys/src/a.rs", "static A: OnceLock<u8> = OnceLock::new();", 1, "OnceLock", good);
    assert_eq!(errors(rule, &[("service/x/src/a.rs", bad)]), Vec::<String>::new());
    let gone = errors(rule, &[("sockets/calls/src/earning.rs", "static A: AtomicU8 = AtomicU8::new(0);")]);
    assert!(gone[0].contains("REQUESTS"), "{gone:?}");
}

#[test]
fn a_module_that_only_tests_declare_is_test_code() {
    let files = [
        ("pure/x/src/lib.rs", "#[cfg(all(test, not(loom)))]\nmod model;"),
        ("pure/x/src/model.rs", "fn f() { g().unwrap(); }"),
        ("pure/x/src/modeller.rs", "fn f() { g().unwrap(); }"),
    ];
    assert_eq!(errors(source::nothing_panics_by_unwrap, &files).len(), 1);
}

#[test]
fn unwrap_is_found_in_code_and_in_macros_but_not_in_tests() {
    let rule: Rule = source::nothing_panics_by_unwrap;
    let good = "fn f() { g().unwrap_or(1); }\n#[cfg(test)]\nmod tests {\n    fn f() { g().unwrap(); }\n}";
    one_error(rule, "bin/x/src/a.rs", "fn f() {\n    g()\n        .unwrap();\n}", 3, "return an error", good);
    one_error(
        rule,
        "io/x/src/a.rs",
        "fn f() { println!(\"{}\", g().unwrap()); }",
        1,
        "return an error",
        good,
    );
    one_error(
        rule,
        "io/x/src/a.rs",
        "#[cfg(not(test))]\nfn f() { g().unwrap(); }",
        2,
        "return an error",
        good,
    );
}

#[test]
fn sleeping_is_found_everywhere() {
    let rule: Rule = source::nothing_sleeps_on_a_tick;
    let bad = "#[test]\nfn t() { std::thread::sleep(SECOND); }";
    one_error(rule, "test/x/src/a.rs", bad, 2, "timer tick", "fn t() { sleepy::thread(1); }");
}

#[test]
fn the_unfinished_and_the_silenced_are_found() {
    let rule: Rule = source::nothing_is_unfinished_or_silenced;
    let path = "io/x/src/a.rs";
    one_error(rule, path, "fn f() { todo!() }", 1, "todo!", "");
    one_error(rule, path, "fn f() { g(|| dbg!(1)) }", 1, "dbg!", "");
    one_error(rule, path, "#[test]\n#[ignore = \"slow\"]\nfn f() {}", 2, "#[ignore]", "#[test]\nfn f() {}");
    one_error(
        rule,
        path,
        "#[allow(dead_code)]\nfn f() {}",
        1,
        "remove what",
        "#[allow(unsafe_code)]\nfn f() {}",
    );
    let (always, without) =
        ("cfg_attr(test, allow(dead_code))", "cfg_attr(not(feature = \"x\"), allow(dead_code))");
    let of = |attribute| format!("#[{attribute}]\nfn f() {{}}");
    one_error(rule, path, &of(always), 1, "remove what", &of(without));
    one_error(rule, path, concat!("fn f() {} // TO", "DO"), 1, "finish it", "fn f() {}");
}

#[test]
fn long_functions_are_found_and_the_list_of_exceptions_shrinks() {
    let body = "    g();\n".repeat(69);
    let path = "pure/x/src/lib.rs";
    let long = format!("fn f() {{\n{body}}}");
    let short = format!("fn f() {{\n{}}}", body.replacen("    g();\n", "", 1));
    let rule: Rule = source::functions_are_short;
    one_error(rule, path, &long, 1, "fn f has 71 lines of 70", &short);
    one_error(rule, path, &long, 1, "fn f has 71 lines", &format!("#[cfg(test)]\nmod tests {{\n{long}\n}}"));

    let count = |text: &str, all: usize, excused: &[(&str, &str, &str)]| {
        let tree = Tree::new(vec![(path.to_owned(), Some(text.to_owned()))]);
        let found = source::product_functions(&tree);
        let long: Vec<_> = found.into_iter().filter(|(_, function)| function.lines > 70).collect();
        source::ratchet(&long, all, excused).len()
    };
    let excused = [(path, "f", "a table of cases")];
    assert_eq!(count(&long, 200, &excused), 0, "excused");
    assert_eq!(count(&short, 200, &excused), 1, "an exception that is no longer one");
    let two = format!("{long}\n{}", long.replace("fn f", "fn g"));
    let excused = [(path, "f", "a table of cases"), (path, "g", "another")];
    assert_eq!(count(&two, 199, &excused), 1, "more than one in a hundred");
}

#[test]
fn a_crate_without_a_header_is_found() {
    let rule: Rule = source::crates_say_what_they_are;
    one_error(rule, "pure/x/src/lib.rs", "mod a;", 1, "no header", "//! Time as a value.\nmod a;");
}

#[test]
fn files_that_import_each_other_are_found() {
    let found = |files: &[(&str, &str)]| -> Vec<String> {
        let files = files.iter().map(|(path, text)| (format!("pure/x/src/{path}"), Some((*text).to_owned())));
        let found = circles::no_files_import_in_a_circle(&Tree::new(files.collect()));
        found.into_iter().map(|finding| finding.message).collect()
    };
    let root = ("lib.rs", "mod a;\nmod b;\npub use b::B;");
    let one = |b: &str| found(&[root, ("a.rs", "use crate::b::B;"), ("b.rs", b)]);
    let named = "2 files import each other in a circle (a.rs:1 -> b.rs, b.rs:1 -> a.rs)";
    for b in [
        "use crate::a::A;",
        "use super::a::{self, A};",
        "fn f() { crate::a::f() }",
        "mod m { use super::super::a::A; }",
    ] {
        assert!(matches!(one(b).as_slice(), [message] if message.starts_with(named)), "{b}: {:?}", one(b));
    }
    for b in [
        "",
        "use a::A;",
        "use crate::c::A;",
        "#[cfg(test)]\nmod tests { use crate::a::A; }",
        "mod m { use super::a; }",
    ] {
        assert_eq!(one(b), Vec::<String>::new(), "{b}");
    }
    // A name is followed through the file that passes it on, under another name too.
    let through =
        |name: &str| found(&[("lib.rs", "pub use b::B as C;"), ("a.rs", name), ("b.rs", "use crate::a::A;")]);
    assert_eq!((through("use crate::C;").len(), through("use crate::D;").len()), (1, 0));
    // Of three, and with a parent that uses its children, which use it.
    let three = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::a::A;")];
    assert!(found(&three)[0].starts_with("3 files"));
    let family =
        [("a.rs", "mod b;\nuse b::B;"), ("a/b.rs", "use super::A;"), ("a/c/d.rs", "use crate::a::A;")];
    assert_eq!(found(&family), Vec::<String>::new());
}

#[test]
fn dead_links_are_found() {
    let rule: Rule = text::links_resolve;
    let other = ("docs/testing.md", "# Tests\n## How to run\n");
    let broken = |line: &str| errors(rule, &[("docs/a.md", line), other]).len();
    for good in [
        "[a](testing.md)",
        "[a](../docs)",
        "[a](testing.md#how-to-run)",
        "[a](https://example.org/x)",
        "`[a](nowhere.md)`",
        "```\n[a](nowhere.md)\n```",
    ] {
        assert_eq!(broken(good), 0, "{good}");
    }
    for bad in
        ["[a](nowhere.md)", "[a](testing.md#nowhere)", "[a](../../out.md)", "[b](testing.md) [a](x \"t\")"]
    {
        assert_eq!(broken(bad), 1, "{bad}");
    }
}

#[test]
fn paths_of_one_machine_are_found() {
    let bad = concat!("see\n/ho", "me/me/x");
    one_error(text::no_machine_paths, "docs/a.md", bad, 2, "relative to the checkout", "see docs/");
}

#[test]
fn long_lines_of_markdown_are_found_but_not_in_tables() {
    let rule = words::markdown_lines_are_short;
    let (long, row) = ("a ".repeat(61), format!("| {} |", "a ".repeat(61)));
    one_error(rule, "docs/a.md", &long, 1, "break the line", &row);
}

#[test]
fn a_file_that_a_document_names_exists() {
    let rule = words::named_files_exist;
    let file = ("io/a/src/lib.rs", "");
    assert_eq!(errors(rule, &[file, ("docs/a.md", "`io/a/src/lib.rs`, `x*.rs`")]), [""; 0]);
    assert_eq!(errors(rule, &[file, ("io/README.md", "`a/src/lib.rs`")]), [""; 0]);
    for name in ["b/src/lib.rs", "a/src/lib.rs", "lib.rs"] {
        assert_eq!(errors(rule, &[file, ("docs/a.md", &format!("`{name}`"))]).len(), 1, "{name}");
    }
}

#[test]
fn a_file_without_a_first_comment_is_found() {
    let rule = source::files_say_what_they_are_for;
    one_error(
        rule,
        "io/a/src/b.rs",
        "use std::io;",
        1,
        "what the file is for",
        "//! Reads frames.\nuse std::io;",
    );
    assert_eq!(errors(rule, &[("io/a/src/tests.rs", "use super::*;")]), [""; 0]);
}

#[test]
fn an_option_of_a_key_that_is_written_again_is_found() {
    let keys = (
        "host/config/src/limits.rs",
        "drain_ms: u32 = 5 => unit(\"ms\"), option(\"drain-ms\", \"MS\", SERVE);",
    );
    let found = |path: &str, command: &str| errors(keys::keys_are_written_once, &[keys, (path, command)]);
    let by_field = "struct A {\n    #[arg(long, value_name = \"MS\")]\n    drain_ms: u32,\n}";
    let by_name = "struct A {\n    #[arg(long = \"drain-ms\")]\n    pub(crate) time: u32,\n}";
    for command in [by_field, by_name] {
        let found = found("cli/src/serve/mod.rs", command);
        assert!(
            found.len() == 1 && found[0].contains("serve/mod.rs:2: --drain-ms is the option"),
            "{found:?}"
        );
    }
    assert!(found("cli/src/drain.rs", by_field).is_empty());
    assert!(found("cli/src/serve/mod.rs", "struct A {\n    #[arg(long)]\n    standby: u32,\n}").is_empty());
}
