//! The same, drawn: what is wrong on top in colour, the last hour as lines, queues and workers as far as they fit.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};

use super::super::standing::Problem;
use super::super::words::{grouped, span};
use super::{COUNTED, View, count};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws a view; under it what went wrong with looking, if anything did: the numbers are then old.
pub fn draw(frame: &mut Frame<'_>, view: &View, trouble: Option<&str>) {
    let wrong = u16::try_from(2 * view.problems.len() + 1).unwrap_or(u16::MAX).min(frame.area().height / 3);
    let queues = u16::try_from(view.queues.len() + 2).unwrap_or(u16::MAX);
    let [head, problems, now, hour, rows, workers, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(wrong),
        Constraint::Length(4),
        Constraint::Length(4),
        Constraint::Length(queues),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let at = view.at.format("%H:%M:%S UTC").to_string();
    frame.render_widget(Line::from(vec![Span::styled("Onehold ", BOLD), Span::styled(at, FAINT)]), head);
    let lines: Vec<Line<'_>> = view.problems.iter().flat_map(told).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), problems);
    let words: Vec<String> = view.now().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    frame.render_widget(Paragraph::new(words.join("   ")).wrap(Wrap { trim: true }), now);
    minutes(frame, view, hour);
    frame.render_widget(queue_table(view), rows);
    frame.render_widget(worker_table(view), workers);
    let end = match trouble {
        Some(text) => Line::styled(format!("These numbers are old: {text}"), colour("bad")),
        None => Line::styled("every 2 s; q ends", FAINT),
    };
    frame.render_widget(end, foot);
}

fn colour(grade: &str) -> Style {
    Style::new().fg(match grade {
        "bad" => Color::Red,
        "warn" => Color::Yellow,
        _ => Color::Green,
    })
}

fn told(problem: &Problem) -> [Line<'_>; 2] {
    let mark = if problem.grade == "good" { "" } else { "! " };
    [
        Line::styled(format!("{mark}{}", problem.what), colour(problem.grade).patch(BOLD)),
        Line::from(format!("  {}", problem.todo)),
    ]
}

/// Side by side, one line for each kind over the last hour.
fn minutes(frame: &mut Frame<'_>, view: &View, area: Rect) {
    for (kind, area) in COUNTED.iter().zip(Layout::horizontal([Constraint::Fill(1); 6]).spacing(1).split(area).iter()) {
        // As many of the latest minutes as there are columns.
        let all = view.each_minute(kind);
        let shown = all.len().saturating_sub(usize::from(area.width));
        let title = format!("{kind} {}", grouped(view.sum(kind)));
        frame.render_widget(Sparkline::default().block(Block::new().title(title)).data(&all[shown..]), *area);
    }
}

fn queue_table(view: &View) -> Table<'_> {
    let rows = view.queues.iter().map(|d| {
        let grade = if d.dead > 0 {
            "bad"
        } else if d.paused {
            "warn"
        } else {
            ""
        };
        let row = Row::new([
            d.queue.clone(),
            count(d.ready),
            span(d.oldest),
            count(d.later),
            count(d.running),
            count(d.dead),
            if d.paused { "paused".to_owned() } else { String::new() },
        ]);
        if grade.is_empty() { row } else { row.style(colour(grade)) }
    });
    let widths = [14, 8, 9, 8, 8, 8, 8].map(Constraint::Length);
    Table::new(rows, widths).header(Row::new(["queue", "due", "oldest", "later", "running", "dead", ""]).style(FAINT))
}

fn worker_table(view: &View) -> Table<'_> {
    let rows = view.workers.iter().map(|w| {
        Row::new([w.queue.clone(), span(w.silence), w.running.to_string(), w.release.clone(), w.name.clone()])
    });
    let widths = [
        Constraint::Length(14),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Fill(1),
    ];
    Table::new(rows, widths).header(Row::new(["worker of", "seen", "in hand", "release", "name"]).style(FAINT))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::tests::view;
    use super::*;

    fn drawn(width: u16, height: u16, trouble: Option<&str>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &view(), trouble)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn what_is_wrong_stands_on_top_and_the_rest_below_it() {
        let screen = drawn(120, 40, None);
        for part in ["! reserve: 1 dead letters.", "refused 2", ">9999", "box-1", "q ends"] {
            assert!(screen.contains(part), "{part} is missing in\n{screen}");
        }
        assert!(drawn(120, 40, Some("away")).contains("These numbers are old: away"));
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_end() {
        for (width, height) in [(1, 1), (20, 5), (300, 3)] {
            drawn(width, height, None);
        }
    }
}
