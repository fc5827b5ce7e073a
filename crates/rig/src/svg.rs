//! Line plots as SVG: axes, curves, a key. No more than reports need.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// Room for labels around the area of the curves.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Height of a line of the key.
const KEY_LINE: f64 = 18.0;

/// One direction of a plot; most are logarithmic, so that a curve which stays flat over decades and
/// one that goes through the roof have room in one picture.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    /// Where it begins and ends; both above 0 if it is not linear.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Numbers that are written beside it.
    pub(crate) ticks: Vec<f64>,
    /// Equal differences are equal distances, rather than equal factors.
    pub(crate) is_linear: bool,
}

impl Axis {
    /// How far along the axis a value lies, from 0 to 1; values beyond its ends are put there.
    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.from, self.to);
        if self.is_linear {
            return (value - self.from) / (self.to - self.from);
        }
        (value / self.from).ln() / (self.to / self.from).ln()
    }
}

/// One curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) is_dashed: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
}

impl Plot {
    /// The picture, to be written to a file.
    pub(crate) fn svg(&self) -> String {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            escaped(self.title)
        );
        self.draw_axes(&mut text);
        for (number, curve) in self.curves.iter().enumerate() {
            self.draw_curve(&mut text, number, curve);
        }
        text.push_str("</svg>\n");
        text
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT);
        let down = HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM);
        (across, down)
    }

    // Writing to a string cannot fail.
    fn draw_axes(&self, text: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in &self.x.ticks {
            let (x, _) = self.at((*tick, self.y.from));
            let _ = write!(
                text,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>\n<text x=\"{x:.1}\" \
                 y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>\n",
                bottom + 18.0
            );
        }
        for tick in &self.y.ticks {
            let (_, y) = self.at((self.x.from, *tick));
            let _ = write!(
                text,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{tick}</text>\n",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let _ = write!(
            text,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n",
            f64::midpoint(LEFT, right),
            HEIGHT - 14.0,
            escaped(self.x.label),
            f64::midpoint(TOP, bottom),
            escaped(self.y.label),
        );
    }

    fn draw_curve(&self, text: &mut String, number: usize, curve: &Curve) {
        let colour = curve.colour;
        let dashes = if curve.is_dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let mut path = String::new();
        for (index, point) in curve.points.iter().enumerate() {
            let (x, y) = self.at(*point);
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
            let _ =
                writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let key = TOP + 14.0 + number as f64 * KEY_LINE;
        let _ = write!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\n\
             <path d=\"M{:.1} {key:.1}h26\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            LEFT + 12.0,
            LEFT + 44.0,
            key + 4.0,
            escaped(curve.name)
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        let ticks = vec![1.0, 10.0, 100.0];
        let axis =
            |label| Axis { label, from: 1.0, to: 100.0, ticks: ticks.clone(), is_linear: false };
        let curve = Curve { name: "a < b", colour: "red", is_dashed: true, points };
        Plot { title: "R&D", x: axis("x"), y: axis("y"), curves: vec![curve] }
    }

    #[test]
    fn equal_factors_are_equal_distances() {
        let plot = plot(vec![]);
        let ends = (plot.at((1.0, 1.0)), plot.at((100.0, 100.0)));
        assert_eq!(ends, ((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, TOP)));
        let (x, y) = plot.at((10.0, 10.0));
        assert!((x - f64::midpoint(LEFT, WIDTH - RIGHT)).abs() < 1e-9, "{x}");
        assert!((y - f64::midpoint(TOP, HEIGHT - BOTTOM)).abs() < 1e-9, "{y}");
    }

    #[test]
    fn a_linear_axis_begins_at_nothing() {
        let axis = Axis { label: "s", from: 0.0, to: 120.0, ticks: vec![], is_linear: true };
        let percent = [0.0, 30.0, 120.0, 999.0].map(|at| (axis.place(at) * 100.0).round() as u32);
        assert_eq!(percent, [0, 25, 100, 100]);
    }

    #[test]
    fn what_is_beyond_the_axes_is_at_their_ends() {
        let plot = plot(vec![]);
        assert_eq!(plot.at((0.0, 1e9)), (LEFT, TOP));
    }

    #[test]
    fn texts_are_escaped_and_every_point_is_drawn() {
        let svg = plot(vec![(1.0, 1.0), (10.0, 5.0), (100.0, 20.0)]).svg();
        assert!(svg.contains("R&amp;D") && svg.contains("a &lt; b"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("stroke-dasharray") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
