//! What people see: the two output streams, colours, tables, times.
//!
//! Colours are used only on a terminal that wants them (`NO_COLOR`, `CLICOLOR`, `TERM`). Text that
//! came from a server is shown with its control characters made visible, so that nobody's input
//! can move a reader's cursor.

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, ContentArrangement, Table, presets};
use jiff::{SignedDuration, Timestamp};

/// Prose is broken into lines of this width.
const PROSE: usize = 80;

/// What a piece of text stands for; the colours are chosen in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    /// It went well.
    Good,
    /// It went wrong.
    Bad,
    /// Nobody knows.
    Doubt,
    /// It is going on.
    Busy,
    /// Read this first.
    Strong,
    /// Read this last.
    Faint,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
            Tone::Doubt => AnsiColor::Yellow.on_default(),
            Tone::Busy => AnsiColor::Cyan.on_default(),
            Tone::Strong => Style::new().bold(),
            Tone::Faint => Style::new().dimmed(),
        }
    }

    /// The tone of a job's or an attempt's state.
    pub(crate) fn of_state(state: &str) -> Tone {
        match state {
            "succeeded" => Tone::Good,
            "failed" => Tone::Bad,
            "unknown" => Tone::Doubt,
            "starting" | "running" | "queued" => Tone::Busy,
            _ => Tone::Faint,
        }
    }
}

/// The two output streams, and what they can show.
pub(crate) struct Screen {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    colour: bool,
    err_colour: bool,
    width: Option<usize>,
    live: bool,
    drawn: usize,
}

impl Screen {
    /// The process's own standard output and error.
    pub(crate) fn of_process() -> Screen {
        let (out, err) = (io::stdout(), io::stderr());
        let is_terminal = out.is_terminal();
        let can_move = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Screen {
            colour: AutoStream::choice(&out) != ColorChoice::Never,
            err_colour: AutoStream::choice(&err) != ColorChoice::Never,
            width: is_terminal.then(|| Table::new().width().map_or(80, usize::from)),
            live: is_terminal && can_move,
            out: Box::new(out),
            err: Box::new(err),
            drawn: 0,
        }
    }

    /// Streams of a test: no terminal, no colour.
    #[cfg(test)]
    pub(crate) fn of_writers(out: Box<dyn Write>, err: Box<dyn Write>) -> Screen {
        Screen { out, err, colour: false, err_colour: false, width: None, live: false, drawn: 0 }
    }

    /// Whether lines may be drawn again in place: a terminal at least `columns` wide.
    pub(crate) fn is_live(&self, columns: usize) -> bool {
        self.live && self.width.is_some_and(|width| width >= columns)
    }

    /// `text` in the colour of `tone`, where colours are shown.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.colour, tone, text)
    }

    /// One line on standard output.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.drawn = 0;
        self.out.write_all(text.as_ref().as_bytes())?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }

    /// A server's own JSON, byte for byte, and a line's end.
    pub(crate) fn raw(&mut self, json: &[u8]) -> io::Result<()> {
        self.out.write_all(json)?;
        if !json.ends_with(b"\n") {
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    /// Draws a block of lines over the block that was drawn last.
    pub(crate) fn redraw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A\r", self.drawn));
        }
        for line in lines {
            frame.push_str("\x1b[2K");
            frame.push_str(line);
            frame.push('\n');
        }
        // A shorter block than the last one leaves nothing of it behind.
        frame.push_str("\x1b[J");
        self.drawn = lines.len();
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }

    /// The block drawn last stays as it is.
    pub(crate) fn keep(&mut self) {
        self.drawn = 0;
    }

    /// A paragraph on standard output: a painted word, a text and commands to copy, each on a line.
    pub(crate) fn advise(&mut self, word: &str, text: &str, commands: &[String]) -> io::Result<()> {
        let painted = self.paint(Tone::Strong, word);
        for line in paragraph(word, &painted, text, commands) {
            self.line(line)?;
        }
        Ok(())
    }

    /// Whether a table as wide as `columns` does not fit. Where there is no terminal, all fits.
    pub(crate) fn is_narrower(&self, columns: usize) -> bool {
        self.width.is_some_and(|width| width < columns)
    }

    /// One line on standard error. A closed standard error is nobody's trouble.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// A paragraph on standard error that begins with a painted word.
    pub(crate) fn notice(&mut self, tone: Tone, word: &str, text: impl AsRef<str>) {
        let painted = paint(self.err_colour, tone, word);
        for line in paragraph(word, &painted, text.as_ref(), &[]) {
            self.note(line);
        }
    }

    /// A table without lines but the one under its header, as wide as the terminal at most.
    pub(crate) fn table(&self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if let Some(width) = self.width {
            table.set_width(width.min(usize::from(u16::MAX)) as u16);
        }
        if !header.is_empty() {
            table.set_header(header.iter().map(|h| Cell::new(h).add_attribute(comfy_table::Attribute::Dim)));
        }
        table
    }

    /// Prints a table, its lines without white space at their ends.
    pub(crate) fn print_table(&mut self, table: &Table) -> io::Result<()> {
        for line in table.lines() {
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// A text under a word, broken into lines of [`PROSE`] characters; commands stay whole.
fn paragraph(word: &str, painted: &str, text: &str, commands: &[String]) -> Vec<String> {
    let indent = word.chars().count() + 1;
    let mut lines: Vec<String> = Vec::new();
    for part in text.split('\n') {
        lines.extend(wrap(part.trim_start(), PROSE - indent));
    }
    let blank = " ".repeat(indent);
    let mut first = true;
    let begin = |line: String| {
        let begin = if std::mem::take(&mut first) { format!("{painted} ") } else { blank.clone() };
        format!("{begin}{line}")
    };
    lines.into_iter().chain(commands.iter().map(|command| format!("  {command}"))).map(begin).collect()
}

/// Breaks a text at spaces into lines of at most `width` characters. A longer word keeps its line,
/// and what stands between backticks is one word.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if quoted || line.chars().count() + 1 + until_space(text, word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
        quoted ^= word.matches('`').count() % 2 == 1;
    }
    lines
}

/// How many characters stand together from `word` on, which is a part of `text`.
fn until_space(text: &str, word: &str) -> usize {
    let start = word.as_ptr() as usize - text.as_ptr() as usize;
    let mut quoted = false;
    let rest = text.get(start..).unwrap_or(word).chars();
    rest.take_while(|c| {
        quoted ^= *c == '`';
        quoted || *c != ' '
    })
    .count()
}

fn paint(colour: bool, tone: Tone, text: &str) -> String {
    if colour {
        let style = tone.style();
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

/// A table's cell that shows a state.
pub(crate) fn state_cell(state: &str) -> Cell {
    let colour = match Tone::of_state(state) {
        Tone::Good => comfy_table::Color::DarkGreen,
        Tone::Bad => comfy_table::Color::DarkRed,
        Tone::Doubt => comfy_table::Color::DarkYellow,
        Tone::Busy => comfy_table::Color::DarkCyan,
        Tone::Strong | Tone::Faint => comfy_table::Color::Reset,
    };
    Cell::new(safe(state)).fg(colour)
}

/// Text from outside with its control characters made visible; line ends stay.
pub(crate) fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// At most `width` characters of a text, on one line; what is left out shows as `…`.
pub(crate) fn short(text: &str, width: usize) -> String {
    let text = safe(text).replace('\n', " ");
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A moment as the API writes it, as people read it: `2 min ago (2026-01-31 09:30:00Z)`.
pub(crate) fn when(moment: &str, now: Timestamp) -> String {
    match moment.parse::<Timestamp>() {
        Ok(at) => format!("{} ({})", relative(now.duration_since(at)), at.strftime("%F %TZ")),
        Err(_) => safe(moment),
    }
}

/// The absolute half of [`when`], to the minute.
pub(crate) fn clock(moment: &str) -> String {
    match moment.parse::<Timestamp>() {
        Ok(at) => at.strftime("%F %H:%MZ").to_string(),
        Err(_) => safe(moment),
    }
}

/// The relative half of [`when`].
pub(crate) fn ago(moment: &str, now: Timestamp) -> String {
    match moment.parse::<Timestamp>() {
        Ok(at) => relative(now.duration_since(at)),
        Err(_) => safe(moment),
    }
}

fn relative(age: SignedDuration) -> String {
    match age.as_secs() {
        0 => "now".to_owned(),
        seconds @ 1..10 => format!("{seconds} s ago"),
        10.. => format!("{} ago", span(age)),
        _ => format!("in {}", span(-age)),
    }
}

/// A length of time in one or two units: `0.4 s`, `12 s`, `3 min`, `2 h 05 min`, `4 d`.
pub(crate) fn span(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    match seconds {
        ..10 => format!("{:.1} s", length.as_millis().max(0) as f64 / 1000.0),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d", seconds / 86_400),
    }
}
