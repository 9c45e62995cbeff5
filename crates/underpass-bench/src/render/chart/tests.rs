//! Charts are read back: ticks give the scale, marks give the figures.

use std::collections::HashMap;

use super::super::plots::{MetricScales, Plot, plots};
use super::super::tests::sample;
use super::draw::{SERIES, colour, mark};
use crate::document::Experiment;

/// One element of a drawing.
struct Element {
    name: String,
    attributes: HashMap<String, String>,
    text: String,
}

impl Element {
    fn number(&self, name: &str) -> f64 {
        self.attributes[name].parse().unwrap()
    }

    fn is(&self, attribute: &str, value: &str) -> bool {
        self.attributes
            .get(attribute)
            .is_some_and(|own| own == value)
    }

    /// Left, top, right, bottom of an element with points.
    fn corners(&self) -> (f64, f64, f64, f64) {
        let points = self.attributes["points"].split_whitespace();
        let points = points.map(|point| point.split_once(',').unwrap());
        let points: Vec<(f64, f64)> = points
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        let start = (
            f64::INFINITY,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NEG_INFINITY,
        );
        points.iter().fold(start, |(x0, y0, x1, y1), &(x, y)| {
            (x0.min(x), y0.min(y), x1.max(x), y1.max(y))
        })
    }

    /// Left, top, right, bottom of a text, by its letters; descenders count as well.
    fn text_box(&self) -> (f64, f64, f64, f64) {
        let size = self.number("font-size");
        let width = self.text.chars().count() as f64 * size * 0.56;
        let (x, y) = (self.number("x"), self.number("y"));
        let left = match self.attributes["text-anchor"].as_str() {
            "start" => x,
            "middle" => x - width / 2.0,
            _ => x - width,
        };
        let baseline = y + match self.attributes["dy"].as_str() {
            "0.76em" => 0.76 * size,
            "0.5ex" => 0.26 * size,
            _ => -0.26 * size,
        };
        (
            left,
            baseline - 0.76 * size,
            left + width,
            baseline + 0.22 * size,
        )
    }
}

fn elements(svg: &str) -> Vec<Element> {
    let pieces = svg
        .split('<')
        .skip(1)
        .filter(|piece| !piece.starts_with('/'));
    let element = |piece: &str| {
        let (tag, text) = piece.split_once('>').unwrap();
        let tag = tag.trim_end_matches('/');
        let (name, rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = HashMap::new();
        let mut parts = rest.split('"');
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            let name = name.trim().trim_end_matches('=');
            attributes.insert(name.to_owned(), value.to_owned());
        }
        Element {
            name: name.into(),
            attributes,
            text: text.trim().into(),
        }
    };
    pieces.map(element).collect()
}

/// Value at a place on the drawing, found from ticks as a reader finds it.
struct HoldWorkload {
    bent: fn(f64) -> f64,
    straight: fn(f64) -> f64,
    slope: f64,
    offset: f64,
}

impl HoldWorkload {
    /// By regression of either the values or their logarithms, whichever lies on a line.
    fn of(ticks: &[(f64, f64)]) -> HoldWorkload {
        assert!(ticks.len() >= 2, "too few ticks to read: {ticks:?}");
        let linear = HoldWorkload::fitted(ticks, |value| value, |value| value);
        if linear.is_good(ticks) {
            return linear;
        }
        let logarithmic = HoldWorkload::fitted(ticks, f64::log10, |value| 10_f64.powf(value));
        assert!(
            logarithmic.is_good(ticks),
            "neither linear nor logarithmic: {ticks:?}"
        );
        logarithmic
    }

    fn fitted(
        ticks: &[(f64, f64)],
        bent: fn(f64) -> f64,
        straight: fn(f64) -> f64,
    ) -> HoldWorkload {
        let count = ticks.len() as f64;
        let value = ticks.iter().map(|&(value, _)| bent(value)).sum::<f64>() / count;
        let place = ticks.iter().map(|(_, place)| place).sum::<f64>() / count;
        let (mut both, mut own) = (0.0, 0.0);
        for &(v, p) in ticks {
            both += (bent(v) - value) * (p - place);
            own += (bent(v) - value).powi(2);
        }
        let slope = both / own;
        HoldWorkload {
            bent,
            straight,
            slope,
            offset: place - slope * value,
        }
    }

    fn place(&self, value: f64) -> f64 {
        self.offset + self.slope * (self.bent)(value)
    }

    fn value(&self, place: f64) -> f64 {
        (self.straight)((place - self.offset) / self.slope)
    }

    fn is_good(&self, ticks: &[(f64, f64)]) -> bool {
        ticks
            .iter()
            .all(|&(value, place)| (self.place(value) - place).abs() <= 1.0)
    }
}

/// The factor of the axis' suffix.
fn factor(svg: &[Element]) -> f64 {
    let label = svg
        .iter()
        .find(|one| one.name == "text" && one.is("text-anchor", "start"));
    let label = &label.unwrap().text;
    let Some((_, suffix)) = label.rsplit_once('(') else {
        return 1.0;
    };
    match suffix.trim_end_matches(')') {
        "ms" | "ms/GiB" => 1e-3,
        "µs" | "µs/GiB" => 1e-6,
        "GiB/s" => 1024.0 * 1024.0 * 1024.0,
        "k/s" | "thousands" => 1e3,
        "MB" => 1e6,
        "%" => 0.01,
        "s" | "/s" | "s/GiB" => 1.0,
        other => panic!("unknown unit {other}"),
    }
}

fn vertical(svg: &[Element]) -> HoldWorkload {
    let is_tick = |one: &&Element| one.name == "text" && one.is("dy", "0.5ex");
    let factor = factor(svg);
    let tick = |one: &Element| (one.text.parse::<f64>().unwrap() * factor, one.number("y"));
    HoldWorkload::of(&svg.iter().filter(is_tick).map(tick).collect::<Vec<_>>())
}

/// Places of the marks of a series, from the left.
fn marks(svg: &[Element], place: usize) -> Vec<(f64, f64)> {
    let ink = colour(place);
    let own = svg
        .iter()
        .filter(|one| one.name == "use" && one.is("color", &ink));
    let mut marks: Vec<_> = own.map(|one| (one.number("x"), one.number("y"))).collect();
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    marks
}

fn all_plots() -> Vec<(Experiment, Vec<Plot>)> {
    let experiments = sample::document().experiments;
    let scales = MetricScales::of(&experiments);
    let with_plots = |experiment: Experiment| {
        let plots = plots(&experiment, "e", &scales);
        (experiment, plots)
    };
    experiments.into_iter().map(with_plots).collect()
}

fn medians(experiment: &Experiment, metric: &str, place: usize) -> Vec<f64> {
    let metrics = experiment.cases.iter().flat_map(|case| &case.metrics);
    let own = metrics.filter(|one| one.metric == metric);
    own.filter_map(|one| Some(one.figures[place].as_ref()?.spread.median))
        .collect()
}

#[test]
fn marks_of_line_charts_read_back_as_the_medians() {
    let mut read = 0;
    for (experiment, plots) in all_plots() {
        for plot in plots.iter().filter(|plot| plot.legend.is_some()) {
            let metric = plot.words.id.trim_start_matches("e-");
            let svg = elements(&plot.svg.0);
            let reading = vertical(&svg);
            for place in 0..experiment.contenders.len() {
                let expected = medians(&experiment, metric, place);
                let marks = marks(&svg, place);
                assert_eq!(
                    marks.len(),
                    expected.len(),
                    "{} of {metric}",
                    experiment.name
                );
                for ((_, y), median) in marks.iter().zip(&expected) {
                    let off = (reading.place(*median) - y).abs();
                    let seen = reading.value(*y);
                    assert!(off <= 1.0, "{metric}: {seen} for {median}");
                    read += 1;
                }
            }
        }
    }
    assert!(read > 250, "only {read} marks were read");
}

#[test]
fn bars_end_at_the_medians() {
    let mut read = 0;
    for (experiment, plots) in all_plots() {
        for plot in plots.iter().filter(|plot| plot.legend.is_none()) {
            let svg = elements(&plot.svg.0);
            let is_tick = |one: &&Element| one.name == "text" && one.is("text-anchor", "middle");
            let factor = factor(&svg);
            let tick = |one: &Element| (one.text.parse::<f64>().unwrap() * factor, one.number("x"));
            // The outermost label may stand aside of its tick; a line through the others is exact.
            let ticks: Vec<_> = svg.iter().filter(is_tick).map(tick).skip(1).collect();
            let reading = HoldWorkload::of(&ticks);
            let metric = plot.words.id.trim_start_matches("e-");
            for place in 0..experiment.contenders.len() {
                let ink = colour(place);
                let bar = svg
                    .iter()
                    .find(|one| one.name == "rect" && one.is("fill", &ink));
                let (from, to) = bar
                    .map(|bar| (bar.number("x"), bar.number("width")))
                    .unwrap();
                let median = medians(&experiment, metric, place)[0];
                assert!((reading.place(0.0) - from).abs() <= 1.0, "{metric} from 0");
                let off = (reading.place(median) - from - to).abs();
                assert!(off <= 1.0, "{metric}: {off} for {median}");
                read += 1;
            }
        }
    }
    assert!(read >= 30, "only {read} bars were read");
}

#[test]
fn no_texts_overlap_and_nothing_lies_outside() {
    let mut texts = 0;
    for (_, plots) in all_plots() {
        for svg in plots.iter().map(|plot| &plot.svg) {
            let all = elements(&svg.0);
            let view = all[0].attributes["viewBox"].split(' ').skip(2);
            let view: Vec<f64> = view.map(|part| part.parse().unwrap()).collect();
            let boxes = all.iter().filter(|one| one.name == "text");
            let boxes: Vec<_> = boxes.map(|one| (&one.text, one.text_box())).collect();
            texts += boxes.len();
            let others = all.iter().filter_map(|one| match one.name.as_str() {
                "polyline" => Some((&one.text, one.corners())),
                _ => None,
            });
            for (text, (left, top, right, bottom)) in boxes.iter().copied().chain(others) {
                let inside = left >= 0.0 && top >= 0.0 && right <= view[0] && bottom <= view[1];
                assert!(
                    inside,
                    "{text:?} at {left} {top} {right} {bottom} leaves {view:?}"
                );
            }
            for (index, (text, one)) in boxes.iter().enumerate() {
                for (other, two) in &boxes[index + 1..] {
                    let apart =
                        one.2 <= two.0 || two.2 <= one.0 || one.3 <= two.1 || two.3 <= one.1;
                    assert!(apart, "{text:?} lies on {other:?}: {one:?} {two:?}");
                }
            }
        }
    }
    assert!(texts > 300);
}

#[test]
fn a_chart_describes_itself_to_those_who_cannot_see_it() {
    for (_, plots) in all_plots() {
        for plot in plots {
            let svg = elements(&plot.svg.0);
            assert!(svg[0].is("role", "img"));
            let named = svg[0].attributes["aria-labelledby"]
                .split(' ')
                .map(str::to_owned);
            for (id, element) in named.zip(&svg[1..3]) {
                assert!(element.is("id", &id) && !element.text.is_empty());
            }
        }
    }
}

/// The colours of the series, and that of the paper first, in light and in dark mode.
fn colours() -> [Vec<u32>; 2] {
    let style = include_str!("../page.css");
    let (light, dark) = style.split_once("prefers-color-scheme").unwrap();
    [light, dark].map(|style| {
        let of = |name: &str| {
            let declared = style.split_once(&format!("{name}:#")).unwrap().1;
            u32::from_str_radix(&declared[..6], 16).unwrap()
        };
        let series = (0..SERIES).map(|index| of(&format!("--s{index}")));
        [of("--paper")].into_iter().chain(series).collect()
    })
}

/// <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>
fn luminance(colour: u32) -> f64 {
    let [_, red, green, blue] = colour.to_be_bytes();
    let linear = |part: u8| match f64::from(part) / 255.0 {
        dark @ ..0.040_45 => dark / 12.92,
        light => ((light + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

#[test]
fn every_series_stands_out_from_its_paper_and_has_a_colour_of_its_own() {
    for colours in colours() {
        for (index, colour) in colours.iter().enumerate().skip(1) {
            let (one, paper) = (luminance(*colour), luminance(colours[0]));
            let contrast = (one.max(paper) + 0.05) / (one.min(paper) + 0.05);
            assert!(contrast >= 3.0, "series {} has {contrast}", index - 1);
            assert!(!colours[..index].contains(colour));
        }
    }
}

#[test]
fn a_repeated_colour_has_another_mark() {
    for series in 0..SERIES {
        let laps = [0, 1, 2].map(|lap| mark(series + lap * SERIES, (0.0, 0.0)).0);
        let colour = format!("color=\"{}\"", colour(series));
        assert!(laps.iter().all(|mark| mark.contains(&colour)));
        assert!(laps[0] != laps[1] && laps[1] != laps[2] && laps[0] != laps[2]);
    }
}

#[test]
fn the_same_metric_has_the_same_axis_in_every_experiment() {
    let mut axes: HashMap<(String, &str), Vec<String>> = HashMap::new();
    for (_, plots) in all_plots() {
        for plot in plots {
            let svg = elements(&plot.svg.0);
            let anchor = if plot.legend.is_some() {
                "end"
            } else {
                "middle"
            };
            let texts = svg.iter().filter(|one| one.name == "text");
            let ticks =
                texts.filter(|one| one.is("text-anchor", anchor) && !one.is("dy", "-0.5ex"));
            let mut ticks: Vec<String> = ticks.map(|one| one.text.clone()).collect();
            ticks.retain(|tick| tick.parse::<f64>().is_ok());
            let metric = (plot.words.title.clone(), anchor);
            if !metric.0.contains(':') {
                let known = axes.entry(metric).or_insert_with(|| ticks.clone());
                assert_eq!(*known, ticks, "{}", plot.words.id);
            }
        }
    }
    assert!(axes.len() >= 6, "only {} metrics", axes.len());
}

#[test]
fn cases_are_not_joined() {
    for (_, plots) in all_plots() {
        for plot in plots {
            let svg = elements(&plot.svg.0);
            let lines = svg.iter().filter(|one| one.name == "polyline");
            let mut drawn = lines.filter(|one| one.attributes["stroke"].starts_with("var(--s"));
            assert!(drawn.all(|one| one.attributes["points"].split(' ').count() <= 2));
        }
    }
}
