//! Sentences on a screen of fixed width.

/// The width of a screen, characters.
pub(crate) const WIDTH: usize = 120;

/// Wraps a sentence at spaces; each line is indented, the second and later ones by two more.
pub(crate) fn wrapped(sentence: &str, indent: usize) -> String {
    let mut text = " ".repeat(indent);
    let mut used = indent;
    for (place, word) in sentence.split_whitespace().enumerate() {
        let length = word.chars().count();
        if place > 0 && used + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(indent + 2));
            used = indent + 2;
        } else if place > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_screen() {
        let sentence = "a word ".repeat(60);
        for indent in [0, 6] {
            let text = wrapped(&sentence, indent);
            assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() == 4, "{text}");
            assert_eq!(text.split_whitespace().count(), 120);
        }
        assert_eq!(wrapped(&"x".repeat(200), 2).len(), 202);
    }
}
