//! Layers with sliding windows, chunks, soft caps and neither, in one model, against attention by the book in
//! f64. Pages that windows have left behind are used again.

mod book;
mod run;

use arclight_graph::{
    Attention, Builder, Graph, KV_CLASSES, Keep, KvType, Limits, Norm, NormOver, Outputs, PageId,
    PageTable,
};
use book::{EPS, assert_near, floats, name, rms_norm, times};
use gguf::{Gguf, TensorType};
use kernels::KV_PAGE;
use testkit::TinyModel;

const HIDDEN: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 16;
const SCALE: f32 = 0.7;
/// Tokens of a step.
const STEP: usize = 64;
/// What each layer sees, and its soft cap: four classes.
const LAYERS: [(Keep, Option<f32>); 5] = [
    (Keep::Window(40), None),
    (Keep::All, Some(0.5)),
    (Keep::Window(100), Some(2.0)),
    (Keep::Chunk(70), None),
    (Keep::Window(40), None),
];

/// Attention layers and nothing else, without positions.
fn build(gguf: &Gguf<'_>, nodes: usize) -> Graph {
    let vocab = gguf.tensor("token_embd.weight").unwrap().rows();
    let mut b = Builder::new(nodes, gguf);
    let embedding = b.vocab("token_embd.weight", vocab, HIDDEN).unwrap();
    let mut x = b.embed(embedding, 1.0);
    for (layer, (keep, soft_cap)) in LAYERS.into_iter().enumerate() {
        b.layer(Some(layer));
        let [q, k, v, o] = ["attn_q", "attn_k", "attn_v", "attn_output"].map(|t| name(layer, t));
        let heads = b.heads(HEADS, KV_HEADS, DIM, (&o, HIDDEN)).unwrap();
        let norm = b.vector(&name(layer, "attn_norm"), HIDDEN).unwrap();
        let qkv = b.qkv([&*q, &k, &v], HIDDEN, &heads).unwrap();
        let output = b.attn_output(&o, HIDDEN, &heads).unwrap();
        let spec = Attention {
            v_norm: None,
            borrows: None,
            heads,
            q_norm: None,
            k_norm: None,
            norm_over: NormOver::Head,
            norm_eps: EPS,
            rope: None,
            scale: SCALE,
            soft_cap,
            latent_norm: None,
            norm_last: false,
            slopes: Vec::new(),
            biases: None,
            norm_centres: false,
            sinks: None,
            temperature: None,
            keep,
            cache: 0,
        };
        let a = b.norm(x, Norm::Rms { weight: norm, eps: EPS });
        let a = b.linear(a, qkv);
        let a = b.attention(a, spec);
        let a = b.linear(a, output);
        x = b.residual(x, a, None, (1.0, None));
    }
    b.layer(None);
    let norm = b.vector("output_norm.weight", HIDDEN).unwrap();
    let x = b.select(x);
    let x = b.norm(x, Norm::Rms { weight: norm, eps: EPS });
    b.logits(x, embedding, 1.0, None);
    b.finish()
}

/// Logits of all tokens by the book.
fn reference(gguf: &Gguf<'_>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let embedding = floats(gguf, "token_embd.weight");
    let row = |&t: &u32| embedding[t as usize * HIDDEN..][..HIDDEN].to_vec();
    let mut x: Vec<Vec<f64>> = tokens.iter().map(row).collect();
    for (layer, (keep, soft_cap)) in LAYERS.into_iter().enumerate() {
        let of = |t: &str| floats(gguf, &name(layer, t));
        let (norm, output) = (of("attn_norm"), of("attn_output"));
        let normed: Vec<Vec<f64>> = x.iter().map(|x| rms_norm(x, &norm)).collect();
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(|t| {
            let matrix = of(t);
            normed.iter().map(|x| times(&matrix, x)).collect::<Vec<_>>()
        });
        for (i, x) in x.iter_mut().enumerate() {
            let sees = |j: &usize| match keep {
                Keep::Window(window) => i - j < window,
                Keep::Chunk(chunk) => i / chunk == j / chunk,
                _ => true,
            };
            let seen: Vec<usize> = (0..=i).filter(sees).collect();
            let mut out = Vec::new();
            for head in 0..HEADS {
                let of = |row: &[f64], head: usize| row[head * DIM..][..DIM].to_vec();
                let kv = head / (HEADS / KV_HEADS);
                let score = |j: &usize| {
                    let s = times(&of(&q[i], head), &of(&k[*j], kv))[0] * f64::from(SCALE);
                    soft_cap.map(f64::from).map_or(s, |cap| cap * (s / cap).tanh()).exp()
                };
                let p: Vec<f64> = seen.iter().map(score).collect();
                let sum: f64 = p.iter().sum();
                let values = |d: usize| p.iter().zip(&seen).map(move |(p, j)| (p, j, d));
                out.extend((0..DIM).map(|d| {
                    values(d).map(|(p, j, d)| p * v[*j][kv * DIM + d]).sum::<f64>() / sum
                }));
            }
            x.iter_mut().zip(times(&output, &out)).for_each(|(x, o)| *x += o);
        }
    }
    let norm = floats(gguf, "output_norm.weight");
    x.iter().map(|x| times(&embedding, &rms_norm(x, &norm))).collect()
}

/// The pages of a step, out of so few that their numbers come round.
fn table(keep: Keep, past: usize, end: usize, pages: usize) -> PageTable {
    let first = keep.first_seen(past) / KV_PAGE;
    let pages = (first..end.div_ceil(KV_PAGE)).map(|page| PageId((page % pages) as u32)).collect();
    PageTable { first, pages }
}

#[test]
fn windows_and_soft_caps_are_those_of_the_book() {
    let model = TinyModel {
        hidden: HIDDEN,
        heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: DIM,
        layers: LAYERS.len(),
        ffn: 16,
        ..TinyModel::llama(TensorType::F32)
    };
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let tokens: Vec<u32> = (0..400).map(|i| (i * 7919 + 13) % 300).collect();
    let want = reference(&gguf, &tokens);
    let mut all = Vec::new();
    for nodes in [1, 2] {
        let graph = build(&gguf, nodes);
        assert_eq!(graph.windows(), [Some(40), None, Some(100), Some(70)]);
        let keeps = graph.classes().to_vec();
        // What a window and a step span lies in a page more.
        let pages = |keep: Keep| keep.window().unwrap_or(400) + STEP + 2 * KV_PAGE;
        let mut limits = Limits {
            kv: KvType::F32.into(),
            tokens: STEP,
            outputs: STEP,
            pages: [0; KV_CLASSES],
            ranges: 8,
        };
        for (to, keep) in limits.pages.iter_mut().zip(&keeps) {
            *to = pages(*keep) / KV_PAGE;
        }
        let mut executor = run::executor(&gguf, graph, run::plan(nodes), limits);
        let mut got = Vec::new();
        // Prompts in steps of several sizes, then one token at a time.
        let mut past = 0;
        for step in [64, 64, 1, 50, 64, 64, 33, 64].into_iter().chain(std::iter::repeat(1)) {
            if past == tokens.len() {
                break;
            }
            let end = tokens.len().min(past + step);
            let tables: Vec<PageTable> = keeps
                .iter()
                .zip(limits.pages)
                .map(|(keep, pages)| table(*keep, past, end, pages))
                .collect();
            let rows = run::step(&mut executor, &tokens[past..end], past, &tables, Outputs::All);
            got.extend(rows.map(<[f32]>::to_vec));
            past = end;
        }
        // Five layers of sums of up to 400 roundings of 2^-24 each.
        let bound = 5.0 * 400.0 * 2f64.powi(-24);
        assert_near(&got, &want, bound, &format!("{nodes} nodes"));
        all.push(got);
    }
    assert!(all[0] == all[1], "the number of nodes changes bits");
}
