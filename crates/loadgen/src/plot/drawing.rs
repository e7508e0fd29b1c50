//! Shapes of SVG, and axes.
//!
//! The ground is transparent and colours are of middling lightness, so that a plot can be read on a
//! light page and on a dark one.

use std::fmt::Write;

/// Text and axes.
pub const INK: &str = "#7D8590";
/// Lines, from cold to hot.
pub const COLOURS: [&str; 8] =
    ["#2F81C7", "#1C93A6", "#209660", "#8A8A12", "#D16914", "#C9484A", "#C2477F", "#896CE2"];

/// A picture that is being drawn.
#[derive(Debug)]
pub struct Drawing(String);

/// Where a text is held.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// At its beginning.
    Start,
    /// In the middle.
    Middle,
    /// At its end.
    End,
}

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub struct Pen<'a> {
    /// As SVG has it: `#RRGGBB`.
    pub colour: &'a str,
    /// Width in pixels.
    pub width: f64,
    /// From 0 to 1.
    pub opacity: f64,
    /// As `stroke-dasharray` has it; empty for a whole line.
    pub dashes: &'a str,
}

impl Pen<'_> {
    /// A line of the grid.
    pub const GRID: Pen<'static> = Pen { colour: INK, width: 1.0, opacity: 0.22, dashes: "" };
    /// An axis.
    pub const AXIS: Pen<'static> = Pen { opacity: 0.8, ..Pen::GRID };
    /// A bound or target.
    pub const BOUND: Pen<'static> = Pen { colour: INK, width: 1.2, opacity: 0.9, dashes: "4 3" };
}

/// A text as XML has it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Drawing {
    /// An empty picture with a title for screen readers.
    pub fn new(width: f64, height: f64, title: &str) -> Drawing {
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" role=\"img\">\n\
             <title>{}</title>\n",
            escape(title)
        ))
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{shape}").expect("a String takes everything");
    }

    /// A text.
    pub fn text(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, words: &str) {
        self.words((x, y), size, anchor, INK, "normal", words);
    }

    /// A text in bold.
    pub fn bold(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, words: &str) {
        self.words((x, y), size, anchor, INK, "bold", words);
    }

    /// A text in colour.
    pub fn coloured(&mut self, (x, y): (f64, f64), size: f64, colour: &str, words: &str) {
        self.words((x, y), size, Anchor::Start, colour, "normal", words);
    }

    fn words(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        colour: &str,
        weight: &str,
        words: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\" \
             text-anchor=\"{anchor}\" font-weight=\"{weight}\">{}</text>",
            escape(words)
        ));
    }

    /// A line through points; nothing through fewer than two.
    pub fn line(&mut self, points: &[(f64, f64)], pen: Pen<'_>) {
        let Some((first, rest)) = points.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return;
        };
        let mut path = format!("M{:.1} {:.1}", first.0, first.1);
        for (x, y) in rest {
            write!(path, "L{x:.1} {y:.1}").expect("a String takes everything");
        }
        let Pen { colour, width, opacity, dashes } = pen;
        let dashes = match dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        self.push(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\" opacity=\"{opacity}\"{dashes}/>"
        ));
    }

    /// A dot.
    pub fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.push(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
    }

    /// The picture as a text of SVG.
    pub fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// A horizontal axis from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The value at its beginning.
    pub low: f64,
    /// The value at its end.
    pub high: f64,
    /// Whether it is logarithmic.
    pub log: bool,
}

impl Axis {
    /// For these values: logarithmic where most would crowd at the left end otherwise. Ends at ticks
    /// or a little beyond the values.
    pub fn of(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|v| v.is_finite() && *v > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        match () {
            () if low > high => Axis { low: 0.0, high: 1.0, log: false },
            () if high / low > 20.0 => Axis { low: low / 1.2, high: high * 1.2, log: true },
            () => Axis { low: 0.0, high: high * 1.06, log: false },
        }
    }

    /// Where a value stands, from 0 to 1.
    pub fn at(self, value: f64) -> f64 {
        let place = match self.log {
            true => (value.max(1e-300) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// Values to be marked, at most eight or so.
    pub fn ticks(self) -> Vec<f64> {
        match self.log {
            true => {
                let decades = (self.high / self.low).log10();
                let steps: &[f64] = if decades > 3.0 {
                    &[1.0]
                } else if decades > 1.8 {
                    &[1.0, 3.0]
                } else {
                    &[1.0, 2.0, 5.0]
                };
                let first = self.low.log10().floor() as i32;
                let last = self.high.log10().ceil() as i32;
                let all = (first..=last).flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
                all.filter(|t| (self.low..=self.high).contains(t)).collect()
            }
            false => {
                let rough = (self.high - self.low) / 5.0;
                let unit = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * unit);
                let step = step.into_iter().find(|&s| s >= rough * 0.999).unwrap_or(10.0 * unit);
                let first = (self.low / step).ceil() as i64;
                (first..).map(|i| i as f64 * step).take_while(|&t| t <= self.high).collect()
            }
        }
    }
}

/// A place on an axis, from 0 to 1, and what stands there.
pub type Mark = (f64, String);

impl Axis {
    /// Its ticks, with their values times `factor`.
    pub fn marks(self, factor: f64) -> Vec<Mark> {
        self.ticks().into_iter().map(|tick| (self.at(tick), number(tick * factor))).collect()
    }
}

/// The frame of a plot, in which places are from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Its left side.
    pub left: f64,
    /// Its upper side.
    pub top: f64,
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

impl Panel {
    /// Where a place of the horizontal axis is.
    pub fn x(self, place: f64) -> f64 {
        self.left + place * self.width
    }

    /// Where a place of the upright axis is.
    pub fn y(self, place: f64) -> f64 {
        self.top + (1.0 - place) * self.height
    }

    /// Title, grid and axes, with marks of both and the unit of the horizontal one.
    pub fn frame(
        self,
        page: &mut Drawing,
        title: &str,
        (levels, uprights): (&[Mark], &[Mark]),
        unit: &str,
    ) {
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        page.bold((self.left, self.top - 14.0), 12.0, Anchor::Start, title);
        for (place, words) in levels {
            let y = self.y(*place);
            let pen = if *place == 0.0 { Pen::AXIS } else { Pen::GRID };
            page.line(&[(self.left, y), (right, y)], pen);
            page.text((self.left - 6.0, y + 4.0), 10.5, Anchor::End, words);
        }
        for (place, words) in uprights {
            let x = self.x(*place);
            page.line(&[(x, self.top), (x, bottom)], Pen::GRID);
            page.text((x, bottom + 15.0), 10.5, Anchor::Middle, words);
        }
        page.text((right, bottom + 31.0), 11.0, Anchor::End, unit);
    }
}

/// Where things of these widths stand, one after the other in lines between `left` and `right`: the first line at 0,
/// the others `line` apart.
pub fn flow(
    widths: impl IntoIterator<Item = f64>,
    (left, right): (f64, f64),
    line: f64,
) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (left, 0.0);
    let place = |width: f64| {
        if x + width > right && x > left {
            (x, y) = (left, y + line);
        }
        x += width;
        (x - width, y)
    };
    widths.into_iter().map(place).collect()
}

/// A number as short as it can be.
pub fn number(value: f64) -> String {
    // Steps such as 3 · 0.1 are not exact.
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_their_values_and_have_few_round_ticks() {
        let ticks = |values: &[f64]| -> Vec<String> {
            let axis = Axis::of(values.iter().copied());
            assert!(values.iter().all(|&v| (0.0..=1.0).contains(&axis.at(v))));
            let ticks = axis.ticks();
            assert!((2..=9).contains(&ticks.len()), "{values:?}: {ticks:?}");
            ticks.into_iter().map(number).collect()
        };
        assert_eq!(ticks(&[3.0, 17.0]), ["0", "5", "10", "15"]);
        assert_eq!(ticks(&[0.3]), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(ticks(&[1.0, 30.0]), ["1", "2", "5", "10", "20"]);
        assert_eq!(ticks(&[2.0, 2000.0]), ["10", "100", "1000"]);
        assert_eq!(ticks(&[5.0, 900.0]), ["10", "30", "100", "300", "1000"]);
        assert_eq!(ticks(&[1.0, f64::INFINITY, 2.0]).first().unwrap(), "0");
        assert_eq!(Axis::of(std::iter::empty()).ticks().len(), 6);
    }

    #[test]
    fn places_on_axes() {
        let log = Axis { low: 1.0, high: 100.0, log: true };
        assert_eq!((log.at(10.0), log.at(0.0), log.at(1e9)), (0.5, 0.0, 1.0));
        let linear = Axis { low: 0.0, high: 4.0, log: false };
        assert_eq!(linear.at(1.0), 0.25);
    }

    #[test]
    fn words_are_escaped() {
        let mut page = Drawing::new(1.0, 1.0, "a < b & c");
        page.text((0.0, 0.0), 10.0, Anchor::Start, "<script>");
        let text = page.end();
        assert!(text.contains("a &lt; b &amp; c") && text.contains("&lt;script&gt;"));
    }
}
