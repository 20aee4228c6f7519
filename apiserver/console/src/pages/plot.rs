//! A value over time as inline SVG.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::markup::counted;
use crate::metrics_history::PlotPoint;

/// The least and the most that a plot shows of the time until now.
const MIN_SPAN: SignedDuration = SignedDuration::from_mins(5);
const MAX_SPAN: SignedDuration = SignedDuration::from_hours(1);
/// The size of a plot in its own units; it is stretched to the width of its card.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

pub(super) struct Plot {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// The oldest first.
    pub(super) points: Vec<PlotPoint>,
}

impl Plot {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.points.iter().filter_map(|(_, value)| *value)
    }

    fn text(&self, value: f64) -> String {
        format!("{} {}", short(value), self.unit)
    }

    /// The highest value that has its place in the plot: one above all.
    fn ceiling(&self) -> f64 {
        let most = self.values().fold(0.0, f64::max);
        let mut ceiling = 1.0;
        while ceiling < most {
            ceiling *= if has_leading_two(ceiling) { 2.5 } else { 2.0 };
        }
        ceiling
    }

    /// The time that the plot shows: all that is known, in whole minutes.
    fn span(&self, now: Timestamp) -> SignedDuration {
        let first = self.points.first().map_or(now, |(at, _)| *at);
        let minutes = (now.duration_since(first).as_secs() + 59) / 60;
        SignedDuration::from_mins(minutes).clamp(MIN_SPAN, MAX_SPAN)
    }

    /// The lines of the plot, one between each two gaps, as lists of coordinates.
    fn lines(&self, now: Timestamp) -> Vec<String> {
        let ceiling = self.ceiling();
        let span = self.span(now).as_secs_f64();
        let mut lines = vec![String::new()];
        for (at, value) in &self.points {
            let age = now.duration_since(*at).as_secs_f64() / span;
            match value {
                Some(value) if (0.0..=1.0).contains(&age) => {
                    let (x, y) = (WIDTH * (1.0 - age), HEIGHT * (1.0 - value / ceiling));
                    let line = lines.last_mut();
                    line.into_iter()
                        .for_each(|line| line.push_str(&format!("{x:.1},{y:.1} ")));
                }
                Some(_) => {}
                None => lines.push(String::new()),
            }
        }
        lines.retain(|line| !line.is_empty());
        // A line of one point is a dot: it ends where it begins.
        for line in lines
            .iter_mut()
            .filter(|line| line.matches(' ').count() == 1)
        {
            *line = line.repeat(2);
        }
        lines
    }

    /// The plot in words.
    fn description(&self) -> String {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in self.values() {
            least = least.min(value);
            most = most.max(value);
        }
        match most < least {
            true => "There was nothing in the last hour".to_owned(),
            false => format!(
                "From {} to {} {} in the last hour",
                short(least),
                short(most),
                self.unit
            ),
        }
    }
}

/// Whether a number is 2, 20, 200 and so on.
fn has_leading_two(number: f64) -> bool {
    let magnitude = 10_f64.powf(number.log10().floor());
    (number / magnitude).round() == 2.0
}

/// A number with at most one decimal place.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

pub(super) fn plot_card(plot: &Plot, now: Timestamp) -> Markup {
    let minutes = usize::try_from(plot.span(now).as_mins()).unwrap_or(0);
    let last = plot.points.last().and_then(|(_, value)| *value);
    let (title, description) = (format!("{}-title", plot.id), format!("{}-text", plot.id));
    html! {
        figure .card.plot {
            figcaption {
                span .name { (plot.title) }
                strong { @match last { Some(value) => (plot.text(value)), None => "–" } }
            }
            p .axis { span { (plot.text(plot.ceiling())) } }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-labelledby=(format!("{title} {description}")) {
                title id=(title) { (plot.title) }
                desc id=(description) { (plot.description()) }
                @for share in [0.0, 0.5, 1.0] {
                    line .grid x1="0" x2=(WIDTH) y1=(HEIGHT * share) y2=(HEIGHT * share) {}
                }
                @for line in plot.lines(now) { polyline .line points=(line.trim_end()) {} }
            }
            p .axis { span { (counted(minutes, "minute")) " ago" } span { "now" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(i64, Option<f64>)]) -> Plot {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let points = points.iter().map(|(seconds, value)| (at(*seconds), *value));
        Plot {
            id: "p",
            title: "<b>",
            unit: "s",
            points: points.collect(),
        }
    }

    // proves: CON-plots
    #[test]
    fn a_plot_has_gaps_where_nothing_is_known() {
        let now = Timestamp::from_second(3600).unwrap();
        let points = [
            (-10, Some(9.0)),
            (0, Some(0.0)),
            (1800, Some(10.0)),
            (2400, None),
            (3600, Some(5.0)),
        ];
        let plot = plot(&points);
        assert_eq!(plot.ceiling(), 10.0);
        assert_eq!(
            plot.lines(now),
            ["0.0,120.0 300.0,0.0 ", "600.0,60.0 600.0,60.0 "]
        );
        assert_eq!(plot.description(), "From 0 to 10 s in the last hour");
        let card = plot_card(&plot, now).into_string();
        assert!(card.contains("60 minutes ago"), "{card}");
        assert!(card.contains("<strong>5 s</strong>"), "{card}");
        assert!(!card.contains("<b>"), "{card}");
    }

    // proves: CON-plots
    #[test]
    fn a_plot_shows_the_time_that_is_known() {
        let now = Timestamp::from_second(7200).unwrap();
        for (first, minutes) in [(7200, 5), (6599, 11), (6600, 10), (0, 60)] {
            let span = plot(&[(first, None)]).span(now);
            assert_eq!(span, SignedDuration::from_mins(minutes), "{first}");
        }
    }

    #[test]
    fn the_scale_has_round_ends() {
        for (most, ceiling) in [
            (0.0, 1.0),
            (1.5, 2.0),
            (2.1, 5.0),
            (7.0, 10.0),
            (12.0, 20.0),
            (300.0, 500.0),
        ] {
            assert_eq!(plot(&[(0, Some(most))]).ceiling(), ceiling, "{most}");
        }
        let nothing = plot(&[(0, None)]);
        assert_eq!(nothing.description(), "There was nothing in the last hour");
        assert_eq!(
            (short(1.25), short(3.0)),
            ("1.2".to_owned(), "3".to_owned())
        );
    }
}
