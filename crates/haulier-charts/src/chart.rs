//! A whole chart: frame, labels, layers.

use std::fmt::Write;

use super::axis::Axis;
use super::layer::{Layer, percent, pixels};
use super::path::{FINE, WIDTH};
use haulier_proto::text::Escaped;

/// Two axes and layers.
///
/// It is as wide as its place in the page. Only the drawing is stretched; text and dots keep their shape.
#[derive(Debug, Clone)]
pub struct Chart {
    id: String,
    title: String,
    description: String,
    height: u32,
    x: Axis,
    y: Axis,
    layers: Vec<Layer>,
    empty: String,
}

impl Chart {
    /// A chart without layers. `id` is its name in the page, of letters, digits and hyphens; `title` describes it to
    /// screen readers.
    pub fn new(id: impl Into<String>, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            description: String::new(),
            height: 140,
            x,
            y,
            layers: Vec::new(),
            empty: "nothing yet".to_owned(),
        }
    }

    /// With a description of the data for screen readers.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// With a plot of this height, pixels.
    pub fn height(mut self, pixels: u32) -> Self {
        self.height = pixels;
        self
    }

    /// With other words for a chart without data.
    pub fn empty(mut self, text: impl Into<String>) -> Self {
        self.empty = text.into();
        self
    }

    /// With another layer, on top of those before.
    pub fn with(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// With more layers, each on top of those before.
    pub fn with_all(mut self, layers: impl IntoIterator<Item = Layer>) -> Self {
        self.layers.extend(layers);
        self
    }

    /// The `<svg>` element.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(4096);
        self.open(&mut out);
        self.write_grid(&mut out);
        if self.layers.iter().any(|layer| layer.has_data(&self.x, &self.y)) {
            self.write_layers(&mut out);
        } else {
            let middle = self.height / 2;
            let _ = write!(
                out,
                "<text class=\"empty\" x=\"50%\" y=\"{middle}\">{}</text>",
                Escaped(&self.empty)
            );
        }
        out.push_str("</svg>");
        out
    }

    fn open(&self, out: &mut String) {
        let Self { id, height, .. } = self;
        // The labels stand outside of it: the style sheet leaves them room.
        let _ = write!(
            out,
            "<svg class=\"chart\" id=\"{id}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" height=\"{height}\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            Escaped(&self.title),
            Escaped(&self.description),
        );
    }

    fn write_grid(&self, out: &mut String) {
        for tick in self.y.ticks() {
            let y = pixels(tick.place, self.height);
            let _ = write!(
                out,
                "<line class=\"grid\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/><text class=\"y\" x=\"-8\" y=\"{y}\">{}</text>",
                Escaped(&tick.label)
            );
        }
        let below = self.height + 17;
        let ticks = self.x.ticks();
        for (number, tick) in ticks.iter().enumerate() {
            // Where there is little room every second label steps back, but never the last.
            let is_second = number % 2 == 1 && number + 1 < ticks.len();
            let class = if is_second { "x alt" } else { "x" };
            let anchor = match tick.place {
                0.0 => " first",
                1.0 => " last",
                _ => "",
            };
            let place = percent(tick.place);
            let label = Escaped(&tick.label);
            let _ = write!(
                out,
                "<text class=\"{class}{anchor}\" x=\"{place}\" y=\"{below}\">{label}</text>"
            );
        }
    }

    fn write_layers(&self, out: &mut String) {
        let (height, fine) = (self.height, self.height * FINE);
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {fine}\" preserveAspectRatio=\"none\" width=\"100%\" height=\"{height}\">"
        );
        for layer in &self.layers {
            layer.write_stretched(out, &self.x, &self.y, self.height);
        }
        out.push_str("</svg>");
        for layer in &self.layers {
            layer.write_fixed(out, &self.x, &self.y, self.height);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Dash, Ink};

    fn label(value: f64) -> String {
        format!("{value}")
    }

    fn chart(most: f64) -> Chart {
        let x = Axis::linear(0.0, 10.0, 2, label);
        Chart::new("c", "Title", x, Axis::linear(0.0, most, 2, label)).height(100)
    }

    fn all_shapes(values: &[(f64, f64)]) -> Vec<Layer> {
        let points = values.to_vec();
        let spans: Vec<_> = values.iter().map(|&(x, y)| (x, y / 2.0, y)).collect();
        vec![
            Layer::area(Ink::One, points.clone()),
            Layer::band(Ink::Two, spans),
            Layer::line(Ink::Three, points.clone()),
            Layer::steps(Ink::Four, points.clone()),
            Layer::bars(Ink::Five, values.iter().map(|&(x, y)| (x, x + 1.0, y)).collect()),
            Layer::dots(Ink::Six, points),
            Layer::marks(Ink::Bad, values.iter().map(|&(x, _)| (x, "a crash".into())).collect()),
            Layer::rule(Ink::Muted, values.first().map_or(0.0, |point| point.1)),
        ]
    }

    /// Every tag is closed in order, and every attribute is a number where one is due.
    fn check(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("a tag ends");
            let name = tag
                .split([' ', '/'])
                .find(|part| !part.is_empty())
                .expect("a tag has a name");
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name), "in {svg}"),
                (false, true) => {}
                (false, false) => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?} in {svg}");
        for odd in ["NaN", "inf", "--", "e+", "e3"] {
            let attributes = svg.split('"').skip(1).step_by(2);
            attributes.for_each(|value| assert!(!value.contains(odd), "{odd} in {value}"));
        }
    }

    #[test]
    fn a_chart_has_a_name_a_grid_and_its_layers_in_order() {
        let points = vec![(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)];
        let svg = chart(100.0)
            .description("rising")
            .with(Layer::area(Ink::One, points.clone()))
            .with(Layer::line(Ink::Bad, points).dashed(Dash::Long).tip("the <line>"))
            .render();
        assert_eq!(
            svg,
            "<svg class=\"chart\" id=\"c\" role=\"img\" aria-labelledby=\"c-t c-d\" height=\"100\">\
             <title id=\"c-t\">Title</title><desc id=\"c-d\">rising</desc>\
             <line class=\"grid\" x2=\"100%\" y1=\"100\" y2=\"100\"/><text class=\"y\" x=\"-8\" y=\"100\">0</text>\
             <line class=\"grid\" x2=\"100%\" y1=\"50\" y2=\"50\"/><text class=\"y\" x=\"-8\" y=\"50\">50</text>\
             <line class=\"grid\" x2=\"100%\" y1=\"0\" y2=\"0\"/><text class=\"y\" x=\"-8\" y=\"0\">100</text>\
             <text class=\"x first\" x=\"0%\" y=\"117\">0</text><text class=\"x alt\" x=\"50%\" y=\"117\">5</text>\
             <text class=\"x last\" x=\"100%\" y=\"117\">10</text>\
             <svg viewBox=\"0 0 4000 400\" preserveAspectRatio=\"none\" width=\"100%\" height=\"100\">\
             <path class=\"area k1\" d=\"M0 400l2000-200 2000-200l0 400h-4000z\"/>\
             <path class=\"line kb dl\" d=\"M0 400l2000-200 2000-200\"><title>the &lt;line&gt;</title></path>\
             </svg></svg>"
        );
        check(&svg);
    }

    #[test]
    fn a_chart_without_data_says_so() {
        for layers in [vec![], all_shapes(&[]), all_shapes(&[(f64::NAN, f64::NAN)])] {
            let svg = chart(1.0).with_all(layers).empty("no PHP & no data").render();
            assert!(svg.contains(">no PHP &amp; no data</text>"), "{svg}");
            check(&svg);
        }
    }

    #[test]
    fn one_point_is_seen_in_every_shape() {
        for layer in all_shapes(&[(5.0, 1.0)]) {
            let has_data = layer.has_data(&Axis::linear(0.0, 10.0, 2, label), &Axis::linear(0.0, 2.0, 2, label));
            let svg = chart(2.0).with(layer).render();
            check(&svg);
            let drawn = svg.contains(" k") && svg.contains("<path") || svg.contains("<circle");
            assert_eq!(drawn, has_data, "{svg}");
        }
    }

    #[test]
    fn values_of_any_size_and_gaps_leave_no_broken_number() {
        let odd = [
            (0.0, 1e300),
            (1.0, f64::INFINITY),
            (2.0, -1e300),
            (f64::NAN, 3.0),
            (1e300, 4.0),
            (3.0, 5e-324),
        ];
        for most in [0.0, 5e-324, 1e300, f64::MAX, f64::NAN] {
            check(&chart(most).with_all(all_shapes(&odd)).render());
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let x = Axis::linear(0.0, 1.0, 1, |_| "<b>".into());
        let svg = Chart::new("c", "</title><script>", x.clone(), x)
            .description("\"'>")
            .with(Layer::marks(Ink::Bad, vec![(0.5, "</line><b>".into())]))
            .with(Layer::dots(Ink::One, vec![(0.5, 0.5)]).tip("<i>"))
            .render();
        check(&svg);
        for tag in ["<script>", "<b>", "<i>"] {
            assert!(!svg.contains(tag), "{svg}");
        }
    }
}
