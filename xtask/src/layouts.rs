//! What the kernel's programs and our code share: layouts of memory, and numbers. They are defined once, in the C
//! sources of the programs. `xtask bpf` writes them in Rust; `xtask check` compares them, which takes no compiler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use self::shared::{FILES, Item, LEN, Made, Struct};

mod shared;

/// The sources.
const SOURCES: &str = "stack/bpf/bpf";

/// A field of a struct in C.
#[derive(Clone)]
struct Field {
    name: String,
    kind: String,
    dimensions: Vec<u64>,
    at: u64,
}

#[derive(Clone, Default)]
struct Layout {
    fields: Vec<Field>,
    size: u64,
    align: u64,
    has_padding: bool,
}

/// What one source defines.
#[derive(Clone, Default)]
struct Source {
    numbers: BTreeMap<String, i128>,
    structs: BTreeMap<String, Layout>,
}

/// Writes the files, or with `check` compares them, and returns those that are not what the sources say.
pub(crate) fn write(root: &Path, check: bool) -> Result<Vec<&'static str>> {
    let sources = sources(&root.join(SOURCES))?;
    let mut different = Vec::new();
    for made in &FILES {
        let path = root.join(made.path);
        let text = text(made, &sources).with_context(|| format!("making {}", made.path))?;
        if std::fs::read_to_string(&path).ok().as_deref() == Some(text.as_str()) {
            continue;
        }
        different.push(made.path);
        if !check {
            std::fs::write(&path, text).with_context(|| format!("writing {}", made.path))?;
        }
    }
    Ok(different)
}

/// The sources by name. Each knows what the headers define as well.
fn sources(folder: &Path) -> Result<BTreeMap<String, Source>> {
    let mut texts = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        texts.insert(
            name,
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?,
        );
    }
    let headers = || texts.iter().filter(|(name, _)| name.ends_with(".h"));
    // What a header uses of another one may come later by name.
    let mut all = Source::default();
    for _ in 0..3 {
        for (_, text) in headers() {
            let found = Source::read(text, &all);
            all.numbers.extend(found.numbers);
            all.structs.extend(found.structs);
        }
    }
    Ok(texts.iter().map(|(name, text)| (name.clone(), Source::read(text, &all))).collect())
}

impl Source {
    fn read(text: &str, known: &Self) -> Self {
        let code = without_comments(text);
        let mut all = known.clone();
        let mut own = Self::default();
        for line in code.lines() {
            let Some((name, value)) = line.strip_prefix("#define ").and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            if let Some(value) = number(value, &all).filter(|_| !name.contains('(')) {
                all.numbers.insert(name.to_owned(), value);
                own.numbers.insert(name.to_owned(), value);
            }
        }
        for (keyword, name, body) in definitions(&code) {
            if keyword == "enum" {
                for (name, value) in enumerators(body, &mut all) {
                    own.numbers.insert(name, value);
                }
            } else if let Some(layout) = Layout::read(body, &all) {
                all.structs.insert(name.to_owned(), layout.clone());
                own.structs.insert(name.to_owned(), layout);
            }
        }
        own
    }
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

/// `enum NAME { BODY }` and `struct NAME { BODY }`, in order; the name of an enum may be empty.
fn definitions(code: &str) -> Vec<(&str, &str, &str)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find('{') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let head = before.rsplit([';', '}', '\n']).next().unwrap_or_default().trim();
        let mut words = head.split_whitespace();
        let (keyword, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_one =
            words.next().is_none() && (keyword == "enum" || (keyword == "struct" && !name.is_empty()));
        if let Some(end) = after.find('}').filter(|_| is_one) {
            found.push((keyword, name, &after[..end]));
        }
        rest = after;
    }
    found
}

fn enumerators(body: &str, all: &mut Source) -> Vec<(String, i128)> {
    let (mut next, mut found) = (0, Vec::new());
    for entry in body.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) =
            entry.split_once('=').map_or((entry, None), |(name, value)| (name.trim(), Some(value)));
        if let Some(value) = value {
            // One that is not understood, and those behind it, are not known.
            let Some(value) = number(value, all) else { return found };
            next = value;
        }
        all.numbers.insert(name.to_owned(), next);
        found.push((name.to_owned(), next));
        next += 1;
    }
    found
}

impl Layout {
    /// `None`: it is not of plain integers, arrays and such structs.
    fn read(body: &str, all: &Source) -> Option<Self> {
        let mut layout = Self { align: 1, ..Self::default() };
        for line in body.split(';').map(str::trim).filter(|line| !line.is_empty()) {
            let line = line.strip_prefix("struct ").unwrap_or(line);
            let (kind, declared) = line.split_once(char::is_whitespace)?;
            let mut parts = declared.split('[');
            // No pointer, bit-field or second name in one declaration: their sizes would be wrong.
            let name = parts.next().filter(|name| name.chars().all(is_word))?.to_owned();
            let dimensions =
                parts.map(|part| number(part.strip_suffix(']')?, all).map(|number| number as u64));
            let dimensions = dimensions.collect::<Option<Vec<_>>>()?;
            let kind = kind.to_owned();
            let (size, align) = size_of(&kind, all)?;
            let at = layout.size.next_multiple_of(align);
            layout.has_padding |= at != layout.size;
            layout.size = at + size * dimensions.iter().product::<u64>();
            layout.align = layout.align.max(align);
            layout.fields.push(Field { name, kind, dimensions, at });
        }
        let size = layout.size.next_multiple_of(layout.align);
        layout.has_padding |= size != layout.size;
        Some(Self { size, ..layout })
    }
}

fn size_of(kind: &str, all: &Source) -> Option<(u64, u64)> {
    let bits = kind.strip_prefix("__u").and_then(|bits| bits.parse::<u64>().ok());
    bits.map(|bits| (bits / 8, bits / 8))
        .or_else(|| all.structs.get(kind).map(|layout| (layout.size, layout.align)))
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The value of a constant expression.
fn number(text: &str, all: &Source) -> Option<i128> {
    let mut tokens = Vec::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if is_word(first) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
            '<' | '>' => 2,
            '(' | ')' | '+' | '-' | '*' | '/' | '|' | '~' => 1,
            _ => return None,
        };
        tokens.push(rest.get(..len)?);
        rest = rest.get(len..)?.trim_start();
    }
    let mut tokens = tokens.into_iter().peekable();
    let value = binary(&mut tokens, 0, all)?;
    tokens.next().is_none().then_some(value)
}

type Tokens<'a> = std::iter::Peekable<std::vec::IntoIter<&'a str>>;

/// The operators, those that bind least first.
const OPERATORS: [&[&str]; 4] = [&["|"], &["<<", ">>"], &["+", "-"], &["*", "/"]];

fn binary(tokens: &mut Tokens<'_>, level: usize, all: &Source) -> Option<i128> {
    let Some(operators) = OPERATORS.get(level) else { return unary(tokens, all) };
    let mut value = binary(tokens, level + 1, all)?;
    while let Some(operator) = tokens.next_if(|token| operators.contains(token)) {
        let right = binary(tokens, level + 1, all)?;
        value = match operator {
            "|" => value | right,
            "<<" => value.checked_shl(right.try_into().ok()?)?,
            ">>" => value.checked_shr(right.try_into().ok()?)?,
            "+" => value + right,
            "-" => value - right,
            "*" => value * right,
            _ => value.checked_div(right)?,
        };
    }
    Some(value)
}

fn unary(tokens: &mut Tokens<'_>, all: &Source) -> Option<i128> {
    match tokens.next()? {
        "-" => Some(-unary(tokens, all)?),
        "(" => {
            let value = binary(tokens, 0, all)?;
            (tokens.next()? == ")").then_some(value)
        }
        word => {
            let digits = word.trim_end_matches(['U', 'L']);
            let hexadecimal =
                digits.strip_prefix("0x").and_then(|digits| i128::from_str_radix(digits, 16).ok());
            hexadecimal.or_else(|| digits.parse().ok()).or_else(|| all.numbers.get(word).copied())
        }
    }
}

fn text(made: &Made, sources: &BTreeMap<String, Source>) -> Result<String> {
    let mut text = format!(
        "//! {}\n//!\n//! Written by `cargo run -p xtask -- bpf` from the sources in {SOURCES}: change those.\n",
        made.about
    );
    let has_structs = made.items.iter().any(|item| matches!(item, Item::Struct(..)));
    if has_structs {
        text.push_str("#![allow(unsafe_code, reason = \"aya takes map keys and values as plain memory\")]\n\nuse aya::Pod;\n");
    }
    let names = |kind: &str| {
        made.items.iter().find_map(|item| match item {
            Item::Struct(_, name, its) if *name == kind => Some(its.name),
            _ => None,
        })
    };
    for item in made.items {
        let (Item::Numbers(file, ..) | Item::Places(file, ..) | Item::Struct(file, ..)) = item;
        let source = sources.get(*file).with_context(|| format!("there is no {SOURCES}/{file}"))?;
        let layout = |name: &str| {
            source.structs.get(name).with_context(|| format!("{file} has no struct {name} of integers"))
        };
        text.push('\n');
        match item {
            Item::Numbers(_, kind, numbers) => {
                for name in *numbers {
                    let value =
                        source.numbers.get(*name).with_context(|| format!("{file} has no number {name}"))?;
                    let value = if *value >= 1 << 32 { format!("{value:#x}") } else { value.to_string() };
                    writeln!(text, "pub(crate) const {name}: {kind} = {value};")?;
                }
            }
            Item::Places(_, name, fields) => places(&mut text, file, name, layout(name)?, fields)?,
            Item::Struct(_, name, its) => structure(&mut text, file, name, layout(name)?, its, &names)?,
        }
    }
    Ok(text)
}

fn places(text: &mut String, file: &str, name: &str, layout: &Layout, fields: &[&str]) -> Result<()> {
    writeln!(text, "/// `struct {name}` of {file}: where its fields are, and its length, bytes.")?;
    writeln!(text, "pub(crate) mod {name} {{")?;
    for wanted in fields {
        if *wanted == LEN {
            writeln!(text, "    pub(crate) const LEN: usize = {};", layout.size)?;
            continue;
        }
        let field = layout.fields.iter().find(|field| field.name == *wanted);
        let field = field.with_context(|| format!("struct {name} of {file} has no field {wanted}"))?;
        writeln!(text, "    pub(crate) const {}_AT: usize = {};", wanted.to_uppercase(), field.at)?;
    }
    text.push_str("}\n");
    Ok(())
}

fn structure(
    text: &mut String,
    file: &str,
    name: &str,
    layout: &Layout,
    its: &Struct,
    names: &impl Fn(&str) -> Option<&'static str>,
) -> Result<()> {
    if layout.has_padding {
        bail!("struct {name} of {file} has padding: name it as a field `reserved`");
    }
    let seen = if its.is_public { "pub" } else { "pub(crate)" };
    writeln!(text, "/// `struct {name}` of {file}.\n#[derive({})]\n#[repr(C)]", its.derives)?;
    if its.is_public {
        text.push_str("#[allow(missing_docs, reason = \"the names say it\")]\n");
    }
    writeln!(text, "{seen} struct {} {{", its.name)?;
    for field in layout.fields.iter().filter(|field| field.name != its.without) {
        writeln!(text, "    {seen} {}: {},", field.name, rust_type(field, its, names)?)?;
    }
    writeln!(
        text,
        "}}\n\n// SAFETY: repr(C), of integers, without padding; any bytes are a value.\nunsafe impl Pod for {} {{}}",
        its.name
    )?;
    Ok(())
}

fn rust_type(field: &Field, its: &Struct, names: &impl Fn(&str) -> Option<&'static str>) -> Result<String> {
    let mut dimensions = field.dimensions.clone();
    let width = field.kind.strip_prefix("__u").and_then(|bits| bits.parse::<u64>().ok()).map(|bits| bits / 8);
    let is = |list: &[&str]| list.contains(&field.name.as_str());
    let inner = match width {
        Some(width) if is(its.bytes) => format!("[u8; {}]", width * dimensions.pop().unwrap_or(1)),
        Some(width) if is(its.each) => format!("[u8; {width}]"),
        Some(width) => format!("u{}", width * 8),
        None => names(&field.kind)
            .with_context(|| format!("struct {} is not written before", field.kind))?
            .to_owned(),
    };
    Ok(dimensions.iter().rev().fold(inner, |inner, len| format!("[{inner}; {len}]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::shared::PLAIN;

    const SOURCE: &str = "enum { SLOTS = 4, LEN = SLOTS * 8 - 2 /* , NOT = 1 */ };\n#define OPEN (1ULL << 63)\n#define F(x) (x)\n\
        enum why { NONE, SOME = 0x10, MORE };\n\
        struct key {\n\t__u8 family;\n\t__u8 reserved[3];\n\t__u32 address[4]; /* as on the wire */\n};\n\
        struct table {\n\t__u64 words[SLOTS + 0];\n\tstruct key keys[2];\n\t__u64 last;\n};\n\
        struct { MAP_UINT(type, 1); } map SECTION(\".maps\");\nstruct odd {\n\t__u8 one;\n\t__u16 two;\n};\n\
        INLINE int call(struct key *key) { return key->family; }\n";

    fn source() -> Source {
        Source::read(SOURCE, &Source::default())
    }

    #[test]
    fn a_field_whose_size_would_be_guessed_is_none() {
        for field in ["__u32 a, b", "__u8 *p", "__u32 x:3"] {
            let source = Source::read(&format!("struct s {{\n\t{field};\n}};\n"), &Source::default());
            assert!(source.structs.is_empty(), "{field}");
        }
    }

    #[test]
    fn numbers_and_places_are_those_of_the_compiler() {
        let source = source();
        let expected =
            [("SLOTS", 4), ("LEN", 30), ("OPEN", 1 << 63), ("NONE", 0), ("SOME", 16), ("MORE", 17)];
        for (name, value) in expected {
            assert_eq!(source.numbers.get(name), Some(&value), "{name}");
        }
        assert_eq!(source.numbers.len(), expected.len());
        let table = &source.structs["table"];
        let places: Vec<_> = table.fields.iter().map(|field| (field.name.as_str(), field.at)).collect();
        assert_eq!((places.as_slice(), table.size), (&[("words", 0), ("keys", 32), ("last", 72)][..], 80));
        assert!(!table.has_padding && source.structs["odd"].has_padding);
        assert_eq!(source.structs.len(), 3, "neither a map nor a function is a struct of integers");
    }

    #[test]
    fn a_struct_is_written_in_rust_and_one_with_padding_is_not() {
        let its = Struct { name: "Key", bytes: &["address"], ..PLAIN };
        let mut text = String::new();
        structure(&mut text, "x.h", "key", &source().structs["key"], &its, &|_| None).unwrap();
        for line in [
            "pub(crate) struct Key {",
            "    pub(crate) reserved: [u8; 3],",
            "    pub(crate) address: [u8; 16],",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
        let error =
            structure(&mut text, "x.h", "odd", &source().structs["odd"], &its, &|_| None).unwrap_err();
        assert_eq!(error.to_string(), "struct odd of x.h has padding: name it as a field `reserved`");
    }
}
