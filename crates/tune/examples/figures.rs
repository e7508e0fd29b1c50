//! Prints the model's versions of the ArcLight paper's figures 10 and 11 as tables and draws them.
//!
//! `cargo run -p arclight-tune --example figures [FILE.svg]`; without a file it draws
//! `docs/figures/cost-model.svg`.

use arclight_tune as tune;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::PathBuf;
use tune::{Engine, MachineModel, ModelShape, Pages, Prediction, known, predict};

/// A prompt of 15 tokens and half of the 256 generated ones, as in the paper.
const CONTEXT: usize = 15 + 128;

// Sizes below are in units of half a pixel: the back end knows whole units only, and curves drawn on
// whole pixels look jagged.

/// Readable on white and on near-black alike (contrast above 3.3 on both).
const INK: RGBColor = RGBColor(125, 133, 144);
const GRID: RGBAColor = RGBAColor(125, 133, 144, 0.25);

struct Curve {
    name: &'static str,
    engine: Engine,
    colour: RGBColor,
    dashed: bool,
}

fn curves() -> Vec<Curve> {
    let curve = |name, engine, colour, dashed| Curve { name, engine, colour, dashed };
    let (orange, violet, green) =
        (RGBColor(209, 105, 20), RGBColor(137, 108, 226), RGBColor(32, 150, 96));
    vec![
        curve("this engine, Sync B", Engine::tensor_parallel(), green, false),
        curve("this engine, Sync A", Engine::tensor_parallel_sync_a(), green, true),
        curve("ArcLight (paper), Sync B", known::arclight(), violet, false),
        curve("ArcLight (paper), Sync A", known::arclight_sync_a(), violet, true),
        curve("llama.cpp, unplaced", known::llama_cpp(), orange, false),
    ]
}

struct Case {
    machine: MachineModel,
    model: ModelShape,
}

impl Case {
    fn run(
        &self,
        engine: &Engine,
        nodes: usize,
        per_node: usize,
    ) -> Result<Prediction, tune::Error> {
        let mut threads = vec![0; self.machine.nodes()];
        threads[..nodes].fill(per_node);
        predict(&self.machine, &engine.step(&self.model, CONTEXT, &threads)?)
    }

    fn speed(&self, engine: &Engine, nodes: usize, per_node: usize) -> Result<f64, tune::Error> {
        Ok(self.run(engine, nodes, per_node)?.tokens_per_second())
    }

    fn table(&self, nodes: usize) -> Result<(), tune::Error> {
        println!("\n## {nodes} node(s), tokens/s\n");
        print!("| threads |");
        curves().iter().for_each(|c| print!(" {} |", c.name));
        println!(" ArcLight B / llama.cpp | ours B / llama.cpp |");
        println!("|---:|{}", "---:|".repeat(7));
        for per_node in (6..=48).step_by(6) {
            print!("| {} |", nodes * per_node);
            for curve in curves() {
                print!(" {:.1} |", self.speed(&curve.engine, nodes, per_node)?);
            }
            let unplaced = self.speed(&known::llama_cpp(), nodes, per_node)?;
            let arclight = self.speed(&known::arclight(), nodes, per_node)?;
            let ours = self.speed(&Engine::tensor_parallel(), nodes, per_node)?;
            println!(" {:.2} | {:.2} |", arclight / unplaced, ours / unplaced);
        }
        Ok(())
    }

    /// Where the time of a token goes with all threads of `nodes` nodes.
    fn breakdown(&self, name: &str, engine: &Engine, nodes: usize) -> Result<(), tune::Error> {
        let prediction = self.run(engine, nodes, 48)?;
        println!(
            "\n## {name}, {nodes} nodes x 48: {:.2} ms a token, most of it on {}\n",
            prediction.seconds * 1e3,
            prediction.bottleneck
        );
        println!("| stage | reading, ms | waiting, ms | limit |\n|---|---:|---:|---|");
        for stage in &prediction.stages {
            let limit = stage.limit.map_or("-".into(), |limit| limit.to_string());
            let (reading, waiting) = (stage.reading * 1e3, stage.waiting * 1e3);
            println!("| {} | {reading:.2} | {waiting:.2} | {limit} |", stage.name);
        }
        Ok(())
    }

    /// What the fitted share of pages on node 0 decides.
    fn sensitivity(&self) -> Result<(), tune::Error> {
        println!("\n## All cores, by the share of the unplaced engine's pages on node 0\n");
        println!(
            "| share | llama.cpp 1, 2, 4 nodes, tokens/s | ArcLight B / llama.cpp | ours / llama.cpp |"
        );
        println!("|---:|---|---|---|");
        for share in [0.25, 0.4, 0.5, known::HOME_SHARE, 0.6, 0.8, 1.0] {
            let unplaced = Engine::unplaced(Pages::first_touch(0, share, self.machine.nodes())?);
            let mut columns = [const { Vec::new() }; 3];
            for nodes in [1, 2, 4] {
                let base = self.speed(&unplaced, nodes, 48)?;
                columns[0].push(format!("{base:.1}"));
                for (column, engine) in [(1, known::arclight()), (2, Engine::tensor_parallel())] {
                    columns[column].push(format!("{:.2}", self.speed(&engine, nodes, 48)? / base));
                }
            }
            println!("| {share:.3} | {} |", columns.map(|c| c.join(", ")).join(" | "));
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        nodes: usize,
        top: f64,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        let figure = if nodes == 1 { "figure 10" } else { "figure 11" };
        let title = format!("{nodes} node{} ({figure})", if nodes == 1 { "" } else { "s" });
        let threads = (0..48 * nodes).with_key_points((0..=4).map(|n| n * 12 * nodes).collect());
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 34).into_font().color(&INK))
            .margin(20)
            .margin_right(32)
            .x_label_area_size(84)
            .y_label_area_size(100)
            .build_cartesian_2d(threads, 0.0..top)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 26).into_font().color(&INK))
            .axis_desc_style(("sans-serif", 28).into_font().color(&INK))
            .y_labels(8)
            .y_label_formatter(&|y| format!("{y:.0}"))
            .x_desc("threads")
            .y_desc("tokens/s")
            .draw()?;
        // One node: Sync A and B are the same.
        for curve in curves().iter().filter(|c| nodes > 1 || !c.dashed) {
            let points = (2..=48)
                .map(|n| Ok((nodes * n, self.speed(&curve.engine, nodes, n)?)))
                .collect::<Result<Vec<_>, tune::Error>>()?;
            let style = curve.colour.stroke_width(4);
            if curve.dashed {
                chart.draw_series(DashedLineSeries::new(points, 12, 8, style))?;
            } else {
                chart.draw_series(LineSeries::new(points, style))?;
            }
        }
        Ok(())
    }

    fn plot(&self, path: &std::path::Path) -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::new(path, (2160, 920)).into_drawing_area();
        let title =
            "Decoding Qwen3-4B Q4_0 on 4 x 48 Kunpeng 920 cores, as the model of time predicts it";
        root.draw_text(title, &("sans-serif", 38).into_font().color(&INK), (32, 20))?;
        let (_, rest) = root.split_vertically(76);
        let (panels, legend) = rest.split_vertically(752);
        for (panel, (nodes, top)) in
            panels.split_evenly((1, 3)).iter().zip([(1, 50.0), (2, 100.0), (4, 200.0)])
        {
            self.draw(panel, nodes, top)?;
        }
        let text = ("sans-serif", 28).into_font().color(&INK);
        for (at, curve) in curves().into_iter().enumerate() {
            let (x, style) = (40 + 426 * at as i32, curve.colour.stroke_width(6));
            let strokes =
                if curve.dashed { vec![(0, 14), (21, 35), (42, 56)] } else { vec![(0, 56)] };
            for (from, to) in strokes {
                legend.draw(&PathElement::new(vec![(x + from, 40), (x + to, 40)], style))?;
            }
            legend.draw_text(curve.name, &text, (x + 70, 26))?;
        }
        root.present()?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let case = Case { machine: known::kunpeng_920(), model: known::qwen3_4b_q4_0() };
    for nodes in [1, 2, 4] {
        case.table(nodes)?;
    }
    for nodes in [2, 4] {
        case.breakdown("llama.cpp", &known::llama_cpp(), nodes)?;
        case.breakdown("ArcLight (paper), Sync B", &known::arclight(), nodes)?;
        case.breakdown("this engine, Sync B", &Engine::tensor_parallel(), nodes)?;
    }
    case.sensitivity()?;
    let path = std::env::args_os().nth(1).map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures/cost-model.svg")),
        PathBuf::from,
    );
    case.plot(&path)?;
    println!("\ndrawn to {}", path.display());
    Ok(())
}
