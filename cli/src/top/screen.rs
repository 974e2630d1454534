//! The screen: draws the last poll's results until `q` or a signal ends it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Paragraph, Row, Table, Wrap};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::follow::{Followed, Look};
use super::sections::{Section, sections};

/// Spaces between two columns.
const COLUMN_SPACING: usize = 2;

/// The state of the screen.
struct Screen {
    look: Look,
    /// Sections scrolled away at the top.
    scrolled: usize,
}

pub(crate) fn run(followed: Followed, interval: Duration) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut terminal = ratatui::try_init().context("the terminal can't be taken over; ask with --batch")?;
    let outcome = runtime.block_on(serve(&mut terminal, followed, interval));
    ratatui::restore();
    // A poll may be waiting for an instance that does not answer; it is not waited for.
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn serve(terminal: &mut DefaultTerminal, followed: Followed, interval: Duration) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut looks = look_again_and_again(followed, interval);
    let mut keys = EventStream::new();
    let waiting = Look { notes: vec!["asking".to_owned()], ..Look::default() };
    let mut screen = Screen { look: waiting, scrolled: 0 };
    loop {
        terminal.draw(|frame| screen.draw(frame)).context("the terminal can't be drawn on")?;
        tokio::select! {
            look = looks.recv() => match look {
                Some(look) => screen.look = look?,
                None => return Ok(()),
            },
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    if screen.ends(key) {
                        return Ok(());
                    }
                }
                // Probably another size: redraw.
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok(()),
            },
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}

/// Polls on a separate thread, so that an instance that answers slowly does not delay key presses.
fn look_again_and_again(mut followed: Followed, interval: Duration) -> mpsc::Receiver<anyhow::Result<Look>> {
    let (tell, looks) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut due = tokio::time::interval(interval);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let Ok((returned, look)) = tokio::task::spawn_blocking(move || {
                let look = followed.look();
                (followed, look)
            })
            .await
            else {
                return;
            };
            followed = returned;
            if tell.send(look).await.is_err() {
                return;
            }
        }
    });
    looks
}

impl Screen {
    /// Whether this key ends it.
    fn ends(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Down | KeyCode::PageDown | KeyCode::Char('j') => self.scrolled += 1,
            KeyCode::Up | KeyCode::PageUp | KeyCode::Char('k') => {
                self.scrolled = self.scrolled.saturating_sub(1)
            }
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let reverse = Style::new().add_modifier(Modifier::REVERSED);
        let count = self.look.instances.len();
        let title = format!("twinpath top: {count} instance{}", if count == 1 { "" } else { "s" });
        frame.render_widget(Paragraph::new(title).style(reverse), top);
        frame.render_widget(Paragraph::new("q ends, up and down scroll").style(reverse), bottom);
        let sections: Vec<_> = self.look.instances.iter().flat_map(sections).collect();
        self.scrolled = self.scrolled.min(sections.len().saturating_sub(1));
        let mut left = middle;
        if !self.look.notes.is_empty() {
            self.look.notes.iter().for_each(|note| draw_note(frame, &mut left, note));
            take(&mut left, 1);
        }
        for section in &sections[self.scrolled..] {
            if left.height == 0 {
                break;
            }
            draw_section(frame, &mut left, section);
        }
    }
}

fn draw_section(frame: &mut Frame<'_>, left: &mut Rect, section: &Section) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let area = take(left, lines(&section.title, left.width));
    frame.render_widget(Paragraph::new(section.title.as_str()).style(bold).wrap(Wrap { trim: true }), area);
    if !section.rows.is_empty() {
        let widths = widths(section);
        let shown = columns(section, &widths, left.width);
        let cell = |at: usize, text: &str| {
            if at >= section.first_number {
                format!("{text:>width$}", width = widths[at])
            } else {
                text.to_owned()
            }
        };
        let row =
            |cells: &[String]| Row::new(shown.iter().map(|at| cell(*at, &cells[*at])).collect::<Vec<_>>());
        let header: Vec<_> = section.header.iter().map(|name| (*name).to_owned()).collect();
        let table = Table::new(
            section.rows.iter().map(|cells| row(cells)),
            shown.iter().map(|at| Constraint::Length(widths[*at] as u16)),
        )
        .header(row(&header).style(Style::new().add_modifier(Modifier::DIM)))
        .column_spacing(COLUMN_SPACING as u16);
        let height = (section.rows.len() as u16 + 1).min(left.height);
        frame.render_widget(table, take(left, height));
    }
    for note in &section.notes {
        draw_note(frame, left, note);
    }
    take(left, 1);
}

fn draw_note(frame: &mut Frame<'_>, left: &mut Rect, note: &str) {
    let area = take(left, lines(note, left.width));
    frame.render_widget(Paragraph::new(note).wrap(Wrap { trim: true }), area);
}

/// Number of lines that a sentence takes when it is wrapped.
fn lines(text: &str, width: u16) -> u16 {
    let width = usize::from(width.max(1));
    let (mut lines, mut used) = (1, 0);
    for word in text.split_whitespace().map(|word| word.chars().count()) {
        let with_space = used + usize::from(used > 0) + word;
        if with_space <= width {
            used = with_space;
        } else {
            lines += usize::from(used > 0) + (word - 1) / width;
            used = (word - 1) % width + 1;
        }
    }
    lines.min(u16::MAX.into()) as u16
}

/// Cuts `height` lines off the top of the remaining area.
fn take(left: &mut Rect, height: u16) -> Rect {
    let height = height.min(left.height);
    let taken = Rect { height, ..*left };
    left.y += height;
    left.height -= height;
    taken
}

/// The columns that fit side by side: a truncated figure would be wrong, so the least important columns are left out
/// instead.
fn columns(section: &Section, widths: &[usize], width: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    for name in section.optional {
        let needed = shown.iter().map(|at| widths[*at] + COLUMN_SPACING).sum::<usize>();
        if needed <= usize::from(width) + COLUMN_SPACING {
            break;
        }
        shown.retain(|at| section.header[*at] != *name);
    }
    shown
}

/// The widest text of each column.
fn widths(section: &Section) -> Vec<usize> {
    let longest = |at: usize| section.rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    section.header.iter().enumerate().map(|(at, name)| name.chars().count().max(longest(at))).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::rates::{InterfaceRates, QueueRates, Rates, ServiceRates, WorkerRates};
    use super::*;

    fn drawn(width: u16, height: u16, look: Look) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal of memory");
        let mut screen = Screen { look, scrolled: 9 };
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn wrapped_sentences_take_as_many_lines_as_they_need() {
        assert_eq!((lines("", 5), lines("ab cd", 5), lines("ab cde", 5)), (1, 1, 2));
        assert_eq!((lines("abcdefghijk", 5), lines("a abcdefghijk", 5)), (3, 4));
    }

    /// Rates as wide as they usually get, and zeros beside them.
    fn busy() -> Look {
        let queue =
            QueueRates { frames_in_per_s: 123_456.0, bits_in_per_s: 98_760_000.0, ..Default::default() };
        let rates = Rates {
            serves: "echo on udp/7".to_owned(),
            services: vec![ServiceRates {
                name: "echo".to_owned(),
                requests_per_s: 123_456.0,
                kernel_share: Some(1.0),
                p50_ns: Some(999_000),
                p99_ns: Some(12_300_000),
                p999_ns: Some(123_400_000),
                ..Default::default()
            }],
            interfaces: vec![InterfaceRates { queues: vec![queue; 2], ..Default::default() }],
            workers: vec![WorkerRates {
                mode: "interrupt".to_owned(),
                cpu_percent: 100.0,
                pool_free: 4_000,
                pool_frames: 4_096,
                p50_ns: Some(999_000),
                ..Default::default()
            }],
            ..Rates::default()
        };
        Look { instances: vec![rates], notes: Vec::new() }
    }

    #[test]
    fn a_narrow_screen_leaves_out_whole_columns_and_cuts_no_figure() {
        for (width, left_out) in [(80, &["connections", "kicks/s", "request ", "wakes/s"][..]), (140, &[])] {
            let mut screen = Screen { look: busy(), scrolled: 0 };
            let mut terminal = Terminal::new(TestBackend::new(width, 40)).expect("a terminal of memory");
            terminal.draw(|frame| screen.draw(frame)).expect("drawn");
            let drawn = terminal.backend().to_string();
            for name in ["connections", "kicks/s", "request ", "wakes/s"] {
                assert_eq!(drawn.contains(name), !left_out.contains(&name), "{name}\n{drawn}");
            }
            let lines: Vec<&str> = drawn.lines().map(|line| line.trim_matches('"')).collect();
            for section in sections(&screen.look.instances[0]) {
                let header = lines.iter().position(|line| {
                    let line = line.trim_start();
                    line.starts_with(section.header[0])
                        && section.header[1..].iter().any(|name| line.contains(name))
                });
                let header = header.unwrap_or_else(|| panic!("no header of {}\n{drawn}", section.title));
                let shown = columns(&section, &widths(&section), width);
                let text: Vec<_> =
                    lines[header].split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
                assert_eq!(text, shown.iter().map(|at| section.header[*at]).collect::<Vec<_>>(), "{drawn}");
                for (line, row) in lines[header + 1..].iter().zip(&section.rows) {
                    let text: Vec<_> = line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
                    assert_eq!(text, shown.iter().map(|at| row[*at].as_str()).collect::<Vec<_>>(), "{drawn}");
                }
            }
        }
    }

    #[test]
    fn any_size_of_screen_can_be_drawn_on() {
        let rates = Rates {
            serves: "echo on udp/7".to_owned(),
            services: vec![ServiceRates { why: vec!["a long sentence ".repeat(20)], ..Default::default() }],
            ..Rates::default()
        };
        let look = Look { instances: vec![rates; 3], notes: vec!["one is gone".to_owned()] };
        for (width, height) in [(1, 1), (2, 3), (20, 5), (80, 24), (300, 100)] {
            let _ = drawn(width, height, look.clone());
        }
        let screen = drawn(100, 40, look);
        assert!(screen.contains("3 instances") && screen.contains("one is gone"), "{screen}");
    }
}
