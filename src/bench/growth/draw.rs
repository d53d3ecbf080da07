//! Curves as SVG: the median of one reservation in the band of the middle half, the 99th percentile, and the bare
//! commit beside it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plotters::prelude::*;

use super::{Curve, Point};

const SIZE: (u32, u32) = (760, 420);
const FONT: (&str, i32) = ("sans-serif", 15);
const RESERVATION: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const SLOW: RGBColor = RGBColor(0xb5, 0x4a, 0x1d);
const COMMIT: RGBColor = RGBColor(0x77, 0x77, 0x77);

/// What of a point a line shows, in milliseconds.
type Of = fn(&Point) -> f64;

/// Draws each curve into a file of `dir` that bears its name, and gives the files. The directory is made where it is
/// missing.
///
/// # Errors
/// A directory that cannot be written to.
pub fn draw(curves: &[Curve], dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let mut files = Vec::new();
    for curve in curves {
        let file = dir.join(format!("{}.svg", curve.name));
        std::fs::write(&file, svg(curve)?).with_context(|| format!("writing {}", file.display()))?;
        files.push(file);
    }
    Ok(files)
}

/// Sizes stand at equal distances, whatever they are: the first is often 0, and the next ones are ten times the one
/// before.
fn svg(curve: &Curve) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let highest = curve.points.iter().map(|p| p.reservation.p99.max(p.commit.p50)).fold(0.1, f64::max);
        let last = curve.points.len().saturating_sub(1) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("{}, by {}", curve.timed, curve.grows), FONT)
            .margin(14)
            .x_label_area_size(34)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.1..last + 0.1, 0.0..highest * 1.1)?;
        let label = |x: &f64| label(&curve.points, *x);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_max_light_lines(0)
            .x_labels(curve.points.len().max(2))
            .x_label_formatter(&label)
            .y_desc("milliseconds")
            .label_style(FONT)
            .draw()?;
        let line = |of: Of| (0..).zip(&curve.points).map(move |(n, p)| (f64::from(n), of(p)));
        let band: Vec<_> = {
            let upper = line(|p| p.reservation.p75);
            let mut lower: Vec<_> = line(|p| p.reservation.p25).collect();
            lower.reverse();
            upper.chain(lower).collect()
        };
        chart.draw_series(std::iter::once(Polygon::new(band, RESERVATION.mix(0.18))))?;
        let series: [(&str, RGBColor, Of); 3] = [
            ("median, and the middle half", RESERVATION, |p| p.reservation.p50),
            ("99th percentile", SLOW, |p| p.reservation.p99),
            ("one bare commit, median", COMMIT, |p| p.commit.p50),
        ];
        for (name, colour, of) in series {
            chart
                .draw_series(LineSeries::new(line(of), colour.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(FONT)
            .draw()?;
        area.present()?;
    }
    Ok(text)
}

/// The size that stands at `x`; nothing between two of them.
fn label(points: &[Point], x: f64) -> String {
    let at = x.round();
    if at < 0.0 || (x - at).abs() > 1e-6 {
        return String::new();
    }
    points.get(at as usize).map_or_else(String::new, |point| thousands(point.size))
}

fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Figures;
    use super::*;

    fn point(size: usize, ms: u64) -> Point {
        let figures = |ms| Figures::of_times(vec![Duration::from_millis(ms); 3]);
        Point { size, reservation: figures(ms), commit: figures(1) }
    }

    #[test]
    fn a_curve_is_an_svg_that_names_what_grows_and_every_size() {
        let points = vec![point(0, 3), point(1_000, 4), point(1_000_000, 5)];
        let curve = Curve { name: "assets", grows: "assets in the category", timed: "one asset", points };
        let svg = svg(&curve).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["one asset, by assets in the category", "\n0\n", "\n1,000\n", "\n1,000,000\n", "bare commit"] {
            assert!(svg.contains(text), "{text:?} is missing in {svg}");
        }
    }

    #[test]
    fn files_bear_the_curves_names() {
        let room = tempfile::tempdir().unwrap();
        let curve = Curve { name: "holds", grows: "holds", timed: "one asset", points: vec![point(0, 3)] };
        let files = draw(&[curve], &room.path().join("a/b")).unwrap();
        assert_eq!(files, [room.path().join("a/b/holds.svg")]);
        assert!(files[0].is_file());
    }
}
